package ipc

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/daemon/shm/connstate"
	"github.com/uma-serve/uma-serve/ipc/poll"
	"github.com/uma-serve/uma-serve/ipc/ring"
	"github.com/uma-serve/uma-serve/ipc/sys"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/split"
)

// SendResult is the result of Send.
type SendResult uint8

const (
	// Sent: the whole frame is in the ring.
	Sent SendResult = iota
	// Full: the ring has no room; the frame was not taken. Handler.Writable follows.
	Full
	// Closed: the connection is closed or closing; the frame was dropped.
	Closed
)

// Conn is one client of the framed or the newline protocol. A *Conn stays valid after the client has disconnected: its
// methods then do nothing.
//
// All exported methods are safe from any goroutine and do not block: the mutex is held only during a memory copy or one
// non-blocking write.
type Conn struct {
	loop *Loop
	id   uint64
	peer Peer

	// protocol is written by the Loop before its first call of the Handler for this Conn; constant from then on.
	protocol split.Protocol

	// Of a connection that a front has passed; constant.
	home  *Link           // nil: this process has accepted it
	state *connstate.Slot // state for the front, for the case that this process ends; nil without home

	mu sync.Mutex
	// ---- under mu ----

	// fd is written only by the Loop, which reads it without mu.
	// Invariant: fd ≥ 0 as long as gone is false, and then no other file has this number.
	fd   int
	gone bool // fd is closed, or will be at the end of the Loop's turn

	// tx holds the bytes that the socket has not taken.
	// Invariant: tx.Len() ≤ max(Config.TxBytes, the one frame put into an empty ring) + the bytes that Reply may add.
	tx    ring.Ring
	frame []byte // the newest event, encoded; nil while no request is in flight
	// armed: the poller reports write readiness, and only the Loop consumes tx; otherwise the Loop does not touch tx.
	// Invariant: armed means tx.Len() > 0.
	armed bool
	// unreadSince, on the Loop's clock, is when armed was set, or when the client has read since. Valid while armed.
	unreadSince time.Duration
	// resumeAt: after Send has returned Full, Handler.Writable is due when tx.Len() is at most this. -1: no Send waits.
	// Invariant: resumeAt ≥ 0 means armed.
	resumeAt int
	interest poll.Interest

	// records in state of the requests for which the Handler has not called Done; nil when there are none
	inFlight map[string]int32
	lastDone time.Duration // on the Loop's clock, when inFlight became empty: the start of idleness
	readEnd  bool          // the client has shut down its write side
	held     bool          // newline protocol: the next line waits for Done
	closing  closing
	cause    Cause // valid when closing is not stayOpen
	noticed  bool  // on the Loop's list of noticed connections
	away     *Link // a front: the engine process that has the connection; nil: this one. Written by the Loop alone
	cut      bool  // the bytes sent so far end inside a frame, as state says

	// ---- owned by the Loop ----

	// Routing is the Router's.
	Routing Routing

	rx
}

// closing is the state of closing a connection.
type closing uint8

const (
	stayOpen  closing = iota
	whenSent          // close when tx is empty
	lingering         // all is sent and the write side is shut down; input is discarded
	atOnce            // close without sending the rest of tx
)

// ID returns the session's number in logs, unique within the process.
func (c *Conn) ID() uint64 { return c.id }

// Idle reports whether c has no request in flight.
func (c *Conn) Idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.away != nil {
		return !c.away.table.Busy(c.slot)
	}
	return len(c.inFlight) == 0
}

// Peer returns the client's identity from the kernel.
func (c *Conn) Peer() Peer { return c.peer }

// UID returns the client's user, the owner of its requests.
func (c *Conn) UID() uint32 { return c.peer.UID }

// Protocol returns the client's protocol, split.Framed or split.Newline.
func (c *Conn) Protocol() split.Protocol { return c.protocol }

// Send copies a whole frame into the ring, or none of it; the caller may reuse its memory. The next Flush sends the
// bytes, so that all frames of a step take one system call. A frame larger than the ring is taken if the ring is empty.
func (c *Conn) Send(frame []byte) SendResult {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.send(frame)
}

// send is Send. Caller holds mu.
func (c *Conn) send(frame []byte) SendResult {
	if c.gone || c.closing != stayOpen {
		return Closed
	}
	limit := c.loop.cfg.TxBytes
	if c.tx.Len() > 0 && c.tx.Len()+len(frame) > limit {
		if c.flush(); c.gone || c.closing != stayOpen {
			return Closed
		}
		if c.tx.Len() > 0 && c.tx.Len()+len(frame) > limit {
			if c.resumeAt < 0 {
				c.loop.stats.Stalled.Add(1)
			}
			c.resumeAt = max(c.resumeAt, min(limit/2, limit-len(frame)), 0)
			return Full
		}
	}
	c.tx.Push(frame)
	return Sent
}

