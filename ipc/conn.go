package ipc

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// SendResult is what became of a frame.
type SendResult uint8

const (
	// Sent: the connection has taken the whole frame.
	Sent SendResult = iota
	// Full: the client reads too slowly, the frame was not taken at all. Handler.Writable follows.
	Full
	// Closed: the client has gone or is being closed; the frame was dropped.
	Closed
)

// Cause is why a connection ended; its String is a metric label.
type Cause uint8

const (
	PeerClosed   Cause = iota // the client closed
	HalfClosed                // the client had ended its side, and its last answer was sent
	Answered                  // the newline protocol's "metrics", which closes after its answer
	Idle                      // --idle-timeout
	BrokenStream              // a FrameError, answered
	NotReading                // the client asked on without reading its answers
	IOError                   // a system call failed
	ByServer                  // Conn.Close
	Stopping                  // Loop.Stop
	TimedOut                  // Config.MessageTimeout: a message that had begun did not come whole
	Displaced                 // made way for another user's connection
	ServedHTTP                // an HTTP connection, by whichever side; the Handler does not hear of those

	numCauses
)

var causeNames = [numCauses]string{"peer_closed", "half_closed", "answered", "idle", "broken_stream", "not_reading", "io_error", "by_server", "stopping", "timed_out", "displaced", "http"}

func (c Cause) String() string { return causeNames[c] }

// Causes are all causes, for metrics.
func Causes() []Cause {
	all := make([]Cause, numCauses)
	for i := range all {
		all[i] = Cause(i)
	}
	return all
}

// Conn is one client of the framed or the newline protocol. A *Conn stays valid for its holder after the client has
// gone: every method then does nothing.
//
// All exported methods are safe from any goroutine. None of them blocks: the mutex inside is held around a memory
// copy or one non-blocking write.
type Conn struct {
	loop *Loop
	id   uint64
	peer Peer

	// protocol is written by the Loop before its first call of the Handler for this Conn; constant from then on.
	protocol wire.Protocol

	mu sync.Mutex
	// ---- under mu ----

	// fd is written by the Loop alone, which therefore reads it without mu.
	// Invariant: fd ≥ 0 as long as gone is false, and then no other file has this number.
	fd   int
	gone bool // fd is closed, or will be at the end of the Loop's turn

	// tx holds what the socket has not taken yet.
	// Invariant: tx.n ≤ max(Config.TxBytes, the one frame that went into an empty ring) + what Reply may add.
	tx ring
	// armed: write readiness is awaited and only the Loop takes bytes out of tx; otherwise the Loop leaves tx alone.
	// Invariant: armed means tx.n > 0.
	armed bool
	// resumeAt: Send has said Full; Handler.Writable is due when tx.n is down to this. -1: nobody waits.
	// Invariant: resumeAt ≥ 0 means armed.
	resumeAt int
	interest interest

	inFlight map[string]struct{} // requests the Handler has not called Done for; nil when there are none
	lastDone time.Duration       // on the Loop's clock, when inFlight became empty; what idleness counts from
	readEnd  bool                // the client sends nothing more
	held     bool                // newline: the next line waits for Done
	closing  closing
	cause    Cause // valid when closing is not stayOpen
	noticed  bool  // on the Loop's list of connections to look at

	// ---- owned by the Loop ----

	rx
}

// closing is how far a connection is on its way to its end.
type closing uint8

const (
	stayOpen  closing = iota
	whenSent          // close when tx is empty
	lingering         // everything is sent and our side is shut down; what the client still sends is thrown away
	atOnce            // close without sending what is left
)

// ID is the session's number in logs, unique as long as the process lives.
func (c *Conn) ID() uint64 { return c.id }

func (c *Conn) number() uint64 { return c.id }

// idle reports whether c has no request in flight.
func (c *Conn) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.inFlight) == 0
}

// Peer is the client as the kernel knows it.
func (c *Conn) Peer() Peer { return c.peer }

