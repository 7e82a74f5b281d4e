package kv

import "slices"

// ThrashTicks: a block that comes back sooner than this after it went out was moved for nothing. Microseconds.
const ThrashTicks = 1000

// host is the Offload tier's store: a block moved out is kept under the id of the device block it left.
type host struct {
	at  map[int32]hosted
	ids []int32 // the keys of at, ascending
}

type hosted struct {
	hash uint64
	when int64 // microseconds
}

func (h *host) init() { h.at = map[int32]hosted{} }

// offload moves hashed free blocks to the host, longest free first, while the device is fuller than the threshold
// and the host is not full.
//
// BLIS counts a block that is moved out again under an id already present twice, and only that counter says when the
// host is full. Kept, because it changes which blocks are moved.
func (c *Cache) offload() {
	id := c.head
	for float64(c.Used())/float64(c.cfg.Blocks) > c.cfg.OffloadThreshold && c.stats.HostUsed < int64(c.cfg.HostBlocks) {
		for id != none && c.blocks[id].hash == 0 {
			id = c.blocks[id].next
		}
		if id == none {
			return
		}
		next := c.blocks[id].next
		h := c.blocks[id].hash
		if _, again := c.host.at[id]; !again {
			i, _ := slices.BinarySearch(c.host.ids, id)
			c.host.ids = slices.Insert(c.host.ids, i, id)
		}
		c.host.at[id] = hosted{h, c.now}
		c.stats.HostUsed++
		c.stats.Offloads++
		c.index.delete(h)
		c.blocks[id].hash = 0
		c.unlink(id)
		c.link(id)
		id = next
	}
}

// reload brings back everything that fits, in the order of block ids, and says whether anything came.
func (c *Cache) reload() bool {
	any := false
	for _, id := range slices.Clone(c.host.ids) {
		e := c.host.at[id]
		if _, there := c.index.get(e.hash); there {
			continue
		}
		if c.free == 0 {
			break
		}
		b := c.pop()
		c.blocks[b].hash = e.hash
		c.index.set(e.hash, b)
		c.link(b)
		c.pending += c.cfg.ReloadTicks
		if c.now > 0 && c.now-e.when < ThrashTicks {
			c.stats.Thrashes++
		}
		delete(c.host.at, id)
		i, _ := slices.BinarySearch(c.host.ids, id)
		c.host.ids = slices.Delete(c.host.ids, i, i+1)
		c.stats.HostUsed--
		c.stats.Reloads++
		any = true
	}
	return any
}

func (c *Cache) allocateOffloaded(s *Seq, n int, prefill bool, a, b int, cached []int32) bool {
	if !c.reload() {
		c.stats.HostMisses++
		return false
	}
	c.retry = c.lookup(c.retry[:0], &s.ID, n)
	size := c.cfg.BlockTokens
	switch covered := len(c.retry) * size; {
	case covered <= a:
		return c.allocate(s, prefill, a, b, cached)
	case covered >= b:
		if len(s.blocks) == 0 {
			c.claim(s, c.retry[:(b+size-1)/size])
		}
		return true
	default:
		return c.allocate(s, prefill, covered, b, c.retry)
	}
}
