package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/client"
	"github.com/uma-serve/uma-serve/client/clienttest"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// TestForeignModuleBuilds compiles a program of another module against this one, without cgo. It names the types that
// the client's methods return.
func TestForeignModuleBuilds(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	main, err := os.ReadFile("testdata/stranger.go.txt")
	if err != nil {
		t.Fatal(err)
	}
	const mod = "module example.org/stranger\n\ngo 1.26.0\n\nrequire github.com/uma-serve/uma-serve v0.0.0\n\n" +
		"replace github.com/uma-serve/uma-serve => "
	for name, text := range map[string]string{"go.mod": mod + root + "\n", "go.sum": string(sum),
		"main.go": string(main)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "stranger"), ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=mod", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// What the program carries besides the client is small.
	cmd = exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=mod", "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := slices.Compact(slices.Sorted(slices.Values(strings.Fields(string(out)))))
	want := []string{"example.org/stranger", "github.com/agnivade/levenshtein", "github.com/uma-serve/uma-serve",
		"github.com/valyala/fastjson"}
	if !slices.Equal(modules, want) {
		t.Errorf("the program consists of %q, want %q", modules, want)
	}
	cmd = exec.CommandContext(t.Context(), filepath.Join(dir, "stranger"))
	cmd.Env = append(os.Environ(), "UMA_HOST=", "UMA_SOCKET="+filepath.Join(dir, "none"))
	if out, err := cmd.CombinedOutput(); err != nil ||
		!strings.HasPrefix(string(out), "no uma-serve daemon answers on ") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestNoInternalTypes: no exported signature or field needs a type that a foreign module cannot name.
func TestNoInternalTypes(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var visit func(reflect.Type, string)
	visit = func(ty reflect.Type, way string) {
		if seen[ty] {
			return
		}
		seen[ty] = true
		if strings.Contains(ty.PkgPath()+"/", "uma-serve/internal/") {
			t.Errorf("%s: %s is internal", way, ty)
		}
		for i := range ty.NumMethod() {
			visit(ty.Method(i).Type, way+"."+ty.Method(i).Name)
		}
		switch ty.Kind() {
		case reflect.Func:
			for i := range ty.NumIn() {
				visit(ty.In(i), way)
			}
			for i := range ty.NumOut() {
				visit(ty.Out(i), way)
			}
		case reflect.Struct:
			for i := range ty.NumField() {
				if f := ty.Field(i); f.IsExported() {
					visit(f.Type, way+"."+f.Name)
				}
			}
		case reflect.Map:
			visit(ty.Key(), way)
			visit(ty.Elem(), way)
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Chan:
			visit(ty.Elem(), way)
			if ty.Kind() == reflect.Pointer {
				seen[ty.Elem()] = true
			}
		}
	}
	for _, v := range []any{client.Dial, client.HTTP, client.Prometheus, client.NewRequest, client.User,
		&client.ServerError{},
		client.Report{}, client.Question{}, &client.Client{}, &client.Stream{}, client.Answer{}} {
		visit(reflect.TypeOf(v), reflect.TypeOf(v).String())
	}
	if !seen[reflect.TypeFor[reports.InfoModel]()] || !seen[reflect.TypeFor[reports.KVEntry]()] {
		t.Error("the walk misses the types of info and kv")
	}
}

func TestChat(t *testing.T) {
	s := (&clienttest.Server{Answer: func(c *clienttest.Conn, r *clienttest.Request) {
		if r.Stream || r.Progress {
			t.Errorf("stream %v, progress %v", r.Stream, r.Progress)
		}
		if r.Prompt == "no" {
			c.Error(wire.Error{ID: r.ID, Code: wire.QueueLimit, Message: "full"})
			return
		}
		c.EOS(wire.EOS{ID: r.ID, Reason: wire.Length, Text: []byte("yes"), Think: []byte("hm"), Metadata: r.Metadata,
			Usage: wire.Usage{CompletionTokens: 3}})
	}}).Start(t)
	c := dial(t, s)
	r := client.NewRequest()
	r.Prompt, r.Stream, r.Progress, r.Metadata = "x", true, true, []byte(`{"a":1}`)
	a, err := c.Chat(t.Context(), r)
	if err != nil || a.Text != "yes" || a.Thinking != "hm" || a.End.Reason != wire.Length ||
		a.End.Usage.CompletionTokens != 3 || string(a.End.Metadata) != `{"a":1}` {
		t.Errorf("%+v, %v", a, err)
	}
	if !r.Stream || !r.Progress {
		t.Error("Chat changed its request")
	}
	r.Prompt = "no"
	if refused, ok := errors.AsType[*client.ServerError](second(c.Chat(t.Context(), r))); !ok ||
		refused.Code != wire.QueueLimit {
		t.Errorf("%v", refused)
	}
}

func second[T any](_ T, err error) error { return err }

// TestTokens: the loop yields the tokens, End has the usage; leaving the loop cancels the request, and the connection
// stays usable.
func TestTokens(t *testing.T) {
	cancelled := make(chan string, 1)
	s := (&clienttest.Server{Answer: func(c *clienttest.Conn, r *clienttest.Request) {
		c.Progress(wire.Progress{ID: r.ID, Processed: 1, Total: 2})
		c.Token(r.ID, "a", wire.Thinking)
		c.Token(r.ID, "b", wire.Output)
		switch r.Prompt {
		case "break":
			<-r.Cancelled
			cancelled <- r.ID
			c.EOS(wire.EOS{ID: r.ID, Reason: wire.Cancelled, Streamed: true})
		case "fail":
			c.Error(wire.Error{ID: r.ID, Code: wire.RuntimeDecode, Message: "broken"})
		default:
			c.EOS(wire.EOS{ID: r.ID, Reason: wire.Stop, Streamed: true, Usage: wire.Usage{CompletionTokens: 2}})
		}
	}}).Start(t)
	c := dial(t, s)
	var text strings.Builder
	read := func(prompt string, most int) (*client.Stream, error) {
		text.Reset()
		r := client.NewRequest()
		r.Prompt = prompt
		stream, err := c.Stream(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		for token, err := range stream.Tokens() {
			if err != nil {
				return stream, err
			}
			text.Write(token.Text)
			if text.Len() == most {
				break
			}
		}
		return stream, nil
	}
	left, err := read("break", 1)
	if err != nil || text.String() != "a" || left.End() != nil {
		t.Errorf("break: %q, %v, %+v", text.String(), err, left.End())
	}
	if id := <-cancelled; id != left.ID() {
		t.Errorf("%q was cancelled", id)
	}
	if _, err := left.Next(); !errors.Is(err, client.ErrStreamClosed) {
		t.Errorf("Next after Close: %v", err)
	}
	if err := left.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
	whole, err := read("whole", -1)
	if err != nil || text.String() != "ab" || whole.End() == nil || whole.End().Usage.CompletionTokens != 2 {
		t.Errorf("whole: %q, %v, %+v", text.String(), err, whole.End())
	}
	failed, err := read("fail", -1)
	if refused, ok := errors.AsType[*client.ServerError](err); !ok || refused.Code != wire.RuntimeDecode ||
		failed.End() != nil {
		t.Errorf("fail: %v", err)
	}
}

// TestCloseEndsOneStream: Close drops the rest of one stream while another one is read.
func TestCloseEndsOneStream(t *testing.T) {
	closed := make(chan struct{})
	s := (&clienttest.Server{Answer: func(c *clienttest.Conn, r *clienttest.Request) {
		if r.Prompt == "closed" {
			<-r.Cancelled
			for range 100 {
				c.Token(r.ID, "late", wire.Output)
			}
			c.EOS(wire.EOS{ID: r.ID, Reason: wire.Cancelled, Streamed: true})
			close(closed)
			return
		}
		<-closed
		c.Token(r.ID, "fine", wire.Output)
		c.EOS(wire.EOS{ID: r.ID, Reason: wire.Stop, Streamed: true})
	}}).Start(t)
	c := dial(t, s)
	first, err1 := c.Stream(t.Context(), prompt("closed"))
	second, err2 := c.Stream(t.Context(), prompt("open"))
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if text, eos, err := collect(second); text != "fine" || eos.Reason != wire.Stop || err != nil {
		t.Errorf("%q, %+v, %v", text, eos, err)
	}
}

// TestDefaultSocket: Dial without a path obeys the environment.
func TestDefaultSocket(t *testing.T) {
	s := (&clienttest.Server{}).Start(t)
	for _, c := range []struct {
		host, socket, want, bad string
	}{
		{"unix://" + s.Path, "/elsewhere", s.Path, ""},
		{"", s.Path, s.Path, ""},
		{"tcp://localhost:80", "", "", "UMA_HOST is"},
		{"unix://relative", "", "", "UMA_HOST is"},
	} {
		t.Setenv("UMA_HOST", c.host)
		t.Setenv("UMA_SOCKET", c.socket)
		if path, err := client.DefaultSocket(); path != c.want || (err != nil) != (c.bad != "") {
			t.Errorf("%+v: %q, %v", c, path, err)
		}
		conn, err := client.Dial(t.Context(), "")
		if c.bad != "" {
			if err == nil || !strings.Contains(err.Error(), c.bad) {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		if err != nil || conn.Socket() != c.want {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		conn.Close()
	}
	t.Setenv("UMA_HOST", "")
	t.Setenv("UMA_SOCKET", "")
	if path, err := client.DefaultSocket(); err != nil || filepath.Base(path) != "uma.sock" || !filepath.IsAbs(path) {
		t.Errorf("%q, %v", path, err)
	}
}

// TestModels reads /v1/models over the socket of the connection.
func TestModels(t *testing.T) {
	dir, err := os.MkdirTemp("", "uma")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	sock := filepath.Join(dir, "s")
	l, err := net.Listen("unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	answer, status := `{"object":"list","data":[{"id":"tiny","object":"model","created":5,"owned_by":"uma-serve",`+
		`"meta":{"n_ctx":4096,"n_ctx_train":2048,"n_params":7,"size":8}}]}`, http.StatusOK
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/v1/models" {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		w.WriteHeader(status)
		io.WriteString(w, answer)
	})}
	go srv.Serve(l)
	defer srv.Close()
	c, err := client.Dial(t.Context(), sock)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if m, err := c.Models(t.Context()); err != nil || len(m) != 1 || m[0].ID != "tiny" || m[0].Meta.Context != 4096 {
		t.Errorf("%+v, %v", m, err)
	}
	answer = "[]"
	if _, err := c.Models(t.Context()); err == nil || !strings.Contains(err.Error(), "unreadable answer") {
		t.Errorf("%v", err)
	}
	status = http.StatusServiceUnavailable
	if _, err := c.Models(t.Context()); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Models(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestAskRefusesWhatIsNoQuestion: no frame is sent for it.
func TestAskRefusesWhatIsNoQuestion(t *testing.T) {
	c := dial(t, (&clienttest.Server{}).Start(t))
	for _, q := range []client.Question{
		{}, {Kind: wire.KindRequest}, {Kind: wire.KindCancel}, {Kind: 200},
		{Kind: wire.KindKV, KV: wire.KVQuestion{Op: 99}},
	} {
		if _, err := c.Ask(t.Context(), q); err == nil {
			t.Errorf("%+v is sent", q)
		}
	}
	if err := (client.Report(`{"status":1}`)).Decode(&reports.Health{}); err == nil ||
		!strings.Contains(err.Error(), "another version") {
		t.Errorf("%v", err)
	}
}
