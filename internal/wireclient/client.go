package wireclient

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/uma-serve/uma-serve/internal/host/sockpath"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/frames"
)

var (
	// ErrNoDaemon reports that no daemon listens on the socket.
	ErrNoDaemon = errors.New("no uma-serve daemon answers")
	// ErrClosed reports that the connection ended before the answer did, or that Client.Close was called.
	ErrClosed = errors.New("the connection to the daemon is closed")
	// ErrStreamClosed is the error of Stream.Next after Stream.Close.
	ErrStreamClosed = errors.New("the stream is closed")
)

// ServerError reports that the daemon refused or failed a request. Code is one of wire.Codes; docs/protocol.md says for
// each what a client should do. RetryAfter is 0 when the daemon suggests no time.
type ServerError wire.Error

// Error returns the code and the daemon's message.
func (e *ServerError) Error() string { return string(e.Code) + ": " + e.Message }

// Client is one connection to the daemon. Create it with Dial.
type Client struct {
	conn   net.Conn
	socket string // path that conn is connected to

	// reading holds one token. The goroutine that took it may call fill and use in.
	reading chan struct{}
	in      inbox // owned by the holder of the reading token

	mu struct {
		sync.Mutex
		// leader is the stream that holds the reading token, or nil. Invariant: only the leader's interrupt touches the
		// read deadline.
		leader  *Stream
		streams map[string]*Stream // by id, from the request to the end event
		uid     uint64             // the last generated id
		err     error              // the error that made the connection unusable; nil = it works
	}

	w struct {
		sync.Mutex
		buf []byte
	}
}

// DefaultSocket returns the path that Dial uses for "": $UMA_HOST (unix:///path), else $UMA_SOCKET, else the daemon's
// default, which is $XDG_RUNTIME_DIR/uma-serve/uma.sock on most systems. It fails when UMA_HOST is not a unix:// URL of
// an absolute path.
func DefaultSocket() (string, error) { return defaultSocket(os.Getenv) }

func defaultSocket(getenv func(string) string) (string, error) {
	if host := getenv("UMA_HOST"); host != "" {
		path, ok := strings.CutPrefix(host, "unix://")
		if !ok || !strings.HasPrefix(path, "/") {
			return "", fmt.Errorf("UMA_HOST is %q; it must be unix:///path/of/the/socket", host)
		}
		return path, nil
	}
	if path := getenv("UMA_SOCKET"); path != "" {
		return path, nil
	}
	return sockpath.Default(), nil
}

// Dial connects to the daemon that listens on socket, or on DefaultSocket if socket is "". The error wraps ErrNoDaemon
// when no daemon listens there. ctx bounds the connecting alone.
func Dial(ctx context.Context, socket string) (*Client, error) {
	if socket == "" {
		var err error
		if socket, err = DefaultSocket(); err != nil {
			return nil, err
		}
	}
	conn, err := Connect(ctx, socket)
	if err != nil {
		return nil, err
	}
	return New(conn, socket), nil
}

// New returns a client on a connection to the daemon that listens on socket.
func New(conn net.Conn, socket string) *Client {
	c := &Client{conn: conn, socket: socket, reading: make(chan struct{}, 1)}
	c.mu.streams = make(map[string]*Stream)
	c.reading <- struct{}{}
	return c
}

// Connect is Dial without frames. It replaces the system's terse errors for sockets by sentences that name the cause.
func Connect(ctx context.Context, socket string) (net.Conn, error) {
	if limit := len(syscall.RawSockaddrUnix{}.Path) - 1; len(socket) > limit {
		return nil, fmt.Errorf("connect to %s: a socket path holds at most %d bytes on this system, this one has %d; "+
			"use a shorter one", socket, limit, len(socket))
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
		return nil, fmt.Errorf("%w on %s: the socket is there, but no process listens (the daemon has ended)",
			ErrNoDaemon, socket)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("connect to %s: permission denied; the daemon's --socket-mode and --socket-group "+
			"decide "+
			"which users may connect", socket)
	}
	return nil, fmt.Errorf("connect to %s: %w", socket, err)
}

