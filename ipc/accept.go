package ipc

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/ipc/poll"
	"github.com/uma-serve/uma-serve/ipc/share"
	"github.com/uma-serve/uma-serve/ipc/sys"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/split"
)

// Refusal is the reason for which a connection was refused; its String is a metric label.
type Refusal uint8

const (
	notRefused Refusal = iota
	// OverSessions: Config.MaxSessions connections are open, and the client's user has its share.
	OverSessions
	// NoDescriptor: the process has no file descriptor left.
	NoDescriptor
	// ReservedUser: the client's user id is above Config.MaxUID.
	ReservedUser

	numRefusals
)

var refusalNames = [numRefusals]string{"", "sessions", "descriptors", "reserved_uid"}

func (r Refusal) String() string { return refusalNames[r] }

// Refusals returns all reasons, for metrics.
func Refusals() []Refusal { return []Refusal{OverSessions, NoDescriptor, ReservedUser} }

// accept accepts the clients that wait at a listener.
func (l *Loop) accept(ln *Listener) {
	for range acceptsPerTurn {
		fd, err := sys.Accept(ln.fd)
		switch {
		case err == nil:
			l.admit(ln, fd)
		case err == unix.EAGAIN:
			return
		case err == unix.EINTR, err == unix.ECONNABORTED:
		case (err == unix.EMFILE || err == unix.ENFILE) && l.shed(ln):
		default:
			l.stats.IOErrors.Add(1)
			l.pauseAccepting()
			return
		}
	}
}

// admit creates the connection of a new descriptor, or refuses the client.
func (l *Loop) admit(ln *Listener, fd int) {
	c := l.newcomer(ln, fd)
	if c == nil {
		return
	}
	if c.peer.Unknown == nil && l.cfg.MaxUID > 0 && c.peer.UID > l.cfg.MaxUID {
		l.refuseLater(c, ReservedUser)
		return
	}
	displaced, ok := l.shares.Add(c.peer.holder(), c)
	if !ok {
		l.refuseLater(c, OverSessions)
		return
	}
	if displaced != nil {
		l.displace(displaced)
	}
	l.stats.Sessions.Add(1)
	l.stats.Accepted.Add(1)
	ln.accepted.Add(1)
}

// newcomer creates a connection of fd that does not count as a session yet. It returns nil on failure.
func (l *Loop) newcomer(ln *Listener, fd int) *Conn {
	peer, err := l.peerAt(ln, fd)
	if err == nil && ln.tls != nil {
		var plain int
		if plain, err = ln.tls.Wrap(fd, closeWithin); err == nil {
			fd = plain
		}
	}
	if err == nil {
		err = l.poll.Add(fd, poll.WantRead)
	}
	if err != nil {
		if err != unix.ENOTCONN { // ENOTCONN: the client has disconnected
			l.stats.IOErrors.Add(1)
		}
		unix.Close(fd)
		return nil
	}
	c := l.enter(fd, peer)
	if peer.TCP() && l.cfg.HeaderTimeout > 0 {
		l.deadline(c, l.now+l.cfg.HeaderTimeout)
	}
	return c
}

// peerAt returns the client of a connection that ln accepted.
func (l *Loop) peerAt(ln *Listener, fd int) (Peer, error) {
	if ln.tcp.IsValid() {
		return ln.tcpPeer(fd)
	}
	return l.peerOf(fd)
}

// enter adds a connection for a descriptor that the poller watches.
func (l *Loop) enter(fd int, peer Peer) *Conn {
	c := &Conn{loop: l, id: l.lastID.Add(1), peer: peer, fd: fd, interest: poll.WantRead, resumeAt: -1}
	c.frames.files = l.shares.files.New(peer.UID)
	c.lastRx = l.now
	l.mu.Lock()
	l.conns[fd] = c
	l.mu.Unlock()
	if l.cfg.IdleTimeout > 0 {
		l.next = min(l.next, l.now+l.cfg.IdleTimeout)
	}
	return c
}

// refuseLater refuses c when its first bytes show its protocol, or after refuseAfter.
func (l *Loop) refuseLater(c *Conn, why Refusal) {
	l.stats.Refused[why].Add(1)
	c.refusal = why
	l.refusing++
	if l.refusing > maxRefusing {
		l.read(c) // the bytes that have arrived may show the protocol
		if !c.ending() {
			l.refuse(c, split.Framed)
		}
		if !c.gone {
			l.close(c, ByServer)
		}
		return
	}
	l.deadline(c, l.now+refuseAfter)
}

// displace closes a session in favour of another user's. The caller has removed it from shares.
func (l *Loop) displace(s share.Session) {
	l.stats.Sessions.Add(-1)
	l.stats.Closed[Displaced].Add(1)
	if hc, ok := s.(*httpConn); ok {
		hc.displace()
		return
	}
	c := s.(*Conn)
	if c.away != nil {
		if err := c.away.Send(linkDisplace, c.slot, -1); err != nil {
			l.stats.IOErrors.Add(1)
		}
		return
	}
	if p := c.protocol; c.waits {
		l.cfg.Router.Left(c, nil)
		if !l.reopen(c, c.interest) {
			return
		}
		c.protocol = p
	}
	l.turnAway(c, OverSessions)
}

// turnAway tells the client of a session why it ends, and closes it. The caller has taken it out of shares and the
// count of sessions.
func (l *Loop) turnAway(c *Conn, why Refusal) {
	c.refusal = why
	l.refusing++
	if c.protocol == split.Unknown {
		l.deadline(c, l.now+refuseAfter)
		return
	}
	l.refuse(c, c.protocol)
	l.farewell(c, Displaced)
}

