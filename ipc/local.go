package ipc

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Local is a client within the process: HTTP handlers ask through it, in the name of the HTTP client. It has the rules
// of a connection without its bytes: requests and events are values. Requests are checked as those in frames are, ids
// are unique while in flight, the events that wait for the reader are bounded by Config.TxBytes, and the end of either
// side cancels. It counts as no session, because the HTTP client already does.
//
// Take, Ready and Err are for one goroutine, its reader; the other methods are safe from any.
type Local struct {
	loop *Loop
	id   uint64
	peer Peer
	wake chan struct{} // capacity 1; signals events after Flush, or the end

	mu sync.Mutex
	// ---- under mu ----

	queue    *wire.Events // sent and not taken. Invariant: its size is at most as that of Conn.tx.
	full     bool         // Send has returned Full: Handler.Writable is due when the reader takes the queue
	handing  int          // requests that the Handler is taking: their answers are queued even after the end
	inFlight map[string]struct{}
	closed   bool // nothing more is sent; the queue can still be read

	taken *wire.Events // owned by the reader
	ready atomic.Bool  // queue is not empty; written under mu
}

// ErrEnded is the error of a Local that has ended.
var ErrEnded = errors.New("the connection within the process has ended")

// Open opens a Local in the name of peer. Safe from any goroutine. It fails with a *wire.RequestError when the Loop has
// ended or is stopping. The caller closes the Local.
func (l *Loop) Open(peer Peer) (*Local, error) {
	c := &Local{loop: l, id: l.lastID.Add(1), peer: peer, wake: make(chan struct{}, 1), queue: new(wire.Events),
		taken: new(wire.Events)}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || l.stop {
		return nil, &wire.RequestError{Code: wire.ShuttingDown, Message: "the server is stopping"}
	}
	l.locals[c] = struct{}{}
	return c, nil
}

// ID returns its number in logs, unique within the process.
func (c *Local) ID() uint64 { return c.id }

// UID returns the client's user, the owner of its requests.
func (c *Local) UID() uint32 { return c.peer.UID }

// Request hands r to the Handler, which owns it from now on. A request that fails its checks is answered with an error
// event.
func (c *Local) Request(r *wire.Request) {
	if c.admit(r.ID, r.Check(c.loop.cfg.MaxPromptBytes)) {
		c.loop.h.Request(c, r)
		c.recheck(r.ID)
	}
}

// Embed is Request for embeddings.
func (c *Local) Embed(e *wire.Embed) {
	if c.admit(e.ID, e.Check(c.loop.cfg.MaxPromptBytes)) {
		c.loop.h.Embed(c, e)
		c.recheck(e.ID)
	}
}

// Cancel ends the request id, unless it has ended.
func (c *Local) Cancel(id string) {
	c.mu.Lock()
	_, runs := c.inFlight[id]
	c.mu.Unlock()
	if runs {
		c.loop.h.Cancel(c, id)
	}
}

// Ask asks an admin question. A report or an error event answers it.
func (c *Local) Ask(q *wire.Frame) {
	c.loop.stats.Frames.Add(1)
	c.loop.h.Admin(c, q)
}

// admit begins the request id. After a failed check, or if the id is in use, it answers with an error.
func (c *Local) admit(id string, err error) bool {
	c.loop.stats.Frames.Add(1)
	if err == nil {
		c.mu.Lock()
		_, taken := c.inFlight[id]
		switch {
		case c.closed:
			c.mu.Unlock()
			return false
		case !taken:
			if c.inFlight == nil {
				c.inFlight = make(map[string]struct{}, 1)
			}
			c.inFlight[id] = struct{}{}
			c.handing++
			c.loop.stats.InFlight.Add(1)
			c.mu.Unlock()
			return true
		}
		c.mu.Unlock()
		err = duplicateID(id)
	}
	e := errorEvent(err)
	c.loop.stats.countProtocolError(e.Code)
	c.ReplyEvent(wire.ErrorEvent(&e))
	return false
}

