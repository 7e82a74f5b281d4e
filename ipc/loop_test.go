package ipc

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/frames"
)

func echoServer(t testing.TB, cfg Config) (*Loop, *recorder) {
	h := newRecorder()
	h.onReq, h.onLine = echo, echoLine
	return serve(t, cfg, h), h
}

func wantToken(t testing.TB, r io.Reader, id, text string) {
	t.Helper()
	if m := answer(t, r); m["event"] != "token" || m["id"] != id || m["text"] != text {
		t.Fatalf("want token %q of %s, got %v", text, id, m)
	}
	if m := answer(t, r); m["event"] != "eos" || m["id"] != id {
		t.Fatalf("want eos of %s, got %v", id, m)
	}
}

func TestFramedRequest(t *testing.T) {
	l, h := echoServer(t, Config{})
	c := dial(t, l)
	write(t, c, request("a", "hello"))
	wantToken(t, c, "a", "hello")
	write(t, c, append(request("b", "1"), request("c", "2")...))
	wantToken(t, c, "b", "1")
	wantToken(t, c, "c", "2")
	c.Close()
	h.wait(t, "closed peer_closed")
}

func TestFrameByteByByte(t *testing.T) {
	l, _ := echoServer(t, Config{})
	c := dial(t, l)
	for _, b := range request("a", "slowly") {
		write(t, c, []byte{b})
	}
	wantToken(t, c, "a", "slowly")
}

func TestBadMessageLeavesTheConnection(t *testing.T) {
	l, _ := echoServer(t, Config{})
	c := dial(t, l)
	for _, bad := range []string{`{`, `[]`, `{"id":"x","prompt":7}`, `{"id":"x"}`,
		"{\"id\":\"x\",\"prompt\":\"\xff\"}"} {
		write(t, c, wire.AppendFrame(nil, []byte(bad)))
		if m := answer(t, c); m["event"] != "error" {
			t.Fatalf("%s: %v", bad, m)
		}
	}
	write(t, c, request("a", "still here"))
	wantToken(t, c, "a", "still here")
	if n := l.Stats().ProtocolErrors(wire.InvalidJSON) + l.Stats().ProtocolErrors(wire.BadRequest); n != 5 {
		t.Errorf("%d protocol errors counted, want 5", n)
	}
}

// An oversize frame is answered although the client is still busy sending it.
func TestOversizeFrame(t *testing.T) {
	l, h := echoServer(t, Config{MaxFrameBytes: 4096})
	c := dial(t, l)
	big := wire.AppendFrame(nil, bytes.Repeat([]byte{'x'}, 3<<20))
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(big)
		sent <- err
	}()
	if m := answer(t, c); m["code"] != string(wire.FrameTooLarge) || !strings.Contains(m["message"].(string), "4096") {
		t.Fatalf("%v", m)
	}
	wantEnd(t, c)
	if err := <-sent; err != nil {
		t.Errorf("the client could not finish sending: %v", err)
	}
	c.Close()
	h.wait(t, "closed broken_stream")
	eventually(t, "closed", func() bool { return l.Info().Conns == 0 })
}

func TestDuplicateID(t *testing.T) {
	h := newRecorder()
	l := serve(t, Config{}, h)
	c := dial(t, l)
	write(t, c, append(request("a", "1"), request("a", "2")...))
	if m := answer(t, c); m["code"] != string(wire.DuplicateID) || m["id"] != "a" {
		t.Fatalf("%v", m)
	}
	h.wait(t, `request a "1"`)
	if in := l.Info(); in.InFlight != 1 {
		t.Fatalf("%+v", in)
	}
	h.conns[0].Done("a")
	write(t, c, request("a", "3"))
	h.wait(t, `request a "3"`)
	h.conns[0].Done("a")
	h.conns[0].Done("a") // no effect
	if in := l.Info(); in.InFlight != 0 {
		t.Fatalf("%+v", in)
	}
}

func TestCancelReachesOnlyRunningRequests(t *testing.T) {
	h := newRecorder()
	l := serve(t, Config{}, h)
	c := dial(t, l)
	write(t, c, frames.AppendCancel(nil, "unknown"))
	write(t, c, request("a", "1"))
	write(t, c, frames.AppendCancel(nil, "a"))
	h.wait(t, "cancel a")
	if h.count("cancel unknown") != 0 {
		t.Error("a cancel of an unknown id reached the handler")
	}
	h.conns[0].Done("a")
}

