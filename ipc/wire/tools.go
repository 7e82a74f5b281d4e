package wire

import (
	"fmt"
	"slices"

	"github.com/valyala/fastjson"
)

// Limits of the fields about tools.
const (
	MaxTools     = 512
	MaxNameBytes = 128 // of a tool or a schema
)

// Tool is a function that the model may call.
type Tool struct {
	Name        string // 1…128 bytes of letters, digits and _-.:/
	Description string
	Parameters  []byte // the JSON schema of its arguments, an object; nil = it takes none
	Strict      bool   // the arguments must fit Parameters, also while the model is free to call or not

	// Deferred ("defer_loading"): its definition is not at the head of the prompt but where the conversation refers to
	// it, in a part of type "tool_reference". The model can call it from there on.
	Deferred   bool
	Referenced bool // with Deferred: the conversation has its definition
}

// Callable reports whether the model has seen the tool's definition.
func (t *Tool) Callable() bool { return !t.Deferred || t.Referenced }

// ToolCall is one call of a tool: the model's, or an earlier one in a conversation.
type ToolCall struct {
	ID        string // id to which the result refers; "" if the conversation has none
	Name      string
	Arguments string // JSON text, as the model wrote it
}

// ToolMode selects whether the model may, must or must not call a tool.
type ToolMode uint8

const (
	ToolAuto     ToolMode = iota // the model decides
	ToolNone                     // it answers in words
	ToolRequired                 // it calls one of the tools at least
	ToolNamed                    // it calls the tool that ToolChoice names
)

// ToolChoice is a request's "tool_choice".
type ToolChoice struct {
	Mode ToolMode
	Name string // with ToolNamed
}

// ManyCalls reports whether an answer may have several calls: a named tool is called once.
func (r *Request) ManyCalls() bool { return r.ParallelToolCalls && r.ToolChoice.Mode != ToolNamed }

var toolFields = []field{
	{name: "tools", read: readTools},
	{name: "tool_choice", read: readToolChoice},
	flag("parallel_tool_calls", func(r *Request) *bool { return &r.ParallelToolCalls }),
}

const toolMust = `an object {"type":"function","function":{"name":…,"description":…,"parameters":…}}`

func readTools(d *decoder, name string, v *fastjson.Value) error {
	list, err := v.Array()
	if err != nil {
		return wrongType(name, v, "an array of tools, each "+toolMust)
	}
	if len(list) > MaxTools {
		return fmt.Errorf("field %q has %d entries; it must have at most %d", name, len(list), MaxTools)
	}
	d.req.Tools = nil
	names := make(map[string]bool, len(list))
	for i, e := range list {
		if d.hostedTool(e) {
			continue
		}
		t, err := d.tool(entry(name, i), e)
		if err != nil {
			return err
		}
		if names[t.Name] {
			return fmt.Errorf("field %q has two tools of the name %q", name, t.Name)
		}
		names[t.Name] = true
		d.req.Tools = append(d.req.Tools, t)
	}
	return nil
}

// hostedTool reports whether a tool is one that other servers run. It is left out: agents offer such tools with every
// request, and a tool that the model does not see is not called.
func (d *decoder) hostedTool(v *fastjson.Value) bool {
	kind := string(v.GetStringBytes("type"))
	if kind == "" || kind == "function" || v.Exists("function") {
		return false
	}
	d.req.Notes.Add(ToolLeftOut(kind))
	d.hosted = true
	return true
}

func (d *decoder) tool(name string, v *fastjson.Value) (t Tool, err error) {
	var function *fastjson.Value
	var kind string
	err = d.members(name, v, toolMust, func(field, key string, v *fastjson.Value) (err error) {
		switch key {
		case "type":
			kind, err = d.str(field, v)
		case "function":
			function = v
		case "defer_loading": // OpenAI's and Anthropic's place
			err = d.boolean(field, v, &t.Deferred)
		case "referenced":
			err = d.boolean(field, v, &t.Referenced)
		}
		return err
	})
	switch {
	case err != nil:
		return t, err
	case kind != "" && kind != "function":
		return t, fmt.Errorf("field %q is %s; it must be \"function\": this server has no tools built in", name+".type",
			quoted([]byte(kind)))
	case function == nil:
		return t, fmt.Errorf("field %q is missing; a tool is %s", name+".function", toolMust)
	}
	name += ".function"
	err = d.members(name, function, "an object with the name of a function",
		func(field, key string, v *fastjson.Value) (err error) {
			switch key {
			case "name":
				t.Name, err = d.toolName(field, v)
			case "description":
				t.Description, err = d.str(field, v)
			case "parameters":
				if v.Type() != fastjson.TypeObject {
					return wrongType(field, v, "a JSON schema, an object")
				}
				t.Parameters = appendValue(nil, v)
			case "strict":
				err = d.boolean(field, v, &t.Strict)
			case "defer_loading":
				err = d.boolean(field, v, &t.Deferred)
			}
			return err
		})
	if err == nil && t.Name == "" {
		err = fmt.Errorf("field %q is missing; it must be the name of a function", name+".name")
	}
	return t, err
}

