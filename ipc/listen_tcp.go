package ipc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/ipc/sockdiag"
)

// listenTCP listens on one address; [::] includes IPv4.
func listenTCP(addr netip.AddrPort) (*Listener, error) {
	network := "tcp4"
	switch {
	case addr.Addr().Is6() && addr.Addr().IsUnspecified():
		network = "tcp"
	case addr.Addr().Is6():
		network = "tcp6"
	}
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	nl, err := lc.Listen(context.Background(), network, addr.String())
	if err != nil {
		return nil, fmt.Errorf("--listen %s: %s", addr, listenReason(err))
	}
	defer nl.Close()
	f, err := nl.(*net.TCPListener).File()
	if err != nil {
		return nil, fmt.Errorf("--listen %s: %w", addr, err)
	}
	defer f.Close()
	ln, err := adopt(int(f.Fd()))
	if err != nil {
		return nil, fmt.Errorf("--listen %s: %w", addr, err)
	}
	ln.tcp, err = localAddress(ln.fd)
	if err != nil {
		unix.Close(ln.fd)
		return nil, fmt.Errorf("--listen %s: %w", addr, err)
	}
	return ln, nil
}

// listenReason explains an error of listening on an address.
func listenReason(err error) string {
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return "another program listens there; choose another port, or 0 for any"
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return "this machine has no such address"
	case errors.Is(err, unix.EACCES):
		return "only root may listen on a port below 1024; choose a higher one"
	case errors.Is(err, unix.EAFNOSUPPORT):
		return "this machine does not have this kind of address"
	}
	if inner, ok := errors.AsType[*net.OpError](err); ok {
		err = inner.Err
	}
	return err.Error()
}

// adopt returns a Listener for a duplicate of fd, a listening socket.
func adopt(fd int) (*Listener, error) {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(dup, true); err != nil {
		unix.Close(dup)
		return nil, err
	}
	return &Listener{fd: dup}, nil
}

// localAddress and remoteAddress return the two ends of a TCP socket.
func localAddress(fd int) (netip.AddrPort, error) {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, err
	}
	return address(sa)
}

func remoteAddress(fd int) (netip.AddrPort, error) {
	sa, err := unix.Getpeername(fd)
	if err != nil {
		return netip.AddrPort{}, err
	}
	return address(sa)
}

// address converts a socket address to netip, IPv4-mapped IPv6 to IPv4.
func address(sa unix.Sockaddr) (netip.AddrPort, error) {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)), nil
	case *unix.SockaddrInet6:
		a := netip.AddrFrom16(sa.Addr).Unmap()
		if sa.ZoneId != 0 && a.Is6() {
			a = a.WithZone(strconv.FormatUint(uint64(sa.ZoneId), 10))
		}
		return netip.AddrPortFrom(a, uint16(sa.Port)), nil
	}
	return netip.AddrPort{}, errors.New("is no TCP socket")
}

// knowUsers lets the TCP listeners among lns find the users of their clients.
func knowUsers(lns []*Listener) {
	var finder *sockdiag.Finder
	var err error
	for _, ln := range lns {
		if !ln.tcp.IsValid() {
			continue
		}
		if finder == nil && err == nil {
			finder, err = sockdiag.New()
		}
		switch {
		case err != nil:
			ln.unknown = err
		case !finder.SameNamespace(ln.fd):
			ln.unknown = errors.New("the socket was opened in another network namespace, whose users this process " +
				"cannot see")
		default:
			ln.finder = finder
		}
	}
}

// tcpPeer returns the client of a connection that ln accepted.
func (ln *Listener) tcpPeer(fd int) (Peer, error) {
	local, err := localAddress(fd)
	if err != nil {
		return Peer{}, err
	}
	remote, err := remoteAddress(fd)
	if err != nil {
		return Peer{}, err
	}
	p := Peer{Local: local, Remote: remote, Listener: ln.Address()}
	switch {
	case !sockdiag.Loopback(local, remote):
		p.Unknown = sockdiag.ErrRemote
	case ln.finder == nil:
		p.Unknown = ln.unknown
	default:
		p.UID, p.Unknown = ln.finder.UID(fd, local, remote)
	}
	return p, nil
}
