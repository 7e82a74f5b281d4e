package ipc

import (
	"bytes"
	"time"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/daemon/shm/connstate"
	"github.com/uma-serve/uma-serve/ipc/poll"
	"github.com/uma-serve/uma-serve/ipc/wire/split"
)

// Verdict is a Router's decision about a connection's next message.
type Verdict uint8

const (
	// NeedMore: the bytes do not suffice; the Router is asked again when more have arrived.
	NeedMore Verdict = iota
	// Serve: this process answers the message, by the Loop's Handler or its HTTP server.
	Serve
	// Pass: the connection goes to the engine process behind the Link.
	Pass
	// Wait: the connection is held until Loop.PassTo or Loop.Resume.
	Wait
)

// Router decides which process serves a connection. It makes the Loop the front of other processes. All methods run on
// the Loop's goroutine and must not block.
type Router interface {
	// Route decides about the next message of c: the payload of a frame, or the bytes from the start of an HTTP request
	// or of a line on, as many as have arrived. end: no more will come. The bytes are valid during the call. k is set
	// with Pass.
	Route(c *Conn, p split.Protocol, message []byte, end bool) (v Verdict, k *Link)
	// Left is called when a connection that was passed or waits has left: k is the Link over which it was passed, nil
	// while it waits.
	Left(c *Conn, k *Link)
}

// ---- The front's side ----

// peek asks the Router about a message that lies whole in the socket's buffer, where it is left: the engine process
// reads it itself. false: nothing was decided.
func (l *Loop) peek(c *Conn) bool {
	fresh := c.protocol == split.Unknown && len(c.first) == 0 ||
		c.protocol == split.Framed && c.rx.frames.Buffered() == 0
	if !fresh || c.refusal != notRefused || c.ending() || c.busy() || c.unsent() {
		return false
	}
	n, _, err := unix.Recvfrom(c.fd, l.buf, unix.MSG_PEEK|unix.MSG_DONTWAIT)
	if err != nil || n < 4 {
		return false
	}
	message := l.buf[:n]
	p := c.protocol
	if p == split.Unknown {
		p = split.Sniff(message, false)
	}
	if p != split.HTTP && c.peer.TCP() || p == split.Newline && l.cfg.NoNewline {
		return false
	}
	if p == split.Framed {
		s := split.Frames{Max: l.cfg.MaxFrameBytes}
		payload, _, err := s.Next(message)
		if payload == nil || err != nil {
			return false
		}
		message = payload
	}
	switch v, k := l.cfg.Router.Route(c, p, message, false); v {
	case Pass:
		c.protocol = p
		l.pass(c, k, nil)
		return true
	case Wait:
		c.protocol = p
		l.hold(c, nil)
		return true
	}
	return false
}

// unsent reports whether the client has not read all that it was sent.
func (c *Conn) unsent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tx.Len() > 0
}

// busy reports whether an answer of this process to c is outstanding.
func (c *Conn) busy() bool { return !c.Idle() }

// route asks the Router where a connection goes whose next message is message. done: this process does not continue
// with it now. unread returns the bytes for the connection's next reader: message with its frame's header, and
// everything after it.
func (l *Loop) route(c *Conn, p split.Protocol, message []byte, end bool, unread func() []byte) (done bool) {
	v, k := l.cfg.Router.Route(c, p, message, end)
	switch v {
	case Pass:
		l.pass(c, k, unread())
	case Wait:
		l.hold(c, unread())
	case Serve:
		return false
	}
	return v != NeedMore || !end
}

// hold keeps a connection until the Router knows where it goes. Meanwhile, only the client's disconnect is noticed.
func (l *Loop) hold(c *Conn, unread []byte) {
	c.due, c.awaiting = 0, false
	c.waits = true
	c.first, c.rest = nil, bytes.Clone(unread)
	c.mu.Lock()
	if err := c.watch(0); err != nil {
		c.end(atOnce, IOError)
	}
	c.mu.Unlock()
}

// Waits reports whether the Router was asked to wait with c, which has not ended. Loop only.
func (c *Conn) Waits() bool { return c.waits && !c.gone }

// PassTo passes a connection that waits. Loop only.
func (l *Loop) PassTo(c *Conn, k *Link) {
	if c.Waits() {
		unread := c.rest
		c.rest = nil
		l.pass(c, k, unread)
	}
}

// Resume asks the Router again about a connection that waits. Loop only.
func (l *Loop) Resume(c *Conn) {
	if !c.Waits() {
		return
	}
	unread := c.rest
	l.reopen(c, c.interest)
	l.resumeWith(c, unread)
}

