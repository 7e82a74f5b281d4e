// Package fabrictest is the contract of fabric.Fabric as tests. Every implementation runs it:
//
//	func TestConformance(t *testing.T) {
//		fabrictest.Run(t, func(t testing.TB) fabric.Fabric { return mine.New() })
//	}
package fabrictest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/meridian/fabric"
	"github.com/uma-serve/uma-serve/meridian/mrdn"
)

// LargeBytes is the largest value the suite pushes: a few thousand tokens of a mid-sized model.
const LargeBytes = 64 << 20

// Run checks a fabric. open makes an empty one that takes values of [LargeBytes] and at least twice that in total; Run
// closes it.
func Run(t *testing.T, open func(t testing.TB) fabric.Fabric) {
	for _, c := range []struct {
		name string
		test func(*testing.T, fabric.Fabric)
	}{
		{"sizes", testSizes},
		{"not found", testNotFound},
		{"overwrite", testOverwrite},
		{"delete", testDelete},
		{"renew", testRenew},
		{"ownership", testOwnership},
		{"storage", testStorage},
		{"keys", testKeys},
		{"context", testContext},
		{"concurrent", testConcurrent},
		{"frames through a guard", testGuarded},
		{"large", testLarge},
		{"close", testClose},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := open(t)
			defer f.Close()
			c.test(t, f)
		})
	}
}

// Value returns n bytes that compress badly and differ between seeds.
func Value(seed uint64, n int) []byte {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	b := make([]byte, n)
	rand.NewChaCha8(key).Read(b)
	return b
}

// Frame returns an MRDN frame around Value(seed, n).
func Frame(t testing.TB, seed uint64, n int) []byte {
	t.Helper()
	f, err := mrdn.Append(nil, mrdn.ThinkComplete, Value(seed, n))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// within returns a generous deadline: it only makes a test that hangs say where.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// MustPush pushes or fails the test.
func MustPush(t testing.TB, f fabric.Fabric, key string, value []byte) {
	t.Helper()
	if err := f.Push(within(t), key, value); err != nil {
		t.Fatal(err)
	}
}

// WantPull fails the test unless key holds want.
func WantPull(t testing.TB, f fabric.Fabric, key string, want []byte) {
	t.Helper()
	got, err := f.Pull(within(t), key, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("pulled %d bytes that differ from the %d pushed", len(got), len(want))
	}
}

// WantError fails the test unless err wraps want.
func WantError(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error is %v, want %v", err, want)
	}
}

func wantMissing(t testing.TB, f fabric.Fabric, key string) {
	t.Helper()
	got, err := f.Pull(within(t), key, nil)
	WantError(t, err, fabric.ErrNotFound)
	if got != nil {
		t.Fatalf("%d bytes beside an error", len(got))
	}
}

func testSizes(t *testing.T, f fabric.Fabric) {
	if f.Label() == "" || strings.ContainsAny(f.Label(), " \n\"") {
		t.Errorf("label %q", f.Label())
	}
	for i, n := range []int{0, 1, 31, 4095, 4096, 4097, 1<<20 - 1, 1 << 20, 1<<20 + 1, 9<<20 + 12345} {
		key, value := fmt.Sprintf("size-%d", i), Value(1, n)
		MustPush(t, f, key, value)
		WantPull(t, f, key, value)
		WantPull(t, f, key, value) // pulling does not consume
	}
}

func testNotFound(t *testing.T, f fabric.Fabric) {
	wantMissing(t, f, "never-pushed")
	MustPush(t, f, "a", []byte("x"))
	wantMissing(t, f, "A")
	wantMissing(t, f, "a:a")
}

func testOverwrite(t *testing.T, f fabric.Fabric) {
	for i, n := range []int{3 << 20, 5, 0, 2 << 20, 2 << 20} {
		value := Value(uint64(i), n)
		MustPush(t, f, "k", value)
		WantPull(t, f, "k", value)
		MustPush(t, f, "k", value) // the same again
		WantPull(t, f, "k", value)
	}
}

