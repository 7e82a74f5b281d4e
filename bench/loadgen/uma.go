package loadgen

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/bench/workload"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/frames"
	"github.com/uma-serve/uma-serve/ipc/wire/split"
)

// uma asks uma-serve over its socket, each request on a connection that only a later request may reuse: as
// programs do that keep a connection.
type uma struct {
	*client
	http *httpTarget

	mu   sync.Mutex
	idle []*framed
}

func newUMA(c *client) *uma { return &uma{client: c, http: newHTTP(c, "")} }

func (u *uma) close() {
	u.http.close()
	for _, f := range u.idle {
		f.Close()
	}
}

func (u *uma) ask(ctx context.Context, r *workload.Request, messages []workload.Message, rec *Record) error {
	switch r.Via {
	case "", "framed":
		return u.framed(ctx, r, messages, rec)
	case "newline":
		return u.newline(ctx, line(r, messages), rec)
	case "http":
		return u.http.chat(ctx, r, messages, rec)
	case "admin-framed":
		return u.adminFramed(ctx, rec)
	case "admin-newline":
		return u.newline(ctx, "metrics\n", rec)
	case "admin-http":
		return u.adminHTTP(ctx, rec)
	}
	return fmt.Errorf("protocol %q is none of %s", r.Via, strings.Join(workload.Protocols, ", "))
}

// framed is a connection that speaks frames, with one request at a time.
type framed struct {
	net.Conn
	split split.Frames
	parse frames.Parser
	buf   []byte
	rest  []byte // read, not yet split
	at    int64  // the time at which it was read
	out   []byte
	ev    wire.Event
}

// defaults are the values of omitted fields: only fields that differ are sent.
var defaults = wire.DefaultRequest()

// take returns an idle connection or a new one.
func (u *uma) take(ctx context.Context) (*framed, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if n := len(u.idle); n > 0 {
		f := u.idle[n-1]
		u.idle = u.idle[:n-1]
		return f, nil
	}
	c, err := u.dial(ctx, "unix", u.job.Address)
	if err != nil {
		return nil, fmt.Errorf("connect to the daemon: %w", err)
	}
	return &framed{Conn: c, buf: make([]byte, 16<<10), split: split.Frames{Max: wire.MaxEventBytes}}, nil
}

// next returns the next event, valid until the next call, and the time it was read.
func (u *uma) next(f *framed) (*wire.Event, int64, error) {
	for {
		for len(f.rest) > 0 {
			payload, rest, err := f.split.Next(f.rest)
			if err != nil {
				return nil, 0, err
			}
			f.rest = rest
			if payload != nil {
				return &f.ev, f.at, f.parse.ParseEvent(payload, &f.ev)
			}
		}
		n, err := f.Read(f.buf)
		if err != nil {
			return nil, 0, fmt.Errorf("read from the daemon: %w", err)
		}
		f.at, f.rest = u.now(), f.buf[:n]
	}
}

// within runs fn on a connection, which the end of ctx interrupts. A connection without an error is kept for reuse.
func (u *uma) within(ctx context.Context, fn func(*framed) error) error {
	f, err := u.take(ctx)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { f.SetDeadline(time.Unix(1, 0)) })
	err = fn(f)
	if !stop() || err != nil {
		f.Close() // the daemon cancels its request
		return err
	}
	u.mu.Lock()
	u.idle = append(u.idle, f)
	u.mu.Unlock()
	return nil
}

func (u *uma) framed(ctx context.Context, r *workload.Request, messages []workload.Message, rec *Record) error {
	q := defaults
	q.ID, q.Prompt, q.Stream = "b", r.Prompt, true
	for _, m := range messages {
		q.Messages = append(q.Messages, wire.Message{Role: m.Role, Content: m.Content})
	}
	if r.Via == "" { // otherwise no option is set that the other protocols lack
		if err := u.setOptions(&q, r, rec); err != nil {
			return err
		}
	}
	expect := min(r.Think+r.Output, 1<<14)
	rec.Output = make([]int64, 0, min(r.Output, expect))
	keep := rec.Graded || r.Grow || len(messages) > 0
	return u.within(ctx, func(f *framed) error {
		f.out = frames.AppendRequest(f.out[:0], &q, &defaults)
		rec.Sent = u.now()
		if _, err := f.Write(f.out); err != nil {
			return fmt.Errorf("write to the daemon: %w", err)
		}
		for {
			ev, at, err := u.next(f)
			if err != nil {
				return err
			}
			switch ev.Kind {
			case wire.EventToken:
				text := ""
				if len(ev.Token.Text) > 0 {
					text = "x"
					if keep {
						text = string(ev.Token.Text)
					}
				}
				rec.Token(at, ev.Token.Phase == wire.Thinking, text, keep)
			case wire.EventError:
				return fmt.Errorf("%s: %s", ev.Error.Code, ev.Error.Message)
			case wire.EventEOS:
				e := &ev.EOS
				rec.End, rec.Reason = at, string(e.Reason)
				rec.PromptTokens, rec.CachedTokens = e.Usage.PromptTokens, e.Usage.CachedTokens
				rec.CompletionTokens, rec.ThinkTokens = e.Usage.CompletionTokens, e.Usage.ThinkTokens
				rec.ThinkEnded = e.Thought.Ended
				return nil
			}
		}
	})
}

