package daemon

import (
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/daemon/tiers"
)

// priced counts a decision about cells outside the pool, and keeps it for why.
func (l *loop) priced(n *core.Note, now time.Time) {
	l.m.Priced(tiers.Metric[n.Tier], int(n.Price.Way))
	if n.Request == nil {
		return
	}
	requestOf(n.Request).priced = report.Price{At: now, Tokens: n.N, Tier: n.Tier, Price: n.Price}
}
