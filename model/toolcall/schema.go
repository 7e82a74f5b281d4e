package toolcall

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/uma-serve/uma-serve/model/toolcall/stream"
)

// types is the set of JSON types that a schema allows.
type types uint8

const (
	typeString types = 1 << iota
	typeNumber
	typeBool
	typeNull
	typeObject
	typeArray
	anyType types = 1<<iota - 1
)

var typeNames = map[string]types{
	"string": typeString, "number": typeNumber, "integer": typeNumber, "boolean": typeBool, "null": typeNull,
	"object": typeObject, "array": typeArray,
}

// word returns the name of a single type.
func (t types) word() string {
	for _, name := range typeWords {
		if t == typeNames[name] {
			return name
		}
	}
	return "string"
}

// typeOf returns the type of the JSON value that begins with c.
func typeOf(c byte) types {
	switch c {
	case '"':
		return typeString
	case 't', 'f':
		return typeBool
	case 'n':
		return typeNull
	case '{':
		return typeObject
	case '[':
		return typeArray
	}
	return typeNumber
}

// Tools are the tools of a request, for a Parser. It is immutable.
type Tools struct {
	list   []Tool
	byName map[string]int
	params []map[string]param // by tool and parameter; nil: the schema names none
}

// NewTools reads the tools' schemas as far as notations need them in which a value does not tell its type.
func NewTools(list []Tool) *Tools {
	t := &Tools{list: list, byName: make(map[string]int, len(list)), params: make([]map[string]param, len(list))}
	for i := range list {
		t.byName[list[i].Name] = i
		t.params[i] = parameters(list[i].Parameters)
	}
	return t
}

// find returns the tool of that name, or -1.
func (t *Tools) find(name string) int {
	if i, ok := t.byName[name]; ok {
		return i
	}
	return -1
}

// begins reports whether name is the beginning of a tool's name, or of one in quotes with what follows it.
func (t *Tools) begins(name string) bool {
	word, _, ended := strings.Cut(name, `"`)
	for i := range t.list {
		if t.list[i].Name == word || !ended && strings.HasPrefix(t.list[i].Name, word) {
			return true
		}
	}
	return false
}

// param returns what a tool's parameter may be; anything where the schema does not say.
func (t *Tools) param(tool int, name []byte) param {
	if p, ok := t.params[tool][string(name)]; ok {
		return p
	}
	return param{types: anyType}
}

// param has the properties of a value's schema that decide how its text is parsed.
type param struct {
	types types
	// words are the allowed strings, if closed; otherwise any string is allowed, if types has strings.
	words  []string
	closed bool
	raw    json.RawMessage // of a property: its schema
}

// meet returns the param of the values that both a and b allow; the types of a where they contradict each other.
func (a param) meet(b param) param {
	out := a
	if a.types&b.types != 0 {
		out.types &= b.types
	}
	switch {
	case a.closed && b.closed:
		out.words = slices.DeleteFunc(slices.Clone(a.words),
			func(w string) bool { return !slices.Contains(b.words, w) })
	case b.closed:
		out.words, out.closed = b.words, true
	}
	return out
}

// join returns the param of the values that a or b allows.
func (a param) join(b param) param {
	switch {
	case a.types&typeString == 0:
		a.words, a.closed = b.words, b.closed
	case b.types&typeString == 0:
	default:
		a.words, a.closed = slices.Concat(a.words, b.words), a.closed && b.closed
	}
	a.types |= b.types
	return a
}

// node is the part of a schema that decides its types.
type node struct {
	Type       json.RawMessage            `json:"type"`
	Enum       []json.RawMessage          `json:"enum"`
	Const      json.RawMessage            `json:"const"`
	AnyOf      []json.RawMessage          `json:"anyOf"`
	OneOf      []json.RawMessage          `json:"oneOf"`
	AllOf      []json.RawMessage          `json:"allOf"`
	Ref        string                     `json:"$ref"`
	Nullable   bool                       `json:"nullable"` // OpenAPI 3.0
	Items      json.RawMessage            `json:"items"`
	Properties map[string]json.RawMessage `json:"properties"`
}

// parameters returns what a schema's properties may be.
func parameters(schema []byte) map[string]param {
	if len(schema) == 0 {
		return nil
	}
	r := resolver{root: schema}
	out := map[string]param{}
	if !r.collect(schema, out, 0) {
		return nil
	}
	return out
}

// maxSteps bounds the schemas that are looked at, so that references cannot take long.
const maxSteps = 10_000

type resolver struct {
	root  json.RawMessage
	steps int
}

// collect adds the properties of raw and of what it is composed of.
func (r *resolver) collect(raw json.RawMessage, out map[string]param, depth int) bool {
	var n node
	if r.steps++; depth > 8 || r.steps > maxSteps || json.Unmarshal(raw, &n) != nil {
		return false
	}
	for name, raw := range n.Properties {
		p := r.param(raw, 0)
		if old, ok := out[name]; ok {
			p = old.join(p)
		}
		p.raw = raw
		out[name] = p
	}
	if next := r.ref(n.Ref); next != nil {
		r.collect(next, out, depth+1)
	}
	for _, list := range [][]json.RawMessage{n.AllOf, n.AnyOf, n.OneOf} {
		for _, raw := range list {
			r.collect(raw, out, depth+1)
		}
	}
	return true
}

