package client

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
)

// Stream is the answer to one request: its events, in order.
type Stream struct {
	c      *Client
	id     string
	ctx    context.Context
	unhook func() bool   // takes interrupt off ctx
	wake   chan struct{} // one token: look again (pending bytes, an interrupt, a broken connection)

	parser wire.Parser // owned by the goroutine in Next
	ev     wire.Event  // what Next returned last; its slices point into parser
	frame  []byte      // the pending frame that is being parsed
	end    error       // what every further Next returns; nil while the answer runs

	// Guarded by c.mu.
	pending   []byte // frames another stream's goroutine read for this one: length (4 bytes), payload
	given     int    // pending[:given] is handed out already
	cancelled error  // ctx has ended, for this reason. Invariant: from then on nothing is appended to pending.
}

func newStream(c *Client, ctx context.Context) *Stream {
	return &Stream{c: c, ctx: ctx, wake: make(chan struct{}, 1), unhook: func() bool { return true }}
}

// ID is the request's id.
func (s *Stream) ID() string { return s.id }

// Cancel asks the daemon to end the answer. Go on calling Next: it returns what was under way and then the end event,
// with reason "cancelled" and the usage. Safe from any goroutine.
func (s *Stream) Cancel() error { return s.c.Cancel(s.id) }

// EndThink asks the daemon to end the thinking of this answer. Safe from any goroutine.
func (s *Stream) EndThink() error { return s.c.EndThink(s.id) }

// watch makes the end of ctx end the stream.
func (s *Stream) watch() {
	if s.ctx.Done() != nil {
		s.unhook = context.AfterFunc(s.ctx, s.interrupt)
	}
}

// interrupt runs when ctx ends: whoever waits in Next returns, the daemon is told, and what it still sends for this
// request is dropped.
func (s *Stream) interrupt() {
	c := s.c
	c.mu.Lock()
	s.cancelled = context.Cause(s.ctx)
	s.pending, s.given = nil, 0
	if c.mu.leader == s {
		c.conn.SetReadDeadline(time.Unix(1, 0))
	}
	s.wakeUp()
	c.mu.Unlock()
	if s.id != "" {
		_ = c.Cancel(s.id) // a connection that cannot be written to any more has cancelled by itself
	}
}

func (s *Stream) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Next waits for the next event. After the end event it returns io.EOF. Its errors: *ServerError when the daemon
// refused or failed the request, the cause of the context's end, ErrClosed (wrapped) when the connection ended first.
// The event and its slices are valid until the next call.
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

// takePending moves the oldest pending frame to s.frame, or says why there will be none.
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

// lead reads the socket on everybody's behalf until a frame for s came (true), or until s has something else to look
// at (false). It is called with the reading token and gives it back.
func (s *Stream) lead() (mine bool, err error) {
	c := s.c
	c.mu.Lock()
	if len(s.pending) > s.given || s.cancelled != nil || c.mu.err != nil {
		// It came while the token did.
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

// closedError names the ways a connection ends.
func closedError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, os.ErrClosed) {
		return ErrClosed
	}
	return fmt.Errorf("read: %w", err)
}

// route finds whom a frame belongs to: true = to s itself. Another stream's frame is put to its pending bytes.
func (c *Client) route(s *Stream, ev *wire.Event, frame []byte) (mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	to := c.recipient(ev)
	switch {
	case to == s && s.cancelled == nil:
		return true
	case to == nil:
		if ev.Kind == wire.EventError && ev.Error.ID == "" && c.mu.err == nil {
			// The daemon could not tell whose frame it was: it closes the connection, nobody will be answered.
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

// recipient is the stream an event belongs to, taken off the list when the event is its last. Called with c.mu held.
func (c *Client) recipient(ev *wire.Event) *Stream {
	id, last := ev.ID, ev.Kind == wire.EventEOS || ev.Kind == wire.EventError || ev.Kind == wire.EventReport
	to := c.mu.streams[id]
	if to != nil && last {
		delete(c.mu.streams, id)
	}
	return to
}

// deliver is Next's return for the parsed event in s.ev.
func (s *Stream) deliver() (*wire.Event, error) {
	switch s.ev.Kind {
	case wire.EventError:
		failure := ServerError(s.ev.Error)
		return nil, s.finish(&failure)
	case wire.EventEOS:
		s.finish(io.EOF)
	}
	return &s.ev, nil
}

// finish ends the stream with what further calls of Next return.
func (s *Stream) finish(err error) error {
	s.end = err
	s.unhook()
	return err
}
