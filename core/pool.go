package core

import (
	"fmt"

	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/sched"
)

// evictCells is the least that an eviction frees: at 64 cells a copy of them is far below a millisecond even for large
// models, and 16 streams ask for it every fourth step.
const evictCells = 64

// makeRoom frees cells until n are free, as far as cached prefixes have them, and chats that have ended: the scheduler counts
// their cells as free from their Release on.
func (c *Core) makeRoom(now Instant, n int) {
	n += c.inFlight
	cells := c.tree.Cells()
	if cells.Free >= n {
		return
	}
	if cells.Free+cells.Cached < n {
		c.settleHistories(now)
		cells = c.tree.Cells()
	}
	// A few more than asked for: what follows is mostly one cell a request and step, and each eviction copies.
	_, victims, actions := c.tree.EvictCells(max(n-cells.Free, evictCells))
	c.offload(victims)
	for i := range victims {
		c.blocks.EvictCells(meridian.CacheOwner, meridian.Prefix, victims[i].Freed, meridian.EvictPressure)
	}
	c.do(actions)
	c.countCache()
}

// room is how many more cells could be had without preempting a request.
func (c *Core) room() int {
	cells := c.tree.Cells()
	return cells.Free + cells.Cached - c.inFlight
}

// pressed reports whether cells are about to run out: fewer than an eighth of the pool could be had.
func (c *Core) pressed() bool { return c.room() < c.cfg.Sched.Cells/8 }

// reclaim makes pinned and lingering cells give way to the only request that could run.
func (c *Core) reclaim(now Instant, n int) {
	c.settleHistories(now)
	c.endRestores(now)
	for _, e := range c.tree.Entries(nil) {
		if c.tree.Cells().Pinned == 0 || n <= 0 {
			break
		}
		if e.Pinned {
			before := c.tree.Cells().Pinned
			if err := c.tree.Unpin(e.ID); err == nil {
				n -= before - c.tree.Cells().Pinned
				c.note(Note{Kind: Unpinned, Entry: e.ID, N: e.Tokens})
			}
		}
	}
	c.poolEvent(now) // so that the scheduler looks again
}

// poolEvent tells the scheduler how many cells are in use beyond what its requests computed themselves.
func (c *Core) poolEvent(now Instant) {
	if len(c.lingering)+len(c.restores) > 0 && c.room() < len(c.slots)+evictCells {
		// What is being rendered or brought back must not cost a running request its place.
		c.settleHistories(now)
		c.endRestores(now)
	}
	cells := c.tree.Cells()
	c.evictable = cells.Cached
	pool := cells.Own + cells.Shared + cells.Pinned + c.inFlight - c.own
	if pool == c.pool {
		return
	}
	c.pool = pool
	c.countCache()
	c.tell(sched.Event{Kind: sched.EvPool, Cells: pool})
}

// countCache tells the ledger by tier what is cached, after anything that changed it.
func (c *Core) countCache() { c.blocks.SetCache(c.tree.Cells().Cached, c.pool) }

// check holds the books of cells against each other: the prefix tree's, the scheduler's, the requests'.
func (c *Core) check() {
	// A walk over the whole pool, which the tree also makes itself after every eighth change.
	if c.checks++; c.checks%8 == 0 {
		if err := c.tree.Check(); err != nil {
			panic("core: prefix tree: " + err.Error())
		}
	}
	own := 0
	for _, r := range c.slots {
		if r != nil {
			own += r.own
		}
	}
	if st := c.sched.Stats(); own != c.own || own != st.LiveCells || c.pool != st.PoolCells {
		panic(fmt.Sprintf("core: requests own %d cells, the core counts %d, the scheduler %d; pool %d, the scheduler says %d",
			own, c.own, st.LiveCells, c.pool, st.PoolCells))
	}
}

// Drop removes a cached prefix: kvsnap.ErrNoEntry, or kvsnap.ErrHeld. The Ops of the next Step carry it out.
func (c *Core) Drop(entry uint64) error {
	c.cfg.Trace.numbers("drop", int64(entry))
	ended, err := c.tree.Drop(entry)
	if err == nil {
		c.ended(ended)
		c.countCache()
	}
	return err
}

// Pin keeps a cached prefix from eviction; Unpin takes that back. The errors are kvsnap's.
func (c *Core) Pin(entry uint64) error {
	c.cfg.Trace.numbers("pin", int64(entry))
	return c.tree.Pin(entry)
}

// Unpin makes a cached prefix evictable again.
func (c *Core) Unpin(entry uint64) error {
	c.cfg.Trace.numbers("unpin", int64(entry))
	return c.tree.Unpin(entry)
}
