//go:build linux && (amd64 || arm64)

package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"unsafe"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"
)

// The kernel's structures: seccomp(2), linux/seccomp.h.
type notification struct {
	id    uint64
	pid   uint32
	flags uint32
	nr    int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

type response struct {
	id    uint64
	val   int64
	errno int32
	flags uint32
}

const (
	notifRecv    = 0xc0502100 // SECCOMP_IOCTL_NOTIF_RECV
	notifSend    = 0xc0182101 // SECCOMP_IOCTL_NOTIF_SEND
	notifIDValid = 0x40082102 // SECCOMP_IOCTL_NOTIF_ID_VALID

	flagContinue = 1 // SECCOMP_USER_NOTIF_FLAG_CONTINUE
)

// Supervise answers the kernel's questions about a process that Enter has confined with this Policy, until the process
// has ended. It takes over fd, and tells report of every call that it refuses.
//
// What is allowed here of opening a file is decided by its name, which the process could still change: Landlock decides
// again, by the file. It is Supervise that tells.
func Supervise(fd int, p Policy, report func(Denial)) error {
	defer unix.Close(fd)
	p = p.Resolved()
	info, err := arch.GetInfo("")
	if err != nil {
		return err
	}
	opens := map[int32]int{} // by number: the argument that points to the path
	for i, name := range openCalls {
		if nr, ok := info.SyscallNames[name]; ok {
			opens[int32(nr)] = []int{0, 1, 1, 0}[i]
		}
	}
	for {
		pfd := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(pfd, -1); err != nil {
			if err == unix.EINTR {
				continue
			}
			return fmt.Errorf("wait for the confined process: %w", err)
		}
		if pfd[0].Revents&unix.POLLIN == 0 {
			return nil // it has ended
		}
		var n notification
		switch err := ioctl(fd, notifRecv, unsafe.Pointer(&n)); err {
		case nil:
		case unix.EINTR, unix.ENOENT: // the call was interrupted meanwhile
			continue
		default:
			return fmt.Errorf("read the confined process's call: %w", err)
		}
		r := response{id: n.id, errno: -int32(unix.EPERM)}
		if arg, ok := opens[n.nr]; ok {
			path, err := pathOf(fd, &n, arg)
			switch {
			case err != nil: // the call is over, or has no path: the kernel says so
				r.errno, r.flags = 0, flagContinue
			default:
				r.errno, r.flags = p.judge(path, n.creates(info.SyscallNumbers[int(n.nr)]))
			}
			if r.errno == -int32(unix.EACCES) {
				report(Denial{Call: info.SyscallNumbers[int(n.nr)], Path: path, TID: n.pid})
			}
		} else {
			report(Denial{Call: info.SyscallNumbers[int(n.nr)], TID: n.pid})
		}
		if err := ioctl(fd, notifSend, unsafe.Pointer(&r)); err != nil && err != unix.ENOENT {
			return fmt.Errorf("answer the confined process: %w", err)
		}
	}
}

// creates reports whether a call makes the file that it opens. openat2 has its flags in memory, and Landlock decides.
func (n *notification) creates(call string) bool {
	switch call {
	case "creat":
		return true
	case "open":
		return n.args[1]&unix.O_CREAT != 0
	case "openat":
		return n.args[2]&unix.O_CREAT != 0
	}
	return false
}

// judge decides about opening a file.
func (p *Policy) judge(path string, creates bool) (errno int32, flags uint32) {
	if p.allows(path) {
		return 0, flagContinue
	}
	real, err := filepath.EvalSymlinks(path)
	switch {
	case err == nil && p.allows(real):
		return 0, flagContinue
	case errors.Is(err, fs.ErrNotExist):
		if parent, perr := filepath.EvalSymlinks(filepath.Dir(path)); perr != nil || !p.allows(parent) {
			if creates {
				break
			}
			return -int32(unix.ENOENT), 0
		}
		return 0, flagContinue
	}
	return -int32(unix.EACCES), 0
}

// pathOf reads the path of a call from the process's memory, and makes it absolute.
func pathOf(fd int, n *notification, arg int) (string, error) {
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", n.pid))
	if err != nil {
		return "", err
	}
	defer mem.Close()
	buf := make([]byte, unix.PathMax)
	got, err := mem.ReadAt(buf, int64(n.args[arg]))
	if got == 0 {
		return "", err
	}
	if err := ioctl(fd, notifIDValid, unsafe.Pointer(&n.id)); err != nil { // the thread may be another one by now
		return "", err
	}
	end := bytes.IndexByte(buf[:got], 0)
	if end <= 0 {
		return "", unix.EFAULT
	}
	path := string(buf[:end])
	if filepath.IsAbs(path) {
		return filepath.Clean(path), nil
	}
	base := fmt.Sprintf("/proc/%d/cwd", n.pid)
	if dir := int32(n.args[0]); arg == 1 && dir != unix.AT_FDCWD {
		base = fmt.Sprintf("/proc/%d/fd/%d", n.pid, dir)
	}
	at, err := os.Readlink(base)
	if err != nil {
		return "", err
	}
	return filepath.Join(at, path), nil
}

func ioctl(fd int, request uintptr, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}
