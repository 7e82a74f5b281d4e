package valkey_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/meridian/fabric"
	"github.com/uma-serve/uma-serve/meridian/fabric/valkey"
)

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
