package kvevents

import (
	"encoding/binary"
	"maps"
	"slices"
	"sync"
	"time"
)

// Limits of a Hub. ReplayBatches is the number of batches that can be replayed.
const (
	maxBlocks      = 1 << 16 // of one model that are kept for later subscribers
	ReplayBatches  = 10_000  // vLLM's default
	replayBytes    = 32 << 20
	maxBatchEvents = 256
)

// Batch is a published message.
type Batch struct {
	Seq     uint64
	Payload []byte
}

// seqBytes returns the sequence number as its frame.
func (b *Batch) seqBytes() []byte { return binary.BigEndian.AppendUint64(nil, b.Seq) }

// block is a block of a model, in one tier or more.
type block struct {
	ns     uint64
	index  int
	parent uint64
	tokens [BlockTokens]int32
	in     uint8 // bits by Tier
}

// Hub gives events their sequence numbers. Safe from any goroutine.
type Hub struct {
	now func() time.Time

	mu      sync.Mutex
	seq     uint64 // of the next batch
	begun   bool   // a batch was published
	sources map[string]map[uint64]*block
	ring    []Batch // the newest batches, oldest first
	bytes   int     // of their payloads
	stats   Stats

	// deliver is called under the lock with every batch, in order. It does not wait.
	deliver func(Batch)
}

// Stats are counters of a Hub, and the blocks it has now.
type Stats struct {
	Batches         uint64
	Stored, Removed [NumTiers]uint64 // blocks
	Blocks          int
}

// NewHub makes a Hub. Its first sequence number is the time in microseconds, so that those of a daemon that has been
// started again are larger: a subscriber sees the gap, and hears of everything that is held now.
func NewHub(now func() time.Time) *Hub {
	return &Hub{now: now, seq: uint64(now().UnixMicro()), sources: map[string]map[uint64]*block{},
		deliver: func(Batch) {}}
}

// Stats returns the counters.
func (h *Hub) Stats() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	st := h.stats
	for _, blocks := range h.sources {
		st.Blocks += len(blocks)
	}
	return st
}

// Apply publishes what a source, an engine process, has told of its model's cache.
func (h *Hub) Apply(source string, m *Message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m.Again {
		h.drop(source)
	}
	blocks := h.sources[source]
	if blocks == nil {
		blocks = map[uint64]*block{}
		h.sources[source] = blocks
	}
	var out [][]byte
	for i := range m.Events {
		if e := &m.Events[i]; e.Removed {
			out = h.removed(out, blocks, e.Tier, e.Hashes)
		} else {
			out = h.stored(out, blocks, e)
		}
	}
	h.publish(out)
}

// Ended publishes that the blocks of a source are gone.
func (h *Hub) Ended(source string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drop(source)
	delete(h.sources, source)
}

func (h *Hub) drop(source string) {
	blocks := h.sources[source]
	var out [][]byte
	for t := range NumTiers {
		var gone []uint64
		for hash, b := range blocks {
			if b.in&(1<<t) != 0 {
				gone = append(gone, hash)
			}
		}
		slices.Sort(gone)
		out = h.removed(out, blocks, t, gone)
	}
	h.publish(out)
}

// removed notes that a tier has lost blocks, and appends the event for those that it had.
func (h *Hub) removed(out [][]byte, blocks map[uint64]*block, tier Tier, hashes []uint64) [][]byte {
	gone := make([]uint64, 0, len(hashes))
	for _, hash := range hashes {
		b := blocks[hash]
		if b == nil || b.in&(1<<tier) == 0 {
			continue
		}
		if b.in &^= 1 << tier; b.in == 0 {
			delete(blocks, hash)
		}
		gone = append(gone, hash)
	}
	if len(gone) == 0 {
		return out
	}
	h.stats.Removed[tier] += uint64(len(gone))
	return append(out, appendRemoved(nil, tier, gone))
}

