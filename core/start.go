package core

import (
	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/meridian/blocks"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sched/reason"
)

// start answers a Plan.Start: it shares what is resident, restores what is stored, or waits for the request that
// computes it.
func (c *Core) start(now Instant, st sched.Start) {
	r := c.requests[st.Req]
	if r == nil || r.cancelled {
		c.events.Cancel(sched.EvCancel{Req: st.Req})
		return
	}
	if len(r.Tokens) == 0 && c.cfg.Tokens != nil {
		c.cfg.Tokens(r)
	}
	if r.Resident > 0 && !r.started {
		c.preload(now, r)
	}
	p, m := c.lookup(r)
	if r.restoring != nil || c.restore(now, r, &m) {
		c.waitFor(now, r)
		c.events.Defer(sched.EvDefer{Req: r.ID, Reason: reason.Restoring})
		return
	}
	if m.Ahead > 0 && r.Class == sched.Interactive {
		// A background request that computes the prompt may wait behind every interactive one.
		if o := c.requests[ID(m.AheadReq)]; o == nil || o.Class != sched.Interactive {
			p.NoWait = true
		}
	}
	got, err := c.tree.AcquireMatch(kvsnap.Instant(now), &p, &m)
	if err != nil {
		// Running requests and lingering chats have all ids: the chats give theirs up.
		c.settleHistories(now)
		got, err = c.tree.Acquire(kvsnap.Instant(now), &p)
	}
	if err != nil {
		panic("core: " + err.Error() + ": fewer ids were reserved than requests may run")
	}
	if got.Waiting {
		// r waits once per start: the other request may be preempted, and two must not wait for each other.
		r.joined, r.waiting = true, true
		c.events.Defer(sched.EvDefer{Req: r.ID, Reason: reason.Joining})
		return
	}
	c.offload(got.Evicted)
	c.do(got.Actions)
	r.seq, r.computed = got.Seq, got.Cached
	c.slots[st.Seq] = r
	c.noteStart(r, &got)
	c.events.Started(sched.EvStarted{Req: r.ID, Cached: got.Cached, Shared: got.Shared, Stops: got.Stops})
}

func (c *Core) noteStart(r *Request, got *kvsnap.Acquired) {
	if r.had > 0 {
		kind := Recomputed
		if got.Cached >= r.had/2 {
			kind = Parked
		}
		c.note(Note{Kind: kind, Request: r, N: r.had})
		r.had = 0
	}
	n := Note{Kind: Started, Request: r, First: !r.started, N: got.Cached, Match: got.Match, Tier: Device}
	if got.Cached > 0 {
		n.Tier, n.Took = r.restored, r.restoredIn
	}
	r.restoredIn = 0
	if !r.started {
		r.started, c.lookAhead = true, c.lookAhead || len(c.queued) > 0
	}
	c.note(n)
}

// preload makes r.Resident tokens a cached prefix, as far as the pool has room: the recorded daemon restored them, or a
// request before the recording computed them.
func (c *Core) preload(now Instant, r *Request) {
	n := min(r.Resident, r.Prompt-1)
	p := r.prompt()
	p.Req, p.Shareable = 0, 0
	m := c.tree.Lookup(&p)
	if cells := c.ledger.Cells(); m.Len+m.Ahead >= n || cells.Free+cells.Cached < n-m.Len {
		return
	}
	p.Tokens = r.Tokens[:n+1]
	got, err := c.tree.Acquire(kvsnap.Instant(now), &p)
	if err != nil {
		return // no sequence id is left
	}
	c.offload(got.Evicted)
	c.do(got.Actions)
	c.makeRoom(now, n-got.Cached)
	c.op(Op{Kind: Compute, Dst: got.Seq, From: got.Cached, To: n, Tokens: p.Tokens})
	c.wake(c.tree.Progress(got.Seq, p.Tokens, n, blocks.Prefix))
	c.ended(c.tree.Retain(kvsnap.Instant(now), got.Seq, p.Tokens[:n]))
}

// wake starts the requests that waited for another one's prompt.
func (c *Core) wake(ids []uint64) {
	for _, id := range ids {
		r := c.requests[ID(id)]
		if r == nil || !r.waiting {
			continue
		}
		r.waiting = false
		ready := sched.EvReady{Req: r.ID}
		// Cells of a cached prefix count as free until r shares them, so the hint has only those of a running request.
		p := r.prompt()
		if m := c.tree.Lookup(&p); m.Running {
			ready.Shared = m.Len
		}
		c.events.Ready(ready)
	}
}

// TierOf returns the tier of the cells that r computes now.
func (c *Core) TierOf(r *Request) blocks.Tier {
	tier, _ := r.span(r.computed)
	return tier
}

// span returns the tier of the cell at position pos of r's history, and the end of the span of that tier.
func (r *Request) span(pos int) (tier blocks.Tier, end int) {
	const open = 1 << 62
	t := &r.thought
	switch {
	case pos < r.Prompt:
		return blocks.Prefix, r.Prompt
	case r.Control.Phase() == meridian.ThinkDecode:
		return blocks.ThinkActive, open
	case pos < t.from:
		return blocks.OutputCritical, t.from
	case pos < t.to:
		return blocks.ThinkComplete, t.to
	}
	return blocks.OutputCritical, open
}
