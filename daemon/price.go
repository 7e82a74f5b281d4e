package daemon

import (
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/daemon/tiers"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/sched/price"
)

// priced counts a decision about cells outside the pool, and keeps it for why.
func (l *loop) priced(n *core.Note, now time.Time) {
	l.m.Priced(tiers.Metric[n.Tier], int(n.Price.Way))
	if n.Request == nil {
		return
	}
	requestOf(n.Request).priced = report.Price{At: now, Tokens: n.N, Tier: n.Tier, Price: n.Price}
	l.showPrices()
}

// shownTokens are the lengths of prompts whose prices info shows, where the context has room for them.
var shownTokens = [...]int{1024, 8192}

// showPrices publishes for info what a prompt costs from each tier and computed. It runs after a decision and after a
// restore, not in each step.
func (l *loop) showPrices() {
	var all []reports.InfoPrice
	for _, tier := range []core.Tier{core.Host, core.Disk, core.Fabric} {
		last := 0
		for _, n := range shownTokens {
			n = min(n, l.caps.ContextTokens)
			if p, ok := l.core.Weigh(tier, n); ok && n > last {
				all = append(all, reports.InfoPrice{Tier: tiers.Wire[tier], Tokens: n, RestoreMs: wire.Ms(p.Restore),
					ComputeMs: wire.Ms(p.Compute), Used: p.Way == price.WayRestore})
				last = n
			}
		}
	}
	l.state.prices.Store(&all)
}
