package ipc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/daemon/shm/connstate"
	"github.com/uma-serve/uma-serve/ipc/poll"
	"github.com/uma-serve/uma-serve/ipc/share"
	"github.com/uma-serve/uma-serve/ipc/sys"
	"github.com/uma-serve/uma-serve/ipc/wire/split"
)

// What an engine process adds to the HTTP connections that its front has passed: the front knows at any time what a
// client could still be told if this process ended, and a request for another process goes back.

// Asked tells the front that the request of ctx is being answered, whose errors its client expects, whether a
// stream would be chunked, and whether it is a question that does not use the model. stream is to be called with the
// answer's media type before its head is written.
func Asked(ctx context.Context, api connstate.API, chunked, question bool) (stream func(mediaType string)) {
	c, ok := ctx.Value(connKey{}).(*httpConn)
	if !ok || c.state == nil {
		return func(string) {}
	}
	st := connstate.State{Phase: connstate.Asked, API: api, Chunked: chunked, Question: question}
	c.after.Store(uint32(connstate.Partial))
	c.state.Set(st)
	return func(mediaType string) {
		switch mediaType {
		case "text/event-stream":
			c.after.Store(uint32(connstate.Events))
		case "application/x-ndjson":
			c.after.Store(uint32(connstate.Values))
		}
	}
}

// Watched is Asked for a live view: no answer that a client waits for, and none that keeps this process from being
// idle. When the process ends, its connection just ends.
func Watched(ctx context.Context) {
	c, ok := ctx.Value(connKey{}).(*httpConn)
	if !ok || c.state == nil {
		return
	}
	c.after.Store(uint32(connstate.Resting))
	c.state.Set(connstate.State{Phase: connstate.Asked, Question: true})
}

// writePassed writes as Conn.Write does, and keeps the state that the front sees true: a write of one event goes out
// whole or not at all, longer ones are marked before they begin. With its first write an answer is taken for begun
// before it is: the client that the write wakes may run first, and see the end of this process before the store that
// would follow.
func (c *httpConn) writePassed(b []byte) (n int, err error) {
	st := c.state.Get()
	if st.Phase == connstate.Asked || st.Phase == connstate.Reading {
		st.Phase = connstate.Phase(c.after.Load())
		if st.Phase == connstate.Idle {
			st.Phase = connstate.Partial
		}
		c.state.Set(st)
	}
	if len(b) > wholeBytes && st.Phase != connstate.Partial {
		c.state.Cut(true)
		if n, err = c.Conn.Write(b); err == nil {
			c.state.Cut(false)
		}
		return n, err
	}
	return c.writeWhole(b)
}

// writeWhole writes b, which the kernel takes at once but for a client that does not read: then the rest is marked.
func (c *httpConn) writeWhole(b []byte) (n int, err error) {
	werr := c.raw.Write(func(fd uintptr) bool {
		k, e := sys.Send(int(fd), b[n:])
		switch e {
		case nil:
			if n += k; n < len(b) {
				c.state.Cut(true)
				return false
			}
			return true
		case unix.EAGAIN:
			return false
		}
		err = e
		return true
	})
	if err == nil {
		err = werr
	}
	if err == nil && n == len(b) {
		c.state.Cut(false)
	}
	return n, err
}

// end closes the connection's descriptor, or gives the connection back to the front.
func (c *httpConn) end() error {
	if c.home == nil {
		return c.Conn.Close()
	}
	if c.leaves.Load() {
		err := c.Conn.Close()
		c.tell(linkBack, nil)
		return err
	}
	// the front has the descriptor too: without this the client would not see the end
	if rc, err := rawConn(c.Conn); err == nil {
		_ = rc.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
	}
	err := c.Conn.Close()
	c.tell(linkGone, []byte{byte(ServedHTTP)})
	return err
}

// tell says once what becomes of the connection. Its state ends before the front hears of it: the front gives its
// number to another one, and a connection that has ended keeps no model busy.
func (c *httpConn) tell(kind LinkKind, body []byte) {
	if !c.told.Swap(true) {
		c.state.Release()
		_ = c.home.Send(kind, c.state.Conn(), -1, body) // fails when the front has ended: then this process does too
	}
}

func rawConn(nc any) (syscall.RawConn, error) {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil, syscall.EINVAL
	}
	return sc.SyscallConn()
}

// Own reports whether the front has decided that the request of ctx is for this process; false also without a front.
func Own(ctx context.Context) bool {
	c, ok := ctx.Value(connKey{}).(*httpConn)
	return ok && c.own
}

// FromFront reports whether the request of ctx came over a connection that a front has passed.
func FromFront(ctx context.Context) bool {
	c, ok := ctx.Value(connKey{}).(*httpConn)
	return ok && c.home != nil
}

