package core

import (
	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/meridian/blocks"
	"github.com/uma-serve/uma-serve/sched"
)

// With OffloadThoughts a finished thought is copied out in one batch when it ends (OffloadBlock), exactly its span.
// Its cells stay in the pool while its request runs, because every token of the answer attends to them. When the
// request is preempted they are the first of its cells to go, and the answer behind them stays. Before the request
// runs again they are copied back in their place.

const (
	// maxIngests is the limit on waits of a preempted request for its thought. Then the cells from the thought on are
	// computed again.
	maxIngests = 4
	// minThought is the shortest thought, in tokens, that is worth a batch.
	minThought = 16
	// maxIngestWait is the limit, in steps, on the wait of a thought for room. Then its request queues again, before
	// new ones.
	maxIngestWait = 64
)

// thoughtEnded records the span of the thought that r has just finished, and plans to copy it out.
func (c *Core) thoughtEnded(r *Request) {
	if r.cut > 0 {
		return // a cut moved its cells: its positions no longer match its tokens
	}
	from, to := c.tree.Thought(r.seq)
	r.thought = offload{from: from, to: to, sent: from}
	if c.cfg.ThinkEvict == OffloadThoughts && c.cfg.Stores != nil && !c.cfg.Seals && to-from >= minThought {
		c.thoughts = append(c.thoughts, r)
	}
}

// offload is a request's finished thought, positions [from, to), with the state of its copy outside the pool.
type offload struct {
	from, to int
	sent     int  // copied out up to here; positions from to on are of the answer, where that was evicted
	stored   bool // tier has all of it
	until    int  // tier has the positions [from, until); 0 = none
	tier     Tier
	ingests  int // how often it was copied back since the request was preempted
}

// copyThoughts copies out the oldest thought in c.thoughts, or as much of it as there is time for. It drops a thought
// whose positions moved by a cut, or whose end was evicted meanwhile and must be computed again.
func (c *Core) copyThoughts() {
	r := c.thoughts[0]
	o := &r.thought
	seq := r.seq
	if seq == NoSeq {
		seq = c.tree.Parked(uint64(r.ID))
	}
	if seq == NoSeq || r.ended || r.cut > 0 || c.tree.Whole(seq) < o.to {
		c.thoughts = c.thoughts[1:]
		return
	}
	for first := true; o.sent < o.to && (first || c.left > 0); first = false {
		p1 := min(o.sent+c.cfg.PartTokens, o.to)
		c.op(Op{
			Kind: OffloadBlock, Req: r.ID, Src: seq, NS: r.Space(), Tokens: r.Tokens[:p1], First: o.from, From: o.sent,
			To:   p1,
			Last: p1 == o.to, Use: blocks.ThinkComplete,
		})
		c.left -= c.cost(p1 - o.sent)
		o.sent = p1
	}
	if o.sent == o.to {
		c.thoughts = c.thoughts[1:]
	}
}

// offloadTail copies out the cells of the answer behind an offloaded thought when a preempted request loses them, as
// far as the time before the next decode allows. The stores of prefixes cannot take them, because a part there needs
// all parts before it. It does so once; cells of the answer that are evicted later are computed again.
func (c *Core) offloadTail(v *kvsnap.Victim) {
	r := c.requests[ID(v.Req)]
	if r == nil || !r.thought.stored || r.thought.sent > r.thought.to || r.cut > 0 {
		return
	}
	o := &r.thought
	for limit := c.left + copyTime; o.sent < v.To && limit > 0; {
		p1 := min(o.sent+c.cfg.PartTokens, v.To)
		took := c.cost(p1 - o.sent)
		limit -= took
		c.left -= took
		c.op(Op{
			Kind: OffloadBlock, Req: r.ID, Src: v.Seq, NS: r.Space(), Tokens: v.Tokens[:p1], First: o.to, From: o.sent,
			To:   p1,
			Last: p1 == v.To || limit <= 0, Use: blocks.OutputCritical,
		})
		o.sent = p1
	}
}

// boundary returns the position at which the stored part with position pos begins, or would begin behind the last part.
func (o *offload) boundary(pos, part int) int {
	if pos >= o.to {
		return o.to + (pos-o.to)/part*part
	}
	return o.from + (pos-o.from)/part*part
}

// offloaded records that a tier has stored the parts of r's thought that were sent so far.
func (c *Core) offloaded(r *Request, tier Tier) {
	if o := &r.thought; o.to > 0 && o.sent >= o.to && r.cut == 0 {
		o.stored, o.until, o.tier = true, o.sent, tier
		c.offloadable(r)
	}
}

