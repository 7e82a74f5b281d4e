package sys

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// NetConn returns a net.Conn for a duplicate of fd. fd stays open.
func NetConn(fd int) (net.Conn, error) {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate descriptor: %w", err)
	}
	f := os.NewFile(uintptr(dup), "http")
	defer f.Close()
	return net.FileConn(f)
}