// toolName reads a name that templates, grammars and other tools' parsers can write and read back.
func (d *decoder) toolName(name string, v *fastjson.Value) (string, error) {
	s, err := d.str(name, v)
	if err != nil {
		return "", err
	}
	ok := len(s) >= 1 && len(s) <= MaxNameBytes
	for i := 0; ok && i < len(s); i++ {
		c := s[i]
		ok = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.' ||
			c == ':' || c == '/'
	}
	if !ok {
		return "", fmt.Errorf("field %q is %s; it must be 1…%d letters, digits and _-.:/", name, quoted([]byte(s)),
			MaxNameBytes)
	}
	return s, nil
}

func readToolChoice(d *decoder, name string, v *fastjson.Value) error {
	const must = `"auto", "none", "required", {"type":"function","function":{"name":…}} or {"type":"allowed_tools",` +
		`"allowed_tools":{"mode":…,"tools":[…]}}`
	c := &d.req.ToolChoice
	*c = ToolChoice{}
	if v.Type() == fastjson.TypeString {
		s, _ := v.StringBytes()
		switch string(s) {
		case "auto":
		case "none":
			c.Mode = ToolNone
		case "required", "any": // "any" is Mistral's
			c.Mode = ToolRequired
		default:
			return fmt.Errorf("field %q is %s; it must be %s", name, quoted(s), must)
		}
		return nil
	}
	if kind := v.GetStringBytes("type"); string(kind) == "allowed_tools" {
		return d.allowedTools(name, v)
	}
	if v.Type() == fastjson.TypeObject && !v.Exists("name") && d.hostedTool(v) {
		return nil // a tool that is not offered cannot be called
	}
	c.Mode = ToolNamed
	err := d.members(name, v, must, func(field, key string, v *fastjson.Value) (err error) {
		switch key {
		case "type":
			if s, _ := v.StringBytes(); string(s) != "function" {
				return fmt.Errorf("field %q is %s; it must be \"function\"", field, quoted(s))
			}
		case "function":
			return d.members(field, v, "an object with the name of a function",
				func(field, key string, v *fastjson.Value) (err error) {
					if key == "name" {
						c.Name, err = d.toolName(field, v)
					}
					return err
				})
		case "name": // as /v1/responses has it
			c.Name, err = d.toolName(field, v)
		}
		return err
	})
	if err == nil && c.Name == "" {
		err = fmt.Errorf("field %q names no function; it must be %s", name, must)
	}
	return err
}

// allowedTools reads the choice among some of the tools. The others are not offered, because the model does not call a
// tool that it does not see.
func (d *decoder) allowedTools(name string, v *fastjson.Value) error {
	d.allowed = []string{}
	read := func(field, key string, v *fastjson.Value) error {
		switch key {
		case "mode":
			mode, err := d.word(field, v, []string{"auto", "required"})
			if mode == 1 {
				d.req.ToolChoice.Mode = ToolRequired
			}
			return err
		case "tools":
			list, err := v.Array()
			if err != nil || len(list) == 0 || len(list) > MaxTools {
				return fmt.Errorf("field %q must be an array of 1…%d tools", field, MaxTools)
			}
			for i, e := range list {
				if d.hostedTool(e) {
					continue
				}
				t, err := d.tool(entry(field, i), e)
				if err != nil {
					return err
				}
				d.allowed = append(d.allowed, t.Name)
			}
		}
		return nil
	}
	inner := v.Get("allowed_tools")
	if inner == nil {
		return fmt.Errorf("field %q is missing; it must be an object with mode and tools", name+".allowed_tools")
	}
	return d.members(name+".allowed_tools", inner, "an object with mode and tools", read)
}

