package ipc

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/internal/host/sockpath"
	"github.com/uma-serve/uma-serve/ipc/sockdiag"
	"github.com/uma-serve/uma-serve/ipc/sys"
	"github.com/uma-serve/uma-serve/ipc/tlspipe"
)

var (
	// ErrInUse: another daemon serves on the path.
	ErrInUse = errors.New("another uma-serve is serving")
	// ErrNotSocket: the path exists and is not a socket; it is never removed.
	ErrNotSocket = errors.New("is not a socket")
	// ErrUnsafeDir: another user could replace the socket in its directory.
	ErrUnsafeDir = errors.New("directory is not safe for a socket")
)

// ListenConfig holds the addresses of a daemon and the permissions of its socket.
type ListenConfig struct {
	Path  string           // of the Unix socket; "" = sockpath.Default()
	Mode  os.FileMode      // permission bits of the socket; 0 = 0600
	Group string           // name or number of the group that owns the socket; "" = the process's
	TCP   []netip.AddrPort // further addresses, for HTTP only
	TLS   *tlspipe.TLS     // of all TCP addresses; nil: they speak plain text
}

// Listener is a listening socket, Unix or TCP.
type Listener struct {
	fd        int
	activated bool
	accepted  atomic.Uint64

	// Of a Unix socket.
	path     string
	dev, ino uint64   // of the socket file, so that Close does not remove another daemon's
	lock     *os.File // held until Close; nil when activated

	// Of a TCP socket.
	tcp     netip.AddrPort   // valid if it is one
	finder  *sockdiag.Finder // finds the users of loopback clients; nil: unknown is the reason
	unknown error
	tls     *tlspipe.TLS // nil: its clients send plain text
}

// Listen takes over the sockets that systemd passed to the process (at most one Unix socket, any number of TCP sockets)
// and binds the missing ones: cfg.Path and the addresses of cfg.TCP. The Unix socket is the first of the listeners.
// Listen removes LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES from the environment: call it before other code starts
// threads or processes. Clients can connect from then on; they wait until a [Loop] runs.
func Listen(cfg ListenConfig) (lns []*Listener, err error) {
	defer func() {
		if err != nil {
			CloseAll(lns)
			lns = nil
		}
	}()
	lns, err = inherited()
	if err != nil {
		return lns, err
	}
	if i := slices.IndexFunc(lns, func(ln *Listener) bool { return !ln.tcp.IsValid() }); i >= 0 {
		lns[0], lns[i] = lns[i], lns[0]
	} else {
		ln, err := listenUnix(cfg)
		if err != nil {
			return lns, err
		}
		lns = append([]*Listener{ln}, lns...)
	}
	for _, addr := range cfg.TCP {
		if slices.ContainsFunc(lns, func(ln *Listener) bool { return ln.tcp == addr }) {
			continue
		}
		ln, err := listenTCP(addr)
		if err != nil {
			return lns, err
		}
		lns = append(lns, ln)
	}
	knowUsers(lns)
	for _, ln := range lns {
		if ln.tcp.IsValid() {
			ln.tls = cfg.TLS
		}
	}
	return lns, nil
}

// CloseAll closes every listener.
func CloseAll(lns []*Listener) {
	for _, ln := range lns {
		_ = ln.Close() // an error at exit has no consequence
	}
}

// listenUnix binds the Unix socket.
//
// A lock on PATH.lock prevents two daemons on one path. The daemon holds it until it ends; the kernel releases it in
// any case, so the file itself may stay. With the lock held, a socket that refuses connections is stale and is removed.
// A socket that accepts belongs to a program without the lock and is left in place, like a file that is not a socket.
//
// The permissions are set between bind(2) and listen(2), while every connect is refused, so that no client can connect
// before. A umask around bind would apply to the whole process, also to files that other goroutines create. (On Linux
// the file is even created with these permissions.)
func listenUnix(cfg ListenConfig) (*Listener, error) {
	path := cfg.Path
	if path == "" {
		path = sockpath.Default()
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("find socket path: %w", err)
	}
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("socket path %s has %d bytes; this system allows %d: choose a shorter one with --socket",
			path, len(path), maxSocketPath)
	}
	mode := cfg.Mode.Perm()
	if cfg.Mode == 0 {
		mode = 0o600
	}
	gid := -1
	if cfg.Group != "" {
		if gid, err = LookupGroup("socket-group", cfg.Group); err != nil {
			return nil, err
		}
	}
	if err := prepareDir(filepath.Dir(path), gid); err != nil {
		return nil, err
	}
	lock, err := lockPath(path)
	if err != nil {
		return nil, err
	}
	ln, err := bind(path, mode, gid)
	if err != nil {
		lock.Close()
		return nil, err
	}
	ln.lock = lock
	return ln, nil
}

// Network is "unix" or "tcp".
func (ln *Listener) Network() string {
	if ln.tcp.IsValid() {
		return "tcp"
	}
	return "unix"
}

// Address returns the path of a Unix socket, or the address of a TCP socket with its real port.
func (ln *Listener) Address() string {
	if ln.tcp.IsValid() {
		return ln.tcp.String()
	}
	return ln.path
}

// TCP returns the address of a TCP socket; it is not valid for a Unix socket.
func (ln *Listener) TCP() netip.AddrPort { return ln.tcp }

// Users returns nil if the kernel knows the users of clients on the loopback address, else the reason why not.
func (ln *Listener) Users() error { return ln.unknown }

// Secure reports whether its clients speak TLS.
func (ln *Listener) Secure() bool { return ln.tls != nil }

// Accepted returns the number of connections accepted so far. Safe from any goroutine.
func (ln *Listener) Accepted() uint64 { return ln.accepted.Load() }