// handOverReserve is the number of reserved descriptors that shed keeps: netConn needs two for a moment to serve an
// accepted connection.
const handOverReserve = 2

// shed frees a reserved descriptor to accept one client and refuse it. Otherwise the client would stay in the backlog,
// the socket would stay readable, and the loop would spin. It returns false if no reserve is left.
func (l *Loop) shed(ln *Listener) bool {
	if l.openReserves(); len(l.reserves) <= handOverReserve {
		return false
	}
	l.giveReserve()
	fd, err := sys.Accept(ln.fd)
	if err != nil {
		l.openReserves()
		return err == unix.EAGAIN
	}
	if c := l.newcomer(ln, fd); c != nil {
		l.refuseLater(c, NoDescriptor)
	}
	return true
}

// openReserves opens the missing reserved descriptors, as far as the process's limit allows.
func (l *Loop) openReserves() {
	for len(l.reserves) < reserved {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return
		}
		l.reserves = append(l.reserves, fd)
	}
}

// giveReserve closes one reserved descriptor, so that the next system call can use its number.
func (l *Loop) giveReserve() {
	n := len(l.reserves) - 1
	unix.Close(l.reserves[n])
	l.reserves = l.reserves[:n]
}

func (l *Loop) closeReserves() {
	for len(l.reserves) > 0 {
		l.giveReserve()
	}
}

func (l *Loop) pauseAccepting() {
	if l.accepting {
		l.ignoreListeners()
		l.acceptAt = l.now + acceptPause
	}
}

// ignoreListeners stops polling the listeners.
func (l *Loop) ignoreListeners() {
	for _, ln := range l.lns {
		l.poll.Del(ln.fd, poll.WantRead)
	}
	l.accepting = false
}

// watchListeners starts polling the listeners.
func (l *Loop) watchListeners() error {
	for i, ln := range l.lns {
		if err := l.poll.Add(ln.fd, poll.WantRead); err != nil {
			for _, watched := range l.lns[:i] {
				l.poll.Del(watched.fd, poll.WantRead)
			}
			return err
		}
	}
	l.accepting = true
	return nil
}

func (l *Loop) resumeAccepting() {
	l.acceptAt = 0
	if l.closing {
		return
	}
	if err := l.watchListeners(); err != nil {
		l.stats.IOErrors.Add(1)
		l.acceptAt = l.now + acceptPause
	}
}

// noDescriptor returns the error of a client that is refused because no file descriptor is left.
func noDescriptor() wire.Error {
	return wire.Error{Code: wire.SessionLimit, RetryAfter: time.Second,
		Message: "the server has no file descriptor left; try again later, or raise its limit (ulimit -n, " +
			"LimitNOFILE=)"}
}

// DisplacedError returns the error of a client whose connection is closed in favour of another user's.
func DisplacedError(limit int) wire.Error {
	return wire.Error{Code: wire.SessionLimit, RetryAfter: time.Second, Message: fmt.Sprintf(
		"this connection makes way for another user's: the server has %d connections (--max-sessions), and your user "+
			"holds "+
			"more than its share of them", limit)}
}

// refusalError returns the error of a refused or displaced client.
func (l *Loop) refusalError(c *Conn) wire.Error {
	switch c.refusal {
	case NoDescriptor:
		return noDescriptor()
	case ReservedUser:
		return wire.Error{Code: wire.SessionLimit, Message: fmt.Sprintf(
			"user ids above %d are reserved for the owners of API keys (--api-keys), and yours is %d", l.cfg.MaxUID,
			c.peer.UID)}
	}
	if c.protocol != split.Unknown {
		return DisplacedError(l.cfg.MaxSessions)
	}
	return wire.Error{Code: wire.SessionLimit, RetryAfter: time.Second, Message: fmt.Sprintf(
		"the server has its %d connections (--max-sessions), %d of them your user's; try again later",
		l.cfg.MaxSessions, l.shares.Held(c.peer.holder()))}
}

// refuse answers c in protocol p with its error, and closes it.
func (l *Loop) refuse(c *Conn, p split.Protocol) {
	c.due = 0
	e := l.refusalError(c)
	if c.peer.TCP() {
		p = split.HTTP
	}
	switch p {
	case split.HTTP:
		l.scratch = appendHTTPError(l.scratch[:0], &e)
	case split.Newline:
		l.scratch = wire.AppendErrorLine(l.scratch[:0], &e)
	default:
		l.scratch = wire.AppendError(l.scratch[:0], &e)
	}
	c.Reply(l.scratch)
	c.mu.Lock()
	c.end(whenSent, Displaced)
	c.mu.Unlock()
}

// appendHTTPError appends a whole HTTP response with e that ends the connection.
func appendHTTPError(dst []byte, e *wire.Error) []byte {
	status, _ := wire.HTTPStatus(e.Code)
	body := append(wire.AppendHTTPError(nil, e), '\n')
	dst = fmt.Appendf(dst, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nConnection: close\r\n", status,
		http.StatusText(status))
	if e.RetryAfter > 0 {
		dst = fmt.Appendf(dst, "Retry-After: %d\r\n", int((e.RetryAfter+time.Second-1)/time.Second))
	}
	dst = append(append(dst, "Content-Length: "...), strconv.Itoa(len(body))...)
	return append(append(dst, "\r\n\r\n"...), body...)
}
