package snapshot

import (
	"context"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/kvsnap/snapshot/format"
)

// TestDamagedFiles: whatever happens to a file, its bytes are not handed out, it is put aside, and the rest is served.
func TestDamagedFiles(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for name, damage := range map[string]func(b []byte) []byte{
		"payload": func(b []byte) []byte { b[len(b)-100] ^= 1; return b },
		"header":  func(b []byte) []byte { b[60] ^= 1; return b },
		"cut":     func(b []byte) []byte { return b[:len(b)/2] },
		"empty":   func([]byte) []byte { return nil },
		"longer":  func(b []byte) []byte { return append(b, 1) },
		"noise": func(b []byte) []byte {
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			return b
		},
	} {
		for _, before := range []bool{true, false} { // damaged before the start, or while running
			fsys := newMemFS()
			c := openMem(t, fsys)
			chat := text(0, 512)
			mustPut(t, c, 1, chat[:256], 0)
			save(t, c, mustPut(t, c, 1, chat, 256))
			save(t, c, mustPut(t, c, 1, text(9000, 256), 0))
			c.Close(context.Background())
			var victim string
			for _, f := range fsys.files() {
				if h, _, err := format.Open(fsys.names[f].data); err == nil && h.P0 == 256 {
					victim = f
				}
			}
			hurt := func() {
				fsys.mu.Lock()
				i := fsys.names[victim]
				i.data = damage(slices.Clone(i.data))
				fsys.mu.Unlock()
			}
			if before {
				hurt()
			}
			c = openMem(t, fsys)
			if !before {
				hurt()
			}
			expect(t, c, 1, chat, 256, Disk)
			expect(t, c, 1, text(9000, 256), 256, Disk)
			mustPut(t, c, 1, chat, 256) // computed again, stored again
			if err := c.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
			if s := c.Stats(); s.Quarantined != 1 {
				t.Errorf("%s: %d quarantined", name, s.Quarantined)
			}
			fsys.mu.Lock()
			aside := fsys.names[filepath.Join("/kv", quarantineDir, filepath.Base(victim))]
			fsys.mu.Unlock()
			if aside == nil {
				t.Errorf("%s: the file is not in quarantine", name)
			}
			c = openMem(t, fsys)
			expect(t, c, 1, chat, 512, Disk)
		}
	}
}

func TestLeftAlone(t *testing.T) {
	fsys := newMemFS()
	c := openMem(t, fsys)
	save(t, c, mustPut(t, c, 1, text(0, 100), 0))
	c.Close(context.Background())
	mine := fsys.files()[0]
	add := func(name string, data []byte) {
		fsys.names[filepath.Join("/kv", name)] = &inode{data: data, synced: data, time: fsys.clock}
	}
	later := slices.Clone(fsys.names[mine].data)
	later[8] = 2
	add(strings.Repeat("ab", 32)+".kvsnap", later)
	add("README", []byte("mine"))
	add("other.kvsnap.tmp", []byte("half a"))
	add(strings.Repeat("cd", 32)+".kvsnap", slices.Clone(fsys.names[mine].data)) // renamed by hand
	c = openMem(t, fsys)
	if err := c.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if s := c.Stats(); s.Unknown != 1 || s.Quarantined != 1 || s.Disk.Parts != 1 {
		t.Errorf("%+v", s)
	}
	for name, want := range map[string]bool{strings.Repeat("ab", 32) + ".kvsnap": true, "README": true,
		"other.kvsnap.tmp": false, strings.Repeat("cd", 32) + ".kvsnap": false} {
		if got := fsys.names[filepath.Join("/kv", name)] != nil; got != want {
			t.Errorf("%s is there: %v", name, got)
		}
	}
}

// TestFaults: every kind of failure at every call, once and for good: what was stored is served from memory, nothing
// wrong comes from disk, and after the disk recovers it is used again.
func TestFaults(t *testing.T) {
	ops := []string{"prepare", "lock", "readdir", "open", "read", "create", "write", "sync", "rename", "syncdir",
		"remove", "settime"}
	for _, op := range ops {
		for _, fail := range []error{syscall.ENOSPC, syscall.EIO, errShort} {
			for _, lasting := range []bool{false, true} {
				if fail == errShort && op != "write" {
					continue
				}
				fsys := newMemFS()
				c := openMem(t, fsys)
				old := text(50_000, 256)
				save(t, c, mustPut(t, c, 1, old, 0))
				c.Close(context.Background())

				healthy := false
				seen := 0
				fsys.fault = func(o, name string) error {
					if o == op && !healthy {
						if seen++; lasting || seen == 1 {
							return fail
						}
					}
					return nil
				}
				now := time.Unix(1_800_000_000, 0)
				o := testOptions()
				o.FS, o.Dir, o.DiskBytes = fsys, "/kv", 1<<20
				o.Now = func() time.Time { return now }
				c = open(t, o)
				for i := range 6 {
					chat := text(1000*i, 512)
					mustPut(t, c, 1, chat[:256], 0)
					k := mustPut(t, c, 1, chat, 256)
					if c.DiskError() == nil {
						err := c.Save(context.Background(), k)
						if lasting && err == nil &&
							slices.Contains([]string{"create", "write", "sync", "rename", "syncdir"}, op) {
							t.Errorf("%s %v: saved", op, fail)
						}
					}
					expect(t, c, 1, chat, 512, Host)
				}
				if n, _ := restore(t, c, 1, old); n != 0 && n != 256 {
					t.Errorf("%s: %d tokens", op, n)
				}
				fsys.mu.Lock()
				healthy = true
				fsys.mu.Unlock()
				c.mu.Lock()
				now = now.Add(time.Hour) // the pause is over
				c.mu.Unlock()
				if c.DiskError() == nil {
					save(t, c, mustPut(t, c, 1, text(90_000, 256), 0))
				}
				c.Close(context.Background())
				disk := c.DiskError() == nil
				c = openMem(t, fsys)
				if disk {
					expect(t, c, 1, text(90_000, 256), 256, Disk)
				}
				for i := range 6 {
					restore(t, c, 1, text(1000*i, 512)) // whatever is there is right
				}
				if op != "open" && op != "read" && fail != syscall.ENOSPC && fail != errShort {
					expect(t, c, 1, old, 256, Disk) // and what was there before still is
				}
				c.Close(context.Background())
			}
		}
	}
}

