package toolcall

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/model/toolcall/stream"
)

// An answer that is a call as a whole, in another syntax than the model's own. Small models write the JSON of a call
// without the markers of their template, in a block of code or in the markers of another family. Such an answer is held
// back while it may still become a call, and read when it has ended: text before or behind a call makes it text.

// whole is the reading of the beginning of an answer.
type whole struct {
	off   bool // the answer is none
	named bool // it names a tool: only its end can tell
}

// Members of the objects in which models write calls.
var (
	wholeNames = []string{"name", "tool_name", "function_name", "tool", "function", "action"}
	wholeArgs  = []string{"arguments", "parameters", "args", "input", "params", "action_input", "tool_input", "kwargs"}
	wholeIDs   = []string{"id", "call_id", "tool_call_id"}
	wholeIn    = []string{"function", "tool_call", "function_call", "tool", "call", "tool_use"}
	wholeLists = []string{"tool_calls", "calls", "function_calls", "tools"}
	wholeTypes = []string{"function", "tool_call", "function_call", "tool_use", "tool"}
)

// wholeSyntaxes are the syntaxes whose markers a model of another family writes.
var wholeSyntaxes = []string{"hermes", "qwen3-coder", "mistral", "functionary-3.1", "granite-3", "functools",
	"minimax-m2", "glm-4.5"}

// wholeTags begin such an answer.
var wholeTags = []string{"<tool_call>", "<tool_calls>", "<function_call>", "<function_calls>", "<functioncall>",
	"<function=", "<tools>", "<tool>", "<|tool_call|>", "<|python_tag|>", "<TOOLCALL>", "<toolcall>", "[TOOL_CALLS]",
	"[TOOL_CALL]", "[tool_call]", "functools[", "<invoke name="}

// wholeStart reports whether the answer that begins with text may be a call as a whole: no, wait, or at its end yes.
func (p *Parser) wholeStart(text []byte) stream.Found {
	w := &p.whole
	switch {
	case w.off || !p.opt.Whole || p.calls > 0 || len(text) > p.opt.MaxBytes:
		w.off = true
		return stream.No
	case !w.named:
		f := p.tools.wholeHead(text)
		if w.named = f == stream.Yes; f == stream.No || p.final && f == stream.Wait {
			w.off = true
			return stream.No
		}
	}
	if !p.final {
		return stream.Wait
	}
	if len(p.tools.wholeCalls(text)) == 0 {
		w.off = true
		return stream.No
	}
	return stream.Yes
}

// wholeEnd reports the calls of which the answer consists.
func (p *Parser) wholeEnd(text []byte) {
	for _, c := range p.tools.wholeCalls(text) {
		p.call(inText)
		p.tool = p.tools.find(c.Name)
		p.id, p.args = append(p.id, c.ID...), append(p.args, c.Arguments...)
		p.end()
	}
	p.pos = len(p.buf)
	p.leave()
}

// wholeHead reads the beginning of an answer: yes once it names a tool where a call does.
func (t *Tools) wholeHead(text []byte) stream.Found {
	text = bytes.TrimLeft(text, " \t\r\n")
	if len(text) == 0 {
		return stream.Wait
	}
	if text[0] == '`' {
		const fence = "```"
		if n := min(len(text), len(fence)); string(text[:n]) != fence[:n] {
			return stream.No
		}
		text = bytes.TrimLeft(text, "`")
		i := bytes.IndexByte(text, '\n')
		if i < 0 {
			if len(text) > 16 || bytes.ContainsAny(text, " `") {
				return stream.No
			}
			return stream.Wait
		}
		if i > 16 || bytes.ContainsAny(bytes.TrimSpace(text[:i]), " `") {
			return stream.No
		}
		if text = bytes.TrimLeft(text[i:], " \t\r\n"); len(text) == 0 {
			return stream.Wait
		}
	}
	for _, tag := range wholeTags {
		n := min(len(text), len(tag))
		switch {
		case string(text[:n]) != tag[:n]:
		case n < len(tag):
			return stream.Wait
		default:
			return stream.Yes
		}
	}
	if text[0] == '[' {
		if text = bytes.TrimLeft(text[1:], " \t\r\n"); len(text) == 0 {
			return stream.Wait
		}
	}
	return t.objectHead(text, 0)
}

// otherHead reports whether JSON begins with a member that a syntax which begins with JSON itself does not read.
func (t *Tools) otherHead(text []byte) stream.Found {
	text = bytes.TrimLeft(bytes.TrimLeft(text, "["), " \t\r\n")
	if len(text) > 0 && text[0] == '{' {
		text = bytes.TrimLeft(text[1:], " \t\r\n")
	}
	if len(text) == 0 {
		return stream.Wait
	}
	key, _, f := headString(text)
	if f != stream.Yes {
		return f
	}
	if key == "action" || slices.Contains(wholeLists, key) || t.find(key) >= 0 {
		return stream.Yes
	}
	return stream.No
}