func testDelete(t *testing.T, f fabric.Fabric) {
	if err := f.Delete(within(t), "never"); err != nil {
		t.Fatalf("deleting what is not there: %v", err)
	}
	for _, n := range []int{0, 10, 3 << 20} {
		MustPush(t, f, "k", Value(1, n))
		MustPush(t, f, "other", Value(2, 10))
		if err := f.Delete(within(t), "k"); err != nil {
			t.Fatal(err)
		}
		wantMissing(t, f, "k")
		WantPull(t, f, "other", Value(2, 10))
		MustPush(t, f, "k", Value(3, n))
		WantPull(t, f, "k", Value(3, n))
	}
}

func testRenew(t *testing.T, f fabric.Fabric) {
	WantError(t, f.Renew(within(t), "k"), fabric.ErrNotFound)
	for _, n := range []int{0, 10, 3 << 20} {
		MustPush(t, f, "k", Value(1, n))
		if err := f.Renew(within(t), "k"); err != nil {
			t.Fatal(err)
		}
		WantPull(t, f, "k", Value(1, n))
		if err := f.Delete(within(t), "k"); err != nil {
			t.Fatal(err)
		}
		WantError(t, f.Renew(within(t), "k"), fabric.ErrNotFound)
		wantMissing(t, f, "k") // renewing makes nothing
	}
	WantError(t, f.Renew(within(t), "a b"), fabric.ErrKey)
	if f.TTL() < 0 {
		t.Errorf("a time to live of %v", f.TTL())
	}
}

// testOwnership: the caller may overwrite pushed and pulled values.
func testOwnership(t *testing.T, f fabric.Fabric) {
	value := Value(1, 2<<20)
	pushed := bytes.Clone(value)
	MustPush(t, f, "k", pushed)
	clear(pushed)
	got, err := f.Pull(within(t), "k", nil)
	if err != nil || !bytes.Equal(got, value) {
		t.Fatalf("the fabric kept the pushed slice: %v", err)
	}
	clear(got)
	WantPull(t, f, "k", value)
}

func testStorage(t *testing.T, f fabric.Fabric) {
	value := Value(1, 1<<20)
	MustPush(t, f, "k", value)
	storage := make([]byte, len(value)+64)
	got, err := f.Pull(within(t), "k", storage[:0])
	if err != nil || !bytes.Equal(got, value) {
		t.Fatal(err)
	}
	if !bytes.Contains(storage, value) {
		t.Error("storage that was large enough was not used")
	}
	got, err = f.Pull(within(t), "k", make([]byte, 100, 200))
	if err != nil || !bytes.Equal(got, value) {
		t.Fatalf("with too little storage: %d bytes, %v", len(got), err)
	}
}

func testKeys(t *testing.T, f fabric.Fabric) {
	for _, key := range []string{"a", "A.b_c:d-9", strings.Repeat("k", fabric.MaxKeyBytes)} {
		MustPush(t, f, key, []byte(key))
		WantPull(t, f, key, []byte(key))
	}
	for _, key := range []string{"", strings.Repeat("k", fabric.MaxKeyBytes+1), "a b", "a{b}", "a\r\nFLUSHALL", "a\x00",
		"ü", "*", "../a"} {
		_, err := f.Pull(within(t), key, nil)
		WantError(t, err, fabric.ErrKey)
		WantError(t, f.Push(within(t), key, nil), fabric.ErrKey)
		WantError(t, f.Delete(within(t), key), fabric.ErrKey)
	}
}

func testContext(t *testing.T, f fabric.Fabric) {
	MustPush(t, f, "k", []byte("old"))
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	late, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	for _, c := range []struct {
		ctx  context.Context
		want error
	}{{cancelled, context.Canceled}, {late, context.DeadlineExceeded}} {
		_, err := f.Pull(c.ctx, "k", nil)
		for _, err := range []error{f.Push(c.ctx, "k", []byte("new")), f.Delete(c.ctx, "k"), err} {
			WantError(t, err, fabric.ErrUnavailable)
			WantError(t, err, c.want)
		}
	}
	WantPull(t, f, "k", []byte("old"))
}