// finishTools checks the constraints between the tools and the rest of a request.
func (d *decoder) finishTools() error {
	r := d.req
	switch {
	case d.hosted && d.allowed != nil && len(d.allowed) == 0: // none but hosted tools are allowed
		d.allowed, r.Tools, r.ToolChoice = nil, nil, ToolChoice{}
	case d.hosted && len(r.Tools) == 0 && r.ToolChoice.Mode == ToolRequired:
		r.ToolChoice = ToolChoice{}
	}
	if d.allowed != nil {
		r.Tools = slices.DeleteFunc(r.Tools, func(t Tool) bool { return !slices.Contains(d.allowed, t.Name) })
		if len(r.Tools) == 0 {
			return fmt.Errorf("field %q allows none of the %q", "tool_choice", "tools")
		}
	}
	switch c := r.ToolChoice; {
	case len(r.Tools) > 0 && !d.messages:
		return fmt.Errorf("field %q needs %q: tools are a part of the chat template", "tools", "messages")
	case c.Mode >= ToolRequired && len(r.Tools) == 0:
		return fmt.Errorf("field %q asks for a call, but there are no %q", "tool_choice", "tools")
	case c.Mode == ToolNamed && !slices.ContainsFunc(r.Tools, func(t Tool) bool { return t.Name == c.Name }):
		return fmt.Errorf("field %q names %q, which is none of the %q", "tool_choice", c.Name, "tools")
	}
	d.placeTools()
	return nil
}

// reference is a part of a message that refers to a tool. While the tools are not known, ToolReference is in its
// place.
type reference struct {
	message *Message
	at      int // in its content
	name    string
}

// ToolReference returns the text for a part that refers to a tool whose definition the model has seen already, or which
// is not offered.
func ToolReference(name string) string { return "The tool " + short(name) + " is available." }

// placeTools puts the definition of each deferred tool where the conversation first refers to it.
func (d *decoder) placeTools() {
	r := d.req
	head := false
	for i := range r.Tools {
		t := &r.Tools[i]
		if r.ToolChoice.Mode == ToolNamed && r.ToolChoice.Name == t.Name {
			t.Deferred = false // the model cannot be made to call a tool that it has not seen
		}
		head = head || !t.Deferred
	}
	if !head && len(r.Tools) > 0 { // templates say how to call a tool only where they show one
		for i := range r.Tools {
			r.Tools[i].Deferred = false
		}
		r.Notes.Add(Note{Reason: "tools_not_deferred", Times: 1,
			Text: "All tools have defer_loading: they were offered from the start, because there is no other to find " +
				"them with."})
	}
	if len(d.references) == 0 {
		return
	}
	byName := make(map[string]*Tool, len(r.Tools))
	for i := range r.Tools {
		byName[r.Tools[i].Name] = &r.Tools[i]
	}
	for rest := d.references; len(rest) > 0; {
		m, of := rest[0].message, 1
		for of < len(rest) && rest[of].message == m {
			of++
		}
		if m.Role != "assistant" {
			m.define(rest[:of], byName)
		}
		rest = rest[of:]
	}
}

// define puts the definitions of deferred tools into the message's content, for its references in their order.
func (m *Message) define(references []reference, tools map[string]*Tool) {
	var out []byte
	from := 0
	for _, of := range references {
		t := tools[of.name]
		if t == nil || t.Callable() {
			continue
		}
		t.Referenced = true
		out = append(out, m.Content[from:of.at]...)
		out = t.AppendDefinition(append(out, "The tool "+t.Name+" can be called now. Its definition:\n"...))
		from = of.at + len(ToolReference(of.name))
	}
	if from > 0 {
		m.Content = string(append(out, m.Content[from:]...))
	}
}

// toolCalls reads the calls of an assistant's earlier message.
func (d *decoder) toolCalls(name string, v *fastjson.Value) (calls []ToolCall, err error) {
	const must = `an array of {"id":…,"type":"function","function":{"name":…,"arguments":…}}`
	list, aerr := v.Array()
	if aerr != nil {
		return nil, wrongType(name, v, must)
	}
	for i, e := range list {
		field := entry(name, i)
		var c ToolCall
		err := d.members(field, e, must, func(field, key string, v *fastjson.Value) (err error) {
			switch key {
			case "id":
				c.ID, err = d.str(field, v)
			case "type":
				if s, _ := v.StringBytes(); string(s) != "function" {
					return fmt.Errorf("field %q is %s; it must be \"function\"", field, quoted(s))
				}
			case "function":
				return d.members(field, v, "an object with name and arguments",
					func(field, key string, v *fastjson.Value) (err error) {
						switch key {
						case "name":
							c.Name, err = d.toolName(field, v)
						case "arguments":
							// A server or a model may have written anything, and the client cannot take it back.
							if v.Type() != fastjson.TypeString {
								c.Arguments = string(appendValue(nil, v))
								return nil
							}
							c.Arguments, err = d.str(field, v)
						}
						return err
					})
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		if c.Name == "" {
			return nil, fmt.Errorf("field %q is missing; it must be the name of a function", field+".function.name")
		}
		calls = append(calls, c)
	}
	return calls, nil
}
