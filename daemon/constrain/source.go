package constrain

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/zeebo/blake3"

	"github.com/uma-serve/uma-serve/grammar"
	"github.com/uma-serve/uma-serve/grammar/gbnf"
	"github.com/uma-serve/uma-serve/grammar/jsonschema"
	"github.com/uma-serve/uma-serve/grammar/lark"
	"github.com/uma-serve/uma-serve/grammar/toolcalls"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/model/toolcall"
)

// Source is a constraint before its grammar is compiled: the format that a request asks for, or its tool calls. It does
// not change.
type Source struct {
	Key   [32]byte // identifies the grammar
	Field string   // the request's field, for errors
	Name  string   // in why

	must     bool // of tool calls: the answer has no other text
	headed   bool // the grammar is one of the whole turn, with the headers of its messages
	optional bool // without a grammar the request runs unconstrained; otherwise it is refused
	compile  func(grammar.Limits) (*grammar.Grammar, []toolcalls.Free, error)
}

const (
	callsField = "tools"
	callsName  = "tool_calls"
)

// Sources returns the constraints of w's answer: its format and its tool calls, nil for none. With both, the answer is
// either of them. tools are those that the model may call, spec is the notation of its calls and h the headers of its
// messages; both may be nil.
//
// A grammar constrains tool calls: the whole answer if tool_choice asks for a call, else a call from its opening to its
// end. Constrained calls are streamed; other calls are sent when they are complete, because they may be malformed.
func Sources(w *wire.Request, tools []toolcall.Tool, spec *toolcall.Spec, h *meridian.Headers) (format, calls *Source,
	bad *wire.Error) {
	refuse := func(text string, a ...any) (_, _ *Source, _ *wire.Error) {
		return nil, nil, wire.Errorf(wire.BadRequest, text, a...)
	}
	if format = formatSource(&w.Format, h); format != nil && w.Think.AnswerCue != "" {
		return refuse("think.answer_cue cannot be combined with %s: the answer begins as its format says", format.Field)
	}
	if len(tools) == 0 || spec == nil {
		return format, nil, nil
	}
	unconstrained := spec.Named() && h == nil // a call begins in a header
	must := w.ToolChoice.Mode >= wire.ToolRequired
	isJSON := w.Format.Kind == wire.FormatJSON || w.Format.Kind == wire.FormatSchema
	if must && isJSON { // as in OpenAI's API: the format is for the answer after the call's result
		format = nil
	}
	switch {
	case must && unconstrained:
		return refuse(`tool_choice: a call begins in the header of a message, and the model's vocabulary does not ` +
			`have the markers around headers as tokens: a call cannot be forced; use "auto" or "none"`)
	case must && format != nil:
		return refuse("tool_choice asks for a call, and %s for an answer of another format; send one of them",
			format.Field)
	case must && w.Think.AnswerCue != "":
		return refuse("think.answer_cue cannot be combined with tool_choice: the answer begins as a call does")
	case unconstrained, format != nil && !isJSON:
		return format, nil, nil // a regular expression or a grammar constrains tool calls too: it may describe them
	}
	choice := toolcall.Choice{Mode: toolcall.Mode(w.ToolChoice.Mode), Name: w.ToolChoice.Name}
	parallel := w.ManyCalls()
	strict := must || slices.ContainsFunc(tools, func(t toolcall.Tool) bool { return t.Strict })
	headed := h != nil && (must || format != nil || spec.Named())
	calls = &Source{Key: callsKey(tools, choice, parallel, headed), Field: callsField, Name: callsName,
		must: must, headed: headed, optional: !strict}
	calls.compile = func(l grammar.Limits) (*grammar.Grammar, []toolcalls.Free, error) {
		limits := jsonschema.Limits{Grammar: l}
		text := spec.Text(tools, choice, parallel)
		if headed && spec.Headed() {
			text = spec.TextWithHeader(tools, choice, parallel)
		}
		var holder *toolcalls.Holder
		add := func(b *grammar.Builder, o *toolcalls.Holder) (grammar.Node, error) {
			holder = o
			root, err := o.Add(b, text, limits)
			if err != nil {
				return 0, err
			}
			if headed && !spec.Headed() {
				root = b.Seq(b.Literal(h.Answer), root)
			}
			if headed {
				root = headedTurn(b, h, root)
			}
			return root, nil
		}
		g, err := toolcalls.Build(l, true, add)
		return g, holder.Free(), err
	}
	return format, calls, nil
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

// formatSource returns the constraint by a format; nil for none.
func formatSource(format *wire.Format, h *meridian.Headers) *Source {
	if format.Kind == wire.FormatNone {
		return nil
	}
	return &Source{Key: formatKey(format), Field: formatField(format.Kind), Name: format.Kind.String(),
		headed: h != nil,
		compile: func(l grammar.Limits) (*grammar.Grammar, []toolcalls.Free, error) {
			b := grammar.NewBuilder(l)
			root, err := addFormat(b, format, l)
			if err != nil {
				return nil, nil, err
			}
			if h != nil {
				root = headedTurn(b, h, b.Seq(b.Literal(h.Answer), root))
			}
			g, err := b.Build(root)
			if errors.Is(err, grammar.ErrEmpty) &&
				(format.Kind == wire.FormatJSON || format.Kind == wire.FormatSchema) {
				err = &jsonschema.Error{Reason: "no text is left", Kind: jsonschema.ErrUnsatisfiable}
			}
			return g, nil, err
		}}
}

func formatKey(w *wire.Format) [32]byte {
	h := blake3.New()
	part := func(s string) {
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:])
		h.WriteString(s)
	}
	part(w.Kind.String())
	part(w.Payload)
	for _, c := range w.Choices {
		part(c)
	}
	return [32]byte(h.Sum(nil))
}

// addFormat compiles a format into b. Errors name the keyword, construct or limit.
func addFormat(b *grammar.Builder, w *wire.Format, l grammar.Limits) (grammar.Node, error) {
	limits := jsonschema.Limits{Grammar: l}
	switch w.Kind {
	case wire.FormatJSON:
		return jsonschema.Add(b, []byte(`{"type":"object"}`), jsonschema.Options{}, limits)
	case wire.FormatSchema:
		return jsonschema.Add(b, []byte(w.Payload), jsonschema.Options{Closed: true}, limits)
	case wire.FormatGrammar:
		if lark.Is(w.Payload) {
			return lark.Parse(b, w.Payload, limits)
		}
		return gbnf.Parse(b, w.Payload)
	case wire.FormatRegex:
		return b.Pattern(w.Payload)
	case wire.FormatChoice:
		return b.Choice(w.Choices), nil
	}
	return 0, errors.ErrUnsupported
}

// formatField returns the request field that a format is documented under.
func formatField(k wire.FormatKind) string {
	switch k {
	case wire.FormatRegex:
		return "guided_regex"
	case wire.FormatChoice:
		return "guided_choice"
	case wire.FormatGrammar:
		return "grammar"
	}
	return "response_format"
}