// pass gives a connection to the engine process behind k. This process keeps its descriptor, unwatched, to tell the
// client when that process ends.
func (l *Loop) pass(c *Conn, k *Link, unread []byte) {
	c.due, c.awaiting, c.waits = 0, false, false
	c.slot = l.takeSlot(c)
	if int(c.slot) >= k.table.Conns() {
		l.freeSlot(c)
		l.close(c, IOError) // cannot be: the table has room for every session
		return
	}
	k.table.Reset(c.slot)
	k.passFiles(c, c.slot)
	if err := k.Send(linkConn, c.slot, c.fd, appendPassed(nil, &c.peer), unread); err != nil {
		// The engine process has just ended; this connection is handled like its other ones.
		l.stats.IOErrors.Add(1)
	}
	c.mu.Lock()
	l.poll.Del(c.fd, c.interest)
	c.interest = 0
	c.away = k
	c.mu.Unlock()
	c.rx.drop(&l.stats)
	c.travels = bytes.Clone(unread)
	l.stats.Passed.Add(1)
}

// reopen makes a connection one that this process reads, whatever it was before.
func (l *Loop) reopen(c *Conn, in poll.Interest) bool {
	c.mu.Lock()
	err := error(nil)
	if c.away != nil {
		err = l.poll.Add(c.fd, poll.WantRead)
	} else {
		err = l.poll.Mod(c.fd, in, poll.WantRead)
	}
	c.interest, c.away = poll.WantRead, nil
	c.mu.Unlock()
	c.waits, c.protocol, c.lastRx = false, split.Unknown, l.now
	c.travels = nil
	c.rx.drop(&l.stats)
	if err != nil {
		l.stats.IOErrors.Add(1)
		l.close(c, IOError)
		return false
	}
	return true
}

func (l *Loop) resumeWith(c *Conn, unread []byte) {
	if c.gone {
		return
	}
	if len(unread) > 0 {
		l.consume(c, unread)
	} else {
		l.read(c)
	}
}

// returned handles an engine process's message about a connection that was passed to it.
func (l *Loop) returned(k *Link, m LinkMessage) error {
	c := l.passed[m.Conn]
	if c == nil || c.away != k || m.FD >= 0 {
		return errLink
	}
	if m.Kind == linkGone {
		cause := PeerClosed
		if len(m.Body) == 1 && Cause(m.Body[0]) < numCauses {
			cause = Cause(m.Body[0])
		}
		l.close(c, cause)
		return nil
	}
	if m.Kind == linkFull {
		p := c.protocol
		l.freeSlot(c)
		l.cfg.Router.Left(c, k)
		switch {
		case !l.reopen(c, 0):
		case !l.shares.Remove(c.peer.holder(), c): // it was to make way for another user's meanwhile
			l.close(c, Displaced)
		default:
			l.stats.Sessions.Add(-1)
			l.stats.Closed[Displaced].Add(1)
			l.stats.Refused[NoDescriptor].Add(1)
			c.protocol = p
			l.turnAway(c, NoDescriptor)
		}
		return nil
	}
	unread := bytes.Clone(m.Body)
	l.freeSlot(c)
	l.stats.HandedBack.Add(1)
	l.cfg.Router.Left(c, k)
	if l.reopen(c, 0) {
		k.takeFiles(c, m.Conn)
		l.resumeWith(c, unread)
	}
	return nil
}

// Orphans ends or takes back the connections of an engine process that has ended, before its Link's table is closed:
// last returns the last output for a client, and whether its connection stays, which needs a stream that is at a
// boundary in both directions. Loop only.
func (l *Loop) Orphans(k *Link, last func(c *Conn, s connstate.State, ids []string) (say []byte, stays bool)) (n int) {
	requests := k.table.Requests()
	for slot, c := range l.passed {
		if c.away != k {
			continue
		}
		n++
		st := k.table.Get(slot)
		say, stays := last(c, st, requests[slot])
		travels := c.travels
		l.freeSlot(c)
		l.cfg.Router.Left(c, k)
		if !l.reopen(c, 0) {
			continue
		}
		c.Reply(say)
		if !stays {
			c.mu.Lock()
			c.end(whenSent, EngineEnded)
			c.mu.Unlock()
		}
		if stays && st.Phase == connstate.Idle { // the engine process has read nothing: another one will
			l.resumeWith(c, travels)
		}
	}
	return n
}

// displacePassed makes room for another user's connection. (Engine's side of linkDisplace.)
func (l *Loop) displacePassed(k *Link, slot uint32) {
	for _, c := range l.conns {
		if c.home == k && c.state.Conn() == slot {
			if l.shares.Remove(c.peer.holder(), c) {
				l.displace(c)
			}
			return
		}
	}
	if s := l.http.find(k, slot); s != nil {
		s.mu.Lock()
		of := s.holder
		s.mu.Unlock()
		if l.shares.Remove(of, s) {
			l.displace(s)
		}
	}
}

// takeSlot gives c a number in the tables of engine processes.
func (l *Loop) takeSlot(c *Conn) uint32 {
	slot := l.nextSlot
	if n := len(l.freeSlots); n > 0 {
		slot = l.freeSlots[n-1]
		l.freeSlots = l.freeSlots[:n-1]
	} else {
		l.nextSlot++
	}
	l.passed[slot] = c
	return slot
}

func (l *Loop) freeSlot(c *Conn) {
	if l.passed[c.slot] == c {
		delete(l.passed, c.slot)
		l.freeSlots = append(l.freeSlots, c.slot)
	}
}

