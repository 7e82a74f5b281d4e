package snapshot

import "github.com/uma-serve/uma-serve/kvsnap/snapshot/index"

// StoredPart is a part that can be restored.
type StoredPart struct {
	Key       Key
	Namespace Namespace
	P0, P1    int
	Tokens    []Token // at [P0, P1); read-only
	Before    int     // the part that it continues, as its index in the list; -1 = none
	Host      bool    // it and all parts before it are in host memory
	Disk      bool    // it and all parts before it are on disk
}

// signature changes when the tiers' content does, but for rare coincidences that the next change ends.
type signature struct {
	parts, host, disk int
	hostBytes         int64
	diskBytes         int64
	changes           uint64
}

// Stored lists the parts that can be restored, each behind the one that it continues, unless nothing has changed since
// the call that returned last. It never waits for a file: its lock is held for the list alone.
func (c *Cache) Stored(last any) (parts []StoredPart, now any, changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := &c.mu.stats
	sign := signature{parts: c.mu.index.Len(), host: c.mu.host.Len(), disk: c.mu.disk.Len(),
		hostBytes: c.mu.host.Bytes(), diskBytes: c.mu.disk.Bytes(),
		changes: st.snapshots + st.evictions[Host] + st.evictions[Disk] + st.written}
	if sign == last {
		return nil, sign, false
	}
	at := map[*index.Node]int{}
	var add func(n *index.Node) int
	add = func(n *index.Node) int {
		if n == nil {
			return -1
		}
		if i, ok := at[n]; ok {
			return i
		}
		before := add(n.Parent)
		p := StoredPart{Key: n.Key, Namespace: n.Namespace, P0: n.P0, P1: n.P1, Tokens: n.Tokens, Before: before,
			Host: n.Host.In(), Disk: n.Disk.In()}
		if before >= 0 {
			p.Host, p.Disk = p.Host && parts[before].Host, p.Disk && parts[before].Disk
		}
		at[n] = len(parts)
		parts = append(parts, p)
		return at[n]
	}
	c.mu.index.Each(func(n *index.Node) {
		if n.Usable() {
			add(n)
		}
	})
	return parts, sign, true
}
