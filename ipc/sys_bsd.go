//go:build darwin || freebsd

package ipc

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// maxSocketPath is the maximum length of a path in bytes: sun_path has 104, including the NUL.
const maxSocketPath = 103

// noSignal is 0: SO_NOSIGPIPE is set on every socket.
const noSignal = 0

// recvRights reads from a stream socket without waiting, with the descriptors that come along.
func recvRights(fd int, buf []byte) (n int, fds []int, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	var oob [256]byte
	n, oobn, flags, _, err := unix.Recvmsg(fd, buf, oob[:], unix.MSG_DONTWAIT)
	if err != nil {
		return 0, nil, err
	}
	for _, fd := range parseRights(oob[:oobn], flags) {
		if fd != lostFD {
			unix.CloseOnExec(fd)
		}
		fds = append(fds, fd)
	}
	return n, fds, nil
}
