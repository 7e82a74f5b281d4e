package kvevents

import (
	"slices"
	"sync"
	"time"
)

// Limits of a Reporter.
const (
	scanEvery       = 20 * time.Millisecond // between two scans of the pool
	storesEvery     = time.Second           // between two scans of the other tiers
	maxWaiting      = 2 * maxBlocks         // blocks that wait to be sent
	eventsInMessage = 512
)

// Part is a part of a sequence in host memory or on disk. A part can be restored behind the one that it continues.
type Part struct {
	Key    uint64
	NS     uint64
	Tokens []int32
	Before int // index of the part that it continues; -1 = none
	Host   bool
}

// Reporter makes messages of what one model's cache holds. The decode loop scans the pool with it; Run does the rest.
type Reporter struct {
	send func(*Message)
	// stores lists host memory and disk, each part behind the one that it continues. changed is false if nothing has
	// changed since the call before, unless all is set.
	stores func(all bool) (parts []Part, changed bool)

	pool    *Tracker  // of the decode loop
	scanned time.Time // newest scan
	seen    uint64    // the pool's generation then
	wake    chan struct{}

	mu      sync.Mutex
	waiting []Event
	blocks  int  // of waiting
	again   bool // waiting events were dropped: everything is to be reported again
	redo    bool // the loop's next scan begins anew

	others [NumTiers]*Tracker
}

// NewReporter makes a Reporter. Both functions are called by Run's goroutine; stores may be nil.
func NewReporter(send func(*Message), stores func(all bool) ([]Part, bool)) *Reporter {
	r := &Reporter{send: send, stores: stores, pool: NewTracker(Device, maxBlocks), wake: make(chan struct{}, 1)}
	for t := Host; t < NumTiers; t++ {
		r.others[t] = NewTracker(t, maxBlocks)
	}
	return r
}

// Due reports whether the pool, whose state has this generation, is to be scanned. The decode loop asks, after a step
// and before it sleeps.
func (r *Reporter) Due(now time.Time, generation uint64, sleeps bool) bool {
	if generation == r.seen || !sleeps && now.Sub(r.scanned) < scanEvery {
		return false
	}
	r.scanned, r.seen = now, generation
	return true
}

// Scan compares the pool with what it held; each calls its argument for every sequence. It never waits.
func (r *Reporter) Scan(each func(sequence func(slot, owner uint64, ns uint64, tokens []int32))) {
	r.mu.Lock()
	redo := r.redo
	r.redo = false
	r.mu.Unlock()
	if redo {
		r.pool.Forget()
	}
	r.pool.Begin()
	each(r.pool.Sequence)
	r.put(r.pool.End())
}

func (r *Reporter) put(events []Event) {
	if len(events) == 0 {
		return
	}
	r.mu.Lock()
	for i := range events {
		r.blocks += len(events[i].Hashes)
	}
	if r.waiting = append(r.waiting, events...); r.blocks > maxWaiting && !r.again {
		r.again, r.redo, r.waiting = true, true, nil
	}
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run sends what has changed until done is closed.
func (r *Reporter) Run(done <-chan struct{}) {
	t := time.NewTicker(storesEvery)
	defer t.Stop()
	r.put(r.scanStores(false))
	for {
		select {
		case <-done:
			return
		case <-r.wake:
		case <-t.C:
			r.put(r.scanStores(false))
		}
		r.flush()
	}
}

// scanStores compares host memory and disk with what they held; all: everything is reported.
func (r *Reporter) scanStores(all bool) (events []Event) {
	if r.stores == nil {
		return nil
	}
	parts, changed := r.stores(all)
	if !changed {
		return nil
	}
	for t := Host; t < NumTiers; t++ {
		if all {
			r.others[t].Forget()
		}
		r.others[t].Begin()
	}
	for i := range parts {
		t := Storage
		if parts[i].Host {
			t = Host
		}
		tokens := parts[i].Tokens
		if !r.others[t].Has(parts[i].Key) {
			tokens = whole(parts, i)
		}
		r.others[t].Stored(parts[i].Key, parts[i].NS, tokens)
	}
	for t := Host; t < NumTiers; t++ {
		events = append(events, r.others[t].End()...)
	}
	return events
}

// whole returns the tokens of a part behind those of all parts before it.
func whole(parts []Part, i int) []int32 {
	var chain []int
	for ; i >= 0; i = parts[i].Before {
		chain = append(chain, i)
	}
	var tokens []int32
	for k := len(chain) - 1; k >= 0; k-- {
		tokens = append(tokens, parts[chain[k]].Tokens...)
	}
	return tokens
}

// flush sends the events that wait.
func (r *Reporter) flush() {
	r.mu.Lock()
	if r.again && r.redo { // the loop scans the pool again first
		r.mu.Unlock()
		return
	}
	events, again := r.waiting, r.again
	r.waiting, r.blocks, r.again = nil, 0, false
	r.mu.Unlock()
	if again {
		// What waits of the other tiers may not hold any more, and the trackers forget it: nothing would take it back.
		events = slices.DeleteFunc(events, func(e Event) bool { return e.Tier != Device })
		events = append(events, r.scanStores(true)...)
	}
	for first := true; len(events) > 0; first = false {
		n := min(len(events), eventsInMessage)
		r.send(&Message{Again: again && first, Events: events[:n]})
		events = events[n:]
	}
}
