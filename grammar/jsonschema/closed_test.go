package jsonschema

import "testing"

// TestClosed: a schema with properties that says nothing of others takes no others with Options.Closed, and any
// without; whatever is said of others holds.
func TestClosed(t *testing.T) {
	v := bytesVocab()
	const ab = `{"type":"object","allOf":[{"properties":{"a":{}}},{"properties":{"b":{"type":"integer"}}}]}`
	const a = `"properties":{"a":{"type":"integer"}}`
	for _, c := range []struct {
		schema, text   string
		standard, held bool
	}{
		{`{"type":"object",` + a + `}`, `{"a":1}`, true, true},
		{`{"type":"object",` + a + `}`, `{}`, true, true},
		{`{"type":"object",` + a + `}`, `{"a":1,"b":2}`, true, false},
		{`{"type":"object",` + a + `}`, `{"b":2}`, true, false},
		{`{` + a + `,"type":"object","additionalProperties":true}`, `{"a":1,"b":2}`, true, true},
		{`{` + a + `,"type":"object","additionalProperties":{"type":"integer"}}`, `{"a":1,"b":2}`, true, true},
		{`{` + a + `,"type":"object","patternProperties":{"^b":{"type":"integer"}}}`, `{"a":1,"b":2}`, true, true},
		{`{` + a + `,"type":"object","propertyNames":{"minLength":1}}`, `{"a":1,"b":2}`, true, true},
		{`{` + a + `,"type":"object","minProperties":2}`, `{"a":1,"b":2}`, true, true},
		{`{` + a + `,"type":"object","required":["b"]}`, `{"a":1,"b":2}`, true, true},
		{`{` + a + `,"type":"object","required":["b"]}`, `{"a":1,"b":2,"c":3}`, true, false},
		{`{"type":"object","properties":{}}`, `{}`, true, true},
		{`{"type":"object","properties":{}}`, `{"b":2}`, true, false},
		{`{"type":"object"}`, `{"b":2}`, true, true},
		{`{"type":"object","properties":{"o":{"type":"object",` + a + `}}}`, `{"o":{"a":1,"b":2}}`, true, false},
		{`{"type":"array","items":{"type":"object",` + a + `}}`, `[{"a":1},{"b":2}]`, true, false},
		{ab, `{"a":1,"b":2}`, true, true}, {ab, `{"a":1,"c":2}`, true, false},
		{`{"type":"object","anyOf":[{` + a + `},{` + a + `,"required":["b"]}]}`, `{"a":1,"b":2}`, true, true},
		{`{"type":"object","anyOf":[{` + a + `},{"properties":{"b":{"type":"integer"}}}]}`, `{"b":2}`, true, true},
		{`{"type":"object","oneOf":[{` + a + `,"required":["a"]},{"properties":{"b":{}},"required":["b"]}]}`,
			`{"b":2}`, true, true},
		{`{"type":"object","not":{` + a + `}}`, `{"a":1}`, false, false},
		{`{"type":"object","not":{` + a + `}}`, `{"a":"x"}`, true, true},
	} {
		for _, closed := range []bool{false, true} {
			g, err := Compile([]byte(c.schema), Options{Closed: closed}, Limits{})
			if err != nil {
				t.Errorf("%s: %v", c.schema, err)
				continue
			}
			want := c.standard
			if closed {
				want = c.held
			}
			if got := accepts(t, g, v, c.text); got != want {
				t.Errorf("%s, closed %v: %s is %v", c.schema, closed, c.text, got)
			}
		}
	}
}
