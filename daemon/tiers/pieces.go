package tiers

import (
	"sync"
	"time"
)

// Pieces caches which values the fabric has, so that none is pushed twice. Its methods are safe from any goroutine.
type Pieces struct {
	mu    sync.Mutex
	known map[string]pieceState // by key
	// renewEvery is the time after which a value is renewed when it is used again. Until then it counts as stored, even
	// if the store has lost it.
	renewEvery time.Duration
}

// pieceState is one value. Its key is in pieces.known while its push is queued or running, and after.
type pieceState struct {
	ns     uint64
	stored time.Time // last confirmation by the fabric; zero while its push or renewal is under way
	queued bool      // its push is queued or running
	pulled bool      // it was pulled since, and its remaining time to live is unknown
}

const (
	maxPieces = 1 << 16
	// maxRenew is the longest time for which a value counts as stored: a store may evict it earlier for lack of room.
	maxRenew = 10 * time.Minute
)

// newPieces returns an empty cache. ttl is the fabric's time to live of a value; 0 = none.
func newPieces(ttl time.Duration) *Pieces {
	p := &Pieces{known: map[string]pieceState{}}
	p.RenewEvery(maxRenew)
	if ttl > 0 {
		p.RenewEvery(min(maxRenew, ttl/4)) // a value that is used every quarter of its life does not expire
	}
	return p
}

// RenewEvery sets the time after which a value is renewed when it is used again.
func (p *Pieces) RenewEvery(d time.Duration) { p.mu.Lock(); defer p.mu.Unlock(); p.renewEvery = d }

func (p *Pieces) put(key string, v pieceState) {
	if _, ok := p.known[key]; !ok && len(p.known) >= maxPieces {
		clear(p.known) // they are asked for again when they are used
	}
	p.known[key] = v
}

// queued records that the push of a value is queued.
func (p *Pieces) queued(key string, ns uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.put(key, pieceState{ns: ns, queued: true})
}

// stored records that the fabric has values, except those that were dropped meanwhile.
func (p *Pieces) stored(keys ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, key := range keys {
		if v, ok := p.known[key]; ok {
			p.known[key] = pieceState{ns: v.ns, stored: now}
		}
	}
}

// pulled records a value that the fabric has given. It need not be pushed, and is renewed when its prefix is used.
func (p *Pieces) pulled(key string, ns uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if v, ok := p.known[key]; !ok || !v.queued {
		p.put(key, pieceState{ns: ns, stored: time.Now(), pulled: true})
	}
}

// Forget records that the fabric lacks values, or may lack them.
func (p *Pieces) Forget(keys ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range keys {
		delete(p.known, key)
	}
}

// missed records that the fabric lacks a value; a push of it may be queued.
func (p *Pieces) missed(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.known[key].queued {
		delete(p.known, key)
	}
}

// has reports whether the fabric has a value or is about to: it need not be pushed.
func (p *Pieces) has(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fresh(key)
}

func (p *Pieces) fresh(key string) bool {
	v, ok := p.known[key]
	return ok && (v.queued || time.Since(v.stored) < p.renewEvery)
}

// settled reports whether a value need be neither pushed nor renewed.
func (p *Pieces) settled(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fresh(key) && !p.known[key].pulled
}

// ask returns those of keys that are to be renewed, and counts them as ns's.
func (p *Pieces) ask(keys []string, ns uint64) (stale []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range keys {
		v := p.known[key]
		switch {
		case !p.fresh(key):
			p.put(key, pieceState{ns: ns})
		case v.pulled:
			p.put(key, pieceState{ns: ns, stored: v.stored})
		default:
			continue
		}
		stale = append(stale, key)
	}
	return stale
}

// Keys returns the keys of the values of the namespaces that mine accepts.
func (p *Pieces) Keys(mine func(ns uint64) bool) (keys []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, v := range p.known {
		if mine(v.ns) {
			keys = append(keys, key)
		}
	}
	return keys
}
