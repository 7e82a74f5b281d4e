package prepare

import (
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/model/template"
	"github.com/uma-serve/uma-serve/model/toolcall"
)

// Tools of a request, in terms of the model's chat template and vocabulary.

// renderInput is the chat template's input besides the messages.
type renderInput struct {
	vars  map[string]any
	tools []toolcall.Tool // at the head of the prompt
	// dropPast: thoughts before the last question are left out of the messages.
	dropPast bool
}

// OfferedTools returns the tools that the model may call: none with tool_choice "none".
func OfferedTools(w *wire.Request) []toolcall.Tool { return toolsWhere(w, (*wire.Tool).Callable) }

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
	return t.Tools().Syntax.Resolve(v)
}

// readCalls sets up the parser of tool calls for an answer. prompt is its rendered conversation.
func (m *Model) readCalls(out *Prepared, w *wire.Request, prompt string) {
	tools := OfferedTools(w)
	if m.Calls == nil || len(tools) == 0 && !m.Calls.Speaks(prompt) {
		return
	}
	out.CallSyntax, out.CallBegun = m.Calls, m.Calls.Begun(prompt)
	list := toolcall.NewTools(tools)
	out.Calls = toolcall.NewParser(m.Calls, list, toolcall.Options{Begun: out.CallBegun,
		Whole: len(tools) > 0 && w.Format.Kind == wire.FormatNone})
	out.OneCall = !w.ManyCalls()
	if w.ToolChoice.Mode == wire.ToolRequired && !out.OneCall {
		out.Distinct = new(toolcall.Distinct)
	}
	if !m.Calls.Headed() { // headers tell thoughts and calls apart
		out.Thinks = toolcall.NewThought(m.Calls, list)
	}
	out.StopTokens = append(out.StopTokens[:len(out.StopTokens):len(out.StopTokens)], m.Calls.Stop()...)
}
