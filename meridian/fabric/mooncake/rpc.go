package mooncake

import (
	"context"
	"crypto/md5"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/meridian/fabric/internal/fault"
)

// A call of coro_rpc. The header of a request is 20 bytes: magic, version, serialization, type (a byte each), sequence
// number, function, length of the body, length of an attachment. That of an answer is 16: magic, version, error, type,
// sequence number, length, length of an attachment. Numbers are little-endian.
const (
	rpcMagic        = 0x15
	requestBytes    = 20
	answerBytes     = 16
	maxAnswer       = 1 << 20 // an answer has no value of the store in it
	maxErrorMessage = 300     // of a message that the master chose
)

// function returns the number of a method of the master: the first bytes of its name's MD5.
func function(method string) uint32 {
	sum := md5.Sum([]byte("mooncake::WrappedMasterService::" + method))
	return binary.BigEndian.Uint32(sum[:])
}

// appendRequest appends a request frame.
func appendRequest(dst []byte, sequence uint32, method string, body []byte) []byte {
	le := binary.LittleEndian
	dst = append(dst, rpcMagic, 0, 0, 0)
	dst = le.AppendUint32(dst, sequence)
	dst = le.AppendUint32(dst, function(method))
	dst = le.AppendUint32(dst, uint32(len(body)))
	dst = le.AppendUint32(dst, 0)
	return append(dst, body...)
}

// answerHeader is the checked header of an answer.
type answerHeader struct {
	failed   bool // the body is a message that says why the call was not made
	code     uint8
	sequence uint32
	length   int
}

func parseAnswerHeader(b []byte) (answerHeader, error) {
	if len(b) != answerBytes || b[0] != rpcMagic {
		return answerHeader{}, fmt.Errorf("%w: the master does not speak coro_rpc: its answer begins with % x",
			fault.ErrUnavailable, b[:min(len(b), 4)])
	}
	le := binary.LittleEndian
	length, attached := le.Uint32(b[8:]), le.Uint32(b[12:])
	if length > maxAnswer || attached != 0 {
		return answerHeader{}, fmt.Errorf("%w: the master answers %d bytes and %d attached, the limit is %d and 0",
			fault.ErrUnavailable, length, attached, maxAnswer)
	}
	return answerHeader{b[2] != 0, b[2], le.Uint32(b[4:]), int(length)}, nil
}

// errRefused: the master has no such method with such a signature.
var errRefused = errors.New("the master refuses the call")

// master calls the master, each call on a connection that no other call uses meanwhile.
type master struct {
	address string
	timeout time.Duration // to connect

	mu       sync.Mutex
	idle     []net.Conn
	closed   bool
	sequence uint32
	checked  bool // the version is one that this package knows
}

const maxIdle = 4

// call returns the body of an answer. A connection that broke while it was idle costs a second attempt.
func (m *master) call(ctx context.Context, method string, body []byte) ([]byte, error) {
	for {
		c, fresh, err := m.conn(ctx)
		if err != nil {
			return nil, err
		}
		m.mu.Lock()
		m.sequence++
		sequence := m.sequence
		m.mu.Unlock()
		answer, err := exchange(ctx, c, sequence, method, body)
		if err == nil || errors.Is(err, errRefused) {
			m.put(c)
			return answer, err
		}
		c.Close()
		if fresh || ctx.Err() != nil {
			return nil, unavailable(ctx, fmt.Errorf("%s of master %s: %w", method, m.address, err))
		}
	}
}

func exchange(ctx context.Context, c net.Conn, sequence uint32, method string, body []byte) ([]byte, error) {
	s, stop := attend(ctx, c)
	defer stop()
	if _, err := s.Write(appendRequest(nil, sequence, method, body)); err != nil {
		return nil, err
	}
	var b [answerBytes]byte
	if _, err := io.ReadFull(s, b[:]); err != nil {
		return nil, err
	}
	h, err := parseAnswerHeader(b[:])
	if err != nil {
		return nil, err
	}
	answer := make([]byte, h.length)
	if _, err := io.ReadFull(s, answer); err != nil {
		return nil, err
	}
	if h.sequence != sequence {
		return nil, fmt.Errorf("%w: the master answers call %d, not %d", fault.ErrUnavailable, h.sequence, sequence)
	}
	if h.failed {
		return nil, fmt.Errorf("%w: %w: %s: error %d: %.*q", fault.ErrUnavailable, errRefused, method, h.code,
			maxErrorMessage, answer)
	}
	return answer, nil
}

// conn returns an idle connection, or a fresh one.
func (m *master) conn(ctx context.Context) (c net.Conn, fresh bool, err error) {
	m.mu.Lock()
	if n := len(m.idle); n > 0 {
		c, m.idle = m.idle[n-1], m.idle[:n-1]
	}
	m.mu.Unlock()
	if c != nil {
		return c, false, nil
	}
	c, err = dial(ctx, m.address, m.timeout)
	if err != nil {
		return nil, true, unavailable(ctx, fmt.Errorf("master: %w", err))
	}
	return c, true, nil
}

// put keeps a connection for a later call.
func (m *master) put(c net.Conn) {
	m.mu.Lock()
	keep := !m.closed && len(m.idle) < maxIdle
	if keep {
		m.idle = append(m.idle, c)
	}
	m.mu.Unlock()
	if !keep {
		c.Close()
	}
}

func (m *master) close() {
	m.mu.Lock()
	idle := m.idle
	m.closed, m.idle = true, nil
	m.mu.Unlock()
	for _, c := range idle {
		c.Close()
	}
}

func dial(ctx context.Context, address string, timeout time.Duration) (net.Conn, error) {
	d := net.Dialer{Timeout: timeout}
	return d.DialContext(ctx, "tcp", address)
}

const (
	// stallTimeout ends an operation on a connection that makes no progress: the other side is stopped or cut off.
	stallTimeout = 1500 * time.Millisecond
	// burst is the number of bytes transferred under one deadline.
	burst = 1 << 20
)

// stream reads and writes a connection in bursts, each of which has a deadline. It ends with its context.
type stream struct {
	ctx context.Context
	c   net.Conn
}

// attend returns a stream on c. stop must be called before c is used otherwise.
func attend(ctx context.Context, c net.Conn) (s stream, stop func()) {
	ended := make(chan struct{})
	undo := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)); close(ended) })
	return stream{ctx, c}, func() {
		if !undo() {
			<-ended
		}
	}
}

// extend sets the next deadline. The context is asked afterwards, so that its end is not overwritten.
func (s stream) extend() error {
	if err := s.c.SetDeadline(time.Now().Add(stallTimeout)); err != nil {
		return err
	}
	return s.ctx.Err()
}

func (s stream) Read(b []byte) (int, error) {
	if err := s.extend(); err != nil {
		return 0, err
	}
	return s.c.Read(b[:min(len(b), burst)])
}

func (s stream) Write(b []byte) (n int, err error) {
	for n < len(b) {
		if err := s.extend(); err != nil {
			return n, err
		}
		m, err := s.c.Write(b[n:min(n+burst, len(b))])
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// unavailable makes err one of package fabric, and names the end of ctx if that was the reason.
func unavailable(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	if errors.Is(err, fault.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", fault.ErrUnavailable, err)
}
