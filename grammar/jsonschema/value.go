package jsonschema

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/valyala/fastjson"
)

// valueKind is the JSON type of a value.
type valueKind uint8

const (
	nullValue valueKind = iota
	boolValue
	numberValue
	stringValue
	arrayValue
	objectValue
)

var kindNames = [...]string{"null", "boolean", "number", "string", "array", "object"}

func (k valueKind) String() string { return kindNames[k] }

// value is a JSON value of a schema. Objects keep the order of their members, numbers their text: both show in what the
// grammar writes.
type value struct {
	kind    valueKind
	truth   bool
	text    string // of a string, decoded; of a number, as written
	items   []*value
	members []member
	index   map[string]*value // of an object with many members
}

type member struct {
	name string
	*value
}

// indexed is the number of members from which an object has an index.
const indexed = 12

// get returns the member called name, or nil.
func (v *value) get(name string) *value {
	if v.index != nil {
		return v.index[name]
	}
	for _, m := range v.members {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// parseValue parses data. fastjson accepts texts that are not JSON, so encoding/json looks first.
func parseValue(data []byte, depth int) (*value, error) {
	if tooDeep(data, min(depth, fastjson.MaxDepth)) {
		return nil, errDepth
	}
	if !json.Valid(data) {
		var v any
		if err := json.Unmarshal(data, &v); err != nil {
			return nil, err
		}
		return nil, errors.New("not JSON")
	}
	var p fastjson.Parser
	v, err := p.ParseBytes(data)
	if err != nil {
		return nil, err
	}
	return fromFast(v)
}

func fromFast(f *fastjson.Value) (*value, error) {
	switch f.Type() {
	case fastjson.TypeNull:
		return &value{kind: nullValue}, nil
	case fastjson.TypeTrue, fastjson.TypeFalse:
		return &value{kind: boolValue, truth: f.Type() == fastjson.TypeTrue}, nil
	case fastjson.TypeNumber:
		return &value{kind: numberValue, text: string(f.MarshalTo(nil))}, nil
	case fastjson.TypeString:
		b, err := f.StringBytes()
		if err != nil {
			return nil, err
		}
		return &value{kind: stringValue, text: strings.ToValidUTF8(string(b), "\uFFFD")}, nil
	case fastjson.TypeArray:
		items, err := f.Array()
		if err != nil {
			return nil, err
		}
		v := &value{kind: arrayValue, items: make([]*value, len(items))}
		for i, it := range items {
			if v.items[i], err = fromFast(it); err != nil {
				return nil, err
			}
		}
		return v, nil
	}
	o, err := f.Object()
	if err != nil {
		return nil, err
	}
	v := &value{kind: objectValue, members: make([]member, 0, o.Len())}
	if o.Len() >= indexed {
		v.index = make(map[string]*value, o.Len())
	}
	o.Visit(func(key []byte, f *fastjson.Value) {
		if err != nil {
			return
		}
		var m *value
		if m, err = fromFast(f); err != nil {
			return
		}
		name := string(key)
		if old := v.get(name); old != nil {
			*old = *m // the last of equal names counts, at the place of the first
			return
		}
		v.members = append(v.members, member{name, m})
		if v.index != nil {
			v.index[name] = m
		}
	})
	return v, err
}

// count reads v as an integer of at least 0, as lengths and counts are. 2.0 is one.
func (v *value) count() (int, error) {
	if v.kind != numberValue {
		return 0, fmt.Errorf("want a number, have %s", v.kind)
	}
	d, err := parseDecimal(v.text)
	if err != nil {
		return 0, err
	}
	n, ok := d.int()
	if !ok || n < 0 {
		return 0, fmt.Errorf("want an integer of 0 to %d, have %s", maxCount, v.text)
	}
	return n, nil
}

// tooDeep reports whether brackets in data, outside strings, are nested deeper than depth.
func tooDeep(data []byte, depth int) bool {
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			for i++; i < len(data) && data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
		case '[', '{':
			if depth--; depth < 0 {
				return true
			}
		case ']', '}':
			depth++
		}
	}
	return false
}
