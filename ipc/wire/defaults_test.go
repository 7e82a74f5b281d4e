package wire_test

import (
	"testing"

	. "github.com/uma-serve/uma-serve/ipc/wire"
)

func TestDefaultsWith(t *testing.T) {
	def, err := DefaultsWith([]byte(`{"temperature":0.25,"stop":["a"],"max_tokens":7}`))
	if err != nil || def.Sampling.Temperature != 0.25 || def.MaxTokens != 7 || len(def.Stop) != 1 || def.ID != "" ||
		def.Prompt != "" {
		t.Fatalf("%+v, %v", def, err)
	}
	f, err := Parse(new(Parser), []byte(`{"id":"1","prompt":"x","max_tokens":9}`), &def)
	if err != nil || f.Request.Sampling.Temperature != 0.25 || f.Request.MaxTokens != 9 {
		t.Errorf("%+v, %v", f.Request, err)
	}
	for _, text := range []string{"", "{}", " "} {
		if def, err := DefaultsWith([]byte(text)); err != nil || def.MaxTokens != DefaultRequest().MaxTokens {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"[", "5", `{"temperature":"warm"}`, `{"event":"health"}`, `{"none":1}`,
		`{"messages":[{"role":"user","content":"x"}]}`} {
		if _, err := DefaultsWith([]byte(text)); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
}

// FuzzDefaults: whatever the fields are, requests that omit all of them can be parsed.
func FuzzDefaults(f *testing.F) {
	for _, text := range []string{`{"temperature":0.25,"stop":["a"]}`, `{"seed":1}`, `{`, `{}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, fields []byte) {
		def, err := DefaultsWith(fields)
		if err != nil {
			return
		}
		if _, err := Parse(new(Parser), []byte(`{"id":"1","prompt":"x"}`), &def); err != nil {
			t.Errorf("%q: %v", fields, err)
		}
	})
}
