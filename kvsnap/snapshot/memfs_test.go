package snapshot

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// errPower is returned by every call after the power failure.
var errPower = errors.New("no power")

// memFS is a file system that can fail and lose power. What was not synced may be lost: contents without File.Sync,
// names without SyncDir.
type memFS struct {
	mu      sync.Mutex
	names   map[string]*inode // now
	durable map[string]*inode // after a power failure, at least
	history []change          // of names since the last SyncDir, in order
	locks   map[string]bool
	clock   time.Time
	steps   int // calls that change something
	crashAt int // the step at which the power goes; 0 = never
	dead    bool

	// fault is asked before every call; its error is the call's. A short write is errShort.
	fault func(op, name string) error
	log   []string // "op base name" of calls that change something
}

var errShort = errors.New("short write")

type inode struct {
	data   []byte
	synced []byte
	time   time.Time
}

type change struct {
	dir  string
	name string // "" for none
	node *inode // nil = removed
	from string // renamed from, atomically
}

func newMemFS() *memFS {
	return &memFS{names: map[string]*inode{}, durable: map[string]*inode{}, locks: map[string]bool{},
		clock: time.Unix(1_700_000_000, 0)}
}

// call begins every operation.
func (m *memFS) call(op, name string, changes bool) error {
	if m.dead {
		return errPower
	}
	if m.fault != nil {
		if err := m.fault(op, name); err != nil {
			return err
		}
	}
	if changes {
		m.steps++
		base := filepath.Base(name)
		m.log = append(m.log, op+" "+base[max(0, len(base)-12):])
		if m.steps == m.crashAt {
			m.dead = true
			return errPower
		}
	}
	return nil
}

// reboot is the file system after the power came back. r decides what of the unsynced survived; nil = nothing.
func (m *memFS) reboot(r *rand.Rand) *memFS {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = true
	out := newMemFS()
	out.clock = m.clock.Add(time.Hour)
	names := maps.Clone(m.durable)
	if r != nil {
		for _, c := range m.history[:r.IntN(len(m.history)+1)] {
			c.apply(names)
		}
	}
	for name, i := range names {
		n := &inode{data: slices.Clone(i.synced), time: i.time}
		if r != nil && len(i.data) > len(i.synced) {
			switch k := r.IntN(len(i.data) - len(i.synced) + 1); r.IntN(3) {
			case 0: // a beginning
				n.data = slices.Clone(i.data[:len(i.synced)+k])
			case 1: // the length, but not the bytes
				n.data = append(n.data, make([]byte, k)...)
			}
		}
		n.synced = slices.Clone(n.data)
		out.names[name], out.durable[name] = n, n
	}
	return out
}

func (c change) apply(names map[string]*inode) {
	if c.from != "" {
		delete(names, c.from)
	}
	if c.node == nil {
		delete(names, c.name)
	} else {
		names[c.name] = c.node
	}
}

func (m *memFS) change(c change) {
	c.dir = filepath.Dir(c.name)
	c.apply(m.names)
	m.history = append(m.history, c)
}

func (m *memFS) Prepare(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.call("prepare", dir, false)
}

func (m *memFS) ReadDir(dir string) (out []FileInfo, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.call("readdir", dir, false); err != nil {
		return nil, err
	}
	for name, i := range m.names {
		if filepath.Dir(name) == dir {
			out = append(out, FileInfo{filepath.Base(name), int64(len(i.data)), i.time})
		}
	}
	return out, nil
}

func (m *memFS) Open(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.call("open", name, false); err != nil {
		return nil, err
	}
	i := m.names[name]
	if i == nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return &memFile{m, name, i}, nil
}

func (m *memFS) Create(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.call("create", name, true); err != nil {
		return nil, err
	}
	if m.names[name] != nil {
		return nil, &fs.PathError{Op: "create", Path: name, Err: fs.ErrExist}
	}
	m.clock = m.clock.Add(time.Millisecond)
	i := &inode{time: m.clock}
	m.change(change{name: name, node: i})
	return &memFile{m, name, i}, nil
}

func (m *memFS) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.call("rename", from, true); err != nil {
		return err
	}
	i := m.names[from]
	if i == nil {
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	}
	m.change(change{name: to, node: i, from: from})
	return nil
}

func (m *memFS) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.call("remove", name, true); err != nil {
		return err
	}
	if m.names[name] == nil {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	m.change(change{name: name})
	return nil
}

func (m *memFS) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.call("syncdir", dir, true); err != nil {
		return err
	}
	rest := m.history[:0]
	for _, c := range m.history {
		if c.dir == dir || c.from != "" && filepath.Dir(c.from) == dir {
			c.apply(m.durable)
		} else {
			rest = append(rest, c)
		}
	}
	m.history = rest
	return nil
}

func (m *memFS) SetTime(name string, t time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.call("settime", name, false); err != nil {
		return err
	}
	if i := m.names[name]; i != nil {
		i.time = t
	}
	return nil
}

type memLock struct {
	m    *memFS
	name string
}

func (l memLock) Close() error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	delete(l.m.locks, l.name)
	return nil
}

func (m *memFS) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.call("lock", name, false); err != nil {
		return nil, err
	}
	if m.locks[name] {
		return nil, fmt.Errorf("lock %s: %w", name, errLocked)
	}
	m.locks[name] = true
	return memLock{m, name}, nil
}

// files are the names of snapshot files in the directory itself.
func (m *memFS) files() (out []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.names {
		if strings.HasSuffix(name, ".kvsnap") && filepath.Base(filepath.Dir(name)) != quarantineDir {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

type memFile struct {
	m    *memFS
	name string
	i    *inode
}

func (f *memFile) ReadAt(b []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.m.call("read", f.name, false); err != nil {
		return 0, err
	}
	if off >= int64(len(f.i.data)) {
		return 0, io.EOF
	}
	n := copy(b, f.i.data[off:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) Write(b []byte) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.m.call("write", f.name, true); err != nil {
		n := 0
		if errors.Is(err, errShort) {
			n = len(b) / 2
			err = syscall.ENOSPC
		}
		if errors.Is(err, errPower) {
			n = len(b) / 3
		}
		f.i.data = append(f.i.data, b[:n]...)
		return n, err
	}
	f.i.data = append(f.i.data, b...)
	return len(b), nil
}

func (f *memFile) Sync() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.m.call("sync", f.name, true); err != nil {
		return err
	}
	f.i.synced = slices.Clone(f.i.data)
	return nil
}

func (f *memFile) Size() (int64, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return int64(len(f.i.data)), nil
}

func (f *memFile) Close() error { return nil }
