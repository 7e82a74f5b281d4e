package toolcall

import (
	"bytes"
	"slices"

	"github.com/uma-serve/uma-serve/model/toolcall/stream"
)

// Thought reads calls in a thought. A model may end its turn with calls and never close the thought before them: these
// are its calls, and the thought ends where they begin. Calls with a text behind them in their line, or with the end of
// the thought, are part of the thought: the model only thinks of them. A text in the lines behind them is the answer's
// if the turn ends with it.
type Thought struct {
	p      *Parser
	raw    []byte // read and not given back: the end of it is p's undecided text
	out    []byte
	calls  []Call // complete, with nothing but behind after them
	open   Call
	behind []byte // the text after calls
	marked int    // bytes of raw before what p has not decided, when p last reported text
}

// maxBehind bounds the text after calls that is kept until the turn or the thought ends: calls with more of it are part
// of the thought.
const maxBehind = 1 << 10

// NewThought starts a thought, or several of one turn.
func NewThought(spec *Spec, tools *Tools) *Thought {
	t := &Thought{p: NewParser(spec, tools, Options{})}
	t.p.shown = true // no call begins without a marker here
	return t
}

// Push reads more of a thought, with markers as Spec.Piece gives them. It returns the text that is known to be thought,
// valid until the next call.
func (t *Thought) Push(text []byte) []byte {
	t.out = t.out[:0]
	begins := func(c byte) bool { return t.p.spec.first[c] || stream.IsFence(c) }
	if len(t.raw) == 0 && !slices.ContainsFunc(text, begins) {
		return text
	}
	for i := range text { // so that the undecided part begins with a marker
		t.raw = append(t.raw, text[i])
		t.follow(t.p.Push(text[i : i+1]))
	}
	return t.out
}

// follow takes the parser's events, and returns the part of them that is thought.
func (t *Thought) follow(events []Event) {
	for i := range events {
		switch e := &events[i]; e.Kind {
		case Start:
			if len(bytes.TrimSpace(t.behind)) > 0 {
				t.drop()
				t.give(t.marked)
			}
			t.open = Call{ID: e.ID, Name: e.Name}
		case Arguments:
			t.open.Arguments += string(e.Text)
		case End:
			t.calls, t.behind = append(t.calls, t.open), t.behind[:0]
		case Text, Malformed:
			t.marked = len(t.raw) - len(t.p.buf)
			if len(t.calls) == 0 {
				break
			}
			t.behind = append(t.behind, e.Text...)
			line, _, _ := bytes.Cut(t.behind, []byte("\n"))
			if len(bytes.TrimSpace(line)) > 0 || e.Kind == Malformed || len(t.behind) > maxBehind {
				t.drop()
			}
		}
	}
	if len(t.calls) == 0 {
		t.give(len(t.raw) - len(t.p.buf))
	}
}

// drop makes the calls part of the thought.
func (t *Thought) drop() { t.calls, t.behind = t.calls[:0], t.behind[:0] }

// give gives the first n bytes of raw back as thought, without the fences of markers.
func (t *Thought) give(n int) {
	if n <= 0 {
		return
	}
	for _, c := range t.raw[:n] {
		if !stream.IsFence(c) {
			t.out = append(t.out, c)
		}
	}
	t.raw = t.raw[:copy(t.raw, t.raw[n:])]
	t.marked = max(0, t.marked-n)
}

// Close ends the thought, the model having closed it. It returns the rest of its text.
func (t *Thought) Close() []byte {
	t.out = t.out[:0]
	t.give(len(t.raw))
	t.reset()
	return t.out
}

func (t *Thought) reset() {
	t.p = NewParser(t.p.spec, t.p.tools, t.p.opt)
	t.p.shown = true
	t.marked = 0
	t.drop()
}

// Finish ends the turn, which ends in the thought if anything is undecided. cut: its limit of tokens has ended it. It
// returns the rest of the thought, and the events of the calls and the text with which the turn ends.
func (t *Thought) Finish(cut bool) (thought []byte, events []Event) {
	t.out = t.out[:0]
	if len(t.raw) == 0 {
		return nil, nil
	}
	called := t.p.Busy() && t.p.tool >= 0 // it names a tool
	if cut {
		events = t.p.Cut()
	} else {
		events = t.p.Finish()
	}
	unfinished := called && slices.ContainsFunc(events, func(e Event) bool {
		return e.Kind == Malformed && e.Reason == Unfinished
	})
	if unfinished {
		t.open = Call{}
	} else {
		t.follow(events)
	}
	events = nil
	said := len(bytes.TrimSpace(t.behind)) > 0
	switch {
	case said && (cut || unfinished):
		t.drop()
		t.give(t.marked)
	case said: // it is first, because a turn may end with its first call
		events = append(events, Event{Kind: Text, Index: -1, Text: slices.Clone(t.behind)})
	}
	for i, c := range t.calls {
		events = append(events, Event{Kind: Start, Index: i, ID: c.ID, Name: c.Name},
			Event{Kind: Arguments, Index: i, Text: []byte(c.Arguments)}, Event{Kind: End, Index: i})
	}
	if unfinished {
		events = append(events, Event{Kind: Malformed, Index: -1, Reason: Unfinished})
	}
	if len(events) == 0 {
		t.give(len(t.raw))
	}
	t.raw = t.raw[:0]
	t.reset()
	return t.out, events
}
