package ipc

import (
	"bytes"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/ipc/poll"
	"github.com/uma-serve/uma-serve/ipc/rights"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/split"
)

// rx is the input side of a connection, owned by the Loop. Between two messages it holds no memory: all connections
// share the read buffer.
type rx struct {
	first    []byte // up to three bytes of a connection whose protocol is unknown
	rest     []byte // input that waits for the next turn, or for Done on a newline connection
	queued   bool   // on the Loop's backlog
	frames   framed
	lines    split.Lines
	lastRx   time.Duration // newest input
	lastTx   time.Duration // newest write of the Loop
	due      time.Duration // deadline on the Loop's clock; 0: none
	awaiting bool          // due is the deadline of an incomplete message
	discards int           // bytes discarded while closing
	refusal  Refusal       // to be refused; unless it was a session, the Handler never sees it
	lingers  bool          // closing is lingering or more
	waits    bool          // a front: its Router has the connection
	routing  bool          // a front: first holds the start of an HTTP request; due is the deadline of the rest
	slot     uint32        // a front: its number in the tables of engine processes, while away is set
	// a front: what was read of the connection and passed with it, until the engine process has taken it
	travels []byte
	own     bool // an engine process: the next message is for this process, as the front has decided
	told    bool // Handler.Closed was called
	counted int  // bytes last added to Counters.RxHeld
}

// framed is the input of a connection that has frames.
type framed struct {
	split.Frames
	files   rights.Files // that came with the input
	reading bool         // files of the newest frame are read; held is set
}

// account updates the counter of held memory.
func (r *rx) account(s *Counters) {
	held := cap(r.first) + cap(r.rest) + r.frames.Buffered() + r.lines.Buffered()
	if held != r.counted {
		s.RxHeld.Add(int64(held - r.counted))
		r.counted = held
	}
}

// drop discards all input.
func (r *rx) drop(s *Counters) {
	r.first, r.rest, r.frames.Frames, r.lines = nil, nil, split.Frames{}, split.Lines{}
	r.account(s)
}

// read reads with one system call and handles the input.
func (l *Loop) read(c *Conn) {
	if len(c.rest) > 0 {
		return // earlier input is handled first
	}
	if l.cfg.Router != nil && l.peek(c) {
		return
	}
	c.state.Unread(true)
	n, fds, err := rights.Recv(c.fd, l.buf)
	c.frames.files.Add(fds)
	if n <= 0 {
		c.state.Unread(false)
	}
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
	case err != nil:
		if err != unix.ECONNRESET {
			l.stats.IOErrors.Add(1)
			l.close(c, IOError)
			return
		}
		l.close(c, PeerClosed)
	case n == 0:
		l.readEnd(c)
	default:
		l.stats.RxBytes.Add(uint64(n))
		c.lastRx = l.now
		l.consume(c, l.buf[:n])
	}
}

// ending reports whether c is closing or closed: its input is discarded.
func (c *Conn) ending() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone || c.closing != stayOpen
}

// consume handles input: in is in the read buffer, or was in c.rest.
func (l *Loop) consume(c *Conn, in []byte) {
	switch {
	case c.ending():
		if c.discards += len(in); c.discards > maxLingerBytes {
			l.close(c, NotReading)
		}
	case c.protocol == split.Framed:
		l.frames(c, in)
	case c.protocol == split.Newline:
		c.frames.files.Drop()
		l.lines(c, in)
	default:
		l.identify(c, in, false)
	}
	if !c.gone {
		l.await(c)
		c.account(&l.stats)
		if c.home != nil && c.protocol != split.Unknown {
			c.state.Unread(!c.between())
		}
	}
}

// await sets the deadline of an incomplete message. It counts from the message's first byte, so that sending a byte now
// and then does not extend it.
func (l *Loop) await(c *Conn) {
	if l.cfg.MessageTimeout <= 0 || c.protocol == split.Unknown || c.ending() {
		return
	}
	partial := len(c.rest) == 0 && (c.rx.frames.Missing() > 0 || c.rx.lines.Partial())
	switch {
	case partial && !c.awaiting:
		c.awaiting = true
		l.deadline(c, l.now+l.cfg.MessageTimeout)
	case !partial && c.awaiting:
		c.awaiting, c.due = false, 0
	}
}

// keep keeps input until the next turn or, if c is held, until Done.
func (l *Loop) keep(c *Conn, in []byte) {
	// Clone: in may be in the read buffer. If it is a part of earlier kept input, the copy frees the rest of that.
	c.rest = bytes.Clone(in)
	if !c.held && !c.queued && len(in) > 0 {
		c.queued = true
		l.backlog = append(l.backlog, c)
	}
}

// workBacklog handles the kept input of the connections on the backlog.
func (l *Loop) workBacklog() {
	n := len(l.backlog)
	for _, c := range l.backlog[:n] {
		c.queued = false
		rest := c.rest
		c.rest = nil
		if !c.gone {
			l.consume(c, rest)
		}
	}
	l.backlog = l.backlog[:copy(l.backlog, l.backlog[n:])]
}

