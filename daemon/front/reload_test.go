package front

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// presets is a file of --models-preset in a folder with models; write changes its text, where DIR is the folder.
func presets(t *testing.T, names ...string) (dir, path string, write func(string)) {
	t.Helper()
	dir = t.TempDir()
	models(t, dir, names...)
	path = filepath.Join(dir, "presets.ini")
	return dir, path, func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "DIR", dir)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReload: ?reload=1 reads the presets again. What has gone leaves when its answers have ended, what is as it was
// stays loaded, what is new is served; a file with an error changes nothing.
func TestReload(t *testing.T) {
	_, path, write := presets(t, "slow-a.gguf", "b.gguf", "c.gguf")
	write("[a]\nmodel = DIR/slow-a.gguf\n[b]\nmodel = DIR/b.gguf\nalias = bee\n[same]\nmodel = DIR/c.gguf\n")
	r := start(t, Options{}, nil, nil, "--models-preset", path, "--serve-found=false")
	r.awaitReady("a")
	h := r.http()
	whoami := func(name, want string) {
		t.Helper()
		if got, err := wholeOf(r.dial(), name); err != nil || got != "I am "+want {
			t.Errorf("%q answers %q, %v; want %s", name, got, err, want)
		}
	}
	whoami("bee", "b.gguf")
	whoami("same", "c.gguf")
	r.awaitReady("same")
	same := r.pid("same")

	write("[same]\nmodel = DIR/c.gguf\n[b]\nmodel = DIR/slow-a.gguf\nnonsense = 1\n")
	if status, text := h.do("GET", "/models?reload=1", ""); status != http.StatusBadRequest ||
		!strings.Contains(text, "section [b]: option \\\"nonsense\\\" is unknown") ||
		!strings.Contains(text, "stay as they were") {
		t.Errorf("a file with an error: %d %s", status, text)
	}
	whoami("a", "slow-a.gguf")

	ctx, leave := context.WithCancel(t.Context())
	st, err := r.dial().Stream(ctx, endless("a"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Next(); err != nil {
		t.Fatal(err)
	}
	write("[b]\nmodel = DIR/slow-a.gguf\n[same]\nmodel = DIR/c.gguf\n[new]\nmodel = DIR/b.gguf\n")
	done := make(chan string, 1)
	go func() {
		status, text := r.http().do("GET", "/v1/models?reload=1", "")
		done <- fmt.Sprint(status, " ", text)
	}()
	waitfor.True(t, "a is leaving", func() (ok bool) {
		r.call(func() { ok = r.names["a"].state == unloading })
		return ok
	})
	whoami("same", "c.gguf")
	leave()
	_ = st.Close()
	text := <-done
	for id, n := range map[string]int{"a": 0, "b": 1, "same": 1, "new": 1} {
		if !strings.HasPrefix(text, "200 ") || strings.Count(text, `"id":"`+id+`"`) != n {
			t.Errorf("%s is not there %d times: %s", id, n, text)
		}
	}
	if _, err := wholeOf(r.dial(), "a"); code(err) != wire.ModelNotFound {
		t.Errorf("a has gone: %v", err)
	}
	if _, err := wholeOf(r.dial(), "bee"); code(err) != wire.ModelNotFound {
		t.Errorf("its alias has gone: %v", err)
	}
	whoami("b", "slow-a.gguf")
	whoami("", "slow-a.gguf") // the first section is the default
	whoami("new", "b.gguf")
	if r.pid("same") != same {
		t.Error("a model that has not changed was loaded again")
	}

	write("")
	if status, text := h.do("GET", "/models?reload=1", ""); status != http.StatusBadRequest ||
		!strings.Contains(text, "at least one model must stay") {
		t.Errorf("no model: %d %s", status, text)
	}
}

// TestDoubledModels: a file of a preset is listed under its own name, too, unless dedup-cache-models says otherwise;
// either name is served by one process.
func TestDoubledModels(t *testing.T) {
	dir, path, write := presets(t, "a.gguf", "b.gguf", "draft.gguf")
	const sections = "[mine]\nmodel = DIR/a.gguf\nspec-draft-model = draft\n"
	write(sections)
	r := start(t, Options{}, nil, nil, "--models-preset", path, "--models-dir", dir)
	r.awaitReady("mine")
	mine := r.pid("mine")
	h := r.http()
	for _, c := range []struct {
		text string
		want map[string]int
	}{
		{sections, map[string]int{"mine": 1, "a": 1, "b": 1, "draft": 1}},
		{sections + "dedup-cache-models = 1\n", map[string]int{"mine": 1, "a": 0, "b": 1, "draft": 0}},
		{sections + "dedup-cache-models = off\n", map[string]int{"mine": 1, "a": 1, "b": 1, "draft": 1}},
		{"[*]\ndedup-cache-models = true\n" + sections, map[string]int{"mine": 1, "a": 0, "b": 1, "draft": 0}},
	} {
		write(c.text)
		status, text := h.do("GET", "/models?reload=1", "")
		for id, n := range c.want {
			if status != http.StatusOK || strings.Count(text, `"id":"`+id+`"`) != n {
				t.Errorf("%s\n%s is not there %d times: %d %s", c.text, id, n, status, text)
			}
		}
		if got, err := wholeOf(r.dial(), "a"); err != nil || got != "I am a.gguf" {
			t.Errorf("%s\na answers %q, %v", c.text, got, err)
		}
	}
	r.call(func() {
		if len(r.models) != 1 {
			t.Errorf("%d models are served", len(r.models))
		}
	})
	if r.pid("mine") != mine {
		t.Error("what concerns lists alone loads the model again")
	}
}
