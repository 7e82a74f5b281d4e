package meridian

import "github.com/uma-serve/uma-serve/runtime"

// Next returns the token that must come now, whatever the row says. When it returns false, sample a token and pass it
// to Admit.
func (c *Control) Next(now int64) (runtime.Token, bool) {
	c.touched = now
	switch {
	case c.forced.kind != nothing:
		return c.forced.seq[c.forced.pos], true
	case c.phase == ThinkDecode:
		if c.since == noTime {
			c.since = now
		}
		return c.close(now)
	case c.phase == Prefill && c.mode == ModeOn && c.tags.Known():
		c.forced.kind, c.forced.seq, c.forced.pos = opening, c.tags.openSeq, 0
		return c.forced.seq[0], true
	}
	return runtime.NoToken, false
}

// close is Next inside a block.
func (c *Control) close(now int64) (runtime.Token, bool) {
	switch {
	case c.state == closeRequested:
		c.decide(User, closeDue)
	case c.think >= c.search:
		c.decide(HardCap, closeDecided)
	}
	if c.free && c.state == closeDelivered && c.header.section == inText { // it chose to think again
		return c.insist(now), true
	}
	if c.state < closeDecided || c.given.headed && c.header.section != inText { // the grammar writes the header
		return runtime.NoToken, false
	}
	c.date(now)
	if c.think < c.retryAt {
		return runtime.NoToken, false
	}
	// The cap holds even inside a character. Admit prevents that, except where the vocabulary has no single-byte tokens
	// or the loop decoded past the cap.
	capped := c.think >= c.stop
	// No character, tag or header is half written.
	whole := c.text.need == 0 && len(c.marker.held) == 0 && !c.header.section.header()
	if capped || whole && (c.state >= closeDue || c.mayEnd()) {
		return c.force(now), true
	}
	return runtime.NoToken, false
}

// mayEnd reports whether the pending close may come behind the text so far.
func (c *Control) mayEnd() bool {
	switch c.pending.Reason {
	case Converged, Stalled, Overthinking:
		if c.cfg.ForceAtBlankLine {
			return c.text.blankLine()
		}
	}
	return c.text.boundary()
}

// force begins the close and returns its first token. It does not repeat tokens of the tag that the model has just
// written.
func (c *Control) force(now int64) runtime.Token {
	c.forced.kind, c.forced.seq, c.forced.pos = closing, c.forced.shut, 0
	if len(c.marker.held) > 0 || c.header.section != inText {
		c.forced.pos = c.forced.begun
	}
	if c.state >= closeForced {
		c.pending.Reemitted++
	} else {
		c.state, c.pending.ForcedAt = closeForced, now
	}
	return c.forced.seq[c.forced.pos]
}

// insist closes the thought of a model that was left to write the header, with the header of the answer.
func (c *Control) insist(now int64) runtime.Token {
	c.free, c.forced.begun = false, 0
	c.forced.shut, c.forced.cue = c.tags.closeSeq, c.tags.closeSeq
	return c.force(now)
}

// EndThink closes the block at a client's request. It returns false when the request does not think, or no longer does.
// Before the first token it applies to the block to come.
func (c *Control) EndThink(now int64) bool {
	switch {
	case c.tags == nil:
		return false
	case c.phase == Prefill:
		c.state = closeRequested
		return true
	case c.phase != ThinkDecode:
		return false
	}
	if c.state >= closeDecided {
		return true
	}
	state := closeDecided
	if c.text.tail == 0 {
		state = closeDue // there is no sentence to finish
	}
	c.decide(User, state)
	c.date(now)
	return true
}

// LastForce returns the last forced close that arrived; its Reason is NoReason when there was none.
func (c *Control) LastForce() Force { return c.forced.done }
