package sockdiag

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/internal/testutil/usertest"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
)

func finder(t testing.TB) *Finder {
	t.Helper()
	f, err := New()
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// server accepts on address and hands out what it accepts.
func server(t testing.TB, network, address string) (*net.TCPListener, func() *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen(network, address)
	if err != nil {
		t.Skipf("SKIPPED: this machine cannot listen on %s: %v", address, err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln.(*net.TCPListener), func() *net.TCPConn {
		t.Helper()
		c, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c.(*net.TCPConn)
	}
}

func port(a net.Addr) netip.AddrPort { return a.(*net.TCPAddr).AddrPort() }

// ask is UID for the accepted connection c.
func ask(t testing.TB, f *Finder, c *net.TCPConn) (uid uint32, err error) {
	t.Helper()
	raw, rerr := c.SyscallConn()
	if rerr == nil {
		rerr = raw.Control(func(fd uintptr) { uid, err = f.UID(int(fd), port(c.LocalAddr()), port(c.RemoteAddr())) })
	}
	if rerr != nil {
		t.Fatal(rerr)
	}
	return uid, err
}

// TestUsers: over IPv4, IPv6 and IPv4-mapped IPv6 the kernel names the user of each connection, and a socket that is
// shut down for writing still belongs to its user.
func TestUsers(t *testing.T) {
	usertest.NeedRoot(t)
	f := finder(t)
	for _, c := range []struct{ network, listen, dial string }{
		{"tcp4", "127.0.0.1:0", "127.0.0.1"},
		{"tcp4", "127.0.0.1:0", "::ffff:127.0.0.1"}, // an IPv6 socket that connects to IPv4
		{"tcp6", "[::1]:0", "::1"},
		{"tcp", "[::]:0", "127.0.0.1"}, // an IPv6 socket that accepts IPv4
		{"tcp", "[::]:0", "::ffff:127.0.0.1"},
		{"tcp", "[::]:0", "::1"},
		{"tcp4", "127.0.0.1:0", "127.0.0.1"},
	} {
		ln, accept := server(t, c.network, c.listen)
		to := netip.AddrPortFrom(netip.MustParseAddr(c.dial), port(ln.Addr()).Port())
		for _, uid := range []uint32{usertest.A, usertest.B, 0, 1<<32 - 2} {
			conn, err := usertest.Dial(uid, to)
			if err != nil {
				t.Fatalf("%s: %v", c.dial, err)
			}
			got := accept()
			if is, err := ask(t, f, got); err != nil || is != uid {
				t.Errorf("%s to %s: user %d, %v; want %d", c.dial, c.listen, is, err, uid)
			}
			if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(got); err != nil {
				t.Fatal(err)
			}
			if is, err := ask(t, f, got); err != nil || is != uid {
				t.Errorf("%s to %s, shut down for writing: user %d, %v; want %d", c.dial, c.listen, is, err, uid)
			}
			conn.Close()
		}
	}
}

// TestOtherProcess: the same for a process that runs as another user from its start.
func TestOtherProcess(t *testing.T) {
	if to := os.Getenv("UMA_TEST_CONNECT"); to != "" {
		c, err := net.Dial("tcp", to)
		if err != nil {
			t.Fatal(err)
		}
		io.ReadAll(c) // until the parent has asked
		return
	}
	usertest.NeedRoot(t)
	f := finder(t)
	ln, accept := server(t, "tcp4", "127.0.0.1:0")
	child := usertest.Child(t, usertest.B, "TestOtherProcess", "UMA_TEST_CONNECT="+ln.Addr().String())
	var out strings.Builder
	child.Stdout, child.Stderr = &out, &out
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	c := accept()
	if uid, err := ask(t, f, c); err != nil || uid != usertest.B {
		t.Errorf("user %d, %v; want %d", uid, err, usertest.B)
	}
	c.Close()
	if err := child.Wait(); err != nil {
		t.Errorf("%v\n%s", err, &out)
	}
}

// TestClosedSocketIsNotRoot: the kernel reports user 0 for sockets that no process holds. A client that connects and
// leaves must never pass for root, whenever it leaves.
func TestClosedSocketIsNotRoot(t *testing.T) {
	usertest.NeedRoot(t)
	f := finder(t)
	ln, accept := server(t, "tcp4", "127.0.0.1:0")
	to := port(ln.Addr())
	for what, leave := range map[string]func(*net.TCPConn){
		"closes":                  func(c *net.TCPConn) { c.Close() },
		"sends and closes":        func(c *net.TCPConn) { io.WriteString(c, "GET / HTTP/1.1\r\n\r\n"); c.Close() },
		"resets":                  func(c *net.TCPConn) { c.SetLinger(0); c.Close() },
		"sends and resets":        func(c *net.TCPConn) { io.WriteString(c, "x"); c.SetLinger(0); c.Close() },
		"shuts down, then closes": func(c *net.TCPConn) { c.CloseWrite(); c.Close() },
	} {
		c, err := usertest.Dial(usertest.A, to)
		if err != nil {
			t.Fatal(err)
		}
		leave(c.(*net.TCPConn))
		if uid, err := ask(t, f, accept()); !errors.Is(err, ErrNotFound) {
			t.Errorf("a client that %s: user %d, %v", what, uid, err)
		}
	}
	// While clients leave at any moment: their own user or none.
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 250 {
				if c, err := usertest.Dial(usertest.A, to); err == nil {
					c.Close()
				}
			}
		})
	}
	for range 1000 {
		c := accept()
		if uid, err := ask(t, f, c); err == nil && uid != usertest.A {
			t.Errorf("a client that leaves passes for user %d", uid)
		} else if err != nil && !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
		c.Close()
	}
	wg.Wait()
}

