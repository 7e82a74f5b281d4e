package lease

import (
	"flag"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/arbiter"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
)

var seed = flag.Uint64("seed", 0, "seed of the random tests; 0 = a fixed one")

// front is a table as a front has it.
func front(t testing.TB) *Table {
	t.Helper()
	f, err := Create()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// enter maps the table once more, as an engine process does, and enters it.
func enter(t testing.TB, f *Table, name string) *Lease {
	t.Helper()
	fd, err := unix.Dup(int(f.File().Fd()))
	if err != nil {
		t.Fatal(err)
	}
	e, err := Open(os.NewFile(uintptr(fd), "leases"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	seat, err := f.Enter(name)
	if err != nil {
		t.Fatal(err)
	}
	l := e.Lease(seat, 1)
	l.hold, l.wait = time.Hour, time.Hour // on a busy machine a test may not run for seconds
	l.Say(arbiter.Claim{Due: arbiter.Never})
	return l
}

// waiting waits until so many engines wait for device 0.
func waiting(t testing.TB, f *Table, n int) {
	t.Helper()
	waitfor.True(t, "engines wait", func() bool {
		views := f.Views()
		return len(views) > 0 && len(views[0].Waiting) == n
	})
}

func TestFreeLeaseIsTakenAtOnce(t *testing.T) {
	f := front(t)
	a := enter(t, f, "a")
	if w := a.Acquire(); !w.OK || w.Took != 0 || w.Holder != -1 {
		t.Errorf("%+v", w)
	}
	if v := f.Views(); len(v) != 1 || v[0].Holder != "a" || v[0].Device != 0 || len(v[0].Waiting) != 0 {
		t.Errorf("%+v", v)
	}
	a.Release()
	a.Release()
	if v := f.Views(); v[0].Holder != "" {
		t.Errorf("%+v", v)
	}
	if s := &a.Stats; s.Grants.Load() != 1 || s.Contended.Load() != 0 || s.Held.Load() <= 0 || s.Without() != 0 ||
		s.Lost.Load() != 0 {
		t.Errorf("%+v", s)
	}
}

// TestHandedToTheAnswerThatIsDueFirst: of two that wait, the one whose answer is due first is next.
func TestHandedToTheAnswerThatIsDueFirst(t *testing.T) {
	f := front(t)
	a, b, c := enter(t, f, "a"), enter(t, f, "b"), enter(t, f, "c")
	a.Acquire()
	got := make(chan *Lease, 2)
	for i, l := range []*Lease{b, c} {
		l.Say(arbiter.Claim{Due: f.Now() + arbiter.Instant(time.Hour-time.Duration(i)*time.Minute),
			Target: time.Second})
		go func() { l.Acquire(); got <- l }()
		waiting(t, f, i+1)
	}
	a.Release()
	if l := <-got; l != c {
		t.Error("the answer that is due later was first")
	}
	c.Release()
	<-got
	if s := &b.Stats; s.Contended.Load() != 1 || s.Waited.Load() <= 0 {
		t.Errorf("%+v", s)
	}
	b.Release()
}

// TestLimit: the step of a prompt ends before the others' answers are due.
func TestLimit(t *testing.T) {
	f := front(t)
	a, b := enter(t, f, "a"), enter(t, f, "b")
	if _, ok := a.Limit(time.Now()); ok {
		t.Error("a limit without another engine's answers")
	}
	b.Say(arbiter.Claim{Due: f.Now() + arbiter.Instant(50*time.Second), Step: time.Second, Target: 50 * time.Second})
	a.Acquire()
	// 0.7 of the target, less the answer
	if limit, ok := a.Limit(time.Now()); !ok || limit != 34*time.Second {
		t.Errorf("%v %v", limit, ok)
	}
	a.Release()
	b.Use(2) // another device
	if _, ok := a.Limit(time.Now()); ok {
		t.Error("answers on another device limit the step")
	}
}

// TestDevicesHaveLeasesOfTheirOwn: an engine takes those of all of its devices, and only these.
func TestDevicesHaveLeasesOfTheirOwn(t *testing.T) {
	f := front(t)
	cpu, gpu, both := enter(t, f, "cpu"), enter(t, f, "gpu"), enter(t, f, "both")
	gpu.Use(1 << 3)
	both.Use(1 | 1<<3)
	cpu.Acquire()
	if w := gpu.Acquire(); w.Took != 0 {
		t.Errorf("the GPU waits for the processor: %+v", w)
	}
	done := make(chan Wait)
	go func() { done <- both.Acquire() }()
	waiting(t, f, 1)
	cpu.Release()
	waitfor.True(t, "the second device is waited for", func() bool {
		v := f.Views()
		return len(v) == 2 && len(v[1].Waiting) == 1 && v[0].Holder == "both"
	})
	gpu.Release()
	if w := <-done; !w.OK || w.Holder != 0 {
		t.Errorf("%+v", w)
	}
	both.Release()
	for _, v := range f.Views() {
		if v.Holder != "" {
			t.Errorf("%+v is still held", v)
		}
	}
}

// TestHolderThatDoesNotReturn: the others go on without the lease after HoldLimit, do not wait for the same step again,
// and take the lease as soon as it is passed on.
func TestHolderThatDoesNotReturn(t *testing.T) {
	f := front(t)
	a, b := enter(t, f, "a"), enter(t, f, "b")
	b.hold = 5 * time.Millisecond
	a.Acquire()
	if w := b.Acquire(); w.OK || w.Took < b.hold || b.Name(w.Holder) != "a" {
		t.Errorf("%+v", w)
	}
	b.Release()
	if w := b.Acquire(); w.OK || w.Took != 0 {
		t.Errorf("the second time: %+v", w)
	}
	b.Release()
	if s := &b.Stats; s.HoldTimeouts.Load() != 1 || s.Skipped.Load() != 1 || s.Without() != 2 {
		t.Errorf("%+v", s)
	}
	if n, ago := f.Without(b.seat); n != 2 || ago > waitfor.Limit {
		t.Errorf("the front hears of %d steps, the last %v ago", n, ago)
	}
	if n, _ := f.Without(a.seat); n != 0 {
		t.Errorf("the front hears of %d steps of the holder", n)
	}
	a.Release()
	if w := b.Acquire(); !w.OK {
		t.Errorf("after its end: %+v", w)
	}
	b.Release()
}

// TestHoldersThatAlwaysTakeTooLong: after some such waits the engine does not wait at all for a while.
func TestHoldersThatAlwaysTakeTooLong(t *testing.T) {
	f := front(t)
	a, b := enter(t, f, "a"), enter(t, f, "b")
	b.hold = time.Millisecond
	for i := range maxTimeouts + 1 {
		a.Acquire()
		if w := b.Acquire(); w.OK || i == maxTimeouts != (w.Took == 0) {
			t.Errorf("wait %d: %+v", i, w)
		}
		b.Release()
		a.Release()
	}
	if w := b.Acquire(); !w.OK {
		t.Errorf("a free lease is not taken: %+v", w)
	}
	b.Release()
}

// TestGrantAfterGivingUp: a lease that comes too late is handed on.
func TestGrantAfterGivingUp(t *testing.T) {
	f := front(t)
	a, b := enter(t, f, "a"), enter(t, f, "b")
	b.hold = time.Millisecond
	a.Acquire()
	if w := b.Acquire(); w.OK {
		t.Fatalf("%+v", w)
	}
	b.s.waits.Store(1) // as a saw it when b gave up
	a.Release()
	b.s.waits.Store(0)
	if v := f.Views(); v[0].Holder != "b" {
		t.Fatalf("%+v", v)
	}
	b.Release() // after the step without a lease
	if v := f.Views(); v[0].Holder != "" {
		t.Errorf("%+v", v)
	}
}

// TestStrangeHolder: a lease of a process that is not in the table is taken.
func TestStrangeHolder(t *testing.T) {
	f := front(t)
	a := enter(t, f, "a")
	for _, w := range []uint64{grant(0, Seat{Slot: 63, Gen: 7}), grant(0, Seat{Slot: 0, Gen: 999}), 0xffffffffffffffff,
		0x1_0000_ffff} {
		f.devices[0].word.Store(w)
		if got := a.Acquire(); !got.OK || got.Took > HoldLimit {
			t.Errorf("%x: %+v", w, got)
		}
		a.Release()
	}
	if n := a.Stats.Repaired.Load(); n != 4 {
		t.Errorf("%d repairs", n)
	}
}

// TestLost: what was taken away while it was held is not released.
func TestLost(t *testing.T) {
	f := front(t)
	a, b := enter(t, f, "a"), enter(t, f, "b")
	a.Acquire()
	f.devices[0].word.Store(grant(0, b.seat))
	a.Release()
	if a.Stats.Lost.Load() != 1 || f.Views()[0].Holder != "b" {
		t.Errorf("lost %d, %+v", a.Stats.Lost.Load(), f.Views())
	}
}

// TestGarbage: engines beside one that writes anything anywhere wait no longer than their limits.
func TestGarbage(t *testing.T) {
	s := *seed
	if s == 0 {
		s = 15
	}
	t.Logf("go test -run %s -seed %d", t.Name(), s)
	f := front(t)
	engines := []*Lease{enter(t, f, "a"), enter(t, f, "b")}
	stop := make(chan struct{})
	var writer, all sync.WaitGroup
	writer.Go(func() {
		r := rand.New(rand.NewPCG(s, 2))
		words := unsafe.Slice((*atomic.Uint32)(unsafe.Pointer(f.memory)), unsafe.Sizeof(memory{})/4)
		for {
			select {
			case <-stop:
				return
			default:
				words[r.IntN(len(words))].Store(r.Uint32())
			}
		}
	})
	for _, l := range engines {
		l.hold, l.wait = 2*time.Millisecond, 10*time.Millisecond
		all.Go(func() {
			for range 300 {
				l.Say(arbiter.Claim{Due: l.t.Now(), Step: time.Millisecond, Target: time.Second})
				if w := l.Acquire(); w.Took > HoldLimit { // 10 ms on a machine with nothing else to do
					t.Errorf("waited %v", w.Took)
				}
				l.Limit(time.Now())
				l.Release()
			}
		})
	}
	all.Wait()
	close(stop)
	writer.Wait()
	f.Views()
}

func TestTableIsFull(t *testing.T) {
	f := front(t)
	var last Seat
	for range MaxEngines {
		var err error
		if last, err = f.Enter("e"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.Enter("e"); err != ErrFull {
		t.Errorf("%v, want %v", err, ErrFull)
	}
	f.Leave(last)
	f.Leave(last)
	f.Leave(Seat{Slot: -1})
	if s, err := f.Enter("e"); err != nil || s.Slot != last.Slot || s.Gen == last.Gen {
		t.Errorf("%+v %v after %+v", s, err, last)
	}
}

func TestNames(t *testing.T) {
	f := front(t)
	for name, want := range map[string]string{"qwen3:8b": "qwen3:8b", "a\nb\x1b": "a?b?", "\xff": "?",
		string(make([]byte, 2*MaxNameBytes)): "????????????????????????????????????????????????????????????????"} {
		l := enter(t, f, name)
		if got := f.Name(l.seat.Slot); got != want {
			t.Errorf("%q is shown as %q", name, got)
		}
	}
	if f.Name(-1) != "" || f.Name(MaxEngines) != "" {
		t.Error("a slot that there is not has a name")
	}
}

func TestOpenRefusesWhatIsNoTable(t *testing.T) {
	for _, n := range []int{0, 100, int(unsafe.Sizeof(memory{}))} {
		f, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Truncate(int64(n)); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(f); err == nil {
			t.Errorf("%d bytes were opened", n)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	f := front(t)
	a, b := enter(t, f, "a"), enter(t, f, "b")
	b.Say(arbiter.Claim{Due: f.Now(), Step: time.Millisecond, Target: time.Second})
	if n := testing.AllocsPerRun(100, func() { step(a) }); n != 0 {
		t.Errorf("%v allocations per step", n)
	}
}

// step is all that a step without contention asks of a lease.
func step(l *Lease) {
	l.Acquire()
	now := time.Now()
	l.Limit(now)
	l.Say(arbiter.Claim{Due: l.At(now), Step: time.Millisecond, Target: time.Second})
	l.Release()
}

// BenchmarkUncontended is the cost of a step beside another engine that does not wait.
func BenchmarkUncontended(b *testing.B) {
	f := front(b)
	l, o := enter(b, f, "a"), enter(b, f, "b")
	o.Say(arbiter.Claim{Due: f.Now(), Step: time.Millisecond, Target: time.Second})
	b.ReportAllocs()
	for b.Loop() {
		step(l)
	}
}
