//go:build darwin || freebsd

package sys

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Accept accepts a connection and holds syscall.ForkLock, like package net: accept and close-on-exec are two calls on
// macOS, and a process started between them would inherit the descriptor.
func Accept(fd int) (int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	nfd, _, err := unix.Accept(fd)
	if err != nil {
		return -1, err
	}
	return nfd, harden(nfd)
}

// Socket makes a Unix stream socket.
func Socket() (int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return -1, err
	}
	return fd, harden(fd)
}

// harden sets the flags that Linux sets at creation: close-on-exec, non-blocking, no SIGPIPE. On failure it closes fd.
func harden(fd int) error {
	unix.CloseOnExec(fd)
	err := unix.SetNonblock(fd, true)
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_NOSIGPIPE, 1)
	}
	if err != nil {
		unix.Close(fd)
	}
	return err
}

// SocketPair returns two connected sockets.
func SocketPair() (a, b int, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return -1, -1, err
	}
	if err = harden(fds[0]); err != nil {
		unix.Close(fds[1])
	} else if err = harden(fds[1]); err != nil {
		unix.Close(fds[0])
	}
	return fds[0], fds[1], err
}

// Send writes to a non-blocking socket.
func Send(fd int, b []byte) (int, error) {
	for {
		n, err := unix.Write(fd, b)
		switch err {
		case nil:
			return n, nil
		case unix.EINTR:
			continue
		}
		return 0, err
	}
}
