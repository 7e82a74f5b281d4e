package fabric

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// push queues a value of n bytes that counts as so many blocks.
func push(t *testing.T, o *Offloader, key string, n, blocks int, done func(error)) bool {
	t.Helper()
	return o.TryPush(PushJob{Key: key, Value: make([]byte, n), Blocks: blocks, Done: done})
}

func TestOffloaderBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &script{}
		o := NewOffloader(inner, OffloadConfig{Threshold: 4, MaxDelay: time.Second})
		want := func(when string, pushed int, batches uint64) {
			t.Helper()
			synctest.Wait()
			if s := o.Stats(); len(inner.seen()) != pushed || s.Batches != batches {
				t.Fatalf("%s: %d pushed in %d batches, want %d in %d", when, len(inner.seen()), s.Batches, pushed,
					batches)
			}
		}
		push(t, o, "a", 1, 2, nil)
		push(t, o, "b", 1, 1, nil)
		want("three blocks", 0, 0)
		push(t, o, "c", 1, 1, nil)
		want("four", 3, 1)
		push(t, o, "d", 1, 1, nil)
		time.Sleep(999 * time.Millisecond)
		want("one block, waiting", 3, 1)
		time.Sleep(time.Millisecond)
		want("long enough", 4, 2)
		push(t, o, "e", 1, 1, nil)
		o.Flush()
		want("end of turn", 5, 3)
		o.Flush()
		time.Sleep(time.Hour)
		want("nothing to flush", 5, 3)
		push(t, o, "f", 1, 1, nil)
		if err := o.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		want("the rest on closing", 6, 4)
		if s := o.Stats(); s.BlocksOffloaded != 7 || s.BytesOffloaded != 6 || s.QueuedItems != 0 || s.QueuedBytes != 0 {
			t.Errorf("%+v", s)
		}
		if push(t, o, "g", 1, 9, nil) || o.TryPull(PullJob{Context: context.Background(), Key: "g"}) {
			t.Error("a closed offloader took a job")
		}
		if s := o.Stats(); s.PushesDropped != 1 || s.PullsDropped != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// TestOffloaderNeverWaits: a silent fabric fills the queue; then jobs are refused, at once, and counted. What is being
// pushed counts as held. When the fabric is back, so is the room.
func TestOffloaderNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := make(chan struct{})
		inner := &script{before: func(context.Context) error { <-open; return nil }}
		o := NewOffloader(inner, OffloadConfig{Threshold: 1, QueueItems: 3, QueueBytes: 100, QueuePulls: 2})
		began := time.Now()
		if !push(t, o, "a", 50, 1, nil) {
			t.Fatal("an empty queue refused")
		}
		synctest.Wait() // "a" is under way
		taken := []bool{push(t, o, "b", 51, 1, nil), push(t, o, "c", 10, 1, nil), push(t, o, "d", 10, 1, nil),
			push(t, o, "e", 10, 1, nil)}
		if !slices.Equal(taken, []bool{false, true, true, false}) {
			t.Errorf("taken: %v", taken)
		}
		pull := func() bool {
			return o.TryPull(PullJob{Context: context.Background(), Key: "p", Done: func([]byte, error) {}})
		}
		pull()
		synctest.Wait() // under way
		if a, b, c := pull(), pull(), pull(); !a || !b || c {
			t.Errorf("pulls taken: %v %v %v", a, b, c)
		}
		if s := o.Stats(); time.Since(began) != 0 || s.PushesDropped != 2 || s.PullsDropped != 1 ||
			s.QueuedItems != 3 || s.QueuedBytes != 70 {
			t.Errorf("after %v: %+v", time.Since(began), s)
		}
		close(open)
		synctest.Wait()
		if s := o.Stats(); s.QueuedItems != 0 || s.QueuedBytes != 0 || !push(t, o, "f", 100, 1, nil) {
			t.Errorf("no room after all was done: %+v", s)
		}
		if err := o.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestOffloaderOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &script{value: []byte("kv")}
		o := NewOffloader(inner, OffloadConfig{Threshold: 1})
		var log []string
		note := func(what string) func(error) {
			return func(err error) { log = append(log, fmt.Sprintf("%s: %v", what, err)) }
		}
		o.TryPush(PushJob{Key: "a", Value: []byte("raw"), Blocks: 2, Done: note("prepared"),
			Prepare: func(b []byte) ([]byte, error) { return append(b, "+sealed"...), nil }})
		synctest.Wait()
		o.TryPush(PushJob{Key: "b", Value: []byte("raw"), Blocks: 2, Done: note("unprepared"),
			Prepare: func([]byte) ([]byte, error) { return nil, errors.New("cannot") }})
		synctest.Wait()
		inner.err = ErrTooLarge
		push(t, o, "c", 1, 2, note("failed"))
		synctest.Wait()
		want := []string{"prepared: <nil>", "unprepared: cannot", "failed: " + ErrTooLarge.Error()}
		if !slices.Equal(log, want) || inner.seen()[0] != "a=raw+sealed" || len(inner.seen()) != 2 {
			t.Errorf("%q, pushed %q", log, inner.seen())
		}
		pull := func(ctx context.Context, err error) (value []byte, got error) {
			inner.err = err
			o.TryPull(PullJob{Context: ctx, Key: "k", Blocks: 3, Dst: make([]byte, 0, 10),
				Done: func(v []byte, err error) { value, got = v, err }})
			synctest.Wait()
			return value, got
		}
		ctx := context.Background()
		if v, err := pull(ctx, nil); string(v) != "kv" || err != nil || cap(v) != 10 {
			t.Errorf("%q, %v", v, err)
		}
		if _, err := pull(ctx, ErrNotFound); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
		if _, err := pull(ctx, ErrCorrupt); !errors.Is(err, ErrCorrupt) {
			t.Error(err)
		}
		if s := o.Stats(); s.BlocksOffloaded != 2 || s.PushesFailed != 2 || s.BlocksIngested != 3 ||
			s.BytesIngested != 2 || s.PullsMissed != 1 || s.PullsFailed != 1 {
			t.Errorf("%+v", s)
		}
		// A request that ends takes its pull with it.
		inner.before = silent
		request, end := context.WithCancel(ctx)
		done := make(chan error, 1)
		o.TryPull(PullJob{Context: request, Key: "k", Done: func(_ []byte, err error) { done <- err }})
		synctest.Wait()
		end()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		o.Close(ctx)
	})
}

