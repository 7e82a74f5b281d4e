package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/zeebo/blake3"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot/format"
)

// namedOptions are openMem's, with an origin of named parts.
func namedOptions(fsys FS) Options {
	o := testOptions()
	o.FS, o.Dir, o.DiskBytes = fsys, "/kv", 32<<20
	o.Named = format.Origin{EngineBuild: "test", Fingerprint: format.Hash{2}, KVTypeK: "view 1", KVTypeV: "f32"}
	return o
}

// bytesOf are the bytes that tests store under a name of a namespace. Those of an odd name compress well.
func bytesOf(ns Namespace, name Name) []byte {
	b := make([]byte, 1000+10*int(name[0]))
	rand.NewChaCha8(blake3.Sum256(fmt.Appendf(nil, "%d %x", ns, name))).Read(b)
	for i := range b {
		if name[0]%2 == 1 {
			b[i] &= 1
		}
	}
	return b
}

func putNamed(c *Cache, ns Namespace, name Name) error {
	want := bytesOf(ns, name)
	b, err := c.Buffer(len(want))
	if err != nil {
		return err
	}
	copy(b.Bytes(), want)
	return c.PutNamed(ns, name, b)
}

// readNamed returns nil when exactly what putNamed stores came back.
func readNamed(c *Cache, ns Namespace, name Name) error {
	return c.ReadNamed(context.Background(), ns, name, 1<<20, func(b []byte) error {
		if !bytes.Equal(b, bytesOf(ns, name)) {
			return errors.New("other bytes")
		}
		return nil
	})
}

// written waits until every queued file is written.
func written(t *testing.T, c *Cache) {
	t.Helper()
	waitfor.True(t, "what is queued is written", func() bool { return c.Stats().QueuedBytes == 0 })
}

// TestNamed: named bytes outlive the process, on disk alone and for their namespace alone.
func TestNamed(t *testing.T) {
	fsys := newMemFS()
	c := open(t, namedOptions(fsys))
	a, b := Name{1, 2, 3}, Name{9}
	for _, k := range []struct {
		ns   Namespace
		name Name
	}{{1, a}, {1, b}, {2, a}, {1 << 63, a}} {
		if err := putNamed(c, k.ns, k.name); err != nil {
			t.Fatal(err)
		}
	}
	written(t, c)
	waitfor.True(t, "none is in memory", func() bool { return c.Stats().Host.Parts == 0 })
	for range 2 {
		for _, k := range []struct {
			ns   Namespace
			name Name
			want error
		}{{1, a, nil}, {1, b, nil}, {2, a, nil}, {1 << 63, a, nil}, {2, b, ErrNotFound}, {3, a, ErrNotFound},
			{1, Name{1, 2}, ErrNotFound}, {format.System, a, ErrNotFound}} {
			if err := readNamed(c, k.ns, k.name); !errors.Is(err, k.want) {
				t.Errorf("%x of %d: %v, want %v", k.name[:4], k.ns, err, k.want)
			}
		}
		if s := c.Stats(); s.Host.Parts != 0 || s.Disk.Parts != 4 || s.Snapshots != 0 || s.Disk.PagesOut != 0 ||
			s.Disk.Tokens != 0 ||
			s.Disk.PagesIn != 0 || s.Quarantined != 0 || s.Disk.Bytes < int64(len(bytesOf(1, a))) {
			t.Errorf("%+v", s)
		}
		c.Close(context.Background())
		c = open(t, namedOptions(fsys))
	}
	for _, i := range c.List() {
		if !i.Named || i.Name != a && i.Name != b || i.DiskBytes == 0 || i.HostBytes != 0 {
			t.Errorf("%+v", i)
		}
	}
	if err := c.ReadNamed(context.Background(), 1, a, 10, nil); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	if n, err := c.DeleteNamespaces(context.Background(), only(1)); n != 2 || err != nil {
		t.Error(n, err)
	}
	if err := readNamed(c, 1, a); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if err := readNamed(c, 2, a); err != nil || len(fsys.files()) != 2 {
		t.Error(err, fsys.files())
	}
	for _, f := range fsys.files() { // a file names no user
		if strings.Contains(filepath.Base(f), "1000") || len(filepath.Base(f)) != 64+len(format.Suffix) {
			t.Error(f)
		}
	}
	if n, err := c.Delete(context.Background(), c.List()[0].Key); n != 1 || err != nil {
		t.Error(n, err)
	}
	if len(c.List()) != 1 || len(fsys.files()) != 1 {
		t.Error(c.List(), fsys.files())
	}
}

