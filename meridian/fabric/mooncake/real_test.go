package mooncake_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/mooncaketest"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/meridian/fabric"
	"github.com/uma-serve/uma-serve/meridian/fabric/fabrictest"
	"github.com/uma-serve/uma-serve/meridian/fabric/mooncake"
)

// These run against a real master and node, when scripts/mooncake.sh has installed them.

func open(t testing.TB, url string) *mooncake.Fabric {
	t.Helper()
	f, err := mooncake.Open(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func limit(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestStoreConformance(t *testing.T) {
	s := mooncaketest.Start(t, "512 MB")
	fabrictest.Run(t, func(t testing.TB) fabric.Fabric {
		f := open(t, s.URL())
		for _, key := range []string{"k", "other", "a", "large", "good", "bad", "prefix"} {
			if err := f.Delete(limit(t, waitfor.Limit), key); err != nil {
				t.Fatal(err)
			}
		}
		return f
	})
}

// TestPython: Mooncake's own client reads the bytes that this one stored, and the other way round.
func TestPython(t *testing.T) {
	s := mooncaketest.Start(t, "256 MB")
	f := open(t, s.URL())
	c, err := mooncake.ParseURL(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	value := fabrictest.Value(1, 3<<20+17)
	seal := func(key string) (name string, sealed []byte) {
		name = c.Key.Name(key)
		return name, c.Key.Seal(name, c.Key.Header(name, value), value)
	}
	dir := t.TempDir()
	fabrictest.MustPush(t, f, "ours", value)
	ours, want := seal("ours")
	theirs, sealed := seal("theirs")
	if err := os.WriteFile(filepath.Join(dir, "in"), sealed, 0o600); err != nil {
		t.Fatal(err)
	}
	foreign := c.Key.Name("foreign")
	out := s.Python(dir, `
print(store.is_exist(`+strconv.Quote(ours)+`))
open(dir + "/out", "wb").write(store.get(`+strconv.Quote(ours)+`))
print(store.put(`+strconv.Quote(theirs)+`, open(dir + "/in", "rb").read()))
print(store.put(`+strconv.Quote(foreign)+`, b"x" * 1000))`)
	if strings.Join(strings.Fields(out), " ") != "1 0 0" {
		t.Errorf("Mooncake's client says %q", out)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "out")); err != nil || !bytes.Equal(got, want) {
		t.Errorf("Mooncake's client reads %d bytes, want %d (%v)", len(got), len(want), err)
	}
	fabrictest.WantPull(t, f, "theirs", value)
	_, err = f.Pull(limit(t, waitfor.Limit), "foreign", nil)
	fabrictest.WantError(t, err, fabric.ErrCorrupt)
	fabrictest.MustPush(t, f, "foreign", value) // replaces it
	fabrictest.WantPull(t, f, "foreign", value)
}

// TestOtherNamespace: machines with another namespace key neither see nor disturb each other.
func TestOtherNamespace(t *testing.T) {
	s := mooncaketest.Start(t, "256 MB")
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(strings.Repeat("07", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	f := open(t, s.URL())
	other := open(t, "mooncake://"+s.Master+"?metadata="+s.Metadata+"&namespace_key_file="+file)
	value := fabrictest.Value(1, 1<<20)
	fabrictest.MustPush(t, f, "k", value)
	_, err := other.Pull(limit(t, waitfor.Limit), "k", nil)
	fabrictest.WantError(t, err, fabric.ErrNotFound)
	if err := other.Delete(limit(t, waitfor.Limit), "k"); err != nil {
		t.Fatal(err)
	}
	fabrictest.WantPull(t, f, "k", value)
}

// TestStoreFull: a value that no node can hold is refused. Above the size of the store, the master evicts.
func TestStoreFull(t *testing.T) {
	s := mooncaketest.Start(t, "64 MB")
	f := open(t, s.URL())
	err := f.Push(limit(t, waitfor.Limit), "k", make([]byte, 128<<20))
	fabrictest.WantError(t, err, fabric.ErrUnavailable)
	if !strings.Contains(err.Error(), "no node has room") {
		t.Error(err)
	}
	for i := range 16 {
		err := f.Push(limit(t, waitfor.Limit), "k"+strconv.Itoa(i), fabrictest.Value(uint64(i), 8<<20))
		if err != nil && !errors.Is(err, fabric.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	for i := range 16 {
		got, err := f.Pull(limit(t, waitfor.Limit), "k"+strconv.Itoa(i), nil)
		if err == nil && !bytes.Equal(got, fabrictest.Value(uint64(i), 8<<20)) || err != nil &&
			!errors.Is(err, fabric.ErrNotFound) {
			t.Errorf("k%d: %d bytes, %v", i, len(got), err)
		}
	}
}

// longest is the limit on an operation when a node dies or is silent.
const longest = 2 * time.Second

// TestStopped: a node that is stopped, not killed, accepts connections and is silent. No operation takes 2 s.
func TestStopped(t *testing.T) {
	s := mooncaketest.Start(t, "256 MB")
	f := open(t, s.URL())
	value := fabrictest.Value(1, 32<<20)
	fabrictest.MustPush(t, f, "k", value)
	if err := s.Node().Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	waitfor.Stopped(t, s.Node().Pid)
	ctx := limit(t, longest)
	_, err := f.Pull(ctx, "k", nil)
	fabrictest.WantError(t, err, fabric.ErrUnavailable)
	if ctx.Err() != nil {
		t.Errorf("the pull took more than %v", longest)
	}
	if err := s.Node().Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	fabrictest.WantPull(t, f, "k", value)
}

// TestKills kills the node at random points of pushes and pulls. UMA_KILLS sets how often.
func TestKills(t *testing.T) {
	kills := 5
	if n, err := strconv.Atoi(os.Getenv("UMA_KILLS")); err == nil {
		kills = n
	}
	s := mooncaketest.Start(t, "128 MB")
	f := open(t, s.URL())
	r := rand.New(rand.NewPCG(1, 2))
	var ok, missed, failed int
	for i := range kills {
		key, seed := "k"+strconv.Itoa(i%7), uint64(i%7)
		want := fabrictest.Value(seed, 2<<20)
		killed := make(chan struct{})
		time.AfterFunc(time.Duration(r.IntN(60_000))*time.Microsecond, func() { s.KillNode(); close(killed) })
		for dead := false; ; {
			for _, push := range []bool{true, false} {
				ctx, cancel := context.WithTimeout(context.Background(), longest)
				var got []byte
				var err error
				if push {
					err = f.Push(ctx, key, want)
				} else {
					got, err = f.Pull(ctx, key, nil)
				}
				if ctx.Err() != nil {
					t.Errorf("kill %d: an operation took more than %v", i, longest)
				}
				cancel()
				switch {
				case err == nil && (push || bytes.Equal(got, want)):
					ok++
				case err == nil:
					t.Fatalf("kill %d: a wrong value of %d bytes", i, len(got))
				case errors.Is(err, fabric.ErrNotFound):
					missed++
				case errors.Is(err, fabric.ErrUnavailable):
					failed++
				default:
					t.Fatalf("kill %d: %v", i, err)
				}
			}
			if dead {
				break
			}
			select {
			case <-killed:
				dead = true
			default:
			}
		}
		s.StartNode()
	}
	if ok == 0 || failed+missed == 0 {
		t.Errorf("%d succeeded, %d failed, %d missed: the kills were not at random points", ok, failed, missed)
	}
	t.Logf("%d kills: %d operations succeeded, %d failed, %d missed", kills, ok, failed, missed)
}

func BenchmarkStore(b *testing.B) {
	s := mooncaketest.Start(b, "1 GB")
	fabrictest.Bench(b, func(b testing.TB) fabric.Fabric { return open(b, s.URL()) })
}