// recheck cancels the request id if c has ended while the Handler took it: Closed may have come before.
func (c *Local) recheck(id string) {
	c.mu.Lock()
	c.handing--
	_, runs := c.inFlight[id]
	late := c.closed && runs
	c.mu.Unlock()
	if late {
		c.loop.h.Cancel(c, id)
	}
}

// SendEvent adds a copy of ev to the queue, or nothing of it. The next Flush wakes the reader. An event larger than the
// queue's bound is taken if the queue is empty.
func (c *Local) SendEvent(ev *wire.Event) SendResult {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return Closed
	case c.queue.Len() > 0 && c.queue.Bytes()+ev.Bytes() > c.loop.cfg.TxBytes:
		if !c.full {
			c.full = true
			c.loop.stats.Stalled.Add(1)
		}
		return Full
	}
	c.queue.Add(ev)
	c.ready.Store(true)
	return Sent
}

// Flush wakes the reader if it waits.
func (c *Local) Flush() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// ReplyEvent sends a short answer at once, even when the queue is full. A reader that keeps asking without reading is
// closed when its answers have filled the queue's bound a second time.
func (c *Local) ReplyEvent(ev *wire.Event) {
	c.mu.Lock()
	if c.closed && c.handing == 0 {
		c.mu.Unlock()
		return
	}
	if c.queue.Len() > 0 && c.queue.Bytes()+ev.Bytes() > 2*c.loop.cfg.TxBytes {
		c.mu.Unlock()
		c.end(NotReading)
		return
	}
	c.queue.Add(ev)
	c.ready.Store(true)
	c.mu.Unlock()
	c.Flush()
}

// Done ends the request id: see Conn.Done.
func (c *Local) Done(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.inFlight[id]; ok {
		delete(c.inFlight, id)
		c.loop.stats.InFlight.Add(-1)
	}
}

// Close ends c and cancels its requests. The reader may take the events that were sent before.
func (c *Local) Close() { c.end(ByServer) }

// end closes c, once. Handler.Closed follows if a request is in flight.
func (c *Local) end(why Cause) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closed = true
	if c.full {
		c.full = false
		c.loop.stats.Stalled.Add(-1)
	}
	runs := len(c.inFlight) > 0
	c.mu.Unlock()
	c.Flush()
	c.loop.mu.Lock()
	delete(c.loop.locals, c)
	c.loop.mu.Unlock()
	if runs {
		c.loop.h.Closed(c, why)
	}
}

// Take returns the oldest event and removes it, nil if there is none: then Wake tells when there is. The event is valid
// until the next call.
func (c *Local) Take() *wire.Event {
	if ev := c.taken.Next(); ev != nil {
		return ev
	}
	if !c.ready.Load() {
		return nil
	}
	c.taken.Reset()
	c.mu.Lock()
	c.taken, c.queue = c.queue, c.taken
	c.ready.Store(false)
	full := c.full
	c.full = false
	c.mu.Unlock()
	if full {
		c.loop.stats.Stalled.Add(-1)
		c.loop.h.Writable(c)
	}
	return c.taken.Next()
}

// Ready reports whether Take has an event.
func (c *Local) Ready() bool { return c.taken.Len() > 0 || c.ready.Load() }

// Wake receives a value when Take or Err may have something new.
func (c *Local) Wake() <-chan struct{} { return c.wake }

// Err returns ErrEnded if c has ended, and then Take has nothing more; nil before.
func (c *Local) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed && !c.Ready() {
		return ErrEnded
	}
	return nil
}

// endLocals ends all Locals when the Loop ends.
func (l *Loop) endLocals() {
	l.mu.Lock()
	var all []*Local
	for c := range l.locals {
		all = append(all, c)
	}
	l.mu.Unlock()
	for _, c := range all {
		c.end(Stopping)
	}
}
