package meridian

import (
	"testing"

	"pgregory.net/rapid"
)

var tags = Tags{Open: 1, Close: 2}

const (
	eogToken   = 3
	spaceToken = 4
	word       = 9
)

func feed(r *Router, tokens ...int32) (events []Event) {
	for _, t := range tokens {
		events = append(events, r.OnToken(t, t == eogToken, t == spaceToken))
	}
	return events
}

func TestRouterPhases(t *testing.T) {
	for _, c := range []struct {
		name   string
		tags   Tags
		prompt []int32
		tokens []int32
		phase  Phase
		think  int
		last   Event
	}{
		{"plain answer", tags, []int32{word}, []int32{word, word}, OutputDecode, 0, None},
		{"thinks, then answers", tags, []int32{word}, []int32{1, word, word, 2}, OutputDecode, 2, ExitThink},
		{"white space before the tag", tags, nil, []int32{spaceToken, 1, word}, ThinkDecode, 1, None},
		{"tag opened by the template", tags, []int32{word, 1, word}, []int32{word, 2, word}, OutputDecode, 1, None},
		{"past block closed in the prompt", tags, []int32{1, word, 2, word}, []int32{word}, OutputDecode, 0, None},
		{"a second opening is answer text", tags, nil, []int32{1, 2, 1, word}, OutputDecode, 0, None},
		{"nested opening is thought", tags, nil, []int32{1, 1, word}, ThinkDecode, 2, None},
		{"end inside thinking completes", tags, nil, []int32{1, word, eogToken}, Complete, 1, Completed},
		{"complete absorbs", tags, nil, []int32{eogToken, 1, word}, Complete, 0, None},
		{"model without tags", Tags{-1, -1}, []int32{1}, []int32{spaceToken}, OutputDecode, 0, None},
	} {
		r := NewRouter(c.tags, c.prompt)
		ev := feed(&r, c.tokens...)
		if r.Phase() != c.phase || r.ThinkTokens() != c.think || ev[len(ev)-1] != c.last {
			t.Errorf("%s: phase %v think %d last event %v, want %v %d %v", c.name, r.Phase(), r.ThinkTokens(), ev[len(ev)-1], c.phase, c.think, c.last)
		}
	}
}

func TestRouterNeverGoesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := NewRouter(tags, rapid.SliceOfN(rapid.Int32Range(0, 6), 0, 8).Draw(t, "prompt"))
		p := r.Phase()
		for _, tok := range rapid.SliceOf(rapid.Int32Range(0, 6)).Draw(t, "tokens") {
			r.OnToken(tok, tok == eogToken, tok == spaceToken)
			if r.Phase() < p {
				t.Fatalf("went back from %v to %v", p, r.Phase())
			}
			p = r.Phase()
		}
	})
}

func TestRouterAllocatesNothing(t *testing.T) {
	r := NewRouter(tags, nil)
	if n := testing.AllocsPerRun(100, func() { r.OnToken(word, false, false) }); n != 0 {
		t.Fatalf("%v allocations a token", n)
	}
}
