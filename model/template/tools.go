package template

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/model/template/jinja"
	"github.com/uma-serve/uma-serve/model/toolcall"
)

// Tools has a template's properties about tools, found by rendering a small conversation with a call and parsing the
// rendered call (toolcall.Syntax). The zero value is a template without tools.
type Tools struct {
	Syntax *toolcall.Syntax // how the model writes calls; not nil
	// Found is the source of Syntax: "rendered", "derived" from an unknown rendering, "signs" in the template's text,
	// "vocabulary": its tokens (AskVocabulary), "unread": the template renders calls in a syntax that is not known, or
	// "none": the template knows no tools.
	Found   string
	Offered bool // the template shows the tools that a request offers
	Calls   bool // it renders an assistant's calls
	Results bool // it renders a tool's result
	Single  bool // it renders one call of a message: more are rendered as separate messages
	// Text: arguments are handed over as JSON text and rendered as they are; otherwise as an object.
	Text bool
	// Beside: calls are rendered beside text of the same message.
	Beside bool

	besideDropped bool // such text is left out once an answer follows

	variable string       // that the tools are handed over with
	content  contentStyle // of a message with calls
	shortIDs bool         // ids of calls must have nine letters or digits
	showIDs  bool         // it writes the id of a call to its result
	needIDs  bool         // it does not take calls without ids
	raw      bool         // arguments that are no JSON object are rendered as they are, handed over as text
	values   bool         // arguments that are another JSON value are rendered as it
	fill     bool         // it fails with schemas that lack descriptions: they get empty ones
}

// contentForm is the content of a message with calls and no text, as the template gets it.
type contentStyle uint8

const (
	contentEmpty  contentStyle = iota // ""
	contentNull                       // None
	contentAbsent                     // no "content"
)

// The call of the probe. Its texts occur in no template.
var (
	probeTool = toolcall.Tool{Name: "uma_probe_tool", Description: "uma-probe-description",
		Parameters: []byte(`{"type":"object","properties":{"uma_word":{"type":"string","description":"a"},` +
			`"uma_count":{"type":"integer","description":"b"}},"required":["uma_word"]}`)}
	probeCalls = []toolcall.Call{
		{ID: "umacall01", Name: probeTool.Name, Arguments: `{"uma_word":  "uma value", "uma_count": 731}`},
		{ID: "umacall02", Name: probeTool.Name, Arguments: `{"uma_word":  "uma other", "uma_count": 732}`},
	}
)

// bareTool has no description, and nor have its parameters.
var bareTool = toolcall.Tool{Name: probeTool.Name, Parameters: []byte(`{"type":"object","properties":{` +
	`"uma_word":{"type":"string"},"uma_map":{"type":"object","properties":{"uma_x":{"type":"integer"}}},` +
	`"uma_list":{"type":"array"},"uma_any":{}}}`)}

const (
	probeQuestion = "uma-question"
	probeResult   = "uma-result"
)

// probeSteps bounds one rendering of the probe: steps, not time, so that a busy machine finds what an idle one does.
const probeSteps = 1_000_000

