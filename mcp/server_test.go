package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/internal/wireclient/clienttest"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// daemon is a fake daemon that repeats the last message or the prompt, with the request's limits in its answer.
func daemon(t *testing.T) *clienttest.Server {
	t.Helper()
	s := &clienttest.Server{
		Answer: func(c *clienttest.Conn, r *clienttest.Request) {
			switch text := lastText(r); text {
			case "wait":
				<-r.Cancelled
				c.EOS(wire.EOS{ID: r.ID, Reason: wire.Cancelled, Streamed: true})
			case "refuse":
				c.Error(wire.Error{ID: r.ID, Code: wire.QueueLimit, Message: "the queue is full"})
			default:
				c.Token(r.ID, "thought", wire.Thinking)
				c.Token(r.ID, fmt.Sprintf("%s, %d tokens of %q", text, r.MaxTokens, r.Model), wire.Output)
				c.EOS(wire.EOS{ID: r.ID, Reason: wire.Stop, Streamed: true,
					Usage: wire.Usage{PromptTokens: 3, CachedTokens: 1, CompletionTokens: 2}})
			}
		},
		Question: func(f *wire.Frame) string {
			b, _ := json.Marshal(map[string]any{"kind": f.Kind.String(), "request": f.Why.Request, "last": f.Why.Last,
				"tree": f.KV.Tree})
			return string(b)
		},
	}
	return s.Start(t)
}

func lastText(r *clienttest.Request) string {
	if n := len(r.Messages); n > 0 {
		return r.Messages[n-1].Content
	}
	return r.Prompt
}

// overStdio connects the SDK's client to s over pipes, as an agent's process does.
func overStdio(t *testing.T, s *Server, opts *sdk.ClientOptions) *sdk.ClientSession {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- s.ServeStdio(context.Background(), inR, outW) }()
	cs, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, opts).Connect(t.Context(),
		&sdk.IOTransport{Reader: outR, Writer: inW}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cs.Close()
		// The answer to a cancelled call may come when the client has gone.
		err := waitfor.Recv(t, "the server ends with its input", ended)
		if err != nil && !errors.Is(err, io.ErrClosedPipe) {
			t.Error(err)
		}
	})
	return cs
}

// overHTTP connects the SDK's client to s over HTTP.
func overHTTP(t *testing.T, s *Server) *sdk.ClientSession {
	t.Helper()
	h, err := s.ListenHTTP(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := waitfor.Recv(t, "the server ends", ended); err != nil {
			t.Error(err)
		}
	})
	cs, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(),
		&sdk.StreamableClientTransport{Endpoint: h.URL(), DisableStandaloneSSE: true,
			HTTPClient: &http.Client{Transport: keyed(h.Key())}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cs.Close() })
	return cs
}

// keyed sends the key with each request.
type keyed string

func (k keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	if k != "" {
		r.Header.Set("Authorization", "Bearer "+string(k))
	}
	return http.DefaultTransport.RoundTrip(r)
}

func text(r *sdk.CallToolResult) string {
	var out strings.Builder
	for _, c := range r.Content {
		if t, ok := c.(*sdk.TextContent); ok {
			out.WriteString(t.Text)
		}
	}
	return out.String()
}

// TestTools calls every tool and reads every resource over both transports.
func TestTools(t *testing.T) {
	for name, connect := range map[string]func(*testing.T, *Server) *sdk.ClientSession{
		"stdio": func(t *testing.T, s *Server) *sdk.ClientSession { return overStdio(t, s, nil) },
		"http":  overHTTP,
	} {
		t.Run(name, func(t *testing.T) {
			cs := connect(t, NewServer(Server{Socket: daemon(t).Path, Model: "tiny"}))
			listed, err := cs.ListTools(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, tool := range listed.Tools {
				names = append(names, tool.Name)
				if tool.Description == "" || tool.InputSchema == nil || !tool.Annotations.ReadOnlyHint {
					t.Errorf("tool %s lacks a description, a schema or its annotation", tool.Name)
				}
			}
			if b, err := json.Marshal(listed.Tools); err != nil || strings.Contains(string(b), `"null"`) {
				t.Errorf("a schema that not every client takes, or %v: %s", err, b)
			}
			slices.Sort(names)
			if want := []string{"chat", "complete", "kv", "models", "why"}; !slices.Equal(names, want) {
				t.Fatalf("tools %q; want %q", names, want)
			}
			for _, c := range []struct {
				tool string
				args map[string]any
				want string // in the text
				fail bool
			}{
				{"chat", map[string]any{"prompt": "hello", "max_tokens": 7}, `hello, 7 tokens of "tiny"`, false},
				{"chat", map[string]any{"messages": []any{map[string]any{"role": "user", "content": "hi"}},
					"model": "big", "background": true}, `hi, 1024 tokens of "big"`, false},
				{"complete", map[string]any{"prompt": "once", "stop": []string{"x"}}, `once, 1024 tokens`, false},
				{"why", map[string]any{"request": "r1"}, `"request":"r1"`, false},
				{"why", map[string]any{}, `"last":5`, false},
				{"kv", map[string]any{"tree": true}, `"tree":true`, false},

				{"chat", map[string]any{}, `either "prompt" or "messages"`, true},
				{"chat", map[string]any{"prompt": "x", "max_tokens": 1 << 20}, "must be 1…32768", true},
				{"chat", map[string]any{"prompt": "x", "temprature": 1}, "temprature", true},
				{"chat", map[string]any{"prompt": strings.Repeat("x", MaxPromptBytes+1)}, "at most 1048576", true},
				{"chat", map[string]any{"messages": []any{map[string]any{"role": "wizard", "content": "hi"}}},
					`messages[0].role is "wizard"`, true},
				{"chat", map[string]any{"prompt": "refuse"}, "the queue is full", true},
				{"complete", map[string]any{"prompt": ""}, `"prompt" is empty`, true},
				{"why", map[string]any{"last": 65}, "must be 1…64", true},
				{"why", map[string]any{"last": 1, "request": "x"}, "either", true},
			} {
				got, err := cs.CallTool(t.Context(), &sdk.CallToolParams{Name: c.tool, Arguments: c.args})
				if err != nil {
					t.Errorf("%s %.80v: %v", c.tool, c.args, err)
					continue
				}
				if got.IsError != c.fail || !strings.Contains(text(got), c.want) {
					t.Errorf("%s %.80v: error %v, %.300q; want error %v and %q", c.tool, c.args, got.IsError, text(got),
						c.fail, c.want)
				}
			}
			got, err := cs.CallTool(t.Context(), &sdk.CallToolParams{Name: "chat", Arguments: chatIn{Prompt: "hello"}})
			if err != nil {
				t.Fatal(err)
			}
			out, _ := got.StructuredContent.(map[string]any)
			if id, _ := out["request"].(string); !strings.HasPrefix(id, "mcp-") || out["thinking"] != "thought" ||
				out["reason"] != "stop" || out["cached_tokens"] != 1.0 {
				t.Errorf("structured content %v", out)
			}
			for uri, want := range map[string]string{"uma://info": `"fake"`, "uma://kv": `"kind":"kv"`,
				"uma://why": `"last":5`, "uma://why/mcp-1": `"request":"mcp-1"`} {
				read, err := cs.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri})
				if err != nil || read.CacheScope != "private" || len(read.Contents) != 1 ||
					!strings.Contains(read.Contents[0].Text, want) {
					t.Errorf("%s: %v, %v; want %q", uri, read, err, want)
				}
			}
			if _, err := cs.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "uma://secret"}); err == nil {
				t.Error("an unknown resource was read")
			}
		})
	}
}

