package ipc

import (
	"golang.org/x/sys/unix"
)

// maxSocketPath is the maximum length of a path in bytes: sun_path has 108, including the NUL.
const maxSocketPath = 107

func peerOf(fd int) (Peer, error) {
	c, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return Peer{}, err
	}
	return Peer{UID: c.Uid, GID: c.Gid, PID: c.Pid}, nil
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