// stored notes blocks, and appends the events for those that the tier did not have.
func (h *Hub) stored(out [][]byte, blocks map[uint64]*block, e *Event) [][]byte {
	s := stored{tier: e.Tier, ns: e.NS}
	parent := e.Parent
	end := func() {
		if len(s.hashes) > 0 {
			h.stats.Stored[e.Tier] += uint64(len(s.hashes))
			out = append(out, appendStored(nil, &s))
			s.hashes, s.tokens = s.hashes[:0], s.tokens[:0]
		}
	}
	for i, hash := range e.Hashes {
		b := blocks[hash]
		if b == nil {
			if len(blocks) >= maxBlocks {
				break
			}
			b = &block{ns: e.NS, index: e.First + i, parent: parent}
			copy(b.tokens[:], e.Tokens[i*BlockTokens:]) // a block that stays keeps no others of the event
			blocks[hash] = b
		}
		if b.in&(1<<e.Tier) != 0 {
			end()
		} else {
			if b.in |= 1 << e.Tier; len(s.hashes) == 0 {
				s.first, s.parent = e.First+i, parent
			}
			s.hashes, s.tokens = append(s.hashes, hash), append(s.tokens, b.tokens[:])
		}
		parent = hash
	}
	end()
	return out
}

// publish makes batches of events, keeps them for replay and delivers them.
func (h *Hub) publish(events [][]byte) {
	for len(events) > 0 {
		n := min(len(events), maxBatchEvents)
		list := events[:n]
		events = events[n:]
		if !h.begun { // a router that knew an earlier process forgets its blocks
			list = append([][]byte{appendCleared(nil)}, list...)
		}
		payload := appendBatch(nil, h.now(), len(list))
		for _, e := range list {
			payload = append(payload, e...)
		}
		b := Batch{h.seq, endBatch(payload)}
		h.seq++
		h.begun = true
		h.stats.Batches++
		h.ring = append(h.ring, b)
		h.bytes += len(b.Payload)
		for len(h.ring) > ReplayBatches || h.bytes > replayBytes && len(h.ring) > 1 {
			h.bytes -= len(h.ring[0].Payload)
			h.ring[0] = Batch{}
			h.ring = h.ring[1:]
		}
		h.deliver(b)
	}
}

// Since returns the batches from a sequence number on, oldest first. If the oldest of them are not kept any more, or
// are those of an earlier process, it is one batch with everything that is held now.
func (h *Hub) Since(seq uint64) []Batch {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.ring) > 0 && seq < h.ring[0].Seq {
		return []Batch{h.all()}
	}
	i, _ := slices.BinarySearchFunc(h.ring, seq, func(b Batch, seq uint64) int {
		if b.Seq < seq {
			return -1
		}
		return 1
	})
	return slices.Clone(h.ring[i:])
}

// Join calls add under the lock with a batch of everything that is held now, which has the number of the newest batch;
// nil if nothing was published. Batches that are delivered later follow it.
func (h *Hub) Join(add func(*Batch)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.begun {
		add(nil)
		return
	}
	b := h.all()
	add(&b)
}

// all returns a batch with every block, each behind its parent. The lock is held.
func (h *Hub) all() Batch {
	events := [][]byte{appendCleared(nil)}
	for _, name := range slices.Sorted(maps.Keys(h.sources)) {
		blocks := h.sources[name]
		order := slices.SortedFunc(maps.Keys(blocks), func(a, b uint64) int {
			if d := blocks[a].index - blocks[b].index; d != 0 {
				return d
			}
			if a < b {
				return -1
			}
			return 1
		})
		for t := range NumTiers {
			for _, hash := range order {
				if b := blocks[hash]; b.in&(1<<t) != 0 {
					events = append(events, appendStored(nil, &stored{tier: t, ns: b.ns, first: b.index,
						parent: b.parent, hashes: []uint64{hash}, tokens: [][]int32{b.tokens[:]}}))
				}
			}
		}
	}
	payload := appendBatch(nil, h.now(), len(events))
	for _, e := range events {
		payload = append(payload, e...)
	}
	return Batch{h.seq - 1, endBatch(payload)}
}
