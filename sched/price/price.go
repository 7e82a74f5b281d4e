// Package price decides whether cells outside the pool are restored or computed again, and whether cells that leave it
// are copied: one comparison of two predicted times. sched.Scheduler.ComputeTime predicts computing; Prices predicts
// restoring, from the restores from the same store so far. It is pure.
package price

import "time"

// numStores is the number of stores outside the pool: memory, disk, fabric, by core's order.
const numStores = 3

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
type Prices struct{ stores [numStores]record }

// record is the record of restores from one store.
type record struct {
	seen    int
	first   float64 // ns from the beginning to the first part, mean of the newest
	token   float64 // ns a token from then on
	refused int     // decisions against it since the last restore
}

const (
	// samples is the number of restores from a store that a prediction needs.
	samples = 3
	// newest is the weight of the newest restore: the mean is that of about the last five.
	newest = 0.2
	// margin is the factor over the time of computing from which on a restore is refused: a restore mostly waits,
	// while every token that is computed delays the other requests.
	margin = 2
	// trialEvery: every so many decisions against a store a restore is made all the same. Else a store that was slow
	// once would never be measured again.
	trialEvery = 16
)

// Learn takes a restore of n tokens from a store: the first part came after the time first, the last cells were in the
// pool after took.
func (p *Prices) Learn(store, n int, first, took time.Duration) {
	if n < 1 || first < 0 || took < first {
		return
	}
	s := &p.stores[store]
	w := newest
	if s.seen++; s.seen <= samples {
		w = 1 / float64(s.seen)
	}
	s.first += float64(w * (float64(first) - s.first)) // rounded before the sum, as all of package cost's products
	s.token += float64(w * (float64(took-first)/float64(n) - s.token))
	s.refused = 0
}

// Predict returns how long a restore of n tokens from a store takes; 0 = too few were seen.
func (p *Prices) Predict(store, n int) time.Duration {
	s := &p.stores[store]
	if s.seen < samples {
		return 0
	}
	return max(1, time.Duration(s.first+float64(s.token*float64(n))))
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

// Restore decides whether n tokens that a store has are restored or computed. compute is the predicted time of
// computing them; 0 = unknown.
func (p *Prices) Restore(store, n int, compute time.Duration) Price {
	d := p.Weigh(store, n, compute)
	if p.refuses(store, d.Restore, compute) && p.stores[store].refused == 0 {
		d.Way = WayTrial
	}
	return d
}

// Copy decides whether n tokens that leave the pool are copied to a store. copying is the time of the copy, compute
// that of computing them again; 0 = unknown.
func (p *Prices) Copy(store, n int, copying, compute time.Duration) Price {
	d := Price{WayCopy, p.Predict(store, n), compute}
	// As in Restore, one of trialEvery decisions is made against the prediction.
	if d.Restore > 0 && p.refuses(store, d.Restore+copying, compute) && p.stores[store].refused > 0 {
		d.Way = WayDiscard
	}
	return d
}

// tooSlow reports whether restoring takes so much longer than computing that cells are computed; 0 = unknown.
func tooSlow(restore, compute time.Duration) bool {
	return restore > 0 && compute > 0 && restore > margin*compute
}

// refuses reports whether restoring is too slow, and counts the decision: after a round of trialEvery of them the count
// is 0.
func (p *Prices) refuses(store int, restore, compute time.Duration) bool {
	if !tooSlow(restore, compute) {
		return false
	}
	p.stores[store].refused = (p.stores[store].refused + 1) % trialEvery
	return true
}
