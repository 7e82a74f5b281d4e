package ipc

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// socketDir is a directory with a path short enough for a socket. (t.TempDir holds the test's whole name.)
func socketDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "uma")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// recorder is a Handler that writes down what it hears. Its function fields, where set, run on the Loop.
type recorder struct {
	mu      sync.Mutex
	log     []string
	conns   []*Conn
	heard   chan string // everything in log, as it comes
	onReq   func(*Conn, *wire.Request)
	onEmbed func(*Conn, *wire.Embed)
	onLine  func(*Conn, string)
	onFull  func(*Conn)
}

func newRecorder() *recorder { return &recorder{heard: make(chan string, 4096)} }

func (h *recorder) note(c Client, format string, a ...any) {
	s := fmt.Sprintf(format, a...)
	h.mu.Lock()
	h.log = append(h.log, s)
	h.conns = append(h.conns, c.(*Conn))
	h.mu.Unlock()
	select {
	case h.heard <- s:
	default:
	}
}

func (h *recorder) Request(c Client, r *wire.Request) {
	h.note(c, "request %s %q", r.ID, r.Prompt)
	if h.onReq != nil {
		h.onReq(c.(*Conn), r)
	}
}

func (h *recorder) Embed(c Client, e *wire.Embed) {
	h.note(c, "embed %s %d", e.ID, len(e.Inputs))
	if h.onEmbed != nil {
		h.onEmbed(c.(*Conn), e)
	}
}

func (h *recorder) Line(c *Conn, prompt string) {
	h.note(c, "line %q", prompt)
	if h.onLine != nil {
		h.onLine(c, prompt)
	}
}

func (h *recorder) Cancel(c Client, id string) { h.note(c, "cancel %s", id) }

func (h *recorder) EndThink(c Client, id string) { h.note(c, "end_think %s", id) }

func (h *recorder) Admin(c Client, q *wire.Frame) {
	h.note(c, "admin %v %q", q.Kind, q.ID)
	c.ReplyEvent(wire.ReportEvent(q.Kind, q.ID, []byte("{}")))
}

func (h *recorder) Writable(c Client) {
	h.note(c, "writable")
	if h.onFull != nil {
		h.onFull(c.(*Conn))
	}
}

func (h *recorder) Closed(c Client, cause Cause) { h.note(c, "closed %v", cause) }

// wait returns when the handler has heard want; what came before it is skipped.
func (h *recorder) wait(t testing.TB, want string) {
	t.Helper()
	limit := time.After(waitfor.Limit)
	for {
		select {
		case s := <-h.heard:
			if s == want {
				return
			}
		case <-limit:
			h.mu.Lock()
			defer h.mu.Unlock()
			t.Fatalf("never heard %q; heard %q", want, h.log)
		}
	}
}

func (h *recorder) count(s string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.log {
		if l == s {
			n++
		}
	}
	return n
}

// echo answers a request with one token event that holds its prompt, and an eos.
func echo(c *Conn, r *wire.Request) {
	c.Send(wire.AppendToken(nil, &wire.Token{ID: r.ID, Text: []byte(r.Prompt), Phase: wire.Output}))
	c.Send(wire.AppendEOS(nil, &wire.EOS{ID: r.ID, Reason: wire.Stop, Streamed: true}))
	c.Done(r.ID)
	c.Flush()
}

func echoLine(c *Conn, prompt string) {
	c.Send([]byte(prompt + "\n"))
	c.Flush()
	c.Done("")
}

// serve runs a Loop on a new socket until the test ends and checks then that nothing is left.
func serve(t testing.TB, cfg Config, h Handler) *Loop {
	t.Helper()
	return serveAs(t, cfg, h, nil)
}

// serveAs is serve with clients whose user peer makes up.
func serveAs(t testing.TB, cfg Config, h Handler, peer func(fd int) (Peer, error)) *Loop {
	t.Helper()
	return serveWith(t, cfg, h, func(l *Loop) {
		if peer != nil {
			l.peerOf = peer
		}
	})
}