// TestOffloaderPullsPassPushes: a pull does not wait for another user's large push.
func TestOffloaderPullsPassPushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &script{before: silent}
		o := NewOffloader(inner, OffloadConfig{Threshold: 1})
		push(t, o, "slow", 1, 1, nil)
		synctest.Wait()
		inner.before = nil
		pulled := false
		o.TryPull(PullJob{Context: context.Background(), Key: "k",
			Done: func(_ []byte, err error) { pulled = err == nil }})
		synctest.Wait()
		if s := o.Stats(); !pulled || s.QueuedPulls != 0 || s.QueuedItems != 1 {
			t.Errorf("pulled: %v; %+v: the pull waits for the push", pulled, s)
		}
		inner.before = silent
		for range 2 {
			o.TryPull(PullJob{Context: context.Background(), Key: "k", Done: func([]byte, error) {}})
		}
		synctest.Wait()
		if s := o.Stats(); s.QueuedPulls != 2 { // one runs, one waits
			t.Errorf("%+v", s)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		o.Close(ctx)
		synctest.Wait()
	})
}

// TestOffloaderCloseInTime: Close drains for as long as it may; then every job is told that it was not done.
func TestOffloaderCloseInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := NewOffloader(&script{before: silent}, OffloadConfig{Threshold: 1})
		var errs []error
		for range 3 {
			push(t, o, "k", 10, 1, func(err error) { errs = append(errs, err) })
		}
		for range 2 {
			o.TryPull(PullJob{Context: context.Background(), Key: "k", Done: func(_ []byte, err error) {
				if err == nil {
					t.Error("a pull from nowhere")
				}
			}})
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		began := time.Now()
		err := o.Close(ctx)
		if d := time.Since(began); d != 2*time.Second || !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), "3 pushes (30 bytes) and 1 pulls") {
			t.Errorf("after %v: %v", d, err)
		}
		synctest.Wait()
		if len(errs) != 3 || !errors.Is(errs[0], context.Canceled) || !errors.Is(errs[1], ErrClosed) ||
			!errors.Is(errs[2], ErrClosed) {
			t.Errorf("%v", errs)
		}
		if s := o.Stats(); s.QueuedItems != 0 || s.QueuedBytes != 0 || s.QueuedPulls != 0 || s.PushesFailed != 3 ||
			s.PullsFailed != 2 {
			t.Errorf("%+v", s)
		}
	})
}

// BenchmarkTryPush measures the decode loop's cost of a push.
func BenchmarkTryPush(b *testing.B) {
	o := NewOffloader(&script{before: silent}, OffloadConfig{Threshold: 1 << 30, QueueItems: 1 << 30,
		QueueBytes: 1 << 50})
	job := PushJob{Key: "k", Value: make([]byte, 1<<20), Blocks: 1}
	b.ReportAllocs()
	for b.Loop() {
		if !o.TryPush(job) {
			b.Fatal("refused")
		}
	}
}

// TestOffloaderDelete: what waits is dropped, what is under way is removed after it, and the call returns when the
// fabric has removed everything.
func TestOffloaderDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &script{}
		o := NewOffloader(inner, OffloadConfig{Threshold: 4, MaxDelay: time.Hour})
		var dropped error
		push(t, o, "waits", 10, 1, func(err error) { dropped = err })
		push(t, o, "stays", 10, 1, nil)
		n, err := o.Delete(context.Background(), []string{"old", "waits"})
		if n != 2 || err != nil || !errors.Is(dropped, ErrDropped) ||
			!slices.Equal(inner.deleted, []string{"old", "waits"}) {
			t.Errorf("%d, %v, dropped: %v, deleted: %v", n, err, dropped, inner.deleted)
		}
		if s := o.Stats(); s.QueuedItems != 1 || s.QueuedBytes != 10 {
			t.Errorf("%+v", s)
		}
		o.Flush()
		synctest.Wait()
		if got := inner.seen(); len(got) != 1 {
			t.Errorf("pushed %v", got)
		}
		inner.err = ErrUnavailable
		if n, err := o.Delete(context.Background(), []string{"a", "b"}); n != 0 || !errors.Is(err, ErrUnavailable) {
			t.Errorf("%d, %v", n, err)
		}
		if n, err := o.Delete(context.Background(), nil); n != 0 || err != nil {
			t.Errorf("nothing to delete: %d, %v", n, err)
		}
		if err := o.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		if _, err := o.Delete(context.Background(), []string{"a"}); !errors.Is(err, ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	})
}
