package ipc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/frames"
)

// TestFloodDoesNotStarve: while one client has hundreds of messages waiting, another's single one is handled after
// at most one turn's worth of them.
func TestFloodDoesNotStarve(t *testing.T) {
	h := newRecorder()
	begun, goOn := make(chan struct{}), make(chan struct{})
	h.onReq = func(c *Conn, r *wire.Request) {
		if r.ID == "flood-0" {
			close(begun)
			<-goOn // until the other client's request lies in its socket
		}
		c.Done(r.ID)
	}
	l := serve(t, Config{}, h)
	flood, other := dial(t, l), dial(t, l)
	eventually(t, "both accepted", func() bool { return l.Stats().Sessions.Load() == 2 })
	var b []byte
	for i := range 800 {
		b = append(b, request(fmt.Sprintf("flood-%d", i), "x")...)
	}
	write(t, flood, b)
	<-begun
	write(t, other, request("other", "x"))
	close(goOn)
	h.wait(t, `request other "x"`)
	h.mu.Lock()
	at := len(h.log)
	for i, s := range h.log {
		if s == `request other "x"` {
			at = i
		}
	}
	h.mu.Unlock()
	if at > 2*messagesPerTurn {
		t.Errorf("%d messages of the flood came first; a turn handles %d", at, messagesPerTurn)
	}
	h.wait(t, `request flood-799 "x"`)
}

// TestChunks: the result does not depend on how a client's bytes are cut into writes, or read together.
func TestChunks(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := newRecorder()
		h.onReq = func(c *Conn, r *wire.Request) { c.Done(r.ID) }
		l := serve(t, Config{MaxFrameBytes: 200 << 10}, h)
		c := dial(t, l)
		var stream []byte
		var want []string
		for i := range rapid.IntRange(1, 150).Draw(rt, "messages") {
			switch rapid.IntRange(0, 3).Draw(rt, "kind") {
			case 0, 1:
				p := strings.Repeat("é", rapid.SampledFrom([]int{1, 30, 3000, 70_000}).Draw(rt, "length"))
				stream = append(stream, request(fmt.Sprint(i), p)...)
				want = append(want, fmt.Sprintf("request %d %q", i, p))
			case 2:
				stream = frames.AppendAdmin(stream, wire.KindHealth, fmt.Sprint(i))
				want = append(want, fmt.Sprintf(`admin health "%d"`, i))
			case 3:
				stream = wire.AppendFrame(stream, []byte(`{"id":"bad","prompt":`)) // answered, not heard
			}
			if len(stream) > 300<<10 {
				break
			}
		}
		go func() { // its answers must not fill up
			for {
				if _, err := readFrame(c); err != nil {
					return
				}
			}
		}()
		for len(stream) > 0 {
			n := min(rapid.SampledFrom([]int{1, 2, 3, 5, 100, 4096, 1 << 16, 1 << 20}).Draw(rt, "cut"), len(stream))
			if _, err := c.Write(stream[:n]); err != nil {
				rt.Fatal(err)
			}
			stream = stream[n:]
		}
		c.CloseWrite()
		h.wait(t, "closed half_closed")
		want = append(want, "closed half_closed")
		if got := fmt.Sprint(h.log); got != fmt.Sprint(want) {
			rt.Fatalf("heard %d messages, want %d", len(h.log), len(want))
		}
		c.Close()
		l.Stop(0)
	})
}

// setLimit bridges the types that systems give a limit.
func setLimit[T int64 | uint64](p *T, n uint64) { *p = T(n) }

// raiseNoFile lifts the soft limit of descriptors for a test.
func raiseNoFile(t testing.TB, n uint64) {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil || uint64(lim.Max) < n {
		t.Skipf("needs %d descriptors, the limit is %d (%v)", n, lim.Max, err)
	}
	if uint64(lim.Cur) < n {
		old := lim
		setLimit(&lim.Cur, n)
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Setrlimit(unix.RLIMIT_NOFILE, &old) })
	}
}

// rawClients connects n clients that cost this process no Go memory.
func rawClients(t testing.TB, path string, n int) (fds []int) {
	t.Helper()
	fds = make([]int, 0, n)
	t.Cleanup(func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	})
	for range n {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
		if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
			t.Fatal(err)
		}
	}
	return fds
}

// memoryInUse returns the bytes of Go's heap in use and of stacks, after a collection.
func memoryInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// TestThousandIdle: idle connections cost little memory and no turn of the loop.
func TestThousandIdle(t *testing.T) {
	const n = 1000
	raiseNoFile(t, 2*n+200)
	l, _ := echoServer(t, Config{})
	c := dial(t, l)
	write(t, c, request("a", "warm"))
	wantToken(t, c, "a", "warm")
	before := memoryInUse()
	rawClients(t, l.SocketPath(), n)
	eventually(t, "all accepted", func() bool { return l.Stats().Sessions.Load() == n+1 })
	used := memoryInUse() - before
	t.Logf("%d idle connections: %d bytes each, %.2f MB together", n, used/n, float64(used)/1e6)
	if used > 4<<20 {
		t.Errorf("%d idle connections hold %d bytes", n, used)
	}
	if in := l.Info(); in.TxRingBytes != 0 || in.RxHeldBytes != 0 {
		t.Errorf("idle connections hold buffers: %+v", in)
	}
	write(t, c, request("b", "last"))
	wantToken(t, c, "b", "last")
	turns := l.Stats().Turns.Load()
	time.Sleep(200 * time.Millisecond)
	if now := l.Stats().Turns.Load(); now > turns+1 { // the one that handled the request may end late
		t.Errorf("the loop took %d turns while nothing happened", now-turns)
	}
}

