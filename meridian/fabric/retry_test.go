package fabric

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uma-serve/uma-serve/meridian/fabric/memory"
	"github.com/uma-serve/uma-serve/meridian/mrdn"
)

// flaky fails a share of the pushes to another fabric, in runs that open a breaker too.
type flaky struct {
	Fabric
	mu     sync.Mutex
	rng    *rand.Rand
	share  float64
	failed int
}

func (f *flaky) Push(ctx context.Context, key string, value []byte) error {
	f.mu.Lock()
	fails := f.rng.Float64() < f.share
	if fails {
		f.failed++
	}
	f.mu.Unlock()
	if fails {
		return fmt.Errorf("%w: injected", ErrUnavailable)
	}
	return f.Fabric.Push(ctx, key, value)
}

// TestPushesArrive: of 1,000 pushes a fifth of the attempts fails, behind the guard whose breaker opens now and then.
// All arrive, in a queue that never holds more than it may.
func TestPushesArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := memory.New(memory.Label, 64<<20)
		if err != nil {
			t.Fatal(err)
		}
		inner := &flaky{Fabric: store, rng: rand.New(rand.NewPCG(1, 2)), share: 0.2}
		g := NewGuard(inner, GuardConfig{})
		const most = 32
		o := NewOffloader(g, OffloadConfig{QueueItems: most})
		frame := func(i int) []byte {
			b, err := mrdn.Append(nil, mrdn.ThinkComplete, fmt.Append(nil, "cells of piece ", i))
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		arrived, told := 0, 0
		for i := range 1000 {
			j := PushJob{Key: fmt.Sprint("k", i), Value: frame(i), Blocks: 1, Done: func(err error) {
				if told++; err == nil {
					arrived++
				} else {
					t.Errorf("push %d: %v", i, err)
				}
			}}
			for !o.TryPush(j) {
				time.Sleep(10 * time.Millisecond)
			}
			if n := o.Stats().QueuedItems; n > most {
				t.Fatalf("%d pushes are queued, at most %d may be", n, most)
			}
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if arrived != 1000 || told != 1000 {
			t.Errorf("%d of 1000 arrived, %d were told of", arrived, told)
		}
		for i := range 1000 {
			v, err := g.Pull(context.Background(), fmt.Sprint("k", i), nil)
			if err != nil || string(v) != string(frame(i)) {
				t.Errorf("piece %d: %v", i, err)
			}
		}
		s, gs := o.Stats(), g.Stats()
		if inner.failed < 150 || s.PushesRetried < uint64(inner.failed) || s.QueuedItems != 0 || s.QueuedBytes != 0 ||
			gs.BreakerOpened == 0 || gs.Errors[ReasonCircuitOpen] == 0 {
			t.Errorf("%d failed, the breaker opened %d times: %+v", inner.failed, gs.BreakerOpened, s)
		}
		if err := o.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// TestPushIsGivenUp: a fabric that stays away is asked ever more rarely, for as long as RetryFor says; then its caller
// hears of it. An error that will not go away is told at once.
func TestPushIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &script{err: fmt.Errorf("%w: down", ErrUnavailable)}
		o := NewOffloader(inner, OffloadConfig{Threshold: 1, RetryFor: 9 * time.Second, MinPause: time.Second,
			MaxPause: 3 * time.Second})
		began := time.Now()
		var told []string
		note := func(err error) { told = append(told, fmt.Sprint(time.Since(began), " ", err)) }
		push(t, o, "a", 10, 1, note)
		for _, c := range []struct {
			after    time.Duration
			attempts int
		}{{0, 1}, {999 * time.Millisecond, 1}, {time.Millisecond, 2}, {2 * time.Second, 3}, {3 * time.Second, 4},
			{time.Second, 4}, {2 * time.Second, 5}, {time.Hour, 5}} {
			time.Sleep(c.after)
			synctest.Wait()
			if n := len(inner.seen()); n != c.attempts {
				t.Errorf("after %v: %d attempts, want %d", time.Since(began), n, c.attempts)
			}
		}
		if want := []string{"9s unavailable: down"}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
		if s := o.Stats(); s.PushesFailed != 1 || s.PushesRetried != 4 || s.QueuedItems != 0 || s.QueuedBytes != 0 {
			t.Errorf("%+v", s)
		}
		inner.err, told = fmt.Errorf("%w: 3 GiB", ErrTooLarge), nil
		push(t, o, "b", 10, 1, note)
		synctest.Wait()
		if len(told) != 1 || len(inner.seen()) != 6 {
			t.Errorf("an error that stays: %q after %d attempts", told, len(inner.seen())-5)
		}
		if err := o.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// TestDeleteWhileRetrying: a value that waits for its next attempt, or whose attempt runs, is not pushed after its key
// was deleted.
func TestDeleteWhileRetrying(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		inner := &script{err: fmt.Errorf("%w: down", ErrUnavailable)}
		o := NewOffloader(inner, OffloadConfig{Threshold: 1})
		var mu sync.Mutex // the deletion tells of what it drops on its own goroutine
		var told []error
		note := func(err error) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, err)
		}
		push(t, o, "waits", 10, 1, note)
		synctest.Wait()
		inner.before = func(context.Context) error { <-gate; return nil }
		push(t, o, "runs", 10, 1, note)
		synctest.Wait()
		deleted := make(chan error)
		go func() {
			_, err := o.Delete(context.Background(), []string{"waits", "runs"})
			deleted <- err
		}()
		synctest.Wait()
		close(gate) // the attempt fails, then the deletion does
		if err := <-deleted; !errors.Is(err, ErrUnavailable) {
			t.Errorf("the deletion: %v", err)
		}
		inner.mu.Lock()
		inner.err = nil
		inner.mu.Unlock()
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := inner.seen(); len(got) != 2 || len(told) != 2 || !errors.Is(told[0], ErrDropped) {
			t.Errorf("pushed %d times, told %v", len(got), told)
		}
		if s := o.Stats(); s.QueuedItems != 0 || s.QueuedBytes != 0 {
			t.Errorf("%+v", s)
		}
		if err := o.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// TestCloseTriesOnceMore: what waits for its next attempt when the process ends gets one at once.
func TestCloseTriesOnceMore(t *testing.T) {
	for _, back := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			inner := &script{err: fmt.Errorf("%w: down", ErrUnavailable)}
			o := NewOffloader(inner, OffloadConfig{Threshold: 1})
			var told []error
			push(t, o, "a", 10, 1, func(err error) { told = append(told, err) })
			synctest.Wait()
			if back {
				inner.err = nil
			}
			began := time.Now()
			if err := o.Close(context.Background()); err != nil || time.Since(began) != 0 {
				t.Errorf("%v after %v", err, time.Since(began))
			}
			if len(told) != 1 || back != (told[0] == nil) || len(inner.seen()) != 2 {
				t.Errorf("back: %v: told %v after %d attempts", back, told, len(inner.seen()))
			}
		})
	}
}

