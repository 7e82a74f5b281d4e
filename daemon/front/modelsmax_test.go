package front

import (
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// TestModelsMax: a loaded model makes place for another, and a pinned one does not.
func TestModelsMax(t *testing.T) {
	r := start(t, Options{}, []string{"one", "two", "three"}, nil, "--models-max", "2")
	loaded := func() (names []string) {
		r.call(func() {
			for _, m := range r.models {
				if m.takesMemory() {
					names = append(names, m.name)
				}
			}
		})
		return names
	}
	for i, name := range []string{"one", "two", "one", "three", "two", "one", "three"} {
		if _, err := whole(r.dial(), request(name, nil)); err != nil {
			t.Fatal(err)
		}
		if got := loaded(); !slices.Contains(got, name) || len(got) != min(i+1, 2) {
			t.Errorf("after %s: %s", name, got)
		}
	}
	r = start(t, Options{}, []string{"one", "two"}, func(c *config.Config) { c.Models[0].Pinned = true },
		"--models-max", "1")
	if _, err := whole(r.dial(), request("one", nil)); err != nil {
		t.Fatal(err)
	}
	_, err := whole(r.dial(), request("two", nil))
	if code(err) != wire.ModelTooLarge || !strings.Contains(err.Error(), "--models-max is 1") {
		t.Errorf("%v", err)
	}
}

// TestAutoload: with --autoload=false only POST /models/load loads a model; the default one is there from the start.
func TestAutoload(t *testing.T) {
	r := start(t, Options{}, []string{"one", "two"}, nil, "--autoload=false", "--allow-model-changes")
	if _, err := whole(r.dial(), request("one", nil)); err != nil {
		t.Fatal(err)
	}
	h := r.http()
	if _, err := whole(r.dial(), request("two", nil)); code(err) != wire.BadRequest ||
		!strings.Contains(err.Error(), "POST /models/load") {
		t.Errorf("%v", err)
	}
	if status, text := h.post("/v1/chat/completions", chat("two", "")); status != 400 ||
		!strings.Contains(text, "--autoload=false") {
		t.Errorf("%d %s", status, text)
	}
	if status, text := h.post("/models/load", `{"model":"two"}`); status != 200 {
		t.Errorf("%d %s", status, text)
	}
	r.awaitReady("two")
	for range 2 { // it stays, and is gone when it is unloaded
		if status, text := h.post("/v1/chat/completions", chat("two", "")); status != 200 {
			t.Errorf("%d %s", status, text)
		}
	}
	if status, text := h.post("/models/unload", `{"model":"two"}`); status != 200 {
		t.Errorf("%d %s", status, text)
	}
	waitfor.True(t, "it is unloaded", func() (gone bool) {
		r.call(func() { gone = r.find("two").state == unloaded })
		return gone
	})
	if status, text := h.post("/v1/chat/completions", chat("two", "")); status != 400 {
		t.Errorf("%d %s", status, text)
	}
}

// TestBuiltInModelIsNoRepository: without --model any name but that of a repository means the built-in model.
func TestBuiltInModelIsNoRepository(t *testing.T) {
	r := start(t, Options{}, nil, nil)
	for name, want := range map[string]wire.Code{"gpt-4o": "", "org/model": wire.ModelNotFound,
		"org/model:Q8_0": wire.ModelNotFound} {
		if _, err := whole(r.dial(), request(name, nil)); code(err) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	r = start(t, Options{}, nil, nil, "--model", "/models/own.gguf")
	if _, err := whole(r.dial(), request("org/model", nil)); err != nil {
		t.Error(err)
	}
}

// TestAlias: the names of --alias, and its own, are the model's; answers have the alphabetically
// first of --alias.
func TestAlias(t *testing.T) {
	r := start(t, Options{}, nil, nil, "--model", "/models/own.gguf", "--alias", "other,gpt-4o", "--tags", "a,b")
	for _, name := range []string{"gpt-4o", "OTHER", "own", ""} {
		if _, err := whole(r.dial(), request(name, nil)); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	_, text := r.http().do("GET", "/v1/models", "")
	for _, want := range []string{`"id":"gpt-4o"`, `"aliases":["gpt-4o","other"]`, `"tags":["a","b"]`} {
		if !strings.Contains(text, want) {
			t.Errorf("%s lacks %s", text, want)
		}
	}
	_, text = r.http().do("POST", "/v1/completions", `{"model":"own","prompt":"x","max_tokens":1}`)
	if !strings.Contains(text, `"model":"gpt-4o"`) {
		t.Errorf("%s", text)
	}
}