// identify determines c's protocol from its first bytes.
func (l *Loop) identify(c *Conn, in []byte, noMore bool) {
	owned := len(c.first) > 0
	if owned {
		in = append(c.first, in...)
		c.first = nil
	}
	p := split.Sniff(in, noMore)
	switch {
	case p == split.Unknown:
		c.first = bytes.Clone(in)
		c.frames.files.Split()
		if len(in) > 0 && c.refusal == notRefused && !c.peer.TCP() { // HTTP, the only protocol over TCP, is longer
			l.deadline(c, l.now+split.SniffGraceMs*time.Millisecond)
		}
		return
	case c.refusal != notRefused:
		l.refuse(c, p)
		return
	case p == split.HTTP:
		if l.routeFirst(c, p, in, owned, noMore) {
			return
		}
		l.handOver(c, in)
		return
	case c.peer.TCP():
		l.notHTTP(c)
		return
	case p == split.Newline && l.cfg.NoNewline:
		l.noLines(c)
		return
	case p == split.Newline && l.routeFirst(c, p, in, owned, noMore):
		return
	}
	c.due = 0
	c.protocol = p
	c.state.Set(opened(p))
	c.rx.frames.Max, c.rx.lines.Max = l.cfg.MaxFrameBytes, l.cfg.MaxPromptBytes
	l.consume(c, in)
}

// notHTTP refuses a TCP client whose first bytes are not HTTP.
func (l *Loop) notHTTP(c *Conn) {
	l.refuseTCP(c, BrokenStream,
		&wire.Error{Code: wire.BadRequest, Message: "this port speaks HTTP without TLS; frames and " +
			"lines of text are for the Unix socket, and TLS is for a reverse proxy"})
}

// noLines refuses a client of the newline protocol where it is off.
func (l *Loop) noLines(c *Conn) {
	c.due = 0
	l.stats.countProtocolError(wire.BadRequest)
	l.scratch = wire.AppendErrorLine(l.scratch[:0], &wire.Error{Code: wire.BadRequest,
		Message: "lines of text are off (--no-newline): send frames or HTTP"})
	c.Reply(l.scratch)
	c.mu.Lock()
	c.end(whenSent, BrokenStream)
	c.mu.Unlock()
}

// noRequest closes a TCP connection that has not sent the start of a request in time. It sends no answer if the client
// has sent nothing, like a browser that connects speculatively.
func (l *Loop) noRequest(c *Conn) {
	if len(c.first) == 0 {
		l.close(c, TimedOut)
		return
	}
	l.refuseTCP(c, TimedOut, headerTimeout())
}

// refuseTCP answers a client over HTTP whose connection was not passed to net/http, and closes it.
func (l *Loop) refuseTCP(c *Conn, cause Cause, e *wire.Error) {
	c.due = 0
	l.stats.countProtocolError(e.Code)
	l.scratch = appendHTTPError(l.scratch[:0], e)
	c.Reply(l.scratch)
	c.mu.Lock()
	c.end(whenSent, cause)
	c.mu.Unlock()
}

// frames handles input of a framed connection.
func (l *Loop) frames(c *Conn, in []byte) {
	for n := 0; ; n++ {
		if l.cfg.Router != nil && c.hold(true) {
			l.keep(c, in)
			return
		}
		if n == messagesPerTurn {
			l.keep(c, in)
			return
		}
		payload, rest, err := c.rx.frames.Next(in)
		if err != nil {
			l.broken(c, err)
			return
		}
		if payload == nil {
			c.frames.files.Split()
			return
		}
		in = rest
		c.awaiting = false
		if l.cfg.Router != nil &&
			l.route(c, split.Framed, payload, true,
				func() []byte { return append(wire.AppendFrame(nil, payload), in...) }) {
			return
		}
		l.stats.Frames.Add(1)
		files := c.frames.files.Frame(len(in) == 0)
		if !l.message(c, payload, files) {
			c.frames.files.Return(files)
			l.giveBack(c, append(wire.AppendFrame(nil, payload), in...))
			return
		}
		if c.ending() {
			return
		}
		if c.frames.reading {
			l.keep(c, in)
			return
		}
	}
}

