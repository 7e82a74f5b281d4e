package ipc

import (
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/internal/invariants"
	"github.com/uma-serve/uma-serve/ipc/poll"
	"github.com/uma-serve/uma-serve/ipc/rights"
	"github.com/uma-serve/uma-serve/ipc/ring"
	"github.com/uma-serve/uma-serve/ipc/share"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/split"
)

// Limits of one turn of the Loop, so that no peer starves another, and times of closing.
const (
	readBytesPerTurn = 64 << 10 // per connection; also the size of the shared read buffer
	messagesPerTurn  = 32       // per connection
	acceptsPerTurn   = 64
	maxRefusing      = 1024 // refused connections that wait until their protocol is known
	reserved         = 8    // descriptors reserved for answering clients when none is left
	// input discarded from a client after a FrameError: twice the largest frame
	maxLingerBytes = 32 << 20
	closeWithin    = 5 * time.Second // for a client to read its last answer before it is closed
	// a refused client that sends nothing is answered in frames after this time
	refuseAfter       = 3 * time.Second
	acceptPause       = 100 * time.Millisecond // when no descriptor is left
	never             = time.Duration(1<<63 - 1)
	defaultTxBytes    = 256 << 10
	defaultMaxSession = 4096
)

// Config holds the limits of clients. The zero value of a field means its default.
type Config struct {
	MaxSessions   int // open connections, HTTP included; default 4096
	MaxFrameBytes int // payload of a client's frame; default 1 MiB
	// text of a request, or a line of the newline protocol; default: a frame's size, 1 MiB for a line
	MaxPromptBytes int
	TxBytes        int // size of a connection's send ring; default 256 KiB

	IdleTimeout time.Duration // closes a connection after this time without requests in flight; 0 = never
	// closes a connection without requests in flight whose client reads nothing of the rest of its answers for this
	// time; 0 = never. The Handler closes those with requests in flight.
	StallTimeout   time.Duration
	MessageTimeout time.Duration // for a frame or a line, from its first byte to its last; 0 = no limit
	HeaderTimeout  time.Duration // for the start of a request on a TCP connection; 0 = no limit
	MaxUID         uint32        // refuses clients with a greater user id; 0 = no limit

	// NoNewline refuses connections whose first bytes are neither a frame nor HTTP.
	NoNewline bool

	// Defaults holds the values of fields that a request omits; nil = wire.DefaultRequest().
	Defaults *wire.Request

	// Router makes the Loop the front of engine processes; nil: it serves every connection itself.
	Router Router
	// Elsewhere tells an engine process which frames are for another process; nil: none. It runs on the Loop.
	Elsewhere func(*wire.Frame) bool
	// Emptied is called once by an engine process that gives its connections back, when none is left. It runs on the
	// Loop.
	Emptied func()
}

// Loop owns a Unix socket, TCP sockets, and their connections.
type Loop struct {
	cfg   Config
	h     Handler
	lns   []*Listener // the Unix socket first
	poll  *poll.Poller
	http  *httpListener
	stats Counters
	clock func() time.Duration // time since New, or a test's; safe from any goroutine

	shares    shares
	lastID    atomic.Uint64              // of a Conn or a Local
	returning atomic.Bool                // an engine process gives its connections back
	peerOf    func(fd int) (Peer, error) // asks the kernel, or a test's

	guarded

	// ---- owned by the goroutine of Run ----

	buf        []byte // read buffer, shared by all connections
	scratch    []byte // buffer for error events
	parser     wire.Parser
	events     []poll.Event
	looking    []*Conn
	backlog    []*Conn // connections with input beyond messagesPerTurn
	dead       []int   // descriptors to close at the end of the turn
	refusing   int
	reserves   []int         // descriptors reserved for answering clients when none is left; at most reserved
	now        time.Duration // start of this turn
	next       time.Duration // earliest deadline of any connection, or earlier
	acceptAt   time.Duration // end of a pause of accepting; 0: no pause
	accepting  bool
	handedOver uint64        // Counters.Frames at the end of the last turn
	closing    bool          // stop was seen
	closeBy    time.Duration // copy of stopBy

	transfers
}

// shares has the connections and files of all users.
type shares struct {
	*share.Table             // of connections
	files        rights.Pool // that came with frames
}

