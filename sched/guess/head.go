package guess

const (
	statesHold = 32
	headMost   = 4 // guesses by which a head is judged that has no states, or those of its block
	// trialDoubt is the share of the price of a trial for which there must be time when states are first kept for it.
	trialDoubt = 1.1
)

// chooseStates decides whether the states of the step's rows are kept.
func (c *Chooser) chooseStates(p *Step) bool {
	d := &c.Draft
	if c.able > 0 {
		d.hold = max(0, d.hold-1)
	}
	pays, near := c.judgeHead(p)
	if pays { // rule 10
		d.hold = statesHold
	}
	return c.cfg.All || d.hold > 0 || d.trial.waits || near
}

// judgeHead reports whether guesses of the head would pay for a request of the batch, and whether one of its requests
// may have a trial within draftNewest steps (rule 11): it is due by then, and there is time for it now.
func (c *Chooser) judgeHead(p *Step) (pays, near bool) {
	d := &c.Draft
	if c.cfg.Rereads && !c.alone {
		return false, false // there are no guesses
	}
	due := d.since+draftNewest >= d.every
	for _, rows := range [...][]Row{c.open, c.shut} {
		for i := range rows {
			row := c.appraised(rows[i])
			_, _, yes := c.draftPays(p, &row, c.able, max(headMost, c.cfg.DraftBlock))
			pays = pays || yes
			price := mul(trialDoubt, c.trialPrice(p, &row))
			if row.Lag > draftNewest { // states were kept for it too early
				price += c.catchUp(&row)
			}
			near = near || due && price <= d.spare
		}
	}
	return pays, near
}
