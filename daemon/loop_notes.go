package daemon

import (
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/daemon/tiers"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/telemetry"
)

// report passes a step's notes and ends to clients, metrics and the log.
func (l *loop) report(step *core.Step, now time.Time) {
	for i := range step.Notes {
		l.recordNote(&step.Notes[i], now)
	}
	for i := range step.Ends {
		l.endedByCore(&step.Ends[i], now)
	}
	for _, r := range step.Histories {
		l.historyLater(requestOf(r), now)
	}
}

// endedByCore finalises a request that the core cancelled, refused or failed.
func (l *loop) endedByCore(end *core.End, now time.Time) {
	r := requestOf(end.Request)
	switch {
	case r.input != nil:
		l.inputEnded(r, end)
	case r.failure != nil:
		l.failRequest(r, *r.failure)
	case end.Kind == core.Cancelled, r.life.Cancelled():
		l.endRequest(r, wire.Cancelled, "", now)
	case end.Kind == core.Failed:
		l.failRequest(r, wire.Error{Code: wire.RuntimeDecode, Message: end.Reason.Explain()})
	default:
		l.m.Refusals.Inc(end.Reason.String())
		e := wire.Error{Code: wire.QueueLimit, Message: end.Reason.Explain(), RetryAfter: end.RetryAfter,
			Predicted: end.Predicted}
		if end.Target > 0 {
			e.Message = report.BrokenTarget(end)
		}
		if l.end.draining {
			e.Code = wire.ShuttingDown
		}
		l.failRequest(r, e)
	}
}

// recordNote counts and logs a note of the core.
func (l *loop) recordNote(n *core.Note, now time.Time) {
	switch n.Kind {
	case core.Started:
		r := requestOf(n.Request)
		r.trace.Resumed(now)
		if n.Took > 0 {
			r.trace.Add(telemetry.Span{Name: "restore", From: now.Add(-n.Took), To: now, Tokens: n.N,
				Tier: metricsTierName(n.Tier)})
		}
		if n.First && r.input == nil {
			l.firstStart(r, n)
			l.stores.Use(r.Space(), r.Tokens[:n.N])
		}
	case core.Preempted:
		l.m.Preemptions.Inc()
		requestOf(n.Request).trace.Preempted(now)
		l.logRequest(requestOf(n.Request), "preempted")
	case core.Parked:
		l.m.ParkedTotal.Inc()
	case core.Recomputed:
		l.m.Recomputed.Inc()
	case core.Shifted:
		l.m.ContextShift.Inc()
		r := requestOf(n.Request)
		r.chat = false
		l.logRequest(r, "context shift", "dropped_tokens", n.N)
	case core.ThoughtDropped:
		r := requestOf(n.Request)
		r.chat = false
		l.logRequest(r, "thought dropped", "tokens", n.N)
	case core.Unpinned:
		l.log.Warn("a pinned prefix is evicted: the only running request needs its cells", "entry", n.Entry, "tokens",
			n.N)
	case core.Restored:
		l.m.Restored(tiers.Metric[n.Tier], n.Took)
		l.showPrices()
	case core.ReadAhead:
		l.m.ReadAheads.Inc()
	case core.Priced:
		l.priced(n, now)
	case core.Verified:
		l.m.Guessed(n.Thinking, int(n.Source), n.N, n.Accepted)
	case core.Ingested:
		l.m.Restored(tiers.Metric[n.Tier], n.Took)
		l.m.ThoughtIngests.Inc()
		requestOf(n.Request).trace.Add(telemetry.Span{Name: "restore", From: now.Add(-n.Took), To: now, Tokens: n.N,
			Tier: metricsTierName(n.Tier)})
		l.logRequest(requestOf(n.Request), "thought ingested", "tokens", n.N)
	}
}

// firstStart records how many of a request's prompt tokens were cached, and in which tier.
func (l *loop) firstStart(r *request, n *core.Note) {
	r.cached = min(n.N, r.Prompt)
	r.tier = wire.TierNone
	if r.cached > 0 {
		r.tier = tiers.Wire[n.Tier]
	}
	r.miss = report.Miss(&n.Match, r.Prompt)
	l.logRequest(r, "started", "prompt_tokens", r.Prompt, "cached_tokens", r.cached)
	l.m.Lookup(tiers.Metric[n.Tier], r.cached)
	if n.Match.Reason != kvsnap.ReasonFull {
		l.m.CacheMisses.Inc(n.Match.Reason.String())
	}
}

// priced counts a decision about cells outside the pool, and keeps it for why.
func (l *loop) priced(n *core.Note, now time.Time) {
	l.m.Priced(tiers.Metric[n.Tier], int(n.Price.Way))
	if n.Request == nil {
		return
	}
	requestOf(n.Request).priced = report.Price{At: now, Tokens: n.N, Tier: n.Tier, Price: n.Price}
	l.showPrices()
}

// showPrices publishes for info what a prompt costs from each tier and computed. It runs after a decision and after a
// restore, not in each step.
func (l *loop) showPrices() {
	all := l.stores.Prices()
	l.state.prices.Store(&all)
}
