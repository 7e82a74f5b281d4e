package threads

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// box is a machine whose processors the kernel shares between compute threads and other processes. A step with a
// processor too few takes three times as long, as measured on two.
type box struct {
	c          *Controller
	cpus, most int
	others     float64 // processors that other processes want
	hide       func(*Counters)

	at      time.Duration
	n       Counters
	taken   time.Duration // processor time of the others
	changes int
	few     time.Duration // time on fewer threads
}

func newBox(most, cpus int) *box {
	return &box{c: New(Config{Most: most, Processors: cpus}), cpus: cpus, most: most}
}

// run computes for a while. It returns when the number of threads last changed, from its start; 0 = it did not.
func (b *box) run(d time.Duration) (changed time.Duration) {
	begin := b.at
	for b.at-begin < d {
		n := float64(b.c.Threads())
		// The others get what the threads leave, and at least their fair share.
		taken := min(b.others, max(float64(b.cpus)-n, float64(b.cpus)*b.others/(n+b.others)))
		short := max(0, n+taken-float64(b.cpus)) // threads that wait, on average
		predicted := 10 * time.Millisecond * time.Duration(b.most) / time.Duration(n)
		took := predicted
		if short > 0.05 {
			took *= 3
		}
		b.at += took
		times := func(x float64) time.Duration { return time.Duration(x * float64(took)) }
		b.taken += times(taken)
		b.n.Own += times(n - short)
		b.n.Ran += times(n - short)
		b.n.Waited += times(short)
		b.n.Stalled += times(min(1, 2*short))
		b.n.Switches += int64(300 * short * took.Seconds())
		if b.c.Threads() < b.most {
			b.few += took
		}
		reading := b.n
		reading.Busy = (b.taken + b.n.Own).Truncate(10 * time.Millisecond)
		if b.hide != nil {
			b.hide(&reading)
		}
		b.c.Step(took, predicted)
		if b.c.Read(b.at, reading).Changed {
			b.changes++
			changed = b.at - begin
		}
	}
	return changed
}

// kernels are sets of counters, by what different systems provide.
var kernels = []struct {
	name string
	hide func(*Counters)
	back time.Duration // until all threads are used again
}{
	{"all", nil, 600 * time.Millisecond},
	{"no /proc/stat", func(n *Counters) { n.Busy = Unknown }, 1900 * time.Millisecond},
	{"no schedstat either", func(n *Counters) { n.Busy, n.Ran, n.Waited = Unknown, Unknown, Unknown },
		1900 * time.Millisecond},
	{"switches alone", func(n *Counters) {
		n.Busy, n.Ran, n.Waited, n.Stalled = Unknown, Unknown, Unknown, Unknown
	}, 1900 * time.Millisecond},
	{"nothing", func(n *Counters) {
		*n = Counters{Unknown, Unknown, Unknown, Unknown, Unknown, Unknown, Unknown}
	}, 1900 * time.Millisecond},
}

// TestBusyProcess: beside a process that never sleeps one thread of two is given up within a third of a second, and is
// back within two seconds of its end, whatever the kernel tells.
func TestBusyProcess(t *testing.T) {
	for _, k := range kernels {
		t.Run(k.name, func(t *testing.T) {
			b := newBox(2, 2)
			b.hide = k.hide
			for round := range 3 {
				if b.run(5 * time.Second); b.c.Threads() != 2 {
					t.Fatalf("round %d: %d threads on an idle machine: %v", round, b.c.Threads(), b.c.Reason())
				}
				b.others = 1
				b.run(350 * time.Millisecond)
				if b.c.Threads() != 1 {
					t.Fatalf("round %d: %d threads beside a busy process: %+v", round, b.c.Threads(), b.c.Load())
				}
				b.few = 0
				b.run(20 * time.Second)
				if share := b.few.Seconds() / 20; share < 0.8 {
					t.Errorf("round %d: one thread for %.2f of the time beside a busy process", round, share)
				}
				b.others = 0
				if back := b.run(4 * time.Second); back > k.back || b.c.Threads() != 2 {
					t.Errorf("round %d: %d threads, changed %v behind the end of the busy process, want 2 within %v",
						round, b.c.Threads(), back, k.back)
				}
			}
		})
	}
}

