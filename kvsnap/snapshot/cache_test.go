package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/host/hostmem"
	"github.com/uma-serve/uma-serve/internal/invariants"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot/format"
)

func testOptions() Options {
	return Options{Origin: format.Origin{EngineBuild: "test", Fingerprint: format.Hash{1}, KVTypeK: "f16",
		KVTypeV: "f16"}, RAMBytes: 64 << 20, Seed: 1}
}

func open(t testing.TB, o Options) *Cache {
	t.Helper()
	c, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil && !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
	return c
}

func openMem(t testing.TB, fsys FS) *Cache {
	o := testOptions()
	o.FS, o.Dir, o.DiskBytes = fsys, "/kv", 32<<20
	return open(t, o)
}

// cells are the bytes a part of these tokens has, so that any test can say what a restore must give. Every fourth
// kind compresses well.
func cells(ns Namespace, tokens []Token, p0, perToken int) []byte {
	sum := format.PrefixHash(tokens)
	r := rand.NewChaCha8(sum)
	b := make([]byte, (len(tokens)-p0)*perToken)
	r.Read(b)
	if sum[0]%4 == 0 {
		for i := range b {
			b[i] &= 1
		}
	}
	b[0] = byte(ns)
	return b
}

const perToken = 100

func mustPut(t testing.TB, c *Cache, ns Namespace, tokens []Token, p0 int) Key {
	t.Helper()
	k, err := put(c, ns, tokens, p0)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func put(c *Cache, ns Namespace, tokens []Token, p0 int) (Key, error) {
	b, err := c.Buffer((len(tokens) - p0) * perToken)
	if err != nil {
		return Key{}, err
	}
	copy(b.Bytes(), cells(ns, tokens, p0, perToken))
	return c.Put(ns, tokens, p0, b)
}

func text(from, n int) (out []Token) {
	for i := range n {
		out = append(out, Token(from+i))
	}
	return out
}

// restore takes back what is cached of tokens and verifies every byte. It returns how many positions came back, and
// the slowest tier.
func restore(t testing.TB, c *Cache, ns Namespace, tokens []Token) (int, Tier) {
	t.Helper()
	m, ok := c.Lookup(ns, tokens)
	if !ok {
		return 0, Host
	}
	woken := make(chan struct{}, 100)
	r, err := c.Fetch(m, func() { woken <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	end, tier := 0, Host
	for {
		p, s := r.Next()
		switch s {
		case Done:
			if end != m.Stored {
				t.Fatalf("restored [0, %d), the match holds [0, %d)", end, m.Stored)
			}
			return min(end, m.Tokens), tier
		case Failed:
			if r.Err() == nil {
				t.Fatal("failed without an error")
			}
			return min(end, m.Tokens), tier
		case Waiting:
			waitfor.Recv(t, "notify is called", woken)
		case Ready:
			if p.P0 != end {
				t.Fatalf("part [%d, %d) after [0, %d)", p.P0, p.P1, end)
			}
			if p.P1 <= len(tokens) { // a part that is cut holds tokens this test does not know
				if a, b := cells(ns, tokens[:p.P1], p.P0, perToken),
					cells(format.System, tokens[:p.P1], p.P0, perToken); !bytes.Equal(p.Bytes, a) &&
					!bytes.Equal(p.Bytes, b) {
					t.Fatalf("part [%d, %d) from %v came back with other bytes", p.P0, p.P1, p.Tier)
				}
			}
			end, tier = p.P1, max(tier, p.Tier)
		}
	}
}

func expect(t testing.TB, c *Cache, ns Namespace, tokens []Token, want int, tier Tier) {
	t.Helper()
	if n, from := restore(t, c, ns, tokens); n != want || n > 0 && from != tier {
		t.Fatalf("%d tokens came back from %v, want %d from %v", n, from, want, tier)
	}
}

func save(t testing.TB, c *Cache, k Key) {
	t.Helper()
	if err := c.Save(context.Background(), k); err != nil {
		t.Fatal(err)
	}
}

func TestHostTier(t *testing.T) {
	c := open(t, testOptions())
	if !errors.Is(c.DiskError(), ErrNoDisk) {
		t.Error(c.DiskError())
	}
	chat := text(0, 700)
	if _, err := put(c, 1, chat[:512], 256); !errors.Is(err, ErrNoPrefix) {
		t.Errorf("a part without its beginning: %v", err)
	}
	for p := 0; p < 700; p += 256 {
		mustPut(t, c, 1, chat[:min(p+256, 700)], p)
	}
	mustPut(t, c, format.System, text(5000, 100), 0)
	expect(t, c, 1, chat, 700, Host)
	expect(t, c, 1, chat[:300], 300, Host)
	expect(t, c, 2, chat, 0, Host)
	expect(t, c, 2, text(5000, 200), 100, Host)
	mustPut(t, c, 2, text(5000, 200), 100) // on top of the shared one
	expect(t, c, 2, text(5000, 200), 200, Host)
	expect(t, c, 1, text(5000, 200), 100, Host)
	s := c.Stats()
	if s.Lookups != 6 || s.Host.Hits != 5 || s.Snapshots != 5 || s.Host.Parts != 5 || s.Host.Restores.Count != 5 ||
		s.Disabled == "" {
		t.Errorf("%+v", s)
	}
	if l := c.List(); len(l) != 5 || l[0].Namespace != 1 || l[1].Parent != l[0].Key || l[0].HostBytes == 0 ||
		!l[0].Kept {
		t.Errorf("%+v", l)
	}
	if n, err := c.Delete(context.Background(), c.List()[1].Key); n != 2 || err != nil {
		t.Errorf("deleted %d: %v", n, err)
	}
	expect(t, c, 1, chat, 256, Host)
	if n, err := c.DeleteNamespaces(context.Background(), only(1)); n != 1 || err != nil {
		t.Errorf("deleted %d: %v", n, err)
	}
	if _, err := c.Delete(context.Background(), Key{1}); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	expect(t, c, 1, chat, 0, Host)
}

// TestDeletePrefix: the parts of one conversation are deleted; parts that other conversations continue and parts of
// other users stay.
func TestDeletePrefix(t *testing.T) {
	c := open(t, testOptions())
	store := func(ns Namespace, tokens []Token) {
		for p := 0; p < len(tokens); p += 128 {
			mustPut(t, c, ns, tokens[:min(p+128, len(tokens))], p)
		}
	}
	a := text(0, 400)
	b := append(slices.Clone(a[:256]), text(9000, 144)...)
	store(1, a[:200]) // an earlier, shorter state of a: [128, 200) is no part of the longer one
	store(1, a)
	store(1, b)
	store(2, a)
	if n, _ := c.DeletePrefix(1, text(7000, 300)); n != 0 {
		t.Errorf("%d parts of an unknown prefix were deleted", n)
	}
	if n, _ := c.DeletePrefix(1, a); n != 3 {
		t.Errorf("%d parts were deleted, want [128, 200), [256, 384) and [384, 400)", n)
	}
	expect(t, c, 1, a, 256, Host) // b's beginning
	expect(t, c, 1, b, 400, Host)
	expect(t, c, 2, a, 400, Host)
	if n, _ := c.DeletePrefix(1, b); n != 4 {
		t.Errorf("%d parts of b were deleted", n)
	}
	expect(t, c, 1, a, 0, Host)
	store(1, a)
	if n, err := c.Delete(context.Background(), c.List()[0].Key); n != 4 || err != nil {
		t.Errorf("%d parts behind the first were deleted with it: %v", n, err)
	}
	if n, _ := c.DeletePrefix(2, a); n != 4 || len(c.List()) != 0 || c.Stats().Host.Bytes != 0 {
		t.Errorf("%d parts were deleted; left: %+v", n, c.List())
	}
}

func TestWholeParts(t *testing.T) {
	o := testOptions()
	o.WholeParts = true
	c := open(t, o)
	mustPut(t, c, 1, text(0, 100), 0)
	expect(t, c, 1, text(0, 99), 0, Host)
	expect(t, c, 1, text(0, 100), 100, Host)
	expect(t, c, 1, text(0, 101), 100, Host)
}

func TestHostCap(t *testing.T) {
	o := testOptions()
	o.RAMBytes = 10 * int64(class(256*perToken))
	c := open(t, o)
	chat := text(0, 512)
	mustPut(t, c, 1, chat[:256], 0)
	mustPut(t, c, 1, chat, 256)
	expect(t, c, 1, chat, 512, Host) // comes back: kept
	for i := range 50 {
		mustPut(t, c, 1, text(10_000*(i+1), 256), 0)
		if s := c.Stats(); s.Host.Bytes > o.RAMBytes {
			t.Fatalf("%d bytes of %d", s.Host.Bytes, o.RAMBytes)
		}
	}
	expect(t, c, 1, chat, 512, Host)
	if s := c.Stats(); s.Host.Evictions != 42 {
		t.Errorf("%d evictions", s.Host.Evictions)
	}
}

// TestResize: a smaller cap evicts at once what nothing needs, the least used first, and counts it apart from what made
// room for other parts; a larger one takes parts again. Memory that was kept for the next parts goes too.
func TestResize(t *testing.T) {
	o := testOptions()
	part := int64(class(256 * perToken))
	o.RAMBytes = 8 * part
	c := open(t, o)
	var keys []Key
	for i := range 8 {
		keys = append(keys, mustPut(t, c, 1, text(10_000*i, 256), 0))
	}
	if err := c.Pin(keys[0], true); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		cap, parts int
		returned   uint64
	}{{8, 8, 0}, {5, 5, 3}, {6, 5, 3}, {1, 1, 7}, {0, 1, 7}} {
		c.Resize(int64(x.cap) * part)
		if s := c.Stats(); s.Host.Parts != x.parts || s.Returned != x.returned || s.Host.Evictions != x.returned ||
			s.Host.Cap != max(int64(x.cap)*part, 1) {
			t.Errorf("cap %d: %d parts of %d bytes, %d returned, %d evictions", x.cap, s.Host.Parts, s.Host.Cap,
				s.Returned, s.Host.Evictions)
		}
	}
	expect(t, c, 1, text(0, 256), 256, Host) // pinned
	if _, err := put(c, 1, text(90_000, 256), 0); !errors.Is(err, ErrTooLarge) {
		t.Errorf("with no room: %v", err)
	}
	if n := c.Stats().IdleBytes; n != 0 {
		t.Errorf("%d idle bytes are kept", n)
	}
	c.Resize(3 * part)
	mustPut(t, c, 1, text(90_000, 256), 0)
	mustPut(t, c, 1, text(91_000, 256), 0)
	mustPut(t, c, 1, text(92_000, 256), 0)
	if s := c.Stats(); s.Host.Parts != 3 || s.Host.Evictions != 8 || s.Returned != 7 {
		t.Errorf("%d parts, %d evictions, %d returned", s.Host.Parts, s.Host.Evictions, s.Returned)
	}
}

func TestPinAndNoRoom(t *testing.T) {
	o := testOptions()
	o.RAMBytes = 4 * int64(class(256*perToken))
	c := open(t, o)
	k := mustPut(t, c, 1, text(0, 256), 0)
	if err := c.Pin(k, true); err != nil {
		t.Fatal(err)
	}
	k2 := mustPut(t, c, 1, text(1000, 256), 0)
	if err := c.Pin(k2, true); err != nil {
		t.Fatal(err)
	}
	if err := c.Pin(mustPut(t, c, 1, text(2000, 256), 0), true); !errors.Is(err, ErrNoRoom) {
		t.Errorf("more than half pinned: %v", err)
	}
	m, _ := c.Lookup(1, text(2000, 256))
	r, err := c.Fetch(m, nil)
	if err != nil {
		t.Fatal(err)
	}
	mustPut(t, c, 1, text(3000, 256), 0)
	mustPut(t, c, 1, text(4000, 256), 0) // evicts 3000, the only part without holds
	if m, ok := c.Lookup(1, text(3000, 256)); ok {
		t.Errorf("%+v", m)
	}
	m4, _ := c.Lookup(1, text(4000, 256))
	r4, err := c.Fetch(m4, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := put(c, 1, text(6000, 256), 0); !errors.Is(err, ErrNoRoom) {
		t.Errorf("everything is held: %v", err)
	}
	r.Close()
	r.Close()
	r4.Close()
	mustPut(t, c, 1, text(6000, 256), 0)
	if err := c.Pin(k, false); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		mustPut(t, c, 1, text(10_000*(i+1), 256), 0)
	}
	expect(t, c, 1, text(0, 256), 0, Host)
	expect(t, c, 1, text(1000, 256), 256, Host)
	if _, err := c.Buffer(int(o.RAMBytes) + 1); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	c.Resize(0)
	expect(t, c, 1, text(6000, 256), 0, Host)
}

func TestDiskSurvivesRestart(t *testing.T) {
	fsys := newMemFS()
	c := openMem(t, fsys)
	if c.DiskError() != nil {
		t.Fatal(c.DiskError())
	}
	chat := text(0, 700)
	for p := 0; p < 700; p += 256 {
		mustPut(t, c, 1, chat[:min(p+256, 700)], p)
	}
	mustPut(t, c, format.System, text(5000, 100), 0)
	second := openMem(t, fsys)
	if !errors.Is(second.DiskError(), errLocked) || !strings.Contains(second.Stats().Disabled, "another process") {
		t.Errorf("a second daemon on one directory: %v", second.DiskError())
	}
	if err := c.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(context.Background()); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if _, err := put(c, 1, chat[:5], 0); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	c = openMem(t, fsys)
	if s := c.Stats(); s.Disk.Parts != 4 || s.Host.Parts != 0 || s.Unscanned != 0 {
		t.Fatalf("%+v", s)
	}
	expect(t, c, 1, chat, 700, Disk)
	expect(t, c, 1, chat, 700, Host) // promoted
	expect(t, c, 2, text(5000, 200), 100, Disk)
	expect(t, c, 2, chat, 0, Disk)
	if s := c.Stats(); s.Disk.PagesIn != 800 || s.Host.PagesIn != 700 || s.Disk.Restores.Count != 2 {
		t.Errorf("%+v", s)
	}
	if n, err := c.DeleteNamespaces(context.Background(), only(1)); n != 3 || err != nil {
		t.Fatalf("deleted %d: %v", n, err)
	}
	if f := fsys.files(); len(f) != 1 {
		t.Errorf("files left: %v", f)
	}
	// Another model on the same directory: its files count, and are never restored.
	c.Close(context.Background())
	o := testOptions()
	o.FS, o.Dir, o.DiskBytes = fsys, "/kv", 32<<20
	o.Origin.Fingerprint[5]++
	c = open(t, o)
	expect(t, c, 2, text(5000, 200), 0, Disk)
	if s := c.Stats(); s.Disk.Parts != 1 || s.Disk.Bytes == 0 {
		t.Errorf("%+v", s.Disk)
	}
}

func TestDiskCap(t *testing.T) {
	fsys := newMemFS()
	o := testOptions()
	o.FS, o.Dir = fsys, "/kv"
	o.DiskBytes = 10 * (256*perToken + 2000)
	c := open(t, o)
	for i := range 30 {
		chat := text(10_000*(i+1), 256)
		save(t, c, mustPut(t, c, 1, chat, 0))
		if s := c.Stats(); s.Disk.Bytes > o.DiskBytes || len(fsys.files()) != s.Disk.Parts {
			t.Fatalf("%d bytes of %d, %d files for %d parts", s.Disk.Bytes, o.DiskBytes, len(fsys.files()),
				s.Disk.Parts)
		}
	}
	if s := c.Stats(); s.Disk.Evictions == 0 {
		t.Error("nothing was evicted")
	}
	// A smaller cap holds from the next start on, and the newest stay.
	c.Close(context.Background())
	o.DiskBytes = 3 * (256*perToken + 2000)
	c = open(t, o)
	c.Close(context.Background())
	if s := c.Stats(); s.Disk.Bytes > o.DiskBytes || s.Disk.Parts < 3 || len(fsys.files()) != s.Disk.Parts {
		t.Errorf("%d bytes of %d in %d files", s.Disk.Bytes, o.DiskBytes, len(fsys.files()))
	}
	c = open(t, o)
	expect(t, c, 1, text(300_000, 256), 256, Disk)
}

func TestQueueIsBounded(t *testing.T) {
	fsys := newMemFS()
	gate := make(chan struct{})
	var once sync.Once
	fsys.fault = func(op, name string) error { return nil }
	o := testOptions()
	o.FS, o.Dir, o.DiskBytes, o.QueueBytes = slowFS{fsys, gate}, "/kv", 32<<20, 3*256*perToken
	c := open(t, o)
	t.Cleanup(func() { once.Do(func() { close(gate) }) })
	for i := range 10 {
		mustPut(t, c, 1, text(1000*i, 256), 0)
	}
	if s := c.Stats(); s.QueuedBytes != 3*256*perToken || s.Drops != 7 {
		t.Errorf("%d bytes wait, %d dropped", s.QueuedBytes, s.Drops)
	}
	once.Do(func() { close(gate) })
	if err := c.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if n := len(fsys.files()); n != 3 {
		t.Errorf("%d files", n)
	}
	// A drain without time gives up what waits and says so.
	gate = make(chan struct{})
	o.FS = slowFS{newMemFS(), gate}
	c = open(t, o)
	for i := range 3 {
		mustPut(t, c, 1, text(1000*i, 256), 0)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	done := make(chan error)
	go func() { done <- c.Close(ctx) }()
	waitfor.True(t, "what waits is given up", func() bool { return c.Stats().Drops >= 2 })
	close(gate)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// slowFS creates no file before the gate opens.
type slowFS struct {
	FS
	gate chan struct{}
}

func (s slowFS) Create(name string) (File, error) {
	<-s.gate
	return s.FS.Create(name)
}

func TestSingleFlight(t *testing.T) {
	fsys := newMemFS()
	c := openMem(t, fsys)
	chat := text(0, 256)
	save(t, c, mustPut(t, c, 1, chat, 0))
	c.Close(context.Background())
	opens := 0
	fsys.fault = func(op, name string) error {
		if op == "open" {
			opens++
		}
		return nil
	}
	c = openMem(t, fsys)
	opens = 0
	var wg sync.WaitGroup
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if n, _ := restore(t, c, 1, chat); n != 256 {
				t.Errorf("%d tokens", n)
			}
		}()
	}
	wg.Wait()
	fsys.mu.Lock()
	defer fsys.mu.Unlock()
	if opens != 1 {
		t.Errorf("the file was opened %d times", opens)
	}
}

func TestQuarantineIsBounded(t *testing.T) {
	fsys := newMemFS()
	for i := range 40 {
		d := []byte{byte(i)}
		fsys.names[fmt.Sprintf("/kv/%064x.kvsnap", i)] = &inode{data: d, synced: d,
			time: fsys.clock.Add(time.Duration(i) * time.Second)}
	}
	c := openMem(t, fsys)
	c.Close(context.Background())
	if n := len(fsys.names); n != quarantineFiles {
		t.Errorf("%d files are left", n)
	}
}

// TestDeleteQuarantined: a drop removes the user's quarantined files, and those that may be the user's.
func TestDeleteQuarantined(t *testing.T) {
	fsys := newMemFS()
	c := openMem(t, fsys)
	save(t, c, mustPut(t, c, 1, text(1, 256), 0))
	save(t, c, mustPut(t, c, 2, text(2, 256), 0))
	c.Close(context.Background())
	aside := func(name string) string { return filepath.Join("/kv", quarantineDir, filepath.Base(name)) }
	var other string
	for _, name := range fsys.files() {
		i := fsys.names[name]
		h, _, err := format.Open(i.data)
		if err != nil {
			t.Fatal(err)
		}
		if h.Namespace == 2 {
			other = aside(name)
		}
		i.data[len(i.data)-1]++ // the checksum
		delete(fsys.names, name)
		fsys.names[aside(name)] = i
	}
	fsys.names[aside(strings.Repeat("ab", 32)+".kvsnap")] = &inode{data: []byte("nobody's"), synced: []byte("nobody's")}
	c = openMem(t, fsys)
	defer c.Close(context.Background())
	if n, err := c.DeleteNamespaces(context.Background(), only(1)); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	fsys.mu.Lock()
	defer fsys.mu.Unlock()
	if len(fsys.names) != 1 || fsys.names[other] == nil {
		t.Errorf("left: %v, wanted %s", slices.Sorted(maps.Keys(fsys.names)), other)
	}
}

// TestManyAtOnce runs everything from several goroutines over a small cache, for the race detector and the invariants.
func TestManyAtOnce(t *testing.T) {
	fsys := newMemFS()
	o := namedOptions(fsys)
	o.RAMBytes, o.DiskBytes = 40*int64(class(64*perToken)), 60*(64*perToken+1000)
	c := open(t, o)
	ctx := context.Background()
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			r := rand.New(rand.NewPCG(9, uint64(g)))
			for range 300 {
				ns := Namespace(r.IntN(2))
				chat := text(10_000*r.IntN(12), 64*(1+r.IntN(5)))
				switch r.IntN(15) {
				case 12, 13:
					_ = putNamed(c, ns, Name{byte(r.IntN(20))})
				case 14:
					if err := readNamed(c, ns, Name{byte(r.IntN(20))}); err != nil && !errors.Is(err, ErrNotFound) {
						t.Error(err)
					}
				case 0:
					if m, ok := c.Lookup(ns, chat); ok {
						_, _ = c.Delete(ctx, m.Key)
					}
				case 1:
					if m, ok := c.Lookup(ns, chat); ok {
						_ = c.Pin(m.Key, r.IntN(2) == 0)
					}
				case 2:
					if m, ok := c.Lookup(ns, chat); ok {
						_ = c.Save(ctx, m.Key)
					}
				case 3:
					c.List()
					c.Stats()
				case 4, 5, 6, 7:
					m, _ := c.Peek(ns, chat)
					for p := m.Tokens / 64 * 64; p < len(chat); p += 64 {
						if _, err := put(c, ns, chat[:p+64], p); err != nil {
							break
						}
					}
				default:
					m, ok := c.Lookup(ns, chat)
					if !ok {
						continue
					}
					woken := make(chan struct{}, 100)
					f, err := c.Fetch(m, func() { woken <- struct{}{} })
					if err != nil {
						continue
					}
					for {
						p, s := f.Next()
						if s == Ready && !bytes.Equal(p.Bytes, cells(ns, chat[:p.P1], p.P0, perToken)) {
							t.Errorf("[%d, %d): other bytes", p.P0, p.P1)
						}
						if s == Done || s == Failed || s == Waiting && r.IntN(10) == 0 {
							break
						}
						if s == Waiting {
							<-woken
						}
					}
					f.Close()
				}
			}
		}()
	}
	wg.Wait()
	for _, i := range c.List() {
		_ = c.Pin(i.Key, false)
	}
	if err := c.Close(ctx); err != nil {
		t.Fatal(err)
	}
	for _, i := range c.List() {
		if i.InUse {
			t.Errorf("[%d, %d) is still held", i.P0, i.P1)
		}
	}
}

func TestRealDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	o := testOptions()
	o.Dir, o.DiskBytes = dir, 1<<30
	c := open(t, o)
	if c.DiskError() != nil {
		t.Fatal(c.DiskError())
	}
	save(t, c, mustPut(t, c, 1, text(0, 256), 0))
	second := open(t, o)
	if !errors.Is(second.DiskError(), errLocked) {
		t.Errorf("second daemon: %v", second.DiskError())
	}
	c.Close(context.Background())
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		i, err := d.Info()
		if err != nil {
			return err
		}
		if m := i.Mode().Perm(); m&0o077 != 0 {
			t.Errorf("%s has mode %v", path, m)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	c = open(t, o)
	if c.DiskError() == nil || !strings.Contains(c.DiskError().Error(), "chmod 700") {
		t.Errorf("a directory others can read: %v", c.DiskError())
	}
	expect(t, c, 1, text(0, 256), 0, Host)
	os.Chmod(dir, 0o700)
	c = open(t, o)
	expect(t, c, 1, text(0, 256), 256, Disk)
}

// TestScanBudget: what Open has no time for is read afterwards.
func TestScanBudget(t *testing.T) {
	fsys := newMemFS()
	c := openMem(t, fsys)
	chat := text(0, 640)
	for p := 0; p < 640; p += 64 {
		mustPut(t, c, 1, chat[:p+64], p)
	}
	c.Close(context.Background())
	o := testOptions()
	o.FS, o.Dir, o.DiskBytes, o.ScanBudget = fsys, "/kv", 32<<20, time.Nanosecond
	c = open(t, o)
	waitfor.True(t, "all files are read", func() bool { return c.Stats().Unscanned == 0 })
	expect(t, c, 1, chat, 640, Disk)
}