// TestListenerIsNoClient: the kernel's lookup falls back to a listening socket on the port, whose user has nothing to
// do with the connection.
func TestListenerIsNoClient(t *testing.T) {
	f := finder(t)
	a, _ := server(t, "tcp4", "127.0.0.1:0")
	b, _ := server(t, "tcp4", "127.0.0.1:0")
	if uid, err := f.lookup(port(a.Addr()), port(b.Addr())); !errors.Is(err, ErrNotFound) {
		t.Errorf("user %d, %v", uid, err)
	}
}

// TestOwnEnd: a connection that this process has lost is not looked up: its addresses may belong to another by now.
func TestOwnEnd(t *testing.T) {
	f := finder(t)
	ln, accept := server(t, "tcp4", "127.0.0.1:0")
	one, err := net.Dial("tcp4", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	first := accept()
	two, err := net.Dial("tcp4", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	second := accept()
	two.(*net.TCPConn).SetLinger(0)
	two.Close()
	waitfor.True(t, "the reset has arrived", func() bool {
		raw, err := second.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		reset := false
		raw.Control(func(fd uintptr) {
			info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
			reset = err == nil && info.State != tcpEstablished
		})
		return reset
	})
	raw, err := second.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		// The addresses of the first connection, which is alive, with the descriptor of the second.
		if uid, err := f.UID(int(fd), port(first.LocalAddr()), port(first.RemoteAddr())); !errors.Is(err, ErrNotFound) {
			t.Errorf("user %d, %v", uid, err)
		}
	})
}

func TestRemote(t *testing.T) {
	f := finder(t)
	for _, c := range [][2]string{{"192.0.2.1:80", "192.0.2.1:999"}, {"127.0.0.1:80", "192.0.2.1:999"},
		{"192.0.2.1:80", "127.0.0.1:999"}, {"[::1]:80", "[2001:db8::1]:9"}} {
		if _, err := f.UID(-1, netip.MustParseAddrPort(c[0]), netip.MustParseAddrPort(c[1])); !errors.Is(err,
			ErrRemote) {
			t.Errorf("%v: %v", c, err)
		}
	}
	f.Close()
	ln, accept := server(t, "tcp4", "127.0.0.1:0")
	c, err := net.Dial("tcp4", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := ask(t, f, accept()); !errors.Is(err, ErrUnsupported) {
		t.Errorf("after Close: %v", err)
	}
}

func TestSameNamespace(t *testing.T) {
	f := finder(t)
	ln, _ := server(t, "tcp4", "127.0.0.1:0")
	raw, err := ln.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		if !f.SameNamespace(int(fd)) {
			t.Error("a listener of this process is of another network namespace")
		}
	})
}

// FuzzAnswer: whatever the netlink socket delivers, nothing is read beyond it, and a user is named only by a whole
// answer to this question about these addresses.
func FuzzAnswer(f *testing.F) {
	local, remote := netip.MustParseAddrPort("127.0.0.1:8737"), netip.MustParseAddrPort("127.0.0.1:40000")
	f.Add(appendRequest(nil, 7, local, remote))
	whole := answer(7, tcpEstablished, 1000, 99, local, remote)
	f.Add(whole)
	f.Add(whole[:len(whole)-1])
	f.Add(answer(7, 10, 0, 5, local, remote))
	f.Fuzz(func(t *testing.T, b []byte) {
		uid, mine, err := parseAnswer(b, 7, local, remote)
		if mine && err == nil && len(b) < headerSize+messageSize {
			t.Errorf("user %d from %d bytes", uid, len(b))
		}
	})
}

// answer is a message of the kernel's.
func answer(seq uint32, state byte, uid, inode uint32, local, remote netip.AddrPort) []byte {
	b := appendRequest(nil, seq, local, remote)
	b = append(b[:headerSize+4], b[headerSize+8:]...) // no states
	b[headerSize+1] = state
	for _, n := range []uint32{0, 0, 0, uid, inode} {
		b = append(b, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
	}
	b[0] = byte(len(b))
	return b
}

func TestParseAnswer(t *testing.T) {
	local, remote := netip.MustParseAddrPort("[::1]:8737"), netip.MustParseAddrPort("[::1]:40000")
	other := netip.MustParseAddrPort("[::1]:40001")
	for what, c := range map[string]struct {
		b    []byte
		uid  uint32
		mine bool
		ok   bool
	}{
		"established":        {answer(1, tcpEstablished, 1000, 5, local, remote), 1000, true, true},
		"shut down":          {answer(1, tcpFinWait2, 1000, 5, local, remote), 1000, true, true},
		"held by no process": {answer(1, tcpEstablished, 0, 0, local, remote), 0, true, false},
		"listening":          {answer(1, 10, 1000, 5, local, remote), 0, true, false},
		"connecting":         {answer(1, 2, 1000, 5, local, remote), 0, true, false},
		"time wait":          {answer(1, 6, 0, 0, local, remote), 0, true, false},
		"other addresses":    {answer(1, tcpEstablished, 1000, 5, local, other), 0, true, false},
		"other end":          {answer(1, tcpEstablished, 1000, 5, remote, local), 0, true, false},
		"an older answer":    {answer(0, tcpEstablished, 1000, 5, local, remote), 0, false, true},
		"nothing":            {nil, 0, false, true},
	} {
		uid, mine, err := parseAnswer(c.b, 1, local, remote)
		if uid != c.uid || mine != c.mine || (err == nil) != c.ok {
			t.Errorf("%s: user %d, mine %v, %v", what, uid, mine, err)
		}
	}
}
