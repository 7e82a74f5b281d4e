package ipc

import (
	"fmt"
	"net/netip"
	"os"

	"github.com/coreos/go-systemd/v22/activation"
	"golang.org/x/sys/unix"
)

// inherited returns the sockets that systemd passed.
func inherited() (lns []*Listener, err error) {
	files := activation.Files(true)
	_ = os.Unsetenv("LISTEN_PIDFDID")
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	unixes := 0
	for _, f := range files {
		ln, err := inherit(f)
		if err != nil {
			return lns, err
		}
		lns = append(lns, ln)
		if !ln.tcp.IsValid() {
			unixes++
		}
	}
	if unixes > 1 {
		return lns, fmt.Errorf("systemd passed %d Unix sockets (LISTEN_FDS); uma-serve serves one: keep one "+
			"ListenStream= with "+
			"a path in its socket unit", unixes)
	}
	return lns, nil
}

// inherit returns the Listener of a socket that systemd passed.
func inherit(f *os.File) (*Listener, error) {
	bad := func(why string) (*Listener, error) {
		return nil, fmt.Errorf("the descriptor that systemd passed (%s) %s; the socket unit needs ListenStream= with "+
			"a path "+
			"or an IP address and port", f.Name(), why)
	}
	fd := int(f.Fd())
	if kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind != unix.SOCK_STREAM {
		return bad("is no stream socket")
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return nil, fmt.Errorf("read address of the socket systemd passed: %w", err)
	}
	path, tcp := "", netip.AddrPort{}
	if addr, ok := sa.(*unix.SockaddrUnix); ok {
		path = addr.Name
	} else if tcp, err = address(sa); err != nil {
		return bad("is neither a Unix socket nor a TCP socket")
	}
	if on, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || on == 0 {
		return bad("does not listen (Accept=yes is not supported)")
	}
	// adopt duplicates fd, because the os.File closes it when it is collected.
	ln, err := adopt(fd)
	if err != nil {
		return nil, fmt.Errorf("take over the socket systemd passed: %w", err)
	}
	ln.path, ln.tcp, ln.activated = path, tcp, true
	return ln, nil
}
