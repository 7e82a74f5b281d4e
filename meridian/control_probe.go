package meridian

import "github.com/uma-serve/uma-serve/runtime"

// probeFailures is the number of failed probes in a row after which a request is no longer probed.
const probeFailures = 3

// ProbeDue reports, after OnToken, whether EAT wants a probe here, and the fork's tokens: the token just followed, the
// close tag, line breaks and cue. The slice is the Control's and valid until the next ProbeDue. The loop forks
// the sequence before that token, decodes the fork with the next batch and calls OnProbe with the entropy of the
// last row, before Next. The loop may skip a probe: a later boundary asks again.
func (c *Control) ProbeDue() (tokens []runtime.Token, ok bool) {
	if !c.fork.probing || c.phase != ThinkDecode || c.state >= closeDecided {
		return nil, false
	}
	if len(c.marker.held) > 0 || c.header.section != inText || c.text.need > 0 {
		return nil, false
	}
	distance := c.think - c.fork.lastProbe
	if distance < c.cfg.EATProbeIntervalTokens {
		return nil, false
	}
	if most := c.cfg.EATProbeMaxIntervalTokens; !c.text.blankLine() &&
		(most == 0 || distance < most || !c.text.boundary()) {
		return nil, false
	}
	c.fork.lastProbe = c.think
	c.fork.probe[0] = c.last
	return c.fork.probe, true
}

// OnProbe takes a probe's entropy, in nats.
func (c *Control) OnProbe(entropy float64) {
	c.fork.failed = 0
	if !c.fork.eat.Add(entropy, c.cfg.EMAAlpha) {
		c.dropped++
		return
	}
	if c.phase != ThinkDecode || c.think < c.cfg.MinThinkTokens ||
		!c.fork.eat.Steady(c.fork.warmup, c.cfg.EATVarianceThreshold) {
		return
	}
	if limit := c.cfg.EATStalledEntropy; limit > 0 && entropy >= limit {
		c.signal(Stalled, &c.signals.Stalled, c.acts.eat())
	} else {
		c.signal(Converged, &c.signals.Converged, c.acts.eat())
	}
}

// signal records at how many think tokens a signal fired first, and closes the block if it may.
func (c *Control) signal(reason Reason, first *int, acts bool) {
	if *first == 0 {
		*first = c.think
	}
	if acts {
		c.decide(reason, closeDecided)
	}
}

// Signals returns what the signals measured so far, however the thinking ends.
func (c *Control) Signals() Signals {
	s := c.signals
	s.Probes, s.X, s.Mean, s.Var = c.fork.eat.N, c.fork.eat.X, c.fork.eat.Mean, c.fork.eat.Var
	s.Index = c.index()
	return s
}

// ProbeFailed reports that a probe could not be decoded. After three in a row the request gives up EAT (CountOnly).
func (c *Control) ProbeFailed() {
	if c.fork.failed++; c.fork.failed >= probeFailures {
		c.degraded, c.fork.probing = c.degraded || c.acts.eat(), false
	}
}