// offloadable tells the tree that the thought of a preempted request can be evicted alone.
func (c *Core) offloadable(r *Request) {
	if r.thought.stored {
		c.tree.Offloadable(uint64(r.ID), r.thought.from, r.thought.to)
	}
}

// ingest begins to copy back the offloaded thought of r, and reports whether r waits for it.
func (c *Core) ingest(now Instant, r *Request) bool {
	from, to, away := c.tree.Away(uint64(r.ID))
	if !away || r.thought.ingests >= maxIngests {
		return false
	}
	r.thought.ingests++
	c.lastRestore++
	re := &restore{
		id: c.lastRestore, ns: r.Space(), tokens: r.Tokens[:to:to], seq: NoSeq, tier: r.thought.tier, begin: now,
		waiting: []*Request{r}, thought: r, done: from, have: from,
	}
	r.restoring = re
	c.restores = append(c.restores, re)
	c.op(Op{Kind: Fetch, Restore: re.id, Req: r.ID, NS: re.ns, Tokens: re.tokens, From: from, First: to, Tier: re.tier,
		Patience: c.patience(from, to)})
	return true
}

// ingestParts copies the ready parts of a thought into the scratch sequence of thoughts, one thought at a time. It
// reports whether the restore has ended.
func (c *Core) ingestParts(now Instant, re *restore) (ended bool) {
	n := len(re.tokens) - re.have
	if c.ingesting == nil {
		req := uint64(re.thought.ID)
		if from, to, away := c.tree.Away(req); !away || from != re.have || to != len(re.tokens) {
			c.endRestore(now, re) // evicted or dropped meanwhile
			return true
		}
		c.tree.SetIngesting(req, true) // else the eviction that makes room could take the answer behind the thought
		if c.ledger.Room() < n+c.running() {
			c.tree.SetIngesting(req, false)
			if re.waited++; len(c.plan.Batch) > 0 && re.waited < maxIngestWait {
				return false // running requests will end or be preempted
			}
			c.endRestore(now, re)
			return true
		}
		c.makeRoom(now, n)
		c.ledger.Reserve(n)
		c.ingesting = re
	}
	if c.ingesting != re {
		return false
	}
	if re.p0 != re.done || re.p1 > len(re.tokens) {
		c.endRestore(now, re) // not the positions that were asked for
		return true
	}
	to := re.p1
	for to < len(re.tokens) && c.cost(min(to+c.cfg.PartTokens, len(re.tokens))-re.done) <= c.left {
		to = min(to+c.cfg.PartTokens, len(re.tokens))
	}
	re.state = copying
	c.left -= c.cost(to - re.done)
	c.op(Op{
		Kind: CopyIn, Restore: re.id, Req: re.thought.ID, Src: c.tree.Parked(uint64(re.thought.ID)), Dst: c.ingestSeq(),
		First: re.have, From: re.done, To: to, Limit: len(re.tokens), Tokens: re.tokens,
	})
	return false
}

// ingestSeq returns the scratch sequence for thoughts that are copied back.
func (c *Core) ingestSeq() Seq { return c.tree.ScratchSeq(scratchSequences - 1) }

// running returns the number of requests that have a sequence and have not ended.
func (c *Core) running() (n int) {
	for _, r := range c.slots {
		if r != nil && !r.ended {
			n++
		}
	}
	return n
}

// ingested ends the restore of a thought. A complete one is in the pool again; an incomplete one is removed and stays
// offloaded.
func (c *Core) ingested(now Instant, re *restore) {
	r := re.thought
	if c.ingesting == re {
		n := len(re.tokens) - re.have
		c.ingesting = nil
		c.ledger.Reserve(-n)
		if re.done == len(re.tokens) {
			if actions, ok := c.tree.Ingest(uint64(r.ID), c.ingestSeq()); ok {
				c.do(actions)
				c.note(Note{Kind: Ingested, Request: r, Tier: re.tier, N: n, Took: now.Sub(re.begin)})
				c.restoreTook(now, re)
			}
		}
		c.op(Op{Kind: SeqRemove, Dst: c.ingestSeq(), To: -1})
		c.tree.SetIngesting(uint64(r.ID), false)
	}
	for _, r := range re.waiting {
		r.restoring, r.deferred = nil, false
		c.events.Ready(sched.EvReady{Req: r.ID})
	}
	re.waiting = nil
}
