package ipc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/daemon/shm/connstate"
	"github.com/uma-serve/uma-serve/ipc/poll"
	"github.com/uma-serve/uma-serve/ipc/rights"
	"github.com/uma-serve/uma-serve/ipc/sys"
)

// LinkKind is the type of a message between a front and an engine process.
type LinkKind uint8

// The kinds that the Loops of both processes handle. Kinds from LinkUser on are the processes' own.
const (
	// front → engine: a connection, with its descriptor; the body is its peer (pass_peer.go) and the bytes already read
	// from it
	linkConn LinkKind = iota + 1
	// engine → front: the connection's next message is for another process; the body is the bytes already read from it
	linkBack
	linkGone     // engine → front: the connection has ended
	linkDisplace // front → engine: the connection makes way for another user's
	linkFull     // engine → front: it has no descriptor left for the connection, and has read nothing of it
	// both ways, before linkConn or linkBack: a file of the connection's client, one byte of body: 1 if it came with
	// the newest bytes (rights.Files)
	linkFile

	LinkUser
)

// LinkMessage is one message. Body is valid until the handler returns.
type LinkMessage struct {
	Kind LinkKind
	Conn uint32 // the number of the connection that it is about
	Body []byte
	FD   int // -1: none came with it. The receiver owns it

	lost bool // a descriptor was sent, and this process could not open another one
}

// A link is a stream socket. A message is a header, whose first byte carries the descriptor if there is one, and a
// body.
const (
	linkHeader  = 12
	linkMaxBody = 32 << 20 // above the largest frame and HTTP message

)

var errLink = errors.New("the other process has sent what is no message")

// Link is one end of the stream between a front and an engine process. Connections are passed over it, with their
// descriptors. Send is safe from any goroutine; the Loop that the Link was added to reads it.
type Link struct {
	loop  *Loop
	fd    int              // Invariant: open as long as down is false.
	table *connstate.Table // of the connections that the engine has

	// on and downed run on the Loop's goroutine. downed is the last call.
	on     func(LinkMessage)
	downed func(error)

	// Owned by the Loop.
	in    []byte                  // received and not handled
	fds   []int                   // received with them, in order
	files map[uint32][]passedFile // of connections that are about to arrive

	mu sync.Mutex
	// ---- under mu ----

	out   []outgoing
	armed bool
	down  bool
}

// outgoing is a message, or the rest of one, that the socket has not taken yet.
type outgoing struct {
	bytes []byte
	fd    int // a duplicate, sent with the first byte; -1: none, or sent
}

// AddLink makes the Loop read fd, a stream socket that it owns from now on: on is called with every message that is not
// about a connection, and downed when the other process has ended. table has the states of the connections that are
// passed over the Link. Loop only, or before Run.
func (l *Loop) AddLink(fd int, table *connstate.Table, on func(LinkMessage), downed func(error)) (*Link, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("add link: %w", err)
	}
	k := &Link{loop: l, fd: fd, table: table, on: on, downed: downed}
	if err := l.poll.Add(fd, poll.WantRead); err != nil {
		return nil, err
	}
	l.links[fd] = k
	return k, nil
}

// Send sends a message. It does not wait: bytes that the socket does not take are sent later. fd is -1 or a descriptor,
// which stays the caller's.
func (k *Link) Send(kind LinkKind, conn uint32, fd int, body ...[]byte) error {
	n := 0
	for _, b := range body {
		n += len(b)
	}
	if n > linkMaxBody {
		return fmt.Errorf("send a message of %d bytes to the other process: the limit is %d", n, linkMaxBody)
	}
	msg := make([]byte, linkHeader, linkHeader+n)
	binary.LittleEndian.PutUint32(msg, uint32(n))
	binary.LittleEndian.PutUint32(msg[4:], conn)
	msg[8] = byte(kind)
	if fd >= 0 {
		msg[9] = 1
	}
	for _, b := range body {
		msg = append(msg, b...)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.down {
		return io.ErrClosedPipe
	}
	if len(k.out) == 0 {
		sent, err := k.write(msg, fd)
		if err != nil {
			return err
		}
		if msg = msg[sent:]; len(msg) == 0 {
			return nil
		}
		if sent > 0 {
			fd = -1
		}
	}
	if fd >= 0 { // the caller may close its own before this is sent
		dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("duplicate descriptor: %w", err)
		}
		fd = dup
	}
	k.out = append(k.out, outgoing{msg, fd})
	return k.arm(true)
}

// write sends as much as the socket takes. Caller holds mu.
func (k *Link) write(b []byte, fd int) (n int, err error) {
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	for {
		n, err = unix.SendmsgN(k.fd, b, rights, nil, unix.MSG_DONTWAIT|noSignal)
		switch err {
		case nil:
			return n, nil
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return 0, nil
		}
		return 0, fmt.Errorf("send to the other process: %w", err)
	}
}

// arm makes the poller report room in the socket. Caller holds mu.
func (k *Link) arm(on bool) error {
	if k.armed == on {
		return nil
	}
	from, to := poll.WantRead, poll.WantRead|poll.WantWrite
	if !on {
		from, to = to, from
	}
	if err := k.loop.poll.Mod(k.fd, from, to); err != nil {
		return err
	}
	k.armed = on
	return nil
}

// flush sends the messages that wait. Loop only.
func (k *Link) flush() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(k.out) > 0 {
		o := &k.out[0]
		n, err := k.write(o.bytes, o.fd)
		if err != nil || n == 0 {
			return err
		}
		if o.fd >= 0 {
			unix.Close(o.fd)
			o.fd = -1
		}
		if o.bytes = o.bytes[n:]; len(o.bytes) > 0 {
			return nil
		}
		k.out[0] = outgoing{fd: -1}
		k.out = k.out[1:]
	}
	k.out = nil
	return k.arm(false)
}

