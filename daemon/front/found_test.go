package front

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// models makes files that begin as models do, in dir.
func models(t *testing.T, dir string, names ...string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if err := os.WriteFile(filepath.Join(dir, n), []byte("GGUF\x03\x00\x00\x00 the rest"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestModelsOfTheMachineAreServedByName: those without a table, too, also when they come later.
func TestModelsOfTheMachineAreServedByName(t *testing.T) {
	dir := t.TempDir()
	models(t, dir, "three.gguf", "table.gguf")
	r := start(t, Options{}, []string{"one"}, func(c *config.Config) {
		c.Models = append(c.Models, config.Model{Name: "mine", Model: filepath.Join(dir, "table.gguf"),
			IdleUnload: -1})
	}, "--models-dir", dir)
	for name, want := range map[string]string{"three": "I am three.gguf", "THREE": "I am three.gguf", "one": "I am one",
		"three:latest": "I am three.gguf", "mine": "I am table.gguf", "table": "I am table.gguf"} {
		if got, err := wholeOf(r.dial(), name); err != nil || got != want {
			t.Errorf("%q answers %q, %v; want %q", name, got, err, want)
		}
	}
	r.call(func() {
		if len(r.models) != 3 {
			t.Errorf("%d models are served: a table's file is served twice", len(r.models))
		}
	})
	_, err := wholeOf(r.dial(), "thre")
	if code(err) != wire.ModelNotFound || !strings.Contains(err.Error(), `did you mean "three"`) {
		t.Errorf("an unknown name: %v", err)
	}
	h := r.http()
	for path, want := range map[string][]string{"/v1/models": {`"id":"one"`, `"id":"mine"`, `"id":"three"`},
		"/api/tags":        {`"name":"one:latest"`, `"name":"mine:latest"`, `"name":"three:latest"`},
		"/v1/models/three": {`"id":"three"`},
		"/v1/models/table": {`"id":"mine"`}} {
		status, text := h.do("GET", path, "")
		for _, w := range want {
			if status != http.StatusOK || strings.Count(text, w) != 1 {
				t.Errorf("%s: %d, %d times %s in %s", path, status, strings.Count(text, w), w, text)
			}
		}
		if strings.Contains(text, `"table"`) {
			t.Errorf("%s lists a table's file twice: %s", path, text)
		}
	}
	// A connection stays at the process that it has, whatever the model is called.
	c := r.dial()
	before := uint64(0)
	for i := range 5 {
		if _, err := wholeOf(c, "Three:latest"); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			before = r.passed()
		}
	}
	if n := r.passed() - before; n > 0 {
		t.Errorf("the connection was passed %d times again", n)
	}
	models(t, dir, "four.gguf")
	waitfor.True(t, "a model that has come is served", func() bool {
		got, err := wholeOf(r.dial(), "four")
		return err == nil && got == "I am four.gguf"
	})
	if err := os.Remove(filepath.Join(dir, "four.gguf")); err != nil {
		t.Fatal(err)
	}
	waitfor.True(t, "a model that has gone is not listed", func() bool {
		_, text := r.http().do("GET", "/v1/models", "")
		return !strings.Contains(text, "four")
	})
}

// TestOtherNamesMeanTheOnlyModel: without tables, a name that no model of this machine has is the default model's.
func TestOtherNamesMeanTheOnlyModel(t *testing.T) {
	data, dir := t.TempDir(), t.TempDir()
	t.Setenv("XDG_DATA_HOME", data)
	own := filepath.Join(data, "uma-serve", "models")
	if os.Geteuid() == 0 {
		t.Setenv("UMA_MODELS_DIR", "") // root's default lies elsewhere
	}
	models(t, dir, "only.gguf")
	models(t, own, "three.gguf")
	only := func(c *config.Config) { c.Model = filepath.Join(dir, "only.gguf") }

	r := start(t, Options{}, nil, func(c *config.Config) { only(c); c.ModelsDir = own })
	c := r.dial()
	for _, x := range [][2]string{{"gpt-4o", "only"}, {"three", "three"}, {"gpt-4o", "only"}, {"", "only"},
		{"only", "only"}} {
		if got, err := wholeOf(c, x[0]); err != nil || got != "I am "+x[1]+".gguf" {
			t.Errorf("%q answers %q, %v", x[0], got, err)
		}
	}
	models(t, own, "gpt-4o.gguf")
	waitfor.True(t, "the name is another model's now", func() bool {
		got, err := wholeOf(r.dial(), "gpt-4o")
		return err == nil && got == "I am gpt-4o.gguf"
	})

	r = start(t, Options{}, nil, only, "--models-dir", own)
	if _, err := wholeOf(r.dial(), "gpt-5"); code(err) != wire.ModelNotFound {
		t.Errorf("with --models-dir: %v", err)
	}

	r = start(t, Options{}, []string{"one"}, nil, "--models-dir", own, "--serve-found=false")
	if _, err := wholeOf(r.dial(), "three"); code(err) != wire.ModelNotFound {
		t.Errorf("with --serve-found=false: %v", err)
	}
	if _, text := r.http().do("GET", "/v1/models", ""); strings.Contains(text, "three") {
		t.Errorf("%s", text)
	}
}

// TestWaitingRequestsHearOfTheLoad: frames and event streams, while the file is read.
func TestWaitingRequestsHearOfTheLoad(t *testing.T) {
	r := start(t, Options{}, []string{"one", "gated"}, nil)
	st, err := r.dial().Stream(context.Background(), request("gated", func(q *wire.Request) { q.Stream = true }))
	if err != nil {
		t.Fatal(err)
	}
	web := map[string]*httpClient{}
	for path, body := range map[string]string{"/v1/chat/completions": chat("gated", `,"stream":true`),
		"/v1/messages":  chat("gated", `,"max_tokens":9,"stream":true`),
		"/v1/responses": `{"model":"gated","input":"whoami","stream":true}`} {
		web[path] = r.http()
		web[path].send("POST", path, body)
	}
	ev, err := st.Next()
	if err != nil || ev.Kind != wire.EventProgress || ev.Progress.Waiting != "model_loading" ||
		ev.Progress.Loaded != 0.42 || ev.Progress.Elapsed <= 0 {
		t.Errorf("%+v, %v", ev, err)
	}
	for path, h := range web {
		resp := h.receive()
		line := make([]byte, len(": model_loading 0.42\n"))
		if n, err := resp.Body.Read(line); err != nil || resp.StatusCode != http.StatusOK ||
			!strings.HasPrefix(string(line[:n]), ": model_loading 0.42") {
			t.Errorf("%s: %d %q, %v", path, resp.StatusCode, line[:n], err)
		}
	}
	if status, text := r.http().do("GET", "/health", ""); status != http.StatusOK ||
		!strings.Contains(text, `"gated":"loading"`) {
		t.Errorf("health: %d %s", status, text)
	}
	gate := filepath.Join(filepath.Dir(r.socket()), "gated.open")
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for {
		ev, err := st.Next()
		if err != nil {
			t.Fatal(err)
		}
		if ev.Kind == wire.EventEOS {
			break
		}
	}
}

// TestWaitingRequestsHearOfMemory: framed ones, as long as the model has no process.
func TestWaitingRequestsHearOfMemory(t *testing.T) {
	r := startFull(t)
	st, err := r.dial().Stream(context.Background(), request("three", func(q *wire.Request) { q.Stream = true }))
	if err != nil {
		t.Fatal(err)
	}
	if ev, err := st.Next(); err != nil || ev.Kind != wire.EventProgress || ev.Progress.Waiting != "model_memory" {
		t.Errorf("%+v, %v", ev, err)
	}
}

// TestStreamThatWaitsForMemoryKeepsItsStatus: nothing of the answer of an HTTP stream is written while its model waits,
// so that an error is the status of the answer; why names the cause of the wait.
func TestStreamThatWaitsForMemoryKeepsItsStatus(t *testing.T) {
	r := startFull(t)
	h := r.http()
	h.send("POST", "/v1/chat/completions", chat("three", `,"stream":true,"max_tokens":-5`))
	waitfor.True(t, "why tells of it", func() bool {
		_, text := r.http().do("GET", "/why", "")
		return strings.Contains(text, `"model_memory"`)
	})
	r.call(func() { r.find("slow").proc.kill() }) // its end makes room
	resp := h.receive()
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusBadRequest ||
		!strings.Contains(string(b), "max_tokens") {
		t.Errorf("%d %s", resp.StatusCode, b)
	}
}

// passed returns the number of connections that were passed, the last one included.
func (r *running) passed() (n uint64) {
	r.call(func() { n = r.loop.Stats().Passed.Load() })
	return n
}