// TestIdleMachine: nothing is given up on an idle machine, nor for clients that take some tenths of a processor.
func TestIdleMachine(t *testing.T) {
	for _, others := range []float64{0, 0.05, 0.2, 0.3} {
		b := newBox(2, 2)
		b.others = others
		if b.run(time.Minute); b.changes > 0 {
			t.Errorf("others take %.2f processors: %d changes, %d threads, %+v", others, b.changes, b.c.Threads(),
				b.c.Load())
		}
	}
}

// TestManyProcessors: as many threads are given up as processors are taken, and none where hardware threads are left.
func TestManyProcessors(t *testing.T) {
	for _, c := range []struct {
		most, cpus int
		others     float64
		want       int
	}{
		{16, 16, 1, 15}, {16, 16, 4, 12}, {16, 16, 100, 2}, {16, 32, 1, 16}, {16, 32, 15, 16}, {16, 32, 20, 12},
		{4, 8, 3, 4}, {1, 2, 2, 1}, {2, 64, 0, 2},
	} {
		b := newBox(c.most, c.cpus)
		b.others = c.others
		b.run(10 * time.Second)
		if got := b.c.Threads(); got > c.want+1 || got < c.want-1 || c.want == c.most && got != c.most {
			t.Errorf("%d threads on %d processors of which others want %.0f: %d, want %d", c.most, c.cpus, c.others,
				got, c.want)
		}
		if b.changes > 20 {
			t.Errorf("%d threads on %d processors, others %.0f: %d changes in 10 s", c.most, c.cpus, c.others,
				b.changes)
		}
	}
}

// TestQuota: a thread that a quota stops is given up, and tried again now and then.
func TestQuota(t *testing.T) {
	c := New(Config{Most: 2, Processors: 8})
	at, n, few := time.Duration(0), Counters{}, 0
	for range 600 { // a minute
		at += 100 * time.Millisecond
		n.Own += 100 * time.Millisecond
		n.Busy += 100 * time.Millisecond
		if c.Threads() == 2 {
			n.Throttled += 40 * time.Millisecond
		} else {
			few++
		}
		c.Step(time.Millisecond, time.Millisecond)
		c.Read(at, n)
	}
	if c.Reason() != Throttled && c.Threads() != 2 || few < 540 {
		t.Errorf("one thread in %d of 600 tenths of a second, now %d by %v", few, c.Threads(), c.Reason())
	}
}

// TestDisturbed: the decision that gives a thread up says that the steps before it were disturbed; the one that takes
// it back does not.
func TestDisturbed(t *testing.T) {
	b := newBox(2, 2)
	b.run(time.Second)
	b.others = 1
	n := b.n
	at := b.at
	for b.c.Threads() == 2 {
		at += Window
		n.Busy += 2 * Window
		n.Own += Window
		b.c.Step(Window, Window)
		d := b.c.Read(at, n)
		if d.Changed && (!d.Disturbed || d.Reason != Taken || d.Threads != 1) {
			t.Fatalf("decision %+v", d)
		}
	}
	for b.c.Threads() == 1 {
		at += Window
		n.Busy += Window
		n.Own += Window
		if d := b.c.Read(at, n); d.Changed && (d.Disturbed || d.Reason != Undisturbed || d.Threads != 2) {
			t.Fatalf("decision %+v", d)
		}
	}
}

// TestSetMost: fewer threads at once, and more when fewer are not for another reason.
func TestSetMost(t *testing.T) {
	b := newBox(8, 8)
	if d := b.c.SetMost(4); d.Threads != 4 || !d.Changed || d.Disturbed {
		t.Errorf("8 → 4: %+v", d)
	}
	b.run(time.Second)
	if d := b.c.SetMost(8); d.Threads != 8 || !d.Changed {
		t.Errorf("4 → 8: %+v", d)
	}
	b.others = 5
	b.run(2 * time.Second)
	few := b.c.Threads()
	if d := b.c.SetMost(6); few >= 6 || d.Changed {
		t.Errorf("6 allowed, %d in use beside 5 busy processes: %+v", few, d)
	}
	if d := b.c.SetMost(-3); d.Threads != 1 {
		t.Errorf("-3: %+v", d)
	}
}

