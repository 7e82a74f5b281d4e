package ipc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/share"
	"github.com/uma-serve/uma-serve/ipc/sockdiag"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// tcpLoop is a Loop with TCP listeners and an http.Server that answers with the client it sees.
type tcpLoop struct {
	*Loop
	h    *recorder
	addr []netip.AddrPort
}

func serveTCP(t *testing.T, cfg Config, listen ...string) *tcpLoop {
	t.Helper()
	lc := ListenConfig{Path: filepath.Join(socketDir(t), "s")}
	for _, a := range listen {
		lc.TCP = append(lc.TCP, netip.MustParseAddrPort(a))
	}
	lns, err := Listen(lc)
	if err != nil {
		t.Fatal(err)
	}
	r := &tcpLoop{h: newRecorder()}
	r.h.onReq = echo
	for _, ln := range lns[1:] {
		if ln.Users() != nil {
			t.Skipf("SKIPPED: %v", ln.Users())
		}
		r.addr = append(r.addr, ln.TCP())
	}
	r.Loop = run(t, cfg, lns, r.h, nil)
	web := &http.Server{ConnContext: ConnContext, ConnState: ConnState, ReadHeaderTimeout: cfg.HeaderTimeout,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			ctx, done, ok := Busy(q.Context())
			defer done()
			if !ok {
				<-q.Context().Done()
				panic(http.ErrAbortHandler)
			}
			if owner := q.Header.Get("X-Owner"); owner != "" {
				var uid uint32
				fmt.Sscan(owner, &uid)
				ctx = Identified(ctx, Peer{UID: uid})
			}
			p, ok := PeerOf(ctx)
			fmt.Fprintf(w, "%d %v %v", p.UID, p.Unknown, ok)
			if q.URL.Path == "/wait" {
				http.NewResponseController(w).Flush()
				<-ctx.Done()
			}
		})}
	served := make(chan struct{})
	go func() { defer close(served); web.Serve(r.HTTP()) }()
	t.Cleanup(func() { web.Close(); <-served })
	return r
}

func (r *tcpLoop) dial(t testing.TB, i int) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", r.addr[i].String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(waitfor.Limit))
	return c.(*net.TCPConn)
}

const getRoot = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"

// get reads one response.
func get(t testing.TB, br *bufio.Reader) (status int, body string) {
	t.Helper()
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatalf("no response: %v", err)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("half a response: %v", err)
	}
	return resp.StatusCode, string(b)
}

// TestTCP: both families serve HTTP beside the Unix socket, keep-alive included, and the kernel names the user.
func TestTCP(t *testing.T) {
	r := serveTCP(t, Config{}, "127.0.0.1:0", "[::1]:0")
	want := fmt.Sprintf("%d <nil> true", syscall.Geteuid())
	for i := range r.addr {
		if r.addr[i].Port() == 0 {
			t.Fatal("the listener does not know its port")
		}
		c := r.dial(t, i)
		br := bufio.NewReader(c)
		for range 3 {
			write(t, c, []byte(getRoot))
			if status, body := get(t, br); status != 200 || body != want {
				t.Errorf("%v: %d %q, want %q", r.addr[i], status, body, want)
			}
		}
	}
	c := dial(t, r.Loop)
	write(t, c, request("a", "over the socket"))
	wantToken(t, c, "a", "over the socket")
	for i, ln := range r.lns {
		if n := ln.Accepted(); n != 1 {
			t.Errorf("listener %d (%s %s) has accepted %d connections", i, ln.Network(), ln.Address(), n)
		}
	}
}

// TestTCPSpeaksHTTPAlone: frames, lines, TLS and nonsense are refused in HTTP, and the handler never hears of them.
func TestTCPSpeaksHTTPAlone(t *testing.T) {
	r := serveTCP(t, Config{}, "127.0.0.1:0")
	for what, say := range map[string]string{
		"a frame":         string(request("a", "x")),
		"a line":          "hello there\n",
		"metrics":         "metrics\n",
		"TLS":             "\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03",
		"a long frame":    "\x00\x00\xff\x00" + strings.Repeat("x", 300_000),
		"zeros":           strings.Repeat("\x00", 100),
		"lower case":      "get / HTTP/1.1\r\n\r\n",
		"a short line":    "hi\n",
		"half a method":   "GE",
		"a byte and end":  "\x00",
		"one letter only": "x",
	} {
		c := r.dial(t, 0)
		if _, err := io.WriteString(c, say); err != nil {
			t.Fatal(err)
		}
		c.CloseWrite()
		br := bufio.NewReader(c)
		if status, body := get(t, br); status != 400 || !strings.Contains(body, "HTTP without TLS") {
			t.Errorf("%s: %d %s", what, status, body)
		}
		if rest, err := io.ReadAll(br); len(rest) > 0 || err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: then %q, %v", what, rest, err)
		}
	}
	if len(r.h.log) > 0 {
		t.Errorf("the handler heard %q", r.h.log)
	}
	eventually(t, "all connections have ended", func() bool { return r.Stats().Sessions.Load() == 0 })
}