// TestNamedAndPrompts: a prompt of the tokens that a name is made of finds no named bytes, and the other way round,
// whatever is stored first and after a restart.
func TestNamedAndPrompts(t *testing.T) {
	for _, first := range []bool{true, false} {
		fsys := newMemFS()
		c := open(t, namedOptions(fsys))
		name := Name{7, 7, 7}
		prompt := append(name.words(), text(0, 64-nameWords)...)
		if first {
			if err := putNamed(c, 1, name); err != nil {
				t.Fatal(err)
			}
			expect(t, c, 1, prompt, 0, Host)
		}
		mustPut(t, c, 1, prompt[:nameWords], 0)
		save(t, c, mustPut(t, c, 1, prompt, nameWords))
		if !first {
			if err := readNamed(c, 1, name); !errors.Is(err, ErrNotFound) {
				t.Error(err)
			}
			if err := putNamed(c, 1, name); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if err := readNamed(c, 1, name); err != nil {
				t.Error(err)
			}
			if n, _ := restore(t, c, 1, prompt); n != len(prompt) {
				t.Errorf("%d tokens of the prompt", n)
			}
			written(t, c)
			s := c.Stats()
			if n := int64(len(prompt)); s.Disk.Tokens != n || s.Host.Tokens != n || s.Disk.Parts != 3 {
				t.Errorf("%+v", s)
			}
			sequences := 0
			c.Sequences(func(Namespace, Key) bool { return true }, func(Namespace, []Token) { sequences++ })
			if parts, _, _ := c.Stored(nil); len(parts) != 2 || sequences != 1 {
				t.Errorf("%d parts and %d sequences of cells, want 2 and 1", len(parts), sequences)
			}
			c.Close(context.Background())
			c = open(t, namedOptions(fsys))
		}
		if n, gone := c.DeletePrefix(1, prompt); n != 2 || gone(context.Background()) != nil {
			t.Errorf("%d parts went", n)
		}
		if err := readNamed(c, 1, name); err != nil {
			t.Error(err)
		}
	}
}

// TestNamedOfAnotherOrigin: what another projector made is not found. It counts towards the cap and is dropped with the
// rest. Without a disk, or an origin of named parts, nothing is kept.
func TestNamedOfAnotherOrigin(t *testing.T) {
	fsys := newMemFS()
	c := open(t, namedOptions(fsys))
	if err := putNamed(c, 1, Name{1}); err != nil {
		t.Fatal(err)
	}
	c.Close(context.Background())
	for name, change := range map[string]func(*Options){
		"another projector": func(o *Options) { o.Named.Fingerprint[3]++ },
		"another build":     func(o *Options) { o.Named.EngineBuild = "newer" },
		"no projector":      func(o *Options) { o.Named = format.Origin{} },
	} {
		o := namedOptions(fsys)
		change(&o)
		c = open(t, o)
		if err := readNamed(c, 1, Name{1}); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
		if s := c.Stats(); s.Disk.Parts != 1 || s.Disk.Tokens != 0 || len(c.List()) != 0 || s.Quarantined != 0 {
			t.Errorf("%s: %+v %+v", name, s, c.List())
		}
		if err := putNamed(c, 1, Name{2}); (o.Named == format.Origin{}) != errors.Is(err, ErrNoDisk) {
			t.Errorf("%s: %v", name, err)
		}
		if err := putNamed(c, 2, Name{2}); err == nil {
			if n, err := c.DeleteNamespaces(context.Background(), only(2)); n != 1 || err != nil {
				t.Error(n, err)
			}
			if n, err := c.DeleteNamespaces(context.Background(), only(1)); n != 2 || err != nil {
				t.Error(n, err)
			}
			fsys = newMemFS()
			c.Close(context.Background())
			c = open(t, namedOptions(fsys))
			if err := putNamed(c, 1, Name{1}); err != nil {
				t.Fatal(err)
			}
		}
		c.Close(context.Background())
	}
	o := namedOptions(fsys)
	o.Dir = ""
	c = open(t, o)
	if err := putNamed(c, 1, Name{1}); !errors.Is(err, ErrNoDisk) || c.Stats().Host.Parts != 0 {
		t.Error(err)
	}
	if err := readNamed(c, 1, Name{1}); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	o = namedOptions(fsys)
	o.Named = o.Origin
	if _, err := Open(o); err == nil {
		t.Error("named bytes and cells of one origin")
	}
}