// UID is the client's user: whose quota, whose cache namespace.
func (c *Conn) UID() uint32 { return c.peer.UID }

// Protocol is what the client speaks: wire.Framed or wire.Newline.
func (c *Conn) Protocol() wire.Protocol { return c.protocol }

// Send takes a frame, whole or not at all; the caller may reuse its memory. The bytes go out with the next Flush, so
// that all frames of a step cost one system call. A frame larger than the ring is taken when nothing else waits.
func (c *Conn) Send(frame []byte) SendResult {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone || c.closing != stayOpen {
		return Closed
	}
	limit := c.loop.cfg.TxBytes
	if c.tx.n > 0 && c.tx.n+len(frame) > limit {
		if c.flush(); c.gone || c.closing != stayOpen {
			return Closed
		}
		if c.tx.n > 0 && c.tx.n+len(frame) > limit {
			if c.resumeAt < 0 {
				c.loop.stats.Stalled.Add(1)
			}
			c.resumeAt = max(c.resumeAt, min(limit/2, limit-len(frame)), 0)
			return Full
		}
	}
	c.tx.push(frame)
	return Sent
}

// Flush writes what Send took, as far as the client's socket takes it without waiting; the Loop sends the rest as
// soon as the client reads.
func (c *Conn) Flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flush()
}

// Reply sends a short answer at once, also while the ring is full: the answer to an admin question or an error
// event. A client that keeps asking without reading is closed when its answers have filled a second ring.
func (c *Conn) Reply(frame []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone || c.closing != stayOpen {
		return
	}
	if c.tx.n > 0 && c.tx.n+len(frame) > 2*c.loop.cfg.TxBytes {
		c.end(atOnce, NotReading)
		return
	}
	if c.tx.n == 0 { // straight from the caller's memory: a connection that only asks needs no ring
		n, err := send(c.fd, frame)
		if err != nil && err != unix.EAGAIN {
			c.failed(err)
			return
		}
		c.loop.stats.TxBytes.Add(uint64(n))
		frame = frame[n:]
	}
	if len(frame) > 0 {
		c.tx.push(frame)
		c.flush()
	}
}

// Done says that the request id is finalised (the newline protocol's has the id ""): the id may be used again, and
// the connection may be idle. The Handler calls it exactly once for each Request and Line, after the last Send.
func (c *Conn) Done(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.inFlight[id]; !ok {
		return
	}
	c.loop.stats.InFlight.Add(-1)
	if delete(c.inFlight, id); len(c.inFlight) > 0 {
		return
	}
	c.inFlight = nil
	c.lastDone = c.loop.clock()
	c.release()
	if c.held || c.readEnd {
		c.notice()
	}
}

// Close ends the connection now, without sending what waits in its ring. Handler.Closed follows.
func (c *Conn) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.gone {
		c.end(atOnce, ByServer)
	}
}

// flush writes tx out and arms write readiness for what is left. Caller holds mu.
func (c *Conn) flush() {
	if c.armed || c.gone || c.closing == atOnce || c.tx.n == 0 {
		return
	}
	for c.tx.n > 0 {
		b := c.tx.first()
		n, err := send(c.fd, b)
		if err == unix.EAGAIN {
			c.arm()
			return
		}
		if err != nil {
			c.failed(err)
			return
		}
		c.tx.consume(n)
		c.loop.stats.TxBytes.Add(uint64(n))
	}
	c.drained()
}

// failed ends a connection whose socket cannot be written. Caller holds mu.
func (c *Conn) failed(err error) {
	cause := PeerClosed
	if err != unix.EPIPE && err != unix.ECONNRESET {
		cause = IOError
		c.loop.stats.IOErrors.Add(1)
	}
	c.end(atOnce, cause)
}

// drained is what follows when tx has become empty. Caller holds mu. It runs after every token: the Loop is asked to
// look only where something has come to its end.
func (c *Conn) drained() {
	c.release()
	if c.closing == whenSent || c.readEnd && len(c.inFlight) == 0 {
		c.notice()
	}
}

