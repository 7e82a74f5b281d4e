package meridian

import (
	"slices"
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
)

// TestInAnswer follows what a model writes and asks before each token whether it belongs to the answer's text, which is
// what a grammar binds, and with which tokens a thought may be opened instead.
func TestInAnswer(t *testing.T) {
	cfg := DefaultConfig()
	type step struct {
		text   string
		answer bool // before the token
		opener bool
	}
	for _, c := range []struct {
		name   string
		begin  Begin
		mode   Mode
		budget int
		steps  []step
	}{
		{"an answer at once", Begin{}, ModeAuto, 100,
			[]step{{"a", true, true}, {"b", true, false}, {".", true, false}}},
		{"a thought first", Begin{}, ModeAuto, 100, []step{{"<think>", true, true}, {"ab", false, false},
			{"</think>", false, false}, {"a", true, false}}},
		{"the prompt opened it", Begin{Thinking: true}, ModeAuto, 100,
			[]step{{"ab", false, false}, {"</think>", false, false}, {"a", true, false}}},
		{"no thought is wanted", Begin{}, ModeOff, 100, []step{{"a", true, false}}},
		{"no budget for one", Begin{}, ModeAuto, 0, []step{{"a", true, false}}},
	} {
		v := singles
		tags := mustResolve(v, thinkTags)
		ctl, err := NewControl(&cfg, tags, Options{Mode: c.mode, BudgetTokens: c.budget, SoftBudgetTokens: Unset,
			Bound: true}, c.begin)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range c.steps {
			if got := ctl.InAnswer(); got != s.answer {
				t.Errorf("%s: before token %d (%q): in the answer: %v", c.name, i, s.text, got)
			}
			if got := slices.Equal(ctl.Openers(), tags.open); got != s.opener || !s.opener && len(ctl.Openers()) > 0 {
				t.Errorf("%s: before token %d (%q): openers %v", c.name, i, s.text, ctl.Openers())
			}
			for _, tok := range v.tokens(s.text) {
				ctl.OnToken(tok, v.Piece(tok), false, 0)
			}
		}
	}
	var none *Tags
	ctl, err := NewControl(&cfg, none, cfg.Options(), Begin{})
	if err != nil || !ctl.InAnswer() || ctl.Openers() != nil {
		t.Errorf("a model that does not think: %v, %v, %v", err, ctl.InAnswer(), ctl.Openers())
	}
}

// TestBoundAnswerHasNoMarkers: text of a bound answer that reads like a marker is text, also where the model could
// think again.
func TestBoundAnswerHasNoMarkers(t *testing.T) {
	cfg := DefaultConfig()
	cfg.MaxThinkBlocks = 3
	for _, bound := range []bool{false, true} {
		v := spelled
		ctl, err := NewControl(&cfg, mustResolve(v, thinkTags), Options{BudgetTokens: 100, SoftBudgetTokens: Unset,
			Bound: bound}, Begin{Thinking: true})
		if err != nil {
			t.Fatal(err)
		}
		answer := ""
		follow := func(tokens []runtime.Token) {
			for _, tok := range tokens {
				answer += string(ctl.OnToken(tok, v.Piece(tok), false, 0).Answer)
			}
		}
		follow(v.tokens("ab</think>b.<think>b</think>.a"))
		if want := "b.<think>b</think>.a"; (answer == want) != bound || (ctl.Phase() == OutputDecode) != true {
			t.Errorf("bound %v: %q in phase %v", bound, answer, ctl.Phase())
		}
	}
}