// TestCancel: a call that its client gives up ends the daemon's request.
func TestCancel(t *testing.T) {
	began, cancelled := make(chan struct{}), make(chan struct{})
	d := (&clienttest.Server{Answer: func(c *clienttest.Conn, r *clienttest.Request) {
		close(began)
		<-r.Cancelled
		close(cancelled)
	}}).Start(t)
	cs := overStdio(t, NewServer(Server{Socket: d.Path}), nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := cs.CallTool(ctx, &sdk.CallToolParams{Name: "chat", Arguments: chatIn{Prompt: "x"}})
		ended <- err
	}()
	waitfor.Recv(t, "the request", began)
	cancel()
	waitfor.Recv(t, "the request's end", cancelled)
	if err := waitfor.Recv(t, "the call's end", ended); err == nil {
		t.Error("the call did not fail")
	}
}

// TestCallsAreBounded: beyond MaxCalls a call is refused at once, and the others go on.
func TestCallsAreBounded(t *testing.T) {
	s := NewServer(Server{Socket: daemon(t).Path})
	for range MaxCalls {
		_, leave, err := s.enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
	}
	cs := overStdio(t, s, nil)
	got, err := cs.CallTool(t.Context(), &sdk.CallToolParams{Name: "kv", Arguments: kvIn{}})
	if err != nil || !got.IsError || !strings.Contains(text(got), "16 calls run already") {
		t.Errorf("%v, %v; want a refusal", got, err)
	}
}

// TestNoDaemon: without a daemon a call says how to start one.
func TestNoDaemon(t *testing.T) {
	cs := overStdio(t, NewServer(Server{Socket: t.TempDir() + "/none.sock"}), nil)
	got, err := cs.CallTool(t.Context(), &sdk.CallToolParams{Name: "models", Arguments: noneIn{}})
	if err != nil || !got.IsError || !strings.Contains(text(got), "uma-serve -m MODEL") {
		t.Errorf("%v, %v", got, err)
	}
}

// TestHostileClient: a message beyond the limit, and one that is no JSON, end the server with an error and no more.
func TestHostileClient(t *testing.T) {
	for name, in := range map[string]string{
		"endless":  `{"jsonrpc":"2.0","method":"` + strings.Repeat("x", MaxMessageBytes+1),
		"no JSON":  "hello\n",
		"deep":     strings.Repeat("[", 1<<20) + "\n",
		"no calls": `{"jsonrpc":"2.0","id":1,"method":"tools/list"}` + "\n",
	} {
		s := NewServer(Server{Socket: "none"})
		ended := make(chan error, 1)
		go func() {
			ended <- s.ServeStdio(t.Context(), io.NopCloser(strings.NewReader(in)), discard{io.Discard})
		}()
		err := waitfor.Recv(t, name, ended)
		if wrong := name != "no calls"; (err != nil) != wrong {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type discard struct{ io.Writer }

func (discard) Close() error { return nil }

// TestForeignPage: a page of another origin, and a foreign name of the host, are refused.
func TestForeignPage(t *testing.T) {
	h, err := NewServer(Server{Socket: "none"}).ListenHTTP(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	go h.Serve(t.Context())
	for header, value := range map[string]string{"Origin": "http://evil.example", "Host": "evil.example"} {
		r, _ := http.NewRequest(http.MethodPost, h.URL(), strings.NewReader("{}"))
		r.Header.Set("Content-Type", "application/json")
		if header == "Host" {
			r.Host = value
		} else {
			r.Header.Set(header, value)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s %s: %s; want 403", header, value, resp.Status)
		}
	}
	if _, err := NewServer(Server{}).ListenHTTP(netip.MustParseAddrPort("192.0.2.1:0")); err == nil {
		t.Error("a port for other machines was opened")
	}
}
