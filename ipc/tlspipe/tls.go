// Package tlspipe ends TLS before the poller. A Loop (package ipc) serves descriptors: it gets one end of a socket
// pair, and two goroutines copy between the other end and the client. Limits, pauses and the way to an engine process
// stay those of any connection.
package tlspipe

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/ipc/sys"
	"golang.org/x/sys/unix"
)

const (
	// handshakeTimeout is the most time from the accept to the end of a handshake.
	handshakeTimeout = 10 * time.Second
	// tlsStall ends a connection whose client reads nothing of what it was sent for so long. The Loop's own limits on
	// slow readers count from the time when the socket pair is full.
	tlsStall = time.Minute
	tlsChunk = 16 << 10 // bytes: the most of a TLS record
	// tlsQuiet is the time without input after which an answered connection is closed.
	tlsQuiet = 500 * time.Millisecond
)

// TLS ends TLS for TCP listeners.
type TLS struct {
	config *tls.Config
	most   int64 // connections at a time, in handshakes too

	open      atomic.Int64
	outcomes  [numHandshakes]atomic.Uint64
	connected sync.WaitGroup
}

// Handshake is the outcome of a TLS handshake; its String is a metric label.
type Handshake uint8

const (
	// HandshakeDone: the connection is served.
	HandshakeDone Handshake = iota
	// HandshakePlain: the client did not speak TLS.
	HandshakePlain
	// HandshakeLate: it took longer than handshakeTimeout.
	HandshakeLate
	// HandshakeFailed: the two found no common version, or the client refused the certificate or left.
	HandshakeFailed
	// HandshakeRefused: too many connections were open.
	HandshakeRefused

	numHandshakes
)

var handshakeNames = [numHandshakes]string{"ok", "plain", "timeout", "failed", "refused"}

func (h Handshake) String() string { return handshakeNames[h] }

// Handshakes returns all outcomes, for metrics.
func Handshakes() []Handshake {
	return []Handshake{HandshakeDone, HandshakePlain, HandshakeLate, HandshakeFailed, HandshakeRefused}
}

// New ends TLS by a configuration, which must have a certificate, for at most so many connections at a time.
func New(c *tls.Config, connections int) *TLS {
	c = c.Clone()
	c.NextProtos = []string{"http/1.1"}
	return &TLS{config: c, most: int64(connections)}
}

// Count returns how many handshakes had an outcome. Safe from any goroutine.
func (t *TLS) Count(h Handshake) uint64 { return t.outcomes[h].Load() }

// Connections returns how many clients are connected, those in a handshake included. Safe from any goroutine.
func (t *TLS) Connections() int64 { return t.open.Load() }

// Wait waits, for at most d, until everything that was sent has reached the clients' sockets. The Loop must have ended.
func (t *TLS) Wait(d time.Duration) {
	done := make(chan struct{})
	go func() {
		t.connected.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(d):
	}
}

// Wrap takes over the descriptor of a client and returns one that speaks plain text. Once the Loop has closed that one,
// the client has closeWithin to read its last answer. On an error fd is still the caller's.
func (t *TLS) Wrap(fd int, closeWithin time.Duration) (plain int, err error) {
	if t.Connections() >= t.most {
		t.outcomes[HandshakeRefused].Add(1)
		return -1, unix.ENOTCONN
	}
	ours, theirs, err := sys.SocketPair()
	if err != nil {
		return -1, err
	}
	client, err := sys.NetConn(fd)
	if err != nil {
		unix.Close(ours)
		unix.Close(theirs)
		return -1, err
	}
	f := os.NewFile(uintptr(theirs), "plain text")
	pipe, err := net.FileConn(f)
	f.Close()
	if err != nil {
		client.Close()
		unix.Close(ours)
		return -1, err
	}
	unix.Close(fd)
	t.open.Add(1)
	t.connected.Add(1)
	go func() {
		defer t.connected.Done()
		defer t.open.Add(-1)
		t.serve(client, pipe.(*net.UnixConn), closeWithin)
	}()
	return ours, nil
}

func (t *TLS) serve(client net.Conn, pipe *net.UnixConn, closeWithin time.Duration) {
	defer client.Close()
	defer pipe.Close()
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTimeout)
	defer cancel()
	c := tls.Server(client, t.config)
	// The Loop ends a connection by closing its end: a client must not hold a handshake for longer.
	if err := c.HandshakeContext(ctx); err != nil {
		t.refuse(ctx, err)
		return
	}
	t.outcomes[HandshakeDone].Add(1)
	cancel()
	var until atomic.Int64 // when the connection is closed, in Unix nanoseconds; 0: not yet known
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if !toPlain(pipe, c, &until) {
			pipe.Close()
		}
	}()
	if !toClient(c, client, pipe) {
		return
	}
	_ = c.CloseWrite() // fails when the client has left
	// Closing a socket with unread input discards what it has not sent yet, such as a refusal of an upload.
	now := time.Now()
	until.Store(now.Add(closeWithin).UnixNano())
	_, _ = client.SetReadDeadline(now.Add(tlsQuiet)), pipe.SetWriteDeadline(now.Add(closeWithin))
	<-ended
}

// toPlain copies what the client sends, and discards it once the Loop takes no more: its answer may still be on the
// way. It returns false if the client has left without saying so: nothing that is computed for it is read.
func toPlain(pipe *net.UnixConn, c *tls.Conn, until *atomic.Int64) bool {
	buf := make([]byte, tlsChunk)
	taken := true
	for {
		n, err := c.Read(buf)
		if n > 0 && taken {
			_, werr := pipe.Write(buf[:n])
			taken = werr == nil
		}
		if by := until.Load(); by != 0 && n > 0 {
			_ = c.SetReadDeadline(time.Unix(0, min(by, time.Now().Add(tlsQuiet).UnixNano())))
		}
		if errors.Is(err, io.EOF) {
			_ = pipe.CloseWrite()
			return true
		}
		if err != nil {
			return false
		}
	}
}

// toClient copies what the Loop sends, until its end is closed; false: the client does not take it.
func toClient(c *tls.Conn, client net.Conn, pipe *net.UnixConn) bool {
	buf := make([]byte, tlsChunk)
	for {
		n, err := pipe.Read(buf)
		if n > 0 {
			_ = client.SetWriteDeadline(time.Now().Add(tlsStall))
			if _, werr := c.Write(buf[:n]); werr != nil {
				return false
			}
		}
		if err != nil {
			return true
		}
	}
}

// notTLS answers a client that speaks HTTP.
const notTLS = "HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n" +
	"uma-serve speaks TLS here (--tls-cert): use https:// in place of http://\n"

// refuse counts a handshake that has failed, and tells clients that do not speak TLS.
func (t *TLS) refuse(ctx context.Context, err error) {
	if head, ok := errors.AsType[tls.RecordHeaderError](err); ok && head.Conn != nil {
		t.outcomes[HandshakePlain].Add(1)
		if first := string(head.RecordHeader[:]); strings.ContainsAny(first[:1], "GPDHOCT") { // a method of HTTP
			_ = head.Conn.SetDeadline(time.Now().Add(time.Second))
			_, _ = io.WriteString(head.Conn, notTLS)
			if half, ok := head.Conn.(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite()
			}
			_, _ = io.CopyN(io.Discard, head.Conn, 1<<16) // unread bytes would reset the connection
		}
		return
	}
	if ctx.Err() != nil {
		t.outcomes[HandshakeLate].Add(1)
		return
	}
	t.outcomes[HandshakeFailed].Add(1)
}
