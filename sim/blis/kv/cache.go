package kv

import (
	"fmt"

	"github.com/uma-serve/uma-serve/sim"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// none ends a list of blocks.
const none = int32(-1)

// block is one block of device memory that was used at least once.
type block struct {
	hash       uint64 // chained hash of what it holds; 0 = not findable
	prev, next int32  // its neighbours in the free list while ref == 0
	ref        int32  // requests that own it; > 0 = in use
}

// Seq is the list of blocks that one request owns.
type Seq struct {
	ID     workload.Identity
	blocks []int32
	fill   int    // tokens in the last block; 0 only when it owns none
	start  int    // position of the last block's first token
	gap    uint64 // ≠ 0: the last block does not hold consecutive tokens

	// findable: its private blocks are published as they fill. Only the request itself can ever look for them, after a
	// preemption, so until the first one it is enough to publish them then (Preempt).
	findable bool
}

// Reset makes a Seq that owns nothing ready for another request; it keeps its memory.
func (s *Seq) Reset() { *s = Seq{blocks: s.blocks[:0]} }

// Tier selects the second tier.
type Tier uint8

const (
	NoTier  Tier = iota
	Offload      // freed blocks move to the host above a threshold and come back on allocation failure
	Mirror       // every full block is written through to the host, which has its own LRU
)

// Config sizes a Cache.
type Config struct {
	BlockTokens int // tokens a block holds, > 0
	Blocks      int // device blocks, > 0

	Tier             Tier
	HostBlocks       int
	OffloadThreshold float64 // share of device blocks in use above which Offload moves free blocks out
	// ReloadTicks is the time to bring one block back, in microseconds.
	ReloadTicks int64
}

// Cache is the device tier, with an optional host tier behind it.
//
// Invariant (INV-4): used + free == Config.Blocks, and a block is in the free list exactly when no request owns it.
type Cache struct {
	cfg    Config
	blocks []block // those used at least once; ids at and above len(blocks) are free and come first
	head   int32   // free list of used blocks: allocation pops the head, release appends to the tail
	tail   int32
	free   int // in the list and never used
	index  index
	stats  sim.CacheStats

	now     int64 // time of the last step's start, microseconds
	pending int64 // transfer time not yet charged to a step, microseconds
	cached  []int32
	retry   []int32
	host    host
	mirror  mirror
}

// New makes an empty cache. The configuration must have been validated.
func New(cfg Config) *Cache {
	c := &Cache{cfg: cfg, head: none, tail: none, free: cfg.Blocks}
	switch cfg.Tier {
	case Offload:
		c.host.init()
	case Mirror:
		c.stats.Mirror = true
		c.mirror.init(cfg.HostBlocks)
	}
	return c
}

// Used returns the number of device blocks owned by requests.
func (c *Cache) Used() int { return c.cfg.Blocks - c.free }

// Stats returns the counters.
func (c *Cache) Stats() sim.CacheStats { return c.stats }

// SetClock tells the cache the time of the step that begins, in microseconds.
func (c *Cache) SetClock(now int64) { c.now = now }

// TakeTransfer returns the transfer time that has piled up, in microseconds, and clears it.
func (c *Cache) TakeTransfer() int64 {
	t := c.pending
	c.pending = 0
	return t
}

// Lookup returns the cached blocks of the longest cached prefix of a prompt of n tokens, whole blocks only. It
// changes nothing. The slice is valid until the next call of any method.
func (c *Cache) Lookup(id *workload.Identity, n int) []int32 {
	c.cached = c.lookup(c.cached[:0], id, n)
	return c.cached
}

func (c *Cache) lookup(out []int32, id *workload.Identity, n int) []int32 {
	size := c.cfg.BlockTokens
	parent := uint64(0)
	for pos := 0; pos+size <= n; pos += size {
		parent = chain(parent, id.Block(pos, size))
		b, ok := c.index.get(parent)
		if !ok {
			break
		}
		out = append(out, b)
	}
	return out
}

// Room reports whether one more token at position pos fits in the last block without filling it; then it is taken.
// It is the fast path of a decode step, equal to [Cache.Allocate] of one token.
func (s *Seq) Room(blockTokens int) bool {
	if s.fill > 0 && s.fill+1 < blockTokens {
		s.fill++
		return true
	}
	return false
}

// Allocate makes room for the tokens [a, b) of a request with a prompt of n tokens; cached is what Lookup gave for a
// request that owns nothing yet. It returns false, with nothing changed on the device, when too few blocks are
// free. prefill says that the tokens are the prompt's.
func (c *Cache) Allocate(s *Seq, n int, prefill bool, a, b int, cached []int32) bool {
	if c.allocate(s, prefill, a, b, cached) {
		return true
	}
	switch c.cfg.Tier {
	case Offload:
		return c.allocateOffloaded(s, n, prefill, a, b, cached)
	case Mirror:
		return c.allocateMirrored(s, n, prefill, a, b, cached)
	}
	return false
}

// allocate is Allocate on the device alone.
func (c *Cache) allocate(s *Seq, prefill bool, a, b int, cached []int32) bool {
	size, rest := c.cfg.BlockTokens, b-a
	if rest <= 0 {
		return true
	}
	need := rest
	if s.fill > 0 {
		need -= size - s.fill
	}
	if need > 0 {
		need = (need + size - 1) / size
		for _, id := range cached {
			if c.blocks[id].ref == 0 {
				need++
			}
		}
		if need > c.free {
			return false
		}
	}
	if len(s.blocks) == 0 && len(cached) > 0 {
		c.claim(s, cached)
	}
	pos := a
	if s.fill > 0 && s.fill < size {
		k := min(size-s.fill, rest)
		if s.start+s.fill != pos {
			// A reload that covers more than a running request had computed leaves a gap in its last block: what that
			// block holds is no stretch of the prompt, and nothing may find it.
			s.gap = workload.Mix64(s.gap + uint64(pos))
		}
		s.fill += k
		pos += k
		rest -= k
		if s.fill == size {
			c.publish(s, len(s.blocks)-1, s.start)
		}
	}
	for rest > 0 {
		k := min(size, rest)
		id := c.pop()
		c.blocks[id].ref = 1
		c.stats.Misses++
		s.blocks = append(s.blocks, id)
		s.fill, s.start, s.gap = k, pos, 0
		if k == size && prefill {
			c.publish(s, len(s.blocks)-1, pos)
		}
		pos += k
		rest -= k
	}
	return true
}

// publish makes the i-th block of a request, full and beginning at token pos, findable.
func (c *Cache) publish(s *Seq, i, pos int) {
	if s.ID.Private && !s.findable && c.cfg.Tier == NoTier && pos+c.cfg.BlockTokens > s.ID.PrefixLen {
		return
	}
	parent := uint64(0)
	if i > 0 {
		parent = c.blocks[s.blocks[i-1]].hash
	}
	h := chain(parent, s.ID.Block(pos, c.cfg.BlockTokens)+s.gap)
	id := s.blocks[i]
	c.blocks[id].hash = h
	c.index.set(h, id)
}

// claim makes a request an owner of blocks that were found by their hash.
func (c *Cache) claim(s *Seq, ids []int32) {
	for _, id := range ids {
		if c.blocks[id].ref == 0 {
			c.unlink(id)
		}
		c.blocks[id].ref++
		c.stats.Hits++
	}
	s.blocks = append(s.blocks, ids...)
	s.fill = c.cfg.BlockTokens
	s.start, s.gap = (len(s.blocks)-1)*c.cfg.BlockTokens, 0
}

// Preempt is Release of a request with a prompt of n tokens that will come back and may find its own blocks.
func (c *Cache) Preempt(s *Seq, n int) {
	if !s.findable {
		s.findable = true
		size, last := c.cfg.BlockTokens, len(s.blocks)-1
		for i := range s.blocks {
			pos := s.start - (last-i)*size
			full := i < last || s.fill == size
			// a decoded token in a block of one is never hashed
			if c.blocks[s.blocks[i]].hash == 0 && full && (size > 1 || pos < n) {
				c.publish(s, i, pos)
			}
		}
	}
	c.Release(s)
}

// Release gives back all blocks of a request, last to first. Their hashes stay findable until the blocks are reused.
func (c *Cache) Release(s *Seq) {
	for i := len(s.blocks) - 1; i >= 0; i-- {
		id := s.blocks[i]
		c.blocks[id].ref--
		if c.blocks[id].ref == 0 {
			c.link(id)
		}
	}
	s.blocks, s.fill, s.start, s.gap = s.blocks[:0], 0, 0, 0
	if c.cfg.Tier == Offload {
		c.offload()
	}
}

// pop takes the free block that was released longest ago; never used ones come before.
func (c *Cache) pop() int32 {
	if len(c.blocks) < c.cfg.Blocks {
		c.blocks = append(c.blocks, block{prev: none, next: none})
		c.free--
		return int32(len(c.blocks) - 1)
	}
	id := c.head
	c.unlink(id)
	if h := c.blocks[id].hash; h != 0 {
		c.index.delete(h)
		c.blocks[id].hash = 0
	}
	return id
}

// link appends a block to the free list.
func (c *Cache) link(id int32) {
	b := &c.blocks[id]
	b.prev, b.next = c.tail, none
	if c.tail == none {
		c.head = id
	} else {
		c.blocks[c.tail].next = id
	}
	c.tail = id
	c.free++
}

// unlink takes a block out of the free list.
func (c *Cache) unlink(id int32) {
	b := &c.blocks[id]
	if b.prev == none {
		c.head = b.next
	} else {
		c.blocks[b.prev].next = b.next
	}
	if b.next == none {
		c.tail = b.prev
	} else {
		c.blocks[b.next].prev = b.prev
	}
	c.free--
}

// HitRate returns the share of blocks that did not have to be computed, 0 before any was.
func (c *Cache) HitRate() float64 {
	s := c.stats
	hits := s.Hits
	if c.cfg.Tier == Offload {
		hits += s.Reloads
	}
	all := hits + s.Misses + s.HostMisses
	if all == 0 {
		return 0
	}
	return float64(hits) / float64(all)
}

// ThrashRate is thrashes per offload (Offload) or evictions per store (Mirror), 0 before any.
func (c *Cache) ThrashRate() float64 {
	switch s := c.stats; {
	case c.cfg.Tier == Offload && s.Offloads > 0:
		return float64(s.Thrashes) / float64(s.Offloads)
	case c.cfg.Tier == Mirror && s.Stores > 0:
		return float64(s.Evictions) / float64(s.Stores)
	}
	return 0
}

// Check walks the free list and the owners and returns the first broken invariant (INV-4).
func (c *Cache) Check(owners []*Seq) error {
	refs := make([]int32, len(c.blocks))
	for _, s := range owners {
		for _, id := range s.blocks {
			refs[id]++
		}
	}
	used := 0
	for id, b := range c.blocks {
		if b.ref != refs[id] {
			return fmt.Errorf("kv: INV-4: block %d says %d owners, %d own it", id, b.ref, refs[id])
		}
		if b.ref > 0 {
			used++
		}
	}
	listed := 0
	for id, prev := c.head, none; id != none; id, prev = c.blocks[id].next, id {
		if c.blocks[id].prev != prev {
			return fmt.Errorf("kv: INV-4: the free list is torn at block %d", id)
		}
		if c.blocks[id].ref != 0 {
			return fmt.Errorf("kv: INV-4: block %d is in the free list and has %d owners", id, c.blocks[id].ref)
		}
		if listed++; listed > len(c.blocks) {
			return fmt.Errorf("kv: INV-4: the free list is a circle")
		}
	}
	if fresh := c.cfg.Blocks - len(c.blocks); used+listed+fresh != c.cfg.Blocks || listed+fresh != c.free {
		return fmt.Errorf("kv: INV-4: %d used + %d in the free list + %d never used != %d blocks (counted free: %d)",
			used, listed, fresh, c.cfg.Blocks, c.free)
	}
	return nil
}
