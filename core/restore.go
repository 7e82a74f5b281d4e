package core

import (
	"slices"
	"time"

	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/meridian/blocks"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sched"
)

const (
	// RestoreMin is the number of tokens that a store must have beyond those in the pool for a restore.
	RestoreMin = 32
	// maxRestores bounds the restores of prefixes at one time; each needs a sequence id.
	maxRestores = 8
)

// restoreState is the state of a restore.
type restoreState uint8

const (
	awaited restoreState = iota // its next part is being read
	atHand                      // [p0, p1) can be copied in
	copying                     // a CopyIn of it is in the current Step
)

// restore copies a stored prefix into the pool as a cached prefix, which the waiting requests then share.
type restore struct {
	id      RestoreID
	waiting []*Request // empty once all of them have ended
	ns      uint64
	tokens  []Token // to restore, from position 0
	state   restoreState
	over    bool // the source has no further part
	p0, p1  int  // the ready part
	want    int  // cells reserved for the CopyIn
	seq     Seq  // NoSeq before the first part that is not in the pool
	done    int  // positions in seq
	have    int  // of them: shared from the pool
	tier    Tier
	begin   Instant
	first   Instant // when its first part was ready; 0 = none was

	thought *Request // whose offloaded thought [have, len(tokens)) this is; nil: a prefix
	waited  int      // steps in which there was no room for a thought

	ahead bool // all that wait for it are queued: nothing is copied into the pool yet
}

func (re *restore) leave(r *Request) {
	re.waiting = slices.DeleteFunc(re.waiting, func(o *Request) bool { return o == r })
	r.restoring = nil
}

// restore begins to restore what the stores have of r's history beyond match m in the pool, and reports whether r
// waits for it.
func (c *Core) restore(now Instant, r *Request, m *kvsnap.Match) bool {
	if c.cfg.Stores == nil || r.Kind == Embed {
		return false
	}
	if c.ingest(now, r) {
		return true
	}
	if r.asked {
		return false
	}
	r.asked = true // once per start: restored cells may be evicted before r starts, and it must not wait for ever
	want := r.Tokens[:len(r.Tokens)-1]
	// Tokens that a running request is about to compute need no restore.
	here := m.Len + m.Ahead
	for _, re := range c.restores { // join a restore of the same cells
		n := runtime.WholeImages(r.Tokens, kvsnap.CommonPrefix(re.tokens, want))
		if re.ns == r.Space() && re.thought == nil && n >= max(here, m.Len+RestoreMin) {
			re.waiting = append(re.waiting, r)
			r.restoring = re
			return true
		}
	}
	prefixes := 0
	for _, re := range c.restores {
		if re.thought == nil {
			prefixes++
		}
	}
	if prefixes >= maxRestores {
		return false
	}
	n, tier, ok := c.cfg.Stores.Find(r.Space(), want, here+RestoreMin)
	n = runtime.WholeImages(r.Tokens, n)
	ok = ok && n >= here+RestoreMin
	fetch := Op{Kind: Fetch, From: m.Len}
	// A preempted request's thought, and the answer behind it, are stored apart from prefixes (offload.go): they may
	// reach further.
	if end := min(r.thought.until, len(want)); r.thought.from <= m.Len && end >= here+RestoreMin && (!ok || end > n) {
		n, tier, ok = end, r.thought.tier, true
		fetch.Req, fetch.From, fetch.First = r.ID, r.thought.boundary(m.Len, c.cfg.PartTokens), r.thought.to
	}
	if !ok || !c.worthRestoring(r, tier, m.Len, here, n) {
		return false
	}
	c.lastRestore++
	re := &restore{id: c.lastRestore, ns: r.Space(), tokens: want[:n:n], seq: NoSeq, tier: tier, begin: now,
		waiting: []*Request{r}}
	r.restoring = re
	c.restores = append(c.restores, re)
	fetch.Restore, fetch.NS, fetch.Tokens, fetch.Tier = re.id, re.ns, re.tokens, tier
	fetch.Patience, fetch.Seals = c.patience(m.Len, n), r.Seals
	c.op(fetch)
	return true
}

// partAtHand records that a restore's next part is ready, or that there is none.
func (c *Core) partAtHand(now Instant, in *Input) {
	for _, re := range c.restores {
		if re.id == in.Restore && re.state == awaited {
			re.p0, re.p1, re.over, re.state = in.P0, in.P1, in.Kind == PartsEnd, atHand
			if re.first == 0 && !re.over {
				re.first = now
			}
			if re.over && re.thought != nil {
				re.thought.thought.ingests = maxIngests // the stores have lost it
			}
			return
		}
	}
}

// copyRestores copies ready parts into the pool, first come first served, while c.left lasts.
func (c *Core) copyRestores(now Instant) {
	rest := c.restores[:0]
	for _, re := range c.restores {
		switch {
		case len(re.waiting) == 0, re.state == atHand && re.over:
			c.endRestore(now, re) // what was copied so far stays cached
			continue
		case re.state == atHand && !re.ahead && c.left > 0 && c.copyIn(now, re):
			continue
		}
		rest = append(rest, re)
	}
	clear(c.restores[len(rest):])
	c.restores = rest
}

