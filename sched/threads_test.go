package sched

import (
	"math"
	"testing"
	"time"
)

// threadMachine is a machine and the scheduler whose cost model learns it.
type threadMachine struct {
	*machine
	s *Scheduler
	i int
}

func newThreadMachine(t *testing.T) *threadMachine {
	t.Helper()
	s, err := New(Config{Policy: "meridian", MaxRunning: 4, Cells: 1000, MaxBatch: 100})
	if err != nil {
		t.Fatal(err)
	}
	m := &threadMachine{machine: priceMachine(9, 0.04), s: s}
	m.threads(2, false)
	return m
}

func (m *threadMachine) threads(n int, disturbed bool) {
	m.s.Step(m.s.now, List(EvThreads{Threads: n, Disturbed: disturbed}))
}

// run computes n steps and returns how many were predicted wrongly, by more than off.
func (m *threadMachine) run(n int, off float64) (wrong int) {
	for range n {
		m.i++
		l := mixed(2, 300, (m.i*37)%1500, 4+m.i%9)
		if r := m.s.cost.Predict(l) / m.Mean(l); math.Abs(math.Log(r)) > math.Log(off) {
			wrong++
		}
		took := m.Took(l)
		m.s.now = m.s.now.Add(took)
		m.s.cost.ObserveAt(int64(m.s.now), l, took, true)
	}
	return wrong
}

// TestCostOfThreads: a number of threads that was used before is predicted at once, and one that was not within a few
// steps, whatever the machine makes of it.
func TestCostOfThreads(t *testing.T) {
	for _, slower := range []float64{1.5, 1.8, 2} {
		m := newThreadMachine(t)
		m.run(300, 1.25)
		saved := m.s.Cost()
		for round := range 3 {
			m.threads(1, true)
			m.Speed = slower
			most := 2
			if round == 0 {
				most = 8 // it was never used
			}
			if wrong := m.run(60, 1.3); wrong > most {
				t.Errorf("one thread is %v × slower, round %d: %d steps were predicted wrongly, allowed %d", slower,
					round, wrong, most)
			}
			if got := m.s.Cost(); round == 0 && got != saved {
				t.Errorf("Cost is %+v while one of two threads is in use, want the state of two, %+v", got, saved)
			}
			m.threads(2, false)
			m.Speed = 1
			if wrong := m.run(60, 1.25); wrong > 2 {
				t.Errorf("back on two threads, round %d: %d steps were predicted wrongly", round, wrong)
			}
		}
	}
}

// TestCostForgetsTheDisturbance: what slow steps taught before EvThreads says that the threads were disturbed is
// forgotten, unless they were slow for longer than that takes.
func TestCostForgetsTheDisturbance(t *testing.T) {
	for _, steps := range []int{1, 3, 5, 9} {
		m := newThreadMachine(t)
		m.run(300, 1.25)
		l := mixed(2, 300, 500, 8)
		before := m.s.cost.Predict(l)
		m.Speed = 3
		m.run(steps, 1e9)
		m.threads(1, true)
		m.Speed = 1.8
		if wrong := m.run(20, 1.25); wrong > 5 {
			t.Errorf("after %d disturbed steps: %d of 20 were predicted wrongly on one thread", steps, wrong)
		}
		m.threads(2, false)
		if r := m.s.cost.Predict(l) / before; r < 0.9 || r > 1.15 {
			t.Errorf("after %d disturbed steps, two threads are predicted %.2f × as before", steps, r)
		}
	}
	// A machine that is slower for good keeps what was learned.
	m := newThreadMachine(t)
	m.run(300, 1.25)
	m.Speed = 3
	m.run(100, 1e9)
	l := mixed(2, 300, 500, 8)
	before := m.s.cost.Predict(l)
	m.threads(1, true)
	m.threads(2, false)
	if r := m.s.cost.Predict(l) / before; r < 0.8 || r > 1.25 {
		t.Errorf("a slower machine is predicted %.2f × as it was learned over %v", r, 100*time.Millisecond)
	}
}

func TestThreadsOutOfRange(t *testing.T) {
	for _, n := range []int{0, -1, MaxThreads + 1} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%d threads are taken", n)
				}
			}()
			newThreadMachine(t).threads(n, false)
		}()
	}
}