// setOptions sets a request's fields other than its text.
func (u *uma) setOptions(q *wire.Request, r *workload.Request, rec *Record) error {
	q.MaxTokens, q.Model = r.Think+r.Output, r.Model
	if r.Schema != "" {
		q.Format = wire.Format{Kind: wire.FormatSchema, Payload: r.Schema}
	}
	q.Sampling.Temperature, q.Sampling.IgnoreEOS = u.job.Temperature, r.Exact
	q.Sampling.Seed, q.Sampling.SeedSet = u.job.Seed+uint64(rec.Index), true
	if r.Background {
		q.Priority = wire.PriorityBackground
	}
	switch {
	case len(r.Messages) == 0:
		return nil
	case r.Kind == workload.Chat:
		q.Think.Mode = wire.ThinkOff
		return nil
	}
	q.Think.BudgetTokens = u.job.ThinkBudget
	if u.job.EarlyExit == "" {
		return nil
	}
	return q.Think.EarlyExit.UnmarshalText([]byte(u.job.EarlyExit))
}

func (u *uma) adminFramed(ctx context.Context, rec *Record) error {
	return u.within(ctx, func(f *framed) error {
		f.out = frames.AppendAdmin(f.out[:0], wire.KindMetrics, "")
		rec.Sent = u.now()
		if _, err := f.Write(f.out); err != nil {
			return fmt.Errorf("write to the daemon: %w", err)
		}
		ev, at, err := u.next(f)
		if err != nil {
			return err
		}
		if ev.Kind != wire.EventReport {
			return fmt.Errorf("the daemon answered the question for metrics with event kind %d", ev.Kind)
		}
		rec.Token(at, false, "x", false)
		rec.End, rec.Reason = at, "stop"
		return nil
	})
}

// line encodes a request for the newline protocol.
func line(r *workload.Request, messages []workload.Message) string {
	text := r.Prompt
	if len(messages) > 0 {
		text = messages[len(messages)-1].Content
	}
	return strings.ReplaceAll(text, "\n", " ") + "\n"
}

// newline sends a line on a new connection and reads to its end. Every read counts as a token.
func (u *uma) newline(ctx context.Context, text string, rec *Record) error {
	rec.Sent = u.now()
	c, err := u.dial(ctx, "unix", u.job.Address)
	if err != nil {
		return fmt.Errorf("connect to the daemon: %w", err)
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })()
	if _, err := io.WriteString(c, text); err != nil {
		return fmt.Errorf("write to the daemon: %w", err)
	}
	if half, ok := c.(*net.UnixConn); ok {
		half.CloseWrite()
	}
	buf, head := make([]byte, 16<<10), []byte(nil)
	for {
		n, err := c.Read(buf)
		now := u.now()
		if n > 0 {
			if len(head) < 64 {
				head = append(head, buf[:min(n, 64)]...)
			}
			rec.Token(now, false, "x", false)
			rec.End = now
		}
		switch {
		case err == io.EOF && bytes.HasPrefix(head, []byte("error: ")):
			return fmt.Errorf("the daemon answered %q", head)
		case err == io.EOF && len(head) == 0:
			return fmt.Errorf("the daemon closed the connection without an answer")
		case err == io.EOF:
			rec.Reason = "stop"
			return nil
		case err != nil:
			return fmt.Errorf("read from the daemon: %w", err)
		}
	}
}

func (u *uma) adminHTTP(ctx context.Context, rec *Record) error {
	req, err := http.NewRequestWithContext(ctx, "GET", u.http.base+"/metrics", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	rec.Sent = u.now()
	resp, err := u.http.c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	now := u.now()
	switch {
	case err != nil:
		return err
	case resp.StatusCode != 200 || !json.Valid(b):
		return fmt.Errorf("GET /metrics: %s", resp.Status)
	}
	rec.Token(now, false, "x", false)
	rec.End, rec.Reason = now, "stop"
	return nil
}