// HandBack gives the connection of a request, of which nothing is answered, back to the front with the request, or to
// the Router where this process is the front: its head is written anew from r, and body is the whole body. An error
// leaves the connection as it was.
func HandBack(w http.ResponseWriter, r *http.Request, body []byte) error {
	c, ok := r.Context().Value(connKey{}).(*httpConn)
	if !ok || c.home == nil && c.loop.cfg.Router == nil {
		return fmt.Errorf("hand back a connection: %w", http.ErrNotSupported)
	}
	_, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return fmt.Errorf("hand back a connection: %w", err)
	}
	out := appendHTTPRequest(nil, r, body)
	ahead, _ := rw.Reader.Peek(rw.Reader.Buffered()) // of a next request, which the client has sent already
	out = append(out, ahead...)
	if c.home == nil {
		return c.rejoin(out, nil)
	}
	c.once.Do(c.uncount)
	c.leaves.Store(true)
	err = c.Conn.Close()
	c.tell(linkBack, out)
	return err
}

// HandTo passes the connection of a request without a body, of which nothing is answered, to the process that choose
// names on the Loop's goroutine; nil: the Router is asked. It is for the front's own handlers. An error leaves the
// connection as it was.
func HandTo(w http.ResponseWriter, r *http.Request, choose func(*Conn) *Link) error {
	c, ok := r.Context().Value(connKey{}).(*httpConn)
	if !ok || c.home != nil || c.loop.cfg.Router == nil {
		return fmt.Errorf("hand a connection on: %w", http.ErrNotSupported)
	}
	_, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return fmt.Errorf("hand a connection on: %w", err)
	}
	out := appendHTTPRequest(nil, r, nil)
	ahead, _ := rw.Reader.Peek(rw.Reader.Buffered()) // of a next request, which the client has sent already
	return c.rejoin(append(out, ahead...), choose)
}

// appendHTTPRequest appends a request as its client may have sent it. The body has come whole: what the header said of
// its coming is replaced.
func appendHTTPRequest(dst []byte, r *http.Request, body []byte) []byte {
	out := bytes.NewBuffer(dst)
	fmt.Fprintf(out, "%s %s %s\r\nHost: %s\r\n", r.Method, r.RequestURI, r.Proto, r.Host)
	_ = r.Header.WriteSubset(out, map[string]bool{"Host": true, "Content-Length": true, "Transfer-Encoding": true,
		"Expect": true, "Trailer": true})
	if r.Close && r.Header.Get("Connection") == "" {
		out.WriteString("Connection: close\r\n")
	}
	if len(body) > 0 || r.ContentLength != 0 {
		out.WriteString("Content-Length: " + strconv.Itoa(len(body)) + "\r\n")
	}
	out.WriteString("\r\n")
	out.Write(body)
	return out.Bytes()
}

// find returns the connection with a number of a front's; nil: there is none.
func (h *httpListener) find(k *Link, slot uint32) *httpConn {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.passed {
		if c.home == k && c.state.Conn() == slot {
			return c
		}
	}
	return nil
}

func (h *httpListener) forget(c *httpConn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.passed, c)
}

// returnIdle gives back the idle connections, and the others when they become idle.
func (h *httpListener) returnIdle() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.passed {
		c.leaves.Store(true)
		if c.Idle() {
			_ = c.SetReadDeadline(time.Unix(1, 0)) // ends the wait for a next request, unless one has begun
		}
	}
}

// uncount takes the connection out of what the Loop counts.
func (c *httpConn) uncount() {
	s := &c.loop.stats
	s.HTTP.Add(-1)
	c.mu.Lock()
	holder := c.holder
	c.mu.Unlock()
	if c.loop.shares.Remove(holder, c) {
		s.Sessions.Add(-1)
		s.Closed[ServedHTTP].Add(1)
	}
	c.loop.http.forget(c)
	if c.loop.returning.Load() {
		c.loop.Do(func() {}) // it may have been the last
	}
}

// rejoin makes the connection one of the Loop again: it goes to the process that choose names, or the Router is asked
// about its next request.
func (c *httpConn) rejoin(unread []byte, choose func(*Conn) *Link) error {
	rc, err := rawConn(c.Conn)
	fd := -1
	if err == nil {
		cerr := rc.Control(func(own uintptr) { fd, err = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) })
		err = errors.Join(err, cerr)
	}
	if err != nil {
		c.Close()
		return nil // it is hijacked: nothing can be answered any more
	}
	c.once.Do(func() { c.loop.stats.HTTP.Add(-1) })
	_ = c.Conn.Close()
	l := c.loop
	if !l.Do(func() {
		if err := l.poll.Add(fd, poll.WantRead); err != nil {
			l.stats.IOErrors.Add(1)
			l.shares.Remove(c.held(), c)
			unix.Close(fd)
			return
		}
		again := l.enter(fd, c.peer)
		if !l.shares.Replace(c.held(), c, again) { // it has made way for another user's
			l.close(again, Displaced)
			return
		}
		if choose != nil {
			if k := choose(again); k != nil {
				again.protocol = split.HTTP
				l.pass(again, k, unread)
				return
			}
		}
		l.consume(again, unread)
	}) {
		unix.Close(fd)
	}
	return nil
}

// held returns the holder of the session that the connection counts as.
func (c *httpConn) held() share.Holder {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.holder
}
