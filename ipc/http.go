package ipc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/daemon/shm/connstate"
	"github.com/uma-serve/uma-serve/ipc/share"
	"github.com/uma-serve/uma-serve/ipc/sys"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// HTTP returns the listener for an http.Server of the connections that speak HTTP. The server's ConnContext must be
// [ConnContext], its ConnState [ConnState]. Each connection counts as a session until it is closed. Accept fails when
// the Loop has ended.
func (l *Loop) HTTP() net.Listener { return l.http }

// handOver passes c to the http.Server; in is its input read so far.
func (l *Loop) handOver(c *Conn, in []byte) {
	nc, err := sys.NetConn(c.fd)
	if (errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)) && len(l.reserves) >= handOverReserve {
		for range handOverReserve {
			l.giveReserve()
		}
		nc, err = sys.NetConn(c.fd)
		l.openReserves()
	}
	if err != nil {
		l.stats.IOErrors.Add(1)
		l.stats.Refused[NoDescriptor].Add(1)
		e := noDescriptor()
		c.Reply(appendHTTPError(nil, &e))
		c.mu.Lock()
		c.end(whenSent, IOError)
		c.mu.Unlock()
		return
	}
	hc := &httpConn{Conn: nc, id: c.id, head: bytes.Clone(in), peer: c.peer, holder: c.peer.holder(), loop: l,
		home: c.home, state: c.state, own: c.own || l.cfg.Router != nil}
	if c.home != nil {
		if hc.raw, err = rawConn(nc); err != nil {
			l.stats.IOErrors.Add(1)
			nc.Close()
			l.close(c, IOError)
			return
		}
	}
	hc.state.Set(connstate.State{Phase: connstate.Reading})
	l.stats.HTTPOpened.Add(1)
	l.stats.HTTP.Add(1)
	c.mu.Lock()
	fd, watched := c.fd, c.interest
	c.gone, c.fd = true, -1
	c.mu.Unlock()
	l.forget(c, fd, watched)
	l.shares.Replace(hc.holder, c, hc)
	if !l.http.offer(hc) {
		hc.Close()
	}
}

// httpConn is an HTTP connection, including the input that the Loop has read.
type httpConn struct {
	net.Conn
	id   uint64
	peer Peer
	loop *Loop
	once sync.Once

	// Of a connection that a front has passed; constant.
	home  *Link
	state *connstate.Slot
	raw   syscall.RawConn // of Conn; nil without home
	told  atomic.Bool     // the front has heard what became of it

	// Owned by the goroutine of net/http that reads.
	head   []byte        // input that the Loop read
	begun  bool          // a part of a header has arrived
	past   bool          // the header is complete; the input belongs to the body
	own    bool          // the first request is for this process, as the front has decided; the handler's from then on
	after  atomic.Uint32 // the connstate.Phase that holds when the answer's first bytes are written
	leaves atomic.Bool   // goes back to the front instead of being closed

	answering atomic.Bool // from Busy until net/http has written the answer
	away      atomic.Bool // displaced: ends with the current answer
	over      atomic.Bool // farewell writes the last response; net/http must not write
	parting   atomic.Bool // displace closes the descriptor; net/http's Close must not

	mu     sync.Mutex
	cancel context.CancelCauseFunc // ends the request in flight; nil if there is none
	holder share.Holder            // of the session
}

// ID returns the session's number in logs.
func (c *httpConn) ID() uint64 { return c.id }

// Idle reports whether c has no request in flight; a request with an incomplete body is not in flight.
func (c *httpConn) Idle() bool { return !c.answering.Load() }

