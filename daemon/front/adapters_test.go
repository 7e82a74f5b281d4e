package front

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// TestAdaptersAreModels: the name of an adapter finds the process of its model, which answers with it, and the list of
// models has it.
func TestAdaptersAreModels(t *testing.T) {
	file := filepath.Join(t.TempDir(), "adapter.gguf")
	if err := os.WriteFile(file, []byte("GGUF"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, Options{}, []string{"one", "two"}, func(c *config.Config) {
		c.Models[1].Options = map[string]string{"lora": "sql=" + file + ",one=" + file}
	})
	for name, want := range map[string]string{"sql": "I am two", "two:SQL": "I am two", "two-alias:sql": "I am two",
		"one": "I am one", "two:one": "I am two"} {
		if got, err := whole(r.dial(), request(name, nil)); err != nil || got != want {
			t.Errorf("%q answers %q, %v; want %q", name, got, err, want)
		}
	}
	if _, err := whole(r.dial(), request("one:sql", nil)); code(err) != wire.ModelNotFound {
		t.Errorf("another model's adapter: %v", err)
	}
	status, text := r.http().do("GET", "/v1/models", "")
	var list reports.ServedModels
	if err := json.Unmarshal([]byte(text), &list); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	i := slices.IndexFunc(list.Data, func(m reports.ServedModel) bool { return m.ID == "sql" })
	if i < 0 || list.Data[i].Parent != "two" || !slices.Contains(list.Data[i].Aliases, "two:sql") {
		t.Errorf("%s", text)
	}
	if status, text := r.http().do("GET", "/lora-adapters?model=two", ""); status != http.StatusOK ||
		!strings.Contains(text, `"name":"sql"`) {
		t.Errorf("%d %s", status, text)
	}
}

// TestAdaptersByRequest: an adapter that a request loads is passed to its model's process, named as a model, and loaded
// by the next process as well; one that cannot be read then is left out.
func TestAdaptersByRequest(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good, other, bad := file("good", "GGUF"), file("other", "GGUF other"), file("bad", "none")
	r := start(t, Options{}, []string{"one", "two"}, nil)
	r.awaitReady("one")
	h := r.http()
	load := func(name, path, more string, status int, want string) {
		t.Helper()
		got, text := h.post("/v1/load_lora_adapter", `{"lora_name":"`+name+`","lora_path":"`+path+`"`+more+`}`)
		if got != status || !strings.Contains(text, want) {
			t.Errorf("%s %s: %d %s, want %d %q", name, path, got, text, status, want)
		}
	}
	load("sql", good, `,"model":"two"`, 200, "added successfully") // the model is loaded for it
	load("poet", other, ``, 200, "added successfully")
	load("poet", other, ``, 400, "load_inplace")
	load("new", bad, ``, 400, "no GGUF file")
	load("poet", bad, `,"load_inplace":true`, 400, "no GGUF file")
	load("new", good, `,"model":"three"`, 404, "three")
	answers := func(name, want string) {
		t.Helper()
		got, err := whole(r.dial(), request(name, nil))
		if want == "" && code(err) != wire.ModelNotFound || want != "" && (err != nil || got != want) {
			t.Errorf("%q answers %q, %v; want %q", name, got, err, want)
		}
	}
	answers("sql", "I am two")
	answers("two:sql", "I am two")
	answers("poet", "I am one")
	listed := func(want string) {
		t.Helper()
		_, text := h.do("GET", "/v1/models", "")
		var list reports.ServedModels
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, m := range list.Data {
			if m.Parent != "" {
				names = append(names, m.Parent+":"+m.ID)
			}
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("listed are %q, want %q", got, want)
		}
	}
	listed("one:poet two:sql")
	for _, x := range []struct{ text, want string }{{"GGUF", `"name":"sql"`}, {"none any more", "[]"}} {
		file("good", x.text)
		if status, text := h.post("/models/unload", `{"model":"two"}`); status != 200 {
			t.Fatalf("%d %s", status, text)
		}
		waitfor.True(t, "it is unloaded", func() (ok bool) {
			r.call(func() { ok = r.find("two").state == unloaded })
			return ok
		})
		answers("two", "I am two")
		r.awaitReady("two") // until the front hears that it is loaded, it tells of what it asked for
		if _, text := h.do("GET", "/lora-adapters?model=two", ""); !strings.Contains(text, x.want) {
			t.Errorf("a next process, with %q: %s", x.text, text)
		}
	}
	if status, text := h.post("/unload_lora_adapter", `{"lora_name":"sql"}`); status != 200 {
		t.Errorf("%d %s", status, text)
	}
	listed("one:poet")
	answers("two:sql", "")
	if status, text := h.post("/v1/unload_lora_adapter", `{"lora_name":"poet","model":"two"}`); status != 404 ||
		!strings.Contains(text, "has no adapter") {
		t.Errorf("%d %s", status, text)
	}
	if status, text := h.post("/v1/unload_lora_adapter", `{"lora_name":"poet"}`); status != 200 {
		t.Errorf("%d %s", status, text)
	}
	listed("")
}
