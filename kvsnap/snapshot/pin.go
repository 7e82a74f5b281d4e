package snapshot

import (
	"fmt"

	"github.com/uma-serve/uma-serve/kvsnap/snapshot/index"
)

// Pin keeps a part, and those before it, in their tiers until it is unpinned. It fails with ErrNoRoom when pins would
// take more than half of the host tier. Pins end with the process.
func (c *Cache) Pin(key Key, pin bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.mu.index.Get(key)
	if n == nil {
		return ErrNotFound
	}
	p := of(n)
	if !pin || p.pinned != nil {
		if !pin {
			c.unpin(p)
		}
		return nil
	}
	var chain []*part
	for ; n != nil; n = n.Parent {
		chain = append(chain, of(n))
	}
	// Parts that several pins share count once.
	all := map[*part]bool{}
	add := func(parts []*part) {
		for _, q := range parts {
			all[q] = true
		}
	}
	add(chain)
	c.mu.index.Each(func(n *index.Node) { add(of(n).pinned) })
	var bytes int64
	for q := range all {
		bytes += q.raw
	}
	if bytes > c.mu.host.Cap/2 {
		return fmt.Errorf("pin %d bytes: half of the host tier is %d: %w", bytes, c.mu.host.Cap/2, ErrNoRoom)
	}
	for _, q := range chain {
		q.holds++
	}
	p.pinned = chain
	return nil
}

func (c *Cache) unpin(p *part) {
	for _, q := range p.pinned {
		q.holds--
	}
	p.pinned = nil
}
