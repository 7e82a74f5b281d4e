package core

import (
	"time"

	"github.com/uma-serve/uma-serve/kvsnap"
)

// lookup is what the pool has of r's history.
func (c *Core) lookup(r *Request) (kvsnap.Prompt, kvsnap.Match) {
	p := kvsnap.Prompt{Req: uint64(r.ID), NS: r.Owner, Tokens: r.Tokens, Shareable: r.Shareable, NoWait: r.joined,
		Apart: r.Kind == Embed}
	if r.PromptRows { // cells that exist have no rows: look up a prompt that shares none
		p.Tokens, p.Shareable, p.NoWait = r.Tokens[:1], 0, true
	}
	return p, c.tree.Lookup(&p)
}

// residency returns how many leading tokens of r's prompt need not be computed, and how long restoring those of them
// takes that only a store has. What a fabric has is not known, nor how long an unmeasured store takes: these count as
// computed.
func (c *Core) residency(r *Request) (n int, took time.Duration) {
	if len(r.Tokens) == 0 && c.cfg.Tokens != nil {
		c.cfg.Tokens(r)
	}
	if len(r.Tokens) < 2 || r.Kind == Embed || r.PromptRows || c.cfg.NoPrefixCache {
		return 0, 0 // without a prefix cache what the pool has goes with the request that has computed it
	}
	_, m := c.lookup(r)
	here := min(m.Len, r.Prompt-1)
	if c.cfg.Stores == nil || !c.cfg.CanRemoveRange {
		return here, 0
	}
	n, tier, ok := c.cfg.Stores.Find(r.Owner, r.Tokens[:r.Prompt-1], here+RestoreMin)
	if !ok || tier == Fabric {
		return here, 0
	}
	took = c.prices.Predict(storeOf(tier), n-here)
	if took == 0 || took > c.sched.ComputeTime(here, n-here) {
		return here, 0
	}
	return n, took
}