// testConcurrent: with any concurrency, a pull returns a complete value that was pushed under that key, or none.
func testConcurrent(t *testing.T, f fabric.Fabric) {
	const keys, values, rounds, workers = 3, 4, 12, 6
	size := func(k, v int) int { return 300_000*(v+1) + k }
	var want [keys][values][]byte
	for k := range want {
		for v := range want[k] {
			want[k][v] = Value(uint64(10*k+v), size(k, v))
		}
	}
	ctx := within(t)
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			r := rand.New(rand.NewPCG(7, uint64(w)))
			var storage []byte
			for range rounds {
				k := r.IntN(keys)
				key := fmt.Sprintf("k%d", k)
				switch r.IntN(5) {
				case 0, 1:
					if err := f.Push(ctx, key, want[k][r.IntN(values)]); err != nil {
						t.Errorf("push: %v", err)
					}
				case 2:
					if err := f.Delete(ctx, key); err != nil {
						t.Errorf("delete: %v", err)
					}
				default:
					got, err := f.Pull(ctx, key, storage)
					if errors.Is(err, fabric.ErrNotFound) {
						continue
					}
					if err != nil {
						t.Errorf("pull: %v", err)
						continue
					}
					whole := false
					for v := range want[k] {
						whole = whole || bytes.Equal(got, want[k][v])
					}
					if !whole {
						t.Errorf("pulled %d bytes that were never pushed", len(got))
					}
					storage = got
				}
			}
		})
	}
	all.Wait()
	// After any conflict the next push takes effect.
	for k := range want {
		key := fmt.Sprintf("k%d", k)
		MustPush(t, f, key, want[k][0])
		WantPull(t, f, key, want[k][0])
	}
}

func testGuarded(t *testing.T, f fabric.Fabric) {
	g := fabric.NewGuard(f, fabric.GuardConfig{Timeout: time.Minute})
	frame := Frame(t, 1, 3<<20)
	MustPush(t, g, "good", frame)
	WantPull(t, g, "good", frame)
	broken := bytes.Clone(frame)
	broken[1<<20] ^= 4
	MustPush(t, g, "bad", broken)
	_, err := g.Pull(within(t), "bad", nil)
	WantError(t, err, fabric.ErrCorrupt)
	WantError(t, err, mrdn.ErrChecksum)
	wantMissing(t, g, "bad") // so that the next push is not taken for known
	MustPush(t, g, "bad", frame)
	WantPull(t, g, "bad", frame)
	if s := g.Stats(); s.Pushed != 3 || s.Pulled != 2 || s.Missed != 1 || s.Errors[fabric.ReasonCorrupt] != 1 ||
		g.Label() != f.Label() {
		t.Errorf("%+v", s)
	}
}

func testLarge(t *testing.T, f fabric.Fabric) {
	value := Value(1, LargeBytes)
	MustPush(t, f, "large", value)
	WantPull(t, f, "large", value)
}

func testClose(t *testing.T, f fabric.Fabric) {
	MustPush(t, f, "k", []byte("x"))
	for range 2 {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_, err := f.Pull(within(t), "k", nil)
	WantError(t, err, fabric.ErrUnavailable)
	WantError(t, f.Push(within(t), "k", nil), fabric.ErrUnavailable)
	WantError(t, f.Delete(within(t), "k"), fabric.ErrUnavailable)
}

// Bench measures pushes of new values, pushes of known ones, and pulls, for block-sized to prompt-sized values.
func Bench(b *testing.B, open func(b testing.TB) fabric.Fabric) {
	for _, size := range []struct {
		name string
		n    int
	}{{"16KiB", 16 << 10}, {"1MiB", 1 << 20}, {"32MiB", 32 << 20}} {
		f := open(b)
		value := Value(1, size.n)
		ctx := context.Background()
		b.Run("push/"+size.name, func(b *testing.B) {
			b.SetBytes(int64(size.n))
			b.ReportAllocs()
			for i := uint64(0); b.Loop(); i++ {
				binary.LittleEndian.PutUint64(value, i) // another value each time, so that none is stored yet
				if err := f.Push(ctx, "k", value); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("known/"+size.name, func(b *testing.B) {
			b.SetBytes(int64(size.n))
			for b.Loop() {
				if err := f.Push(ctx, "k", value); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("pull/"+size.name, func(b *testing.B) {
			MustPush(b, f, "k", value)
			b.SetBytes(int64(size.n))
			b.ReportAllocs()
			storage := make([]byte, size.n+64)
			for b.Loop() {
				if _, err := f.Pull(ctx, "k", storage); err != nil {
					b.Fatal(err)
				}
			}
		})
		f.Close()
	}
}
