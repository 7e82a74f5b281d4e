package toolcall

import (
	"strings"
	"testing"
)

// A form that writes arguments one by one cannot hold what constrains them together; a form with JSON leaves that to
// JSON.
func TestCanHold(t *testing.T) {
	for _, c := range []struct {
		schema string
		strict bool
		fault  string // "": none
	}{
		{`{"type":"object","properties":{"x":{"type":"string"}},"required":["x"],"additionalProperties":false}`, true,
			""},
		{`{"type":"object","properties":{}}`, true, ""},
		{`{"type":"object","properties":{"x":{"type":"integer","minimum":1}},"additionalProperties":true}`, true, ""},
		{`{"type":"object","properties":{"x":{"type":"string","enum":["a"],"minLength":1}}}`, true, ""},
		{`{"type":"object","properties":{"x":{"type":"string","minLength":1}}}`, false, ""},
		{`{"type":"object","properties":{"x":{"type":"string","minLength":1}}}`, true, "properties/x/minLength"},
		{`{"type":"object","properties":{"x":{"type":"string","pattern":"a"}}}`, true, "properties/x/pattern"},
		{`{"type":"object","additionalProperties":{"type":"string"}}`, false, "additionalProperties"},
		{`{"type":"object","additionalProperties":true}`, false, "additionalProperties"},
		{`{"type":"object","properties":{},"required":["y"]}`, false, "required"},
		{`{"$ref":"#/$defs/a","$defs":{"a":{"type":"object"}}}`, false, "$ref"},
		{`{"type":"object","properties":{"x":{}},"minProperties":1}`, false, "minProperties"},
		{`true`, false, "parameters"},
	} {
		tool := Tool{Name: "f", Parameters: []byte(c.schema), Strict: c.strict}
		err := ByName("qwen3-coder").Resolve(nil).CanHold(&tool)
		if c.fault == "" && err != nil || c.fault != "" &&
			(err == nil || !strings.Contains(err.Error(), ": "+c.fault+": ")) {
			t.Errorf("%s strict %v: %v; want %q", c.schema, c.strict, err, c.fault)
		}
		if err := ByName("hermes").Resolve(nil).CanHold(&tool); err != nil {
			t.Errorf("%s as JSON: %v", c.schema, err)
		}
	}
}
