package prepare

import (
	"slices"
	"testing"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
	"github.com/uma-serve/uma-serve/sampler"
	"github.com/uma-serve/uma-serve/sched"
)

// TestAnswerLimits: the length of an answer is bounded by the context, the request and the server, and a prompt needs
// room for one token unless it only fills the cache.
func TestAnswerLimits(t *testing.T) {
	const ctx = 64
	prompt := func(n int) []runtime.Token { return slices.Repeat([]runtime.Token{40}, n) }
	for _, c := range []struct {
		what    string
		cfg     config.Config
		prompt  int
		max     int // of the request
		fill    bool
		want    int
		refused wire.Code
	}{
		{what: "what the context leaves", prompt: 10, want: ctx - 10},
		{what: "the request's limit", prompt: 10, max: 5, want: 5},
		{what: "the server's limit", cfg: config.Config{MaxTokens: 3}, prompt: 10, max: 5, want: 3},
		{what: "a full context", prompt: ctx, refused: wire.ContextLength},
		{what: "a full context that is filled", prompt: ctx, fill: true, want: 1},
		{what: "too much to fill", prompt: ctx + 1, fill: true, refused: wire.ContextLength},
		{what: "a context that shifts", cfg: config.Config{ContextShift: true}, prompt: 10, want: maxShifted},
	} {
		m, err := New(&c.cfg, fake.New(fake.Config{Options: runtime.Options{ContextTokens: ctx}}), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		spec := NewPrepared(0)
		w := wire.Request{PromptTokens: prompt(c.prompt), MaxTokens: c.max, FillOnly: c.fill}
		bad := m.Answer(&spec, &w, Constrained{}, &sampler.Scratch{})
		if bad != nil {
			if bad.Code != c.refused || bad.NPrompt != c.prompt || bad.NCtx != ctx {
				t.Errorf("%s: %+v", c.what, bad)
			}
			continue
		}
		if c.refused != "" || spec.MaxTokens != c.want || spec.Prompt != c.prompt || len(spec.Tokens) != c.prompt ||
			spec.Fill != c.fill || spec.Chat {
			t.Errorf("%s: at most %d tokens, want %d: %+v", c.what, spec.MaxTokens, c.want, spec.Request)
		}
	}
}

// TestAnswerOfAChat: a chat is kept for its next turn, which begins with its messages and its answer.
func TestAnswerOfAChat(t *testing.T) {
	m := modelOf(t, fake.Config{})
	w := wire.Request{Messages: []wire.Message{{Role: "user", Content: "question"}}, Priority: wire.PriorityBackground}
	spec := NewPrepared(7)
	if bad := m.Answer(&spec, &w, Constrained{}, &sampler.Scratch{}); bad != nil {
		t.Fatal(bad)
	}
	if !spec.Chat || spec.Continued || spec.Owner != 7 || spec.Class != sched.Background || spec.Control == nil ||
		spec.Chain == nil {
		t.Errorf("%+v", spec)
	}
	next := append(w.Messages, wire.Message{Role: "assistant", Content: "answer"},
		wire.Message{Role: "user", Content: "more"})
	history := m.History(&spec, wire.Message{Content: "answer"})
	_, tokens, bad := m.Render(7, &wire.Request{Messages: next}, nil)
	if bad != nil || len(history) <= spec.Prompt || len(tokens) <= len(history) ||
		!slices.Equal(tokens[:len(history)], history) {
		t.Errorf("the next turn begins with %d tokens, %v; its prompt has %d", len(history), bad, len(tokens))
	}
	m.cfg = &config.Config{NoPrefixCache: true}
	if spec = NewPrepared(0); m.Answer(&spec, &w, Constrained{}, &sampler.Scratch{}) != nil || spec.Chat {
		t.Error("a chat is kept without a cache")
	}
}

// TestSealsOfAChat: a model with states gets the places to which later prompts return: the end of the system prompt,
// and where messages begin.
func TestSealsOfAChat(t *testing.T) {
	w := wire.Request{Messages: []wire.Message{{Role: "system", Content: "be kind"},
		{Role: "user", Content: "question"}, {Role: "assistant", Content: "answer"}, {Role: "user", Content: "more"}}}
	for _, states := range []bool{false, true} {
		m := modelOf(t, fake.Config{NoRanges: states})
		spec := NewPrepared(0)
		if bad := m.Answer(&spec, &w, Constrained{}, &sampler.Scratch{}); bad != nil {
			t.Fatal(bad)
		}
		if !states {
			if spec.Seals != nil {
				t.Errorf("seals %v without states", spec.Seals)
			}
			continue
		}
		if len(spec.Seals) < len(w.Messages) || !slices.IsSorted(spec.Seals) || spec.Keep == 0 ||
			!slices.Contains(spec.Seals, spec.Keep) || spec.Seals[len(spec.Seals)-1] >= spec.Prompt {
			t.Errorf("seals %v, the system prompt ends at %d of %d", spec.Seals, spec.Keep, spec.Prompt)
		}
	}
}
