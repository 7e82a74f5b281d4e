package client_test

import (
	"context"
	"errors"
	"fmt"
	"go/constant"
	"go/types"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/go/packages"

	"github.com/uma-serve/uma-serve/client"
	"github.com/uma-serve/uma-serve/internal/wireclient/clienttest"
	"github.com/uma-serve/uma-serve/ipc/wire"
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

// exported returns the packages that match pattern, as other packages see them.
func exported(t *testing.T, pattern string) []*packages.Package {
	t.Helper()
	list, err := packages.Load(&packages.Config{Env: append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS="),
		Mode: packages.NeedName | packages.NeedTypes | packages.NeedImports | packages.NeedDeps}, pattern)
	if err != nil || len(list) == 0 || packages.PrintErrors(list) > 0 {
		t.Fatalf("%s: %v, %v", pattern, list, err)
	}
	return list
}

// foreign returns the types of this module outside client that the exported identifiers of p mention.
func foreign(p *types.Package) (found []string) {
	const module = "github.com/uma-serve/uma-serve/"
	seen := map[types.Type]bool{}
	var visit func(types.Type, string)
	ours := func(o *types.TypeName, way string) bool {
		if o.Pkg() == nil || !strings.HasPrefix(o.Pkg().Path(), module) {
			return false
		}
		if path := o.Pkg().Path(); path != p.Path() && !strings.HasPrefix(path+"/", module+"client/") {
			found = append(found, fmt.Sprintf("%s is %s.%s", way, path, o.Name()))
			return false
		}
		return true
	}
	visit = func(ty types.Type, way string) {
		if seen[ty] {
			return
		}
		seen[ty] = true
		switch ty := ty.(type) {
		case *types.Alias:
			ours(ty.Obj(), way)
			visit(types.Unalias(ty), way)
		case *types.Named:
			for a := range ty.TypeArgs().Types() {
				visit(a, way)
			}
			if !ours(ty.Obj(), way) {
				return
			}
			for m := range ty.Methods() {
				if m.Exported() {
					visit(m.Type(), way+"."+m.Name())
				}
			}
			visit(ty.Underlying(), way)
		case *types.Struct:
			for f := range ty.Fields() {
				if f.Exported() || f.Embedded() {
					visit(f.Type(), way+"."+f.Name())
				}
			}
		case *types.Interface:
			for m := range ty.Methods() {
				visit(m.Type(), way+"."+m.Name())
			}
		case *types.Signature:
			visit(ty.Params(), way)
			visit(ty.Results(), way)
		case *types.Tuple:
			for v := range ty.Variables() {
				visit(v.Type(), way)
			}
		case *types.Map:
			visit(ty.Key(), way)
			visit(ty.Elem(), way)
		case interface{ Elem() types.Type }:
			visit(ty.Elem(), way)
		}
	}
	for _, name := range p.Scope().Names() {
		if o := p.Scope().Lookup(name); o.Exported() {
			visit(o.Type(), name)
		}
	}
	return found
}

// TestOwnTypes: the public packages mention no type of another package of this module, so that those can change.
func TestOwnTypes(t *testing.T) {
	for _, p := range exported(t, "./...") {
		for _, wrong := range foreign(p.Types) {
			t.Errorf("%s: %s", p.PkgPath, wrong)
		}
	}
	found := strings.Join(foreign(exported(t, "../internal/wireclient")[0].Types), "\n")
	for _, want := range []string{"Client.Stream is ", "ServerError.Code is ", "Embeddings.Usage is ",
		"Stream.Next is "} {
		if !strings.Contains(found, want) {
			t.Errorf("the walk misses that %sa type of another package; it finds:\n%s", want, found)
		}
	}
}

// TestWords: the constants have the words of the protocol, all of them.
func TestWords(t *testing.T) {
	scope := exported(t, ".")[0].Types.Scope()
	words := map[string][]string{}
	for _, name := range scope.Names() {
		if c, ok := scope.Lookup(name).(*types.Const); ok && c.Val().Kind() == constant.String {
			of := types.TypeString(c.Type(), func(*types.Package) string { return "" })
			words[of] = append(words[of], constant.StringVal(c.Val()))
		}
	}
	same := func(what string, want []string) {
		if got := slices.Sorted(slices.Values(words[what])); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
			t.Errorf("%s: %q, the protocol has %q", what, got, want)
		}
	}
	var codes, reasons []string
	for _, c := range wire.Codes {
		codes = append(codes, string(c))
	}
	for _, r := range wire.Reasons {
		reasons = append(reasons, string(r))
	}
	same("Code", codes)
	same("Reason", reasons)
	same("Phase", []string{string(wire.Thinking), string(wire.Output), string(wire.InPrompt)})
}

func TestChat(t *testing.T) {
	s := (&clienttest.Server{Answer: func(c *clienttest.Conn, r *clienttest.Request) {
		if r.Stream || r.Progress {
			t.Errorf("stream %v, progress %v", r.Stream, r.Progress)
		}
		if r.Prompt == "no" {
			c.Error(wire.Error{ID: r.ID, Code: wire.QueueLimit, Message: "full", RetryAfter: time.Second, Predicted: 7})
			return
		}
		c.EOS(wire.EOS{ID: r.ID, Reason: wire.Length, Text: []byte("yes"), Think: []byte("hm"), Metadata: r.Metadata,
			Usage: wire.Usage{CompletionTokens: 3}})
	}}).Start(t)
	c := dial(t, s)
	r := client.NewRequest()
	r.Prompt, r.Metadata = "x", []byte(`{"a": 1}`)
	a, err := c.Chat(t.Context(), r)
	if err != nil || a.Text != "yes" || a.Thinking != "hm" || a.End.Reason != client.Length ||
		a.End.Usage.CompletionTokens != 3 || string(a.End.Metadata) != `{"a":1}` {
		t.Errorf("%+v, %v", a, err)
	}
	r.Prompt = "no"
	if refused, ok := errors.AsType[*client.ServerError](second(c.Chat(t.Context(), r))); !ok ||
		refused.Code != client.QueueLimit || refused.RetryAfter != time.Second || refused.Message != "full" {
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
	if refused, ok := errors.AsType[*client.ServerError](err); !ok || refused.Code != client.RuntimeDecode ||
		failed.End() != nil {
		t.Errorf("fail: %v", err)
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
	var list struct{ Data []struct{ ID string } }
	if m, err := c.Models(t.Context()); err != nil || m.Decode(&list) != nil || list.Data[0].ID != "tiny" {
		t.Errorf("%s, %v", m, err)
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

func TestPrometheus(t *testing.T) {
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
	status := http.StatusOK
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, r.Method+" "+r.URL.Path)
	})}
	go srv.Serve(l)
	defer srv.Close()
	if body, err := client.Prometheus(t.Context(), sock); string(body) != "GET /metrics" || err != nil {
		t.Errorf("%q, %v", body, err)
	}
	status = http.StatusTeapot
	if _, err := client.Prometheus(t.Context(), sock); err == nil || !strings.Contains(err.Error(), "418") {
		t.Errorf("%v", err)
	}
}
