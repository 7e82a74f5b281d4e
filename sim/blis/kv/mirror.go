package kv

import "github.com/uma-serve/uma-serve/sim/workload"

// mirror is the Mirror tier's store: an LRU of hashes.
type mirror struct {
	at      map[uint64]int32 // hash → entry
	entries []mirrored       // entries[0] is the ring's anchor: next = most recent, prev = oldest
	limit   int
}

type mirrored struct {
	hash       uint64
	prev, next int32
}

func (m *mirror) init(limit int) {
	m.at, m.limit = map[uint64]int32{}, limit
	m.entries = make([]mirrored, 1)
}

func (m *mirror) unlink(i int32) {
	e := m.entries[i]
	m.entries[e.prev].next = e.next
	m.entries[e.next].prev = e.prev
}

func (m *mirror) front(i int32) {
	first := m.entries[0].next
	m.entries[i].prev, m.entries[i].next = 0, first
	m.entries[first].prev = i
	m.entries[0].next = i
}

// touch makes a stored hash the most recent one and says whether it was stored.
func (m *mirror) touch(h uint64) bool {
	i, ok := m.at[h]
	if ok && m.entries[0].next != i {
		m.unlink(i)
		m.front(i)
	}
	return ok
}

// store adds a hash and says whether the oldest had to go.
func (m *mirror) store(h uint64) (evicted bool) {
	var i int32
	if len(m.at) < m.limit {
		m.entries = append(m.entries, mirrored{})
		i = int32(len(m.entries) - 1)
	} else {
		i, evicted = m.entries[0].prev, true
		m.unlink(i)
		delete(m.at, m.entries[i].hash)
	}
	m.entries[i].hash = h
	m.front(i)
	m.at[h] = i
	return evicted
}

// MirrorBlocks writes a running request's full blocks through to the host. The engine calls it after every step for
// each running request in batch order. Without a Mirror tier it does nothing.
func (c *Cache) MirrorBlocks(s *Seq) {
	if c.cfg.Tier != Mirror {
		return
	}
	for i, id := range s.blocks {
		h := c.blocks[id].hash
		if h == 0 || i == len(s.blocks)-1 && s.fill < c.cfg.BlockTokens || c.mirror.touch(h) {
			continue
		}
		c.stats.Stores++
		if c.mirror.store(h) {
			c.stats.Evictions++
		}
		c.stats.HostUsed = int64(len(c.mirror.at))
	}
}

// reloadPrefix brings the blocks of a prompt back from the host as far as the chain is unbroken and free blocks
// last; the limit is taken once, before the first is used up.
func (c *Cache) reloadPrefix(id *workload.Identity, n int) bool {
	size, limit, done := c.cfg.BlockTokens, c.free, 0
	parent := uint64(0)
	for pos := 0; pos+size <= n; pos += size {
		parent = chain(parent, id.Block(pos, size))
		if _, there := c.index.get(parent); there {
			continue
		}
		if _, stored := c.mirror.at[parent]; !stored || done == limit {
			break
		}
		b := c.pop()
		c.blocks[b].hash = parent
		c.index.set(parent, b)
		c.link(b)
		c.pending += c.cfg.ReloadTicks
		c.mirror.touch(parent)
		c.stats.Reloads++
		done++
	}
	return done > 0
}

func (c *Cache) allocateMirrored(s *Seq, n int, prefill bool, a, b int, cached []int32) bool {
	if !c.reloadPrefix(&s.ID, n) {
		c.stats.HostMisses++
		return false
	}
	c.retry = c.lookup(c.retry[:0], &s.ID, n)
	size := c.cfg.BlockTokens
	covered := len(c.retry) * size
	if covered <= a {
		return c.allocate(s, prefill, a, b, cached)
	}
	first := 0
	if len(s.blocks) > 0 {
		first = (a + size - 1) / size
	}
	if covered >= b {
		if last := (b + size - 1) / size; first < last {
			c.claim(s, c.retry[first:last])
		}
		return true
	}
	if first < len(c.retry) {
		c.claim(s, c.retry[first:])
	}
	return c.allocate(s, prefill, covered, b, nil)
}
