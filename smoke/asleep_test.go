//go:build cgo && (llama_engine || llama_system)

package smoke

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/models/store/storetest"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// TestFactsWithoutLoading: what the front tells of a model that is not loaded, from the header of its file, is what a
// daemon of one process tells when llama.cpp has loaded it; a question that needs the model loads it and waits.
func TestFactsWithoutLoading(t *testing.T) {
	dir := t.TempDir()
	configs := map[string]ggufgen.Config{"tiny": ggufgen.Tiny(), "swa": ggufgen.TinySWA(), "wide": ggufgen.TinyWide()}
	for name, c := range configs {
		storetest.Copy(t, filepath.Join(dir, name+".gguf"), ggufgen.Cached(t, c))
	}
	ask := func(s *server, method, path, body string) map[string]any {
		t.Helper()
		text := fetch(t, s, method, path, body, "*/*")
		var out map[string]any
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			t.Fatalf("%s: %v in %s", path, err, text)
		}
		return out
	}
	same := []string{"-c", "512", "--parallel", "2", "--cache-ram", "0"}
	exe := filepath.Join(bin, "uma-serve")
	f := startBinary(t, exe, filepath.Join(dir, "tiny.gguf"), append([]string{"--models-dir", dir, "--single=false",
		"--memory", "300MiB"}, same...)...)
	asleep := map[string][]map[string]any{}
	for _, name := range []string{"swa", "wide"} {
		asleep[name] = []map[string]any{ask(f, "POST", "/api/show", `{"model":"`+name+`"}`),
			ask(f, "GET", "/props?model="+name, "")}
	}
	tags := ask(f, "GET", "/api/tags", "")["models"].([]any)
	if len(tags) != len(configs) {
		t.Errorf("%d models are listed: %v", len(tags), tags)
	}
	for _, m := range f.info().Models {
		if m.Loads > 0 && !m.Default {
			t.Errorf("%s was loaded %d times", m.Name, m.Loads)
		}
	}
	for name, of := range asleep {
		s := startBinary(t, exe, filepath.Join(dir, name+".gguf"), append([]string{"--single"}, same...)...)
		props := ask(s, "GET", "/props", "")
		show := ask(s, "POST", "/api/show", fmt.Sprintf(`{"model":%q}`, props["model_alias"]))
		if of[1]["is_sleeping"] != true || of[1]["model_alias"] != name {
			t.Errorf("%s: %v", name, of[1])
		}
		for _, key := range []string{"is_sleeping", "model_alias"} { // the front has another name for it
			delete(of[1], key)
			delete(props, key)
		}
		for i, want := range []map[string]any{show, props} {
			if !reflect.DeepEqual(of[i], want) {
				t.Errorf("%s: asleep %v\nloaded %v", name, of[i], want)
			}
		}
		digests := fmt.Sprint(tags)
		if one := ask(s, "GET", "/api/tags", "")["models"].([]any)[0].(map[string]any); !strings.Contains(digests,
			one["digest"].(string)) {
			t.Errorf("%s: the digest %v is not among those of the front: %s", name, one["digest"], digests)
		}
	}
	if out := ask(f, "POST", "/tokenize", `{"model":"wide","content":"x"}`); len(out["tokens"].([]any)) == 0 {
		t.Errorf("tokenize: %v", out)
	}
}
