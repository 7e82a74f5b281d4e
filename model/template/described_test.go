package template

import (
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/model/toolcall"
)

// TestToolsWithoutDescriptions: a tool without a description, and with parameters that have none, is offered by every
// template that offers any.
func TestToolsWithoutDescriptions(t *testing.T) {
	tools := []toolcall.Tool{{Name: "odd_tool", Parameters: []byte(`{"type":"object","properties":{"a":{},"o":` +
		`{"type":"object"},"l":{"type":"array"},"n":{"type":["string","null"]},"e":{"enum":["x",1]},` +
		`"r":{"$ref":"#/$defs/r"}},"$defs":{"r":{"anyOf":[{"type":"string"},{"type":"null"}]}}}`)},
		{Name: "bare_tool"}, {Name: "empty_tool", Parameters: []byte(`{}`)}}
	for name, src := range outputTemplates(t) {
		tmpl, err := Compile(src)
		if err != nil {
			t.Fatal(name, err)
		}
		out, notes, err := tmpl.RenderChanged(Input{Messages: []Message{{Role: "user", Content: "question"}},
			Tools: tools, AddGenerationPrompt: true, Now: time.Unix(0, 0)})
		if err != nil || !strings.Contains(out, "odd_tool") || !strings.Contains(out, "empty_tool") {
			t.Errorf("%s: %v %v %q", name, err, notes, out[max(0, len(out)-300):])
		}
		for _, n := range notes {
			if n.Reason == "tools_as_text" {
				t.Logf("%s: %s", name, n.Text)
			}
		}
	}
}

// A schema keeps the order of its members.
func TestDescribed(t *testing.T) {
	for schema, want := range map[string]string{
		`{"type":"object","properties":{"b":{"type":"string"},"a":{"description":"x"}},"required":["b"]}`: `{"type": ` +
			`"object", "properties": {"b": {"type": "string", "description": ""}, "a": {"description": "x"}}, ` +
			`"required": ["b"]}`,
		`{"properties":{"a":{"type":"array","items":{"type":"object"}}}}`: `{"properties": {"a": {"type": "array", ` +
			`"items": {"type": "object", "description": "", "additionalProperties": {}}, "description": ""}}}`,
		`[1`: `[1`, `true`: `true`, `{"properties":7}`: `{"properties": 7}`,
	} {
		if got := string(described([]byte(schema))); got != want {
			t.Errorf("%s:\n got %s\nwant %s", schema, got, want)
		}
	}
}
