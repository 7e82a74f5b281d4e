package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot/format"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot/index"
)

// fetch reads the parts of a stored prefix, which core then copies in.
type fetch struct {
	id    core.RestoreID
	chain []*index.Node
	from  []int   // tier of each part
	ready []int64 // when each part is read, on the engine's clock
	over  int64   // when it is known that there is no further part
	next  int     // of chain
	told  bool    // core knows of the next
}

// fetch begins to read a prefix. Parts that are not in host memory are read or pulled one after the other while steps
// run.
func (t *stores) fetch(op *core.Op, now int64) {
	f := &fetch{id: op.Restore}
	t.fetches = append(t.fetches, f)
	n, _ := t.index.Lookup(format.Namespace(op.NS), op.Tokens, false)
	for p := n; p != nil; p = p.Parent {
		f.chain = append(f.chain, p)
	}
	slices.Reverse(f.chain)
	for i, p := range f.chain {
		if t.tierOf(p) == tierNone {
			f.chain = f.chain[:i]
			break
		}
		of(p).refs++
	}
	t.host.Hit(n, hostElem)
	if t.disk != nil {
		t.disk.Hit(n, diskElem)
	}
	at := float64(now)
	for i, p := range f.chain {
		tier := t.tierOf(p)
		if t.fault[tier] == Failing {
			f.cut(i)
			break
		}
		if tier != tierHost {
			took := float64(t.us[tier] * float64(p.P1-p.P0))
			if t.fault[tier] == Hanging {
				took *= hangs
			}
			limit := float64(micros(op.Patience) * float64(p.P1-p.P0))
			if tier == tierFabric && op.Patience > 0 && took > limit { // core does not wait longer
				at += limit
				f.cut(i)
				break
			}
			at += took
		}
		f.from, f.ready = append(f.from, tier), append(f.ready, int64(at))
	}
	f.over = int64(at)
}

// cut leaves out the parts from i on.
func (f *fetch) cut(i int) {
	for _, late := range f.chain[i:] {
		of(late).refs--
	}
	f.chain = f.chain[:i]
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func (t *stores) find(id core.RestoreID) *fetch {
	for _, f := range t.fetches {
		if f.id == id {
			return f
		}
	}
	panic(fmt.Sprintf("sim: restore %d was never begun", id))
}

// arrive tells core of the parts that are ready.
func (t *stores) arrive(c *core.Core, now int64) {
	if t == nil {
		return
	}
	t.now = now
	t.thoughts.arrive(func(id core.ID) {
		c.Handle(instant(now), core.Input{Kind: core.Offloaded, Req: id, Tier: t.thoughtTier()})
	}, now)
	for _, f := range t.fetches {
		switch {
		case f.told:
		case f.next == len(f.chain) && f.over <= now:
			f.told = true
			c.Handle(instant(now), core.Input{Kind: core.PartsEnd, Restore: f.id})
		case f.next < len(f.chain) && f.ready[f.next] <= now:
			f.told = true
			c.Handle(instant(now), core.Input{Kind: core.Part, Restore: f.id, P0: f.chain[f.next].P0,
				P1: f.chain[f.next].P1})
		}
	}
}

// next returns the time at which the next part will be ready, or the copy of a thought complete; false when none is
// awaited.
func (t *stores) next() (at int64, ok bool) {
	if t == nil {
		return 0, false
	}
	at, ok = t.thoughts.next()
	for _, f := range t.fetches {
		if f.told {
			continue
		}
		ready := f.over
		if f.next < len(f.chain) {
			ready = f.ready[f.next]
		}
		if !ok || ready < at {
			at, ok = ready, true
		}
	}
	return at, ok
}

func (t *stores) skip(op *core.Op) {
	f := t.find(op.Restore)
	f.next++
	f.told = false
}

// copyIn copies the parts that are ready.
func (t *stores) copyIn(op *core.Op, now int64) core.Copied {
	f := t.find(op.Restore)
	d := core.Copied{Restore: f.id, To: op.From, State: core.PartsOver}
	for f.next < len(f.chain) {
		p := f.chain[f.next]
		switch {
		case f.ready[f.next] > now:
			f.told, d.State = false, core.PartAwaited
			return d
		case p.P0 != d.To || p.P1 > op.To:
			d.State, d.P0, d.P1 = core.PartAtHand, p.P0, p.P1
			return d
		}
		t.spend(p.P1 - p.P0)
		t.restored[f.from[f.next]] += int64(min(p.P1, op.Limit) - p.P0)
		if !of(p).thought {
			t.putHost(p)
		}
		d.To = p.P1
		f.next++
	}
	return d
}

func (t *stores) close(op *core.Op) {
	for i, f := range t.fetches {
		if f.id == op.Restore {
			for _, p := range f.chain {
				of(p).refs--
			}
			t.fetches = slices.Delete(t.fetches, i, i+1)
			return
		}
	}
}
