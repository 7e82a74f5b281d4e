package sim

import (
	"fmt"
	"slices"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot/index"
	"github.com/uma-serve/uma-serve/runtime"
)

// Fault is a fault of a tier below the pool.
type Fault uint8

const (
	Healthy Fault = iota
	Failing       // reads and writes fail at once
	Hanging       // reads take hangs times as long
)

// hangs is the factor by which a tier that hangs is slower.
const hangs = 1000

// Fail sets the fault of a tier of TierNames from now on (batch formation uma).
func (e *Engine) Fail(tier int, f Fault) error {
	u, ok := e.formation.(*uma)
	if !ok || u.stores == nil || tier < tierDisk || tier > tierFabric {
		return fmt.Errorf("sim: the server has no tier %d that could fail", tier)
	}
	u.stores.fault[tier] = f
	return nil
}

// EmptyFabric forgets what the fabric has, as a restart of its store does.
func (e *Engine) EmptyFabric() {
	if u, ok := e.formation.(*uma); ok && u.stores != nil && u.stores.fabric {
		t := u.stores
		t.thoughts = thoughts{sent: t.thoughts.sent}
		t.index.Each(func(n *index.Node) { of(n).onFabric = 0 })
		t.forget()
	}
}

// forget removes the parts that are in no tier. One that is being read stays.
func (t *stores) forget() {
	var gone []*index.Node
	t.index.Each(func(n *index.Node) {
		if !n.Host.In() && !n.Disk.In() && of(n).onFabric == 0 && of(n).refs == 0 {
			gone = append(gone, n)
		}
	})
	slices.SortFunc(gone, func(a, b *index.Node) int { return slices.Compare(a.Key[:], b.Key[:]) })
	for _, n := range gone {
		t.index.Remove(n)
	}
}

// Stop lets the machine stand still until a time: no step begins before it. Arrivals and clients continue.
func (e *Engine) Stop(until int64) { e.stopped = max(e.stopped, until) }

// Unload ends the server's process and starts it again with the next request: what it has computed is copied to disk
// and fabric, its pool and host memory are lost, and its cost model stays. The next step begins loadUs microseconds
// after that request. False: it is not idle (Books.Quiet), or has no batch formation uma.
func (e *Engine) Unload(now, loadUs int64) bool {
	u, ok := e.formation.(*uma)
	if !ok || len(u.byID) > 0 || u.c.Live() > 0 || !u.c.Quiet() || u.c.Pending() {
		return false
	}
	u.step = u.c.Shutdown(instant(now))
	u.carryOut(e, now)
	if u.stores != nil {
		for _, op := range u.c.CopyAll(0) {
			u.stores.carry(&op, now, &u.result)
		}
		u.stores.passed()
		for _, n := range u.stores.host.Nodes() {
			u.stores.host.Remove(&n.Host)
		}
		u.stores.forget()
		u.stores.thoughts = thoughts{}
	}
	if u.eng != nil {
		for s := range u.eng.Capabilities().MaxSequences {
			u.eng.SeqRemove(runtime.Seq(s), 0, -1)
		}
	}
	u.cfg.Sched.Cost = u.c.Scheduler().Cost()
	c, err := core.New(u.cfg)
	if err != nil {
		panic("sim: a configuration that was good is not: " + err.Error())
	}
	u.c, u.ended, u.result = c, nil, core.Result{}
	u.cpu = newProcessors(&e.cfg, c)
	if d := e.device; d != nil {
		d.limits[e.place] = 0 // the new core has been told of none
	}
	e.unloaded = loadUs
	return true
}
