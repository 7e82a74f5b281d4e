package sockdiag

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Finder holds the netlink socket. It is safe for concurrent use.
type Finder struct {
	mu  sync.Mutex
	fd  int
	seq uint32
	buf [4096]byte
}

// timeoutMs bounds a question. The kernel answers within the system call that asks; only a lost answer takes longer.
const timeoutMs = 200

// New opens the netlink socket and asks for the user of one of this process's connections: a kernel without inet_diag
// answers "not found" to everything, which must be known at the start.
func New() (*Finder, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, fmt.Errorf("%w: open a NETLINK_SOCK_DIAG socket: %w", ErrUnsupported, err)
	}
	f := &Finder{fd: fd}
	tv := unix.NsecToTimeval(timeoutMs * 1e6)
	err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv)
	if err == nil {
		// only the kernel's messages are received
		err = unix.Connect(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	}
	if err == nil {
		err = f.try()
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return f, nil
}

// Close ends the Finder.
func (f *Finder) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fd < 0 {
		return nil
	}
	err := unix.Close(f.fd)
	f.fd = -1
	return err
}

// try looks up a connection of this process with itself.
func (f *Finder) try() error {
	ln, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return fmt.Errorf("listen on the loopback address: %w", err)
	}
	defer ln.Close()
	c, err := net.Dial("tcp4", ln.Addr().String())
	if err != nil {
		return fmt.Errorf("connect to the loopback address: %w", err)
	}
	defer c.Close()
	local, err := netip.ParseAddrPort(ln.Addr().String())
	if err != nil {
		return err
	}
	remote, err := netip.ParseAddrPort(c.LocalAddr().String())
	if err != nil {
		return err
	}
	uid, err := f.lookup(local, remote)
	if errors.Is(err, ErrNotFound) {
		return errors.New("the kernel has no inet_diag and tcp_diag (CONFIG_INET_DIAG), or its modules cannot be " +
			"loaded")
	}
	if err == nil && int(uid) != os.Geteuid() {
		return fmt.Errorf("the kernel says that this process's own connection belongs to user %d", uid)
	}
	return err
}

// UID returns the user whose process holds the other end of the connected TCP socket fd. local and remote are the
// addresses of fd's two ends. It fails with ErrRemote unless both are loopback addresses, and with ErrNotFound when the
// other end is no longer held by a process.
//
// While fd is connected no other connection can have the same two addresses, so that the socket found is the other end
// of fd; that fd still is connected is therefore checked after the lookup.
func (f *Finder) UID(fd int, local, remote netip.AddrPort) (uint32, error) {
	if !Loopback(local, remote) {
		return 0, ErrRemote
	}
	uid, err := f.lookup(unmap(local), unmap(remote))
	if err != nil {
		return 0, err
	}
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return 0, fmt.Errorf("read the state of the connection: %w", err)
	}
	if info.State != tcpEstablished && info.State != tcpCloseWait {
		return 0, ErrNotFound
	}
	return uid, nil
}