func TestOptionErrors(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"Fingerprint":  func(o *Options) { o.Origin.Fingerprint = format.Hash{} },
		"cap in bytes": func(o *Options) { o.Dir = "/x" },
		"RAMBytes":     func(o *Options) { o.RAMBytes = -1 },
		"the limit is": func(o *Options) { o.Origin.KVTypeK = strings.Repeat("x", 256) },
	} {
		o := testOptions()
		change(&o)
		if _, err := Open(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	if got := DefaultRAMBytes(hostmem.Memory{Total: 100, Available: 40}); got != 10 {
		t.Errorf("default cap %d", got)
	}
}

func TestFingerprint(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	b := make([]byte, 9<<20)
	write := func() format.Hash {
		t.Helper()
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		h, err := Fingerprint([]string{path}, "fa=on")
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	a := write()
	for _, i := range []int{0, 5 << 20, len(b) - 4000} {
		b[i]++
		if write() == a {
			t.Errorf("byte %d makes no difference", i)
		}
		b[i]--
	}
	if write() != a {
		t.Error("not repeatable")
	}
	if h, _ := Fingerprint([]string{path}, "fa=off"); h == a {
		t.Error("settings make no difference")
	}
	if _, err := Fingerprint([]string{path, path + "x"}); err == nil {
		t.Error("no file, no error")
	}
	second := filepath.Join(t.TempDir(), "m2")
	sums := map[format.Hash]bool{a: true}
	for _, text := range []string{"", "x", "y"} {
		if err := os.WriteFile(second, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		h, err := Fingerprint([]string{path, second}, "fa=on")
		if err != nil || sums[h] {
			t.Errorf("a second file with %q makes no difference (%v)", text, err)
		}
		sums[h] = true
	}
}

// TestPool: pieces of the size in use are got ready, never more than the cap; leaks nothing after the end.
func TestPool(t *testing.T) {
	const size = 1 << 20
	p := newPool(5 * size / 2)
	b, err := p.get(size)
	if err != nil {
		t.Fatal(err)
	}
	waitfor.True(t, "pieces are got ready", func() bool { return p.idleBytes() == 2*size })
	b.Release() // does not fit any more
	if n := p.idleBytes(); n != 2*size {
		t.Errorf("%d bytes idle", n)
	}
	b, err = p.get(size - 5)
	if err != nil {
		t.Fatal(err)
	}
	p.drain()
	b.Release()
	if n := p.idleBytes(); n != 0 {
		t.Errorf("%d bytes idle after the end", n)
	}
	for _, n := range []int{1, 4096, 4097, 1 << 20, 1<<20 + 1, 6 << 20, 100_000_001} {
		if c := class(n); c < n || c%pageBytes != 0 || n > 64<<10 && c > n+n/8+pageBytes {
			t.Errorf("class(%d) = %d", n, c)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a second release went unnoticed")
		}
	}()
	b.Release()
}

func TestHotPathAllocations(t *testing.T) {
	if invariants.Enabled {
		t.Skip("invariant builds may")
	}
	c := open(t, testOptions())
	chat := text(0, 1024)
	for p := 0; p < 1024; p += 256 {
		mustPut(t, c, 1, chat[:p+256], p)
	}
	if n := testing.AllocsPerRun(100, func() { c.Lookup(1, chat) }); n != 0 {
		t.Errorf("Lookup allocates %v times", n)
	}
}

func only(ns Namespace) func(Namespace) bool { return func(n Namespace) bool { return n == ns } }

// TestDeleteOtherModels: the files of other models in the directory go too, by namespace, and also those whose headers
// have not been read yet.
func TestDeleteOtherModels(t *testing.T) {
	for _, budget := range []time.Duration{0, 1} {
		fsys := newMemFS()
		for model := range byte(3) {
			o := testOptions()
			o.FS, o.Dir, o.DiskBytes = fsys, "/kv", 32<<20
			o.Origin.Fingerprint[5] = model
			c := open(t, o)
			for ns := Namespace(1); ns < 3; ns++ {
				save(t, c, mustPut(t, c, ns, text(100*int(ns), 200), 0))
			}
			if err := c.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		o := testOptions()
		o.FS, o.Dir, o.DiskBytes, o.ScanBudget = fsys, "/kv", 32<<20, budget
		c := open(t, o)
		if n, err := c.DeleteNamespaces(context.Background(), only(2)); n != 3 || err != nil {
			t.Errorf("deleted %d: %v", n, err)
		}
		if f := fsys.files(); len(f) != 3 {
			t.Errorf("files left: %v", f)
		}
		expect(t, c, 1, text(100, 200), 200, Disk)
		if s := c.Stats(); s.Disk.Parts != 3 {
			t.Errorf("%+v", s.Disk)
		}
		n, err := c.DeleteNamespaces(context.Background(), func(Namespace) bool { return true })
		if n != 3 || err != nil || len(fsys.files()) != 0 {
			t.Errorf("deleted %d: %v; left: %v", n, err, fsys.files())
		}
	}
}
