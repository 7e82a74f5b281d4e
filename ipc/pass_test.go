package ipc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/daemon/shm/connstate"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/rights"
	"github.com/uma-serve/uma-serve/ipc/sys"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/frames"
	"github.com/uma-serve/uma-serve/ipc/wire/jsontext"
	"github.com/uma-serve/uma-serve/ipc/wire/split"
)

// fixed is a Router that passes every request to one Link, and keeps questions.
type fixed struct {
	mu   sync.Mutex
	link *Link
	left int
}

func (f *fixed) Route(_ *Conn, p split.Protocol, message []byte, _ bool) (Verdict, *Link) {
	if _, found, _ := jsontext.Member(message, "type"); found || p != split.Framed {
		return Serve, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.link == nil {
		return Wait, nil
	}
	return Pass, f.link
}

func (f *fixed) Left(*Conn, *Link) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left++
}

// serveLoop runs a Loop on listeners until the test's end.
func serveLoop(t *testing.T, cfg Config, lns []*Listener, h Handler) *Loop {
	t.Helper()
	l, err := New(cfg, lns, h)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- l.Run() }()
	t.Cleanup(func() {
		l.Stop(0)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l
}

// together runs fn on a Loop's goroutine and waits for it.
func together(t *testing.T, l *Loop, fn func()) {
	t.Helper()
	done := make(chan struct{})
	if !l.Do(func() { fn(); close(done) }) {
		t.Fatal("the loop has ended")
	}
	waitfor.Recv(t, "the loop does it", done)
}

// front is a front with one end of a link; other is the other end, the engine process's.
type front struct {
	*Loop
	router *fixed
	path   string
	other  int
	table  *connstate.Table
	downed chan error
	heard  chan string
}

func newFront(t *testing.T) *front {
	t.Helper()
	f := &front{router: &fixed{}, path: filepath.Join(socketDir(t), "s"), downed: make(chan error, 1),
		heard: make(chan string, 16)}
	lns, err := Listen(ListenConfig{Path: f.path})
	if err != nil {
		t.Fatal(err)
	}
	f.Loop = serveLoop(t, Config{Router: f.router}, lns, newRecorder())
	ours, theirs, err := SocketPair()
	if err != nil {
		t.Fatal(err)
	}
	f.other = theirs
	if f.table, err = connstate.Create(16, 16); err != nil {
		t.Fatal(err)
	}
	together(t, f.Loop, func() {
		k, err := f.AddLink(ours, f.table, func(m LinkMessage) {
			if m.FD >= 0 {
				unix.Close(m.FD)
			}
			f.heard <- fmt.Sprintf("%d %q %v", m.Kind, m.Body, m.FD >= 0)
		}, func(err error) { f.downed <- err })
		if err != nil {
			t.Error(err)
		}
		f.router.mu.Lock()
		f.router.link = k
		f.router.mu.Unlock()
	})
	return f
}

func (f *front) dial(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", f.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// join makes engine the process at the other end of f's link.
func (f *front) join(t *testing.T, engine *Loop) {
	t.Helper()
	fd, err := unix.Dup(int(f.table.File().Fd()))
	if err != nil {
		t.Fatal(err)
	}
	table, err := connstate.Open(os.NewFile(uintptr(fd), "table"))
	if err != nil {
		t.Fatal(err)
	}
	together(t, engine, func() {
		if _, err := engine.AddLink(f.other, table, func(LinkMessage) {}, func(error) {}); err != nil {
			t.Error(err)
		}
	})
}

func ask(id string) []byte {
	return wire.AppendFrame(nil, []byte(`{"id":"`+id+`","prompt":"hi"}`))
}

// TestPassedConnectionIsServedByTheOtherLoop: requests, a hand-over back, and the end, as a client sees them.
func TestPassedConnectionIsServedByTheOtherLoop(t *testing.T) {
	f := newFront(t)
	h := newRecorder()
	h.onReq = func(c *Conn, r *wire.Request) {
		c.Reply(wire.AppendError(nil, &wire.Error{ID: r.ID, Code: wire.BadRequest, Message: "from the engine"}))
		c.Done(r.ID)
	}
	engine := serveLoop(t,
		Config{MaxSessions: 100, Elsewhere: func(w *wire.Frame) bool { return w.Kind != wire.KindRequest }}, nil, h)
	f.join(t, engine)
	c := f.dial(t)
	read := func(want string) {
		t.Helper()
		var head [4]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, binary.LittleEndian.Uint32(head[:]))
		if _, err := io.ReadFull(c, b); err != nil || !strings.Contains(string(b), want) {
			t.Fatalf("%s, %v; want %s", b, err, want)
		}
	}
	for i := range 3 {
		c.Write(ask(fmt.Sprint("r", i)))
		read("from the engine")
		// A question comes back to the front, and the next request goes to the engine again; both may come at once.
		c.Write(append(frames.AppendAdmin(nil, wire.KindHealth, "q"), ask("both")...))
		read(`"event":"health"`)
		read("from the engine")
	}
	// Half a frame, which the front or the engine holds, is no reason to lose it.
	msg := ask("half")
	c.Write(msg[:7])
	h.wait(t, `request both "hi"`)
	c.Write(msg[7:])
	read("from the engine")
	s := f.Stats()
	waitfor.True(t, "the connection was passed four times and came back three times", func() bool {
		return s.Passed.Load() == 4 && s.HandedBack.Load() == 3 && s.Sessions.Load() == 1
	})
	// What the front opens itself is answered too, and is no session.
	var own int
	together(t, f.Loop, func() {
		var err error
		if own, err = f.PassNew(f.router.link, Peer{UID: 7}); err != nil {
			t.Error(err)
		}
	})
	nc, err := sys.NetConn(own)
	unix.Close(own)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	c, nc = nc, c
	c.Write(frames.AppendAdmin(nil, wire.KindInfo, "x"))
	read(`"event":"info"`)
	c.Close()
	nc.Close()
	waitfor.True(t, "no connection is left in either process", func() bool {
		return f.Stats().Sessions.Load() == 0 && engine.Stats().Sessions.Load() == 0 && f.Info().Conns == 0 &&
			engine.Info().Conns == 0
	})
}

// A process that gives its connections back waits for a client that does not read, though its request has ended, no
// longer than StallTimeout.
func TestReturnWithAnAnswerUnread(t *testing.T) {
	f := newFront(t)
	h := newRecorder()
	h.onReq = func(c *Conn, r *wire.Request) {
		c.Send(make([]byte, 1<<20))
		c.Flush()
		c.Done(r.ID)
	}
	emptied := make(chan bool, 1)
	engine, later := serveLater(t, Config{TxBytes: 1 << 20, StallTimeout: time.Minute,
		Emptied: func() { emptied <- true }}, h)
	f.join(t, engine)
	c := f.dial(t)
	c.Write(ask("unread"))
	h.wait(t, `request unread "hi"`)
	engine.ReturnIdle()
	turn(t, engine)
	select {
	case <-emptied:
		t.Fatal("the client could have read within its minute")
	default:
	}
	later(time.Minute)
	waitfor.Recv(t, "the process has no connection left", emptied)
	waitfor.True(t, "the front has none either", func() bool { return f.Stats().Sessions.Load() == 0 })
	if n := f.Stats().Closed[NotReading].Load(); n != 1 {
		t.Errorf("%d connections of clients that do not read were closed, want 1", n)
	}
}

// A connection that this process answers is passed when its client has read the answers.
func TestUnreadAnswersBeforeAPass(t *testing.T) {
	f := newFront(t)
	c := f.dial(t)
	id := strings.Repeat("x", 200)
	const questions = 700 // their answers are longer than what the socket takes
	c.Write(append(bytes.Repeat(frames.AppendAdmin(nil, wire.KindHealth, id), questions), ask("r")...))
	waitfor.True(t, "answers wait for the client", func() bool { return f.Info().TxQueuedBytes > 0 })
	turn(t, f.Loop)
	if n := f.Stats().Passed.Load(); n != 0 {
		t.Fatal("passed with answers that are not sent")
	}
	var head [4]byte
	for range questions {
		if _, err := io.ReadFull(c, head[:]); err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, c, int64(binary.LittleEndian.Uint32(head[:]))); err != nil {
			t.Fatal(err)
		}
	}
	waitfor.True(t, "the request was passed", func() bool { return f.Stats().Passed.Load() == 1 })
}