// TestTCPSlowClients: a client that sends nothing is closed without an answer, one that sends less than a method or a
// header gets 408; a byte now and then gains no time.
func TestTCPSlowClients(t *testing.T) {
	r := serveTCP(t, Config{HeaderTimeout: time.Second}, "127.0.0.1:0")
	silent := r.dial(t, 0)
	for what, say := range map[string]string{"part of a method": "PO", "part of a header": "GET / HTTP/1.1\r\n" +
		"X-Slow: "} {
		c := r.dial(t, 0)
		io.WriteString(c, say)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		if what == "part of a header" {
			wg.Go(func() {
				for {
					select {
					case <-time.After(20 * time.Millisecond): // the attack's own pace
						io.WriteString(c, "x")
					case <-stop:
						return
					}
				}
			})
		}
		status, body := get(t, bufio.NewReader(c))
		close(stop)
		wg.Wait()
		if status != 408 || !strings.Contains(body, string(wire.Timeout)) {
			t.Errorf("%s: %d %s", what, status, body)
		}
		c.Close()
	}
	wantEnd(t, silent)
	eventually(t, "all connections have ended", func() bool { return r.Stats().Sessions.Load() == 0 })
	if n := r.Stats().Closed[TimedOut].Load(); n < 2 {
		t.Errorf("%d connections are counted as timed out", n)
	}
}

// TestTCPClientsLeave: clients that leave at any moment leave nothing behind.
func TestTCPClientsLeave(t *testing.T) {
	r := serveTCP(t, Config{}, "127.0.0.1:0", "[::1]:0")
	ask := getRoot + getRoot
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 60 {
				c, err := net.Dial("tcp", r.addr[i%2].String())
				if err != nil {
					t.Error(err)
					return
				}
				io.WriteString(c, ask[:(i*7+w)%len(ask)])
				if i%3 == 0 {
					c.(*net.TCPConn).SetLinger(0)
				}
				c.Close()
			}
		})
	}
	wg.Wait()
	eventually(t, "all connections have ended",
		func() bool { return r.Stats().Sessions.Load() == 0 && r.Info().Conns == 0 })
}

// TestTCPCountsWithTheSocket: --max-sessions holds for both together, and a user over its share is told so in HTTP.
func TestTCPCountsWithTheSocket(t *testing.T) {
	const sessions = 6
	r := serveTCP(t, Config{MaxSessions: sessions}, "127.0.0.1:0")
	for i := range sessions {
		if i%2 == 0 {
			r.dial(t, 0)
		} else {
			dial(t, r.Loop)
		}
	}
	eventually(t, "all are sessions", func() bool { return r.Stats().Sessions.Load() == sessions })
	c := r.dial(t, 0)
	io.WriteString(c, getRoot)
	if status, body := get(t, bufio.NewReader(c)); status != 503 || !strings.Contains(body, "--max-sessions") {
		t.Errorf("%d %s", status, body)
	}
	if n := r.Stats().Refused[OverSessions].Load(); n != 1 {
		t.Errorf("%d refused", n)
	}
}

// TestIdentifiedMovesTheSession: a connection counts with the owner that its latest request names.
func TestIdentifiedMovesTheSession(t *testing.T) {
	r := serveTCP(t, Config{}, "127.0.0.1:0")
	c := r.dial(t, 0)
	br := bufio.NewReader(c)
	me := (&Peer{UID: uint32(syscall.Geteuid())}).holder()
	for _, owner := range []uint32{1 << 31, 1<<31 + 5} {
		write(t, c, fmt.Appendf(nil, "GET / HTTP/1.1\r\nHost: x\r\nX-Owner: %d\r\n\r\n", owner))
		if status, body := get(t, br); status != 200 || body != fmt.Sprintf("%d <nil> true", owner) {
			t.Errorf("%d %q", status, body)
		}
		if a, b := r.shares.Held(me), r.shares.Held(share.Holder(owner)); a != 0 || b != 1 {
			t.Errorf("owner %d: the user holds %d sessions, the owner %d", owner, a, b)
		}
		r.shares.Check()
	}
	c.Close()
	eventually(t, "the session has ended", func() bool { return r.shares.Held(share.Holder(1<<31+5)) == 0 })
}

