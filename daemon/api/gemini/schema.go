package gemini

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/uma-serve/uma-serve/daemon/api"
)

// schemaNames are the members of a schema in Google's form that are not written in lower case.
var schemaNames = []string{"additionalProperties", "anyOf", "maxItems", "maxLength", "maxProperties", "minItems",
	"minLength", "minProperties", "propertyOrdering", "prefixItems"}

// jsonMember is a member of an object.
type jsonMember struct {
	name  string
	value rawJSON
}

// membersOf returns the members of an object in their order; ok is false for other values. raw is valid JSON.
func membersOf(raw rawJSON) (list []jsonMember, ok bool) {
	in := json.NewDecoder(bytes.NewReader(raw))
	if t, err := in.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	for in.More() {
		t, err := in.Token()
		if err != nil {
			return nil, false
		}
		m := jsonMember{name: t.(string)}
		if in.Decode(&m.value) != nil {
			return nil, false
		}
		list = append(list, m)
	}
	return list, true
}

func objectOf(list []jsonMember) rawJSON {
	out := []byte{'{'}
	for i, m := range list {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(api.AppendJSON(out, m.name), ':'), m.value...)
	}
	return append(out, '}')
}

// jsonSchema returns a schema in Google's form, a subset of OpenAPI's, as a JSON schema: types are in lower case,
// "nullable" is a type, and the properties have the order of "propertyOrdering". What is not a schema is returned as it
// is, for the errors of schemas to be about it. The depth is that of a body, which is bounded.
func jsonSchema(raw rawJSON) rawJSON {
	list, ok := membersOf(raw)
	if !ok {
		return raw
	}
	var (
		out      []jsonMember
		order    []string
		nullable bool
	)
	for _, m := range list {
		switch m.name {
		case "propertyOrdering":
			_ = json.Unmarshal(m.value, &order) // another value orders nothing
			continue
		case "nullable":
			nullable = string(m.value) == "true"
			continue
		case "example":
			continue
		case "defs":
			m.name = "$defs"
		case "ref":
			m.name = "$ref"
		}
		switch m.name {
		case "type":
			if m.value, ok = typeOf(m.value); !ok {
				continue
			}
		case "format":
			if string(m.value) == `"enum"` { // says only that "enum" follows
				continue
			}
		case "minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties":
			m.value = numberOf(m.value)
		case "items", "additionalProperties":
			m.value = jsonSchema(m.value)
		case "anyOf", "prefixItems":
			var all []rawJSON
			if json.Unmarshal(m.value, &all) == nil {
				for i := range all {
					all[i] = jsonSchema(all[i])
				}
				m.value = api.AppendJSON(nil, all)
			}
		case "properties", "$defs":
			if inner, ok := membersOf(m.value); ok {
				for i := range inner {
					inner[i].value = jsonSchema(inner[i].value)
				}
				m.value = objectOf(inner)
			}
		}
		out = append(out, m)
	}
	for i, m := range out {
		if m.name == "properties" && order != nil {
			out[i].value = ordered(m.value, order)
		}
	}
	if nullable {
		return orNull(out)
	}
	return objectOf(out)
}

// typeOf returns a type in lower case; ok is false for one that says nothing.
func typeOf(raw rawJSON) (rawJSON, bool) {
	var name string
	if json.Unmarshal(raw, &name) != nil {
		return raw, true
	}
	if name == "TYPE_UNSPECIFIED" {
		return nil, false
	}
	return api.AppendJSON(nil, strings.ToLower(name)), true
}

// numberOf returns an integer without the quotation marks that the JSON form of an int64 has.
func numberOf(raw rawJSON) rawJSON {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		if n, err := strconv.ParseUint(text, 10, 32); err == nil {
			return strconv.AppendUint(nil, n, 10)
		}
	}
	return raw
}

// ordered returns an object whose members of these names come first, in this order.
func ordered(raw rawJSON, order []string) rawJSON {
	list, ok := membersOf(raw)
	if !ok {
		return raw
	}
	rank := make(map[string]int, len(order))
	for i, name := range order {
		rank[name] = i
	}
	place := func(m jsonMember) int {
		if i, ok := rank[m.name]; ok {
			return i
		}
		return len(order)
	}
	slices.SortStableFunc(list, func(a, b jsonMember) int { return place(a) - place(b) })
	return objectOf(list)
}

// orNull returns the schema of a value or null.
func orNull(list []jsonMember) rawJSON {
	for i, m := range list {
		var name string
		if m.name == "type" && json.Unmarshal(m.value, &name) == nil &&
			!slices.ContainsFunc(list, func(m jsonMember) bool { return m.name == "enum" || m.name == "anyOf" }) {
			list[i].value = api.AppendJSON(nil, []string{name, "null"})
			return objectOf(list)
		}
	}
	return objectOf([]jsonMember{{"anyOf", slices.Concat(rawJSON("["), objectOf(list), rawJSON(`,{"type":"null"}]`))}})
}