// SameNamespace reports whether the socket fd is of the network namespace that the Finder asks: one that was passed to
// this process (by systemd, say) may be of another, where the same addresses mean other connections. A kernel before
// 5.14 does not tell; then it is assumed.
func (f *Finder) SameNamespace(fd int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	a, errA := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	b, errB := unix.GetsockoptUint64(f.fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	return errA != nil || errB != nil || a == b
}

// States of a TCP socket, from include/net/tcp_states.h.
const (
	tcpEstablished = 1
	tcpFinWait1    = 4
	tcpFinWait2    = 5
	tcpCloseWait   = 8
)

// Sizes of the structures of linux/netlink.h and linux/inet_diag.h, in bytes.
const (
	headerSize  = 16           // struct nlmsghdr
	requestSize = 8 + 48       // struct inet_diag_req_v2: four bytes, states, struct inet_diag_sockid
	messageSize = 4 + 48 + 5*4 // struct inet_diag_msg: four bytes, id, expires, rqueue, wqueue, uid, inode
)

// lookup returns the user of the socket whose own address is remote and whose peer's is local.
func (f *Finder) lookup(local, remote netip.AddrPort) (uint32, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fd < 0 {
		return 0, ErrUnsupported
	}
	f.seq++
	request := appendRequest(f.buf[:0], f.seq, local, remote)
	if _, err := unix.Write(f.fd, request); err != nil {
		return 0, fmt.Errorf("ask sock_diag: %w", err)
	}
	for {
		n, _, err := unix.Recvfrom(f.fd, f.buf[:], 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("read sock_diag's answer: %w", err)
		}
		uid, mine, err := parseAnswer(f.buf[:n], f.seq, local, remote)
		if mine {
			return uid, err
		}
	}
}

// appendRequest appends a question for one socket.
func appendRequest(b []byte, seq uint32, local, remote netip.AddrPort) []byte {
	ne := binary.NativeEndian
	b = ne.AppendUint32(b, headerSize+requestSize)
	b = ne.AppendUint16(b, unix.SOCK_DIAG_BY_FAMILY)
	b = ne.AppendUint16(b, unix.NLM_F_REQUEST)
	b = ne.AppendUint32(b, seq)
	b = ne.AppendUint32(b, 0) // the kernel fills in our port
	family := byte(unix.AF_INET)
	if remote.Addr().Is6() {
		family = unix.AF_INET6
	}
	b = append(b, family, unix.IPPROTO_TCP, 0, 0)
	b = ne.AppendUint32(b, 1<<tcpEstablished|1<<tcpFinWait1|1<<tcpFinWait2) // only dumps obey it
	b = binary.BigEndian.AppendUint16(b, remote.Port())
	b = binary.BigEndian.AppendUint16(b, local.Port())
	for _, p := range []netip.AddrPort{remote, local} {
		a := p.Addr().AsSlice()
		b = append(append(b, a...), make([]byte, 16-len(a))...)
	}
	b = ne.AppendUint32(b, 0) // any interface
	b = ne.AppendUint64(b, ^uint64(0))
	return b
}

// parseAnswer reads the answer to the question seq; mine is false when the message is another's.
//
// The kernel's lookup also returns a listening socket on the same port, and it reports user 0 for a socket that no
// process holds any more (its inode is 0 then). Both would name a user who has nothing to do with the connection.
func parseAnswer(b []byte, seq uint32, local, remote netip.AddrPort) (uid uint32, mine bool, err error) {
	ne := binary.NativeEndian
	if len(b) < headerSize || ne.Uint32(b) > uint32(len(b)) || ne.Uint32(b[8:]) != seq {
		return 0, false, nil
	}
	body := b[headerSize:]
	switch ne.Uint16(b[4:]) {
	case unix.NLMSG_ERROR:
		if len(body) < 4 {
			return 0, true, errors.New("sock_diag's answer is cut off")
		}
		errno := unix.Errno(-int32(ne.Uint32(body)))
		if errno == unix.ENOENT {
			return 0, true, ErrNotFound
		}
		return 0, true, fmt.Errorf("sock_diag: %w", errno)
	case unix.SOCK_DIAG_BY_FAMILY:
	default:
		return 0, true, fmt.Errorf("sock_diag answered with a message of type %d", ne.Uint16(b[4:]))
	}
	if len(body) < messageSize {
		return 0, true, errors.New("sock_diag's answer is cut off")
	}
	family, state, id := body[0], body[1], body[4:52]
	address := func(at int) netip.Addr {
		if family == unix.AF_INET6 {
			return netip.AddrFrom16([16]byte(id[at : at+16])).Unmap()
		}
		return netip.AddrFrom4([4]byte(id[at : at+4]))
	}
	source := netip.AddrPortFrom(address(4), binary.BigEndian.Uint16(id))
	destination := netip.AddrPortFrom(address(20), binary.BigEndian.Uint16(id[2:]))
	inode := ne.Uint32(body[68:])
	held := inode != 0 && (state == tcpEstablished || state == tcpFinWait1 || state == tcpFinWait2)
	if source != remote || destination != local || !held {
		return 0, true, ErrNotFound
	}
	return ne.Uint32(body[64:]), true, nil
}
