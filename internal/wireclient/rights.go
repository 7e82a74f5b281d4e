//go:build !windows

package wireclient

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"syscall"
)

// writeRights writes the beginning of frame, and with it the descriptors of files.
func writeRights(conn net.Conn, frame []byte, files []*os.File) (n int, err error) {
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return 0, fmt.Errorf("files go over a Unix socket alone, and this is a %T", conn)
	}
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	n, _, err = unix.WriteMsgUnix(frame, syscall.UnixRights(fds...), nil)
	runtime.KeepAlive(files)
	return n, err
}
