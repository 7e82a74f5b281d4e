package daemon

import (
	"time"

	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sampler"
	"github.com/uma-serve/uma-serve/sched"
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
		return l.force(r, row, tok), nil
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

// wantProbe is how many rows of a fork r wants in the step that carries its next row, 0 = none.
func (l *loop) wantProbe(r *request) int {
	tokens, due := r.ctl.ProbeDue()
	if !due {
		return 0
	}
	if !l.caps.CanRemoveRange {
		r.ctl.ProbeFailed() // the memory cannot fork a sequence
		l.countOnly(r)
		return 0
	}
	r.forkTokens = tokens
	return len(tokens)
}

// addFork adds a SliceProbe to the batch, in the next scratch sequence of this step. The scheduler knows how many there
// are; where it leaves a fork out, the next boundary asks again.
func (l *loop) addFork(b *runtime.Batch, s *sched.Slice, r *request) {
	l.forks++
	r.fork = l.tree.ScratchSeq(l.forks) // 0 is for snapshots
	l.eng.SeqCopy(r.seq, r.fork, 0, runtime.Pos(s.Start))
	for j, tok := range r.forkTokens {
		b.Add(tok, runtime.Pos(s.Start+j), r.fork, j == s.N-1)
	}
}

// takeFork reads what a fork tells and gives its cells back.
func (l *loop) takeFork(r *request, s *sched.Slice, decoded bool) {
	l.eng.SeqRemove(r.fork, 0, -1)
	if !decoded {
		return // the next boundary asks again
	}
	if l.probe.ProbeRow(s.Row, nil, &l.stats) {
		r.ctl.OnProbe(l.stats.Entropy)
	} else {
		r.ctl.ProbeFailed()
		l.countOnly(r)
	}
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
		if r := l.requests[sched.ReqID(id)]; r != nil {
			l.tracked.Register(id, r.ctl, int64(l.instant(now))) // it waits, or its client reads slowly
			continue
		}
		l.m.Reaped.Inc()
		l.log.Error("a request was never reaped from the phase router", "request", id)
	}
}

// endThink closes r's thinking because its client asked for it.
func (l *loop) endThink(r *request, now time.Time) {
	if r.id == 0 || r.finished {
		return
	}
	if !r.ctl.EndThink(int64(l.instant(now))) {
		l.log.Debug("end_think: the request does not think", "request", r.wireID)
	}
}
