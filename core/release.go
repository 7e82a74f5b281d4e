package core

import (
	"fmt"
	"slices"

	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/sched"
)

// release takes a sequence back from a request that ended or was preempted.
func (c *Core) release(now Instant, rel *sched.Release) {
	r := c.slots[rel.Seq]
	if r == nil && rel.Final {
		return // it was cancelled before it was given a sequence
	}
	if r == nil || r.ID != rel.Req {
		panic(fmt.Sprintf("core: request %d gives up slot %d, which it does not have", rel.Req, rel.Seq))
	}
	c.slots[rel.Seq] = nil
	c.own -= r.own
	r.own = 0
	c.freeTiers(r, rel)
	if !rel.Final {
		r.had, r.asked, r.joined, r.restored = r.computed, false, false, Device
	}
	switch {
	case rel.Reason == sched.ReasonFailed:
		// What a failed decode left in the cells is not known.
		c.ended(c.tree.Release(r.seq))
		r.seq = NoSeq
	case rel.Final && r.Chat:
		r.lingers = r.computed
		c.lingering = append(c.lingering, r)
		c.step.Histories = append(c.step.Histories, r)
	default:
		c.retain(now, r, r.Tokens[:r.computed])
	}
	r.computed = 0
}

// retain ends r's sequence and keeps what it has of history as a cached prefix.
func (c *Core) retain(now Instant, r *Request, history []Token) {
	e := c.tree.Retain(kvsnap.Instant(now), r.seq, history)
	r.seq = NoSeq
	c.ended(e)
	if e.Entry != 0 && c.cfg.Durable {
		c.copies = append(c.copies, e.Entry)
	}
}

func (c *Core) ended(e kvsnap.Released) {
	c.do(e.Actions)
	c.wake(e.Wake)
}

// A conversation's next turn begins with its history as the chat template renders it then, which is not always what was
// computed: many templates drop past thoughts. So the sequence of a chat that has ended lingers until the caller has
// rendered it (Step.Histories); then exactly the longest common prefix stays cached.

// historyReady ends the lingering of a chat.
func (c *Core) historyReady(now Instant, id ID, tokens []Token) {
	i := slices.IndexFunc(c.lingering, func(r *Request) bool { return r.ID == id })
	if i < 0 {
		return
	}
	r := c.lingering[i]
	c.lingering = slices.Delete(c.lingering, i, i+1)
	if tokens == nil {
		tokens = r.Tokens[:r.lingers]
	}
	c.retain(now, r, tokens)
}

// settleHistories keeps the whole of what lingers: its cells or its sequence id are needed now.
func (c *Core) settleHistories(now Instant) {
	for _, r := range c.lingering {
		c.retain(now, r, r.Tokens[:r.lingers])
	}
	clear(c.lingering)
	c.lingering = c.lingering[:0]
}

// freeTiers counts r's cells out of the ledger by tier: they are cached from now on, or gone.
func (c *Core) freeTiers(r *Request, rel *sched.Release) {
	if rel.Final {
		c.blocks.Free(meridian.Owner(r.ID))
		return
	}
	before := c.blocks.Snapshot().OutputCriticalEvictions
	c.blocks.Evict(meridian.Owner(r.ID), meridian.EvictPreempt)
	n := c.blocks.Snapshot().OutputCriticalEvictions - before
	if n > 0 && (rel.Reason == sched.ReasonPreemptCells || rel.Reason == sched.ReasonPreemptFull) && c.lowerHas(r) {
		c.avoidable += n
	}
}

// lowerHas reports whether cached prefixes, or a request that is not answering, have cells that the answer of r could have
// been spared for. Cached prefixes could only have if they had enough for a step: a cell for each request that runs.
func (c *Core) lowerHas(r *Request) bool {
	running := 0
	for _, o := range c.slots {
		if o != nil && !o.ended {
			running++
		}
	}
	if c.evictable > max(running, c.plan.Tokens) {
		return true
	}
	for _, o := range c.slots {
		if o != nil && o != r && o.own > 0 && o.Class >= r.Class && (o.Generated() == 0 || o.Control.Phase() == meridian.ThinkDecode) {
			return true
		}
	}
	return false
}
