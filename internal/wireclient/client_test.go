package wireclient_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/uma-serve/uma-serve/internal/wireclient"
	"github.com/uma-serve/uma-serve/internal/wireclient/clienttest"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

func dial(t *testing.T, s *clienttest.Server) *wireclient.Client {
	t.Helper()
	c, err := wireclient.Dial(t.Context(), s.Path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func prompt(text string) *wire.Request {
	r := wire.DefaultRequest()
	r.Prompt = text
	return &r
}

// collect reads a stream to its end: the text of its tokens, and the end event or the error.
func collect(s *wireclient.Stream) (string, wire.EOS, error) {
	var b strings.Builder
	for {
		ev, err := s.Next()
		if err != nil {
			return b.String(), wire.EOS{}, err
		}
		switch ev.Kind {
		case wire.EventToken:
			b.Write(ev.Token.Text)
		case wire.EventEOS:
			return b.String(), ev.EOS, nil
		}
	}
}

func TestGenerate(t *testing.T) {
	s := (&clienttest.Server{Answer: func(c *clienttest.Conn, r *clienttest.Request) {
		c.Progress(wire.Progress{ID: r.ID, Processed: 1, Total: 2})
		c.Token(r.ID, "you said ", wire.Output)
		c.Token(r.ID, r.Prompt, wire.Output)
		c.EOS(wire.EOS{ID: r.ID, Reason: wire.Stop, Streamed: true, Usage: wire.Usage{CompletionTokens: 2}})
	}}).Start(t)
	c := dial(t, s)
	stream, err := c.Stream(t.Context(), prompt("hello"))
	if err != nil {
		t.Fatal(err)
	}
	text, eos, err := collect(stream)
	if text != "you said hello" || eos.Reason != wire.Stop || eos.Usage.CompletionTokens != 2 || err != nil {
		t.Errorf("got %q, %+v, %v", text, eos, err)
	}
	if _, err := stream.Next(); err != io.EOF {
		t.Errorf("after the end: %v, want io.EOF", err)
	}
	// The same connection serves the next one, and an id may be used again once it is free.
	for range 2 {
		r := prompt("again")
		r.ID = "mine"
		stream, err = c.Stream(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if text, _, err := collect(stream); text != "you said again" || err != nil {
			t.Errorf("got %q, %v", text, err)
		}
	}
}

// TestManyStreams: each of several goroutines gets its own answer, whole and in order, over one connection.
func TestManyStreams(t *testing.T) {
	const streams, tokens = 12, 150
	s := (&clienttest.Server{Answer: func(c *clienttest.Conn, r *clienttest.Request) {
		for i := range tokens {
			c.Token(r.ID, fmt.Sprintf("%s-%d ", r.Prompt, i), wire.Output)
		}
		c.EOS(wire.EOS{ID: r.ID, Reason: wire.Length, Streamed: true})
	}}).Start(t)
	c := dial(t, s)
	var wg sync.WaitGroup
	for i := range streams {
		wg.Go(func() {
			name := fmt.Sprintf("p%d", i)
			stream, err := c.Stream(t.Context(), prompt(name))
			if err != nil {
				t.Error(err)
				return
			}
			text, _, err := collect(stream)
			var want strings.Builder
			for j := range tokens {
				fmt.Fprintf(&want, "%s-%d ", name, j)
			}
			if text != want.String() || err != nil {
				t.Errorf("%s: %q, %v", name, text, err)
			}
		})
		wg.Go(func() {
			if h, err := c.Health(t.Context()); err != nil || h.Status != "ok" {
				t.Errorf("health in between: %+v, %v", h, err)
			}
		})
	}
	wg.Wait()
}

// TestUnreadStream: a stream that is not read yet loses nothing while another one is.
func TestUnreadStream(t *testing.T) {
	s := (&clienttest.Server{Answer: func(c *clienttest.Conn, r *clienttest.Request) {
		for range 1000 {
			c.Token(r.ID, r.Prompt, wire.Output)
		}
		c.EOS(wire.EOS{ID: r.ID, Reason: wire.Stop, Streamed: true})
	}}).Start(t)
	c := dial(t, s)
	first, err1 := c.Stream(t.Context(), prompt("a"))
	second, err2 := c.Stream(t.Context(), prompt("b"))
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	for name, stream := range map[string]*wireclient.Stream{"b": second, "a": first} {
		if text, _, err := collect(stream); text != strings.Repeat(name, 1000) || err != nil {
			t.Errorf("%s: %d bytes, %v", name, len(text), err)
		}
	}
}

// untilCancelled answers one token and then waits for the cancel.
func untilCancelled(c *clienttest.Conn, r *clienttest.Request) {
	c.Token(r.ID, "first", wire.Output)
	<-r.Cancelled
	c.EOS(wire.EOS{ID: r.ID, Reason: wire.Cancelled, Streamed: true, Usage: wire.Usage{CompletionTokens: 1}})
}

func TestCancel(t *testing.T) {
	s := (&clienttest.Server{Answer: untilCancelled}).Start(t)
	c := dial(t, s)
	stream, err := c.Stream(t.Context(), prompt("x"))
	if err != nil {
		t.Fatal(err)
	}
	if ev, err := stream.Next(); err != nil || string(ev.Token.Text) != "first" {
		t.Fatal(ev, err)
	}
	if err := stream.Cancel(); err != nil {
		t.Fatal(err)
	}
	if _, eos, err := collect(stream); eos.Reason != wire.Cancelled || eos.Usage.CompletionTokens != 1 || err != nil {
		t.Errorf("got %+v, %v", eos, err)
	}
	if err := c.Cancel(t.Context(), "unknown"); err != nil {
		t.Errorf("cancelling what is not there: %v", err)
	}
}

// TestContextEnds: the end of a context ends the wait, cancels on the daemon, and spares the other streams.
func TestContextEnds(t *testing.T) {
	cancelled := make(chan string, 1)
	s := (&clienttest.Server{Answer: func(c *clienttest.Conn, r *clienttest.Request) {
		untilCancelled(c, r)
		cancelled <- r.Prompt
	}}).Start(t)
	c := dial(t, s)
	ctx, stop := context.WithCancelCause(t.Context())
	doomed, err := c.Stream(ctx, prompt("doomed"))
	if err != nil {
		t.Fatal(err)
	}
	other, err := c.Stream(t.Context(), prompt("other"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := doomed.Next(); err != nil {
		t.Fatal(err)
	}
	why := errors.New("enough")
	waiting := make(chan error)
	go func() {
		_, err := doomed.Next()
		waiting <- err
	}()
	stop(why)
	if err := <-waiting; !errors.Is(err, why) {
		t.Errorf("Next returned %v, want %v", err, why)
	}
	if name := <-cancelled; name != "doomed" {
		t.Errorf("%s was cancelled", name)
	}
	if ev, err := other.Next(); err != nil || string(ev.Token.Text) != "first" {
		t.Fatal(ev, err)
	}
	if err := other.Cancel(); err != nil {
		t.Fatal(err)
	}
	if _, eos, err := collect(other); eos.Reason != wire.Cancelled || err != nil {
		t.Errorf("the other stream: %+v, %v", eos, err)
	}
	if _, err := c.Stream(ctx, prompt("late")); !errors.Is(err, why) {
		t.Errorf("Generate with a dead context: %v", err)
	}
}

func TestServerErrors(t *testing.T) {
	s := (&clienttest.Server{Answer: func(c *clienttest.Conn, r *clienttest.Request) {
		if r.Prompt == "fine" {
			c.EOS(wire.EOS{ID: r.ID, Reason: wire.Stop, Text: []byte("yes")})
			return
		}
		c.Error(wire.Error{ID: r.ID, Code: wire.ContextLength, Message: "context_length_exceeded: too long", NPrompt: 9,
			NCtx: 8})
	}}).Start(t)
	c := dial(t, s)
	stream, err := c.Stream(t.Context(), prompt("long"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = stream.Next()
	refused, ok := errors.AsType[*wireclient.ServerError](err)
	if !ok || refused.Code != wire.ContextLength || refused.NPrompt != 9 || refused.NCtx != 8 ||
		!strings.Contains(err.Error(), "context_length_exceeded") {
		t.Fatalf("got %#v", err)
	}
	r := prompt("fine")
	r.Stream = false
	stream, err = c.Stream(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if ev, err := stream.Next(); err != nil || string(ev.EOS.Text) != "yes" {
		t.Errorf("the connection did not live on: %v, %v", ev, err)
	}
}

func TestDuplicateID(t *testing.T) {
	s := (&clienttest.Server{Answer: untilCancelled}).Start(t)
	c := dial(t, s)
	r := prompt("x")
	r.ID = "same"
	if _, err := c.Stream(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Stream(t.Context(), r); err == nil || !strings.Contains(err.Error(), `"same" is already in flight`) {
		t.Errorf("got %v", err)
	}
}

// TestConnectionLost: every waiting call learns it, and so does the next request.
func TestConnectionLost(t *testing.T) {
	s := (&clienttest.Server{Answer: func(c *clienttest.Conn, r *clienttest.Request) {
		c.Token(r.ID, "half", wire.Output)
		if r.Prompt == "last" {
			c.Close()
		}
	}}).Start(t)
	c := dial(t, s)
	var wg sync.WaitGroup
	for _, p := range []string{"a", "b", "last"} {
		stream, err := c.Stream(t.Context(), prompt(p))
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			if _, _, err := collect(stream); !errors.Is(err, wireclient.ErrClosed) {
				t.Errorf("%s: %v, want ErrClosed", p, err)
			}
		})
	}
	wg.Wait()
	if _, err := c.Stream(t.Context(), prompt("x")); !errors.Is(err, wireclient.ErrClosed) {
		t.Errorf("next request: %v", err)
	}
	if c.Err() == nil {
		t.Error("Err is nil")
	}
}

// TestConnectionRefused: a daemon that has no room says so and closes; the caller gets the refusal, also when its own
// write came too late.
func TestConnectionRefused(t *testing.T) {
	s := (&clienttest.Server{Greet: func(c *clienttest.Conn) bool {
		c.Error(wire.Error{Code: wire.SessionLimit, Message: "4096 connections are open; --max-sessions is 4096"})
		return false
	}}).Start(t)
	for range 20 {
		c := dial(t, s)
		_, err := c.Health(t.Context())
		refused, ok := errors.AsType[*wireclient.ServerError](err)
		if !ok || refused.Code != wire.SessionLimit {
			t.Fatalf("got %v", err)
		}
	}
}

func TestHostileFrames(t *testing.T) {
	for name, raw := range map[string]string{
		"empty frame":    "\x00\x00\x00\x00",
		"huge frame":     "\xff\xff\xff\xff{",
		"no JSON":        "\x03\x00\x00\x00abc",
		"not an object":  "\x02\x00\x00\x0042",
		"invalid UTF-8":  "\x04\x00\x00\x00{\"\xff}",
		"HTTP":           "HTTP/1.1 400 Bad Request\r\n\r\n",
		"truncated":      "\x30\x00\x00\x00{\"event\":",
		"token not text": "\x1f\x00\x00\x00{\"event\":\"token\",\"id\":\"r1\",\"te\":1}",
	} {
		t.Run(name, func(t *testing.T) {
			s := (&clienttest.Server{Greet: func(c *clienttest.Conn) bool {
				c.Read(make([]byte, 1))
				io.WriteString(c, raw)
				return false
			}}).Start(t)
			c := dial(t, s)
			if h, err := c.Health(t.Context()); err == nil {
				t.Errorf("health: %+v", h)
			} else if c.Err() == nil {
				t.Errorf("%v, but the connection counts as good", err)
			}
		})
	}
}

// TestStrangeEvents: events of a newer daemon, or for requests that are not there, disturb no other request.
func TestStrangeEvents(t *testing.T) {
	s := (&clienttest.Server{Answer: func(c *clienttest.Conn, r *clienttest.Request) {
		c.Send(func(dst []byte) []byte {
			return wire.AppendFrame(dst, []byte(`{"event":"applause","id":"`+r.ID+`","level":11}`))
		})
		c.Token("stranger", "not yours", wire.Output)
		c.EOS(wire.EOS{ID: "stranger", Reason: wire.Stop})
		c.Token(r.ID, "yours", wire.Output)
		c.EOS(wire.EOS{ID: r.ID, Reason: wire.Stop, Streamed: true})
	}}).Start(t)
	stream, err := dial(t, s).Stream(t.Context(), prompt("x"))
	if err != nil {
		t.Fatal(err)
	}
	if text, _, err := collect(stream); text != "yours" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
}

// TestInside: why and kv questions, and what a daemon that does not know them says.
func TestInside(t *testing.T) {
	var asked []wire.Frame
	server := &clienttest.Server{Question: func(f *wire.Frame) string {
		asked = append(asked, *f)
		switch {
		case f.Kind == wire.KindWhy:
			return `{"requests":[{"request":"a","number":7,"decisions":[{"at_ms":1.5,"reason":"target","times":2}]}]}`
		case f.KV.Op != wire.KVShow:
			return `{"op":"pin","target":"12","done":1,"text":"Pinned."}`
		}
		return `{"cells":{"total":4096,"free":4096},"tiers":[{"tier":"disk","off":"x"}],"tree":"t"}`
	}}
	server.Start(t)
	c, err := wireclient.Dial(t.Context(), server.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	why, err := c.Why(t.Context(), wire.WhyQuestion{Request: "a"})
	if err != nil || len(why.Requests) != 1 || why.Requests[0].Decisions[0].Times != 2 || why.Requests[0].Number != 7 {
		t.Errorf("%+v %v", why, err)
	}
	if kv, err := c.KV(t.Context(), true); err != nil || kv.Cells.Free != 4096 || kv.Tiers[0].Tier != wire.TierDisk ||
		kv.Tree != "t" {
		t.Errorf("%+v %v", kv, err)
	}
	if done, err := c.KVDo(t.Context(), wire.KVPin, "12"); err != nil || done.Done != 1 || done.Text != "Pinned." {
		t.Errorf("%+v %v", done, err)
	}
	if len(asked) != 3 || asked[0].Why.Request != "a" || !asked[1].KV.Tree ||
		asked[2].KV != (wire.KVQuestion{Op: wire.KVPin, Target: "12"}) {
		t.Errorf("asked %+v", asked)
	}
	old := (&clienttest.Server{}).Start(t)
	c, err = wireclient.Dial(t.Context(), old.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var refused *wireclient.ServerError
	if _, err := c.Why(t.Context(), wire.WhyQuestion{Last: 1}); !errors.As(err, &refused) ||
		refused.Code != wire.BadRequest {
		t.Errorf("an old daemon: %v", err)
	}
}

// TestEndThink: it reaches the request it names, and no other.
func TestEndThink(t *testing.T) {
	server := (&clienttest.Server{Answer: func(c *clienttest.Conn, r *clienttest.Request) {
		c.Token(r.ID, "hm", wire.Thinking)
		select {
		case <-r.EndThink:
			c.EOS(wire.EOS{ID: r.ID, Reason: wire.Stop, Streamed: true,
				Thought: wire.ThinkSummary{Tokens: 1, Ended: "user"}})
		case <-r.Cancelled:
		}
	}}).Start(t)
	c, err := wireclient.Dial(t.Context(), server.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	req := wire.DefaultRequest()
	req.Prompt = "x"
	other, err := c.Stream(t.Context(), &req)
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Stream(t.Context(), &req)
	if err != nil {
		t.Fatal(err)
	}
	if ev, err := s.Next(); err != nil || ev.Token.Phase != wire.Thinking {
		t.Fatalf("%+v %v", ev, err)
	}
	if err := s.EndThink(); err != nil {
		t.Fatal(err)
	}
	if ev, err := s.Next(); err != nil || ev.EOS.Thought.Ended != "user" {
		t.Errorf("%+v %v", ev, err)
	}
	if ev, err := other.Next(); err != nil || ev.Kind != wire.EventToken {
		t.Errorf("the other request: %+v %v", ev, err)
	}
	if err := c.EndThink(t.Context(), "unknown"); err != nil {
		t.Errorf("an id that is not in flight: %v", err)
	}
}

func TestAdmin(t *testing.T) {
	s := (&clienttest.Server{Metrics: `{"a":1}`}).Start(t)
	c := dial(t, s)
	h, err := c.Health(t.Context())
	if err != nil || h.Status != "ok" || h.LastStepAgeMs == nil || *h.LastStepAgeMs != 12 {
		t.Errorf("%+v, %v", h, err)
	}
	info, err := c.Info(t.Context())
	if err != nil || info.Model.Name != "tiny" || info.ContextTokens() != 4096 || !info.Model.ChatTemplate {
		t.Errorf("%+v, %v", info, err)
	}
	m, err := c.Metrics(t.Context())
	if string(m) != `{"a":1}` || err != nil {
		t.Errorf("%s, %v", m, err)
	}
}

func TestWaitReady(t *testing.T) {
	s := (&clienttest.Server{Health: `{"status":"loading","load_progress":0.5}`}).Start(t)
	c := dial(t, s)
	shown := 0.0
	err := c.WaitReady(t.Context(), func(h *reports.Health) {
		shown = h.Progress
		s.SetHealth(clienttest.HealthOK)
	})
	if err != nil || shown != 0.5 {
		t.Errorf("progress %v, %v", shown, err)
	}
	s.SetHealth(`{"status":"loading","load_progress":0.5}`)
	ctx, cancel := context.WithCancel(t.Context())
	if err := c.WaitReady(ctx, func(*reports.Health) { cancel() }); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestDialErrors(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	stale, err := os.MkdirTemp("", "uma")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(stale)
	sock := filepath.Join(stale, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: sock, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	for _, c := range []struct {
		path, want string
		noDaemon   bool
	}{
		{filepath.Join(stale, "none"), "there is no such socket", true},
		{sock, "no process listens", true},
		{file, "not a socket", false},
		{"/" + strings.Repeat("x", 200), "at most 107 bytes", false},
	} {
		_, err := wireclient.Dial(t.Context(), c.path)
		if err == nil || !strings.Contains(err.Error(), c.want) ||
			errors.Is(err, wireclient.ErrNoDaemon) != c.noDaemon {
			t.Errorf("%.40q: %v", c.path, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := wireclient.Dial(ctx, sock); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
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

// TestAskRefusesWhatIsNoQuestion: no frame is sent for it.
func TestAskRefusesWhatIsNoQuestion(t *testing.T) {
	c := dial(t, (&clienttest.Server{}).Start(t))
	for _, q := range []wireclient.Question{
		{}, {Kind: wire.KindRequest}, {Kind: wire.KindCancel}, {Kind: 200},
		{Kind: wire.KindKV, KV: wire.KVQuestion{Op: 99}},
	} {
		if _, err := c.Ask(t.Context(), q); err == nil {
			t.Errorf("%+v is sent", q)
		}
	}
	if err := (wireclient.Report(`{"status":1}`)).Decode(&reports.Health{}); err == nil ||
		!strings.Contains(err.Error(), "another version") {
		t.Errorf("%v", err)
	}
}
