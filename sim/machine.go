package sim

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/uma-serve/uma-serve/arbiter"
	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/sim/latency"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// Shared is one of several servers on a machine, whose engines compute in turn, as uma-serve's engine processes do.
type Shared struct {
	Config  Config        // batch formation uma
	Model   latency.Model // nil: that of Config
	Source  workload.Source
	Options Options
}

// Turns counts an engine's turns on the device that it shares.
type Turns struct {
	Steps     int64 `json:"steps"`
	Contended int64 `json:"contended"` // of Steps: those that waited for another engine
	WaitedUs  int64 `json:"waited_us"`
	HeldUs    int64 `json:"held_us"`
	Limited   int64 `json:"limited"` // of Steps: those whose time the answers of other engines limited
}

// device is the lease that the engines of a machine take in turn: package arbiter on the virtual clock.
type device struct {
	engines []*Engine
	claims  []arbiter.Claim // by engine
	turns   []Turns
	since   []int64 // when an engine began to wait
	limits  []time.Duration
	holder  int   // -1: none
	freeAt  int64 // end of the holder's turn; never until its step has begun
}

// RunMachine simulates servers that share one device: the reports are in their order. The error is that of the first
// server that has one; then the reports hold what was measured until its end.
func RunMachine(servers []Shared) ([]*Report, error) {
	if len(servers) == 0 {
		return nil, fmt.Errorf("machine: no server")
	}
	d := &device{holder: -1, claims: make([]arbiter.Claim, len(servers)), turns: make([]Turns, len(servers)),
		since: make([]int64, len(servers)), limits: make([]time.Duration, len(servers))}
	runs := make([]*run, len(servers))
	for i, s := range servers {
		if s.Config.BatchFormation != "uma" {
			return nil, fmt.Errorf("machine: server %d has batch formation %q; only uma's engines take turns", i+1,
				s.Config.BatchFormation)
		}
		if err := s.Config.Validate(); err != nil {
			return nil, err
		}
		var err error
		if s.Model == nil {
			if s.Model, err = s.Config.Latency(); err != nil {
				return nil, err
			}
		}
		if runs[i], err = newRun(s.Config, s.Model, s.Source, s.Options); err != nil {
			return nil, err
		}
		runs[i].e.device, runs[i].e.place = d, i
		d.engines, d.claims[i].Due = append(d.engines, runs[i].e), arbiter.Never
	}
	err := d.run(runs)
	var reports []*Report
	for i, r := range runs {
		rep, ferr := r.finish()
		if err == nil {
			err = ferr
		}
		if rep == nil {
			return nil, err
		}
		rep.Turns = &d.turns[i]
		reports = append(reports, rep)
	}
	return reports, err
}

// run executes the events of all servers in the order of time. A turn that ends goes first: the engine that has had it
// asks again after the others.
func (d *device) run(runs []*run) error {
	for {
		first, at := -1, int64(0)
		for i, r := range runs {
			if t, ok := r.peek(); ok && (first < 0 || t < at) {
				first, at = i, t
			}
		}
		switch {
		case d.holder >= 0 && (first < 0 || d.freeAt <= at):
			d.release()
		case first < 0:
			return nil
		default:
			if err := runs[first].advance(); err != nil {
				return err
			}
			if runs[first].over {
				d.leave(first, at)
			}
		}
	}
}

// never is later than every event.
const never = math.MaxInt64

// leave takes engine i, whose simulation has ended, out of the turns.
func (d *device) leave(i int, now int64) {
	d.claims[i] = arbiter.Claim{Due: arbiter.Never}
	if d.holder == i && d.freeAt == never {
		d.freeAt = now
	}
}

// begin gives engine i its turn, or lets it wait: then its step is planned again when the turn comes.
func (d *device) begin(i int, now int64) bool {
	c, t := &d.claims[i], &d.turns[i]
	waited := int64(0)
	switch {
	case d.holder == i:
		waited = now - d.since[i]
		t.Contended++
		t.WaitedUs += waited
	case d.holder >= 0:
		if !c.Waits {
			d.since[i], c.Since, c.Waits = now, ticks(now), true
		}
		return false
	}
	d.holder, d.freeAt = i, now
	c.Waits, c.Computes = false, true
	limit, ok := arbiter.Limit(ticks(now), i, d.claims)
	if limit = max(limit, 1); !ok {
		limit = 0
	}
	if limit != d.limits[i] || waited > 0 {
		d.limits[i] = limit
		d.core(i).Handle(instant(now), core.Input{Kind: core.Limit, Limit: limit,
			Waited: time.Duration(waited) * time.Microsecond})
	}
	if ok {
		t.Limited++
	}
	return true
}

// end says that the turn of engine i, whose step has begun at now, ends at until.
func (d *device) end(i int, now, until int64) {
	d.freeAt = until
	d.turns[i].HeldUs += until - now
	o := d.core(i).Scheduler().Outlook()
	c := &d.claims[i]
	c.Due, c.Target, c.Step, c.Least, c.Background = arbiter.Never, o.Target, o.Step, o.Least, o.Background
	if o.Target > 0 {
		c.Due = ticks(until) + arbiter.Instant(o.Target)
	}
	if o.Due > 0 {
		c.Due = min(c.Due, arbiter.Instant(o.Due))
		c.Target = cmp.Or(c.Target, d.core(i).Scheduler().Config().ITLTarget)
	}
}

// release passes the turn on at its end.
func (d *device) release() {
	d.claims[d.holder].Computes = false
	d.holder = -1
	if next := arbiter.Next(ticks(d.freeAt), d.claims); next >= 0 {
		d.engines[next].pushStep(d.freeAt)
		d.holder, d.freeAt = next, never
		d.claims[next].Waits = false
	}
}

func (d *device) core(i int) *core.Core { return d.engines[i].formation.(*uma).c }

// ticks returns a tick on the arbiter's axis.
func ticks(us int64) arbiter.Instant { return arbiter.Instant(instant(us)) }

// takeTurn reports whether the engine computes now; false: another one does, and its step comes when that has ended.
func (e *Engine) takeTurn(now int64) bool { return e.device == nil || e.device.begin(e.place, now) }

// endTurn passes the engine's turn on at until.
func (e *Engine) endTurn(now, until int64) {
	if d := e.device; d != nil && d.holder == e.place {
		d.end(e.place, now, until)
	}
}
