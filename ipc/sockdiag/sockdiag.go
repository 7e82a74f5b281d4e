// Package sockdiag asks the kernel which user holds the other end of a TCP connection within this machine.
//
// On Linux the question goes over a NETLINK_SOCK_DIAG socket, for exactly one connection (man 7 sock_diag). The answer
// is the user that created the socket, as the mode of a Unix socket would see it, and nothing that a client sends can
// change it. Other systems have no such question: ErrUnsupported.
package sockdiag

import (
	"errors"
	"net/netip"
)

var (
	// ErrUnsupported says that this system, or this kernel, does not tell the user of a TCP connection.
	ErrUnsupported = errors.New("this system does not tell which user a TCP connection belongs to")
	// ErrNotFound says that no process in this network namespace holds the other end of the connection, or that it has
	// closed it.
	ErrNotFound = errors.New("the kernel knows no process at the other end of this connection")
	// ErrRemote says that the connection leaves the loopback interface, so that its other end may be on another
	// machine.
	ErrRemote = errors.New("the connection does not come from this machine's loopback address")
)

// Loopback reports whether both ends of a connection are loopback addresses; IPv4-mapped IPv6 addresses count as IPv4.
func Loopback(local, remote netip.AddrPort) bool {
	return local.Addr().Unmap().IsLoopback() && remote.Addr().Unmap().IsLoopback()
}

// unmap returns p with an IPv4-mapped IPv6 address as IPv4, and without a zone.
func unmap(p netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(p.Addr().Unmap().WithZone(""), p.Port())
}