// TestPowerFailure loses power at every call that changes something, with everything unsynced lost and with random
// parts of it surviving. What was reported as saved must be there, what was reported as deleted must not, and
// whatever is found must be right.
func TestPowerFailure(t *testing.T) {
	type acked struct{ saved, deleted map[int]bool }
	chat := func(i int) []Token { return text(1000*i, 300) }
	scenario := func(fsys *memFS) (a acked) {
		a = acked{map[int]bool{}, map[int]bool{}}
		o := testOptions()
		o.FS, o.Dir, o.DiskBytes = fsys, "/kv", 1<<20
		c, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(context.Background())
		ctx := context.Background()
		keys := map[int]Key{}
		for i := range 3 {
			mustPut(t, c, 1, chat(i)[:100], 0)
			mustPut(t, c, 1, chat(i)[:200], 100)
			keys[i] = mustPut(t, c, 1, chat(i), 200)
			if c.Save(ctx, keys[i]) == nil {
				a.saved[i] = true
			}
		}
		beginning := c.List()
		for _, in := range beginning {
			if m, ok := c.Peek(1, chat(1)[:50]); ok && in.Key == m.Key {
				delete(a.saved, 1)
				if _, err := c.Delete(ctx, in.Key); err == nil {
					a.deleted[1] = true
				}
			}
		}
		mustPut(t, c, 1, chat(1)[:100], 0) // and again, under the same name
		keys[1] = mustPut(t, c, 1, chat(1), 100)
		delete(a.deleted, 1)
		if c.Save(ctx, keys[1]) == nil {
			a.saved[1] = true
		}
		if _, err := c.Delete(ctx, keys[2]); err == nil {
			a.deleted[2] = true
		}
		delete(a.saved, 2)
		return a
	}
	whole := newMemFS()
	if a := scenario(whole); len(a.saved) != 2 || len(a.deleted) != 1 {
		t.Fatalf("without a failure: %+v", a)
	}
	t.Logf("%d calls change something", whole.steps)
	for at := 1; at <= whole.steps; at++ {
		fsys := newMemFS()
		fsys.crashAt = at
		a := scenario(fsys)
		for seed := range 4 {
			var r *rand.Rand
			if seed > 0 {
				r = rand.New(rand.NewPCG(uint64(at), uint64(seed)))
			}
			after := fsys.reboot(r)
			c := openMem(t, after)
			if c.DiskError() != nil {
				t.Fatal(c.DiskError())
			}
			for i := range 3 {
				n, _ := restore(t, c, 1, chat(i))
				if a.saved[i] && n != 300 {
					t.Fatalf("power lost at call %d (%s), seed %d: %d of 300 saved tokens are left", at, fsys.log[at-1],
						seed, n)
				}
				if a.deleted[i] && n == 300 {
					t.Fatalf("power lost at call %d (%s), seed %d: deleted tokens came back", at, fsys.log[at-1], seed)
				}
			}
			if s := c.Stats(); s.Quarantined != 0 {
				t.Fatalf("power lost at call %d (%s), seed %d: a damaged file has a final name", at, fsys.log[at-1],
					seed)
			}
			c.Close(context.Background())
			for name := range after.names {
				if strings.HasSuffix(name, tempSuffix) {
					t.Fatalf("%s stayed", name)
				}
			}
		}
	}
}

// TestFolderMovedDuringAWrite: the temporary file of a write whose folder was moved away is removed when the folder is
// back, by the next write or at the end.
func TestFolderMovedDuringAWrite(t *testing.T) {
	for _, next := range []string{"write", "close"} {
		fsys := newMemFS()
		var away, moves atomic.Bool
		moves.Store(true)
		fsys.fault = func(op, name string) error {
			if op == "rename" && moves.Load() {
				away.Store(true)
			}
			if away.Load() {
				return fs.ErrNotExist
			}
			return nil
		}
		temporary := func() (n int) {
			fsys.mu.Lock()
			defer fsys.mu.Unlock()
			for name := range fsys.names {
				if strings.HasSuffix(name, tempSuffix) {
					n++
				}
			}
			return n
		}
		var now atomic.Int64
		o := testOptions()
		o.FS, o.Dir, o.DiskBytes = fsys, "/kv", 1<<20
		o.Now = func() time.Time { return time.Unix(1_800_000_000+now.Load(), 0) }
		c := open(t, o)
		k := mustPut(t, c, 1, text(0, 256), 0)
		if err := c.Save(context.Background(), k); err == nil || temporary() != 1 {
			t.Fatalf("%v, %d temporary files", err, temporary())
		}
		moves.Store(false)
		away.Store(false)
		now.Store(3600) // writes pause after one that failed
		if next == "write" {
			save(t, c, mustPut(t, c, 1, text(1000, 256), 0))
		} else if err := c.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		if n := temporary(); n != 0 {
			t.Errorf("after the %s: %d temporary files", next, n)
		}
	}
}
