package core

import (
	"time"

	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/meridian/blocks"
)

// Time budgets for copying cells before a decode, in both directions: copies delay the next token while answers run,
// and the handling of inputs while none does. Evictions may exceed it by copyTime.
const (
	copyTime     = 2 * time.Millisecond
	copyIdleTime = 5 * time.Millisecond
	evictShare   = 4 // of computing evicted cells, see evictTime
)

// move plans the copies of the next Step: thoughts to copy out, restores, and, when nothing runs, prefixes that are to
// outlive the process.
func (c *Core) move(now Instant) {
	c.left = copyIdleTime
	if c.sched.Stats().Decoding > 0 {
		c.left = copyTime
	}
	if len(c.thoughts) > 0 {
		c.copyThoughts()
	}
	if len(c.restores) > 0 {
		c.copyRestores(now)
	}
	if c.mayCopyCached() {
		c.copyCached()
	}
}

// mayCopyCached reports whether there is time for copies of cached prefixes: the newest plan had nothing to compute,
// and no restore has a ready part.
func (c *Core) mayCopyCached() bool {
	return len(c.copies) > 0 && len(c.plan.Batch) == 0 && c.events.Len() == 0 && !c.restoring()
}

// restoring reports whether a restore has a ready part.
func (c *Core) restoring() bool {
	for _, re := range c.restores {
		if re.state != awaited && !re.ahead {
			return true
		}
	}
	return false
}

// moving reports whether move has more to do at once.
func (c *Core) moving() bool { return len(c.thoughts) > 0 || c.restoring() || c.mayCopyCached() }

// copyCached copies a part of the oldest cached prefix in c.copies.
func (c *Core) copyCached() {
	entry := c.copies[0]
	more := false
	if e, ok := c.tree.Entry(entry); ok {
		if tokens, err := c.tree.Tokens(entry); err == nil {
			more = c.copyOut(e.NS, tokens, e.Seq, e.Whole, blocks.Prefix, c.left)
		}
	}
	if more {
		return
	}
	if c.copies = c.copies[1:]; len(c.copies) == 0 {
		c.op(Op{Kind: Flush})
	}
}

// offload copies the cells that cached prefixes lose, from the head on, as far as evictTime allows. The rest will be
// computed again.
//
// A seal is stored as a whole, also where others still hold its cells: without its state they are of no use to a prompt
// that ends there. One to which no request has returned is not worth that.
func (c *Core) offload(victims []kvsnap.Victim) {
	for i := range victims {
		v := &victims[i]
		switch {
		case c.cfg.Seals:
			if v.From == 0 && (v.Offload || v.Req != 0) && c.worthCopying(v) {
				c.copyOut(v.NS, v.Tokens, v.Seq, v.Whole, v.Tier, c.evictTime(v))
			}
		case v.Freed == 0:
		case v.Whole < v.To:
			c.offloadTail(v)
		default:
			if c.worthCopying(v) {
				c.copyOut(v.NS, v.Tokens, v.Seq, v.Whole, v.Tier, c.evictTime(v))
			}
		}
	}
}

// evictTime returns the time that may go to copying what v loses. An eviction must not delay the running answers. While
// no answer runs it may take a quarter of the time of computing the lost cells: a prefix loses its end first and is
// copied from its head on, so that with less time the parts that it loses in one step after the other are lost before
// the copies reach them.
func (c *Core) evictTime(v *kvsnap.Victim) time.Duration {
	limit := c.left + copyTime
	if c.sched.Stats().Decoding == 0 {
		limit = max(limit, c.sched.ComputeTime(v.From, v.To-v.From)/evictShare)
	}
	return limit
}

// copyOut copies those parts of the first n positions of seq that the stores lack, as many as limit allows, at least
// one, and reports whether some are left. gone is the tier of cells that the tree has taken from seq already.
func (c *Core) copyOut(ns uint64, tokens []Token, seq Seq, n int, gone blocks.Tier, limit time.Duration) (more bool) {
	if c.cfg.Stores == nil || limit <= 0 {
		return false
	}
	p0, part := c.cfg.Stores.Missing(ns, tokens[:n]), c.cfg.PartTokens
	if c.cfg.Seals && p0 < n {
		p0, part = 0, n
	}
	for follows := false; p0 < n && limit > 0; follows = true {
		p1 := min(p0/part*part+part, n)
		use := c.tree.TierAt(seq, p1-1, gone)
		c.op(Op{Kind: CopyOut, Src: seq, NS: ns, Tokens: tokens[:p1], From: p0, To: p1, Follows: follows, Use: use})
		took := c.cost(p1 - p0)
		limit -= took
		c.left -= took
		p0 = p1
	}
	return p0 < n
}

// CopyAll plans the copies of a whole cached prefix, or of all of them (entry 0): at a client's request, and at
// shutdown. The Ops are valid until the next call.
func (c *Core) CopyAll(entry uint64) []Op {
	at := len(c.step.Ops)
	for _, e := range c.tree.Entries(nil) {
		if e.Running || entry != 0 && e.ID != entry {
			continue
		}
		if tokens, err := c.tree.Tokens(e.ID); err == nil {
			c.copyOut(e.NS, tokens, e.Seq, e.Whole, blocks.Prefix, time.Hour)
		}
	}
	c.cfg.Trace.numbers("copy_all", int64(entry))
	ops := c.step.Ops[at:]
	c.step.Ops = c.step.Ops[:at]
	return ops
}

// copied takes the results of a Step's copies, and learns their cost.
func (c *Core) copied(now Instant, res *Result) {
	for i := range res.Copies {
		c.restoreCopied(now, &res.Copies[i])
	}
	if res.CopyFailed {
		// There is no room, or the part before it is missing: later parts would fail too.
		c.copies, c.thoughts = c.copies[min(1, len(c.copies)):], c.thoughts[min(1, len(c.thoughts)):]
	}
	if res.CopyTokens > 0 {
		const weight = 0.2
		c.copyCost += weight * (float64(res.CopyTook)/float64(res.CopyTokens) - c.copyCost)
	}
}