// SendEvent is Send for an event, in the connection's protocol.
func (c *Conn) SendEvent(ev *wire.Event) SendResult {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.send(c.encode(ev))
}

// ReplyEvent is Reply for an event, in the connection's protocol.
func (c *Conn) ReplyEvent(ev *wire.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reply(c.encode(ev))
	c.release()
}

// encode returns ev in the connection's protocol, valid until the next call. Caller holds mu.
func (c *Conn) encode(ev *wire.Event) []byte {
	if c.protocol == split.Newline {
		c.frame = wire.AppendEventLine(c.frame[:0], ev)
	} else {
		c.frame = wire.AppendEvent(c.frame[:0], ev)
	}
	return c.frame
}

// Flush writes the ring as far as the socket takes it without waiting. The Loop sends the rest as the client reads.
func (c *Conn) Flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flush()
}

// Reply sends a short answer (to an admin question, or an error event) at once, even when the ring is full. A client
// that keeps asking without reading is closed when its answers have filled a second ring.
func (c *Conn) Reply(frame []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reply(frame)
}

// reply is Reply. Caller holds mu.
func (c *Conn) reply(frame []byte) {
	if c.gone || c.away != nil || c.closing != stayOpen {
		return
	}
	if c.tx.Len() > 0 && c.tx.Len()+len(frame) > 2*c.loop.cfg.TxBytes {
		c.end(atOnce, NotReading)
		return
	}
	if c.tx.Len() == 0 { // without a copy: a connection for admin questions needs no ring
		c.setCut(len(frame) > wholeBytes)
		n, err := sys.Send(c.fd, frame)
		if err != nil && err != unix.EAGAIN {
			c.failed(err)
			return
		}
		c.loop.stats.TxBytes.Add(uint64(n))
		c.setCut(n > 0 && n < len(frame))
		frame = frame[n:]
	}
	if len(frame) > 0 {
		c.tx.Push(frame)
		c.flush()
	}
}

// Done ends the request id ("" in the newline protocol): the client may use the id again, and the connection may be
// idle. The Handler calls it exactly once for each Request and Line, after the last Send.
func (c *Conn) Done(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	record, ok := c.inFlight[id]
	if !ok {
		return
	}
	c.state.End(record)
	c.loop.stats.InFlight.Add(-1)
	if delete(c.inFlight, id); len(c.inFlight) > 0 {
		return
	}
	c.inFlight = nil
	c.lastDone = c.loop.clock()
	c.release()
	if c.held || c.readEnd || c.leaving() || c.armed {
		c.notice()
	}
}

// Close ends the connection at once, without sending the rest of its ring. Handler.Closed follows.
func (c *Conn) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.gone {
		c.end(atOnce, ByServer)
	}
}

// flush writes tx and arms write readiness for the rest. Caller holds mu.
func (c *Conn) flush() {
	if c.armed || c.gone || c.closing == atOnce || c.tx.Len() == 0 {
		return
	}
	for c.tx.Len() > 0 {
		b := c.tx.First()
		if c.state != nil && len(b) > wholeBytes {
			c.setCut(true)
		}
		n, err := sys.Send(c.fd, b)
		if err == unix.EAGAIN {
			c.arm()
			return
		}
		if err != nil {
			c.failed(err)
			return
		}
		c.tx.Consume(n)
		c.loop.stats.TxBytes.Add(uint64(n))
		c.setCut(c.tx.Len() > 0)
	}
	c.drained()
}

// failed closes a connection after a failed write. Caller holds mu.
func (c *Conn) failed(err error) {
	cause := PeerClosed
	if err != unix.EPIPE && err != unix.ECONNRESET {
		cause = IOError
		c.loop.stats.IOErrors.Add(1)
	}
	c.end(atOnce, cause)
}

// drained handles an empty tx. Caller holds mu. It runs after every token, so it wakes the Loop only if the connection
// has to be closed.
func (c *Conn) drained() {
	c.release()
	if c.closing == whenSent || len(c.inFlight) == 0 && (c.readEnd || c.held || c.leaving()) {
		c.notice()
	}
}

// release frees the memory of an empty ring if no request is in flight or the ring is large. Caller holds mu.
func (c *Conn) release() {
	if c.tx.Len() == 0 && (len(c.inFlight) == 0 || c.tx.Allocated() > keepRing) {
		c.tx = ring.Ring{}
	}
	if len(c.inFlight) == 0 || cap(c.frame) > keepRing {
		c.frame = nil
	}
}

// keepRing is the maximum size of an empty ring that a connection with running requests keeps, in bytes.
const keepRing = 64 << 10

// arm leaves tx to the Loop, which sends it as the client reads. Caller holds mu.
func (c *Conn) arm() {
	if err := c.watch(c.interest | poll.WantWrite); err != nil {
		c.loop.stats.IOErrors.Add(1)
		c.end(atOnce, IOError)
		return
	}
	c.armed, c.unreadSince = true, c.loop.clock()
	if len(c.inFlight) == 0 {
		c.notice() // the Loop sets the time by which the client must have read
	}
}

