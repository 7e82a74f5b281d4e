package valkey_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/waitfor"
	"github.com/uma-serve/uma-serve/meridian/fabric"
	"github.com/uma-serve/uma-serve/meridian/fabric/valkey"
)

// server is a redis-server or valkey-server that the test starts on a loopback port, in a new directory.
type server struct {
	t    testing.TB
	path string
	port int
	dir  string
	args []string

	mu  sync.Mutex // a proxy may kill it from its own goroutine
	cmd *exec.Cmd
	out bytes.Buffer
}

// startServer runs the server that the PATH has, or skips the test.
func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	s := &server{t: t, dir: t.TempDir(), args: args}
	for _, name := range []string{"valkey-server", "redis-server"} {
		if p, err := exec.LookPath(name); err == nil {
			s.path = p
			break
		}
	}
	if s.path == "" {
		t.Skip("neither valkey-server nor redis-server on the PATH")
	}
	s.port = freePort(t)
	s.start()
	t.Cleanup(s.kill)
	return s
}

func freePort(t testing.TB) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func (s *server) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }
func (s *server) url() string  { return "redis://" + s.addr() }

func (s *server) start() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	args := append([]string{"--bind", "127.0.0.1", "--port", strconv.Itoa(s.port), "--dir", s.dir,
		"--save", "", "--appendonly", "no", "--logfile", "", "--daemonize", "no"}, s.args...)
	s.cmd = exec.Command(s.path, args...)
	s.out.Reset()
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.out
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	answers := false
	defer func() {
		if !answers {
			s.cmd.Process.Kill()
			s.cmd.Wait()
			s.t.Logf("%s says\n%s", s.path, s.out.Bytes())
		}
	}()
	waitfor.True(s.t, "the server answers", func() bool {
		c, err := net.Dial("tcp", s.addr())
		if err != nil {
			return false
		}
		defer c.Close()
		// Accepting is not answering: wait until it does.
		c.SetDeadline(time.Now().Add(waitfor.Limit))
		io.WriteString(c, "PING\r\n")
		var b [1]byte
		_, err = c.Read(b[:])
		answers = err == nil
		return answers
	})
}

// kill is SIGKILL: the server gets no chance to say goodbye.
func (s *server) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd != nil {
		s.cmd.Process.Kill()
		s.cmd.Wait()
		s.cmd = nil
	}
}

// command runs one command by hand and returns the first bytes of the answer.
func (s *server) command(args ...string) string {
	s.t.Helper()
	c, err := net.Dial("tcp", s.addr())
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(waitfor.Limit))
	fmt.Fprintf(c, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(c, "$%d\r\n%s\r\n", len(a), a)
	}
	b := make([]byte, 4096)
	n, err := c.Read(b)
	if err != nil {
		s.t.Fatalf("%v: %v", args, err)
	}
	if b[0] == '-' {
		s.t.Fatalf("%v: %s", args, b[:n])
	}
	return string(b[:n])
}

// proxy stands between a client and a server and can be told to misbehave.
type proxy struct {
	listener net.Listener
	target   string
	mu       sync.Mutex
	conns    map[net.Conn]bool
	stalled  chan struct{} // not nil: bytes wait until it is closed

	up, down atomic.Int64 // bytes passed on so far
	// after is called once, from the goroutine that passes bytes on, when so many have gone up (to the server) or
	// down in all; -1 is never.
	afterUp, afterDown atomic.Int64
	after              func() // guarded by mu
}

func startProxy(t testing.TB, target string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return startProxyOn(t, l, target)
}

func startProxyOn(t testing.TB, l net.Listener, target string) *proxy {
	p := &proxy{listener: l, target: target, conns: map[net.Conn]bool{}}
	p.afterUp.Store(-1)
	p.afterDown.Store(-1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	t.Cleanup(func() { l.Close(); p.resume(); p.cut() })
	return p
}

func (p *proxy) url() string { return "redis://" + p.listener.Addr().String() }

func (p *proxy) serve(client net.Conn) {
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	back, err := net.Dial("tcp", target)
	if err != nil {
		client.Close()
		return
	}
	p.mu.Lock()
	p.conns[client], p.conns[back] = true, true
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.pump(back, client, &p.up, &p.afterUp) })
	both.Go(func() { p.pump(client, back, &p.down, &p.afterDown) })
	both.Wait()
	p.mu.Lock()
	delete(p.conns, client)
	delete(p.conns, back)
	p.mu.Unlock()
}

func (p *proxy) pump(to, from net.Conn, count, after *atomic.Int64) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			p.mu.Lock()
			wait := p.stalled
			p.mu.Unlock()
			if wait != nil {
				<-wait
			}
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
			total := count.Add(int64(n))
			if limit := after.Load(); limit >= 0 && total > limit && after.CompareAndSwap(limit, -1) {
				p.mu.Lock()
				f := p.after
				p.mu.Unlock()
				f()
			}
		}
		if err != nil {
			return
		}
	}
}

// when arranges for f to be called once n more bytes have gone up, or down.
func (p *proxy) when(up, down int64, f func()) {
	p.mu.Lock()
	p.after = f
	p.mu.Unlock()
	for _, d := range []struct {
		n     int64
		count *atomic.Int64
		after *atomic.Int64
	}{{up, &p.up, &p.afterUp}, {down, &p.down, &p.afterDown}} {
		if d.n >= 0 {
			d.after.Store(d.count.Load() + d.n)
		} else {
			d.after.Store(-1)
		}
	}
}

// stall holds every byte back until resume.
func (p *proxy) stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stalled == nil {
		p.stalled = make(chan struct{})
	}
}

func (p *proxy) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stalled != nil {
		close(p.stalled)
		p.stalled = nil
	}
}

// cut closes every connection.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

func open(t testing.TB, url string) *valkey.Fabric {
	t.Helper()
	f, err := valkey.Open(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func limit(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// wantGivenUp: an operation that nothing answers has ended, at its deadline, or before it where the connection broke.
// When it came back is the machine's: that it did is what is tested.
func wantGivenUp(t testing.TB, err error, atDeadline bool) {
	t.Helper()
	if !errors.Is(err, fabric.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) != atDeadline {
		t.Fatalf("error is %v, want unavailable, by its deadline: %v", err, atDeadline)
	}
}

func writeFile(t testing.TB, name string, b []byte) string {
	p := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(p, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}
