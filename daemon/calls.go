package daemon

import (
	"crypto/rand"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/model/toolcall"
)

// The tool calls of an answer.

// piece returns the text of a token of r's answer; for a control token that marks a call, the marker's text. thought
// says that the token is part of a thought's text, where the headers of messages tell calls.
func (l *loop) piece(r *request, tok core.Token, thought bool) []byte {
	piece := l.vocab.Piece(tok)
	if r.CallForm == nil || thought && r.Thinks == nil {
		return piece
	}
	return r.CallForm.Piece(tok, piece)
}

// emitCalls sends what a token adds to the tool calls of r's answer.
func (l *loop) emitCalls(r *request, events []toolcall.Event) {
	for i := range events {
		e := &events[i]
		part := wire.ToolCallPart{ID: r.wireID, Index: e.Index, Arguments: e.Text}
		switch e.Kind {
		case toolcall.Start:
			part.Name = e.Name
			if part.CallID = e.ID; part.CallID == "" || len(part.CallID) > wire.MaxNameBytes {
				part.CallID = rand.Text()[:callIDBytes]
			}
			r.calls = append(r.calls, wire.ToolCall{ID: part.CallID, Name: part.Name})
		case toolcall.Arguments:
			r.callText = append(r.callText, e.Text...)
		case toolcall.End:
			r.calls[len(r.calls)-1].Arguments = string(r.callText)
			r.callText = r.callText[:0]
			l.m.ToolCalls.Inc(r.CallForm.Form().Name)
			continue
		case toolcall.Malformed:
			if len(r.malformed) < report.MaxMalformed {
				r.malformed = append(r.malformed, report.MalformedCall{At: time.Now(), Reason: e.Reason})
			}
			if e.Index >= 0 { // its start was sent
				r.calls, r.callText = r.calls[:len(r.calls)-1], r.callText[:0]
			}
			r.cutCall = r.cutCall || e.Reason == toolcall.Unfinished
			l.m.MalformedCalls.Inc(string(e.Reason))
			l.logRequest(r, "malformed call", "reason", e.Reason)
			continue
		}
		if r.stream {
			l.event.Kind, l.event.ID, l.event.ToolCall = wire.EventToolCall, r.wireID, part
			l.send(r, &l.event)
		}
	}
}

// noteRepeated records that r's answer has ended at a call that repeats an earlier one.
func (l *loop) noteRepeated(r *request) {
	l.m.RepeatedCalls.Inc()
	r.Notes = append(r.Notes, wire.Note{Reason: "call_repeated", Times: 1,
		Text: `With tool_choice "required" the model wrote a call of the answer again: the answer ended there.`})
}

// callIDBytes is the length of generated call ids: Mistral's templates accept no other.
const callIDBytes = 9