// transfers are the connections that engine processes have. Owned by the goroutine of Run.
type transfers struct {
	links     map[int]*Link    // by descriptor
	passed    map[uint32]*Conn // that engine processes have, by slot
	freeSlots []uint32         // below nextSlot and not in passed
	nextSlot  uint32
	emptied   bool // Config.Emptied was called
}

// guarded is the part of a Loop that other goroutines reach, under mu.
type guarded struct {
	mu      sync.Mutex
	conns   map[int]*Conn // by descriptor; written only by the Loop, which reads it without mu
	noticed []*Conn       // to reconcile
	locals  map[*Local]struct{}
	stop    bool
	stopBy  time.Duration // with stop: deadline for sending the rest of the output
	ended   bool          // Run has returned and the poller is closed
	tasks   []func()      // of Do
}

// New returns a Loop for the listeners of Listen, which it closes when it ends. Run serves.
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
		return nil, fmt.Errorf("largest frame is %d bytes; the protocol allows %d", cfg.MaxFrameBytes,
			wire.MaxFrameBytes)
	}
	p, err := poll.New()
	if err != nil {
		return nil, err
	}
	l := &Loop{
		cfg: cfg, h: h, lns: lns, poll: p,
		guarded:   guarded{conns: map[int]*Conn{}, locals: map[*Local]struct{}{}},
		transfers: transfers{links: map[int]*Link{}, passed: map[uint32]*Conn{}},
		buf:       make([]byte, readBytesPerTurn), scratch: make([]byte, 0, 512),
		events: make([]poll.Event, 0, poll.MaxEvents),
		next:   never, shares: shares{Table: share.New(cfg.MaxSessions)}, peerOf: peerOf,
		parser: wire.Parser{MaxPromptBytes: cfg.MaxPromptBytes},
	}
	start := time.Now()
	l.clock = func() time.Duration { return time.Since(start) }
	path := ""
	if len(lns) > 0 {
		path = lns[0].Path()
	}
	l.http = newHTTPListener(path)
	l.openReserves()
	if err := l.watchListeners(); err != nil {
		p.Close()
		l.closeReserves()
		return nil, err
	}
	return l, nil
}

// Stop stops listening, removes the socket file and makes Run return. A connection is closed when its output is sent,
// at the latest after flush. HTTP connections belong to their http.Server. Safe from any goroutine.
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

// notice adds c to the connections to reconcile. Safe from any goroutine; the caller holds c.mu.
func (l *Loop) notice(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noticed = append(l.noticed, c)
	l.wake()
}

// wake makes the loop take a turn. Caller holds mu, which prevents the poller from closing.
func (l *Loop) wake() {
	if !l.ended {
		l.poll.Wake()
	}
}

// Run serves until Stop. An error means that the poller failed. All connections are closed when Run returns.
func (l *Loop) Run() error {
	defer l.finish()
	for {
		var err error
		if l.events, err = l.poll.Wait(l.timeout(), l.events[:0]); err != nil {
			return err
		}
		l.now = l.clock()
		l.stats.Turns.Add(1)
		for _, ev := range l.events {
			if c := l.conns[ev.FD]; c != nil {
				l.ready(c, ev.Ready)
			} else if k := l.links[ev.FD]; k != nil {
				l.readLink(k, ev.Ready)
			} else if ln := l.listener(ev.FD); ln != nil {
				l.accept(ln)
			}
		}
		l.workBacklog()
		l.handleNoticed()
		l.timers()
		if l.returning.Load() && !l.emptied && l.Returned() && l.cfg.Emptied != nil {
			l.emptied = true
			l.cfg.Emptied()
		}
		l.closeDead()
		if n := l.stats.Frames.Load(); n != l.handedOver {
			// Yield so that the woken goroutine runs before we block in epoll. Otherwise this thread keeps its P in the
			// kernel until another thread takes it over: 60 of the 90 µs until intake reads a request.
			l.handedOver = n
			runtime.Gosched()
		}
		if l.closing && len(l.conns) == 0 {
			return nil
		}
	}
}

// listener returns the listener of fd; nil if there is none or accepting is paused.
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

// timeout returns how long the poller may sleep.
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

