package queue

import (
	"fmt"
	"iter"

	"github.com/uma-serve/uma-serve/sched/slo"
)

// Check verifies the queue's invariants against all live entries, from scratch.
func (q *Queue) Check(live iter.Seq[*Entry]) error {
	var want [slo.NumClasses]Counts
	pending, running, members := map[*flow]int64{}, map[*flow]int{}, map[*flow]int{}
	dated := 0
	for e := range live {
		c := &want[e.Class]
		c.Members++
		members[e.flow]++
		if e.Running {
			c.Running++
			running[e.flow]++
			pending[e.flow] += int64(e.unpaid)
		}
		if e.Queued {
			c.Queued++
		}
		if !e.Started {
			c.Fresh++
		}
		if e.Deadline != slo.Never {
			dated++
		}
		if e.waits == e.Started || e.unpaid < 0 || e.Queued && e.Running {
			return fmt.Errorf("entry %+v: waits %v, started %v, %d tokens unpaid, queued %v, running %v", e.Lane,
				e.waits, e.Started, e.unpaid, e.Queued, e.Running)
		}
	}
	if dated != q.dated {
		return fmt.Errorf("%d entries have deadlines, counted %d", dated, q.dated)
	}
	for l, f := range q.flowOf {
		if f.Lane != l || f.members != members[f] || f.pending != pending[f] || f.running != running[f] ||
			f.running > 0 && q.busy[l.Class][f.busy] != f {
			return fmt.Errorf("flow %+v: %d members, %d running, %d pending; entries say %d, %d, %d", l, f.members,
				f.running, f.pending, members[f], running[f], pending[f])
		}
	}
	fresh := 0
	for class := range slo.NumClasses {
		got, want := q.counts[class], want[class]
		fresh += got.Fresh
		switch limit := q.cfg.MaxClass[class]; {
		case got.Queued != want.Queued || got.Fresh != want.Fresh || got.Running != want.Running ||
			got.Members != want.Members:
			return fmt.Errorf("class %v counts %+v, entries say %+v", class, got, want)
		case limit > 0 && got.Fresh > limit:
			return fmt.Errorf("class %v queues %d, limit %d", class, got.Fresh, limit)
		}
		if err := q.checkHeap(class); err != nil {
			return err
		}
	}
	if fresh > q.cfg.MaxQueue {
		return fmt.Errorf("%d entries wait, limit %d", fresh, q.cfg.MaxQueue)
	}
	return nil
}

// checkHeap verifies the order of a class's waiting flows and their queues.
func (q *Queue) checkHeap(class slo.Class) error {
	h, n := q.heaps[class], 0
	for i, f := range h {
		if f.pos != i || f.head == nil {
			return fmt.Errorf("flow %+v lies at %d of its heap and says %d", f.Lane, i, f.pos)
		}
		if p := (i - 1) / 2; i > 0 && h.less(f, h[p]) {
			return fmt.Errorf("flow %+v lies below one that goes after it", f.Lane)
		}
		for e, prev := f.head, (*Entry)(nil); e != nil; prev, e = e, e.next {
			n++
			if !e.Queued || e.flow != f || e.prev != prev || e.next == nil && f.tail != e {
				return fmt.Errorf("queue of flow %+v is broken at rank %d", f.Lane, e.Rank)
			}
			if prev != nil && e.Before(prev) {
				return fmt.Errorf("flow %+v: rank %d waits behind %d, which came or is due later", f.Lane, e.Rank,
					prev.Rank)
			}
		}
	}
	if n != q.counts[class].Queued {
		return fmt.Errorf("class %v: %d entries in queues, counted %d", class, n, q.counts[class].Queued)
	}
	return nil
}