func TestAdmin(t *testing.T) {
	l, _ := echoServer(t, Config{})
	c := dial(t, l)
	for _, k := range []wire.Kind{wire.KindHealth, wire.KindMetrics, wire.KindInfo} {
		write(t, c, frames.AppendAdmin(nil, k, ""))
		if m := answer(t, c); m["event"] != k.String() {
			t.Fatalf("%v: %v", k, m)
		}
	}
}

func TestNewline(t *testing.T) {
	l, h := echoServer(t, Config{})
	c := dial(t, l)
	write(t, c, []byte("tell me a joke\r\nanother\n\n  \nlast without end"))
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(c)
	if want := "tell me a joke\nanother\nlast without end\n"; err != nil || string(b) != want {
		t.Fatalf("%q, %v; want %q", b, err, want)
	}
	h.wait(t, "closed half_closed")
}

// "hi\n" could begin a frame; after a moment of silence, or the end of the stream, it is text.
func TestShortFirstLine(t *testing.T) {
	for _, halfClose := range []bool{false, true} {
		l, _ := echoServer(t, Config{})
		c := dial(t, l)
		write(t, c, []byte("hi\n"))
		if halfClose {
			c.CloseWrite()
		}
		b := make([]byte, 3)
		if _, err := io.ReadFull(c, b); err != nil || string(b) != "hi\n" {
			t.Fatalf("half close %v: %q, %v", halfClose, b, err)
		}
	}
}

func TestNewlineMetricsClose(t *testing.T) {
	for _, line := range []string{"metrics\n", "/metrics\n"} {
		l, h := echoServer(t, Config{})
		c := dial(t, l)
		write(t, c, []byte(line))
		if b, err := io.ReadAll(c); err != nil || string(b) != "{}\n" {
			t.Fatalf("%q: %q, %v", line, b, err)
		}
		h.wait(t, "closed answered")
	}
}

// TestNoNewline: text is refused with a line, also where it is too short to tell at once; frames and HTTP are not.
func TestNoNewline(t *testing.T) {
	l, _ := echoServer(t, Config{NoNewline: true})
	for _, text := range []string{"metrics\n", "hi\n", "tell me a joke\n"} {
		c := dial(t, l)
		write(t, c, []byte(text))
		b, err := io.ReadAll(c)
		if err != nil || !strings.HasPrefix(string(b), "error: "+string(wire.BadRequest)+": ") ||
			!strings.Contains(string(b), "--no-newline") {
			t.Errorf("%q: %q, %v", text, b, err)
		}
	}
	c := dial(t, l)
	write(t, c, request("a", "hello"))
	wantToken(t, c, "a", "hello")
}

// The next line waits for Done; typing ahead costs the server no memory beyond one read.
func TestNewlineOneAtATime(t *testing.T) {
	h := newRecorder()
	l := serve(t, Config{}, h)
	c := dial(t, l)
	write(t, c, []byte("first\nsecond\nthird\n"))
	h.wait(t, `line "first"`)
	write(t, c, []byte("fourth\n"))
	conn := h.conns[0]
	for _, next := range []string{"second", "third", "fourth"} {
		if h.count(fmt.Sprintf("line %q", next)) != 0 {
			t.Fatalf("%s came too early", next)
		}
		conn.Done("")
		h.wait(t, fmt.Sprintf("line %q", next))
	}
	conn.Done("")
}

// A client that ends only its own side still gets its answer, in both protocols, and then the connection closes.
func TestHalfClose(t *testing.T) {
	for name, in := range map[string][]byte{"framed": request("a", "q"), "newline": []byte("question\n")} {
		t.Run(name, func(t *testing.T) {
			h := newRecorder()
			l := serve(t, Config{}, h)
			c := dial(t, l)
			write(t, c, in)
			c.CloseWrite()
			eventually(t, "half close seen", func() bool {
				h.mu.Lock()
				defer h.mu.Unlock()
				if len(h.conns) == 0 {
					return false
				}
				h.conns[0].mu.Lock()
				defer h.conns[0].mu.Unlock()
				return h.conns[0].readEnd
			})
			conn := h.conns[0]
			if conn.Send([]byte("answer")) != Sent {
				t.Fatal("cannot answer")
			}
			conn.Done(map[string]string{"framed": "a", "newline": ""}[name])
			conn.Flush()
			if b, err := io.ReadAll(c); err != nil || string(b) != "answer" {
				t.Fatalf("%q, %v", b, err)
			}
			h.wait(t, "closed half_closed")
		})
	}
}