// Socket returns the path of the socket.
func (c *Client) Socket() string { return c.socket }

// Close ends the connection, and the daemon cancels its requests. Their streams return ErrClosed.
func (c *Client) Close() error {
	c.fail(ErrClosed)
	return c.conn.Close()
}

// Err returns the error that made the connection unusable, or nil while it works.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.err
}

// fail marks the connection as broken and wakes all waiting streams.
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

// serverDefaults are the values that a request omits.
var serverDefaults = wire.DefaultRequest()

// Stream sends a request and returns the stream of its events. An empty r.ID is replaced by one that is unique on this
// connection. Stream does not keep r. When ctx ends, the daemon cancels the request and the stream returns ctx's cause.
func (c *Client) Stream(ctx context.Context, r *wire.Request) (*Stream, error) {
	return c.StreamFiles(ctx, r)
}

// StreamFiles is Stream for a request whose pictures and sounds are in open files: "fd:0" is the first of them. The
// daemon reads them from their beginnings; they stay the caller's, who may close them when StreamFiles returns.
func (c *Client) StreamFiles(ctx context.Context, r *wire.Request, files ...*os.File) (*Stream, error) {
	s, err := c.Start(ctx, r.ID, files, func(dst []byte, id string) []byte {
		req := *r
		req.ID = id
		return frames.AppendRequest(dst, &req, &serverDefaults)
	})
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	return s, nil
}

// Chat sends a request and waits for the complete answer. It does not keep or change r, and ignores r.Stream. Errors
// are those of Stream.Next.
func (c *Client) Chat(ctx context.Context, r *wire.Request) (*wire.EOS, error) {
	whole := *r
	whole.Stream, whole.Progress = false, false
	s, err := c.Stream(ctx, &whole)
	if err != nil {
		return nil, err
	}
	return s.Rest()
}

// Start sends the frame of a request whose id is id, or a new one if that is "", and returns the stream of its events.
func (c *Client) Start(
	ctx context.Context, id string, files []*os.File, appendFrame func(dst []byte, id string) []byte,
) (*Stream, error) {
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

	if err := c.send(ctx, files, func(dst []byte) []byte { return appendFrame(dst, id) }); err != nil {
		c.mu.Lock()
		delete(c.mu.streams, id)
		c.mu.Unlock()
		return nil, err
	}
	s.watch()
	return s, nil
}

// send writes one frame, with files. A frame that was written in part leaves the connection unusable.
func (c *Client) send(ctx context.Context, files []*os.File, appendFrame func([]byte) []byte) error {
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
	n, err := c.write(frame, files)
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

// write writes a frame with the descriptors of files. They go with its first bytes, and no call writes bytes of two
// frames, so that the daemon knows whose they are.
func (c *Client) write(frame []byte, files []*os.File) (n int, err error) {
	if len(files) > 0 {
		if n, err = writeRights(c.conn, frame, files); err != nil {
			return n, err
		}
	}
	if n == len(frame) {
		return n, nil
	}
	m, err := c.conn.Write(frame[n:])
	return n + m, err
}

// lastWords returns the reason why the daemon has closed the connection: the error that it sent before (such as
// E_LIMIT_SESSIONS), or ErrClosed. A goroutine that is reading already finds that error itself.
func (c *Client) lastWords() error {
	select {
	case <-c.reading:
		defer func() { c.reading <- struct{}{} }()
	default:
		return ErrClosed
	}
	var p frames.Parser
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

// EndThink asks the daemon to end the thinking of request id and to begin the answer. The daemon ignores it for a
// request that no longer thinks or is not in flight.
func (c *Client) EndThink(ctx context.Context, id string) error {
	return c.send(ctx, nil, func(dst []byte) []byte { return frames.AppendEndThink(dst, id) })
}

// Cancel asks the daemon to end request id; its stream then ends with the reason wire.Cancelled. An id that is not in
// flight is no error: the answer may have ended a moment ago.
func (c *Client) Cancel(ctx context.Context, id string) error {
	return c.send(ctx, nil, func(dst []byte) []byte { return frames.AppendCancel(dst, id) })
}