// TestFixed: the number stays, but for what SetMost says.
func TestFixed(t *testing.T) {
	b := newBox(2, 2)
	b.c = New(Config{Most: 2, Processors: 2, Fixed: true})
	b.others = 2
	if b.run(10 * time.Second); b.changes > 0 || b.c.Load().Taken < 0.5 {
		t.Errorf("%d changes, load %+v", b.changes, b.c.Load())
	}
	if d := b.c.SetMost(1); !d.Changed {
		t.Errorf("SetMost: %+v", d)
	}
}

// TestSleepingLoop: a reading after hours of sleep is about those hours; a busy process that ended meanwhile is
// forgotten.
func TestSleepingLoop(t *testing.T) {
	b := newBox(2, 2)
	b.run(time.Second)
	b.others = 1
	b.run(time.Second)
	b.others = 0
	b.at += time.Hour
	if back := b.run(time.Second); back > 200*time.Millisecond || b.c.Threads() != 2 {
		t.Errorf("%d threads after an idle hour, changed at %v", b.c.Threads(), back)
	}
}

// TestAnyReading: whatever the system says, the number of threads stays within its limits.
func TestAnyReading(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(-1, 70).Draw(t, "most")
		c := New(Config{Most: most, Processors: rapid.IntRange(-1, 1000).Draw(t, "processors")})
		duration := func(name string) time.Duration {
			return time.Duration(rapid.OneOf(rapid.Int64Range(-1, 1<<34), rapid.Int64()).Draw(t, name))
		}
		for range rapid.IntRange(1, 50).Draw(t, "readings") {
			for range rapid.IntRange(0, 5).Draw(t, "steps") {
				c.Step(duration("took"), duration("predicted"))
			}
			d := c.Read(duration("at"), Counters{duration("busy"), duration("own"), duration("ran"), duration("waited"),
				duration("stalled"), duration("throttled"), rapid.Int64().Draw(t, "switches")})
			if d.Threads < 1 || d.Threads > max(most, 1) || d.Threads != c.Threads() {
				t.Fatalf("%d of %d threads: %+v", c.Threads(), most, d)
			}
			l := c.Load()
			for _, x := range []float64{l.Taken, l.Waited, l.Slowdown, l.Stalled, l.Throttled, l.Switches} {
				if !(x >= Unknown) {
					t.Fatalf("load %+v", l)
				}
			}
		}
	})
}

// TestOneWindow: a single window in which a processor seems to be taken gives nothing up while the steps are as fast as
// ever.
func TestOneWindow(t *testing.T) {
	c := New(Config{Most: 2, Processors: 2})
	var n Counters
	for i := range 100 {
		at := time.Duration(i) * Window
		n.Own += Window
		n.Busy += Window
		if i%3 == 0 {
			n.Busy += Window
		}
		c.Step(Window, Window)
		if d := c.Read(at, n); d.Changed {
			t.Fatalf("window %d: %+v, load %+v", i, d, c.Load())
		}
	}
}

// TestOtherEngines: what other processes use while this one waits for its turn takes nothing from it.
func TestOtherEngines(t *testing.T) {
	c := New(Config{Most: 2, Processors: 2})
	var n Counters
	for at := time.Duration(0); at < 10*time.Second; at += 50 * time.Millisecond {
		n.Busy += 100 * time.Millisecond
		if at/time.Second%2 == 0 { // its turn: every second one
			n.Own += 50 * time.Millisecond
			c.Step(25*time.Millisecond, 25*time.Millisecond)
		}
		if d := c.Read(at, n); d.Changed {
			t.Fatalf("%v: %+v, load %+v", at, d, c.Load())
		}
	}
}

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range append(Reasons(), 99) {
		if s := r.String(); s == "" || seen[s] {
			t.Errorf("reason %d is called %q", r, s)
		} else {
			seen[s] = true
		}
	}
}

func ExampleController() {
	c := New(Config{Most: 2, Processors: 2})
	c.Read(0, Counters{})
	// In the next 200 ms, which a step took, both processors are busy, and this process has used one of them.
	c.Step(200*time.Millisecond, 120*time.Millisecond)
	d := c.Read(200*time.Millisecond, Counters{Busy: 400 * time.Millisecond, Own: 200 * time.Millisecond})
	fmt.Println(d.Threads, d.Reason)
	// Output: 1 taken
}
