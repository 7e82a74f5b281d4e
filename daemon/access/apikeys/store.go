package apikeys

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Store is a file of keys that is read again when it changes. It is safe for concurrent use.
type Store struct {
	path   string
	report func(keys *Keys, err error)

	keys atomic.Pointer[Keys] // stored under mu

	mu   sync.Mutex
	seen fs.FileInfo // the file at the last attempt to read it; nil: it could not be looked at
	when time.Time   // of that attempt
}

// settle is the age of a file's last change below which the file is read again although its size and time are the same:
// two writes within the clock's resolution have the same time. pause is the shortest time between two such attempts.
const (
	settle = 2 * time.Second
	pause  = 50 * time.Millisecond
)

// Open reads the file at path, which must hold a key. report is told about each later reading: the keys that are valid
// from then on, or why the file cannot be used, in which case those read before stay valid.
func Open(path string, report func(keys *Keys, err error)) (*Store, error) {
	s := &Store{path: path, report: report, when: time.Now()}
	keys, seen, err := load(path)
	if err != nil {
		return nil, err
	}
	s.seen = seen
	s.keys.Store(keys)
	if keys.Len() == 0 {
		return nil, fmt.Errorf("%s holds no key; a line is KEY OWNER [COMMENT], and \"openssl rand -hex 32\" makes a "+
			"key", path)
	}
	return s, nil
}

// Loaded returns the keys that were read last, without looking at the file.
func (s *Store) Loaded() *Keys { return s.keys.Load() }

// Keys returns the valid keys, after reading the file again if it has changed.
func (s *Store) Keys() *Keys {
	s.mu.Lock()
	defer s.mu.Unlock()
	info, err := os.Stat(s.path)
	if err != nil {
		info = nil
	}
	now := time.Now()
	if same(info, s.seen) {
		settled := info == nil || now.Sub(info.ModTime()) > settle && s.when.Sub(info.ModTime()) > settle
		if settled || now.Sub(s.when) < pause {
			return s.keys.Load()
		}
	}
	changed := !same(info, s.seen)
	keys, read, err := load(s.path)
	s.when = now
	if s.seen = read; read == nil {
		s.seen = info
	}
	if err == nil {
		changed = changed || !equal(keys, s.keys.Load())
		s.keys.Store(keys)
	}
	if changed {
		s.report(s.keys.Load(), err)
	}
	return s.keys.Load()
}

// same reports whether a file has not changed between two looks at it.
func same(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && a.Mode() == b.Mode()
}

func equal(a, b *Keys) bool {
	if len(a.entries) != len(b.entries) {
		return false
	}
	for i := range a.entries {
		if a.entries[i] != b.entries[i] {
			return false
		}
	}
	return true
}

// load reads the file. The checks are of the open file, which no rename can replace between them and the reading. info
// is nil when the file cannot be opened.
func load(path string) (keys *Keys, info fs.FileInfo, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0) // a pipe would be waited for
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, fmt.Errorf("%s: there is no such file", path)
	case errors.Is(err, fs.ErrPermission):
		return nil, nil, fmt.Errorf("%s: user %d may not read it", path, os.Geteuid())
	case errors.Is(err, syscall.ENXIO):
		return nil, nil, fmt.Errorf("%s is a socket, not a file", path)
	case err != nil:
		return nil, nil, fmt.Errorf("open %w", err)
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, nil, fmt.Errorf("look at %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, info, fmt.Errorf("%s is %s, not a file", path, kind(info.Mode()))
	}
	if perm := info.Mode().Perm(); perm&0o077 != 0 {
		return nil, info, fmt.Errorf("%s has mode %04o, so that other users can read the keys; chmod 600 %s", path,
			perm, path)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() && st.Uid != 0 {
		return nil, info, fmt.Errorf("%s belongs to user %d; it must belong to root or to the daemon's user %d", path,
			st.Uid, os.Geteuid())
	}
	b, err := io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
	if err != nil {
		return nil, info, fmt.Errorf("read %w", err)
	}
	if keys, err = Parse(b); err != nil {
		return nil, info, fmt.Errorf("%s: %w", path, err)
	}
	return keys, info, nil
}

// kind names the type of a file that is not regular.
func kind(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a directory"
	case m&fs.ModeNamedPipe != 0:
		return "a pipe"
	}
	return "a device"
}
