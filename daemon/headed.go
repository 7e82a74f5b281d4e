package daemon

import (
	"bytes"
	"strings"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/grammar"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/model/tags"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sampler"
)

// A model whose messages have headers (gpt-oss) says in a header whether it thinks, answers or calls a tool. There, the
// grammar of an answer covers the whole turn: the headers too, but not the texts of thoughts, which are not fed to it.

// noThought is a byte that is fed to the grammar of a turn before a message that must not be a thought. No token has
// it.
const noThought = string(tags.FenceEnd)

// headedTurn returns the grammar of a turn from the end of a message on: thoughts, then answer, which includes its
// header.
func headedTurn(b *grammar.Builder, h *meridian.Headers, answer grammar.Node) grammar.Node {
	return b.Seq(b.Repeat(b.Literal(h.End+h.Turn+h.Thought), 0, grammar.Unbounded),
		b.Literal(h.End), b.Optional(b.Literal(noThought)), b.Literal(h.Turn), answer)
}

// messageEnd returns the text that is fed to the grammar of a turn at the end of a message.
func messageEnd(h *meridian.Headers, mayThink bool) string {
	if mayThink {
		return h.End
	}
	return h.End + noThought
}

// headedStart returns the text that is fed to the grammar of a turn for the end of the prompt. answer is the text with
// which the answer's message begins. calls: the answer consists of tool calls, which begin a message with another
// header.
func headedStart(h *meridian.Headers, ctl *meridian.Control, begin meridian.Begin, answer string, calls bool) string {
	switch {
	case begin.Header:
		return messageEnd(h, ctl.MayThink()) + h.Turn
	case begin.Thinking:
		return h.End + h.Turn + h.Thought
	case calls:
		return ""
	}
	return messageEnd(h, false) + h.Turn + h.Answer + answer
}

// leaveText returns the text that is fed to the grammar of a turn for a marker that ends the text of a message. A model
// may begin the next message without an end marker; the text then includes one.
func leaveText(h *meridian.Headers, marker []byte, mayThink bool) []byte {
	text := messageEnd(h, mayThink)
	switch {
	case strings.HasPrefix(h.Turn, string(marker)):
		text += string(marker)
	case strings.HasPrefix(h.Answer, string(marker)):
		text += h.Turn + string(marker)
	}
	return []byte(text)
}

// headPiece returns the text of a header's token as it is fed to grammars: markers between fences (package tags),
// other tokens as their piece.
func (l *loop) headPiece(r *request, tok core.Token) []byte {
	piece := l.tags.Headers().Piece(tok)
	if piece == nil && r.CallForm != nil {
		piece = r.CallForm.Piece(tok, nil)
	}
	if piece == nil {
		piece = l.vocab.Piece(tok)
	}
	return piece
}

// followHeader begins to constrain a call of r once the header of a message shows that it is one. The loop calls it
// after each token.
func (l *loop) followHeader(r *request, tok core.Token) {
	if !r.Phases.InHeader() {
		r.header, r.refused = r.header[:0], false
		return
	}
	if r.form != nil || r.refused {
		return
	}
	h, piece := l.tags.Headers(), l.headPiece(r, tok)
	if len(r.header) == 0 {
		r.header = append(r.header, leaveText(h, piece, false)...)
	} else {
		r.header = append(r.header, piece...)
	}
	if !bytes.Contains(r.header, []byte(h.Call)) {
		return
	}
	m := grammar.NewMatcher(r.callGrammar.grammar, r.callGrammar.vocab)
	if m.AcceptBytes(r.header) != nil {
		r.refused = true // the grammar does not have this header: the call is parsed, but not constrained
		return
	}
	r.form = &form{compiled: r.callGrammar, calls: true, passing: true, headed: true, prefix: "a call", m: m}
	r.Calls.Stream(r.stream)
}

// leaveThought tells r's grammar that tok has ended the text of a thought.
func (l *loop) leaveThought(r *request, tok core.Token) error {
	text := leaveText(l.tags.Headers(), l.headPiece(r, tok), r.Phases.MayThink())
	return r.form.accept(func(m *grammar.Matcher) error { return m.AcceptBytes(text) })
}

// unbound returns the mask of a row that the grammar of r's answer does not bind: the turn does not end in the header
// of a message while the answer is to come. nil: none.
func (l *loop) unbound(r *request) sampler.Mask {
	if !r.Phases.InHeader() || r.form.passing {
		return nil
	}
	if l.goesOn == nil {
		l.goesOn = make(sampler.Mask, (l.vocab.Size()+31)/32)
		for t := range runtime.Token(l.vocab.Size()) {
			if !l.vocab.IsEOG(t) {
				l.goesOn[t>>5] |= 1 << (t & 31)
			}
		}
	}
	return l.goesOn
}
