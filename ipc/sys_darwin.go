package ipc

import "golang.org/x/sys/unix"

func peerOf(fd int) (Peer, error) {
	c, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return Peer{}, err
	}
	p := Peer{UID: c.Uid, GID: c.Groups[0]} // the first group is the effective one
	if pid, err := unix.GetsockoptInt(fd, unix.SOL_LOCAL, unix.LOCAL_PEERPID); err == nil {
		p.PID = int32(pid)
	}
	return p, nil
}
