package toolcall

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// oneByOne reports whether the notation writes each argument by itself, so that a grammar has a text for each of a
// tool's properties and none for the object around them.
func (n Notation) oneByOne() bool { return n == Tagged || n == Braces || n == Keywords }

// besideProperties are the keywords of a tool's schema that the texts of its properties enforce, or that constrain
// nothing.
var besideProperties = []string{"type", "properties", "required", "additionalProperties", "title", "description",
	"default", "examples", "$schema", "$id", "$comment", "$defs", "definitions", "strict"}

// ofTexts are the keywords of a string's schema that do not hold a string that is written without quotes.
var ofTexts = []string{"pattern", "minLength", "maxLength", "format", "not", "allOf", "anyOf", "oneOf", "$ref", "if"}

// CanHold returns an error that names what of t's schema Text's grammar would not enforce: what constrains the
// arguments as a whole in notations that write them one by one, and for a strict tool also what constrains its strings
// there. Schemas that are enforced as JSON are not checked here.
func (s *Spec) CanHold(t *Tool) error {
	if !s.form.Notation.oneByOne() || len(t.Parameters) == 0 {
		return nil
	}
	fault := func(keyword string) error {
		return fmt.Errorf("tool %q: %s: cannot be enforced: the model's form %q writes arguments one by one", t.Name,
			keyword, s.form.Name)
	}
	var root map[string]json.RawMessage
	if err := json.Unmarshal(t.Parameters, &root); err != nil {
		return fault("parameters")
	}
	for _, keyword := range slices.Sorted(maps.Keys(root)) {
		if !slices.Contains(besideProperties, keyword) {
			return fault(keyword)
		}
	}
	list := properties(t.Parameters)
	switch more := string(root["additionalProperties"]); {
	case more == "" || more == "false":
	case more != "true" || len(list) == 0:
		return fault("additionalProperties")
	}
	var required []string
	if raw, ok := root["required"]; ok && json.Unmarshal(raw, &required) != nil {
		return fault("required")
	}
	for _, name := range required {
		if !slices.ContainsFunc(list, func(p property) bool { return p.name == name }) {
			return fault("required")
		}
	}
	if !t.Strict {
		return nil
	}
	for _, p := range list {
		var schema map[string]json.RawMessage
		if p.types != typeString || len(p.enum) > 0 || json.Unmarshal(p.schema, &schema) != nil {
			continue
		}
		for _, keyword := range ofTexts {
			if _, ok := schema[keyword]; ok {
				return fault("properties/" + p.name + "/" + keyword)
			}
		}
	}
	return nil
}
