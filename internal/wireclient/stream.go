package wireclient

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/frames"
)

// Stream delivers the events of one request, in order. Read it to its end, cancel its context, or Close it.
type Stream struct {
	c      *Client
	id     string
	ctx    context.Context
	unhook func() bool   // removes interrupt from ctx
	wake   chan struct{} // holds a token when s has to look again: pending bytes, an interrupt, a broken connection

	parser frames.Parser // owned by the goroutine in Next
	ev     wire.Event    // the event that Next returned last; its slices point into parser
	frame  []byte        // the pending frame that is being parsed
	end    error         // the error of every further Next; nil while the answer runs
	whole  bool          // ev is the end event

	// Guarded by c.mu.
	pending   []byte // frames another stream's goroutine read for this one: length (4 bytes), payload
	given     int    // pending[:given] is delivered
	cancelled error  // the cause of cancellation: ctx's or ErrStreamClosed. Invariant: pending stays empty.
}

func newStream(c *Client, ctx context.Context) *Stream {
	return &Stream{c: c, ctx: ctx, wake: make(chan struct{}, 1), unhook: func() bool { return true }}
}

// ID returns the request's id.
func (s *Stream) ID() string { return s.id }

// Cancel asks the daemon to end the answer. The caller continues to call Next: it returns the events on their way and
// then the end event, with the reason wire.Cancelled and the usage. Any goroutine may call Cancel.
func (s *Stream) Cancel() error { return s.c.Cancel(context.WithoutCancel(s.ctx), s.id) }

// EndThink asks the daemon to end the thinking of this answer. Any goroutine may call EndThink.
func (s *Stream) EndThink() error { return s.c.EndThink(context.WithoutCancel(s.ctx), s.id) }

// Close cancels the request and drops its remaining events. After the end of the stream it does nothing. It belongs to
// the goroutine that calls Next.
func (s *Stream) Close() error {
	if s.end != nil {
		return nil
	}
	s.finish(ErrStreamClosed)
	s.c.mu.Lock()
	s.cancelled = ErrStreamClosed
	s.pending, s.given = nil, 0
	s.c.mu.Unlock()
	return s.c.Cancel(context.WithoutCancel(s.ctx), s.id)
}

// Rest reads the stream to its end and returns the end event.
func (s *Stream) Rest() (*wire.EOS, error) {
	for !s.whole {
		if _, err := s.Next(); err != nil {
			return nil, err
		}
	}
	return &s.ev.EOS, nil
}

// End returns the end event, with the reason, the usage and the timings, or nil while there is none.
func (s *Stream) End() *wire.EOS {
	if !s.whole {
		return nil
	}
	return &s.ev.EOS
}

// watch makes the end of ctx end the stream.
func (s *Stream) watch() {
	if s.ctx.Done() != nil {
		s.unhook = context.AfterFunc(s.ctx, s.interrupt)
	}
}

// interrupt runs when ctx ends. It makes a waiting Next return, tells the daemon, and drops the request's further
// events.
func (s *Stream) interrupt() {
	c := s.c
	c.mu.Lock()
	if s.cancelled == nil {
		s.cancelled = context.Cause(s.ctx)
	}
	s.pending, s.given = nil, 0
	if c.mu.leader == s {
		c.conn.SetReadDeadline(time.Unix(1, 0))
	}
	s.wakeUp()
	c.mu.Unlock()
	if s.id != "" {
		// An error means that the connection has ended, which cancels the request too.
		_ = c.Cancel(context.Background(), s.id)
	}
}

func (s *Stream) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Next waits for the next event. It returns io.EOF after the end event, *ServerError when the daemon refused or failed
// the request, the context's cause when the context ended, ErrClosed (wrapped) when the connection ended first, and
// ErrStreamClosed after Close. The event and its slices are valid until the next call.
func (s *Stream) Next() (*wire.Event, error) {
	if s.end != nil {
		return nil, s.end
	}
	for {
		if ok, err := s.takePending(); err != nil {
			return nil, s.finish(err)
		} else if ok {
			if err := s.parser.ParseEvent(s.frame, &s.ev); err != nil {
				return nil, s.finish(fmt.Errorf("read: %w", err))
			}
			return s.deliver()
		}
		select {
		case <-s.c.reading:
		case <-s.wake:
			continue
		}
		mine, err := s.lead()
		if err != nil {
			return nil, s.finish(err)
		}
		if mine {
			return s.deliver()
		}
	}
}

