package daemon

import (
	"fmt"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/sched"
)

// pricing is the newest decision about cells of a request that a tier outside the pool has; the zero value is none.
type pricing struct {
	at     time.Time
	tokens int
	tier   core.Tier
	price  sched.Price
}

// priced counts a decision about cells outside the pool, and keeps it for why.
func (l *loop) priced(n *core.Note, now time.Time) {
	l.m.Priced(metricsTier[n.Tier], int(n.Price.Way))
	if n.Request == nil {
		return
	}
	requestOf(n.Request).pricing = pricing{at: now, tokens: n.N, tier: n.Tier, price: n.Price}
}

// decision is the entry of why.
func (p *pricing) decision(arrived time.Time) wire.Decision {
	at := wire.Ms(p.at.Sub(arrived))
	return wire.Decision{AtMs: at, LastMs: at, Times: 1, Reason: "cells_" + p.price.Way.String(), Text: p.text(),
		Tokens: p.tokens}
}

func (p *pricing) text() string {
	have := fmt.Sprintf("%d tokens of its prompt that the %s tier has", p.tokens, p.tier)
	if p.tier == core.Fabric { // its contents are unknown before a pull
		have = fmt.Sprintf("%d tokens of its prompt that the fabric may have", p.tokens)
	}
	switch restore, compute := p.price.Restore, p.price.Compute; {
	case restore == 0 || compute == 0:
		return "Restores " + have + ": too little was measured to compare with computing them."
	case p.price.Way == sched.WayCompute:
		return fmt.Sprintf("Computes %s: %v are predicted for that, %v for a restore.", have, rounded(compute),
			rounded(restore))
	case p.price.Way == sched.WayTrial:
		return fmt.Sprintf("Restores %s, to measure the tier again: %v are predicted, %v for computing them.", have,
			rounded(restore), rounded(compute))
	default:
		return fmt.Sprintf("Restores %s: %v are predicted, %v for computing them.", have, rounded(restore),
			rounded(compute))
	}
}

// rounded leaves three digits of d, or what is above a microsecond.
func rounded(d time.Duration) time.Duration {
	unit := time.Microsecond
	for unit*1000 < d {
		unit *= 10
	}
	return d.Round(unit)
}
