package ipc

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
)

func listen(t *testing.T, cfg ListenConfig) *Listener {
	t.Helper()
	ln, err := listenUnix(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

func TestPathTooLong(t *testing.T) {
	path := filepath.Join(socketDir(t), strings.Repeat("x", 120))
	_, err := listenUnix(ListenConfig{Path: path})
	if err == nil || !strings.Contains(err.Error(), fmt.Sprint(maxSocketPath)) ||
		!strings.Contains(err.Error(), "--socket") {
		t.Fatalf("%v", err)
	}
	exact := socketDir(t) + "/"
	exact += strings.Repeat("y", maxSocketPath-len(exact))
	ln, err := bind(exact, 0o600, -1) // Listen would need room for ".lock" in a file name, not in sun_path
	if err != nil {
		t.Fatalf("a path of exactly %d bytes: %v", maxSocketPath, err)
	}
	ln.Close()
}

// The mode is exact whatever the umask, the directory is private, and the file goes away at Close.
func TestModeAndDirectory(t *testing.T) {
	for _, umask := range []int{0, 0o022, 0o777} {
		for _, mode := range []os.FileMode{0, 0o600, 0o660, 0o666} {
			dir := filepath.Join(socketDir(t), "new")
			old := unix.Umask(umask &^ 0o700)
			ln, err := listenUnix(ListenConfig{Path: filepath.Join(dir, "s"), Mode: mode})
			unix.Umask(old)
			if err != nil {
				t.Fatal(err)
			}
			want := mode
			if mode == 0 {
				want = 0o600
			}
			if info, err := os.Stat(ln.Path()); err != nil || info.Mode().Perm() != want {
				t.Errorf("umask %04o mode %04o: %v, %v", umask, mode, info.Mode(), err)
			}
			if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("directory: %v, %v", info.Mode(), err)
			}
			if err := ln.Close(); err != nil {
				t.Error(err)
			}
			if err := ln.Close(); err != nil {
				t.Error("second Close:", err)
			}
			if _, err := os.Lstat(ln.Path()); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the socket stays after Close: %v", err)
			}
		}
	}
}

func TestGroup(t *testing.T) {
	gid := os.Getegid()
	if os.Geteuid() == 0 {
		gid = 4242 // root may name any
	}
	ln := listen(t, ListenConfig{Path: filepath.Join(socketDir(t), "s"), Mode: 0o660, Group: fmt.Sprint(gid)})
	info, err := os.Stat(ln.Path())
	if err != nil {
		t.Fatal(err)
	}
	if st := info.Sys().(*syscall.Stat_t); int(st.Gid) != gid || info.Mode().Perm() != 0o660 {
		t.Errorf("group %d, mode %v", st.Gid, info.Mode())
	}
	_, err = listenUnix(ListenConfig{Path: filepath.Join(socketDir(t), "s"), Group: "no-such-group-here"})
	if err == nil || !strings.Contains(err.Error(), "--socket-group") {
		t.Errorf("%v", err)
	}
}

func TestUnsafeDirectory(t *testing.T) {
	for _, c := range []struct {
		mode os.FileMode
		ok   bool
	}{{0o700, true}, {0o755, true}, {0o777 | os.ModeSticky, true}, {0o777, false}, {0o702, false}} {
		dir := socketDir(t)
		if err := os.Chmod(dir, c.mode); err != nil {
			t.Fatal(err)
		}
		ln, err := listenUnix(ListenConfig{Path: filepath.Join(dir, "s")})
		if (err == nil) != c.ok || err != nil && !errors.Is(err, ErrUnsafeDir) {
			t.Errorf("%v: %v", c.mode, err)
		}
		if ln != nil {
			ln.Close()
		}
	}
	if os.Geteuid() != 0 {
		return
	}
	dir := socketDir(t) // owned by another user, or by a group with other members
	for _, c := range []struct {
		uid, gid int
		mode     os.FileMode
		group    string
		ok       bool
	}{{12345, 0, 0o700, "", false}, {0, 777, 0o770, "", false}, {0, 777, 0o770, "777", true},
		{0, 777, 0o750, "", true}} {
		os.Chown(dir, c.uid, c.gid)
		os.Chmod(dir, c.mode)
		ln, err := listenUnix(ListenConfig{Path: filepath.Join(dir, "s"), Group: c.group})
		if (err == nil) != c.ok || err != nil && !errors.Is(err, ErrUnsafeDir) {
			t.Errorf("%+v: %v", c, err)
		}
		if ln != nil {
			ln.Close()
		}
	}
}

// A socket file whose daemon died is taken over.
func TestStaleSocket(t *testing.T) {
	path := filepath.Join(socketDir(t), "s")
	old, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	old.(*net.UnixListener).SetUnlinkOnClose(false)
	old.Close()
	listen(t, ListenConfig{Path: path})
	if c, err := net.Dial("unix", path); err != nil {
		t.Error(err)
	} else {
		c.Close()
	}
}