// objectHead is wholeHead of an object.
func (t *Tools) objectHead(text []byte, depth int) stream.Found {
	if text[0] != '{' || depth > 2 {
		return stream.No
	}
	for text = text[1:]; ; {
		if text = bytes.TrimLeft(text, " \t\r\n,"); len(text) == 0 {
			return stream.Wait
		}
		key, rest, f := headString(text)
		if f != stream.Yes {
			if f == stream.Wait && t.mayBeKey(key) {
				return stream.Wait
			}
			return stream.No
		}
		if !t.mayBeKey(key) {
			return stream.No
		}
		if rest = bytes.TrimLeft(rest, " \t\r\n:"); len(rest) == 0 {
			return stream.Wait
		}
		c := rest[0]
		switch {
		case c == '{' && (slices.Contains(wholeIn, key) || t.find(key) >= 0):
			if t.find(key) >= 0 {
				return stream.Yes
			}
			return t.objectHead(rest, depth+1)
		case c == '[' && slices.Contains(wholeLists, key):
			if rest = bytes.TrimLeft(rest[1:], " \t\r\n"); len(rest) == 0 {
				return stream.Wait
			}
			return t.objectHead(rest, depth+1)
		case slices.Contains(wholeArgs, key):
			end := valueEnd(rest)
			if end < 0 {
				return stream.Wait
			}
			text = rest[end:]
			continue
		}
		value, behind, f := headString(rest)
		switch {
		case f == stream.No:
			return stream.No
		case key == "type":
			if !slices.ContainsFunc(wholeTypes, func(s string) bool {
				return s == value || f == stream.Wait && strings.HasPrefix(s, value)
			}) && !t.begins(value) {
				return stream.No
			}
		case slices.Contains(wholeNames, key):
			if f == stream.Yes && t.find(value) >= 0 {
				return stream.Yes
			}
			if f == stream.Yes || !t.begins(value) {
				return stream.No
			}
		case !slices.Contains(wholeIDs, key):
			return stream.No
		}
		if f == stream.Wait {
			return stream.Wait
		}
		text = behind
	}
}

// mayBeKey reports whether key begins the name of a member of a call.
func (t *Tools) mayBeKey(key string) bool {
	for _, list := range [][]string{wholeNames, wholeArgs, wholeIDs, wholeIn, wholeLists, {"type"}} {
		for _, k := range list {
			if strings.HasPrefix(k, key) {
				return true
			}
		}
	}
	return t.begins(key)
}

// headString reads a JSON string without escapes; wait: it has no end yet.
func headString(text []byte) (s string, rest []byte, f stream.Found) {
	if text[0] != '"' {
		return "", nil, stream.No
	}
	text = text[1:]
	i := bytes.IndexByte(text, '"')
	switch {
	case i < 0 && len(text) > maxName:
		return "", nil, stream.No
	case i < 0:
		return string(text), nil, stream.Wait
	}
	return string(text[:i]), text[i+1:], stream.Yes
}

// maxHead bounds the arguments that come before the name, whose end is looked for again with each piece.
const maxHead = 4096

// valueEnd returns the length of the JSON value at the beginning of text; -1: it has no end yet, or is too long.
func valueEnd(text []byte) int {
	in := json.NewDecoder(bytes.NewReader(text[:min(len(text), maxHead)]))
	var v json.RawMessage
	if in.Decode(&v) != nil {
		return -1
	}
	return int(in.InputOffset())
}

// wholeCalls returns the calls of which an answer consists; nil if it is anything else.
func (t *Tools) wholeCalls(text []byte) []Call {
	text = bytes.TrimSpace(text)
	if bytes.HasPrefix(text, []byte("```")) {
		_, inner, _ := bytes.Cut(text, []byte("\n"))
		inner = bytes.TrimSpace(inner)
		inner = bytes.TrimSpace(bytes.TrimRight(bytes.TrimSuffix(inner, []byte("```")), "`"))
		text = inner
	}
	if len(text) == 0 {
		return nil
	}
	if text[0] == '{' || text[0] == '[' {
		if calls, ok := t.jsonCalls(text); ok {
			return calls
		}
	}
	if i := bytes.IndexAny(text, "{["); i > 0 && (text[0] == '<' || text[0] == '[') { // JSON in one pair of markers
		inner := text[i:]
		if j := bytes.LastIndexAny(inner, "}]"); j >= 0 && isTag(text[:i]) && isTag(inner[j+1:]) {
			if calls, ok := t.jsonCalls(inner[:j+1]); ok {
				return calls
			}
		}
	}
	if text[0] == '{' {
		return nil
	}
	for _, name := range wholeSyntaxes {
		f := ByName(name)
		if f == nil {
			continue
		}
		p := NewParser(f.resolve(nil), t, Options{})
		var c Collect
		c.Add(p.Push(text))
		c.Add(p.Finish())
		if len(c.Calls) > 0 && onlySpace(c.Text) && len(c.Reasons) == 0 &&
			!slices.ContainsFunc(c.Calls, func(call Call) bool { return !t.fits(call.Name, []byte(call.Arguments)) }) {
			return c.Calls
		}
	}
	return nil
}

