package ipc

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// joining is the Loop's end of a connection opened by Connect.
type joining struct {
	fd   int
	peer Peer
}

// Connect opens a connection to the Loop from within the process, in the name of peer. HTTP handlers send requests over
// it in the framed protocol, with the same checks, limits and cancelling as an external client. It does not count as a
// session, because the HTTP client already does. Safe from any goroutine. It fails with a *wire.RequestError when the
// Loop has ended or is stopping, and when no file descriptor is left.
func (l *Loop) Connect(peer Peer) (net.Conn, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, connectError(err)
	}
	nc, err := netConn(theirs)
	unix.Close(theirs)
	if err != nil {
		unix.Close(ours)
		return nil, connectError(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || l.stop {
		nc.Close()
		unix.Close(ours)
		return nil, &wire.RequestError{Code: wire.ShuttingDown, Message: "the server is stopping"}
	}
	l.joining = append(l.joining, joining{ours, peer})
	l.wake()
	return nc, nil
}

// connectError converts err for the client.
func connectError(err error) error {
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		e := noDescriptor()
		return &wire.RequestError{Code: e.Code, Message: e.Message}
	}
	return fmt.Errorf("connect within the process: %w", err)
}

// join adds the connections opened by Connect.
func (l *Loop) join(newcomers []joining) {
	for _, j := range newcomers {
		if err := l.poll.add(j.fd, wantRead); err != nil {
			l.stats.IOErrors.Add(1)
			unix.Close(j.fd)
			continue
		}
		c := l.enter(j.fd, j.peer)
		c.inner, c.protocol = true, wire.Framed
		c.rx.frames.Max = wire.MaxFrameBytes // not Config.MaxFrameBytes, which has limited the HTTP body
	}
}
