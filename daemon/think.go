package daemon

import (
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sampler"
)

// The decode loop's side of thinking: statistics of a row before a token is drawn from it, the token that has to come
// when a block is closed by force, forks that look what the answer would be.

// draw decides r's next token from its logits row.
func (l *loop) draw(r *request, row int, t int64) (sampler.Choice, error) {
	probed := false
	if r.ctl.NeedStats() {
		start := time.Now()
		if probed = l.probe.ProbeRow(row, l.tags.CloseIDs(), &l.stats); probed {
			l.tick.probed++
			l.tick.probeTime += time.Since(start)
			r.ctl.Observe(&l.stats)
		} else {
			r.ctl.StatsMissing()
		}
		l.countOnly(r)
	}
	if tok, forced := r.ctl.Next(t); forced {
		if r.form != nil {
			r.form.bound = false
		}
		return l.force(r, row, tok), nil
	}
	if r.form != nil {
		l.restrict(r)
	}
	choice, err := l.choose(r, row, probed)
	if err != nil {
		return choice, err
	}
	if tok, forced := r.ctl.Admit(choice.Token, l.vocab.Piece(choice.Token), l.vocab.IsEOG(choice.Token), t); forced {
		return l.force(r, row, tok), nil
	}
	return choice, nil
}

// force is a token that was not sampled, with its log-probability if the client wants that.
func (l *loop) force(r *request, row int, tok runtime.Token) sampler.Choice {
	c := sampler.Choice{Token: tok}
	if logits := l.eng.Logits(row); r.logprobs && int(tok) < len(logits) {
		meridian.ProbeRow(logits, nil, &l.stats)
		c.Logprob = float32(float64(logits[tok]) - l.stats.LogSumExp)
	}
	return c
}

// choose samples from a row: by the engine's own argmax where that is all there is to it, and reading less of it where
// the probe has read it before (l.stats).
func (l *loop) choose(r *request, row int, probed bool) (sampler.Choice, error) {
	if r.chain.IsArgmax() {
		switch {
		case probed && l.stats.NonFinite == 0:
			if tok := l.stats.Argmax; tok >= 0 && r.chain.Takes(tok) {
				return sampler.Choice{Token: tok}, nil
			}
		case l.argmx != nil:
			if tok, _ := l.argmx.Argmax(row); tok >= 0 && r.chain.Takes(tok) {
				return sampler.Choice{Token: tok}, nil
			}
		}
	}
	if probed {
		return r.chain.SampleProbed(l.eng.Logits(row), &l.stats)
	}
	return r.chain.Sample(l.eng.Logits(row))
}

// countOnly tells once that a request's signals cannot be had.
func (l *loop) countOnly(r *request) {
	if !r.countsOnly && r.ctl.CountOnly() {
		r.countsOnly = true
		l.m.ProbeFallbacks.Inc()
		l.log.Debug("no entropy for this request's thinking: only its budget can end it", "request", r.wireID)
	}
}

// probed reads what a fork of r tells.
func (l *loop) probed(r *request, row int) {
	ok := l.probe.ProbeRow(row, nil, &l.stats)
	l.core.Probed(&r.Request, l.stats.Entropy, ok)
	l.countOnly(r)
}

// staleAfter is when a request that the phase router still follows, though the loop knows nothing of it, counts as
// forgotten. Nothing should ever be; a number in the metric is a bug.
const staleAfter = 10 * time.Minute

// sweepTracked is the net under the life of requests in the phase router's registry.
func (l *loop) sweepTracked(now time.Time) {
	if now.Sub(l.lastReap) < staleAfter {
		return
	}
	l.lastReap = now
	l.stale = l.tracked.ReapStaleOlderThan(staleAfter, int64(l.instant(now)), l.stale[:0])
	for _, id := range l.stale {
		if r := l.requests[core.ID(id)]; r != nil {
			l.tracked.Register(id, r.ctl, int64(l.instant(now))) // it waits, or its client reads slowly
			continue
		}
		l.m.Reaped.Inc()
		l.log.Error("a request was never reaped from the phase router", "request", id)
	}
}

// endThink closes r's thinking because its client asked for it.
func (l *loop) endThink(r *request, now time.Time) {
	if r.ID == 0 || r.finished {
		return
	}
	if !r.ctl.EndThink(int64(l.instant(now))) {
		l.log.Debug("end_think: the request does not think", "request", r.wireID)
	}
}