// isTag reports whether text is nothing or one marker.
func isTag(text []byte) bool {
	text = bytes.TrimSpace(text)
	return len(text) == 0 || len(text) < maxAttr && (text[0] == '<' || text[0] == '[') &&
		!bytes.ContainsAny(text, " \n{}\"")
}

// jsonCalls returns the calls of JSON values in a row, false if one of them is none.
func (t *Tools) jsonCalls(text []byte) (calls []Call, ok bool) {
	in := json.NewDecoder(bytes.NewReader(text))
	for in.More() {
		var v json.RawMessage
		if in.Decode(&v) != nil || !t.addCalls(&calls, v, 0) {
			return nil, false
		}
		if rest := bytes.TrimLeft(text[in.InputOffset():], " \t\r\n,;"); len(rest) < len(text)-int(in.InputOffset()) {
			text = rest // objects in a row may have commas between them
			in = json.NewDecoder(bytes.NewReader(text))
		}
	}
	return calls, len(calls) > 0 && onlySpace(text[in.InputOffset():])
}

// addCalls adds the calls of one JSON value.
func (t *Tools) addCalls(calls *[]Call, v json.RawMessage, depth int) bool {
	if depth > 3 {
		return false
	}
	if v[0] == '[' {
		var list []json.RawMessage
		if json.Unmarshal(v, &list) != nil || len(list) == 0 {
			return false
		}
		for _, e := range list {
			if !t.addCalls(calls, e, depth+1) {
				return false
			}
		}
		return true
	}
	var m map[string]json.RawMessage
	if v[0] != '{' || json.Unmarshal(v, &m) != nil {
		return false
	}
	var c Call
	var args json.RawMessage
	named, hasArgs := false, false
	for key, value := range m {
		var s string
		isString := json.Unmarshal(value, &s) == nil && value[0] == '"'
		switch {
		case (key == "type" || slices.Contains(wholeIDs, key)) && isString:
			if key != "type" {
				c.ID = s
			} else if t.find(s) >= 0 && !named && len(m) > 1 && m["name"] == nil {
				c.Name, named = s, true
			}
		case len(m) == 1 && slices.Contains(wholeLists, key) && value[0] == '[':
			return t.addCalls(calls, value, depth+1)
		case slices.Contains(wholeIn, key) && value[0] == '{':
			for other := range m {
				if other != key && other != "type" && !slices.Contains(wholeIDs, other) {
					return false
				}
			}
			return t.addCalls(calls, value, depth+1)
		case slices.Contains(wholeNames, key) && isString && (!named || c.Name == s):
			c.Name, named = s, true
		case slices.Contains(wholeArgs, key) && !hasArgs:
			args, hasArgs = value, true
		case len(m) == 1 && t.find(key) >= 0 && value[0] == '{':
			c.Name, named, args, hasArgs = key, true, value, true
		default:
			return false
		}
	}
	if !named || t.find(c.Name) < 0 {
		return false
	}
	var text string
	switch {
	case !hasArgs || string(args) == "null":
		args = json.RawMessage("{}")
	case json.Unmarshal(args, &text) == nil:
		if args = json.RawMessage(strings.TrimSpace(text)); len(args) == 0 {
			args = json.RawMessage("{}")
		}
	}
	if !t.fits(c.Name, args) {
		return false
	}
	var short bytes.Buffer
	if json.Compact(&short, args) != nil {
		return false
	}
	c.Arguments = short.String()
	*calls = append(*calls, c)
	return true
}

// fits reports whether arguments are an object with the required members of a tool's schema and, where the schema names
// its members, no others.
func (t *Tools) fits(name string, arguments []byte) bool {
	i := t.find(name)
	var args map[string]json.RawMessage
	if i < 0 || json.Unmarshal(arguments, &args) != nil || args == nil {
		return false
	}
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
		Additional json.RawMessage            `json:"additionalProperties"`
	}
	if len(t.list[i].Parameters) > 0 && json.Unmarshal(t.list[i].Parameters, &schema) != nil {
		return true // a schema of another kind: true, or $ref
	}
	for _, r := range schema.Required {
		if args[r] == nil {
			return false
		}
	}
	if a := string(schema.Additional); a == "" || a == "false" {
		for key := range args {
			if schema.Properties[key] == nil && (len(schema.Properties) > 0 || len(t.list[i].Parameters) == 0) {
				return false
			}
		}
	}
	return true
}
