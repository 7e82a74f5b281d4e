package core

// Shutdown ends all requests without Step.Ends: the caller answers its clients itself. What every sequence has computed
// becomes a cached prefix. Carry out the Ops of the Step, then those of CopyAll.
func (c *Core) Shutdown(now Instant) *Step {
	c.rollBack()
	c.settleHistories(now)
	for i, r := range c.slots {
		if r != nil {
			c.slots[i] = nil
			c.retain(now, r, r.Tokens[:r.computed])
		}
	}
	for _, r := range c.requests {
		c.forget(r)
	}
	c.endRestores(now, true)
	out := c.step
	c.cfg.Trace.step("shutdown", now, out)
	c.step, c.other = c.other, out
	c.step.reset()
	return out
}

// Pending reports whether Next has work without a new input: ends that the scheduler has not been told, or restores.
func (c *Core) Pending() bool { return c.events.Len() > 0 || len(c.restores) > 0 }

// Quiet reports whether no restore, no copy and no rendering of a history is under way.
func (c *Core) Quiet() bool {
	return len(c.lingering)+len(c.restores)+len(c.copies)+len(c.thoughts)+len(c.step.Ops) == 0
}
