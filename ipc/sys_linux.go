package ipc

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxSocketPath is the maximum length of a path in bytes: sun_path has 108, including the NUL.
const maxSocketPath = 107

func acceptConn(fd int) (int, error) {
	nfd, _, err := unix.Accept4(fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	return nfd, err
}

func newSocket() (int, error) {
	return unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
}

// socketPair returns two connected sockets.
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

// send writes to a non-blocking socket. It uses RawSyscall6, which skips the Go scheduler's bookkeeping of system
// calls: that could pass the caller's P to another thread or wake the runtime's monitor during a decode. The call
// cannot block. MSG_NOSIGNAL prevents SIGPIPE when the peer has closed.
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

// noSignal keeps sendmsg from raising SIGPIPE.
const noSignal = unix.MSG_NOSIGNAL

// recvRights reads from a stream socket without waiting, with the descriptors that come along.
func recvRights(fd int, buf []byte) (n int, fds []int, err error) {
	var oob [256]byte
	n, oobn, flags, _, err := unix.Recvmsg(fd, buf, oob[:], unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return 0, nil, err
	}
	return n, parseRights(oob[:oobn], flags), nil
}
