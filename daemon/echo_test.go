package daemon

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// TestEchoWithLogprobs: a prompt's tokens have the log-probabilities that the model gives them, whether the prompt is
// cached, beside other requests, with an answer and without.
func TestEchoWithLogprobs(t *testing.T) {
	r := serve(t, fake.Config{}, "-c", "8192")
	web := r.web()
	text := strings.Repeat("what is this about? ", 8)
	type logprobs struct {
		Tokens   []string              `json:"tokens"`
		Logprobs []*float64            `json:"token_logprobs"`
		Top      []map[string]*float64 `json:"top_logprobs"`
		Offsets  []int                 `json:"text_offset"`
	}
	type answer struct {
		Choices []struct {
			Text     string
			Logprobs *logprobs
		}
	}
	ask := func(body string) (a answer) {
		t.Helper()
		status, _, data := post(t, web, "/v1/completions", body)
		if err := json.Unmarshal(data, &a); status != 200 || err != nil || len(a.Choices) == 0 ||
			a.Choices[0].Logprobs == nil {
			t.Fatalf("%s: %d %s", body, status, data)
		}
		return a
	}
	first := ask(fmt.Sprintf(`{"prompt":%q,"max_tokens":0,"echo":true,"logprobs":2}`, text)).Choices[0]
	n := len(first.Logprobs.Tokens)
	if first.Text != text || n < 20 || len(first.Logprobs.Logprobs) != n || len(first.Logprobs.Top) != n ||
		len(first.Logprobs.Offsets) != n {
		t.Fatalf("%+v", first)
	}
	if first.Logprobs.Logprobs[0] != nil || first.Logprobs.Top[0] != nil {
		t.Errorf("the first token has a log-probability")
	}
	m := r.model.Load()
	_, tokens, bad := m.Render(0, &wire.Request{Prompt: text}, nil)
	if bad != nil || len(tokens) != n {
		t.Fatalf("%d tokens, %d log-probabilities, %v", len(tokens), n, bad)
	}
	for i := 1; i < n; i++ {
		p, top := first.Logprobs.Logprobs[i], first.Logprobs.Top[i]
		if p == nil || *p > 0 || len(top) == 0 || len(top) > 2 {
			t.Fatalf("token %d: %v, %v", i, p, top)
		}
		for _, q := range top {
			if *q < *p && top[first.Logprobs.Tokens[i]] == nil && len(top) == 2 && *p > *q {
				t.Errorf("token %d is more probable than one of the most probable ones", i)
			}
		}
		if o := first.Logprobs.Offsets[i]; o >= len(text) || !strings.HasPrefix(text[o:], first.Logprobs.Tokens[i]) {
			t.Errorf("token %d %q is not at offset %d", i, first.Logprobs.Tokens[i], o)
		}
	}
	// The same prompt with an answer, streamed, beside another request; it is cached by now.
	c := r.dial()
	other := r.begin(c, func(q *wire.Request) { q.MaxTokens, q.Sampling.IgnoreEOS = 200, true })
	again := ask(fmt.Sprintf(`{"prompt":%q,"max_tokens":4,"echo":true,"logprobs":2,"temperature":0,"ignore_eos":true}`,
		text)).Choices[0]
	if !strings.HasPrefix(again.Text, text) || len(again.Logprobs.Tokens) != n+4 {
		t.Fatalf("%d tokens of %q", len(again.Logprobs.Tokens), again.Text)
	}
	for i := 1; i < n; i++ {
		if math.Abs(*again.Logprobs.Logprobs[i]-*first.Logprobs.Logprobs[i]) > 1e-4 {
			t.Errorf("token %d has %v, and %v before", i, *again.Logprobs.Logprobs[i], *first.Logprobs.Logprobs[i])
		}
	}
	// What the model generates after a shorter prompt has the log-probability that it has in the longer one.
	half := text[:first.Logprobs.Offsets[n/2]]
	drawn := ask(fmt.Sprintf(`{"prompt":%q,"max_tokens":1,"logprobs":2,"temperature":0}`, half)).Choices[0]
	var best float64 = -1e9
	for _, q := range first.Logprobs.Top[n/2] {
		best = max(best, *q)
	}
	if got := *drawn.Logprobs.Logprobs[0]; math.Abs(got-best) > 1e-4 {
		t.Errorf("the most probable token behind half of the prompt has %v, %v in the prompt", got, best)
	}
	collect(other)
	r.nothingLeft()
}
