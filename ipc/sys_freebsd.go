package ipc

import "golang.org/x/sys/unix"

func peerOf(fd int) (Peer, error) {
	c, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return Peer{}, err
	}
	return Peer{UID: c.Uid, GID: c.Groups[0]}, nil // the first group is the effective one
}
