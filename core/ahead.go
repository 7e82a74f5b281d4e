package core

import (
	"time"

	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/runtime"
)

// While a request is queued its stored cells are read ahead: the restore begins, and its parts are copied into the pool
// only when the request starts, so that a queue takes no cells from running requests.

const (
	// maxAhead bounds the restores that read ahead: each holds the parts that its source reads at a time.
	maxAhead = 2
	// aheadQueue is the number of requests, the oldest of the queue, whose cells are read ahead.
	aheadQueue = 4
	// maxLooks is the limit on look-ups in the stores for one queued request.
	maxLooks = 4
)

// lookup returns the prompt by which r is looked up in the prefix tree, and the longest match of it in the pool.
func (c *Core) lookup(r *Request) (kvsnap.Prompt, kvsnap.Match) {
	p := r.prompt()
	p.Seals, p.NoWait, p.Apart = r.Seals, r.joined, r.Kind == Embed
	if r.PromptRows { // cells that exist have no rows: look up a prompt that shares none
		p.Tokens, p.Shareable, p.NoWait = r.Tokens[:1], 0, true
	}
	return p, c.tree.Lookup(&p)
}

// residency returns the number of leading tokens of r's prompt that need not be computed, and the predicted time to
// restore those that only a store has. A fabric is not asked here, and a store that was never measured has no
// prediction: their cells count as cells to compute.
func (c *Core) residency(r *Request) (n int, took time.Duration) {
	if len(r.Tokens) == 0 && c.cfg.Tokens != nil {
		c.cfg.Tokens(r)
	}
	if len(r.Tokens) < 2 || r.Kind == Embed || r.PromptRows || c.cfg.NoPrefixCache {
		return 0, 0 // without a prefix cache what the pool has goes with the request that has computed it
	}
	_, m := c.lookup(r)
	here := min(m.Len, r.Prompt-1)
	if c.cfg.Stores == nil {
		return here, 0
	}
	n, tier, ok := c.cfg.Stores.Find(r.Space(), r.Tokens[:r.Prompt-1], here+RestoreMin)
	n = runtime.WholeImages(r.Tokens, n)
	if !ok || n < here+RestoreMin || tier == Fabric {
		return here, 0
	}
	took = c.prices.Predict(storeOf(tier), n-here)
	if took == 0 || took > c.sched.ComputeTime(here, n-here) {
		return here, 0
	}
	return n, took
}

// readAhead begins the restores of queued requests.
func (c *Core) readAhead(now Instant) {
	c.lookAhead = false
	for len(c.queued) > 0 && (c.queued[0].started || c.queued[0].ended) {
		c.queued = c.queued[1:]
	}
	reading := 0
	for _, re := range c.restores {
		if re.ahead {
			reading++
		}
	}
	for _, r := range c.queued[:min(len(c.queued), aheadQueue)] {
		if reading >= maxAhead {
			return
		}
		if r.started || r.ended || r.cancelled || r.waiting || r.restoring != nil || r.looks == maxLooks ||
			len(r.Tokens) < 2 {
			continue
		}
		_, m := c.lookup(r)
		if m.Len+m.Ahead+RestoreMin >= len(r.Tokens) {
			continue // the pool has it, so far
		}
		r.looks++
		if newest := c.lastRestore; c.restore(now, r, &m) && c.lastRestore != newest {
			r.restoring.ahead = true
			reading++
			c.note(Note{Kind: ReadAhead, Request: r, Tier: r.restoring.tier, N: len(r.restoring.tokens) - m.Len})
		} else if r.restoring == nil {
			r.asked = false // asked again at its start: the cells may be about to be copied out of the pool
		}
	}
}

// waitFor defers r until the restore of its cells has ended. The time that a restore read ahead is not part of its
// measured time, because no request waited for it.
func (c *Core) waitFor(now Instant, r *Request) {
	re := r.restoring
	if re.ahead { // measured from here: see above
		re.ahead, re.begin = false, now
		if re.first > 0 {
			re.first = now
		}
	}
	r.deferred = true
}
