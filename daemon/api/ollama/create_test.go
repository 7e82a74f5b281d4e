package ollama

import (
	"encoding/json"
	"testing"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// TestParameters: each of ollama's options becomes a field of requests, an option of the engine, or nothing; what this
// server cannot honour is refused.
func TestParameters(t *testing.T) {
	for _, c := range []struct{ name, value, fields, option string }{
		{"temperature", "0.5", `{"temperature":0.5}`, ""}, {"num_predict", "7", `{"max_tokens":7}`, ""},
		{"num_predict", "-1", `{}`, ""}, {"num_ctx", "640", `{}`, "640"}, {"num_gpu", "0", `{}`, "0"},
		{"num_thread", "0", `{}`, ""}, {"num_keep", "5", `{}`, ""}, {"use_mmap", "true", `{}`, ""},
		{"stop", `["a"]`, `{"stop":["a"]}`, ""}, {"mirostat", "0", "", ""}, {"top_k", "null", `{}`, ""},
	} {
		fields, options := map[string]json.RawMessage{}, map[string]string{}
		if err := parameter(c.name, json.RawMessage(c.value), fields, options); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		text, _ := json.Marshal(fields)
		if c.fields != "" && string(text) != c.fields ||
			c.option != "" && options[loading[c.name]] != c.option {
			t.Errorf("%s %s: %s %v", c.name, c.value, text, options)
		}
	}
	for name, value := range map[string]string{"prompt": `"x"`, "none": "1", "num_ctx": `"x"`, "id": `"x"`,
		"priority": "1"} {
		fields, options := map[string]json.RawMessage{}, map[string]string{}
		if parameter(name, json.RawMessage(value), fields, options) == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

// FuzzCreate: whatever the body of /api/create is, what it sets are defaults that requests can have.
func FuzzCreate(f *testing.F) {
	for _, text := range []string{`{"model":"x","from":"y","parameters":{"temperature":1,"stop":"a"}}`,
		`{"model":"x","template":"{{ .Prompt }}"}`, `{"license":["a"]}`, `{"parameters":{"num_ctx":5}}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var in createBody
		b, err := createTable.Read(body)
		if err != nil || b.Into(&in) != nil {
			return
		}
		r, err := in.recipe()
		if err != nil {
			if api.AsError(err).Message == "" {
				t.Error("an error without a text")
			}
			return
		}
		if _, err := wire.DefaultsWith(r.Fields); err != nil {
			t.Errorf("%s: %v", r.Fields, err)
		}
	})
}
