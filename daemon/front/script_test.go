package front

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/daemon"
	"github.com/uma-serve/uma-serve/daemon/api/apitest"
	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// single serves a model by one process, on a fake engine, and returns its socket.
func single(t *testing.T, model string, args ...string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "uma")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	fs, cfg, _ := config.NewFlagSet()
	err = fs.Parse(append([]string{"--socket", filepath.Join(dir, "s"), "--cache-ram", "0", "-m",
		model}, args...))
	if err = errors.Join(err, cfg.Load([]string{"UMA_CONFIG="})); err != nil {
		t.Fatal(err)
	}
	s, err := daemon.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, openFake) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the single process: %v", err)
		}
	})
	waitfor.True(t, "the single process is ready", s.Ready)
	return cfg.Socket
}

// over returns a client of a Unix socket.
func over(t *testing.T, socket string) *http.Client {
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: waitfor.Limit}
}

// TestScriptsThroughTheFront sends the requests of every API's scripts to a daemon of one process and to a front with
// an engine process, and expects the same answers. The model's text is not compared, nor are the servers' facts about
// themselves.
func TestScriptsThroughTheFront(t *testing.T) {
	b, err := os.ReadFile(ggufgen.Cached(t, ggufgen.TinyWide()))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "one")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--pooling", "mean", "--max-tokens", "8", "--seed", "1", "-c", "4096"}
	r := start(t, Options{}, nil, nil, append([]string{"-m", path}, args...)...)
	waitfor.True(t, "the front's model is ready", func() bool {
		yes := false
		r.call(func() { yes = r.def.state == ready })
		return yes
	})
	servers := map[string]*http.Client{"single": over(t, single(t, path, args...)), "front": over(t, r.socket())}
	ask := func(t *testing.T, server, method, path, body string) (int, http.Header, string) {
		q, err := http.NewRequest(method, "http://uma"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := servers[server].Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, resp.Header, string(text)
	}
	for _, api := range []string{"anthropic", "control", "llamaserver", "ollama", "openai"} {
		t.Run(api, func(t *testing.T) {
			apitest.Replay(t, filepath.Join("..", "api", api, "testdata"),
				func(p *apitest.Replayed, method, path, body string) {
					if path == "/api/pull" || path == "/api/delete" { // a single process refuses what a front does
						return
					}
					answers := map[string]string{}
					for server := range servers {
						status, head, text := ask(p.T, server, method, p.Ask(server, path), p.Ask(server, body))
						text = p.Seen(server, text)
						if status == http.StatusOK || ofFront(path) {
							text = shape(head.Get("Content-Type"), text)
						}
						answers[server] = fmt.Sprintf("%d %s\n%s", status, head.Get("Content-Type"), text)
					}
					if ofFront(path) { // it covers all models
						for server, text := range answers {
							answers[server], _, _ = strings.Cut(text, "\n")
						}
					}
					if answers["single"] != answers["front"] {
						p.T.Errorf("%s %s %.200s\nsingle: %.1600s\nfront:  %.1600s", method, path, body,
							answers["single"], answers["front"])
					}
				})
		})
	}
}

// ofFront reports whether the answer to a path tells of all models.
func ofFront(path string) bool {
	path, _, _ = strings.Cut(strings.TrimPrefix(path, "/v1"), "?")
	return slices.Contains([]string{"/why", "/kv", "/info", "/health", "/metrics", "/models"}, path) ||
		strings.HasPrefix(path, "/models/")
}

// shape returns the structure of an answer: the names of its fields and the kinds of their values; for a stream, the
// names of its events.
func shape(media, text string) string {
	if media == "text/event-stream" {
		names := map[string]bool{}
		for line := range strings.Lines(text) {
			if name, ok := strings.CutPrefix(line, "event: "); ok {
				names[strings.TrimSpace(name)] = true
			}
		}
		return strings.Join(slices.Sorted(maps.Keys(names)), " ")
	}
	var v any
	first, _, _ := strings.Cut(text, "\n")
	if json.Unmarshal([]byte(first), &v) != nil {
		return text
	}
	return kinds(v)
}

func kinds(v any) string {
	switch v := v.(type) {
	case map[string]any:
		var out []string
		for name, of := range v {
			for _, arch := range []string{"fake.", "llama."} { // facts of the file, and of the engine
				if rest, ok := strings.CutPrefix(name, arch); ok {
					name = "ARCHITECTURE." + rest
				}
			}
			out = append(out, name+":"+kinds(of))
		}
		slices.Sort(out)
		return "{" + strings.Join(out, " ") + "}"
	case []any:
		if len(v) == 0 {
			return "[]"
		}
		return "[" + kinds(v[0]) + "]"
	}
	return fmt.Sprintf("%T", v)
}