// giveBack returns a connection to the front, with the bytes already read of its next message, as soon as no request is
// in flight and all output was sent.
func (l *Loop) giveBack(c *Conn, unread []byte) {
	if c.home == nil {
		return
	}
	c.mu.Lock()
	quiet := len(c.inFlight) == 0 && c.tx.Len() == 0
	if !quiet {
		c.held = true
		if err := c.watch(c.interest &^ poll.WantRead); err != nil {
			c.end(atOnce, IOError)
		}
		c.mu.Unlock()
		c.rest = bytes.Clone(unread)
		return
	}
	fd, in := c.fd, c.interest
	c.gone, c.fd, c.armed = true, -1, false
	c.unstall()
	c.mu.Unlock()
	c.home.passFiles(c, c.state.Conn())
	if err := c.home.Send(linkBack, c.state.Conn(), -1, unread); err != nil {
		l.stats.IOErrors.Add(1)
	}
	l.forget(c, fd, in)
	if l.shares.Remove(c.peer.holder(), c) {
		l.stats.Sessions.Add(-1)
		l.stats.Closed[HandedBack].Add(1)
	}
	l.farewell(c, HandedBack)
}

// ReturnIdle gives every connection without a request in flight back to the front, and the others as soon as they are
// idle: this engine process ends. Safe from any goroutine.
func (l *Loop) ReturnIdle() { l.Do(l.returnAll) }

// returnAll is ReturnIdle on the Loop. In a process without a front it does nothing.
func (l *Loop) returnAll() {
	l.returning.Store(true)
	for _, c := range l.conns {
		if c.between() && c.Idle() && !c.ending() { // a request that has begun is answered first
			l.giveBack(c, nil)
		}
	}
	l.http.returnIdle()
}

// Returned reports whether no connection of the front is left in this process. Safe from any goroutine.
func (l *Loop) Returned() bool { return l.stats.Sessions.Load() == 0 }

// opened returns the state of a connection that has shown its protocol.
func opened(p split.Protocol) connstate.State {
	if p == split.Newline {
		return connstate.State{Phase: connstate.Lines}
	}
	return connstate.State{Phase: connstate.Framed}
}

// routeFirst asks the Router about an HTTP request or a line that begins with in, the whole input so far. owned: in is
// not the read buffer. true: this process does not continue with it now.
func (l *Loop) routeFirst(c *Conn, p split.Protocol, in []byte, owned, end bool) bool {
	if l.cfg.Router == nil {
		return false
	}
	done := l.route(c, p, in, end, func() []byte { return in })
	if !done || c.waits || c.away != nil || c.gone {
		c.routing = false
		return done
	}
	if !owned {
		in = bytes.Clone(in)
	}
	if c.first = in; !c.routing {
		c.routing, c.due = true, 0
		if l.cfg.MessageTimeout > 0 {
			l.deadline(c, l.now+l.cfg.MessageTimeout)
		}
	}
	return true
}

// Settled frees the copies of bytes that were passed with connections, where the engine processes have taken them. The
// front calls it now and then. Loop only.
func (l *Loop) Settled() {
	for slot, c := range l.passed {
		if c.travels != nil && c.away.table.Get(slot).Phase != connstate.Idle {
			c.travels = nil
		}
	}
}

// Pend marks that another goroutine computes an answer for c: nothing more is read from c until done is called, which
// is safe from any goroutine. Loop only.
func (c *Conn) Pend() (done func()) {
	const id = "\x00" // no client's
	c.begin(id)
	return func() { c.Done(id) }
}

// Routing is a Router's state of a message that is incomplete or waits.
type Routing struct {
	Seen  int // bytes that it has examined
	Whole int // length of the whole message in bytes, where that is known

	// The framed request that waits, if its client wants to hear of progress: its id, the start of the wait, and the
	// number of progress events sent.
	Request string
	Since   time.Time
	Told    int

	// The HTTP request that waits, if its client may ask for its stream: the stream's id, its owner, and the path.
	Stream string
	Owner  uint32
	Path   string
}

// Admit notes whether --listen-mode lets the user of c ask over TCP, for the process that c is passed to. Loop only.
func (c *Conn) Admit(ok bool) { c.peer.Admitted = ok }

// PassedTo returns the number of connections that the process behind k has. Loop only.
func (l *Loop) PassedTo(k *Link) (n int) {
	for _, c := range l.passed {
		if c.away == k {
			n++
		}
	}
	return n
}

// Drain reads the messages that a process that has ended left on its Link, and ends the Link. Loop only.
func (k *Link) Drain() {
	for !k.down {
		if more := k.loop.readLink(k, poll.CanRead); !more && !k.down {
			k.Close()
		}
	}
}

// ReplyLast is Reply for an answer with which the connection ends.
func (c *Conn) ReplyLast(frame []byte) {
	c.Reply(frame)
	c.endAnswered()
}

func (c *Conn) endAnswered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.gone {
		c.end(whenSent, Answered)
	}
}
