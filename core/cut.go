package core

import "github.com/uma-serve/uma-serve/meridian"

// What is taken out of the middle of a running sequence: the oldest part of a full context (Config.ContextShift), and
// finished thoughts when cells run out (DropThoughts). Both change what the model attends to, so both are off by
// default. Cells that others share are left alone: only what lies behind them is cut.

// shorten takes tokens out of r's history if it is time to, and returns how many.
func (c *Core) shorten(r *Request) int {
	switch {
	case c.cfg.ContextShift && c.cfg.CanShift && len(r.Tokens) >= c.cfg.Sched.Cells:
		from := max(r.Keep, r.computed-r.own) // behind what is shared
		n := (len(r.Tokens) - from) / 2
		if n < 1 || !c.cutTokens(r, from, n) {
			return 0 // the scheduler ends it: there is no cell left for its next token
		}
		c.note(Note{Kind: Shifted, Request: r, N: n})
		return n
	case c.cfg.ThinkEvict == DropThoughts && r.thinkTo > 0 && c.cfg.CanShift && c.pressed():
		from := max(r.thinkFrom, r.computed-r.own)
		n := min(r.thinkTo, r.computed) - from
		r.thinkTo = 0 // once
		if n < 1 || !c.cutTokens(r, from, n) {
			return 0
		}
		c.note(Note{Kind: ThoughtDropped, Request: r, N: n})
		return n
	}
	return 0
}

// cutTokens removes n computed tokens of r's history from index from on; false when others share some of the cells.
func (c *Core) cutTokens(r *Request, from, n int) bool {
	if from+n > r.computed || n > r.own {
		return false
	}
	removed := append(make([]Token, 0, n), r.Tokens[from:from+n]...)
	length := len(r.Tokens)
	copy(r.Tokens[from:], r.Tokens[from+n:])
	r.Tokens = r.Tokens[:length-n]
	ended, err := c.tree.Cut(r.seq, r.Tokens, from, n)
	if err != nil {
		r.Tokens = r.Tokens[:length]
		copy(r.Tokens[from+n:], r.Tokens[from:length-n])
		copy(r.Tokens[from:], removed)
		return false
	}
	c.ended(ended)
	r.computed -= n
	r.own -= n
	c.own -= n
	r.cut += n
	r.Chat = false // what is left is no conversation whose next turn could begin with it
	tiers := [...]meridian.Tier{meridian.ThinkComplete, meridian.Prefix, meridian.OutputCritical, meridian.ThinkActive}
	left := n
	for _, t := range tiers {
		if k := min(left, c.blocks.CellsOf(meridian.Owner(r.ID), t)); k > 0 && c.blocks.OnCells(meridian.Owner(r.ID), t, -k) {
			left -= k
		}
	}
	return true
}
