package ipc

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// accept takes in who waits at the socket.
func (l *Loop) accept() {
	for range acceptsPerTurn {
		fd, err := acceptConn(l.ln.fd)
		switch {
		case err == nil:
			l.admit(fd)
		case err == unix.EAGAIN:
			return
		case err == unix.EINTR, err == unix.ECONNABORTED:
		case (err == unix.EMFILE || err == unix.ENFILE) && l.shed():
		default:
			l.stats.IOErrors.Add(1)
			l.pauseAccepting()
			return
		}
	}
}

// admit makes a connection of a new descriptor.
func (l *Loop) admit(fd int) {
	peer, err := peerOf(fd)
	if err != nil { // without an identity it would have no quota and no namespace
		l.stats.IOErrors.Add(1)
		unix.Close(fd)
		return
	}
	refused := l.stats.Sessions.Load() >= int64(l.cfg.MaxSessions+l.refusing)
	if refused {
		l.stats.Refused.Add(1)
		if l.refusing == maxRefusing {
			l.tellAndClose(fd, l.sessionLimit())
			return
		}
	}
	if err := l.poll.add(fd, wantRead); err != nil {
		l.stats.IOErrors.Add(1)
		unix.Close(fd)
		return
	}
	c := l.enter(fd, peer)
	l.stats.Sessions.Add(1)
	if refused {
		c.refused = true
		l.refusing++
		l.deadline(c, l.now+refuseAfter)
		return
	}
	l.stats.Accepted.Add(1)
}

// enter makes a connection of a descriptor that the poller watches.
func (l *Loop) enter(fd int, peer Peer) *Conn {
	l.lastID++
	c := &Conn{loop: l, id: l.lastID, peer: peer, fd: fd, interest: wantRead, resumeAt: -1}
	c.lastRx = l.now
	l.mu.Lock()
	l.conns[fd] = c
	l.mu.Unlock()
	if l.cfg.IdleTimeout > 0 {
		l.next = min(l.next, l.now+l.cfg.IdleTimeout)
	}
	return c
}

// shed gives up the reserve descriptor to accept one client and tell it that no other is left. Without that the
// client would stay in the queue and the socket readable, and the loop would spin. false: there is no reserve.
func (l *Loop) shed() bool {
	if l.openReserve(); l.reserve < 0 {
		return false
	}
	l.closeReserve()
	fd, err := acceptConn(l.ln.fd)
	if err == nil {
		l.stats.Refused.Add(1)
		l.tellAndClose(fd, wire.Error{Code: wire.SessionLimit, Message: "the server has no file descriptor left; try again later, or raise its limit (ulimit -n, LimitNOFILE=)", RetryAfter: time.Second})
	}
	l.openReserve()
	return err == nil || err == unix.EAGAIN
}

func (l *Loop) openReserve() {
	if l.reserve < 0 {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			fd = -1
		}
		l.reserve = fd
	}
}

func (l *Loop) closeReserve() {
	if l.reserve >= 0 {
		unix.Close(l.reserve)
		l.reserve = -1
	}
}

// tellAndClose answers a client that gets no connection, as far as its socket takes it.
func (l *Loop) tellAndClose(fd int, e wire.Error) {
	l.scratch = wire.AppendError(l.scratch[:0], &e)
	_, _ = send(fd, l.scratch)
	unix.Close(fd)
}

func (l *Loop) pauseAccepting() {
	if l.accepting {
		l.poll.del(l.ln.fd, wantRead)
		l.accepting, l.acceptAt = false, l.now+acceptPause
	}
}

func (l *Loop) resumeAccepting() {
	l.acceptAt = 0
	if l.ln.fd < 0 {
		return
	}
	if err := l.poll.add(l.ln.fd, wantRead); err != nil {
		l.stats.IOErrors.Add(1)
		l.acceptAt = l.now + acceptPause
		return
	}
	l.accepting = true
}

// sessionLimit is what a client over the limit is told.
func (l *Loop) sessionLimit() wire.Error {
	return wire.Error{Code: wire.SessionLimit, RetryAfter: time.Second,
		Message: fmt.Sprintf("the server has its %d connections (--max-sessions); try again later", l.cfg.MaxSessions)}
}

// refuse tells a client over the limit so in its own protocol.
func (l *Loop) refuse(c *Conn, p wire.Protocol) {
	c.due = 0
	e := l.sessionLimit()
	switch p {
	case wire.HTTP:
		l.scratch = fmt.Appendf(l.scratch[:0],
			"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s: %s\n",
			len(e.Code)+len(e.Message)+3, e.Code, e.Message)
	case wire.Newline:
		l.scratch = wire.AppendErrorLine(l.scratch[:0], &e)
	default:
		l.scratch = wire.AppendError(l.scratch[:0], &e)
	}
	c.Reply(l.scratch)
	c.mu.Lock()
	c.end(whenSent, ByServer)
	c.mu.Unlock()
}
