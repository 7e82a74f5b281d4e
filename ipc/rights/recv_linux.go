package rights

import "golang.org/x/sys/unix"

// Recv reads from a stream socket without waiting, with the descriptors that come along: the caller owns them. The last
// is Lost if there were more than this process could take.
func Recv(fd int, buf []byte) (n int, fds []int, err error) {
	var oob [controlBytes]byte
	n, oobn, flags, _, err := unix.Recvmsg(fd, buf, oob[:], unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return 0, nil, err
	}
	return n, parse(oob[:oobn], flags), nil
}
