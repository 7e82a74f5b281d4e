// Package client speaks the framed protocol of uma-serve over its Unix socket.
//
//	c, err := client.Dial(ctx, socket)
//	req := wire.DefaultRequest()
//	req.Prompt = "Hello"
//	s, err := c.Generate(ctx, &req)
//	for {
//		ev, err := s.Next()
//		if err != nil { … }            // the daemon's refusal (*ServerError), a broken connection, ctx's end
//		if ev.Kind == wire.EventToken { os.Stdout.Write(ev.Token.Text) }
//		if ev.Kind == wire.EventEOS { break }
//	}
//
// # Several requests on one connection
//
// Any number of requests may be in flight; the daemon's events carry their ids. A Client and its Streams are safe for
// concurrent use; one Stream is used by one goroutine at a time.
//
// # Who reads
//
// There is no reader goroutine. The goroutine that waits for an event reads the socket itself, so with one stream a
// token costs one read and no hand-over between threads, and those threads are the engine's (the daemon decodes on
// every core of this machine). With several streams the first one that waits holds the reading; a frame that
// belongs to another is appended to that stream's pending bytes and its goroutine woken. What nobody waits for is
// not read: the daemon's own bounded ring then holds it back.
//
// # Caveats
//
// The slices of an event are valid until the next call of the same Stream's Next. A Stream that is given up must be
// cancelled (its context, or Cancel), otherwise its frames are kept for it while others read.
package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

var (
	// ErrNoDaemon: nothing answers on the socket.
	ErrNoDaemon = errors.New("no uma-serve daemon answers")
	// ErrClosed: the connection ended before the answer did, or Close was called.
	ErrClosed = errors.New("the connection to the daemon is closed")
)

// ServerError is an error event: the daemon refused or failed the request.
type ServerError wire.Error

// Error is the code and the daemon's sentence.
func (e *ServerError) Error() string { return string(e.Code) + ": " + e.Message }

// Client is one connection to the daemon. Create it with Dial.
type Client struct {
	conn net.Conn

	// reading holds one token. Whoever took it may call fill and use in.
	reading chan struct{}
	in      inbox // owned by the holder of the reading token

	mu struct {
		sync.Mutex
		leader  *Stream            // who holds the reading token, nil = nobody. Invariant: only that Stream's interrupt touches the read deadline.
		streams map[string]*Stream // by id, from Generate to the end event
		uid     uint64             // the last id made up
		err     error              // why the connection is of no more use; nil = it works
	}

	w struct {
		sync.Mutex
		buf []byte
	}
}

// Dial connects to the daemon's socket. The error wraps ErrNoDaemon when nothing listens there.
func Dial(ctx context.Context, socket string) (*Client, error) {
	conn, err := dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	return newClient(conn), nil
}

func newClient(conn net.Conn) *Client {
	c := &Client{conn: conn, reading: make(chan struct{}, 1)}
	c.mu.streams = make(map[string]*Stream)
	c.reading <- struct{}{}
	return c
}

// dial says in words what is wrong with the path; the system's own errors for sockets rarely do.
func dial(ctx context.Context, socket string) (net.Conn, error) {
	if socket == "" {
		return nil, errors.New("connect: the socket path is empty")
	}
	if limit := len(syscall.RawSockaddrUnix{}.Path) - 1; len(socket) > limit {
		return nil, fmt.Errorf("connect to %s: a socket path holds at most %d bytes on this system, this one has %d; use a shorter one",
			socket, limit, len(socket))
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	switch {
	case err == nil:
		return conn, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("connect to %s: %w", socket, context.Cause(ctx))
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w on %s: there is no such socket", ErrNoDaemon, socket)
	case errors.Is(err, syscall.ECONNREFUSED):
		if st, serr := os.Stat(socket); serr == nil && st.Mode()&fs.ModeSocket == 0 {
			return nil, fmt.Errorf("connect to %s: not a socket", socket)
		}
		return nil, fmt.Errorf("%w on %s: the socket is there, but nobody listens (the daemon has ended)", ErrNoDaemon, socket)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("connect to %s: permission denied; the daemon's --socket-mode and --socket-group say who may", socket)
	}
	return nil, fmt.Errorf("connect to %s: %w", socket, err)
}

// Close ends the connection; the daemon cancels what runs on it. Streams return ErrClosed.
func (c *Client) Close() error {
	c.fail(ErrClosed)
	return c.conn.Close()
}

// Err is why the connection is of no more use, nil while it works.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.err
}