// watch changes the events that the poller reports for c. Caller holds mu.
func (c *Conn) watch(in poll.Interest) error {
	if c.gone || in == c.interest {
		return nil
	}
	if err := c.loop.poll.Mod(c.fd, c.interest, in); err != nil {
		return err
	}
	c.interest = in
	return nil
}

// end starts closing c. The first cause counts; a later call can only close faster. Caller holds mu.
func (c *Conn) end(how closing, why Cause) {
	if c.closing == stayOpen {
		c.cause = why
	}
	if how > c.closing {
		c.closing = how
	}
	c.notice()
}

// notice has the Loop reconcile c. Caller holds mu.
func (c *Conn) notice() {
	if c.noticed || c.gone {
		return
	}
	c.noticed = true
	c.loop.notice(c)
}

// drain writes tx after the poller has reported room. Loop only. It writes without mu, so that the decode loop never
// waits for it: the bytes do not move (see ring), and while armed only the Loop consumes them. writable reports that
// Handler.Writable is due.
func (c *Conn) drain() (writable bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone || !c.armed || c.closing == atOnce {
		return false
	}
	b := c.tx.First()
	fd := c.fd
	c.mu.Unlock()
	n, err := sys.Send(fd, b)
	c.mu.Lock()
	if err == unix.EAGAIN || c.closing == atOnce {
		return false
	}
	if err != nil {
		c.failed(err)
		return false
	}
	c.tx.Consume(n)
	c.lastTx, c.unreadSince = c.loop.now, c.loop.now
	c.setCut(c.tx.Len() > 0)
	c.loop.stats.TxBytes.Add(uint64(n))
	if c.resumeAt >= 0 && c.tx.Len() <= c.resumeAt {
		c.unstall()
		writable = true
	}
	if c.tx.Len() == 0 {
		c.armed = false
		if err := c.watch(c.interest &^ poll.WantWrite); err != nil {
			c.loop.stats.IOErrors.Add(1)
			c.end(atOnce, IOError)
		}
		c.drained()
	}
	return writable
}

// unstall clears resumeAt. Caller holds mu.
func (c *Conn) unstall() {
	if c.resumeAt >= 0 {
		c.resumeAt = -1
		c.loop.stats.Stalled.Add(-1)
	}
}

// begin adds a request in flight. It returns false if its id is in use. Loop only.
func (c *Conn) begin(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, taken := c.inFlight[id]; taken {
		return false
	}
	if c.inFlight == nil {
		c.inFlight = make(map[string]int32, 1)
	}
	c.inFlight[id] = c.state.Begin(id)
	c.loop.stats.InFlight.Add(1)
	return true
}

// running reports whether the request id is in flight. Loop only.
func (c *Conn) running(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.inFlight[id]
	return ok
}

// check panics if an invariant of c is broken. Called in tests and with the build tag "invariants".
func (c *Conn) check() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tx.Check()
	switch {
	case !c.gone && c.fd < 0:
		panic("ipc: a live connection without descriptor")
	case !c.gone && c.armed && c.tx.Len() == 0:
		panic("ipc: armed without bytes to send")
	case !c.gone && c.armed != (c.interest&poll.WantWrite != 0):
		panic("ipc: armed disagrees with the poller")
	case c.resumeAt >= 0 && !c.armed && !c.gone && c.closing == stayOpen:
		panic("ipc: stalled, but write readiness is not armed")
	case c.gone && (c.tx.Allocated() != 0 || c.resumeAt >= 0):
		panic("ipc: a closed connection holds a ring")
	}
}

// wholeBytes is the largest write that the kernel takes as a whole or not at all: what a stream socket's buffer has
// room for in one piece, by far. A process that is killed during such a write has not cut a frame.
const wholeBytes = 16 << 10

// setCut tells the front whether what was sent ends inside a frame. Caller holds mu.
func (c *Conn) setCut(on bool) {
	if c.state != nil && c.cut != on {
		c.cut = on
		c.state.Cut(on)
	}
}

// leaving reports whether c goes back to the front as soon as it is idle.
func (c *Conn) leaving() bool { return c.home != nil && c.loop.returning.Load() }

// between reports whether nothing of a next message was read. Loop only.
func (c *Conn) between() bool {
	return c.home != nil && len(c.first) == 0 && len(c.rest) == 0 && c.rx.frames.Missing() == 0 && !c.rx.lines.Partial()
}

// endRecords takes c's requests out of the table that the front reads: its number may be another connection's soon.
// Caller holds mu.
func (c *Conn) endRecords() {
	if c.state == nil {
		return
	}
	for id, record := range c.inFlight {
		c.state.End(record)
		c.inFlight[id] = -1
	}
	c.state.Release()
}
