package ipc

import (
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/internal/invariants"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// What one turn of the Loop does for one peer at most, so that none starves another.
const (
	readBytesPerTurn  = 64 << 10 // of one connection; also the size of the one read buffer
	messagesPerTurn   = 32       // of one connection
	acceptsPerTurn    = 64
	maxRefusing       = 1024                   // refused connections that may wait at the same time to be told so in their own protocol
	reserved          = 8                      // descriptors kept for telling clients that none is left
	maxLingerBytes    = 32 << 20               // thrown away of a client that was answered with a FrameError; twice the largest frame
	closeWithin       = 5 * time.Second        // a client that is being closed has this long to read its last answer
	refuseAfter       = 3 * time.Second        // a refused client that says nothing is answered as if it spoke frames
	acceptPause       = 100 * time.Millisecond // without any descriptor to spare
	never             = time.Duration(1<<63 - 1)
	defaultTxBytes    = 256 << 10
	defaultMaxSession = 4096
)

// Config limits what clients may do. The zero value of a field stands for its default.
type Config struct {
	MaxSessions    int           // open connections, HTTP included; default 4096
	MaxFrameBytes  int           // payload of a client's frame; default 1 MiB
	MaxPromptBytes int           // text of one request, or a line of the newline protocol; default: what a frame holds, 1 MiB a line
	TxBytes        int           // output a connection may have waiting; default 256 KiB
	IdleTimeout    time.Duration // a connection without requests in flight that long is closed; 0 = never
	MessageTimeout time.Duration // a frame or a line may take that long from its first byte to its last; 0 = no limit
	HeaderTimeout  time.Duration // a TCP connection must send the start of a request within this time; 0 = no limit
	MaxUID         uint32        // clients whose user id is above it are refused; 0 = no limit

	// Defaults are the fields a client leaves out of a request; nil = wire.DefaultRequest().
	Defaults *wire.Request
}

// Handler is told what clients want. All methods run on the Loop's goroutine and must not block: while one runs,
// nobody is served. A *Conn may be kept; its methods are safe from anywhere, inside a Handler's method too.
type Handler interface {
	// Request is a generation request of the framed protocol. Its id is in flight, and unique on c, until the
	// Handler calls c.Done(r.ID), exactly once, also when the request is refused or the client has gone.
	Request(c *Conn, r *wire.Request)
	// Line is a prompt of the newline protocol, valid UTF-8 without NUL. Answer with raw bytes and a newline, then
	// call c.Done(""). The next line of c comes after that.
	Line(c *Conn, prompt string)
	// Cancel asks to end the request id, which is in flight on c.
	Cancel(c *Conn, id string)
	// EndThink asks that the request id, which is in flight on c, stops thinking and answers.
	EndThink(c *Conn, id string)
	// Admin asks for q.Kind: metrics, health, info, why or kv. Answer with c.Reply before returning: a frame with the
	// question's id (which may be ""), or one line of JSON when c.Protocol() is wire.Newline. An answer that comes later,
	// from another goroutine, is lost if c ends before it.
	Admin(c *Conn, q *wire.Frame)
	// Writable says that a Send that was Full may be tried again. Called once after any number of Fulls.
	Writable(c *Conn)
	// Closed says that c has ended. Its requests in flight have nobody to answer to: cancel them; each still gets
	// its Done.
	Closed(c *Conn, cause Cause)
}

// Loop owns a Unix socket, the TCP sockets beside it, and everything that is connected to them.
type Loop struct {
	cfg   Config
	h     Handler
	lns   []*Listener // the Unix socket first
	poll  *poller
	http  *httpListener
	stats Counters
	clock func() time.Duration // the time since the Loop was made, or a test's; safe from any goroutine

	shares *shares
	peerOf func(fd int) (Peer, error) // the kernel's answer, or a test's

	mu sync.Mutex
	// ---- under mu ----

	conns   map[int]*Conn // by descriptor; written by the Loop alone, which therefore reads it without mu
	noticed []*Conn       // to be looked at in this turn
	joining []joining     // made by Connect, not taken in yet
	stop    bool
	stopBy  time.Duration // with stop: when unsent output is given up
	ended   bool          // Run has returned: the poller is gone

	// ---- owned by the goroutine of Run ----

	buf        []byte // the read buffer of all connections
	scratch    []byte // error events are written here
	parser     wire.Parser
	events     []event
	looking    []*Conn
	backlog    []*Conn // have input that was read but exceeded messagesPerTurn
	dead       []int   // descriptors to close at the end of the turn
	lastID     uint64
	refusing   int
	reserves   []int         // descriptors kept for telling clients that none is left; at most reserved of them
	now        time.Duration // when this turn began
	next       time.Duration // the earliest deadline of any connection, or earlier
	acceptAt   time.Duration // accepting is paused until then; 0: it is not
	accepting  bool
	handedOver uint64        // Frames at the end of the last turn
	closing    bool          // stop was seen
	closeBy    time.Duration // stopBy, as far as it was seen
}

// New prepares to serve the listeners of Listen, which the Loop closes when it ends. Run serves.
func New(cfg Config, lns []*Listener, h Handler) (*Loop, error) {
	if cfg.MaxSessions == 0 {
		cfg.MaxSessions = defaultMaxSession
	}
	if cfg.TxBytes == 0 {
		cfg.TxBytes = defaultTxBytes
	}
	if cfg.Defaults == nil {
		def := wire.DefaultRequest()
		cfg.Defaults = &def
	}
	if cfg.MaxFrameBytes > wire.MaxFrameBytes {
		return nil, fmt.Errorf("largest frame is %d bytes; the protocol allows %d", cfg.MaxFrameBytes, wire.MaxFrameBytes)
	}
	p, err := newPoller()
	if err != nil {
		return nil, err
	}
	l := &Loop{
		cfg: cfg, h: h, lns: lns, poll: p, conns: map[int]*Conn{},
		buf: make([]byte, readBytesPerTurn), scratch: make([]byte, 0, 512), events: make([]event, 0, eventsPerTurn),
		next: never, shares: newShares(cfg.MaxSessions), peerOf: peerOf, parser: wire.Parser{MaxPromptBytes: cfg.MaxPromptBytes},
	}
	start := time.Now()
	l.clock = func() time.Duration { return time.Since(start) }
	l.http = newHTTPListener(lns[0].Path())
	l.openReserves()
	if err := l.watchListeners(); err != nil {
		p.close()
		l.closeReserves()
		return nil, err
	}
	return l, nil
}

// Stop ends listening, removes the socket file and makes Run return: connections without unsent output are closed at once, the others when it is sent or flush
// has passed. HTTP connections belong to their http.Server. Safe from any goroutine.
func (l *Loop) Stop(flush time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	by := l.clock() + flush
	if !l.stop || by < l.stopBy {
		l.stopBy = by
	}
	l.stop = true
	l.wake()
}

// notice puts c on the list of connections to look at. Safe from any goroutine; the caller holds c.mu.
func (l *Loop) notice(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noticed = append(l.noticed, c)
	l.wake()
}

// wake makes the loop take a turn. Caller holds mu, which keeps the poller from closing meanwhile.
func (l *Loop) wake() {
	if !l.ended {
		l.poll.wake()
	}
}

// Run serves until Stop. An error means that the poller itself failed; all connections are closed then too.
func (l *Loop) Run() error {
	defer l.finish()
	for {
		var err error
		if l.events, err = l.poll.wait(l.timeout(), l.events[:0]); err != nil {
			return err
		}
		l.now = l.clock()
		l.stats.Turns.Add(1)
		for _, ev := range l.events {
			if c := l.conns[ev.fd]; c != nil {
				l.ready(c, ev.ready)
			} else if ln := l.listener(ev.fd); ln != nil {
				l.accept(ln)
			}
		}
		l.workBacklog()
		l.look()
		l.timers()
		l.closeDead()
		if n := l.stats.Frames.Load(); n != l.handedOver {
			// Yield so that the woken goroutine runs before we block in epoll. Otherwise this goroutine sleeps in the kernel
			// together with its processor until another thread wakes up to find the work: 60 of the 90 µs until a request is read.
			l.handedOver = n
			runtime.Gosched()
		}
		if l.closing && len(l.conns) == 0 {
			return nil
		}
	}
}

// listener is the one that fd belongs to, nil if none does or no client is accepted now.
func (l *Loop) listener(fd int) *Listener {
	if l.accepting {
		for _, ln := range l.lns {
			if ln.fd == fd {
				return ln
			}
		}
	}
	return nil
}

// timeout is how long the poller may sleep.
func (l *Loop) timeout() time.Duration {
	if len(l.backlog) > 0 {
		return 0
	}
	next := l.next
	if l.acceptAt > 0 {
		next = min(next, l.acceptAt)
	}
	if l.closing {
		next = min(next, l.closeBy)
	}
	if next == never {
		return -1
	}
	return max(next-l.clock(), 0)
}

// ready handles what the poller reported of c.
func (l *Loop) ready(c *Conn, r readiness) {
	if r&hungUp != 0 {
		if c.lingers { // both sides are shut down; what it still sent is read first, see linger
			l.read(c)
			return
		}
		l.close(c, PeerClosed)
		return
	}
	if r&canWrite != 0 && c.drain() {
		l.h.Writable(c)
	}
	if r&canRead != 0 && !c.gone {
		l.read(c)
	}
	if invariants.Enabled {
		c.check()
	}
}

// look visits the connections that something happened to outside of the poller's events.
func (l *Loop) look() {
	l.mu.Lock()
	l.noticed, l.looking = l.looking[:0], l.noticed
	newcomers := l.joining
	l.joining = nil
	stop := l.stop
	l.closeBy = l.stopBy
	l.mu.Unlock()
	l.join(newcomers)
	for i, c := range l.looking {
		l.looking[i] = nil
		l.settle(c)
	}
	if stop && !l.closing {
		l.closing = true
		l.stopListening()
		for _, c := range l.conns {
			c.mu.Lock()
			c.end(whenSent, Stopping)
			c.mu.Unlock()
		}
	}
}

// settle does what c's state asks for: resume it or bring it nearer to its end.
func (l *Loop) settle(c *Conn) {
	c.mu.Lock()
	c.noticed = false
	if c.gone {
		c.mu.Unlock()
		return
	}
	sent := c.tx.n == 0
	quiet := sent && len(c.inFlight) == 0
	resume := c.held && len(c.inFlight) == 0 && c.closing == stayOpen
	if resume {
		c.held = false
		if err := c.watch(c.interest | wantRead); err != nil {
			c.end(atOnce, IOError)
		}
	}
	over := c.readEnd && quiet && len(c.rest) == 0
	lingers := (c.cause == BrokenStream || c.cause == TimedOut || c.refusal != notRefused) && !c.readEnd
	how, cause := c.closing, c.cause
	c.mu.Unlock()
	switch {
	case how == atOnce:
		l.close(c, cause)
	case how == whenSent && sent && lingers:
		l.linger(c)
	case how == whenSent && sent:
		l.close(c, cause)
	case how == whenSent && c.due == 0:
		l.deadline(c, l.now+closeWithin)
	case how == stayOpen && over:
		l.close(c, HalfClosed)
	case resume:
		rest := c.rest
		c.rest = nil
		l.consume(c, rest)
	}
}

// linger shuts down our side and waits for the client to end its own: a descriptor that is closed while bytes of
// the client are unread makes the kernel fail the client's next call, be it a write or the read of our answer's end.
func (l *Loop) linger(c *Conn) {
	_ = unix.Shutdown(c.fd, unix.SHUT_WR)
	c.lingers = true
	c.mu.Lock()
	c.closing = lingering
	err := c.watch(wantRead)
	c.mu.Unlock()
	if err != nil {
		l.close(c, IOError)
		return
	}
	l.farewell(c, c.cause)
	l.deadline(c, l.now+closeWithin)
}

// deadline sets when expire looks at c.
func (l *Loop) deadline(c *Conn, at time.Duration) {
	c.due = at
	l.next = min(l.next, at)
}

// timers does what has become due.
func (l *Loop) timers() {
	if l.acceptAt > 0 && l.acceptAt <= l.now {
		l.resumeAccepting()
	}
	if l.closing && l.closeBy <= l.now {
		for _, c := range l.conns {
			l.close(c, Stopping)
		}
	}
	if l.now < l.next {
		return
	}
	l.next = never
	for _, c := range l.conns {
		if c.due > 0 && c.due <= l.now {
			c.due = 0
			l.expire(c)
		} else if c.due > 0 {
			l.next = min(l.next, c.due)
		}
		if !c.gone && l.cfg.IdleTimeout > 0 && c.refusal == notRefused {
			l.sweep(c)
		}
	}
}

// expire is a deadline of c that has passed.
func (l *Loop) expire(c *Conn) {
	switch {
	case c.ending():
		l.close(c, c.cause)
	case c.refusal != notRefused:
		p := wire.Sniff(c.first, true)
		if p == wire.Unknown {
			p = wire.Framed
		}
		l.refuse(c, p)
	case c.protocol == wire.Unknown && c.peer.TCP():
		l.noRequest(c)
	case c.protocol == wire.Unknown:
		l.identify(c, nil, true)
	case c.awaiting:
		c.awaiting = false
		l.broken(c, &wire.FrameError{Code: wire.Timeout, Message: fmt.Sprintf(
			"the message did not come whole within %v of its first byte (--body-timeout)", l.cfg.MessageTimeout)})
	}
}

// sweep closes c when it has been idle for too long, or notes when that will be.
func (l *Loop) sweep(c *Conn) {
	c.mu.Lock()
	busy := len(c.inFlight) > 0
	since := max(c.lastRx, c.lastTx, c.lastDone)
	c.mu.Unlock()
	due := since + l.cfg.IdleTimeout
	switch {
	case busy:
		l.next = min(l.next, l.now+l.cfg.IdleTimeout) // its idle time has not even begun
	case due <= l.now:
		l.close(c, Idle)
	default:
		l.next = min(l.next, due)
	}
}

// close ends c. Its descriptor is closed at the end of the turn; until then no newcomer can have its number.
func (l *Loop) close(c *Conn, cause Cause) {
	if c.gone {
		return
	}
	c.mu.Lock()
	if c.closing != stayOpen {
		cause = c.cause
	}
	fd, in := c.fd, c.interest
	c.gone, c.fd = true, -1
	c.tx, c.armed = ring{}, false
	c.unstall()
	c.mu.Unlock()
	l.forget(c, fd, in)
	switch {
	case c.inner: // counted as its client's connection
	case c.refusal != notRefused:
		l.refusing--
	case l.shares.remove(c.peer.holder(), c):
		l.stats.Sessions.Add(-1)
		l.stats.Closed[cause].Add(1)
	}
	l.farewell(c, cause)
}

// farewell tells the Handler, once, that nothing can be sent to c any more, if it has ever heard of c.
func (l *Loop) farewell(c *Conn, cause Cause) {
	if !c.told && (c.protocol == wire.Framed || c.protocol == wire.Newline) {
		c.told = true
		l.h.Closed(c, cause)
	}
}

// forget takes c out of the loop.
func (l *Loop) forget(c *Conn, fd int, in interest) {
	l.poll.del(fd, in)
	l.dead = append(l.dead, fd)
	l.mu.Lock()
	delete(l.conns, fd)
	l.mu.Unlock()
	c.rx.drop(&l.stats)
}

func (l *Loop) closeDead() {
	for _, fd := range l.dead {
		unix.Close(fd)
	}
	if len(l.dead) > 0 {
		l.dead = l.dead[:0]
		l.openReserves()
	}
}

func (l *Loop) stopListening() {
	if l.accepting {
		l.ignoreListeners()
	}
	l.acceptAt = 0
	CloseAll(l.lns)
}

// finish leaves nothing open.
func (l *Loop) finish() {
	for _, c := range l.conns {
		l.close(c, Stopping)
	}
	l.closeDead()
	l.stopListening()
	l.http.Close()
	l.closeReserves()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for _, j := range l.joining {
		unix.Close(j.fd)
	}
	l.joining = nil
	l.poll.close()
}