// release gives the ring's memory back when nothing will be sent soon, or when it is much. Caller holds mu.
func (c *Conn) release() {
	if c.tx.n == 0 && (len(c.inFlight) == 0 || len(c.tx.buf) > keepRing) {
		c.tx = ring{}
	}
}

// keepRing is the largest ring a connection with running requests keeps while it is empty.
const keepRing = 64 << 10

// arm hands tx to the Loop, which empties it as the client reads. Caller holds mu.
func (c *Conn) arm() {
	if err := c.watch(c.interest | wantWrite); err != nil {
		c.loop.stats.IOErrors.Add(1)
		c.end(atOnce, IOError)
		return
	}
	c.armed = true
}

// watch changes what the poller reports of c. Caller holds mu.
func (c *Conn) watch(in interest) error {
	if c.gone || in == c.interest {
		return nil
	}
	if err := c.loop.poll.mod(c.fd, c.interest, in); err != nil {
		return err
	}
	c.interest = in
	return nil
}

// end moves c toward its end; what was decided first counts, unless the new way is shorter. Caller holds mu.
func (c *Conn) end(how closing, why Cause) {
	if c.closing == stayOpen {
		c.cause = why
	}
	if how > c.closing {
		c.closing = how
	}
	c.notice()
}

// notice asks the Loop to look at c. Caller holds mu.
func (c *Conn) notice() {
	if c.noticed || c.gone {
		return
	}
	c.noticed = true
	c.loop.notice(c)
}

// drain sends what the client has room for, after the poller reported it. Loop only. It writes without mu, so that
// the decode loop never waits for a write of the Loop's: the bytes cannot move, see ring, and nobody else takes
// bytes out while armed.
func (c *Conn) drain() (writable bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone || !c.armed || c.closing == atOnce {
		return false
	}
	b := c.tx.first()
	fd := c.fd
	c.mu.Unlock()
	n, err := send(fd, b)
	c.mu.Lock()
	if err == unix.EAGAIN || c.closing == atOnce {
		return false
	}
	if err != nil {
		c.failed(err)
		return false
	}
	c.tx.consume(n)
	c.lastTx = c.loop.now
	c.loop.stats.TxBytes.Add(uint64(n))
	if c.resumeAt >= 0 && c.tx.n <= c.resumeAt {
		c.unstall()
		writable = true
	}
	if c.tx.n == 0 {
		c.armed = false
		if err := c.watch(c.interest &^ wantWrite); err != nil {
			c.loop.stats.IOErrors.Add(1)
			c.end(atOnce, IOError)
		}
		c.drained()
	}
	return writable
}

// unstall: nobody waits for room any more. Caller holds mu.
func (c *Conn) unstall() {
	if c.resumeAt >= 0 {
		c.resumeAt = -1
		c.loop.stats.Stalled.Add(-1)
	}
}

// begin enters a request as in flight; false: its id is taken. Loop only.
func (c *Conn) begin(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, taken := c.inFlight[id]; taken {
		return false
	}
	if c.inFlight == nil {
		c.inFlight = make(map[string]struct{}, 1)
	}
	c.inFlight[id] = struct{}{}
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

// check panics when an invariant of c does not hold. Called in tests and with the build tag "invariants".
func (c *Conn) check() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tx.check()
	switch {
	case !c.gone && c.fd < 0:
		panic("ipc: a live connection without descriptor")
	case !c.gone && c.armed && c.tx.n == 0:
		panic("ipc: armed without bytes to send")
	case !c.gone && c.armed != (c.interest&wantWrite != 0):
		panic("ipc: armed disagrees with the poller")
	case c.resumeAt >= 0 && !c.armed && !c.gone && c.closing == stayOpen:
		panic("ipc: stalled, but nobody will say when there is room")
	case c.gone && (len(c.tx.buf) != 0 || c.resumeAt >= 0):
		panic("ipc: a connection that has gone holds a ring")
	}
}