// Read hides a shutdown of the client's write side while a request is in flight. net/http then reads one byte ahead
// (its only read of one byte) and cancels the request at the end of the stream. A client that has shut down its write
// side still wants its answer; awaitHangUp waits until it has closed the socket.
func (c *httpConn) Read(b []byte) (int, error) {
	if len(c.head) > 0 {
		n := copy(b, c.head)
		if c.head = c.head[n:]; len(c.head) == 0 {
			c.head = nil
		}
		if !c.past {
			c.begun = true
		}
		return n, nil
	}
	if c.over.Load() || c.away.Load() && len(b) > 1 || c.leaves.Load() && !c.begun && len(b) > 1 {
		return 0, io.EOF
	}
	n, err := c.Conn.Read(b)
	c.loop.stats.RxBytes.Add(uint64(n))
	if n > 0 && !c.past {
		if !c.begun {
			c.state.Set(connstate.State{Phase: connstate.Reading})
		}
		c.begun = true
	}
	switch {
	case err == io.EOF && len(b) == 1 && !c.peer.TCP(): // over TCP both cases look the same: cancel
		if werr := c.awaitHangUp(); werr != nil {
			return 0, werr
		}
	case errors.Is(err, os.ErrDeadlineExceeded) && c.begun && c.leaves.Load() && !c.answering.Load():
		_ = c.SetReadDeadline(time.Time{}) // set by returnIdle, when the request had not begun yet
		return c.Read(b)
	case errors.Is(err, os.ErrDeadlineExceeded) && c.begun:
		c.tooSlow()
	}
	return n, err
}