// exhaust opens files until the process may open no more, and returns the function that closes them.
func exhaust(t *testing.T) (release func()) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(os.DevNull, unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	low := old
	setLimit(&low.Cur, uint64(fd)+20)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	var fds []int
	for {
		fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			break
		}
		fds = append(fds, fd)
	}
	done := false
	release = func() {
		if done {
			return
		}
		done = true
		for _, fd := range fds {
			unix.Close(fd)
		}
		unix.Setrlimit(unix.RLIMIT_NOFILE, &old)
	}
	t.Cleanup(release)
	return release
}

// TestNoDescriptorLeft: a client that cannot be accepted gets an error, other clients are unaffected, and the loop
// sleeps.
func TestNoDescriptorLeft(t *testing.T) {
	l, _ := echoServer(t, Config{})
	c := dial(t, l)
	write(t, c, request("a", "before"))
	wantToken(t, c, "a", "before")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	release := exhaust(t)
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: l.SocketPath()}); err != nil {
		t.Fatal(err)
	}
	var got []byte
	for b := make([]byte, 1024); ; {
		n, err := unix.Read(fd, b)
		if n <= 0 {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		got = append(got, b[:n]...)
	}
	m := map[string]any{}
	if len(got) < 4 || json.Unmarshal(got[4:], &m) != nil || m["code"] != string(wire.SessionLimit) {
		t.Fatalf("%q", got)
	}
	turns := l.Stats().Turns.Load()
	write(t, c, request("b", "meanwhile"))
	wantToken(t, c, "b", "meanwhile")
	time.Sleep(50 * time.Millisecond)
	if n := l.Stats().Turns.Load() - turns; n > 10 {
		t.Errorf("%d turns for one request: the loop spins", n)
	}
	release()
	d := dial(t, l)
	write(t, d, request("c", "after"))
	wantToken(t, d, "c", "after")
}

// TestNoReserveLeft: without even the reserve the loop leaves clients in the queue, does not spin, and serves them
// when there are descriptors again.
func TestNoReserveLeft(t *testing.T) {
	h := newRecorder()
	h.onReq = echo
	lns, err := Listen(ListenConfig{Path: filepath.Join(socketDir(t), "s")})
	if err != nil {
		t.Fatal(err)
	}
	l, err := New(Config{}, lns, h)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "client")
	defer f.Close()
	l.closeReserves()
	release := exhaust(t)
	done := make(chan error, 1)
	go func() { done <- l.Run() }()
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: l.SocketPath()}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the loop noticed", func() bool { return l.Stats().IOErrors.Load() > 0 })
	began, before := time.Now(), l.Stats().Turns.Load()
	time.Sleep(150 * time.Millisecond)
	if n := l.Stats().Turns.Load() - before; n > 10+2*uint64(time.Since(began)/acceptPause) {
		t.Errorf("%d turns: the loop spins", n)
	}
	release()
	nc, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(waitfor.Limit))
	write(t, nc, request("a", "late"))
	wantToken(t, nc, "a", "late")
	l.Stop(0)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Bytes that a client sends after its connection was refused, or after a broken frame, have no effect.
func TestGarbage(t *testing.T) {
	l, _ := echoServer(t, Config{MaxFrameBytes: 4096})
	for _, garbage := range [][]byte{
		{0, 0, 0, 0}, {1, 0, 0, 0, '{'}, bytes.Repeat([]byte{0}, 100_000), bytes.Repeat([]byte{0xff, 0xfe}, 2_000_000),
		bytes.Repeat([]byte("x"), 2_000_000), []byte("\n\n\n"), {0xff}, {'\n'},
	} {
		c := dial(t, l)
		go func() {
			c.Write(garbage)
			c.CloseWrite()
		}()
		c.SetReadDeadline(time.Now().Add(waitfor.Limit))
		for b := make([]byte, 4096); ; {
			if _, err := c.Read(b); err != nil {
				if ne, ok := err.(net.Error); ok && ne.Timeout() {
					t.Errorf("%.10q: no answer, no end", garbage)
				}
				break
			}
		}
		c.Close()
	}
	c := dial(t, l)
	write(t, c, request("a", "fine"))
	wantToken(t, c, "a", "fine")
}

// TestEveryCodeIsCounted: the array of counters has room for all codes of the protocol.
func TestEveryCodeIsCounted(t *testing.T) {
	var s Counters
	for i, code := range wire.Codes {
		for range i + 1 {
			s.countProtocolError(code)
		}
		if n := s.ProtocolErrors(code); n != uint64(i+1) {
			t.Errorf("%s: %d", code, n)
		}
	}
	if s.ProtocolErrors("E_UNKNOWN") != 0 {
		t.Error("an unknown code was counted")
	}
}