// message handles a frame with its files; false: it is for another process, and the files are still the caller's.
func (l *Loop) message(c *Conn, payload []byte, files []int) bool {
	f, err := wire.Parse(&l.parser, payload, l.cfg.Defaults)
	switch {
	case err != nil:
		l.refuseMessage(c, errorEvent(err))
	case l.elsewhere(c, &f):
		return false
	case f.Kind == wire.KindRequest && c.begin(f.ID):
		l.request(c, f.Request, files)
		return true
	case f.Kind == wire.KindRequest || f.Kind == wire.KindEmbed:
		if f.Kind == wire.KindRequest || !c.begin(f.ID) {
			l.refuseMessage(c, errorEvent(duplicateID(f.ID)))
		} else {
			l.h.Embed(c, f.Embed)
		}
	case f.Kind == wire.KindCancel:
		if c.running(f.ID) { // else its eos was sent
			l.h.Cancel(c, f.ID)
		}
	case f.Kind == wire.KindEndThink:
		if c.running(f.ID) {
			l.h.EndThink(c, f.ID)
		}
	default:
		l.h.Admin(c, &f)
	}
	l.shares.files.Close(c.peer.UID, files)
	return true
}

// duplicateID is the error of a request whose id is in use.
func duplicateID(id string) error {
	return &wire.RequestError{ID: id, Code: wire.DuplicateID,
		Message: "a request with this id is still running on this connection; it continues, this one is refused: " +
			"choose another id"}
}

// lines handles input of a newline connection.
func (l *Loop) lines(c *Conn, in []byte) {
	for n := 0; len(in) > 0; n++ {
		if c.hold(false) {
			l.keep(c, in)
			return
		}
		if n == messagesPerTurn {
			l.keep(c, in)
			return
		}
		line, rest, err := c.rx.lines.Next(in)
		if err != nil {
			l.broken(c, err)
			return
		}
		if line == nil {
			return
		}
		in = rest
		c.awaiting = false
		l.line(c, line)
		if c.ending() {
			return
		}
	}
}

// hold stops reading while a message is being answered, with sent until its answer was sent, too: another process that
// the next message goes to could not send the rest. The next messages wait in the socket's buffer.
func (c *Conn) hold(sent bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.inFlight) == 0 && (!sent || c.tx.Len() == 0) {
		return false
	}
	c.held = true
	if err := c.watch(c.interest &^ poll.WantRead); err != nil {
		c.end(atOnce, IOError)
	}
	return true
}

func (l *Loop) line(c *Conn, line []byte) {
	kind, err := split.ParseLine(line)
	switch {
	case err != nil:
		l.stats.Frames.Add(1)
		l.refuseMessage(c, errorEvent(err))
	case kind == split.LineEmpty:
	case kind == split.LineMetrics:
		l.stats.Frames.Add(1)
		l.h.Admin(c, &wire.Frame{Kind: wire.KindMetrics})
		if !c.busy() { // else ReplyLast follows
			c.endAnswered()
		}
	default:
		l.stats.Frames.Add(1)
		c.begin("")
		l.h.Line(c, string(line))
	}
}

// readEnd handles the end of the client's input.
func (l *Loop) readEnd(c *Conn) {
	if c.lingers {
		l.close(c, c.cause)
		return
	}
	c.mu.Lock()
	c.readEnd = true
	if err := c.watch(c.interest &^ poll.WantRead); err != nil {
		c.end(atOnce, IOError)
	}
	c.notice() // reconcile closes it when all answers are sent
	over := c.closing != stayOpen
	c.mu.Unlock()
	if over {
		return
	}
	if c.protocol == split.Unknown && len(c.first) > 0 {
		l.identify(c, nil, true)
		if c.gone {
			return
		}
	}
	switch c.protocol {
	case split.Framed:
		if err := c.rx.frames.End(); err != nil {
			l.broken(c, err)
		}
	case split.Newline:
		if line := c.rx.lines.End(); line != nil {
			l.line(c, line)
		}
	}
	c.account(&l.stats)
}

// refuseMessage answers an invalid message; the connection stays open.
func (l *Loop) refuseMessage(c *Conn, e wire.Error) {
	l.stats.countProtocolError(e.Code)
	l.tell(c, &e)
}

// broken answers a FrameError and closes the connection, because the start of the next message is unknown.
func (l *Loop) broken(c *Conn, err error) {
	e := errorEvent(err)
	cause := BrokenStream
	if e.Code == wire.Timeout {
		cause = TimedOut
	}
	l.stats.countProtocolError(e.Code)
	l.tell(c, &e)
	c.mu.Lock()
	c.end(whenSent, cause)
	c.mu.Unlock()
	l.farewell(c, cause) // cancel its requests now, not when the client has read the answer
}

func (l *Loop) tell(c *Conn, e *wire.Error) {
	if c.protocol == split.Newline {
		l.scratch = wire.AppendErrorLine(l.scratch[:0], e)
	} else {
		l.scratch = wire.AppendError(l.scratch[:0], e)
	}
	c.Reply(l.scratch)
}

// errorEvent returns the error event for a FrameError or RequestError.
func errorEvent(err error) wire.Error {
	var fe *split.FrameError
	var re *wire.RequestError
	switch {
	case errors.As(err, &fe):
		return fe.Event()
	case errors.As(err, &re):
		return re.Event()
	}
	return wire.Error{Code: wire.InternalFailure, Message: err.Error()}
}