// A client that goes altogether cancels its requests at once, also after a half close.
func TestVanish(t *testing.T) {
	for _, halfFirst := range []bool{false, true} {
		h := newRecorder()
		l := serve(t, Config{}, h)
		c := dial(t, l)
		write(t, c, request("a", "q"))
		h.wait(t, `request a "q"`)
		if halfFirst {
			c.CloseWrite()
		}
		c.Close()
		h.wait(t, "closed peer_closed")
		conn := h.conns[0]
		if r := conn.Send([]byte("x")); r != Closed {
			t.Errorf("Send after the end: %v", r)
		}
		conn.Flush()
		conn.Reply([]byte("x"))
		conn.Close()
		conn.Done("a")
		if in := l.Info(); in.Conns != 0 || in.InFlight != 0 {
			t.Errorf("%+v", in)
		}
	}
}

func TestVanishMidFrame(t *testing.T) {
	l, h := echoServer(t, Config{})
	c := dial(t, l)
	write(t, c, request("a", "q")[:9])
	eventually(t, "half a frame held", func() bool { return l.Info().RxHeldBytes > 0 })
	c.Close()
	h.wait(t, "closed peer_closed")
	eventually(t, "released", func() bool { return l.Info().RxHeldBytes == 0 })

	c = dial(t, l)
	write(t, c, request("a", "q")[:9])
	c.CloseWrite()
	if m := answer(t, c); m["code"] != string(wire.InvalidJSON) {
		t.Fatalf("%v", m)
	}
	wantEnd(t, c)
	h.wait(t, "closed broken_stream")
}

func TestMaxSessions(t *testing.T) {
	l, _ := echoServer(t, Config{MaxSessions: 2})
	a, b := dial(t, l), dial(t, l)
	write(t, a, request("a", "1"))
	wantToken(t, a, "a", "1")
	write(t, b, request("b", "2"))
	wantToken(t, b, "b", "2")

	over := dial(t, l)
	write(t, over, request("c", "3"))
	if m := answer(t, over); m["code"] != string(wire.SessionLimit) || m["retry_after_ms"] == nil {
		t.Fatalf("%v", m)
	}
	wantEnd(t, over)
	over.Close()
	over = dial(t, l)
	write(t, over, []byte("some text\n"))
	if b, err := io.ReadAll(over); err != nil || !strings.Contains(string(b), string(wire.SessionLimit)) {
		t.Fatalf("%q, %v", b, err)
	}
	over.Close()
	over = dial(t, l)
	write(t, over, []byte("GET /health HTTP/1.1\r\nHost: x\r\n\r\n"))
	if b, err := io.ReadAll(over); err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 503 ") {
		t.Fatalf("%q, %v", b, err)
	}
	over.Close()
	over = dial(t, l) // says nothing
	if m := answer(t, over); m["code"] != string(wire.SessionLimit) {
		t.Fatalf("%v", m)
	}
	over.Close()
	if n := l.Stats().RefusedTotal(); n != 4 {
		t.Errorf("%d refused, want 4", n)
	}
	a.Close()
	eventually(t, "room", func() bool { return l.Stats().Sessions.Load() == 1 })
	c := dial(t, l)
	write(t, c, request("c", "3"))
	wantToken(t, c, "c", "3")
}

