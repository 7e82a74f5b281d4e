package client

import (
	"context"
	"fmt"
	"os"

	"github.com/uma-serve/uma-serve/internal/wireclient"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/jsontext"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// Client is one connection to the daemon. Create it with Dial.
type Client struct{ c *wireclient.Client }

// DefaultSocket returns the path that Dial uses for "": $UMA_HOST (unix:///path), else $UMA_SOCKET, else the daemon's
// default, which is $XDG_RUNTIME_DIR/uma-serve/uma.sock on most systems. It fails when UMA_HOST is not a unix:// URL of
// an absolute path.
func DefaultSocket() (string, error) { return wireclient.DefaultSocket() }

// Dial connects to the daemon that listens on socket, or on DefaultSocket if socket is "". The error wraps ErrNoDaemon
// when no daemon listens there. ctx bounds the connecting alone.
func Dial(ctx context.Context, socket string) (*Client, error) {
	c, err := wireclient.Dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	return &Client{c}, nil
}

// Socket returns the path of the socket.
func (c *Client) Socket() string { return c.c.Socket() }

// Close ends the connection, and the daemon cancels its requests. Their streams return ErrClosed.
func (c *Client) Close() error { return c.c.Close() }

// Err returns the error that made the connection unusable, or nil while it works.
func (c *Client) Err() error { return public(c.c.Err()) }

// start sends a message, to which it adds an id.
func (c *Client) start(ctx context.Context, id string, files []*os.File, body []byte) (*wireclient.Stream, error) {
	s, err := c.c.Start(ctx, id, files, func(dst []byte, id string) []byte {
		dst, at := wire.BeginFrame(dst)
		dst = append(jsontext.AppendHead(dst, `{"id":`, id), ',')
		return wire.EndFrame(append(dst, body[1:]...), at)
	})
	if err != nil {
		return nil, fmt.Errorf("request: %w", public(err))
	}
	return s, nil
}

// Stream sends a request and returns the stream of its events. An empty r.ID stands for one that is unique on this
// connection. Stream does not keep r. When ctx ends, the daemon cancels the request and the stream returns ctx's cause.
func (c *Client) Stream(ctx context.Context, r *Request) (*Stream, error) {
	return c.StreamFiles(ctx, r)
}

// StreamFiles is Stream for a request whose pictures and sounds are in open files: "fd:0" is the first of them. The
// daemon reads them from their beginnings; they stay the caller's, who may close them when StreamFiles returns.
func (c *Client) StreamFiles(ctx context.Context, r *Request, files ...*os.File) (*Stream, error) {
	body, err := r.encode(true)
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	s, err := c.start(ctx, r.ID, files, body)
	if err != nil {
		return nil, err
	}
	return &Stream{s: s}, nil
}

// Answer is a complete answer.
type Answer struct {
	Text     string
	Thinking string     // the text of the think block, "" without one
	Calls    []ToolCall // of the request's Tools, in the order of the answer
	End      End
}

// Message returns the answer as a message of the conversation that continues. The results of its calls follow it.
func (a *Answer) Message() Message {
	return Message{Role: "assistant", Content: a.Text, ReasoningContent: a.Thinking, ToolCalls: a.Calls}
}

// Chat sends a request and waits for the complete answer. Errors are those of Stream.Next.
func (c *Client) Chat(ctx context.Context, r *Request) (*Answer, error) {
	body, err := r.encode(false)
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	s, err := c.start(ctx, r.ID, nil, body)
	if err != nil {
		return nil, err
	}
	e, err := s.Rest()
	if err != nil {
		return nil, public(err)
	}
	a := &Answer{Text: string(e.Text), Thinking: string(e.Think), End: *endOf(e)}
	for _, call := range e.ToolCalls {
		a.Calls = append(a.Calls, ToolCall(call))
	}
	return a, nil
}

// Report is JSON that answers a question about the daemon. The daemon answers it during a decode step and while the
// model loads.
type Report []byte

// Decode stores the report in v as encoding/json does. v needs no more than the members of interest.
func (r Report) Decode(v any) error { return wireclient.Report(r).Decode(v) }

func (c *Client) ask(ctx context.Context, q wireclient.Question) (Report, error) {
	r, err := c.c.Ask(ctx, q)
	return Report(r), public(err)
}

// Health asks for the daemon's state: GET /health has the same.
func (c *Client) Health(ctx context.Context) (Report, error) {
	return c.ask(ctx, wireclient.Question{Kind: wire.KindHealth})
}

// Info asks for the model, the engine, the configuration and the resources in use, as uma-cli info --json shows them.
func (c *Client) Info(ctx context.Context) (Report, error) {
	return c.ask(ctx, wireclient.Question{Kind: wire.KindInfo})
}

// Metrics asks for a snapshot of every metric, as one JSON object; docs/metrics.md lists its members.
func (c *Client) Metrics(ctx context.Context) (Report, error) {
	return c.ask(ctx, wireclient.Question{Kind: wire.KindMetrics})
}

// Why asks for the scheduler's decisions about the requests with the id request, or if that is "" about the newest
// requests, as many as last.
func (c *Client) Why(ctx context.Context, request string, last int) (Report, error) {
	q := wire.WhyQuestion{Request: request, Last: last}
	return c.ask(ctx, wireclient.Question{Kind: wire.KindWhy, Why: q})
}

// KV asks for the contents of the KV cache, with the prefix tree as text if tree is set.
func (c *Client) KV(ctx context.Context, tree bool) (Report, error) {
	return c.ask(ctx, wireclient.Question{Kind: wire.KindKV, KV: wire.KVQuestion{Tree: tree}})
}

// KVDo has the daemon "drop", "pin", "unpin" or "save" a cached prefix. target is the name of an entry in the answer to
// KV, or "all".
func (c *Client) KVDo(ctx context.Context, op, target string) (Report, error) {
	for o := wire.KVDrop; o <= wire.KVSave; o++ {
		if o.String() == op {
			return c.ask(ctx, wireclient.Question{Kind: wire.KindKV, KV: wire.KVQuestion{Op: o, Target: target}})
		}
	}
	return nil, fmt.Errorf(`kv: there is no operation %q; it must be "drop", "pin", "unpin" or "save"`, op)
}

// WaitReady waits until the daemon answers requests. While the model loads it asks for the daemon's state every 100 ms
// and passes the loaded fraction to loading, unless that is nil.
func (c *Client) WaitReady(ctx context.Context, loading func(loaded float64)) error {
	return public(c.c.WaitReady(ctx, func(h *reports.Health) {
		if loading != nil {
			loading(h.Progress)
		}
	}))
}

// Models returns the models that the daemon serves, in the form of OpenAI's list. It uses an HTTP connection to the
// same socket.
func (c *Client) Models(ctx context.Context) (Report, error) {
	return get(ctx, c.Socket(), "/v1/models")
}

// Prometheus returns every metric in Prometheus's text format, from GET /metrics on the socket, or on DefaultSocket if
// socket is "". It needs no Client.
func Prometheus(ctx context.Context, socket string) ([]byte, error) {
	return get(ctx, socket, "/metrics")
}