// TestDamagedNamed: a file that is damaged, cut, or another one's is not read, and set aside.
func TestDamagedNamed(t *testing.T) {
	for what, damage := range map[string]func(mine, other []byte) []byte{
		"payload":            func(b, _ []byte) []byte { b[len(b)-100] ^= 1; return b },
		"header":             func(b, _ []byte) []byte { b[60] ^= 1; return b },
		"cut":                func(b, _ []byte) []byte { return b[:len(b)/2] },
		"empty":              func([]byte, []byte) []byte { return nil },
		"longer":             func(b, _ []byte) []byte { return append(b, 1) },
		"that of a stranger": func(_, other []byte) []byte { return other },
	} {
		for _, before := range []bool{true, false} { // damaged before the start, or while running
			fsys := newMemFS()
			c := open(t, namedOptions(fsys))
			if err := errors.Join(putNamed(c, 1, Name{1}), putNamed(c, 2, Name{1})); err != nil {
				t.Fatal(err)
			}
			c.Close(context.Background())
			var mine, other string
			for _, f := range fsys.files() {
				if h, _, err := format.Open(fsys.names[f].data); err == nil && h.Namespace == 1 {
					mine = f
				} else {
					other = f
				}
			}
			hurt := func() {
				fsys.mu.Lock()
				defer fsys.mu.Unlock()
				file := fsys.names[mine]
				file.data = damage(slices.Clone(file.data), slices.Clone(fsys.names[other].data))
			}
			if before {
				hurt()
			}
			c = open(t, namedOptions(fsys))
			if !before {
				hurt()
			}
			if err := readNamed(c, 1, Name{1}); err == nil {
				t.Errorf("%s: it was read", what)
			}
			if err := readNamed(c, 1, Name{1}); !errors.Is(err, ErrNotFound) {
				t.Errorf("%s: %v", what, err)
			}
			if err := errors.Join(readNamed(c, 2, Name{1}), putNamed(c, 1, Name{1})); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			c.Close(context.Background())
			if s := c.Stats(); s.Quarantined != 1 {
				t.Errorf("%s: %d quarantined", what, s.Quarantined)
			}
			c = open(t, namedOptions(fsys))
			if err := readNamed(c, 1, Name{1}); err != nil {
				t.Errorf("%s: stored again: %v", what, err)
			}
		}
	}
}

// TestNamedThatIsRefused: bytes that are not what they should be are set aside; those that only do not fit stay.
func TestNamedThatIsRefused(t *testing.T) {
	c := open(t, namedOptions(newMemFS()))
	if err := putNamed(c, 1, Name{1}); err != nil {
		t.Fatal(err)
	}
	written(t, c)
	for _, k := range []struct {
		err, then error
	}{{errors.New("too many rows"), nil}, {format.ErrFormat, ErrNotFound}} {
		use := func([]byte) error { return k.err }
		if err := c.ReadNamed(context.Background(), 1, Name{1}, 1<<20, use); err != k.err {
			t.Errorf("%v, want %v", err, k.err)
		}
		if err := readNamed(c, 1, Name{1}); !errors.Is(err, k.then) {
			t.Errorf("after %v: %v, want %v", k.err, err, k.then)
		}
	}
	if s := c.Stats(); s.Quarantined != 1 || s.Disk.Parts != 0 {
		t.Errorf("%+v", s)
	}
}

// TestNamedShareTheCap: named parts and parts of cells evict each other from the disk, the ones that were used go last,
// and the memory of what cannot be written is free again.
func TestNamedShareTheCap(t *testing.T) {
	fsys := newMemFS()
	o := namedOptions(fsys)
	o.DiskBytes = 60_000
	c := open(t, o)
	if err := putNamed(c, 1, Name{250}); err != nil {
		t.Fatal(err)
	}
	written(t, c)
	if err := readNamed(c, 1, Name{250}); err != nil { // once used, it outlives what is not
		t.Fatal(err)
	}
	for i := range 40 {
		if err := putNamed(c, 1, Name{200, byte(i)}); err != nil {
			t.Fatal(err)
		}
		save(t, c, mustPut(t, c, 1, text(1000*i, 64), 0))
		written(t, c)
	}
	s := c.Stats()
	if s.Disk.Bytes > o.DiskBytes || s.Disk.Evictions == 0 || s.Host.Parts != 40 {
		t.Errorf("%+v", s)
	}
	named, cells := 0, 0
	for _, i := range c.List() {
		if i.Named {
			named++
		} else if i.DiskBytes > 0 {
			cells++
		}
	}
	if named < 2 || cells < 2 {
		t.Errorf("%d named, %d of cells", named, cells)
	}
	if err := readNamed(c, 1, Name{250}); err != nil {
		t.Errorf("what was used: %v", err)
	}

	fsys.mu.Lock()
	fsys.fault = func(op, name string) error {
		if op == "create" {
			return syscall.EIO
		}
		return nil
	}
	fsys.mu.Unlock()
	if err := putNamed(c, 1, Name{77}); err != nil {
		t.Fatal(err)
	}
	written(t, c)
	waitfor.True(t, "it leaves memory", func() bool { return c.Stats().Host.Parts == 40 })
	if err := readNamed(c, 1, Name{77}); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}