// ref returns what a JSON pointer within the schema, as "#/$defs/name", refers to, or nil.
func (r *resolver) ref(ref string) json.RawMessage {
	if ref == "#" {
		return r.root
	}
	pointer, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		return nil
	}
	at := r.root
	for token := range strings.SplitSeq(pointer, "/") {
		r.steps++
		token = strings.NewReplacer("~1", "/", "~0", "~", "%7E", "~", "%20", " ", "%25", "%").Replace(token)
		var object map[string]json.RawMessage
		var list []json.RawMessage
		switch {
		case json.Unmarshal(at, &object) == nil:
			at = object[token]
		case json.Unmarshal(at, &list) == nil:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(list) {
				return nil
			}
			at = list[i]
		default:
			return nil
		}
		if at == nil {
			return nil
		}
	}
	return at
}

// param returns what a schema allows.
func (r *resolver) param(raw json.RawMessage, depth int) param {
	out := param{types: anyType, raw: raw}
	var n node
	if r.steps++; depth > 16 || r.steps > maxSteps || json.Unmarshal(raw, &n) != nil {
		return out // true, or no schema
	}
	if len(n.Type) > 0 {
		var one string
		var list []string
		if json.Unmarshal(n.Type, &one) == nil {
			list = []string{one}
		} else if json.Unmarshal(n.Type, &list) != nil {
			list = nil
		}
		set := types(0)
		for _, name := range list {
			set |= typeNames[name]
		}
		if set != 0 {
			out.types = set
		}
	}
	if next := r.ref(n.Ref); next != nil {
		out = out.meet(r.param(next, depth+1))
	}
	values := n.Enum
	if len(n.Const) > 0 {
		values = []json.RawMessage{n.Const}
	}
	if len(values) > 0 {
		out = out.meet(among(values))
	}
	for _, list := range [][]json.RawMessage{n.AnyOf, n.OneOf} {
		if len(list) == 0 {
			continue
		}
		var sum param
		for _, raw := range list {
			sum = sum.join(r.param(raw, depth+1))
		}
		out = out.meet(sum)
	}
	for _, raw := range n.AllOf {
		out = out.meet(r.param(raw, depth+1))
	}
	if n.Nullable {
		out.types |= typeNull
	}
	return out
}

// among is one of values.
func among(values []json.RawMessage) param {
	p := param{closed: true}
	for _, v := range values {
		v = bytes.TrimSpace(v)
		if len(v) == 0 {
			continue
		}
		p.types |= typeOf(v[0])
		var word string
		if v[0] == '"' && json.Unmarshal(v, &word) == nil {
			p.words = append(p.words, word)
		}
	}
	return p
}

// direct reports whether the value is a string whatever its text is, so that it can be passed on while it is read.
func (p *param) direct() bool { return p.types == typeString && !p.closed }

// lists reports whether text is one of p's words.
func (p *param) lists(text []byte) bool { return p.closed && slices.Contains(p.words, string(text)) }

// append appends a value, written without quotes, as JSON.
func (p *param) append(out, text []byte) []byte {
	trimmed := bytes.TrimSpace(text)
	switch {
	case p.lists(text):
		return stream.AppendQuoted(out, text)
	case p.lists(trimmed):
		return stream.AppendQuoted(out, trimmed)
	case p.types == typeString:
		var word string
		if p.closed && stream.ValidJSON(trimmed) == '"' && json.Unmarshal(trimmed, &word) == nil &&
			p.lists([]byte(word)) {
			text = []byte(word)
		}
		return stream.AppendQuoted(out, text)
	}
	if first := stream.ValidJSON(trimmed); first != 0 && typeOf(first)&p.types != 0 {
		var j stream.JSON // of several types, quotes tell a string
		out, _, _ = j.CopyValue(out, trimmed, true)
		return out
	}
	switch string(trimmed) { // as Python writes them
	case "True", "TRUE":
		if p.types&typeBool != 0 {
			return append(out, "true"...)
		}
	case "False", "FALSE":
		if p.types&typeBool != 0 {
			return append(out, "false"...)
		}
	case "None", "":
		if p.types&typeNull != 0 && p.types&typeString == 0 {
			return append(out, "null"...)
		}
	}
	if len(trimmed) > 0 && typeOf(trimmed[0])&(typeObject|typeArray)&p.types != 0 {
		var l stream.Loose
		l.Python()
		if n := len(out); l.Value(&out, trimmed) {
			return out
		} else {
			out = out[:n]
		}
	}
	return stream.AppendQuoted(out, text)
}

// propertyNames returns the names of a schema's properties, in their order.
func propertyNames(schema []byte) []string {
	var n struct {
		Properties orderedKeys `json:"properties"`
	}
	if json.Unmarshal(schema, &n) != nil {
		return nil
	}
	return n.Properties
}

// orderedKeys are the keys of an object in their order.
type orderedKeys []string

func (k *orderedKeys) UnmarshalJSON(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	if _, err := d.Token(); err != nil {
		return err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		name, ok := key.(string)
		var value json.RawMessage
		if err := d.Decode(&value); err != nil || !ok {
			return err
		}
		*k = append(*k, name)
	}
	return nil
}