// readLink handles the poller's report r about a Link. more: it has read something.
func (l *Loop) readLink(k *Link, r poll.Readiness) (more bool) {
	if r&poll.CanWrite != 0 {
		if err := k.flush(); err != nil {
			l.dropLink(k, err)
			return false
		}
	}
	if r&(poll.CanRead|poll.HungUp) == 0 {
		return false
	}
	n, fds, err := rights.Recv(k.fd, l.buf)
	k.fds = append(k.fds, fds...)
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return false
	case err != nil:
		l.dropLink(k, err)
		return false
	case n == 0:
		l.dropLink(k, io.EOF)
		return false
	}
	in := append(k.in, l.buf[:n]...) // handling a message may use the read buffer
	k.in = nil
	for {
		rest, ok, err := l.linkMessage(k, in)
		if err != nil {
			l.dropLink(k, err)
			return false
		}
		if _, alive := l.links[k.fd]; !alive || k.down { // ended by its own message
			return true
		}
		if in = rest; !ok {
			break
		}
	}
	if len(in) > 0 {
		k.in = append([]byte(nil), in...)
	}
	return true
}

// linkMessage handles the first message of in. ok is false when there is none yet.
func (l *Loop) linkMessage(k *Link, in []byte) (rest []byte, ok bool, err error) {
	if len(in) < linkHeader {
		return in, false, nil
	}
	n := binary.LittleEndian.Uint32(in)
	if n > linkMaxBody {
		return nil, false, errLink
	}
	if uint64(len(in)-linkHeader) < uint64(n) {
		return in, false, nil
	}
	m := LinkMessage{Kind: LinkKind(in[8]), Conn: binary.LittleEndian.Uint32(in[4:]),
		Body: in[linkHeader : linkHeader+n : linkHeader+n], FD: -1}
	if in[9] != 0 {
		if len(k.fds) == 0 {
			return nil, false, errLink
		}
		m.FD, k.fds = k.fds[0], k.fds[1:]
		m.lost = m.FD == rights.Lost
	}
	rest = in[linkHeader+n:]
	switch m.Kind {
	case linkConn:
		err = l.arrive(k, m)
		k.dropFiles(m.Conn)
	case linkBack, linkGone, linkFull:
		err = l.returned(k, m)
		k.dropFiles(m.Conn)
	case linkFile:
		err = k.keepFile(m)
	case linkDisplace:
		l.displacePassed(k, m.Conn)
	default:
		k.on(m)
	}
	return rest, true, err
}

// dropLink ends a Link: the other process has ended, or has sent an invalid message.
func (l *Loop) dropLink(k *Link, err error) {
	k.mu.Lock()
	if k.down {
		k.mu.Unlock()
		return
	}
	k.down = true
	for _, o := range k.out {
		if o.fd >= 0 {
			unix.Close(o.fd)
		}
	}
	k.out = nil
	k.mu.Unlock()
	delete(l.links, k.fd)
	l.poll.Del(k.fd, poll.WantRead|poll.WantWrite)
	l.dead = append(l.dead, k.fd)
	for _, fd := range k.fds {
		if fd != rights.Lost {
			unix.Close(fd)
		}
	}
	for number := range k.files {
		k.dropFiles(number)
	}
	k.fds, k.in = nil, nil
	k.downed(err)
}

// Close ends the Link; its downed function is called. Loop only.
func (k *Link) Close() { k.loop.dropLink(k, io.ErrClosedPipe) }

// Do runs fn on the Loop's goroutine; false: the Loop has ended, and fn will not run. Safe from any goroutine.
func (l *Loop) Do(fn func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	l.tasks = append(l.tasks, fn)
	l.wake()
	return true
}

// SocketPair makes two connected stream sockets, which no process that is started inherits by itself.
func SocketPair() (a, b int, err error) { return sys.SocketPair() }

// ReadLinkMessage reads one message without a descriptor from a link that no Loop reads yet, and waits for it.
func ReadLinkMessage(fd int) (LinkMessage, error) {
	var head [linkHeader]byte
	if err := readFull(fd, head[:]); err != nil {
		return LinkMessage{}, fmt.Errorf("read from the other process: %w", err)
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n > linkMaxBody || head[9] != 0 {
		return LinkMessage{}, errLink
	}
	m := LinkMessage{Kind: LinkKind(head[8]), Conn: binary.LittleEndian.Uint32(head[4:]), Body: make([]byte, n), FD: -1}
	if err := readFull(fd, m.Body); err != nil {
		return LinkMessage{}, fmt.Errorf("read from the other process: %w", err)
	}
	return m, nil
}

func readFull(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Read(fd, b)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1); err != nil &&
				err != unix.EINTR {
				return err
			}
			continue
		case err != nil:
			return err
		case n == 0:
			return io.ErrUnexpectedEOF
		}
		b = b[n:]
	}
	return nil
}

// WriteLinkMessage writes one message without a descriptor to a link that no Loop has, as far as the socket takes it.
func WriteLinkMessage(fd int, kind LinkKind, body []byte) error {
	msg := binary.LittleEndian.AppendUint32(nil, uint32(len(body)))
	msg = append(msg, 0, 0, 0, 0, byte(kind), 0, 0, 0)
	_, err := unix.Write(fd, append(msg, body...))
	return err
}
