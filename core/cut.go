package core

// Cuts remove tokens from the middle of a running sequence: the oldest part of a full context (Config.ContextShift),
// and finished thoughts when cells run out (DropThoughts). Both change the tokens that the model attends to, so both
// are off by default. Cells that other sequences share are never cut.

// shorten removes tokens from r's history if a rule says so, and returns how many.
func (c *Core) shorten(r *Request) int {
	switch {
	case c.cfg.ContextShift && c.cfg.CanShift && len(r.Tokens) >= c.longest():
		from := max(r.Keep, r.computed-c.tree.Own(r.seq)) // behind the shared cells
		n := (len(r.Tokens) - from) / 2
		if n < 1 || !c.cutTokens(r, from, n) {
			return 0 // the scheduler ends it, because its next token has no cell
		}
		c.note(Note{Kind: Shifted, Request: r, N: n})
		return n
	case c.cfg.ThinkEvict == DropThoughts && r.thinkTo > 0 && c.cfg.CanShift && c.pressed():
		from := max(r.thinkFrom, r.computed-c.tree.Own(r.seq))
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

// longest returns the largest context of one request, in tokens.
func (c *Core) longest() int {
	if n := c.cfg.Longest; n > 0 {
		return min(n, c.cfg.Sched.Cells)
	}
	return c.cfg.Sched.Cells
}

// cutTokens removes n computed tokens of r's history from index from on; false when others share some of the cells.
func (c *Core) cutTokens(r *Request, from, n int) bool {
	if from+n > r.computed {
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
	r.cut += n
	r.thought = offload{} // its stored copy has the old positions
	return true
}
