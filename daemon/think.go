package daemon

import (
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sampler"
)

// The decode loop's side of thinking: the entropy probe of a row before sampling, forced tokens that close a thought,
// and probe forks.

// draw returns r's next token from its logits row: a forced one, or a sampled one. t is the instant in ns.
func (l *loop) draw(r *request, row int, t int64) (sampler.Choice, error) {
	probed := false
	if r.Phases.NeedStats() {
		start := time.Now()
		if probed = l.model.probe.ProbeRow(row, l.model.tags.CloseIDs(), &l.reused.stats); probed {
			l.reused.tick.Probed++
			l.reused.tick.ProbeTime += time.Since(start)
			r.Phases.Observe(&l.reused.stats)
		} else {
			r.Phases.StatsMissing()
		}
		l.logMissingSignals(r)
	}
	if tok, forced := r.Phases.Next(t); forced {
		return l.force(r, row, tok), nil
	}
	if c := r.constraint; c != nil {
		mask, bound := c.Mask(r.place())
		r.Chain.Restrict(mask)
		probed = probed && !bound // the statistics are of all tokens
	}
	choice, err := l.choose(r, row, probed)
	if err != nil {
		return choice, err
	}
	tok, forced := r.Phases.Admit(choice.Token, l.model.vocab.Piece(choice.Token), l.model.vocab.IsEOG(choice.Token), t)
	if forced {
		return l.force(r, row, tok), nil
	}
	return choice, nil
}

// force returns a forced token as a choice, with its log-probability if the client asked for log-probabilities.
func (l *loop) force(r *request, row int, tok runtime.Token) sampler.Choice {
	c := sampler.Choice{Token: tok}
	if logits := l.eng.Logits(row); r.logprobs && int(tok) < len(logits) {
		meridian.ProbeRow(logits, nil, &l.reused.stats)
		c.Logprob = float32(float64(logits[tok]) - l.reused.stats.LogSumExp)
	}
	return c
}

// choose samples from a row. Greedy sampling uses the probe's or the engine's argmax; other sampling uses the probe's
// statistics (l.stats) if the row was probed.
func (l *loop) choose(r *request, row int, probed bool) (sampler.Choice, error) {
	if r.Chain.IsArgmax() {
		switch {
		case probed && l.reused.stats.NonFinite == 0:
			if tok := l.reused.stats.Argmax; tok >= 0 && r.Chain.Takes(tok) {
				return sampler.Choice{Token: tok}, nil
			}
		case l.model.argmx != nil:
			if tok, _ := l.model.argmx.Argmax(row); tok >= 0 && r.Chain.Takes(tok) {
				return sampler.Choice{Token: tok}, nil
			}
		}
	}
	if probed {
		return r.Chain.SampleProbed(l.eng.Logits(row), &l.reused.stats)
	}
	return r.Chain.Sample(l.eng.Logits(row))
}

// logMissingSignals logs once that a request's thinking has no entropy signal.
func (l *loop) logMissingSignals(r *request) {
	if !r.missingLogged && r.Phases.CountOnly() {
		r.missingLogged = true
		l.m.ProbeFallbacks.Inc()
		l.logRequest(r, "no entropy for this request's thinking: only its budget can end it")
	}
}

// probed passes the entropy of a probe fork's row to the core.
func (l *loop) probed(r *request, row int) {
	ok := l.model.probe.ProbeRow(row, nil, &l.reused.stats)
	l.core.Probed(&r.Request, l.reused.stats.Entropy, ok)
	l.journal.rec.Probe(r.ID, r.Phases)
	l.logMissingSignals(r)
}

// staleAfter is the age at which a request in the phase router's registry is checked. One that the loop no longer has
// was leaked: the metric counts it, and any count is a bug.
const staleAfter = 10 * time.Minute

// sweepTracked removes leaked requests from the phase router's registry.
func (l *loop) sweepTracked(now time.Time) {
	if now.Sub(l.chores.lastReap) < staleAfter {
		return
	}
	l.chores.lastReap = now
	l.chores.stale = l.journal.tracked.ReapStaleOlderThan(staleAfter, int64(l.instant(now)), l.chores.stale[:0])
	for _, id := range l.chores.stale {
		if r := l.requests[core.ID(id)]; r != nil {
			l.journal.tracked.Register(id, r.Phases, int64(l.instant(now))) // alive: queued, or its client reads slowly
			continue
		}
		l.m.Reaped.Inc()
		l.log.Error("the phase router still tracks an ended request", "request", id)
	}
}

// endThink ends r's thinking at its client's request.
func (l *loop) endThink(r *request, now time.Time) {
	if r.ID == 0 || r.life.Over() {
		return
	}
	if !r.Phases.EndThink(int64(l.instant(now))) {
		l.logRequest(r, "end_think ignored: the request is not thinking")
	}
}
