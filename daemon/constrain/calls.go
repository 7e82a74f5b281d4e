package constrain

import (
	"bytes"

	"github.com/uma-serve/uma-serve/grammar"
	"github.com/uma-serve/uma-serve/runtime"
)

// A model may begin a call by itself. Where the messages have headers, the header of a message shows that it is a call;
// elsewhere the parser of calls finds the opening. From there on the grammar applies, until the parser finds the end.

// followCalls moves between the states of calls that the model begins by itself, and decides EitherOr where a call has
// begun.
func (c *Constraint) followCalls(tok runtime.Token, h *Heard) {
	inHeader := c.headed && h.At.Header
	switch c.state {
	case EitherOr:
		if len(h.Opening) > 0 {
			c.format.over, c.ready = true, false
			c.settle()
		}
	case Free, InHeader:
		switch {
		case inHeader:
			c.readHeader(tok)
		case c.headed:
			c.state, c.header = Free, c.header[:0]
		case h.Busy && len(h.Opening) > 0:
			c.beginCall(h.Opening)
		}
	case Unconstrained:
		if !inHeader && (c.headed || !h.InSection) {
			c.leave(Free)
		}
	case InCall:
		if !inHeader && !h.InSection {
			c.leave(Free)
			c.decided = Whole
		}
	}
}

// readHeader takes a token of a header.
func (c *Constraint) readHeader(tok runtime.Token) {
	h, piece := c.masks.headers, c.piece(tok)
	if c.state = InHeader; len(c.header) == 0 {
		c.header = append(c.header, leaveText(h, piece, false)...)
	} else {
		c.header = append(c.header, piece...)
	}
	if bytes.Contains(c.header, []byte(h.Call)) {
		c.beginCall(c.header)
	}
}

// beginCall constrains a call from the end of its opening on. A call whose opening the grammar does not have is parsed,
// but not constrained.
func (c *Constraint) beginCall(opening []byte) {
	m := grammar.NewMatcher(c.calls.grammar, c.calls.vocab)
	if m.AcceptBytes(opening) != nil {
		c.state = Unconstrained
		return
	}
	c.state, c.calls.m, c.decided, c.header = InCall, m, Stream, c.header[:0]
	c.ready, c.work, c.maskTook, c.err, c.withoutRow = false, 0, 0, nil, 0
	c.masked.Store(0)
	c.maskedNs.Store(0)
}

// leave ends the constraint of a call.
func (c *Constraint) leave(to State) {
	c.Close()
	c.state, c.header = to, c.header[:0]
}

// piece returns the text of a header's token as it is fed to grammars: markers between fences (package tags), other
// tokens as their piece.
func (c *Constraint) piece(tok runtime.Token) []byte {
	piece := c.masks.headers.Piece(tok)
	if piece == nil && c.spec != nil {
		piece = c.spec.Piece(tok, nil)
	}
	if piece == nil {
		piece = c.masks.vocab.Piece(tok)
	}
	return piece
}
