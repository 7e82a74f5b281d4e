package toolcall

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
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

// typeOf is the type of the JSON value that begins with c.
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
	params []map[string]types // by tool and parameter; nil: the schema names none
}

// NewTools reads the tools' schemas as far as notations need them in which a value does not tell its type.
func NewTools(list []Tool) *Tools {
	t := &Tools{list: list, byName: make(map[string]int, len(list)), params: make([]map[string]types, len(list))}
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

// param returns the types of a tool's parameter; anyType where the schema does not say.
func (t *Tools) param(tool int, name []byte) types {
	if ty, ok := t.params[tool][string(name)]; ok {
		return ty
	}
	return anyType
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
	Properties map[string]json.RawMessage `json:"properties"`
	Defs       map[string]json.RawMessage `json:"$defs"`
	OldDefs    map[string]json.RawMessage `json:"definitions"`
}

// parameters returns the types of a schema's properties.
func parameters(schema []byte) map[string]types {
	var root node
	if len(schema) == 0 || json.Unmarshal(schema, &root) != nil {
		return nil
	}
	r := resolver{root: &root}
	out := map[string]types{}
	r.collect(&root, out, 0)
	return out
}

// maxSteps bounds the schemas that are looked at, so that references cannot take long.
const maxSteps = 10_000

type resolver struct {
	root  *node
	steps int
}

// collect adds the properties of n and of what it is composed of.
func (r *resolver) collect(n *node, out map[string]types, depth int) {
	for name, raw := range n.Properties {
		ty := r.types(raw, 0)
		if old, ok := out[name]; ok {
			ty |= old
		}
		out[name] = ty
	}
	if depth > 8 {
		return
	}
	if n.Ref != "" {
		if next := r.ref(n.Ref); next != nil {
			r.collect(next, out, depth+1)
		}
	}
	for _, list := range [][]json.RawMessage{n.AllOf, n.AnyOf, n.OneOf} {
		for _, raw := range list {
			var next node
			if r.steps++; r.steps < maxSteps && json.Unmarshal(raw, &next) == nil {
				r.collect(&next, out, depth+1)
			}
		}
	}
}

// ref returns what "#/$defs/name" refers to, or nil.
func (r *resolver) ref(ref string) *node {
	for prefix, defs := range map[string]map[string]json.RawMessage{"#/$defs/": r.root.Defs,
		"#/definitions/": r.root.OldDefs} {
		if name, ok := strings.CutPrefix(ref, prefix); ok {
			name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
			var n node
			if raw, ok := defs[name]; ok && json.Unmarshal(raw, &n) == nil {
				return &n
			}
		}
	}
	return nil
}

// types returns the types that a schema allows.
func (r *resolver) types(raw json.RawMessage, depth int) types {
	if r.steps++; depth > 16 || r.steps > maxSteps {
		return anyType
	}
	var n node
	if json.Unmarshal(raw, &n) != nil {
		return anyType // true, or no schema
	}
	ty := anyType
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
			ty = set
		}
	}
	if n.Ref != "" {
		if next := r.ref(n.Ref); next != nil {
			if b, err := json.Marshal(next); err == nil {
				ty = narrow(ty, r.types(b, depth+1))
			}
		}
	}
	values := n.Enum
	if len(n.Const) > 0 {
		values = []json.RawMessage{n.Const}
	}
	if len(values) > 0 {
		set := types(0)
		for _, v := range values {
			if v = bytes.TrimSpace(v); len(v) > 0 {
				set |= typeOf(v[0])
			}
		}
		ty = narrow(ty, set)
	}
	for _, list := range [][]json.RawMessage{n.AnyOf, n.OneOf} {
		if len(list) == 0 {
			continue
		}
		set := types(0)
		for _, raw := range list {
			set |= r.types(raw, depth+1)
		}
		ty = narrow(ty, set)
	}
	for _, raw := range n.AllOf {
		ty = narrow(ty, r.types(raw, depth+1))
	}
	if n.Nullable {
		ty |= typeNull
	}
	return ty
}

// narrow returns what both sets allow, or a where they contradict each other.
func narrow(a, b types) types {
	if a&b == 0 {
		return a
	}
	return a & b
}

// appendTyped appends a parameter's value, written without quotes, as JSON of one of the allowed types.
func appendTyped(out, text []byte, allowed types) []byte {
	trimmed := bytes.TrimSpace(text)
	if allowed != typeString {
		if first := validJSON(trimmed); first != 0 && typeOf(first)&allowed&^typeString != 0 {
			var j scanner
			out, _, _ = j.copyValue(out, trimmed, true)
			return out
		}
		switch string(trimmed) { // as Python writes them
		case "True", "TRUE":
			if allowed&typeBool != 0 {
				return append(out, "true"...)
			}
		case "False", "FALSE":
			if allowed&typeBool != 0 {
				return append(out, "false"...)
			}
		case "None", "":
			if allowed&typeNull != 0 && allowed&typeString == 0 {
				return append(out, "null"...)
			}
		}
		if len(trimmed) > 0 && typeOf(trimmed[0])&(typeObject|typeArray)&allowed != 0 {
			var l loose
			l.python()
			if n := len(out); l.value(&out, trimmed) {
				return out
			} else {
				out = out[:n]
			}
		}
		if allowed == anyType && validJSON(trimmed) == '"' {
			var j scanner
			out, _, _ = j.copyValue(out, trimmed, true)
			return out
		}
	}
	return appendQuoted(out, text)
}

// property is a parameter of a tool.
type property struct {
	name     string
	schema   []byte
	types    types
	required bool
	enum     []string // the only strings that it may be
}

// properties returns the parameters of a schema, in their order.
func properties(schema []byte) (list []property) {
	var root node
	var order struct {
		Properties orderedKeys `json:"properties"`
		Required   []string    `json:"required"`
	}
	if len(schema) == 0 || json.Unmarshal(schema, &root) != nil || json.Unmarshal(schema, &order) != nil {
		return nil
	}
	r := resolver{root: &root}
	for _, name := range order.Properties {
		raw := root.Properties[name]
		if bytes.Contains(raw, []byte(`"$ref"`)) {
			raw = root.rooted(raw)
		}
		p := property{name: name, schema: raw, types: r.types(raw, 0), required: slices.Contains(order.Required, name)}
		var n struct {
			Enum  []string
			Const *string
		}
		if p.types == typeString && json.Unmarshal(raw, &n) == nil {
			if p.enum = n.Enum; n.Const != nil {
				p.enum = []string{*n.Const}
			}
		}
		list = append(list, p)
	}
	return list
}

// rooted is a part of a schema with the definitions that it refers to.
func (n *node) rooted(part json.RawMessage) json.RawMessage {
	b, err := json.Marshal(struct {
		Defs    map[string]json.RawMessage `json:"$defs,omitempty"`
		OldDefs map[string]json.RawMessage `json:"definitions,omitempty"`
		AllOf   []json.RawMessage          `json:"allOf"`
	}{n.Defs, n.OldDefs, []json.RawMessage{part}})
	if err != nil {
		return part
	}
	return b
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

// word is the name of a type that is no string, as forms with types by name have it.
func (t types) word() string {
	for _, name := range []string{"object", "array", "number", "boolean", "null"} {
		if t&typeNames[name] != 0 {
			return name
		}
	}
	return "string"
}
