package ipc

import (
	"bytes"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/ipc/poll"
	"github.com/uma-serve/uma-serve/ipc/sys"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// PassNew passes a connection that this process makes itself, in a client's name, and returns its other end. The engine
// process answers there as it would answer the client. The connection does not count as a session. Loop only.
func (l *Loop) PassNew(k *Link, peer Peer) (fd int, err error) {
	ours, theirs, err := sys.SocketPair()
	if err != nil {
		return -1, fmt.Errorf("connect within the process: %w", err)
	}
	defer unix.Close(theirs)
	if err := k.Send(linkConn, connless, theirs, appendPassed(nil, &peer)); err != nil {
		unix.Close(ours)
		return -1, err
	}
	return ours, nil
}

// connless is the number of connections that are in no table: their end is not reported.
const connless = 1<<32 - 1

// ---- The engine's side ----

// arrive takes in a connection that the front has passed.
func (l *Loop) arrive(k *Link, m LinkMessage) error {
	peer, unread, err := parsePassed(m.Body)
	if err == nil && m.lost {
		if m.Conn == connless {
			return nil // its other end reads that it has ended
		}
		return k.Send(linkFull, m.Conn, -1)
	}
	if err != nil || m.FD < 0 || m.Conn != connless && int(m.Conn) >= k.table.Conns() {
		if m.FD >= 0 {
			unix.Close(m.FD)
		}
		return errLink
	}
	if err := l.poll.Add(m.FD, poll.WantRead); err != nil {
		l.stats.IOErrors.Add(1)
		unix.Close(m.FD)
		if m.Conn != connless {
			return k.Send(linkGone, m.Conn, -1, []byte{byte(IOError)})
		}
		return nil
	}
	unread = bytes.Clone(unread)
	c := l.enter(m.FD, peer)
	if m.Conn != connless {
		c.home, c.state, c.own = k, k.table.Slot(m.Conn), true
		k.takeFiles(c, m.Conn)
	}
	// the front counts sessions, and an engine process has no separate limit
	if _, ok := l.shares.Add(peer.holder(), c); !ok {
		return fmt.Errorf("take in a connection: %w", errLink)
	}
	l.stats.Sessions.Add(1)
	l.stats.Accepted.Add(1)
	if l.closing || l.returning.Load() {
		if c.home == nil {
			l.close(c, Stopping)
		}
		l.giveBack(c, unread)
		return nil
	}
	l.resumeWith(c, unread)
	return nil
}

// elsewhere reports whether a frame is for another process. The first message of a connection is not: the front has
// decided so.
func (l *Loop) elsewhere(c *Conn, f *wire.Frame) bool {
	switch {
	case c.home == nil || l.cfg.Elsewhere == nil, f.Kind == wire.KindCancel, f.Kind == wire.KindEndThink:
		return false
	// a question beside a running request is answered at once, by this process
	case f.Kind != wire.KindRequest && f.Kind != wire.KindEmbed && !c.Idle():
		return false
	}
	own := c.own
	c.own = false
	return l.returning.Load() || !own && l.cfg.Elsewhere(f)
}
