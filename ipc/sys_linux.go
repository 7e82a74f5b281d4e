package ipc

import "golang.org/x/sys/unix"

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
