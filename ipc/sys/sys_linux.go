// Package sys has system calls on sockets that Go's poller does not have: descriptors are non-blocking and closed on
// exec, and a write raises no SIGPIPE.
package sys

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Accept accepts a connection.
func Accept(fd int) (int, error) {
	nfd, _, err := unix.Accept4(fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	return nfd, err
}

// Socket makes a Unix stream socket.
func Socket() (int, error) {
	return unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
}

// SocketPair returns two connected sockets.
func SocketPair() (a, b int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	return fds[0], fds[1], err
}

// Send writes to a non-blocking socket. It uses RawSyscall6, which skips the Go scheduler's bookkeeping of system
// calls: that could pass the caller's P to another thread or wake the runtime's monitor during a decode. The call
// cannot block. MSG_NOSIGNAL prevents SIGPIPE when the peer has closed.
func Send(fd int, b []byte) (int, error) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
			uintptr(len(b)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
			continue
		}
		return 0, errno
	}
}
