package core

import (
	"time"

	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/sched/price"
)

// price.Prices decides whether stored cells are restored or computed again, and whether evicted ones are copied out.
// This file asks it, and feeds it the measured restores.

// storeOf returns the index of a tier outside the pool in price.Prices.
func storeOf(t Tier) int { return int(t - Host) }

// worthRestoring decides whether r waits for the tokens beyond position here of the first n, which a tier has, or
// computes them. The pool has those before position from.
func (c *Core) worthRestoring(r *Request, tier Tier, from, here, n int) bool {
	if !c.cfg.ByPrice {
		return true
	}
	p := c.prices.Restore(storeOf(tier), n-from, c.sched.ComputeTime(here, n-here))
	c.note(Note{Kind: Priced, Request: r, Tier: tier, N: n - here, Price: p})
	return p.Way != price.WayCompute
}

// Weigh compares restoring a prompt of n tokens from a tier with computing it; ok is false while either is unknown.
func (c *Core) Weigh(tier Tier, n int) (p price.Price, ok bool) {
	if !c.cfg.ByPrice {
		return p, false
	}
	p = c.prices.Weigh(storeOf(tier), n, c.sched.ComputeTime(0, n))
	return p, p.Restore > 0 && p.Compute > 0
}

// worthCopying decides whether the cells that an eviction takes are copied to memory.
func (c *Core) worthCopying(v *kvsnap.Victim) bool {
	n := v.To - v.From
	if !c.cfg.ByPrice || c.cfg.Stores == nil || n < 1 {
		return true
	}
	p := c.prices.Copy(storeOf(Host), n, c.cost(n), c.sched.ComputeTime(v.From, n))
	c.note(Note{Kind: Priced, Tier: Host, N: n, Price: p})
	return p.Way != price.WayDiscard
}

// restoreTook learns from a restore that has ended.
func (c *Core) restoreTook(now Instant, re *restore) {
	if n := re.done - re.have; n > 0 && re.first > 0 {
		c.prices.Learn(storeOf(re.tier), n, re.first.Sub(re.begin), now.Sub(re.begin))
	}
}

// patience returns the time that a fetch may take per token: the predicted time to compute the token instead; 0 =
// unknown.
func (c *Core) patience(from, n int) time.Duration {
	if !c.cfg.ByPrice || n <= from {
		return 0
	}
	return c.sched.ComputeTime(from, n-from) / time.Duration(n-from)
}
