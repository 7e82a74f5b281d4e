package main

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/uma-serve/uma-serve/models/pull/pulltest"
)

// modelDaemon answers like a daemon with a loaded model, one that is loaded at the second look, and a download.
func modelDaemon(t *testing.T) (socket string, unloaded *atomic.Value) {
	t.Helper()
	dir, err := os.MkdirTemp("", "uma")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket, unloaded = filepath.Join(dir, "s"), new(atomic.Value)
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var looks atomic.Int32
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, status int, text string) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(text))
	}
	mux.HandleFunc("GET /models", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, `{"data":[{"id":"big","meta":{"size":1000},"status":{"value":"loaded"}},`+
			`{"id":"idle","meta":{"size":1000},"status":{"value":"unloaded"}},`+
			`{"id":"bad","meta":{"size":1000},"status":{"value":"unloaded","failed":true}},`+
			`{"id":"qwen3:8b","status":{"value":"unloaded","fit":{"fits":false,"text":"it needs 9 GiB of devices"}}},`+
			`{"id":"new","status":{"value":"downloading","progress":{"a.gguf":{"done":1048576,"total":4194304}}}}]}`)
	})
	mux.HandleFunc("GET /api/ps", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, `{"models":[{"name":"big:latest","size":2097152,"context_length":8192,`+
			`"expires_at":"2126-01-01T00:00:00Z"}]}`)
	})
	mux.HandleFunc("POST /models/load", func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, 100)
		n, _ := r.Body.Read(body)
		switch text := string(body[:n]); {
		case strings.Contains(text, "none"):
			answer(w, 404, `{"error":{"message":"there is no model \"none\" here"}}`)
		case looks.Add(1) < 3:
			answer(w, 200, `{"success":true,"status":{"value":"loading"}}`)
		default:
			answer(w, 200, `{"success":true,"status":{"value":"loaded"}}`)
		}
	})
	mux.HandleFunc("POST /models/unload", func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, 100)
		n, _ := r.Body.Read(body)
		unloaded.Store(string(body[:n]))
		answer(w, 200, `{"success":true,"status":{"value":"unloaded"}}`)
	})
	for _, path := range []string{"/v1/load_lora_adapter", "/v1/unload_lora_adapter"} {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if strings.Contains(string(body), "/bad.gguf") {
				answer(w, 400, `{"error":{"message":"the adapter sql is not loaded: it is no GGUF file"}}`)
				return
			}
			unloaded.Store(path + string(body))
			answer(w, 200, "Success")
		})
	}
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(ln) }()
	t.Cleanup(func() { server.Close() })
	return socket, unloaded
}

// TestModelVerbs: load waits until the model answers, unload asks for it, ps shows what is loaded and downloaded.
func TestModelVerbs(t *testing.T) {
	socket, unloaded := modelDaemon(t)
	for _, c := range []struct {
		args   []string
		status int
		want   []string
	}{
		{[]string{"load", "--no-wait", "big"}, 0, []string{"big is being loaded"}},
		{[]string{"load", "big"}, 0, []string{"loaded big in "}},
		{[]string{"load", "big"}, 0, []string{"big is loaded"}},
		{[]string{"load", "none"}, 1, []string{`there is no model "none" here`}},
		{[]string{"load"}, 2, []string{"name one model"}},
		{[]string{"unload", "big"}, 0, []string{"unloaded big"}},
		{[]string{"stop", "big"}, 0, []string{"unloaded big"}},
		{[]string{"ps"}, 0, []string{"big", "loaded", "2.00 MiB", "8,192", "stays", "downloading",
			"1.00 MiB of 4.00 MiB", "failed"}},
		{[]string{"ps", "--all"}, 0, []string{"idle", "unloaded"}},
		{[]string{"ps", "--json"}, 0, []string{`"name":"new"`, `"done_bytes":1048576`, `"expires_at":null`}},
	} {
		cmd := program(t, socket, c.args...)
		out, err := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != c.status {
			t.Errorf("%q: status %d, %v: %s", c.args, got, err, out)
		}
		for _, w := range c.want {
			if !strings.Contains(string(out), w) {
				t.Errorf("%q: no %q in %s", c.args, w, out)
			}
		}
	}
	if got, _ := unloaded.Load().(string); got != `{"model":"big"}` {
		t.Errorf("%q", got)
	}
	out, err := program(t, "/nonexistent/uma.sock", "ps").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "start it with uma-serve") {
		t.Errorf("%s", out)
	}
}

