// Package said keeps the answer of a request so far: its text, its thought and its calls of tools.
package said

import (
	"crypto/rand"
	"time"

	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/model/toolcall"
)

// Answer is the answer so far. Owned by the decode loop.
type Answer struct {
	Text      []byte // unless streaming; always for chats
	Thinking  []byte // like Text
	Calls     []wire.ToolCall
	Cut       bool // it ended within a call
	Malformed []report.MalformedCall
	arguments []byte // of the unfinished call
}

// CallIDBytes is the length of generated call ids: Mistral's templates accept no other.
const CallIDBytes = 9

// Call adds what a token adds to the calls. It returns the delta that a streaming client gets, if it gets one, without
// the request's id.
func (a *Answer) Call(e *toolcall.Event) (delta wire.ToolCallDelta, sent bool) {
	delta = wire.ToolCallDelta{Index: e.Index, Arguments: e.Text}
	switch e.Kind {
	case toolcall.Start:
		delta.Name = e.Name
		if delta.CallID = e.ID; delta.CallID == "" || len(delta.CallID) > wire.MaxNameBytes {
			delta.CallID = rand.Text()[:CallIDBytes]
		}
		a.Calls = append(a.Calls, wire.ToolCall{ID: delta.CallID, Name: delta.Name})
	case toolcall.Arguments:
		a.arguments = append(a.arguments, e.Text...)
	case toolcall.End:
		a.Calls[len(a.Calls)-1].Arguments = string(a.arguments)
		a.arguments = a.arguments[:0]
		return delta, false
	case toolcall.Malformed:
		if len(a.Malformed) < report.MaxMalformed {
			a.Malformed = append(a.Malformed, report.MalformedCall{At: time.Now(), Reason: e.Reason})
		}
		if e.Index >= 0 { // its start was sent
			a.Calls, a.arguments = a.Calls[:len(a.Calls)-1], a.arguments[:0]
		}
		a.Cut = a.Cut || e.Reason == toolcall.Unfinished
		return delta, false
	}
	return delta, true
}
