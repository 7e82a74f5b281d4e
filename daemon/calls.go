package daemon

import (
	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/model/toolcall"
)

// The tool calls of an answer.

// piece returns the text of a token of r's answer; for a control token that marks a call, the marker's text. thought
// says that the token is part of a thought's text, where the headers of messages tell calls.
func (l *loop) piece(r *request, tok core.Token, thought bool) []byte {
	piece := l.model.vocab.Piece(tok)
	if r.CallSyntax == nil || thought && r.Thinks == nil {
		return piece
	}
	return r.CallSyntax.Piece(tok, piece)
}

// emitCalls sends what a token adds to the tool calls of r's answer.
func (l *loop) emitCalls(r *request, events []toolcall.Event) {
	for i := range events {
		e := &events[i]
		delta, sent := r.said.Call(e)
		switch {
		case e.Kind == toolcall.End:
			l.m.ToolCalls.Inc(r.CallSyntax.Syntax().Name)
		case e.Kind == toolcall.Malformed:
			l.m.MalformedCalls.Inc(string(e.Reason))
			l.logRequest(r, "malformed call", "reason", e.Reason)
		case sent && r.stream:
			delta.ID = r.wireID
			l.reused.event.Kind, l.reused.event.ID, l.reused.event.ToolCall = wire.EventToolCall, r.wireID, delta
			l.send(r, &l.reused.event)
		}
	}
}

// noteRepeated records that r's answer has ended at a call that repeats an earlier one.
func (l *loop) noteRepeated(r *request) {
	l.m.RepeatedCalls.Inc()
	r.Notes = append(r.Notes, wire.Note{Reason: "call_repeated", Times: 1,
		Text: `With tool_choice "required" the model wrote a call of the answer again: the answer ended there.`})
}
