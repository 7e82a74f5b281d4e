package constrain

import (
	"strings"

	"github.com/uma-serve/uma-serve/grammar"
	"github.com/uma-serve/uma-serve/meridian"
)

// A model whose messages have headers (gpt-oss) says in a header whether it thinks, answers or calls a tool. There, the
// grammar of an answer covers the whole turn: the headers too, but not the texts of thoughts, which are not fed to it.

// noThought is tags.FenceEnd, which is fed to the grammar of a turn before a message that must not be a thought. No
// token of the grammar's vocabulary begins with it.
const noThought = "\xfe"

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
func headedStart(h *meridian.Headers, begin meridian.Begin, mayThink bool, answer string, calls bool) string {
	switch {
	case begin.Header:
		return messageEnd(h, mayThink) + h.Turn
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
