package front

import (
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/daemon/config"
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

// TestAlias: the names of --alias, and its own, are the model's; answers have the first.
func TestAlias(t *testing.T) {
	r := start(t, Options{}, nil, nil, "--model", "/models/own.gguf", "--alias", "gpt-4o,other", "--tags", "a,b")
	for _, name := range []string{"gpt-4o", "OTHER", "own", ""} {
		if _, err := whole(r.dial(), request(name, nil)); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	_, text := r.http().do("GET", "/v1/models", "")
	for _, want := range []string{`"id":"gpt-4o"`, `"aliases":["other","own"]`, `"tags":["a","b"]`} {
		if !strings.Contains(text, want) {
			t.Errorf("%s lacks %s", text, want)
		}
	}
	_, text = r.http().do("POST", "/v1/completions", `{"model":"own","prompt":"x","max_tokens":1}`)
	if !strings.Contains(text, `"model":"gpt-4o"`) {
		t.Errorf("%s", text)
	}
}