// fail marks the connection as broken and wakes everybody who waits on it.
func (c *Client) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.err != nil {
		return
	}
	c.mu.err = err
	for _, s := range c.mu.streams {
		s.wakeUp()
	}
}

// serverDefaults is what a request need not say.
var serverDefaults = wire.DefaultRequest()

// Generate sends a request, usually made from wire.DefaultRequest. An empty r.ID is replaced by one that is unique on this connection; r itself is not kept.
// The end of ctx cancels the request on the daemon, too.
func (c *Client) Generate(ctx context.Context, r *wire.Request) (*Stream, error) {
	s, err := c.start(ctx, r.ID, func(dst []byte, id string) []byte {
		req := *r
		req.ID = id
		return wire.AppendRequest(dst, &req, &serverDefaults)
	})
	if err != nil {
		return nil, fmt.Errorf("generate: %w", err)
	}
	return s, nil
}

// start puts a stream on the list of those in flight and sends its frame. An empty id is made up.
func (c *Client) start(ctx context.Context, id string, appendFrame func(dst []byte, id string) []byte) (*Stream, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	s := newStream(c, ctx)
	c.mu.Lock()
	if err := c.mu.err; err != nil {
		c.mu.Unlock()
		return nil, err
	}
	if c.mu.streams[id] != nil {
		c.mu.Unlock()
		return nil, fmt.Errorf("request id %q is already in flight on this connection", id)
	}
	for id == "" || c.mu.streams[id] != nil {
		c.mu.uid++
		id = "r" + strconv.FormatUint(c.mu.uid, 10)
	}
	s.id = id
	c.mu.streams[id] = s
	c.mu.Unlock()

	if err := c.send(ctx, func(dst []byte) []byte { return appendFrame(dst, id) }); err != nil {
		c.mu.Lock()
		delete(c.mu.streams, id)
		c.mu.Unlock()
		return nil, err
	}
	s.watch()
	return s, nil
}

// send writes one frame. A frame that got out in part leaves the connection unusable.
func (c *Client) send(ctx context.Context, appendFrame func([]byte) []byte) error {
	c.w.Lock()
	defer c.w.Unlock()
	if err := c.Err(); err != nil {
		return err
	}
	frame := appendFrame(c.w.buf[:0])
	if cap(frame) <= 1<<20 {
		c.w.buf = frame
	}
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, func() { c.conn.SetWriteDeadline(time.Unix(1, 0)) })
		defer func() {
			if !stop() {
				c.conn.SetWriteDeadline(time.Time{})
			}
		}()
	}
	n, err := c.conn.Write(frame)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
		if n == 0 {
			return err
		}
	} else if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		err = c.lastWords()
	}
	c.fail(err)
	return err
}

// lastWords is why the daemon has closed the connection: the error it sent before it did (E_LIMIT_SESSIONS, say), or
// ErrClosed. Somebody who is reading already comes upon that error himself.
func (c *Client) lastWords() error {
	select {
	case <-c.reading:
		defer func() { c.reading <- struct{}{} }()
	default:
		return ErrClosed
	}
	var p wire.Parser
	var ev wire.Event
	for {
		frame, err := c.in.next()
		if err == nil && frame == nil {
			err = c.in.fill(c.conn) // does not wait: the other end is closed
		} else if err == nil && p.ParseEvent(frame, &ev) == nil && ev.Kind == wire.EventError && ev.ID == "" {
			failure := ServerError(ev.Error)
			return &failure
		}
		if err != nil {
			return ErrClosed
		}
	}
}

// EndThink asks the daemon to end the thinking of request id, which then answers. Nothing happens to a request that is
// past thinking, or not in flight.
func (c *Client) EndThink(id string) error {
	return c.send(context.Background(), func(dst []byte) []byte { return wire.AppendEndThink(dst, id) })
}

// Cancel asks the daemon to end request id; its stream then ends with reason "cancelled". An id that is not in
// flight is no error: the answer may have ended a moment ago.
func (c *Client) Cancel(id string) error {
	return c.send(context.Background(), func(dst []byte) []byte { return wire.AppendCancel(dst, id) })
}
