package ipc

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxSocketPath is how many bytes a path may have: sun_path holds 108 with the final NUL.
const maxSocketPath = 107

func acceptConn(fd int) (int, error) {
	nfd, _, err := unix.Accept4(fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	return nfd, err
}

func newSocket() (int, error) {
	return unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
}

// socketPair makes two connected sockets.
func socketPair() (a, b int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	return fds[0], fds[1], err
}

func peerOf(fd int) (Peer, error) {
	c, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return Peer{}, err
	}
	return Peer{UID: c.Uid, GID: c.Gid, PID: c.Pid}, nil
}

// send writes to a non-blocking socket. It goes around the scheduler's bookkeeping of system calls (RawSyscall):
// the call cannot block, and that bookkeeping may hand the caller's processor to another thread, or wake the
// runtime's monitor, which is what the way of a token must not do. No SIGPIPE is raised for a peer that has gone.
func send(fd int, b []byte) (int, error) {
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
