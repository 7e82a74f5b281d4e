package meridian

import (
	"fmt"

	"github.com/uma-serve/uma-serve/internal/invariants"
)

func (b *Blocks) live(id BlockID) bool {
	return id >= 0 && int(id) < len(b.blocks) && b.blocks[id].cells > 0
}

// count adds block x to the sums of its tier, or with sign -1 takes it out.
func (b *Blocks) count(x *block, sign int) {
	b.snap.Blocks[x.tier] += sign
	b.snap.Cells[x.tier] += sign * x.cells
}

// list puts a block at the recent end of its tier's list.
func (b *Blocks) list(id BlockID) {
	b.clock++
	b.blocks[id].used = b.clock
	b.listBefore(id, noBlock)
}

// listBefore inserts a block into its tier's list by its age. The search begins at hint, a younger block of the list,
// or at the recent end.
func (b *Blocks) listBefore(id, hint BlockID) {
	x := &b.blocks[id]
	l := &b.lists[x.tier]
	x.older, x.newer = l.newest, hint
	if hint != noBlock {
		x.older = b.blocks[hint].older
	}
	for x.older != noBlock && b.blocks[x.older].used > x.used {
		x.older, x.newer = b.blocks[x.older].older, x.older
	}
	if x.older == noBlock {
		l.oldest = id
	} else {
		b.blocks[x.older].newer = id
	}
	if x.newer == noBlock {
		l.newest = id
	} else {
		b.blocks[x.newer].older = id
	}
}

func (b *Blocks) unlist(id BlockID) {
	x := &b.blocks[id]
	l := &b.lists[x.tier]
	if x.older == noBlock {
		l.oldest = x.newer
	} else {
		b.blocks[x.older].newer = x.newer
	}
	if x.newer == noBlock {
		l.newest = x.older
	} else {
		b.blocks[x.newer].older = x.older
	}
}

// recordOf returns owner's record and makes it if there is none.
func (b *Blocks) recordOf(o Owner) *ownerRecord {
	h := b.owners[o]
	if h == nil {
		if n := len(b.rest); n > 0 {
			h, b.rest = b.rest[n-1], b.rest[:n-1]
		} else {
			h = new(ownerRecord)
		}
		*h = ownerRecord{first: noBlock, last: noBlock}
		for t := range h.tail {
			h.tail[t] = noBlock
		}
		b.owners[o] = h
	}
	return h
}

// extend gives owner n free cells: first in the last block of the tier, then in new blocks.
func (b *Blocks) extend(o Owner, t Tier, n int) {
	if n == 0 {
		return
	}
	h := b.recordOf(o)
	h.cells[t] += n
	b.free -= n
	b.snap.Cells[t] += n
	if id := h.tail[t]; id != noBlock && b.blocks[id].refs == 0 {
		x := &b.blocks[id]
		more := min(n, b.cfg.BlockCells-x.cells)
		x.cells += more
		n -= more
		b.unlist(id)
		b.list(id)
	}
	for n > 0 {
		id := b.newBlock()
		x := &b.blocks[id]
		*x = block{owner: o, tier: t, cells: min(n, b.cfg.BlockCells), prev: noBlock, next: noBlock}
		n -= x.cells
		b.snap.Blocks[t]++
		b.list(id)
		b.own(h, id)
		h.tail[t] = id
	}
}

func (b *Blocks) newBlock() BlockID {
	if n := len(b.spare); n > 0 {
		id := b.spare[n-1]
		b.spare = b.spare[:n-1]
		return id
	}
	b.blocks = append(b.blocks, block{})
	return BlockID(len(b.blocks) - 1)
}

// own appends a block to the owner's list.
func (b *Blocks) own(h *ownerRecord, id BlockID) {
	b.blocks[id].prev = h.last
	if h.last == noBlock {
		h.first = id
	} else {
		b.blocks[h.last].next = id
	}
	h.last = id
}

// disown takes a block out of its owner's list and sums.
func (b *Blocks) disown(id BlockID) {
	x := &b.blocks[id]
	h := b.owners[x.owner]
	h.cells[x.tier] -= x.cells
	if h.tail[x.tier] == id {
		h.tail[x.tier] = noBlock
	}
	if x.prev == noBlock {
		h.first = x.next
	} else {
		b.blocks[x.prev].next = x.next
	}
	if x.next == noBlock {
		h.last = x.prev
	} else {
		b.blocks[x.next].prev = x.prev
	}
	if h.first == noBlock {
		delete(b.owners, x.owner)
		b.rest = append(b.rest, h)
	}
	x.prev, x.next = noBlock, noBlock
}

// remove frees a block.
func (b *Blocks) remove(id BlockID) {
	b.unlist(id)
	b.disown(id)
	x := &b.blocks[id]
	b.count(x, -1)
	b.free += x.cells
	x.cells = 0
	b.spare = append(b.spare, id)
}