// TestRenewals: they say what is missing, do not wait for a batch of pushes, and are bounded.
func TestRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := memory.New(memory.Label, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		o := NewOffloader(store, OffloadConfig{Threshold: 4, MaxDelay: time.Hour, QueueRenewals: 5})
		for _, k := range []string{"a", "c"} {
			if err := store.Push(context.Background(), k, []byte("kv")); err != nil {
				t.Fatal(err)
			}
		}
		push(t, o, "waits", 1, 1, nil)
		var missing []string
		var failed error
		note := func(m []string, err error) { missing, failed = m, err }
		if o.TryRenew([]string{"a", "b", "c", "d", "e", "f"}, note) || !o.TryRenew([]string{"a", "b", "c", "d"}, note) {
			t.Error("the queue's bound is 5 keys")
		}
		synctest.Wait()
		if !slices.Equal(missing, []string{"b", "d"}) || failed != nil {
			t.Errorf("missing: %v, %v", missing, failed)
		}
		store.Close()
		o.TryRenew([]string{"a", "b"}, note)
		synctest.Wait()
		if missing != nil || !errors.Is(failed, ErrUnavailable) {
			t.Errorf("missing: %v, %v", missing, failed)
		}
		if err := o.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if o.TryRenew(nil, note) {
			t.Error("a closed offloader took a renewal")
		}
	})
}
