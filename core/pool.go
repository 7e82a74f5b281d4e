package core

import (
	"github.com/uma-serve/uma-serve/meridian/blocks"
	"github.com/uma-serve/uma-serve/sched"
)

// evictCells is the fewest cells that an eviction frees, answers apart: copying 64 cells takes far less than a
// millisecond even for large models, and 16 streams then evict every fourth step.
const evictCells = 64

// makeRoom evicts cached prefixes until n cells are free. Chats that linger become cached prefixes first if the others
// do not suffice: the scheduler counts their cells as free from their Release on.
func (c *Core) makeRoom(now Instant, n int) {
	n += c.ledger.Reserved()
	if c.ledger.Free() >= n {
		return
	}
	if cells := c.ledger.Cells(); cells.Free+cells.Cached < n {
		c.settleHistories(now)
	}
	// More than needed now: requests mostly need one cell a step each, and every eviction costs copies.
	_, victims, actions := c.tree.EvictAhead(n-c.ledger.Free(), evictCells)
	c.offload(victims)
	c.do(actions)
	c.lookAhead = len(c.queued) > 0 // cells that a queued request would have shared may be gone
}

// pressed reports whether cells are about to run out: requests can have fewer than an eighth of the pool.
func (c *Core) pressed() bool { return c.ledger.Room() < c.cfg.Sched.Cells/8 }

// reclaim unpins prefixes and ends lingering chats and restores, for the only request that could run.
func (c *Core) reclaim(now Instant, n int) {
	c.settleHistories(now)
	c.endRestores(now, true)
	for _, e := range c.tree.Entries(nil) {
		if c.ledger.Cells().Pinned == 0 || n <= 0 {
			break
		}
		if e.Pinned {
			before := c.ledger.Cells().Pinned
			if err := c.tree.Unpin(e.ID); err == nil {
				n -= before - c.ledger.Cells().Pinned
				c.note(Note{Kind: Unpinned, Entry: e.ID, N: e.Tokens})
			}
		}
	}
	c.tellCells(now) // the next Step then tries the request again
}

// tellCells tells the scheduler the number of cells that the ledger has for requests, if it has changed.
func (c *Core) tellCells(now Instant) {
	if len(c.lingering)+len(c.restores) > 0 && c.ledger.Room() < len(c.slots)+evictCells {
		// Cells for a next turn or a queued request are worth less than those of a running request: lingering chats and
		// restores must not cause a preemption.
		c.settleHistories(now)
		c.endRestores(now, false)
	}
	// Each running request needs a cell for its next token; a thought that is copied back comes after them.
	if c.ingesting != nil && c.ledger.Room() < c.running() {
		c.endRestores(now, true)
	}
	c.evictable = c.ledger.EvictableBefore(blocks.OutputCritical)
	if room := c.ledger.Room(); room != c.room {
		c.room = room
		c.events.Cells(sched.EvCells{Cells: room})
	}
}

// check walks over the whole pool at every eighth step; the tree does so after every eighth change, and the ledger
// checks its sums after each.
func (c *Core) check() {
	if c.checks++; c.checks%8 == 0 {
		if err := c.tree.Check(); err != nil {
			panic("core: prefix tree: " + err.Error())
		}
	}
}

// Drop removes a cached prefix: kvsnap.ErrNoEntry. The Ops of the next Step carry it out.
func (c *Core) Drop(entry uint64) error {
	c.cfg.Trace.numbers("drop", int64(entry))
	ended, err := c.tree.Drop(entry)
	if err == nil {
		c.ended(ended)
	}
	return err
}

// Pin excludes a cached prefix from eviction until Unpin. The errors are kvsnap's.
func (c *Core) Pin(entry uint64) error {
	c.cfg.Trace.numbers("pin", int64(entry))
	return c.tree.Pin(entry)
}

// Unpin makes a cached prefix evictable again.
func (c *Core) Unpin(entry uint64) error {
	c.cfg.Trace.numbers("unpin", int64(entry))
	return c.tree.Unpin(entry)
}
