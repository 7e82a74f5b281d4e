package ipc

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/ipc/poll"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/split"
)

// linger shuts down the write side and waits for the client to close. Closing a descriptor with unread input would make
// the client's next call fail, even the read of the answer's end.
func (l *Loop) linger(c *Conn) {
	_ = unix.Shutdown(c.fd, unix.SHUT_WR)
	c.lingers = true
	c.mu.Lock()
	c.closing = lingering
	err := c.watch(poll.WantRead)
	c.mu.Unlock()
	if err != nil {
		l.close(c, IOError)
		return
	}
	l.farewell(c, c.cause)
	l.deadline(c, l.now+closeWithin)
}

// deadline sets the time of expire for c.
func (l *Loop) deadline(c *Conn, at time.Duration) {
	c.due = at
	l.next = min(l.next, at)
}

// timers handles the deadlines that have passed.
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
		if !c.gone && l.cfg.IdleTimeout+l.cfg.StallTimeout > 0 && c.refusal == notRefused && !c.waits && c.away == nil {
			l.sweep(c)
		}
	}
}

// expire handles c's deadline.
func (l *Loop) expire(c *Conn) {
	switch {
	case c.ending():
		l.close(c, c.cause)
	case c.waits || c.away != nil:
	case c.refusal != notRefused:
		p := split.Sniff(c.first, true)
		if p == split.Unknown {
			p = split.Framed
		}
		l.refuse(c, p)
	case c.routing:
		l.refuseTCP(c, TimedOut, wire.Errorf(wire.Timeout, "the request did not come whole within %v of its first byte",
			l.cfg.MessageTimeout))
	case c.protocol == split.Unknown && c.peer.TCP():
		l.noRequest(c)
	case c.protocol == split.Unknown:
		l.identify(c, nil, true)
	case c.awaiting:
		c.awaiting = false
		l.broken(c, &split.FrameError{Code: wire.Timeout, Message: fmt.Sprintf(
			"the message is incomplete %v after its first byte", l.cfg.MessageTimeout)})
	}
}

// sweep closes c if it has been idle for Config.IdleTimeout or its client has not read for Config.StallTimeout, else
// sets the next time to check.
func (l *Loop) sweep(c *Conn) {
	c.mu.Lock()
	busy := len(c.inFlight) > 0
	idleSince := max(c.lastRx, c.lastTx, c.lastDone)
	unread, unreadSince := c.armed && c.closing == stayOpen, c.unreadSince
	c.mu.Unlock()
	if unread && !busy && l.cfg.StallTimeout > 0 {
		due := unreadSince + l.cfg.StallTimeout
		if due <= l.now {
			l.close(c, NotReading)
			return
		}
		l.next = min(l.next, due)
	}
	if l.cfg.IdleTimeout == 0 {
		return
	}
	due := idleSince + l.cfg.IdleTimeout
	switch {
	case busy:
		l.next = min(l.next, l.now+l.cfg.IdleTimeout)
	case due <= l.now:
		l.close(c, Idle)
	default:
		l.next = min(l.next, due)
	}
}
