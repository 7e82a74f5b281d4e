package sched

import "time"

// Whether cells outside the pool are restored or computed again, and whether cells that leave it are copied: one
// comparison of two predicted times. Computing is predicted by the cost model, or the pace of prompts in recent steps;
// restoring by the restores from the same store so far.

// NumStores is the number of stores outside the pool: memory, disk, fabric, by core's order.
const NumStores = 3

// Way is a decision about cells outside the pool, or about to leave it.
type Way uint8

const (
	WayRestore Way = iota + 1 // restored: predicted to be quicker than computing, or nothing was measured yet
	WayTrial                  // restored although predicted to be slower, so that the prediction does not grow old
	WayCompute                // computed, although they are stored
	WayCopy                   // copied out as they leave the pool
	WayDiscard                // not copied out: computing them would be quicker than restoring
	numWays
)

var wayNames = [numWays]string{"none", "restore", "trial", "compute", "copy", "discard"}

// String returns the way's label in metrics.
func (w Way) String() string { return wayNames[w] }

// Price is a decision and its predictions.
type Price struct {
	Way              Way
	Restore, Compute time.Duration // 0 = unknown
}

// Prices predicts restores from what they took. The zero value has seen none.
type Prices struct{ stores [NumStores]storePrice }

// storePrice is the record of restores from one store.
type storePrice struct {
	seen    int
	first   float64 // ns from the beginning to the first part, mean of the newest
	token   float64 // ns a token from then on
	refused int     // decisions against it since the last restore
}

const (
	// priceSamples is the number of restores from a store that a prediction needs.
	priceSamples = 3
	// priceWeight is the weight of the newest restore: the mean is that of about the last five.
	priceWeight = 0.2
	// priceMargin is the factor over the time of computing from which on a restore is refused: a restore mostly waits,
	// while every token that is computed delays the other requests.
	priceMargin = 2
	// priceTrial: every so many decisions against a store a restore is made all the same. Else a store that was slow
	// once would never be measured again.
	priceTrial = 16
)

// Learn takes a restore of n tokens from a store: the first part came after the time first, the last cells were in the
// pool after took.
func (p *Prices) Learn(store, n int, first, took time.Duration) {
	if n < 1 || first < 0 || took < first {
		return
	}
	s := &p.stores[store]
	w := priceWeight
	if s.seen++; s.seen <= priceSamples {
		w = 1 / float64(s.seen)
	}
	s.first += mul(w, float64(first)-s.first)
	s.token += mul(w, float64(took-first)/float64(n)-s.token)
	s.refused = 0
}

// Predict returns how long a restore of n tokens from a store takes; 0 = too few were seen.
func (p *Prices) Predict(store, n int) time.Duration {
	s := &p.stores[store]
	if s.seen < priceSamples {
		return 0
	}
	return max(1, time.Duration(s.first+mul(s.token, float64(n))))
}

// Weigh compares a restore of n tokens from a store with computing them, which takes compute; 0 = unknown. It decides
// as [Prices.Restore] does, trials apart, and counts nothing.
func (p *Prices) Weigh(store, n int, compute time.Duration) Price {
	d := Price{WayRestore, p.Predict(store, n), compute}
	if tooSlow(d.Restore, compute) {
		d.Way = WayCompute
	}
	return d
}

// Restore decides how n tokens that a store has get into the pool, when computing them takes compute; 0 = unknown.
func (p *Prices) Restore(store, n int, compute time.Duration) Price {
	d := p.Weigh(store, n, compute)
	if p.refuses(store, d.Restore, compute) && p.stores[store].refused == 0 {
		d.Way = WayTrial
	}
	return d
}

// Copy decides whether n tokens that leave the pool are copied to a store, which takes copying, when computing them
// again takes compute; 0 = unknown.
func (p *Prices) Copy(store, n int, copying, compute time.Duration) Price {
	d := Price{WayCopy, p.Predict(store, n), compute}
	// As in Restore, one of priceTrial decisions is made against the prediction.
	if d.Restore > 0 && p.refuses(store, d.Restore+copying, compute) && p.stores[store].refused > 0 {
		d.Way = WayDiscard
	}
	return d
}

// tooSlow reports whether restoring takes so much longer than computing that cells are computed; 0 = unknown.
func tooSlow(restore, compute time.Duration) bool {
	return restore > 0 && compute > 0 && restore > priceMargin*compute
}

// refuses reports whether restoring is too slow, and counts the decision: after a round of priceTrial of them the count
// is 0.
func (p *Prices) refuses(store int, restore, compute time.Duration) bool {
	if !tooSlow(restore, compute) {
		return false
	}
	p.stores[store].refused = (p.stores[store].refused + 1) % priceTrial
	return true
}

// ComputeTime predicts how long computing n tokens of a prompt takes, from position start on: alone by the cost model,
// beside running requests at the pace of recent steps if that is slower. 0 = too little was measured.
func (s *Scheduler) ComputeTime(start, n int) time.Duration {
	if n < 1 || s.cost.prompts < learnedSteps {
		return 0
	}
	var l load
	l.slice(SlicePrefill, start, n)
	// Each further step reads what lies before its chunk.
	l.more = float64((n - 1) / s.cfg.MaxBatch)
	l.read += mul(l.more, float64(start)+mul(float64(s.cfg.MaxBatch), 0.5*(l.more+1)))
	ns := mul(s.cost.predict(l), 1e6)
	if len(s.running) > 0 {
		ns = max(ns, mul(s.promptPace(), float64(n)))
	}
	return max(1, time.Duration(ns))
}