// findTools renders the probe in the ways in which templates take calls, until one reads back.
func (t *Template) findTools() {
	t.tools = Tools{Syntax: &toolcall.JSON, Found: "none", variable: "tools"}
	r := &t.tools
	slow := false
	render := func(tools []toolcall.Tool, opening bool, msgs ...Message) (string, error) {
		out, err := t.Render(Input{Messages: msgs, Tools: tools, AddGenerationPrompt: opening, Now: time.Unix(0, 0),
			native: true, steps: probeSteps})
		slow = slow || errors.Is(err, jinja.ErrLimit)
		return out, err
	}
	ask := Message{Role: "user", Content: probeQuestion}
	offer := []toolcall.Tool{probeTool}
	for _, name := range t.toolVariables() {
		r.variable = name
		if out, err := render(offer, true, ask); err == nil && strings.Contains(out, probeTool.Name) {
			r.Offered = true
			break
		}
	}
	if !r.Offered {
		r.variable = "tools"
		offer = nil
	}
	if slow {
		return // a template that is made to take time
	}
	if r.Offered {
		if _, err := render([]toolcall.Tool{bareTool}, true, ask); err != nil {
			r.fill = true
			_, err = render([]toolcall.Tool{bareTool}, true, ask)
			r.fill = err == nil
		}
	}
	before, _ := render(offer, false, ask)
	plain, err := render(offer, false, ask, Message{Role: "assistant", Content: "~~"})
	if err != nil {
		plain, _ = render(offer, true, ask)
	}
	unread := "" // a rendering of calls that no syntax reads
	for _, calls := range [][]toolcall.Call{probeCalls, probeCalls[:1]} {
		for _, asText := range []bool{true, false} {
			for _, style := range []contentStyle{contentEmpty, contentNull, contentAbsent} {
				r.Text, r.content, r.Single = asText, style, false
				out, err := render(offer, false, ask, Message{Role: "assistant", Calls: calls})
				if err != nil || !strings.Contains(out, probeTool.Name) {
					continue
				}
				if asText && !strings.Contains(out, calls[0].Arguments) {
					continue // as a JSON string within JSON: an object is nearer to what the model wrote
				}
				turn := out[commonPrefix(out, before):]
				answer := out[commonPrefix(out, plain):]
				f, derived := toolcall.Read(calls, probeTool, answer, turn)
				if f == nil {
					if strings.Contains(answer, probeTool.Name) {
						unread = answer
					}
					continue
				}
				r.Syntax, r.Found = f.Laid(calls, probeTool, answer, turn), "rendered"
				r.Calls, r.Single = true, len(calls) == 1
				if derived {
					r.Found = "derived"
				}
				t.probeResults(render, offer, ask)
				return
			}
		}
	}
	r.Text, r.content, r.Single = false, contentEmpty, false
	f := toolcall.BySigns(unread)
	if f == nil {
		f = toolcall.BySigns(t.source + "\n" + strings.Join(t.tmpl.Strings(), "\n"))
		if f != nil && f.Guess && unread != "" {
			f = nil // the template renders something else
		}
	}
	switch {
	case f != nil && r.Offered:
		r.Syntax, r.Found = f, "signs"
	case unread != "":
		r.Found = "unread"
	}
	t.probeResults(render, offer, ask)
}

// AskVocabulary finds the syntax of a template that shows tools and tells nothing of calls, by the tokens of the
// model's vocabulary. has reports whether a text is a token. It is called before the template is used.
func (t *Template) AskVocabulary(has func(text string) bool) {
	if r := &t.tools; r.Offered && r.Found == "none" {
		if f := toolcall.ByVocab(has); f != nil {
			r.Syntax, r.Found = f, "vocabulary"
		}
	}
}

// probeResults finds what the template makes of a tool's result and of the ids of other servers.
func (t *Template) probeResults(
	render func([]toolcall.Tool, bool, ...Message) (string, error), offer []toolcall.Tool, ask Message,
) {
	r := &t.tools
	conversation := func(id string) []Message {
		call := probeCalls[0]
		call.ID = id
		said := Message{Role: "assistant", Calls: []toolcall.Call{call}}
		if !r.Calls {
			said = Message{Role: "assistant", Content: "uma-said"}
		}
		return []Message{ask, said, {Role: "tool", Content: probeResult, CallID: id, Name: call.Name}}
	}
	out, err := render(offer, true, conversation(probeCalls[0].ID)...)
	r.Results = err == nil && strings.Contains(out, probeResult)
	r.showIDs = r.Results && strings.Count(out, probeCalls[0].ID) > 1
	if r.Calls {
		out, err := render(offer, false, ask, Message{Role: "assistant", Content: "uma-said", Calls: probeCalls[:1]})
		r.Beside = err == nil && strings.Contains(out, "uma-said") && strings.Contains(out, "uma value")
		if r.Beside && r.Results {
			answered := append(conversation(probeCalls[0].ID), Message{Role: "assistant", Content: "~~"}, ask)
			answered[1].Content = "uma-said"
			out, err := render(offer, true, answered...)
			r.besideDropped = err == nil && !strings.Contains(out, "uma-said")
		}
		shows := func(arguments string) bool {
			c := probeCalls[0]
			c.Arguments = arguments
			out, err := render(offer, false, ask, Message{Role: "assistant", Calls: []toolcall.Call{c}})
			return err == nil && strings.Contains(out, arguments)
		}
		r.raw = shows(`{"uma_word": "uma cut`) && shows(`["uma", 7319]`)
		r.values = true
		r.values = !r.Text && shows(`["uma", 7319]`) && shows("null")
	}
	if r.Results {
		_, err := render(offer, true, conversation("call_of_another_server")...)
		r.shortIDs = err != nil
		n := len(probeCalls)
		if r.Single {
			n = 1
		}
		bare := Message{Role: "assistant"}
		msgs := []Message{ask, {}}
		var words []string
		for i, c := range probeCalls[:n] {
			c.ID = ""
			bare.Calls = append(bare.Calls, c)
			words = append(words, fmt.Sprint(probeResult, i))
			msgs = append(msgs, Message{Role: "tool", Content: words[i], Name: c.Name})
		}
		msgs[1] = bare
		out, err = render(offer, true, msgs...)
		r.needIDs = r.Calls && (err != nil || !inOrder(out, words))
	}
}