// TestAdapterVerbs: load and unload with --lora are vLLM's requests.
func TestAdapterVerbs(t *testing.T) {
	socket, asked := modelDaemon(t)
	for _, c := range []struct {
		args         []string
		status       int
		want, asking string
	}{
		{[]string{"load", "sql", "--lora", "/a/sql.gguf"}, 0, "loaded the adapter sql",
			`/v1/load_lora_adapter{"load_inplace":false,"lora_name":"sql","lora_path":"/a/sql.gguf","scale":1}`},
		{[]string{"load", "sql", "--lora", "/a/sql.gguf", "--scale", "0.5", "--model", "big", "--replace"}, 0, "loaded",
			`/v1/load_lora_adapter{"load_inplace":true,"lora_name":"sql","lora_path":"/a/sql.gguf","model":"big",` +
				`"scale":0.5}`},
		{[]string{"unload", "--lora", "sql"}, 0, "unloaded the adapter sql",
			`/v1/unload_lora_adapter{"lora_name":"sql"}`},
		{[]string{"unload", "--lora", "sql", "--model", "big"}, 0, "unloaded the adapter sql",
			`/v1/unload_lora_adapter{"lora_name":"sql","model":"big"}`},
		{[]string{"load", "sql", "--lora", "/a/bad.gguf"}, 1, "it is no GGUF file", ""},
		{[]string{"load", "big", "--scale", "2"}, 2, "--scale is for an adapter: give --lora as well", ""},
		{[]string{"unload", "big", "--model", "x"}, 2, "--model is for an adapter: give --lora as well", ""},
		{[]string{"load", "--lora", "/a/sql.gguf"}, 2, "name one", ""},
	} {
		asked.Store("")
		cmd := program(t, socket, c.args...)
		out, err := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != c.status || !strings.Contains(string(out), c.want) {
			t.Errorf("%q: status %d, %v: %s", c.args, got, err, out)
		}
		if got := asked.Load(); got != c.asking {
			t.Errorf("%q asks %q, want %q", c.args, got, c.asking)
		}
	}
}

// TestCopyAndDelete: a copy shares the files, keeps its origin from being deleted, and goes by itself; a daemon that
// has a model loaded is asked to unload it.
func TestCopyAndDelete(t *testing.T) {
	socket, unloaded := modelDaemon(t)
	dir := t.TempDir()
	for _, name := range []string{"big.gguf", "other.gguf"} {
		if err := os.WriteFile(filepath.Join(dir, name), pulltest.GGUF(1000, 1), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"cp", "big", "team/mine:latest"}, 0, "team/mine is a copy of big"},
		{[]string{"cp", "team/mine", "third"}, 0, "third is a copy of team/mine"},
		{[]string{"cp", "big", "other"}, 2, "there is a model other already"},
		{[]string{"cp", "none", "x"}, 1, "no such model"},
		{[]string{"cp", "big", "../x"}, 2, "not a model name"},
		{[]string{"cp", "big"}, 2, "name a model and its copy"},
		{[]string{"rm", "big"}, 1, "were made of big and have no weights without it (team/mine, third)"},
		{[]string{"rm", "team/mine"}, 0, "deleted team/mine"},
		{[]string{"rm", "third"}, 0, "deleted third"},
		{[]string{"rm", "big"}, 0, "deleted big"},
	} {
		cmd := program(t, socket, append(c.args, "--models-dir", dir)...)
		out, err := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != c.status || !strings.Contains(string(out), c.want) {
			t.Errorf("%q: status %d, %v: %s", c.args, got, err, out)
		}
	}
	if got, _ := unloaded.Load().(string); got != `{"model":"big"}` {
		t.Errorf("the daemon was asked %q", got)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("%v, %v", files, err)
	}
}