// serveLater is serve with a clock that later sets forward.
func serveLater(t testing.TB, cfg Config, h Handler) (l *Loop, later func(time.Duration)) {
	t.Helper()
	var ahead atomic.Int64
	l = serveWith(t, cfg, h, func(l *Loop) {
		real := l.clock
		l.clock = func() time.Duration { return real() + time.Duration(ahead.Load()) }
	})
	return l, func(d time.Duration) {
		ahead.Add(int64(d))
		l.mu.Lock()
		defer l.mu.Unlock()
		l.wake()
	}
}

func serveWith(t testing.TB, cfg Config, h Handler, edit func(*Loop)) *Loop {
	t.Helper()
	lns, err := Listen(ListenConfig{Path: filepath.Join(socketDir(t), "s")})
	if err != nil {
		t.Fatal(err)
	}
	return run(t, cfg, lns, h, edit)
}

// run runs a Loop on these listeners until the test ends and checks then that nothing is left.
func run(t testing.TB, cfg Config, lns []*Listener, h Handler, edit func(*Loop)) *Loop {
	t.Helper()
	l, err := New(cfg, lns, h)
	if err != nil {
		t.Fatal(err)
	}
	if edit != nil {
		edit(l)
	}
	done := make(chan error, 1)
	go func() { done <- l.Run() }()
	t.Cleanup(func() {
		l.Stop(0)
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(waitfor.Limit):
			t.Error("the loop does not end")
			return
		}
		if in := l.Info(); in.Conns != 0 || in.TxRingBytes != 0 || in.RxHeldBytes != 0 || in.TxQueuedBytes != 0 {
			t.Errorf("left behind: %+v", in)
		}
		eventually(t, "HTTP connections have ended", func() bool { return l.Stats().HTTP.Load() == 0 })
		eventually(t, "the files of clients are closed", func() bool { return l.shares.files.Open() == 0 })
		l.shares.Check()
		if l.shares.Len() != 0 || l.refusing != 0 {
			t.Errorf("%d sessions and %d refused clients are counted after the end", l.shares.Len(), l.refusing)
		}
		closed := uint64(0)
		for i := range l.stats.Closed {
			closed += l.stats.Closed[i].Load()
		}
		if n := l.Stats().Accepted.Load(); n != closed+uint64(l.stats.Sessions.Load()) {
			t.Errorf("%d accepted, %d closed, %d open", n, closed, l.stats.Sessions.Load())
		}
		if n := l.Stats().Stalled.Load(); n != 0 {
			t.Errorf("%d connections counted as stalled after the end", n)
		}
	})
	return l
}

func dial(t testing.TB, l *Loop) *net.UnixConn {
	t.Helper()
	c, err := net.Dial("unix", l.SocketPath())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(waitfor.Limit))
	return c.(*net.UnixConn)
}

// request is a framed generation request.
func request(id, prompt string) []byte {
	return frame(map[string]any{"id": id, "prompt": prompt})
}

func frame(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return wire.AppendFrame(nil, b)
}

// answer reads one frame.
func answer(t testing.TB, c io.Reader) map[string]any {
	t.Helper()
	m, err := readFrame(c)
	if err != nil {
		t.Fatalf("read answer: %v", err)
	}
	return m
}

func readFrame(c io.Reader) (map[string]any, error) {
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.LittleEndian.Uint32(head[:]))
	if _, err := io.ReadFull(c, b); err != nil {
		return nil, err
	}
	var m map[string]any
	return m, json.Unmarshal(b, &m)
}

func write(t testing.TB, c io.Writer, b []byte) {
	t.Helper()
	if _, err := c.Write(b); err != nil {
		t.Fatalf("write: %v", err)
	}
}

// wantEnd expects that the server closes c without another byte.
func wantEnd(t testing.TB, c io.Reader) {
	t.Helper()
	b, err := io.ReadAll(c)
	if err != nil || len(b) != 0 {
		t.Fatalf("want the end of the stream, got %q, %v", b, err)
	}
}

// eventually polls a state that no event tells about.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	waitfor.True(t, what, ok)
}
