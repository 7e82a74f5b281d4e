package toolcall

import (
	"bytes"
	"encoding/json"

	"github.com/uma-serve/uma-serve/model/toolcall/stream"
)

// Values of a Nested syntax: the members of an object are elements with their names, the entries of a list elements
// named item.

const itemName = "item"

// nestedValue appends the value of an element as JSON, m being what the schema says of it. A value that may be a string
// is one, whatever it looks like; where the schema says nothing, elements are an object or a list.
func (p *Parser) nestedValue(out, text []byte, m param, depth int) []byte {
	holds := m.types & (typeObject | typeArray)
	if holds == 0 || m.types&typeString != 0 && m.types != anyType || depth > stream.MaxNesting {
		return m.append(out, stream.Unfenced(bytes.Clone(text)))
	}
	list := elements(text, p.spec.paramOpen[0], p.spec.paramMiddle[0], p.spec.paramClose[0])
	if len(list) == 0 {
		switch {
		case len(bytes.TrimSpace(text)) > 0 || m.types&typeString != 0:
			return m.append(out, stream.Unfenced(bytes.Clone(text)))
		case holds&typeArray != 0:
			return append(out, "[]"...)
		}
		return append(out, "{}"...)
	}
	r := resolver{root: p.tools.list[p.tool].Parameters}
	asList := holds&typeArray != 0
	for _, e := range list {
		asList = asList && string(e.name) == itemName
	}
	if asList {
		item := r.items(m.raw)
		out = append(out, '[')
		for i, e := range list {
			if i > 0 {
				out = append(out, ',')
			}
			out = p.nestedValue(out, e.text, item, depth+1)
		}
		return append(out, ']')
	}
	members := map[string]param{}
	if m.raw != nil {
		r.collect(m.raw, members, 0)
	}
	out = append(out, '{')
	for i, e := range list {
		if i > 0 {
			out = append(out, ',')
		}
		name := string(stream.Unfenced(bytes.Clone(e.name)))
		out = append(stream.AppendQuoted(out, name), ':')
		member, ok := members[name]
		if !ok {
			member = param{types: anyType}
		}
		out = p.nestedValue(out, e.text, member, depth+1)
	}
	return append(out, '}')
}

// items returns the param of the entries of a list with this schema.
func (r *resolver) items(raw json.RawMessage) param {
	if found := r.itemsOf(raw, 0); found != nil {
		return r.param(found, 0)
	}
	return param{types: anyType}
}

func (r *resolver) itemsOf(raw json.RawMessage, depth int) json.RawMessage {
	var n node
	if r.steps++; depth > 8 || r.steps > maxSteps || raw == nil || json.Unmarshal(raw, &n) != nil {
		return nil
	}
	if len(n.Items) > 0 {
		return n.Items
	}
	if next := r.ref(n.Ref); next != nil {
		if found := r.itemsOf(next, depth+1); found != nil {
			return found
		}
	}
	for _, list := range [][]json.RawMessage{n.AllOf, n.AnyOf, n.OneOf} {
		for _, raw := range list {
			if found := r.itemsOf(raw, depth+1); found != nil {
				return found
			}
		}
	}
	return nil
}

// elem is a child of a value.
type elem struct{ name, text []byte }

// elements returns the elements that text consists of; nil for any other text.
func elements(text, open, middle, shut []byte) (list []elem) {
	for {
		text = bytes.TrimSpace(text)
		if len(text) == 0 {
			return list
		}
		rest, ok := bytes.CutPrefix(text, open)
		end := bytes.Index(rest, middle)
		if !ok || end <= 0 || end > maxName || rest[0] == '/' {
			return nil
		}
		name := rest[:end]
		rest = rest[end+len(middle):]
		begin, last := named(open, name, middle), named(shut, name, middle)
		n, depth := 0, 1
		for at := 0; ; {
			next := bytes.Index(rest[at:], last)
			if next < 0 {
				return nil
			}
			depth += bytes.Count(rest[at:at+next], begin) - 1
			if n, at = at+next, at+next+len(last); depth == 0 {
				break
			}
		}
		list = append(list, elem{name, rest[:n]})
		text = rest[n+len(last):]
	}
}

// named returns a tag of an element with its name.
func named(begin, name, end []byte) []byte {
	tag := make([]byte, 0, len(begin)+len(name)+len(end))
	return append(append(append(tag, begin...), name...), end...)
}

// tag returns an element.
func (p *Params) tag(name, text string) string {
	return first(p.Open) + name + first(p.Middle) + text + first(p.Close) + name + first(p.Middle)
}

// nest returns a JSON value as elements hold it.
func (p *Params) nest(value string) string {
	var list []json.RawMessage
	var text string
	switch typeOf(value[0]) {
	case typeString:
		if json.Unmarshal([]byte(value), &text) == nil {
			return text
		}
	case typeArray:
		if json.Unmarshal([]byte(value), &list) == nil {
			for _, v := range list {
				text += p.tag(itemName, p.nest(string(v)))
			}
			return text
		}
	case typeObject:
		return (&Syntax{}).members(value, "", func(key, value string) string { return p.tag(key, p.nest(value)) })
	}
	return value
}
