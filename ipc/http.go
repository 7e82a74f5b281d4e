package ipc

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// httpBacklog is how many connections may wait for the http.Server to accept them, which it does at once.
const httpBacklog = 128

// HTTP is the listener of the connections that speak HTTP, for an http.Server (set its ConnContext to
// [ConnContext]). Each connection counts as a session until it is closed. Accept fails when the Loop has ended.
func (l *Loop) HTTP() net.Listener { return l.http }

// handOver gives c, of which in was read, to the http.Server.
func (l *Loop) handOver(c *Conn, in []byte) {
	nc, err := netConn(c.fd)
	if err != nil {
		l.stats.IOErrors.Add(1)
		l.close(c, IOError)
		return
	}
	hc := &httpConn{Conn: nc, head: bytes.Clone(in), peer: c.peer, stats: &l.stats}
	l.stats.HTTPOpened.Add(1)
	l.stats.HTTP.Add(1)
	c.mu.Lock()
	fd, watched := c.fd, c.interest
	c.gone, c.fd = true, -1
	c.mu.Unlock()
	l.forget(c, fd, watched)
	if !l.http.offer(hc) {
		hc.Close()
	}
}

// netConn makes a connection of Go's own poller of fd, which stays open beside it.
func netConn(fd int) (net.Conn, error) {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate descriptor: %w", err)
	}
	f := os.NewFile(uintptr(dup), "http")
	defer f.Close()
	return net.FileConn(f)
}

// httpConn is a connection that has been read a little.
type httpConn struct {
	net.Conn
	head  []byte // read before; owned by the reader
	peer  Peer
	stats *Counters
	once  sync.Once
}

func (c *httpConn) Read(b []byte) (int, error) {
	if len(c.head) > 0 {
		n := copy(b, c.head)
		if c.head = c.head[n:]; len(c.head) == 0 {
			c.head = nil
		}
		return n, nil
	}
	return c.Conn.Read(b)
}

// CloseWrite lets net/http end a response before it closes.
func (c *httpConn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}

func (c *httpConn) Close() error {
	c.once.Do(func() {
		c.stats.HTTP.Add(-1)
		c.stats.Sessions.Add(-1)
		c.stats.Closed[ServedHTTP].Add(1)
	})
	return c.Conn.Close()
}

// httpListener is a net.Listener whose connections were accepted elsewhere.
type httpListener struct {
	conns chan *httpConn
	done  chan struct{}
	addr  net.UnixAddr

	mu     sync.Mutex
	closed bool // Invariant: nothing enters conns once this is set.
}

func newHTTPListener(path string) *httpListener {
	return &httpListener{conns: make(chan *httpConn, httpBacklog), done: make(chan struct{}), addr: net.UnixAddr{Name: path, Net: "unix"}}
}

// offer hands c over if there is room. Loop only.
func (h *httpListener) offer(c *httpConn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	select {
	case h.conns <- c:
		return true
	default:
		return false
	}
}

func (h *httpListener) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

// Close makes Accept fail; what waits is closed.
func (h *httpListener) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil
	}
	h.closed = true
	close(h.done)
	for len(h.conns) > 0 {
		select {
		case c := <-h.conns:
			c.Close()
		default: // Accept was faster
		}
	}
	return nil
}

func (h *httpListener) Addr() net.Addr { return &h.addr }
