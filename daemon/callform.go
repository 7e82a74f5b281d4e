package daemon

import (
	"fmt"
	"slices"

	"github.com/zeebo/blake3"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/daemon/prepare"
	"github.com/uma-serve/uma-serve/grammar"
	"github.com/uma-serve/uma-serve/grammar/jsonschema"
	"github.com/uma-serve/uma-serve/grammar/toolcalls"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/model/toolcall"
)

// A grammar constrains tool calls: the whole answer if tool_choice asks for a call, else a call from its opening to its
// end. Constrained calls are streamed; other calls are sent when they are complete, because they may be malformed.

// formSources returns the constraints of w's answer: its form and its tool calls, nil for none. With both, the answer
// is either of them.
func formSources(m *prepare.Model, w *wire.Request) (format, calls *formSource, bad *wire.Error) {
	refuse := func(text string, a ...any) (_, _ *formSource, _ *wire.Error) {
		return nil, nil, &wire.Error{Code: wire.BadRequest, Message: fmt.Sprintf(text, a...)}
	}
	heads := m.Tags.Headers()
	if format = formSourceOf(w, heads); format != nil && w.Think.AnswerCue != "" {
		return refuse("think.answer_cue cannot be combined with %s: the answer begins as its form says", format.field)
	}
	tools := prepare.OfferedTools(w)
	if len(tools) == 0 || m.Calls == nil {
		return format, nil, nil
	}
	unheld := m.Calls.Named() && heads == nil // a call begins in a header
	must := w.ToolChoice.Mode >= wire.ToolRequired
	switch {
	case must && unheld:
		return refuse(`tool_choice: a call begins in the header of a message, and the model's vocabulary does not ` +
			`have the markers around headers as tokens: a call cannot be forced; use "auto" or "none"`)
	case must && format != nil:
		return refuse("tool_choice asks for a call, and %s for an answer of another form; send one of them",
			format.field)
	case must && w.Think.AnswerCue != "":
		return refuse("think.answer_cue cannot be combined with tool_choice: the answer begins as a call does")
	case unheld, format != nil && format.kind != wire.FormatJSON && format.kind != wire.FormatSchema:
		return format, nil, nil // a regular expression or a grammar constrains tool calls too: it may describe them
	}
	choice := toolcall.Choice{Mode: toolcall.Mode(w.ToolChoice.Mode), Name: w.ToolChoice.Name}
	strict := must || slices.ContainsFunc(tools, func(t toolcall.Tool) bool { return t.Strict })
	headed := heads != nil && (must || format != nil || m.Calls.Named())
	src := &formSource{key: callsKey(tools, choice, w.ParallelToolCalls, headed), field: "tools", calls: true,
		must: must, headed: headed, optional: !strict}
	src.compile = func(l grammar.Limits) (*grammar.Grammar, error) {
		limits := jsonschema.Limits{Grammar: l}
		text := m.Calls.Text(tools, choice, w.ParallelToolCalls)
		if headed && m.Calls.Headed() {
			text = m.Calls.TextWithHeader(tools, choice, w.ParallelToolCalls)
		}
		var holder *toolcalls.Holder
		add := func(b *grammar.Builder, h *toolcalls.Holder) (grammar.Node, error) {
			holder = h
			root, err := h.Add(b, text, limits)
			if err != nil {
				return 0, err
			}
			if headed && !m.Calls.Headed() {
				root = b.Seq(b.Literal(heads.Answer), root)
			}
			if headed {
				root = headedTurn(b, heads, root)
			}
			return root, nil
		}
		g, err := toolcalls.Build(l, true, add)
		src.free = holder.Free()
		return g, err
	}
	return format, src, nil
}

// callsKey identifies the grammar of tool calls.
func callsKey(tools []toolcall.Tool, choice toolcall.Choice, parallel, headed bool) [32]byte {
	h := blake3.New()
	fmt.Fprintf(h, "calls %d %q %v %v", choice.Mode, choice.Name, parallel, headed)
	for i := range tools {
		fmt.Fprintf(h, " %q %q %v", tools[i].Name, tools[i].Parameters, tools[i].Strict)
	}
	return [32]byte(h.Sum(nil))
}

// hold constrains r's answer by the grammars of its form and of its tool calls; nil for none.
func (r *request) hold(format, calls *compiledForm, w *wire.Request) {
	switch {
	case format != nil:
		begun := ""
		if n := len(w.Messages); r.Continued && n > 0 {
			begun = w.Messages[n-1].Content
		}
		if r.form = format.form(begun); calls != nil {
			r.form.orCalls, r.form.undecided = calls.compiled, true
		}
	case calls != nil && calls.must:
		r.form = calls.form(r.CallBegun)
		r.Calls.Stream(r.stream)
	case calls != nil:
		r.callGrammar, r.headed = calls.compiled, calls.headed
	}
}

// holdCall starts to constrain a call of r after its opening, and stops after the last call.
func (l *loop) holdCall(r *request, tok core.Token) {
	if f := r.form; f != nil && f.mc != nil && len(r.Calls.Opening()) > 0 { // the parser has read the opening of a call
		f.onlyCalls()
		f.tell(r)
	}
	if r.callGrammar == nil {
		return
	}
	if r.headed {
		l.followHeader(r, tok)
	}
	switch {
	case r.headed && r.Phases.InHeader():
	case r.form == nil && !r.refused && !r.headed && r.Calls.Busy():
		opening := r.Calls.Opening()
		if len(opening) == 0 {
			return // not decided yet
		}
		m := grammar.NewMatcher(r.callGrammar.grammar, r.callGrammar.vocab)
		if m.AcceptBytes(opening) != nil {
			r.refused = true // the parser reports the error
			return
		}
		r.form = &form{compiled: r.callGrammar, calls: true, passing: true, prefix: "a call", m: m}
		r.Calls.Stream(r.stream)
	case !r.Calls.InSection():
		r.refused = r.refused && r.headed
		if r.form != nil && r.form.passing {
			l.formDone(r.form)
			r.form, r.Last, r.More = nil, false, false
			r.Chain.Restrict(nil)
			r.Calls.Stream(false)
		}
	}
}