func TestIdleTimeout(t *testing.T) {
	h := newRecorder()
	l, later := serveLater(t, Config{IdleTimeout: time.Hour}, h)
	busy, idle := dial(t, l), dial(t, l)
	write(t, busy, request("a", "long"))
	h.wait(t, `request a "long"`)
	eventually(t, "both are accepted", func() bool { return l.Info().Conns == 2 })
	later(59 * time.Minute)
	read := l.Stats().RxBytes.Load()
	write(t, idle, []byte{9}) // it says something: its hour begins anew
	eventually(t, "that is read", func() bool { return l.Stats().RxBytes.Load() == read+1 })
	later(59 * time.Minute)
	write(t, busy, []byte{9, 0, 0, 0}) // read at the end of the turn in which idle would have been closed, or later
	eventually(t, "that is read", func() bool { return l.Stats().RxBytes.Load() == read+5 })
	if n := l.Info().Conns; n != 2 {
		t.Fatalf("%d connections: one was closed as idle before its time", n)
	}
	later(time.Minute)
	wantEnd(t, idle)
	later(time.Hour)
	second := dial(t, l)
	eventually(t, "it is accepted", func() bool { return l.Info().Conns == 2 })
	later(time.Hour)
	wantEnd(t, second)
	if n := l.Stats().Closed[Idle].Load(); n != 2 {
		t.Fatalf("%d closed as idle, want the two that asked nothing", n)
	}
	h.conns[0].Done("a")
	later(time.Hour)
	wantEnd(t, busy)
	eventually(t, "it was idle too", func() bool { return l.Stats().Closed[Idle].Load() == 3 })
}

func TestHTTP(t *testing.T) {
	l, _ := echoServer(t, Config{})
	srv := &http.Server{ConnContext: ConnContext, ConnState: ConnState,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			p, ok := PeerOf(r.Context())
			body, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %s %v uid=%d", r.URL.Path, body, ok, p.UID)
		})}
	go srv.Serve(l.HTTP())
	t.Cleanup(func() { srv.Close() })
	self := fmt.Sprintf("true uid=%d", os.Geteuid())
	for _, cut := range []int{1, 2, 3, 4, 5, 40} {
		c := dial(t, l)
		req := "POST /health HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody"
		before, sent := l.Stats().RxBytes.Load(), l.Stats().TxBytes.Load()
		write(t, c, []byte(req[:cut]))
		eventually(t, "the first part is read", func() bool {
			return l.Stats().RxBytes.Load() == before+uint64(cut) || l.Stats().HTTP.Load() == 1
		})
		write(t, c, []byte(req[cut:]))
		b, err := io.ReadAll(c)
		if err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 200 OK") ||
			!strings.Contains(string(b), "/health body "+self) {
			t.Fatalf("cut after %d: %q, %v", cut, b, err)
		}
		if in, out := l.Stats().RxBytes.Load()-before, l.Stats().TxBytes.Load()-sent; in != uint64(len(req)) ||
			out != uint64(len(b)) {
			t.Errorf("%d bytes in and %d out are counted, want %d and %d", in, out, len(req), len(b))
		}
	}
	eventually(t, "HTTP sessions over",
		func() bool { return l.Stats().HTTP.Load() == 0 && l.Stats().Sessions.Load() == 0 })
	if n := l.Stats().HTTPOpened.Load(); n != 6 {
		t.Errorf("%d HTTP connections, want 6", n)
	}
}

func TestStopSendsWhatIsLeft(t *testing.T) {
	h := newRecorder()
	l := serve(t, Config{TxBytes: 1 << 20}, h)
	c := dial(t, l)
	write(t, c, request("a", "q"))
	h.wait(t, `request a "q"`)
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // more than the socket takes
	if h.conns[0].Send(data) != Sent {
		t.Fatal("not sent")
	}
	h.conns[0].Flush()
	l.Stop(10 * time.Second)
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%d of %d bytes, %v", len(got), len(data), err)
	}
	h.wait(t, "closed stopping")
	h.conns[0].Done("a")
}

// Unserved connections are closed, whether the http.Server or the Loop ends first.
func TestHTTPWithoutServer(t *testing.T) {
	l, _ := echoServer(t, Config{})
	waiting, late := dial(t, l), dial(t, l)
	write(t, waiting, []byte("GET /health HTTP/1.1\r\nHost: x\r\n\r\n"))
	eventually(t, "handed over", func() bool { return l.Stats().HTTP.Load() == 1 })
	l.HTTP().Close()
	wantEnd(t, waiting)
	write(t, late, []byte("GET /health HTTP/1.1\r\nHost: x\r\n\r\n"))
	wantEnd(t, late)
	if _, err := l.HTTP().Accept(); err == nil {
		t.Error("Accept after Close")
	}
	eventually(t, "no session left", func() bool { return l.Stats().Sessions.Load() == 0 })
}
