package meridian

import (
	"slices"

	"github.com/uma-serve/uma-serve/runtime"
)

// Headers are the texts around the messages of a model whose messages have headers (tags.Channels), for a grammar
// that holds the headers of an answer too. Markers are between fences (package tags).
type Headers struct {
	End     string // ends a message
	Turn    string // begins the next message of the model: the text before its header
	Thought string // the header of a thought
	Answer  string // the header of an answer
	Call    string // in a header: the message calls a tool; "" where no header says so

	specials []special
}

// Headers returns nil for a model whose messages have no headers, or whose vocabulary has not each of their markers as
// a token: there, a header may begin within a token.
func (t *Tags) Headers() *Headers {
	if t == nil {
		return nil
	}
	return t.headers
}

// setHeaders sets t.headers. known are the markers that are tokens.
func (t *Tags) setHeaders(known map[string]special) {
	c := t.family.Channels
	if c == nil {
		return
	}
	for _, marker := range slices.Concat(c.Start, c.End, []string{c.Message}) {
		if _, ok := known[marker]; !ok {
			return
		}
	}
	t.headers = &Headers{End: fenced(c.End[0], known), Turn: fenced(c.Turn, known),
		Thought: fenced(t.family.Open[0], known), Answer: fenced(c.Answer, known), Call: c.Call, specials: t.specials}
}

// Piece returns a marker's text between fences; nil for any other token.
func (h *Headers) Piece(tok runtime.Token) []byte {
	for i := range h.specials {
		if x := &h.specials[i]; x.id == tok {
			return x.text
		}
	}
	return nil
}

// InThought reports whether the next token is part of a thought's text.
func (r *Router) InThought() bool {
	return r.header.section == inText && (r.phase == ThinkDecode || r.header.aside)
}

// InHeader reports whether the next token is part of a message's header, or begins a message.
func (r *Router) InHeader() bool { return r.header.section != inText }

// MayThink reports whether the next message may be a thought: the request's budget is not used up, and no close of
// the thought is pending.
func (c *Control) MayThink() bool {
	switch c.phase {
	case Prefill:
		return c.budget > 0
	case ThinkDecode:
		return c.state < closeDecided && c.think < c.budget
	}
	return false
}
