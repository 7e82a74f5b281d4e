package ipc

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/invariants"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// within is a Handler of Locals that notes what it hears.
type within struct {
	mu    sync.Mutex
	log   []string
	onReq func(Client, *wire.Request)
}

func (h *within) note(format string, a ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log = append(h.log, fmt.Sprintf(format, a...))
}

func (h *within) heard() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return fmt.Sprint(h.log)
}

func (h *within) Request(c Client, r *wire.Request) {
	h.note("request %s of %d", r.ID, c.UID())
	if h.onReq != nil {
		h.onReq(c, r)
	}
}
func (h *within) Embed(_ Client, e *wire.Embed) { h.note("embed %s", e.ID) }
func (h *within) Line(*Conn, string)            {}
func (h *within) Cancel(_ Client, id string)    { h.note("cancel %s", id) }
func (h *within) EndThink(_ Client, id string)  { h.note("end_think %s", id) }
func (h *within) Writable(Client)               { h.note("writable") }
func (h *within) Closed(_ Client, cause Cause)  { h.note("closed %v", cause) }
func (h *within) Admin(c Client, q *wire.Frame) {
	c.ReplyEvent(wire.ReportEvent(q.Kind, q.ID, []byte("{}")))
}

// take waits for the next event.
func take(t testing.TB, c *Local) *wire.Event {
	t.Helper()
	for {
		if ev := c.Take(); ev != nil {
			return ev
		}
		if err := c.Err(); err != nil {
			t.Fatal(err)
		}
		waitfor.Recv(t, "an event", c.Wake())
	}
}

func prompt(id string) *wire.Request {
	r := wire.DefaultRequest()
	r.ID, r.Prompt = id, "hello"
	return &r
}

// TestLocal: a client within the process asks in another's name, is checked as a connection is, and counts as no
// session.
func TestLocal(t *testing.T) {
	h := new(within)
	l := serve(t, Config{MaxSessions: 1, MaxPromptBytes: 8}, h)
	c, err := l.Open(Peer{UID: 4711})
	if err != nil {
		t.Fatal(err)
	}
	h.onReq = func(c Client, r *wire.Request) {
		text := []byte(r.Prompt)
		for range 3 {
			c.SendEvent(&wire.Event{Kind: wire.EventToken, ID: r.ID, Token: wire.Token{ID: r.ID, Text: text}})
			text[0] = 'j' // the queue has its own copy
		}
		c.Flush()
	}
	c.Request(prompt("a"))
	for _, want := range []string{"hello", "jello", "jello"} {
		if ev := take(t, c); ev.ID != "a" || string(ev.Token.Text) != want {
			t.Errorf("%+v, want %s", ev, want)
		}
	}
	if c.Ready() || c.Take() != nil {
		t.Error("an event too many")
	}
	h.onReq = nil
	long := prompt("b")
	long.Prompt = "nine byte"
	for _, r := range []*wire.Request{prompt("a"), prompt(""), prompt("\n"), long} {
		c.Request(r)
	}
	for _, want := range []wire.Code{wire.DuplicateID, wire.BadRequest, wire.BadRequest, wire.PromptTooLarge} {
		if ev := take(t, c); ev.Kind != wire.EventError || ev.Error.Code != want {
			t.Errorf("%+v, want %s", ev.Error, want)
		}
	}
	c.Ask(&wire.Frame{Kind: wire.KindKV, ID: "q"})
	if ev := take(t, c); ev.Kind != wire.EventReport || ev.ReportKind != wire.KindKV || string(ev.Report) != "{}" {
		t.Errorf("%+v", ev)
	}
	c.Cancel("a")
	c.Cancel("unknown")
	if n := l.Stats().InFlight.Load(); n != 1 {
		t.Errorf("%d in flight", n)
	}
	c.Close()
	c.Close()
	c.Done("a")
	c.Done("a")
	c.Request(prompt("late"))
	if got, want := h.heard(), "[request a of 4711 cancel a closed by_server]"; got != want {
		t.Errorf("heard %s, want %s", got, want)
	}
	if s := l.Stats(); s.Sessions.Load() != 0 || s.InFlight.Load() != 0 {
		t.Errorf("%d sessions, %d in flight", s.Sessions.Load(), s.InFlight.Load())
	}
	if c.Err() == nil || c.SendEvent(&wire.Event{Kind: wire.EventToken}) != Closed {
		t.Error("it is open after Close")
	}
}