// ready handles the poller's events for c.
func (l *Loop) ready(c *Conn, r poll.Readiness) {
	if r&poll.HungUp != 0 {
		if c.lingers { // both directions are shut down; read the remaining input first, see linger
			l.read(c)
			return
		}
		l.close(c, PeerClosed)
		return
	}
	if r&poll.CanWrite != 0 && c.drain() {
		l.h.Writable(c)
	}
	if r&poll.CanRead != 0 && !c.gone {
		l.read(c)
	}
	if invariants.Enabled {
		c.check()
	}
}

// handleNoticed handles what other goroutines asked for: noticed connections, tasks and Stop.
func (l *Loop) handleNoticed() {
	l.mu.Lock()
	l.noticed, l.looking = l.looking[:0], l.noticed
	tasks := l.tasks
	l.tasks = nil
	stop := l.stop
	l.closeBy = l.stopBy
	l.mu.Unlock()
	for _, fn := range tasks {
		fn()
	}
	for i, c := range l.looking {
		l.looking[i] = nil
		l.reconcile(c)
	}
	if stop && !l.closing {
		l.closing = true
		l.stopListening()
		l.returnAll()
		for _, c := range l.conns {
			c.mu.Lock()
			c.end(whenSent, Stopping)
			c.mu.Unlock()
		}
	}
}

// reconcile acts on c's state: it resumes reading, or takes the next step of closing.
func (l *Loop) reconcile(c *Conn) {
	c.mu.Lock()
	c.noticed = false
	if c.gone {
		c.mu.Unlock()
		return
	}
	sent := c.tx.Len() == 0
	quiet := sent && len(c.inFlight) == 0
	resume := c.held && len(c.inFlight) == 0 && (sent || c.protocol == split.Newline) && c.closing == stayOpen
	if resume {
		c.held = false
		if err := c.watch(c.interest | poll.WantRead); err != nil {
			c.end(atOnce, IOError)
		}
	}
	if c.armed && len(c.inFlight) == 0 && l.cfg.StallTimeout > 0 {
		l.next = min(l.next, c.unreadSince+l.cfg.StallTimeout)
	}
	over := c.readEnd && quiet && len(c.rest) == 0 && !c.waits && c.away == nil
	lingers := (c.cause == BrokenStream || c.cause == TimedOut || c.cause == EngineEnded || c.refusal != notRefused) &&
		!c.readEnd
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
	case l.returning.Load() && quiet && c.between():
		l.giveBack(c, nil)
	}
}

// close closes c. Its descriptor is closed at the end of the turn; until then its number is not reused.
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
	c.tx, c.frame, c.armed = ring.Ring{}, nil, false
	c.unstall()
	c.endRecords()
	away, waited := c.away, c.waits
	c.away, c.waits = nil, false
	c.mu.Unlock()
	if c.home != nil { // the front has the descriptor too: without this the client would not see the end
		_ = unix.Shutdown(fd, unix.SHUT_RDWR)
		_ = c.home.Send(linkGone, c.state.Conn(), -1, []byte{byte(cause)})
	}
	l.forget(c, fd, in)
	switch {
	case c.refusal != notRefused:
		l.refusing--
	case l.shares.Remove(c.peer.holder(), c):
		l.stats.Sessions.Add(-1)
		l.stats.Closed[cause].Add(1)
	}
	if away != nil || waited {
		l.freeSlot(c)
		l.cfg.Router.Left(c, away)
	}
	l.farewell(c, cause)
}

// farewell calls Handler.Closed, once, if c's protocol is served by the Handler.
func (l *Loop) farewell(c *Conn, cause Cause) {
	if !c.told && (c.protocol == split.Framed || c.protocol == split.Newline) {
		c.told = true
		l.h.Closed(c, cause)
	}
}

// forget removes c from the loop.
func (l *Loop) forget(c *Conn, fd int, in poll.Interest) {
	l.poll.Del(fd, in)
	l.dead = append(l.dead, fd)
	l.mu.Lock()
	delete(l.conns, fd)
	l.mu.Unlock()
	c.rx.drop(&l.stats)
	c.frames.files.Drop()
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

// finish closes everything.
func (l *Loop) finish() {
	for _, k := range l.links {
		l.dropLink(k, io.ErrClosedPipe)
	}
	for _, c := range l.conns {
		l.close(c, Stopping)
	}
	l.closeDead()
	l.stopListening()
	l.http.Close()
	l.endLocals()
	l.closeReserves()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.poll.Close()
}
