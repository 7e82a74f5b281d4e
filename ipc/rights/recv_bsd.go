//go:build darwin || freebsd

package rights

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Recv reads from a stream socket without waiting, with the descriptors that come along: the caller owns them. The last
// is Lost if there were more than this process could take.
func Recv(fd int, buf []byte) (n int, fds []int, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	var oob [controlBytes]byte
	n, oobn, flags, _, err := unix.Recvmsg(fd, buf, oob[:], unix.MSG_DONTWAIT)
	if err != nil {
		return 0, nil, err
	}
	for _, fd := range parse(oob[:oobn], flags) {
		if fd != Lost {
			unix.CloseOnExec(fd)
		}
		fds = append(fds, fd)
	}
	return n, fds, nil
}