// TestLocalIsBounded: a reader that takes nothing stops the sender at the bound, and taking the queue lets it go on.
func TestLocalIsBounded(t *testing.T) {
	h := new(within)
	l := serve(t, Config{TxBytes: 64 << 10}, h)
	c, err := l.Open(Peer{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ev := &wire.Event{Kind: wire.EventToken, Token: wire.Token{Text: bytes.Repeat([]byte("x"), 200)}}
	sent := 0
	for c.SendEvent(ev) == Sent {
		sent++
	}
	if size := sent * ev.Bytes(); size > 64<<10 || size < 63<<10 || l.Stats().Stalled.Load() != 1 {
		t.Errorf("%d bytes are queued, %d stalled", size, l.Stats().Stalled.Load())
	}
	if c.SendEvent(ev) != Full || h.heard() != "[]" {
		t.Errorf("heard %s", h.heard())
	}
	take(t, c)
	if h.heard() != "[writable]" || l.Stats().Stalled.Load() != 0 || c.SendEvent(ev) != Sent {
		t.Errorf("heard %s", h.heard())
	}
	for range sent {
		take(t, c)
	}
	huge := &wire.Event{Kind: wire.EventEOS, EOS: wire.EOS{Text: make([]byte, 100<<10)}}
	if c.SendEvent(huge) != Sent || c.SendEvent(ev) != Full {
		t.Error("an event larger than the bound goes alone")
	}
	if got := take(t, c); len(got.EOS.Text) != 100<<10 {
		t.Errorf("%d bytes", len(got.EOS.Text))
	}
	// Replies have a second share, and a reader that takes none is closed.
	report := wire.ReportEvent(wire.KindWhy, "", make([]byte, 10<<10))
	for range 20 {
		c.ReplyEvent(report)
	}
	if c.SendEvent(ev) != Closed {
		t.Error("a reader that asks without reading is open")
	}
	for n := 0; ; n++ {
		if ev := c.Take(); ev == nil {
			if c.Err() == nil || n < 10 {
				t.Errorf("%d answers, %v", n, c.Err())
			}
			return
		}
	}
}

// TestLocalEndsWithTheLoop: its reader is told, after the events that were sent, and there is no new one.
func TestLocalEndsWithTheLoop(t *testing.T) {
	h := new(within)
	l := serve(t, Config{}, h)
	c, err := l.Open(Peer{})
	if err != nil {
		t.Fatal(err)
	}
	c.Request(prompt("a"))
	c.SendEvent(wire.EOSEvent(&wire.EOS{ID: "a", Reason: wire.Stop, Streamed: true}))
	l.Stop(time.Second)
	if ev := take(t, c); ev.Kind != wire.EventEOS {
		t.Errorf("%+v", ev)
	}
	for c.Err() == nil {
		waitfor.Recv(t, "the end", c.Wake())
	}
	eventually(t, "the handler hears of it", func() bool { return h.heard() == "[request a of 0 closed stopping]" })
	if _, err := l.Open(Peer{}); err == nil {
		t.Error("a stopped loop opened a client")
	}
}

// TestAnswerToARequestTakenAtTheEnd: a request that the Handler takes while the Loop ends is told why it is refused.
func TestAnswerToARequestTakenAtTheEnd(t *testing.T) {
	h := new(within)
	l := serve(t, Config{}, h)
	c, err := l.Open(Peer{})
	if err != nil {
		t.Fatal(err)
	}
	h.onReq = func(_ Client, r *wire.Request) {
		l.endLocals()
		c.ReplyEvent(wire.ErrorEvent(&wire.Error{ID: r.ID, Code: wire.InternalFailure, Message: "it cannot be loaded"}))
	}
	c.Request(prompt("a"))
	if ev := take(t, c); ev.Kind != wire.EventError || ev.Error.Message != "it cannot be loaded" {
		t.Errorf("%+v", ev)
	}
	if c.Take() != nil || c.Err() != ErrEnded {
		t.Errorf("at the end: %v", c.Err())
	}
	c.ReplyEvent(wire.ErrorEvent(&wire.Error{}))
	if c.Ready() {
		t.Error("an answer after the end")
	}
}

// TestCloseBesideRequest: whichever comes first, a request of a client that has gone is cancelled.
func TestCloseBesideRequest(t *testing.T) {
	h := new(within)
	l := serve(t, Config{}, h)
	c, err := l.Open(Peer{})
	if err != nil {
		t.Fatal(err)
	}
	h.onReq = func(Client, *wire.Request) { c.Close() }
	c.Request(prompt("a"))
	if got := h.heard(); got != "[request a of 0 closed by_server cancel a]" {
		t.Errorf("heard %s", got)
	}
}

// TestLocalAllocatesNothing: nor does it per token, once its buffers have their size.
func TestLocalAllocatesNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the checks of invariant builds allocate")
	}
	l := serve(t, Config{}, new(within))
	c, err := l.Open(Peer{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ev := &wire.Event{Kind: wire.EventToken, ID: "a", Token: wire.Token{ID: "a", Text: []byte("word"), HasLogprob: true,
		Top: []wire.TokenLogprob{{Token: 1, Text: []byte("word")}, {Token: 2, Text: []byte("other")}}}}
	if n := testing.AllocsPerRun(1000, func() {
		for range 3 {
			c.SendEvent(ev)
		}
		c.Flush()
		for range 3 {
			take(t, c)
		}
	}); n != 0 {
		t.Errorf("%v allocations for three tokens", n)
	}
}
