package usertest

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
)

// NeedRoot skips a test that cannot act for other users.
func NeedRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: only root can act as two users; run the tests as root to check that users are told apart " +
			"over TCP")
	}
}

// Dial connects to a TCP address with a socket of a user, who need not exist. A socket belongs to the file system user
// of the thread that creates it, which Linux has for each thread.
func Dial(uid uint32, addr netip.AddrPort) (net.Conn, error) {
	fd, err := socket(uid, addr)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	f := os.NewFile(uintptr(fd), "tcp")
	defer f.Close()
	var to unix.Sockaddr = &unix.SockaddrInet4{Port: int(addr.Port()), Addr: [4]byte{}}
	if a := addr.Addr(); a.Is4() {
		to = &unix.SockaddrInet4{Port: int(addr.Port()), Addr: a.As4()}
	} else {
		to = &unix.SockaddrInet6{Port: int(addr.Port()), Addr: a.As16()}
	}
	if err := unix.Connect(fd, to); err != nil {
		return nil, os.NewSyscallError("connect", err)
	}
	return net.FileConn(f)
}

func socket(uid uint32, addr netip.AddrPort) (int, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := unix.SetfsuidRetUid(int(uid))
	if err != nil {
		return -1, err
	}
	defer unix.SetfsuidRetUid(before)
	family := unix.AF_INET6
	if addr.Addr().Is4() {
		family = unix.AF_INET
	}
	return unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
}

// Client returns an HTTP client of a user for URLs whose host is an IP address with a port.
func Client(t testing.TB, uid uint32) *http.Client {
	t.Helper()
	NeedRoot(t)
	tr := &http.Transport{DialContext: func(_ context.Context, _, address string) (net.Conn, error) {
		addr, err := netip.ParseAddrPort(address)
		if err != nil {
			return nil, err
		}
		return Dial(uid, addr)
	}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: waitfor.Limit}
}

// Child is this test binary as another user's process that runs one test. /proc/self/exe can be executed although the
// directory of the binary belongs to root alone.
func Child(t testing.TB, uid uint32, test string, env ...string) *exec.Cmd {
	t.Helper()
	NeedRoot(t)
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+test+"$", "-test.v")
	cmd.Dir = "/"
	cmd.Env = append([]string{"HOME=/", "TMPDIR=/tmp"}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd
}
