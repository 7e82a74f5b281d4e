package gemini

import (
	"encoding/json"
	"testing"
)

func TestSchema(t *testing.T) {
	for _, c := range [][2]string{
		{`{"type":"OBJECT","properties":{"b":{"type":"STRING"},"a":{"type":"INTEGER","format":"int32"}},` +
			`"propertyOrdering":["a","b"],"required":["a"]}`,
			`{"type":"object","properties":{"a":{"type":"integer","format":"int32"},"b":{"type":"string"}},` +
				`"required":["a"]}`},
		{`{"type":"STRING","nullable":true}`, `{"type":["string","null"]}`},
		{`{"type":"STRING","format":"enum","enum":["x"],"nullable":true}`,
			`{"anyOf":[{"type":"string","enum":["x"]},{"type":"null"}]}`},
		{`{"type":"ARRAY","minItems":"1","maxItems":3,"items":{"anyOf":[{"type":"NUMBER"},{"type":"BOOLEAN"}]}}`,
			`{"type":"array","minItems":1,"maxItems":3,"items":{"anyOf":[{"type":"number"},{"type":"boolean"}]}}`},
		{`{"type":"TYPE_UNSPECIFIED","example":{"a":1},"description":"d"}`, `{"description":"d"}`},
		{`{"type":"object","properties":{"type":{"type":"STRING"},"nullable":{"type":"BOOLEAN"}}}`,
			`{"type":"object","properties":{"type":{"type":"string"},"nullable":{"type":"boolean"}}}`},
		{`{"defs":{"T":{"type":"OBJECT"}},"ref":"#/$defs/T"}`, `{"$defs":{"T":{"type":"object"}},"$ref":"#/$defs/T"}`},
		{`true`, `true`}, {`{"minItems":"many","anyOf":7}`, `{"minItems":"many","anyOf":7}`},
	} {
		if got := string(jsonSchema(json.RawMessage(c[0]))); got != c[1] {
			t.Errorf("%s: %s, want %s", c[0], got, c[1])
		}
	}
}

// TestCamelCase: names of the API are renamed, and those of the client are kept.
func TestCamelCase(t *testing.T) {
	for _, c := range [][2]string{
		{`{"system_instruction":{"parts":[{"text":"max_output_tokens"}]}}`,
			`{"systemInstruction":{"parts":[{"text":"max_output_tokens"}]}}`},
		{`{"generation_config" : {"max_output_tokens":1,"min_p":0.1,"chat_template_kwargs":{"a_b":1}}}`,
			`{"generationConfig" : {"maxOutputTokens":1,"min_p":0.1,"chat_template_kwargs":{"a_b":1}}}`},
		{`{"parts":[{"function_call":{"name":"f","args":{"top_k":[{"top_p":1}]}}},{"inline_data":{}}]}`,
			`{"parts":[{"functionCall":{"name":"f","args":{"top_k":[{"top_p":1}]}}},{"inlineData":{}}]}`},
		{`{"response_schema":{"properties":{"top_k":{"any_of":[],"properties":{"any_of":{"any_of":[]}}}},` +
			`"property_ordering":["top_k"]},"top_k":1}`,
			`{"responseSchema":{"properties":{"top_k":{"anyOf":[],"properties":{"any_of":{"anyOf":[]}}}},` +
				`"propertyOrdering":["top_k"]},"topK":1}`},
		{`{"tools":[{"google_search":{}},{"function_declarations":[{"parameters_json_schema":{"any_of":1}}]}]}`,
			`{"tools":[{"googleSearch":{}},{"functionDeclarations":[{"parametersJsonSchema":{"any_of":1}}]}]}`},
		{`{"a\"top_k":1,"x":"\\","top_k":2}`, `{"a\"top_k":1,"x":"\\","topK":2}`},
	} {
		if got := string(camelCase([]byte(c[0]))); got != c[1] {
			t.Errorf("%s:\n%s, want\n%s", c[0], got, c[1])
		}
	}
}

func FuzzSchema(f *testing.F) {
	f.Add([]byte(`{"type":"OBJECT","properties":{"a":{"nullable":true}},"propertyOrdering":["a"]}`))
	f.Add([]byte(`{"any_of":[{"min_items":"1"}],"args":{"top_k":1}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !json.Valid(raw) || len(raw) > 1<<16 {
			return
		}
		camel := camelCase(raw)
		if !json.Valid(camel) {
			t.Fatalf("%q became %q", raw, camel)
		}
		if out := jsonSchema(camel); !json.Valid(out) {
			t.Fatalf("%q became %q", raw, out)
		}
	})
}