// transfer moves a block to another owner. Its tier and age remain.
func (b *Blocks) transfer(id BlockID, to Owner) {
	b.disown(id)
	x := &b.blocks[id]
	x.owner = to
	h := b.recordOf(to)
	h.cells[x.tier] += x.cells
	b.own(h, id)
}

// shrink takes n unshared cells of a tier from owner, the newest first.
func (b *Blocks) shrink(o Owner, t Tier, n int) bool {
	h := b.owners[o]
	if h == nil || h.cells[t] < n {
		return false
	}
	alone := 0
	for id := h.last; id != noBlock && alone < n; id = b.blocks[id].prev {
		if x := &b.blocks[id]; x.tier == t && x.refs == 0 {
			alone += x.cells
		}
	}
	if alone < n {
		return false
	}
	for id := h.last; n > 0; {
		x := &b.blocks[id]
		before := x.prev
		switch {
		case x.tier != t || x.refs > 0:
		case x.cells <= n:
			n -= x.cells
			b.remove(id)
		default:
			x.cells -= n
			h.cells[t] -= n
			b.snap.Cells[t] -= n
			b.free += n
			h.tail[t] = id // this one has room now
			n = 0
		}
		id = before
	}
	return true
}

// verify checks the ledger in builds with invariants, on every 16th call, since check reads all blocks.
func (b *Blocks) verify() {
	if invariants.Enabled {
		if b.calls++; b.calls%16 == 0 {
			if err := b.check(); err != nil {
				panic("meridian: block ledger: " + err.Error())
			}
		}
	}
}

// check recomputes the sums and verifies every invariant that a field states. O(blocks).
func (b *Blocks) check() error {
	var snap BlocksSnapshot
	sum, live := 0, 0
	for _, t := range evictionOrder {
		last, older := uint64(0), noBlock
		for id := b.lists[t].oldest; id != noBlock; id = b.blocks[id].newer {
			x := &b.blocks[id]
			if x.tier != t || x.cells < 1 || x.cells > b.cfg.BlockCells || x.refs < 0 {
				return fmt.Errorf("block %d has tier %v in the list of %v, %d of %d cells, %d refs", id, x.tier, t,
					x.cells, b.cfg.BlockCells, x.refs)
			}
			if x.used <= last || x.older != older || x.used > b.clock {
				return fmt.Errorf("block %d of %v is out of order: used %d after %d", id, t, x.used, last)
			}
			last, older = x.used, id
			snap.Blocks[t]++
			snap.Cells[t] += x.cells
			sum += x.cells
			live++
		}
		if b.lists[t].newest != older {
			return fmt.Errorf("the list of %v ends at block %d, not at %d", t, older, b.lists[t].newest)
		}
	}
	if snap.Blocks != b.snap.Blocks || snap.Cells != b.snap.Cells {
		return fmt.Errorf("blocks by tier are %v with %v cells, counted %v with %v", snap.Blocks, snap.Cells,
			b.snap.Blocks, b.snap.Cells)
	}
	if sum+b.free != b.cfg.Cells || b.free < 0 {
		return fmt.Errorf("%d live and %d free cells of %d", sum, b.free, b.cfg.Cells)
	}
	if live+len(b.spare) != len(b.blocks) {
		return fmt.Errorf("%d blocks live and %d spare of %d", live, len(b.spare), len(b.blocks))
	}
	owned := 0
	for o, h := range b.owners {
		var cells [NumTiers]int
		prev := noBlock
		for id := h.first; id != noBlock; id = b.blocks[id].next {
			x := &b.blocks[id]
			if x.owner != o || x.prev != prev {
				return fmt.Errorf("block %d of owner %d is in the list of %d", id, x.owner, o)
			}
			cells[x.tier] += x.cells
			prev = id
			owned++
		}
		if h.last != prev || prev == noBlock || cells != h.cells {
			return fmt.Errorf("owner %d has %v cells, counted %v", o, cells, h.cells)
		}
		for t, id := range h.tail {
			if id != noBlock && (!b.live(id) || b.blocks[id].owner != o || b.blocks[id].tier != Tier(t)) {
				return fmt.Errorf("owner %d: block %d is not its last one of %v", o, id, Tier(t))
			}
		}
	}
	if owned != live {
		return fmt.Errorf("%d blocks are owned, %d live", owned, live)
	}
	if s := b.Snapshot(); s.LiveCells+s.CachedCells+s.FreeCells != b.cfg.Cells || s.LiveCells < 0 {
		return fmt.Errorf("%d live, %d cached and %d free cells of %d", s.LiveCells, s.CachedCells, s.FreeCells,
			b.cfg.Cells)
	}
	return nil
}
