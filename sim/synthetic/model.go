package synthetic

import (
	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sim/thinking"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// request is one live request.
type request struct {
	workload.Request
	core     core.Request
	ctl      thought
	identity workload.Identity
	answered int   // words of the answer
	visible  bool  // a visible token is out
	closed   int64 // when the think block ended, nanoseconds; 0 = it has not
	last     int64 // when the last visible token came
	first    bool  // a token is out
}

// thought is the request's core.Thinking: its history holds tokens that say which prompts are equal; Control hears of
// those that the model writes.
type thought struct {
	*meridian.Control
	course thinking.Course
	asked  int // think tokens at the newest probe
	tok    runtime.Token
	piece  []byte
	eog    bool
}

func (t *thought) OnToken(_ core.Token, _ []byte, _ bool, now int64) meridian.Step {
	return t.Control.OnToken(t.tok, t.piece, t.eog, now)
}

func (t *thought) ProbeDue() (tokens []core.Token, ok bool) {
	if tokens, ok = t.Control.ProbeDue(); ok {
		t.asked = t.ThinkTokens()
	}
	return tokens, ok
}

// entropy returns that of the newest probe's row, nats.
func (t *thought) entropy() float64 { return t.course.Probe(t.asked) }

// observe gives Control the statistics of the row from which the next token is drawn, if it wants them.
func (t *thought) observe() {
	if t.NeedStats() {
		row := t.course.Row(t.ThinkTokens())
		t.Observe(&row)
	}
}

// sample returns the request's next token as the model would have it: its think block between the tags, then words,
// then the end.
func (r *request) sample(w *thinking.Model) runtime.Token {
	thought := r.ctl.ThinkTokens()
	switch phase := r.ctl.Phase(); {
	case phase == meridian.Prefill && r.Think > 0:
		return w.Open
	case phase == meridian.ThinkDecode && thought >= r.Think:
		return w.Close
	case phase == meridian.ThinkDecode:
		return w.Thought(thought)
	case r.answered >= r.Output-r.Think:
		return w.End
	}
	r.answered++
	return w.Word()
}
