package cost

import (
	"math"
	"time"
)

const (
	// A step of fewer threads takes (more / fewer) to this power as long: between 1, where arithmetic is the limit, and
	// less, where memory is. Measured from two threads to one: 1.6 … 1.95.
	threadsPower = 0.85
	// threadsDoubt is the standard deviation of the scaled coefficients, relative to them.
	threadsDoubt = 0.25
	// calmKept is the time for which the state from before a run of slow steps is kept, in ns. A disturbance is
	// noticed, and Switch called, within some tenths of a second.
	calmKept = int64(time.Second)
)

// Threads is a Model of each number of compute threads that was in use. A number that was never used begins with the
// coefficients of the one before, scaled by how products and memory scale, and less certain. Times are in ns, from any
// origin.
type Threads struct {
	Model // of the threads in use

	now   int // threads in use; 0 = not known
	first int
	kept  map[int]*Model // of those not in use

	// calm is the model from before the newest run of steps that took longer than predicted, until calmUntil.
	calm      Model
	calmUntil int64
}

// NewThreads returns a model of the first number of threads that Switch names, with a saved state as New takes it.
func NewThreads(st *State) Threads { return Threads{Model: New(st)} }

// Switch tells that n threads compute from now on, and returns how many did before; 0 = it was not known. disturbed
// says that other processes kept the threads from running in the steps just measured: these were not the machine's own
// speed, and with them the model of this number of threads would be several times too slow when it is used again.
func (t *Threads) Switch(now int64, n int, disturbed bool) (before int) {
	if disturbed && now < t.calmUntil {
		t.Model = t.calm
		t.lastError = 0
	}
	t.calmUntil = 0
	before = t.now
	switch {
	case before == n:
		return n
	case before == 0:
		t.now, t.first = n, n
		return 0
	}
	left := t.Model
	left.streak, left.lastError = 0, 0
	if next := t.kept[n]; next != nil {
		t.Model = *next
		// The record changes its key, so that a switch between two numbers allocates nothing.
		*next = left
		t.kept[before] = next
		delete(t.kept, n)
	} else {
		if t.kept == nil {
			t.kept = map[int]*Model{}
		}
		t.kept[before] = &left
		t.ForThreads(before, n)
	}
	t.now = n
	return before
}

// ObserveAt is Observe at a time. It keeps the state from before a run of slow steps: Switch may say later that other
// processes caused them, and then they must not count.
func (t *Threads) ObserveAt(now int64, l Load, took time.Duration, shared bool) {
	if now >= t.calmUntil && t.streak <= 0 {
		t.calm = t.Model
	}
	if slow := t.Observe(l, took, shared); slow && now >= t.calmUntil {
		t.calmUntil = now + calmKept
	}
}

// MissAt is Miss at a time.
func (t *Threads) MissAt(now int64, l Load, limit time.Duration) {
	if t.Miss(l, limit) && now >= t.calmUntil {
		t.calmUntil = now + calmKept
	}
}

// First returns the state of the model of the number of threads that was in use first.
func (t *Threads) First() State {
	if m := t.kept[t.first]; m != nil {
		return m.State()
	}
	return t.State()
}

// ForThreads makes the model of one number of threads that of another.
func (m *Model) ForThreads(from, to int) {
	m.streak, m.lastError = 0, 0
	f := math.Pow(float64(from)/float64(to), threadsPower)
	m.scale(f)
	m.alone.ms = min(m.alone.ms*f, 1e9)
	for i := range m.theta {
		d := threadsDoubt * m.theta[i]
		m.cov[i][i] += mul(d, d)
	}
	m.bound()
}