// awaitHangUp waits until the client has closed the socket. It returns an error if the read is interrupted before.
func (c *httpConn) awaitHangUp() error {
	sc, ok := c.Conn.(syscall.Conn)
	if !ok {
		return nil
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	return rc.Read(func(fd uintptr) bool { return closedByPeer(int(fd)) })
}

// closedByPeer reports whether the peer has closed both directions of a socket. It polls for output: with input, some
// systems report a peer that has shut down one direction in the same way.
func closedByPeer(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	n, err := unix.Poll(p, 0)
	return err == nil && n > 0 && p[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0
}

// tooSlow answers a client whose header is incomplete after the timeout. net/http would close the connection without an
// answer.
func (c *httpConn) tooSlow() {
	c.loop.stats.countProtocolError(wire.Timeout)
	c.farewell(headerTimeout())
}

// headerTimeout returns the error of a request whose header is incomplete after Config.HeaderTimeout.
func headerTimeout() *wire.Error {
	return &wire.Error{Code: wire.Timeout, Message: "the request's header did not arrive in time"}
}

// Write drops the output of net/http after the last response.
func (c *httpConn) Write(b []byte) (int, error) {
	if c.over.Load() {
		return 0, net.ErrClosed
	}
	var n int
	var err error
	if c.state != nil {
		n, err = c.writePassed(b)
	} else {
		n, err = c.Conn.Write(b)
	}
	c.loop.stats.TxBytes.Add(uint64(n))
	return n, err
}

// farewell writes e as the last response, within farewellWithin.
func (c *httpConn) farewell(e *wire.Error) {
	c.over.Store(true)
	_ = c.SetWriteDeadline(time.Now().Add(farewellWithin))
	n, _ := c.Conn.Write(appendHTTPError(nil, e))
	c.loop.stats.TxBytes.Add(uint64(n))
}

// farewellWithin is the time limit for writing the last response.
const farewellWithin = 250 * time.Millisecond

// CloseWrite lets net/http end a response before it closes.
func (c *httpConn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}

func (c *httpConn) Close() error {
	c.once.Do(c.uncount)
	if c.parting.Load() {
		return nil
	}
	return c.end()
}

// ErrDisplaced is the context's cause for a request whose connection is closed in favour of another user's.
var ErrDisplaced = errors.New("the connection makes way for another user's")

// displace ends c: at once without a request in flight, else by cancelling the request with ErrDisplaced. It does not
// block.
func (c *httpConn) displace() {
	c.mu.Lock()
	c.away.Store(true)
	cancel, atOnce := c.cancel, !c.answering.Load()
	c.over.Store(atOnce)
	c.parting.Store(atOnce)
	c.mu.Unlock()
	if atOnce {
		go func() { // the write may block
			e := DisplacedError(c.loop.cfg.MaxSessions)
			c.farewell(&e)
			c.Close()
			_ = c.end()
		}()
		return
	}
	if cancel != nil {
		cancel(ErrDisplaced)
	}
	time.AfterFunc(closeWithin, func() { _ = c.Close() }) // if the client does not read its last answer
}

// Busy marks the connection of ctx as having a request in flight until done is called: it is displaced only if no idle
// one can be. The context that it returns ends with ErrDisplaced if the connection is displaced. ok is false if it has
// been displaced before: then no answer can be sent.
func Busy(ctx context.Context) (busy context.Context, done func(), ok bool) {
	c, known := ctx.Value(connKey{}).(*httpConn)
	if !known {
		return ctx, func() {}, true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.away.Load() {
		return ctx, func() {}, false
	}
	busy, cancel := context.WithCancelCause(ctx)
	c.cancel = cancel
	c.answering.Store(true)
	return busy, func() {
		c.mu.Lock()
		c.cancel = nil
		c.mu.Unlock()
		cancel(nil)
	}, true
}

// ConnState is an http.Server's ConnState for connections of [Loop.HTTP].
func ConnState(nc net.Conn, s http.ConnState) {
	if c, ok := nc.(*httpConn); ok {
		c.begun, c.past = false, s == http.StateActive
		if s == http.StateIdle {
			c.state.Set(connstate.State{Phase: connstate.Resting})
			c.own = false
			c.after.Store(0)
			c.mu.Lock()
			c.answering.Store(false)
			c.mu.Unlock()
		}
	}
}

type connKey struct{}

// ConnContext is an http.Server's ConnContext for connections of [Loop.HTTP]. With it, [PeerOf] returns a
// handler's client.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if hc, ok := c.(*httpConn); ok {
		return context.WithValue(ctx, connKey{}, hc)
	}
	return ctx
}

type peerKey struct{}

// Identified returns a context for the handlers of a request whose client is p, because of an API key in the request.
// The connection counts as a session of p from now on.
func Identified(ctx context.Context, p Peer) context.Context {
	if c, ok := ctx.Value(connKey{}).(*httpConn); ok {
		c.mu.Lock()
		if to := p.holder(); c.loop.shares.Move(c.holder, to, c) {
			c.holder = to
		}
		c.mu.Unlock()
	}
	return context.WithValue(ctx, peerKey{}, p)
}

// PeerOf returns the client of an HTTP request from its context. ok is false for a context of neither [ConnContext] nor
// [Identified].
func PeerOf(ctx context.Context) (p Peer, ok bool) {
	if p, ok := ctx.Value(peerKey{}).(Peer); ok {
		return p, true
	}
	if c, ok := ctx.Value(connKey{}).(*httpConn); ok {
		return c.peer, true
	}
	return Peer{}, false
}

// httpListener is a net.Listener whose connections the Loop has accepted. Its queue is limited by Config.MaxSessions:
// http.Server accepts at once, but a burst of clients is faster than the scheduling of its goroutine.
type httpListener struct {
	ready chan struct{} // capacity 1; signals a waiting connection, or closing
	addr  net.UnixAddr

	mu      sync.Mutex
	waiting []*httpConn            // Invariant: empty once closed is set.
	passed  map[*httpConn]struct{} // of a front, not closed
	closed  bool
}

func newHTTPListener(path string) *httpListener {
	return &httpListener{ready: make(chan struct{}, 1), passed: map[*httpConn]struct{}{},
		addr: net.UnixAddr{Name: path, Net: "unix"}}
}

// offer queues c for Accept. It returns false when the listener is closed.
func (h *httpListener) offer(c *httpConn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.waiting = append(h.waiting, c)
	h.wake()
	if c.home != nil {
		h.passed[c] = struct{}{}
	}
	return true
}

func (h *httpListener) wake() {
	select {
	case h.ready <- struct{}{}:
	default:
	}
}

// take removes the next connection from the queue; nil without an error if none waits.
func (h *httpListener) take() (*httpConn, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		h.wake() // further calls of Accept
		return nil, net.ErrClosed
	}
	if len(h.waiting) == 0 {
		h.waiting = nil // frees the memory of a burst
		return nil, nil
	}
	c := h.waiting[0]
	h.waiting[0] = nil
	h.waiting = h.waiting[1:]
	return c, nil
}

func (h *httpListener) Accept() (net.Conn, error) {
	for {
		if c, err := h.take(); err != nil {
			return nil, err
		} else if c != nil {
			return c, nil
		}
		<-h.ready
	}
}

// Close makes Accept fail and closes the waiting connections.
func (h *httpListener) Close() error {
	h.mu.Lock()
	waiting := h.waiting
	h.waiting, h.closed = nil, true
	h.wake()
	h.mu.Unlock()
	for _, c := range waiting {
		c.Close()
	}
	return nil
}

func (h *httpListener) Addr() net.Addr { return &h.addr }