// takePending moves the oldest pending frame to s.frame. It returns the error that ended the stream, if any.
func (s *Stream) takePending() (bool, error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.cancelled != nil {
		return false, s.cancelled
	}
	if s.given == len(s.pending) {
		return false, s.c.mu.err
	}
	n := int(binary.LittleEndian.Uint32(s.pending[s.given:]))
	start := s.given + 4
	s.frame = append(s.frame[:0], s.pending[start:start+n]...)
	s.given = start + n
	if s.given == len(s.pending) {
		s.pending, s.given = s.pending[:0], 0
	}
	return true, nil
}

// lead reads the socket for all streams until it finds a frame of s (true), or until s has to look again (false). Its
// caller holds the reading token, and lead returns it.
func (s *Stream) lead() (mine bool, err error) {
	c := s.c
	c.mu.Lock()
	if len(s.pending) > s.given || s.cancelled != nil || c.mu.err != nil {
		// It arrived while s waited for the reading token.
		c.mu.Unlock()
		c.reading <- struct{}{}
		return false, nil
	}
	c.mu.leader = s
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.mu.leader = nil
		if s.cancelled != nil {
			c.conn.SetReadDeadline(time.Time{})
		}
		c.mu.Unlock()
		c.reading <- struct{}{}
	}()

	for {
		frame, err := c.in.next()
		if err == nil && frame == nil {
			if err = c.in.fill(c.conn); err == nil {
				continue
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return false, nil // interrupt
			}
			err = closedError(err)
		}
		if err == nil {
			err = s.parser.ParseEvent(frame, &s.ev)
		}
		if err != nil {
			c.fail(err)
			return false, nil // takePending returns it
		}
		if c.route(s, &s.ev, frame) {
			return true, nil
		}
		if c.Err() != nil {
			return false, nil
		}
	}
}

// closedError turns the errors of an ended connection into ErrClosed.
func closedError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, os.ErrClosed) {
		return ErrClosed
	}
	return fmt.Errorf("read: %w", err)
}

// route reports whether a frame belongs to s. It appends the frame of another stream to that stream's pending bytes.
func (c *Client) route(s *Stream, ev *wire.Event, frame []byte) (mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	to := c.recipient(ev)
	switch {
	case to == s && s.cancelled == nil:
		return true
	case to == nil:
		if ev.Kind == wire.EventError && ev.Error.ID == "" && c.mu.err == nil {
			// The daemon cannot name the request of a broken frame and closes the connection: every stream ends.
			failure := ServerError(ev.Error)
			c.mu.err = &failure
			for _, other := range c.mu.streams {
				other.wakeUp()
			}
		}
	case to.cancelled == nil:
		to.pending = wire.AppendFrame(to.pending, frame)
		to.wakeUp()
	}
	return false
}

// recipient returns the stream of an event, and forgets the stream when the event is its last. The caller holds c.mu.
func (c *Client) recipient(ev *wire.Event) *Stream {
	id, last := ev.ID, ev.Kind == wire.EventEOS || ev.Kind == wire.EventError || ev.Kind == wire.EventReport
	to := c.mu.streams[id]
	if to != nil && last {
		delete(c.mu.streams, id)
	}
	return to
}

// deliver returns the parsed event in s.ev as Next does.
func (s *Stream) deliver() (*wire.Event, error) {
	switch s.ev.Kind {
	case wire.EventError:
		failure := ServerError(s.ev.Error)
		return nil, s.finish(&failure)
	case wire.EventEOS:
		s.whole = true
		s.finish(io.EOF)
	}
	return &s.ev, nil
}

// finish ends the stream; further calls of Next return err.
func (s *Stream) finish(err error) error {
	s.end = err
	s.unhook()
	return err
}