// TestReservedUsers: a user id above Config.MaxUID is refused on either socket, in the client's protocol.
func TestReservedUsers(t *testing.T) {
	h := newRecorder()
	h.onReq = echo
	uid := uint32(1 << 31)
	l := serveAs(t, Config{MaxUID: 1<<31 - 1}, h, func(int) (Peer, error) { return Peer{UID: uid}, nil })
	c := dial(t, l)
	write(t, c, request("a", "x"))
	if m := answer(t, c); m["event"] != "error" || !strings.Contains(fmt.Sprint(m["message"]),
		"2147483647 are reserved") {
		t.Errorf("%v", m)
	}
	wantEnd(t, c)
	if n := l.Stats().Refused[ReservedUser].Load(); n != 1 {
		t.Errorf("%d refused", n)
	}
}

// TestHolders: connections of an unknown user count with the address they come from, those of a network of IPv6
// together, and never with a user.
func TestHolders(t *testing.T) {
	from := func(a string) share.Holder {
		return (&Peer{Remote: netip.MustParseAddrPort(a), Unknown: sockdiag.ErrRemote}).holder()
	}
	if a, b := from("192.0.2.1:5"), from("192.0.2.1:6"); a != b || a < 1<<32 {
		t.Errorf("two ports of an address: %x, %x", a, b)
	}
	if a, b := from("192.0.2.1:5"), from("192.0.2.2:5"); a == b {
		t.Errorf("two addresses: %x", a)
	}
	if a, b := from("[2001:db8::1]:5"), from("[2001:db8::ffff:1]:5"); a != b {
		t.Errorf("two addresses of a network: %x, %x", a, b)
	}
	if a, b := from("[2001:db8::1]:5"), from("[2001:db8:0:1::1]:5"); a == b {
		t.Errorf("two networks: %x", a)
	}
	if h := (&Peer{UID: 1<<32 - 1}).holder(); h != 1<<32-1 {
		t.Errorf("a user: %x", h)
	}
}

// TestTCPClientGoesCancels: over TCP the end of the client's stream cancels its request.
func TestTCPClientGoesCancels(t *testing.T) {
	r := serveTCP(t, Config{}, "127.0.0.1:0")
	c := r.dial(t, 0)
	write(t, c, []byte("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n"))
	if _, err := bufio.NewReader(c).ReadByte(); err != nil {
		t.Fatal(err)
	}
	c.Close()
	eventually(t, "the request has ended", func() bool { return r.Stats().HTTP.Load() == 0 })
}

func TestListenTCPErrors(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	path := filepath.Join(socketDir(t), "s")
	for addr, want := range map[string]string{
		taken.Addr().String(): "another program listens there",
		"192.0.2.77:8737":     "this machine has no such address",
	} {
		_, err := Listen(ListenConfig{Path: path, TCP: []netip.AddrPort{netip.MustParseAddrPort(addr)}})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--listen "+addr) {
			t.Errorf("%s: %v, want %q", addr, err, want)
		}
	}
	// What failed has given everything back.
	lns, err := Listen(ListenConfig{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	CloseAll(lns)
	var dialer net.Dialer
	if c, err := dialer.DialContext(context.Background(), "unix", path); err == nil {
		c.Close()
		t.Error("the socket is still there")
	}
}

// TestTCPWithoutUsers: where the kernel does not tell users (another system, another network namespace), requests come
// with the reason and without a user, and their connections count with the address.
func TestTCPWithoutUsers(t *testing.T) {
	r := serveTCP(t, Config{}, "127.0.0.1:0")
	r.lns[1].finder.Close() // what it asks from now on fails
	c := r.dial(t, 0)
	write(t, c, []byte(getRoot))
	if status, body := get(t, bufio.NewReader(c)); status != 200 ||
		!strings.HasPrefix(body, "0 this system does not tell") {
		t.Errorf("%d %q", status, body)
	}
	me := (&Peer{UID: uint32(syscall.Geteuid())}).holder()
	if n := r.shares.Held(me); n != 0 {
		t.Errorf("%d connections count with the user", n)
	}
}