// TestOrphans: what the clients of a process that has ended are told, and which connections stay.
func TestOrphans(t *testing.T) {
	f := newFront(t)
	busy, fresh := f.dial(t), f.dial(t)
	busy.Write(ask("a"))
	waitfor.True(t, "it is passed", func() bool { return f.Stats().Passed.Load() == 1 })
	f.table.Slot(0).Set(connstate.State{Phase: connstate.Framed})
	fresh.Write(ask("b"))
	waitfor.True(t, "it is passed", func() bool { return f.Stats().Passed.Load() == 2 })
	f.router.mu.Lock()
	k := f.router.link
	f.router.link = nil // what comes back waits
	f.router.mu.Unlock()
	unix.Close(f.other)
	if err := waitfor.Recv(t, "the link is down", f.downed); err == nil {
		t.Error("the link is down without a reason")
	}
	together(t, f.Loop, func() {
		n := f.Orphans(k, func(_ *Conn, s connstate.State, _ []string) ([]byte, bool) {
			if s.Phase == connstate.Idle {
				return nil, true
			}
			return []byte("last words"), false
		})
		if n != 2 || f.PassedTo(k) != 0 {
			t.Errorf("%d orphans, %d left", n, f.PassedTo(k))
		}
	})
	if b, err := io.ReadAll(busy); err != nil || string(b) != "last words" {
		t.Errorf("%q, %v", b, err)
	}
	together(t, f.Loop, func() {
		n := 0
		for _, c := range f.conns {
			if c.Waits() {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d connections wait for another process", n)
		}
	})
}

// TestBrokenLink: a process that sends what it must not loses its link, and nothing else happens.
func TestBrokenLink(t *testing.T) {
	head := func(n uint32, slot uint32, kind LinkKind, fd byte) []byte {
		b := binary.LittleEndian.AppendUint32(nil, n)
		b = binary.LittleEndian.AppendUint32(b, slot)
		return append(b, byte(kind), fd, 0, 0)
	}
	for name, b := range map[string][]byte{
		"a body that is too large":           head(linkMaxBody+1, 0, LinkUser, 0),
		"a connection that it does not have": head(0, 3, linkGone, 0),
		"bytes of one that it does not have": append(head(2, 9999, linkBack, 0), "xx"...),
		"a descriptor that did not come":     head(0, 0, LinkUser, 1),
		"a connection":                       head(0, 0, linkConn, 0),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFront(t)
			if _, err := unix.Write(f.other, b); err != nil {
				t.Fatal(err)
			}
			if err := waitfor.Recv(t, "the link is down", f.downed); !errors.Is(err, errLink) {
				t.Error(err)
			}
			unix.Close(f.other)
		})
	}
	// Messages in pieces, and descriptors in order.
	f := newFront(t)
	defer unix.Close(f.other)
	msg := append(append(head(3, 0, LinkUser, 0), "abc"...), head(0, 0, LinkUser+1, 0)...)
	for _, b := range msg {
		if _, err := unix.Write(f.other, []byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	if got := waitfor.Recv(t, "a message", f.heard); got != fmt.Sprintf(`%d "abc" false`, LinkUser) {
		t.Error(got)
	}
	waitfor.Recv(t, "a message", f.heard)
	if _, err := unix.SendmsgN(f.other, append(head(1, 0, LinkUser, 1), 'x'), unix.UnixRights(f.other), nil,
		0); err != nil {
		t.Fatal(err)
	}
	if got := waitfor.Recv(t, "a message", f.heard); got != fmt.Sprintf(`%d "x" true`, LinkUser) {
		t.Error(got)
	}
}

// TestNoDescriptorForAPassedConnection: the engine process says so and goes on; the front tells the client.
func TestNoDescriptorForAPassedConnection(t *testing.T) {
	f := newFront(t)
	defer unix.Close(f.other)
	c := f.dial(t)
	c.Write(ask("a"))
	waitfor.True(t, "it is passed", func() bool { return f.Stats().Passed.Load() == 1 })
	full := binary.LittleEndian.AppendUint32(make([]byte, 4), 0)
	if _, err := unix.Write(f.other, append(full, byte(linkFull), 0, 0, 0)); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(c); err != nil || !bytes.Contains(b, []byte("no file descriptor left")) {
		t.Errorf("%q, %v", b, err)
	}
	c.Close()
	waitfor.True(t, "the connection is closed", func() bool {
		return f.Stats().Sessions.Load() == 0 && f.Info().Conns == 0
	})
	if n := f.Stats().Refused[NoDescriptor].Load(); n != 1 {
		t.Errorf("%d refusals are counted", n)
	}

	// The other side: a connection whose descriptor the kernel could not install.
	together(t, f.Loop, func() {
		k := f.router.link
		if err := f.arrive(k, LinkMessage{Kind: linkConn, Conn: 3, FD: rights.Lost, lost: true,
			Body: appendPassed(nil, &Peer{})}); err != nil {
			t.Error(err)
		}
	})
	for { // behind the connection that was passed
		var head [linkHeader]byte
		if err := readFull(f.other, head[:]); err != nil {
			t.Fatal(err)
		}
		if err := readFull(f.other, make([]byte, binary.LittleEndian.Uint32(head[:]))); err != nil {
			t.Fatal(err)
		}
		if LinkKind(head[8]) == linkFull {
			if n := binary.LittleEndian.Uint32(head[4:]); n != 3 {
				t.Errorf("connection %d", n)
			}
			return
		}
	}
}
