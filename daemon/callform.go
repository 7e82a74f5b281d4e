package daemon

import (
	"fmt"
	"slices"
	"time"

	"github.com/zeebo/blake3"

	"github.com/uma-serve/uma-serve/grammar"
	"github.com/uma-serve/uma-serve/grammar/jsonschema"
	"github.com/uma-serve/uma-serve/grammar/toolcalls"
	"github.com/uma-serve/uma-serve/internal/toolcall"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Calls of tools are held to a grammar: the whole answer where tool_choice asks for a call, otherwise a call from its opening
// to its end. Held calls are sent while they are written; others when they are complete, because they may turn out to be
// malformed.

// holdCalls has the calls of r's answer held to their tools' schemas. prompt is the rendered conversation, which may end
// with the opening of a call.
func (s *Server) holdCalls(r *request, w *wire.Request, tools []toolcall.Tool, prompt string) *wire.Error {
	if r.Calls == nil || w.FillOnly {
		return nil
	}
	refuse := func(format string, a ...any) *wire.Error {
		return &wire.Error{Code: wire.BadRequest, Message: fmt.Sprintf(format, a...)}
	}
	must := w.ToolChoice.Mode >= wire.ToolRequired
	switch {
	case must && r.callForm.Form().Written[0] != "":
		return refuse(`tool_choice: the messages of this model's chat format have headers, and a call cannot be forced; use "auto" or "none"`)
	case must && r.form != nil:
		return refuse("tool_choice asks for a call, and %s for an answer of another form; send one of them", r.form.field())
	case must && w.Think.AnswerCue != "":
		return refuse("think.answer_cue cannot be combined with tool_choice: the answer begins as a call does")
	case r.callForm.Form().Written[0] != "", r.form != nil:
		return nil
	}
	choice := toolcall.Choice{Mode: toolcall.Mode(w.ToolChoice.Mode), Name: w.ToolChoice.Name}
	c, took, bad := s.compileCalls(r, tools, choice, w.ParallelToolCalls)
	if took > 0 {
		s.metrics.GrammarCompile.Observe(took)
	}
	if bad != nil {
		if must || slices.ContainsFunc(tools, func(t toolcall.Tool) bool { return t.Strict }) {
			s.metrics.GrammarRefused.Inc()
			return bad
		}
		return nil // calls are read without being held
	}
	if must {
		r.form = &form{compiled: c, calls: true, compile: took, prefix: r.callForm.Begun(prompt)}
		r.Calls.Stream(r.stream)
	} else {
		r.callGrammar = c
	}
	return nil
}

// compileCalls returns the grammar of r's calls, and how long compiling took; 0 when it was there.
func (s *Server) compileCalls(r *request, tools []toolcall.Tool, choice toolcall.Choice, parallel bool) (*compiled, time.Duration, *wire.Error) {
	for i := range tools {
		if choice.Mode == toolcall.Named && tools[i].Name != choice.Name {
			continue
		}
		if err := r.callForm.CanHold(&tools[i]); err != nil {
			return nil, 0, &wire.Error{Code: wire.BadRequest, Message: "tools: " + err.Error()}
		}
	}
	build := func() (*grammar.Grammar, error) {
		return toolcalls.Compile(r.callForm.Text(tools, choice, parallel), jsonschema.Options{}, jsonschema.Limits{Grammar: formLimits})
	}
	return s.forms.make(s.model.Load(), r.Owner, "tools", callsKey(tools, choice, parallel), build, time.Now)
}

// callsKey identifies the grammar of calls of tools.
func callsKey(tools []toolcall.Tool, choice toolcall.Choice, parallel bool) [32]byte {
	h := blake3.New()
	fmt.Fprintf(h, "calls %d %q %v", choice.Mode, choice.Name, parallel)
	for i := range tools {
		fmt.Fprintf(h, " %q %q", tools[i].Name, tools[i].Parameters)
	}
	return [32]byte(h.Sum(nil))
}

// holdCall begins to hold a call of r when its opening is written, and ends when the calls have.
func (l *loop) holdCall(r *request) {
	if r.callGrammar == nil {
		return
	}
	switch {
	case r.form == nil && !r.refused && r.Calls.Busy():
		opening := r.Calls.Opening()
		if len(opening) == 0 {
			return // it cannot be told yet
		}
		m := grammar.NewMatcher(r.callGrammar.grammar, r.callGrammar.vocab)
		if m.AcceptBytes(opening) != nil {
			r.refused = true // the parser will say what is wrong with it
			return
		}
		r.form = &form{compiled: r.callGrammar, calls: true, passing: true, prefix: "a call", m: m}
		r.Calls.Stream(r.stream)
	case !r.Calls.InSection():
		r.refused = false
		if r.form != nil && r.form.passing {
			l.formDone(r.form)
			r.form, r.Last, r.More = nil, false, false
			r.chain.Restrict(nil)
			r.Calls.Stream(false)
		}
	}
}