// A living one is not, whether it locks or not, and neither is anything but a socket.
func TestPathInUse(t *testing.T) {
	path := filepath.Join(socketDir(t), "s")
	ours := listen(t, ListenConfig{Path: path})
	for range 2 {
		if _, err := listenUnix(ListenConfig{Path: path}); !errors.Is(err, ErrInUse) ||
			!strings.Contains(err.Error(), path) {
			t.Fatalf("%v", err)
		}
	}
	ours.Close()

	foreign, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	if _, err := listenUnix(ListenConfig{Path: path}); !errors.Is(err, ErrInUse) {
		t.Fatalf("%v", err)
	}

	for name, make := range map[string]func(string) error{
		"file":      func(p string) error { return os.WriteFile(p, []byte("precious"), 0o600) },
		"directory": func(p string) error { return os.Mkdir(p, 0o700) },
		"link":      func(p string) error { return os.Symlink(path, p) },
		"fifo":      func(p string) error { return unix.Mkfifo(p, 0o600) },
	} {
		p := filepath.Join(socketDir(t), name)
		if err := make(p); err != nil {
			t.Fatal(err)
		}
		if _, err := listenUnix(ListenConfig{Path: p}); !errors.Is(err, ErrNotSocket) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Lstat(p); err != nil {
			t.Errorf("%s was removed: %v", name, err)
		}
	}
}

// Close does not remove a socket file that another daemon has replaced.
func TestCloseLeavesAnothersSocket(t *testing.T) {
	path := filepath.Join(socketDir(t), "s")
	ln := listen(t, ListenConfig{Path: path})
	os.Remove(path)
	other, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	ln.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Error("another's socket was removed")
	}
}

// Many daemons that start at once over a stale socket: exactly one gets it, and it works.
func TestStartingTogether(t *testing.T) {
	for range 20 {
		path := filepath.Join(socketDir(t), "s")
		old, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		old.(*net.UnixListener).SetUnlinkOnClose(false)
		old.Close()
		var wg sync.WaitGroup
		var mu sync.Mutex
		var won []*Listener
		start := make(chan struct{})
		for range 8 {
			wg.Go(func() {
				<-start
				ln, err := listenUnix(ListenConfig{Path: path})
				if err != nil && !errors.Is(err, ErrInUse) {
					t.Error(err)
				}
				if ln != nil {
					mu.Lock()
					won = append(won, ln)
					mu.Unlock()
				}
			})
		}
		close(start)
		wg.Wait()
		if len(won) != 1 {
			t.Fatalf("%d daemons serve on one path", len(won))
		}
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		won[0].Close()
	}
}

// TestActivation starts this test binary as systemd would start the daemon.
func TestActivation(t *testing.T) {
	if os.Getenv("UMA_TEST_ACTIVATED") != "" {
		os.Setenv("LISTEN_PID", fmt.Sprint(os.Getpid())) // the parent cannot know it
		activatedChild()
		return
	}
	path := filepath.Join(socketDir(t), "s")
	ul, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer ul.Close()
	stream, err := ul.File()
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	tl, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tl.Close()
	tcp, err := tl.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	plain, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()

	run := func(fds string, files ...*os.File) (*exec.Cmd, *bytes.Buffer) {
		cmd := exec.Command(os.Args[0], "-test.run=^TestActivation$")
		cmd.Env = append(os.Environ(), "UMA_TEST_ACTIVATED=1", "LISTEN_FDS="+fds, "LISTEN_FDNAMES=uma.sock")
		cmd.ExtraFiles = files
		out := &bytes.Buffer{}
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, out
	}
	for _, c := range []struct {
		fds   string
		files []*os.File
		want  string
	}{
		{"2", []*os.File{stream, stream}, "2 Unix sockets"},
		{"1", []*os.File{plain}, "no stream socket"},
	} {
		cmd, out := run(c.fds, c.files...)
		cmd.Wait()
		if !strings.Contains(out.String(), c.want) {
			t.Errorf("want %q in %q", c.want, out)
		}
	}
	cmd, out := run("2", tcp, stream)
	defer cmd.Wait()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(waitfor.Limit))
	web, err := net.Dial("tcp", tl.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer web.Close()
	web.SetDeadline(time.Now().Add(waitfor.Limit))
	write(t, web, []byte("a line\n"))
	if status, body := get(t, bufio.NewReader(web)); status != 400 || !strings.Contains(body, "HTTP") {
		t.Errorf("over TCP: %d %s", status, body)
	}
	write(t, c, request("a", "from systemd"))
	wantToken(t, c, "a", "from systemd")
	write(t, c, request("stop", "now"))
	cmd.Wait()
	if !strings.Contains(out.String(), "activated true path "+path+" tcp "+tl.Addr().String()+" env false") {
		t.Errorf("%s", out)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Error("the socket file of systemd was removed:", err)
	}
}

func activatedChild() {
	lns, err := Listen(ListenConfig{Path: "/nonexistent/ignored"})
	if err != nil {
		fmt.Println("error:", err)
		return
	}
	_, env := os.LookupEnv("LISTEN_FDS")
	fmt.Println("activated", lns[0].Activated(), "path", lns[0].Path(), "tcp", lns[1].Address(), "env", env)
	h := newRecorder()
	l, err := New(Config{}, lns, h)
	if err != nil {
		fmt.Println("error:", err)
		return
	}
	go func() {
		for s := range h.heard {
			if s == `request stop "now"` {
				l.Stop(0)
			}
		}
	}()
	h.onReq = echo
	if err := l.Run(); err != nil {
		fmt.Println("error:", err)
	}
}