// toolVariables returns the names under which the template may take tools.
func (t *Template) toolVariables() []string {
	names := []string{"tools"}
	for _, v := range t.tmpl.Variables() {
		switch v.Name {
		case "functions", "available_tools", "custom_tools", "tools_json":
			names = append(names, v.Name)
		}
	}
	return names
}

// commonPrefix returns the length of the common prefix of a and b. If they part within a marker, it ends before that.
func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	for i := n - 1; i >= 0 && !strings.ContainsRune(">] \n", rune(a[i])); i-- {
		if a[i] == '<' || a[i] == '[' {
			return i
		}
	}
	return n
}

// toolsText writes tools as text.
var toolsText = func() *jinja.Template {
	t, err := jinja.Compile("{{ tools|tojson(indent=4) }}")
	if err != nil {
		panic("template: " + err.Error())
	}
	return t
}()

// toolVars returns the variables for the tools that a request offers.
func (t *Template) toolVars(tools []toolcall.Tool) (map[string]any, error) {
	vars := map[string]any{}
	if len(tools) == 0 {
		if t.functions {
			vars["functions"] = "[]"
		}
		return vars, nil
	}
	list := make([]any, len(tools))
	bare := make([]any, len(tools))
	for i := range tools {
		schema := any(jinja.NewDict("type", "object", "properties", jinja.NewDict()))
		if len(tools[i].Parameters) > 0 {
			var err error
			text := tools[i].Parameters
			if t.tools.fill {
				text = described(text)
			}
			if schema, err = jinja.ParseJSON(text); err != nil {
				return nil, fmt.Errorf("%w: the parameters of tool %q: %w", ErrRefused, tools[i].Name, err)
			}
		}
		bare[i] = jinja.NewDict("name", tools[i].Name, "description", tools[i].Description, "parameters", schema)
		list[i] = jinja.NewDict("type", "function", "function", bare[i])
	}
	vars["tools"] = list
	if t.functions { // text, as fireworks' firefunction has it
		text, err := toolsText.Render(map[string]any{"tools": bare}, jinja.DefaultLimits, time.Time{})
		if err != nil {
			return nil, fmt.Errorf("%w: tools: %w", ErrRefused, err)
		}
		vars["functions"] = text
	} else if v := t.tools.variable; v != "" && v != "tools" {
		vars[v] = list
	}
	return vars, nil
}

// shortIDBytes is the length of an id in Mistral's templates.
const shortIDBytes = 9

// callID returns an id as the template takes it.
func (t *Template) callID(id string) string {
	if !t.tools.shortIDs || len(id) == shortIDBytes && !strings.ContainsFunc(id, func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z')
	}) {
		return id
	}
	const letters = "0123456789abcdefghijklmnopqrstuv"
	sum := sha256.Sum256([]byte(id))
	short := make([]byte, shortIDBytes)
	for i := range short {
		short[i] = letters[sum[i]%32]
	}
	return string(short)
}

// Tools returns what the template does with tools.
func (t *Template) Tools() Tools { return t.tools }
