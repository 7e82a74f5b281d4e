package template

import (
	"bytes"
	"encoding/json"
)

// Some templates fail where a schema lacks a member that most have, such as the description of a parameter.

// maxDescribed bounds schemas within schemas.
const maxDescribed = 64

// described returns a schema whose parameters all have a description, an empty one if need be, and whose objects and
// lists say what they may hold. Any other text is returned as it is.
func described(schema []byte) []byte {
	if !json.Valid(schema) {
		return schema
	}
	return describe(schema, true, 0)
}

// describe is described for a part of a schema; root: it is no parameter.
func describe(schema []byte, root bool, depth int) []byte {
	members, ok := membersOf(schema)
	if !ok || depth > maxDescribed {
		return schema
	}
	has := map[string]bool{}
	object, array := false, false
	for i, m := range members {
		has[m.key] = true
		switch m.key {
		case "properties":
			list, ok := membersOf(m.value)
			for j := range list {
				list[j].value = describe(list[j].value, false, depth+1)
			}
			if ok {
				members[i].value = written(list)
			}
		case "items", "additionalProperties":
			members[i].value = describe(m.value, false, depth+1)
		case "type":
			word := string(bytes.TrimSpace(m.value))
			object, array = word == `"object"`, word == `"array"`
		}
	}
	if !root && !has["description"] {
		members = append(members, schemaMember{"description", []byte(`""`)})
	}
	if !root && object && !has["additionalProperties"] {
		members = append(members, schemaMember{"additionalProperties", []byte(`{}`)})
	}
	if array && !has["items"] {
		members = append(members, schemaMember{"items", []byte(`{}`)})
	}
	return written(members)
}

type schemaMember struct {
	key   string
	value json.RawMessage
}

// membersOf returns the members of an object, in their order.
func membersOf(object []byte) (list []schemaMember, ok bool) {
	if object = bytes.TrimSpace(object); len(object) == 0 || object[0] != '{' {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(object))
	if _, err := d.Token(); err != nil {
		return nil, false
	}
	for d.More() {
		key, err := d.Token()
		name, isText := key.(string)
		var value json.RawMessage
		if err != nil || !isText || d.Decode(&value) != nil {
			return nil, false
		}
		list = append(list, schemaMember{name, value})
	}
	return list, true
}

// written returns the object of members.
func written(members []schemaMember) []byte {
	out := []byte{'{'}
	for i, m := range members {
		if i > 0 {
			out = append(out, ", "...)
		}
		key, _ := json.Marshal(m.key) // of a string
		out = append(append(append(out, key...), ": "...), m.value...)
	}
	return append(out, '}')
}
