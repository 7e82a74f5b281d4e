package daemon

import (
	"crypto/rand"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/model/template"
	"github.com/uma-serve/uma-serve/model/toolcall"
)

// Tools of a request, in terms of the model's chat template and vocabulary, and the tool calls of its answer.

// renderInput is the chat template's input besides the messages.
type renderInput struct {
	vars  map[string]any
	tools []toolcall.Tool // at the head of the prompt
}

// offeredTools returns the tools that the model may call: none with tool_choice "none".
func offeredTools(w *wire.Request) []toolcall.Tool { return toolsWhere(w, (*wire.Tool).Callable) }

// headTools returns those whose definitions the template shows: of the others the conversation has the definition.
func headTools(w *wire.Request) []toolcall.Tool {
	return toolsWhere(w, func(t *wire.Tool) bool { return !t.Deferred })
}

func toolsWhere(w *wire.Request, take func(*wire.Tool) bool) (tools []toolcall.Tool) {
	if w.ToolChoice.Mode == wire.ToolNone {
		return nil
	}
	for i := range w.Tools {
		t := &w.Tools[i]
		if !take(t) {
			continue
		}
		tools = append(tools, toolcall.Tool{Name: t.Name, Description: t.Description, Parameters: t.Parameters,
			Strict: t.Strict})
	}
	return tools
}

// earlierCalls converts the calls of an earlier message of the assistant.
func earlierCalls(calls []wire.ToolCall) (out []toolcall.Call) {
	for _, c := range calls {
		out = append(out, toolcall.Call{ID: c.ID, Name: c.Name, Arguments: c.Arguments})
	}
	return out
}

// resolveCalls returns how the model writes tool calls, nil without a template.
func resolveCalls(t *template.Template, v toolcall.Vocabulary) *toolcall.Spec {
	if t == nil {
		return nil
	}
	t.AskVocabulary(func(text string) bool { return v.Find(text) >= 0 })
	return t.Tools().Form.Resolve(v)
}

// readCalls sets up the parser of tool calls for r's answer. prompt is its rendered conversation.
func (m *model) readCalls(r *request, w *wire.Request, tools []toolcall.Tool, prompt string) {
	if m.calls == nil || len(tools) == 0 && !m.calls.Speaks(prompt) {
		return
	}
	r.callForm = m.calls
	list := toolcall.NewTools(tools)
	r.Calls = toolcall.NewParser(m.calls, list, toolcall.Options{Begun: m.calls.Begun(prompt)})
	r.OneCall = !w.ParallelToolCalls
	if !m.calls.Headed() { // headers tell thoughts and calls apart
		r.Thinks = toolcall.NewThought(m.calls, list)
	}
	r.stopTokens = append(r.stopTokens[:len(r.stopTokens):len(r.stopTokens)], m.calls.Stop()...)
}

// piece returns the text of a token of r's answer; for a control token that marks a call, the marker's text. thought
// says that the token is part of a thought's text, where the headers of messages tell calls.
func (l *loop) piece(r *request, tok core.Token, thought bool) []byte {
	piece := l.vocab.Piece(tok)
	if r.callForm == nil || thought && r.Thinks == nil {
		return piece
	}
	return r.callForm.Piece(tok, piece)
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
			l.m.ToolCalls.Inc(r.callForm.Form().Name)
			continue
		case toolcall.Malformed:
			if len(r.malformed) < maxMalformed {
				r.malformed = append(r.malformed, malformedCall{time.Now(), e.Reason})
			}
			if e.Index >= 0 { // its start was sent
				r.calls, r.callText = r.calls[:len(r.calls)-1], r.callText[:0]
			}
			r.cutCall = r.cutCall || e.Reason == toolcall.Unfinished
			l.m.MalformedCalls.Inc(string(e.Reason))
			l.log.Debug("malformed call", "request", r.wireID, "reason", e.Reason, "form", r.callForm.Form().Name)
			continue
		}
		if r.stream {
			l.event.Kind, l.event.ID, l.event.ToolCall = wire.EventToolCall, r.wireID, part
			l.send(r, &l.event)
		}
	}
}

// malformedCall is a part of an answer that looked like a call and is none.
type malformedCall struct {
	at     time.Time
	reason toolcall.Reason
}

// maxMalformed is the maximum number of malformed calls that why reports of a request.
const maxMalformed = 16

// decision is the call's entry in why.
func (c *malformedCall) decision(arrived time.Time) wire.Decision {
	at := wire.Ms(c.at.Sub(arrived))
	if c.reason == toolcall.Unfinished {
		return wire.Decision{AtMs: at, LastMs: at, Times: 1, Reason: "call_" + string(c.reason),
			Text: "A tool call is incomplete: " + c.reason.Explain() + "."}
	}
	return wire.Decision{AtMs: at, LastMs: at, Times: 1, Reason: "call_" + string(c.reason),
		Text: "A tool call was malformed and stayed text of the answer: " + c.reason.Explain() + "."}
}

// callIDBytes is the length of generated call ids: Mistral's templates accept no other.
const callIDBytes = 9