// copyIn copies the ready part, and as many after it as the time allows. It reports whether re has ended.
func (c *Core) copyIn(now Instant, re *restore) (ended bool) {
	if re.thought != nil {
		return c.ingestParts(now, re)
	}
	if re.seq == NoSeq {
		c.marks = append(append(c.marks[:0], re.tokens...), 0)
		m := c.tree.Lookup(&kvsnap.Prompt{NS: re.ns, Tokens: c.marks, NoWait: true})
		// The pool has the part by now.
		if re.p1 <= m.Len {
			re.state = awaited
			c.op(Op{Kind: SkipPart, Restore: re.id})
			return false
		}
		// A sequence that shares the cells that the pool has before the part.
		got, err := c.tree.Acquire(kvsnap.Instant(now),
			&kvsnap.Prompt{NS: re.ns, Tokens: re.tokens[:min(re.p0+1, len(re.tokens))], NoWait: true})
		if err != nil {
			c.endRestore(now, re) // no sequence id is left
			return true
		}
		c.offload(got.Evicted)
		c.do(got.Actions)
		re.seq, re.done, re.have = got.Seq, got.Cached, got.Cached
	}
	if re.done != re.p0 || re.p1 <= re.done || c.ledger.Room() < re.p1-re.p0 {
		// What the pool had before the part was evicted meanwhile, or running requests need the cells: the restore ends
		// with a shorter prefix.
		c.endRestore(now, re)
		return true
	}
	to := re.p1
	for to < len(re.tokens) && !c.cfg.Seals && c.cost(to+c.cfg.PartTokens-re.p0) <= c.left && c.ledger.Room() >= to+
		c.cfg.PartTokens-re.p0 {
		to += c.cfg.PartTokens
	}
	re.want, re.state = to-re.p0, copying
	c.makeRoom(now, re.want)
	c.ledger.Reserve(re.want)
	c.left -= c.cost(re.want)
	c.op(Op{Kind: CopyIn, Restore: re.id, Dst: re.seq, From: re.p0, To: to, Limit: len(re.tokens), Tokens: re.tokens})
	return false
}

// restoreCopied takes the answer to a CopyIn.
func (c *Core) restoreCopied(now Instant, d *Copied) {
	for i, re := range c.restores {
		if re.id != d.Restore || re.state != copying {
			continue
		}
		if re.thought != nil {
			re.done = max(re.done, min(d.To, len(re.tokens)))
			switch {
			case re.done == len(re.tokens):
				d.State = PartsOver
			// As in partAtHand: the stores have lost the rest, so the request must not wait for it again.
			case d.State == PartsOver:
				re.thought.thought.ingests = maxIngests
			}
		}
		c.ledger.Reserve(-re.want)
		re.want = 0
		if to := min(d.To, len(re.tokens)); to > re.done {
			re.done = to
			c.wake(c.tree.Progress(re.seq, re.tokens, to, blocks.Prefix))
		}
		switch d.State {
		case PartAtHand:
			re.state, re.p0, re.p1 = atHand, d.P0, d.P1
		case PartAwaited:
			re.state = awaited
		default:
			c.endRestore(now, re)
			c.restores = slices.Delete(c.restores, i, i+1)
		}
		return
	}
}

// endRestore makes the restored cells a cached prefix and starts the waiting requests. The caller removes re from
// c.restores.
func (c *Core) endRestore(now Instant, re *restore) {
	c.op(Op{Kind: CloseFetch, Restore: re.id})
	if re.thought != nil {
		c.ingested(now, re)
		return
	}
	if re.state == copying {
		// Its CopyIn is in the same Step: remove what it copies.
		c.ledger.Reserve(-re.want)
		c.op(Op{Kind: SeqRemove, Dst: re.seq, From: re.done, To: -1})
	}
	if re.seq != NoSeq {
		c.ended(c.tree.Retain(kvsnap.Instant(now), re.seq, re.tokens[:re.done]))
		re.seq = NoSeq
		c.restoreTook(now, re)
		if re.done > re.have {
			c.note(Note{Kind: Restored, Tier: re.tier, N: re.done - re.have, Took: now.Sub(re.begin)})
		}
	}
	for _, r := range re.waiting {
		r.restoring = nil
		if re.done > re.have {
			r.restored, r.restoredIn = re.tier, now.Sub(re.begin)
		}
		if !r.deferred {
			r.asked = re.over && re.done == re.have // still queued: it asks again unless the store had nothing
			continue
		}
		r.deferred = false
		c.events.Ready(sched.EvReady{Req: r.ID})
	}
	re.waiting = nil
	c.lookAhead = len(c.queued) > 0
}

// endRestores ends the restores of prefixes, or all of them with thoughts, because requests need the cells. The restore
// of a thought begins again when its request starts.
func (c *Core) endRestores(now Instant, thoughts bool) {
	c.restores = slices.DeleteFunc(c.restores, func(re *restore) bool {
		if ends := re.thought == nil && !re.ahead || thoughts; !ends {
			return false
		}
		c.endRestore(now, re)
		return true
	})
}

// cost returns the expected time of copying n tokens' cells.
func (c *Core) cost(n int) time.Duration { return time.Duration(c.copyCost * float64(n)) }
