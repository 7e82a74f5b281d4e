package daemon

import (
	"crypto/rand"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/internal/chattmpl"
	"github.com/uma-serve/uma-serve/internal/toolcall"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// What a request says about tools, in terms of the model's chat template and vocabulary; and the calls that its answer has.

// rendering is what a chat template is told beside the messages.
type rendering struct {
	vars  map[string]any
	tools []toolcall.Tool // offered to the model
}

// offered are the tools that w offers to the model: none with tool_choice "none".
func offered(w *wire.Request) (tools []toolcall.Tool) {
	if w.ToolChoice.Mode == wire.ToolNone {
		return nil
	}
	for i := range w.Tools {
		t := &w.Tools[i]
		tools = append(tools, toolcall.Tool{Name: t.Name, Description: t.Description, Parameters: t.Parameters, Strict: t.Strict})
	}
	return tools
}

// earlier are the calls of an assistant's earlier message.
func earlier(calls []wire.ToolCall) (out []toolcall.Call) {
	for _, c := range calls {
		out = append(out, toolcall.Call{ID: c.ID, Name: c.Name, Arguments: c.Arguments})
	}
	return out
}

// resolveCalls finds the form in which the model writes calls.
func resolveCalls(t *chattmpl.Template, v toolcall.Vocabulary) *toolcall.Spec {
	if t == nil {
		return nil
	}
	return t.Tools().Form.Resolve(v)
}

// readCalls prepares r's answer to be read for calls of tools. prompt is its rendered conversation.
func (m *model) readCalls(r *request, w *wire.Request, tools []toolcall.Tool, prompt string) {
	if len(tools) == 0 || m.calls == nil {
		return
	}
	r.callForm = m.calls
	r.Calls = toolcall.NewParser(m.calls, toolcall.NewTools(tools), toolcall.Options{Begun: m.calls.Begun(prompt)})
	r.OneCall = !w.ParallelToolCalls
	r.stopTokens = append(r.stopTokens[:len(r.stopTokens):len(r.stopTokens)], m.calls.Stop()...)
}

// piece is the text of a token of r's answer, with the marker of a call where it is one.
func (l *loop) piece(r *request, tok core.Token, inThink bool) []byte {
	piece := l.vocab.Piece(tok)
	if r.callForm == nil || inThink {
		return piece
	}
	return r.callForm.Piece(tok, piece)
}

// emitCalls sends what a token adds to the calls of r's answer.
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
			l.m.ToolCalls.Inc(r.callForm.Form().Name)
			continue
		case toolcall.Malformed:
			if len(r.malformed) < maxMalformed {
				r.malformed = append(r.malformed, malformedCall{time.Now(), e.Reason})
			}
			if e.Index >= 0 { // it has begun
				r.calls, r.callText = r.calls[:len(r.calls)-1], r.callText[:0]
			}
			l.m.MalformedCalls.Inc(string(e.Reason))
			l.log.Debug("malformed call", "request", r.wireID, "reason", e.Reason, "form", r.callForm.Form().Name)
			continue
		}
		if r.stream {
			l.frame = wire.AppendToolCall(l.frame[:0], &part)
			l.send(r, l.frame)
		}
	}
}

// malformedCall is a text of an answer that looked like a call.
type malformedCall struct {
	at     time.Time
	reason toolcall.Reason
}

// maxMalformed bounds what why tells of one request's malformed calls.
const maxMalformed = 16

// decision is what why tells of it.
func (c *malformedCall) decision(arrived time.Time) wire.Decision {
	at := wire.Ms(c.at.Sub(arrived))
	return wire.Decision{AtMs: at, LastMs: at, Times: 1, Reason: "call_" + string(c.reason),
		Text: "A call of a tool came as text of the answer: " + c.reason.Explain() + "."}
}

// callIDBytes is the length of the ids that the server makes: the only one that Mistral's templates take.
const callIDBytes = 9