// Path returns the path of the Unix socket.
func (ln *Listener) Path() string { return ln.path }

// Activated reports whether systemd opened the socket; its file then stays when the daemon ends.
func (ln *Listener) Activated() bool { return ln.activated }

// Close stops listening and removes the socket file, unless systemd owns it or another daemon has replaced it. Clients
// in the backlog are refused. Not safe for concurrent use; a second call does nothing.
func (ln *Listener) Close() error {
	if ln.fd < 0 {
		return nil
	}
	var err error
	if !ln.activated && !ln.tcp.IsValid() {
		var st unix.Stat_t
		if e := unix.Lstat(ln.path, &st); e == nil && uint64(st.Dev) == ln.dev && uint64(st.Ino) == ln.ino {
			err = os.Remove(ln.path)
		}
	}
	unix.Close(ln.fd)
	ln.fd = -1
	if ln.finder != nil {
		ln.finder.Close()
	}
	if ln.lock != nil {
		ln.lock.Close()
	}
	return err
}

// LookupGroup returns the id of a group that an option gives by name or number.
func LookupGroup(option, name string) (int, error) {
	if n, err := strconv.ParseUint(name, 10, 31); err == nil {
		return int(n), nil
	}
	g, err := user.LookupGroup(name)
	if _, unknown := errors.AsType[user.UnknownGroupError](err); unknown {
		return 0, fmt.Errorf("--%s is %q: there is no such group", option, name)
	} else if err != nil {
		return 0, fmt.Errorf("--%s is %q: %w", option, name, err)
	}
	return strconv.Atoi(g.Gid)
}

// prepareDir creates dir (0700) if it is missing. It returns ErrUnsafeDir if users other than root, the process's user
// and members of the trusted group could replace files in it.
func prepareDir(dir string, trustedGroup int) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create directory of the socket: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("stat directory of the socket: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	uid, gid := os.Geteuid(), os.Getegid()
	if owner := int(st.Uid); owner != uid && owner != 0 {
		return fmt.Errorf("%w: %s belongs to user %d, who could replace the socket; choose a directory of yours with "+
			"--socket",
			ErrUnsafeDir, dir, owner)
	}
	perm := info.Mode().Perm()
	if info.Mode()&fs.ModeSticky != 0 {
		return nil // other users can add files, but not replace the socket
	}
	if perm&0o002 != 0 {
		return fmt.Errorf("%w: all users may write in %s (mode %04o) and so replace the socket; chmod o-w it, or "+
			"choose another "+
			"one with --socket", ErrUnsafeDir, dir, perm)
	}
	// A user's private group (same number as the user) has no other members by convention.
	private := int(st.Gid) == gid && gid == uid
	if perm&0o020 != 0 && !private && int(st.Gid) != trustedGroup {
		return fmt.Errorf("%w: group %d may write in %s (mode %04o) and so replace the socket; chmod g-w it, name "+
			"that group "+
			"with --socket-group, or choose another directory with --socket", ErrUnsafeDir, st.Gid, dir, perm)
	}
	return nil
}

func lockPath(path string) (*os.File, error) {
	f, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock file of the socket: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return f, nil
	}
	f.Close()
	if err == unix.EWOULDBLOCK {
		return nil, fmt.Errorf("%w on %s: stop it, or choose another path with --socket", ErrInUse, path)
	}
	return nil, fmt.Errorf("lock %s.lock: %w", path, err)
}

// bind creates the socket file and listens. The caller holds the path's lock.
func bind(path string, mode os.FileMode, gid int) (*Listener, error) {
	if err := removeStale(path); err != nil {
		return nil, err
	}
	fd, err := sys.Socket()
	if err != nil {
		return nil, fmt.Errorf("create socket: %w", err)
	}
	ln := &Listener{fd: fd, path: path}
	fail := func(verb string, err error) (*Listener, error) {
		unix.Close(fd)
		return nil, fmt.Errorf("%s %s: %w", verb, path, err)
	}
	// Linux creates the file with the mode of the descriptor; elsewhere this fails and the chmod below sets it.
	_ = unix.Fchmod(fd, uint32(mode))
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return fail("bind", err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return fail("stat", err)
	}
	ln.dev, ln.ino = uint64(st.Dev), uint64(st.Ino)
	verb, err := "set group of", error(nil)
	if gid >= 0 {
		err = os.Lchown(path, -1, gid)
	}
	if err == nil {
		verb, err = "set permissions of", os.Chmod(path, mode) // after chown, which may clear bits
	}
	if err == nil {
		verb, err = "listen on", unix.Listen(fd, 4096) // the kernel's limit applies
	}
	if err != nil {
		os.Remove(path)
		return fail(verb, err)
	}
	return ln, nil
}

// removeStale removes a stale socket at path. It returns an error if the path is in use or not a socket.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("stat socket path: %w", err)
	}
	if info.Mode()&fs.ModeSocket == 0 {
		return fmt.Errorf("%s exists and %w: remove it, or choose another path with --socket", path, ErrNotSocket)
	}
	fd, err := sys.Socket()
	if err != nil {
		return fmt.Errorf("create socket: %w", err)
	}
	defer unix.Close(fd)
	switch err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err {
	case nil, unix.EAGAIN, unix.EINPROGRESS: // a program listens, perhaps with a full backlog
		return fmt.Errorf("%w on %s: stop it, or choose another path with --socket", ErrInUse, path)
	case unix.ECONNREFUSED:
	case unix.ENOENT:
		return nil
	default:
		return fmt.Errorf("probe socket %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove stale socket: %w", err)
	}
	return nil
}
