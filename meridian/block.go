package meridian

import (
	"errors"
	"fmt"
	"slices"
)

// Tier says what the cells of a block are to their owner, and so how early they may go. The first three have the codes
// of the MRDN wire format.
//
// The order of eviction is Prefix, ThinkComplete, ThinkActive, OutputCritical: cached prefixes that nobody runs on
// first, then the requests whose user sees nothing move yet. Tiers only change towards eviction.
type Tier uint8

const (
	ThinkComplete  Tier = iota // a think block that is over; its request writes the answer
	ThinkActive                // a think block that is being written
	OutputCritical             // an answer that a user watches
	Prefix                     // prompts and cached prefixes

	NumTiers
)

// evictionOrder is from the first to go to the last.
var evictionOrder = [NumTiers]Tier{Prefix, ThinkComplete, ThinkActive, OutputCritical}

// String is the tier's label in metrics.
func (t Tier) String() string {
	return [...]string{"think_complete", "think_active", "output_critical", "prefix"}[t]
}

// Owner is who holds blocks: a request by its id, or one of the two below.
type Owner uint64

const (
	// CacheOwner has the cells of cached prefixes that can be evicted; the prefix tree knows which they are.
	CacheOwner Owner = ^Owner(0) - iota
	// HeldOwner has the cells that cannot be evicted because several hold them or a user pinned them.
	HeldOwner
)

// BlockID names a block while it is live; ids are reused, the last freed first.
type BlockID int32

const noBlock BlockID = -1

var (
	// ErrNoCells: so many cells cannot be freed. Nothing was evicted.
	ErrNoCells = errors.New("KV cells are exhausted")
	// ErrNoBlock: no such block is live.
	ErrNoBlock = errors.New("no such block")
)

// BlocksConfig describes the pool.
type BlocksConfig struct {
	Cells      int // of the pool (n_ctx), ≥ 1
	BlockCells int // cells of one block; 0 = DefaultBlockCells
	CellBytes  int // bytes of one cell, all layers, K and V, in the model's own KV types
}

// DefaultBlockCells is the default of BlocksConfig.BlockCells.
const DefaultBlockCells = 16

// EvictReason says why blocks went before their owner was done with them.
type EvictReason uint8

const (
	EvictPressure EvictReason = iota // others needed the cells
	EvictPreempt                     // their request was parked, or will be computed again
	EvictDropped                     // a user asked for it

	NumEvictReasons
)

// String is the reason's label in metrics.
func (r EvictReason) String() string { return [...]string{"pressure", "preempt", "dropped"}[r] }

// BlockVictim is neighbouring blocks, in the order of eviction, of one owner and tier.
type BlockVictim struct {
	Owner  Owner
	Tier   Tier
	Blocks int
	Cells  int
	Bytes  int64
}

// Want is one part of a transactional allocation.
type Want struct {
	Owner Owner
	Tier  Tier
	Cells int
}

// BlocksSnapshot is the ledger at one moment. Each block is counted once, however many share it.
type BlocksSnapshot struct {
	Blocks       [NumTiers]int
	Cells        [NumTiers]int
	Bytes        [NumTiers]int64
	LiveCells    int // held by requests. Invariant: LiveCells + CachedCells + FreeCells == BlocksConfig.Cells
	CachedCells  int // of CacheOwner and HeldOwner
	FreeCells    int
	Evicted      [NumTiers][NumEvictReasons]uint64 // blocks
	EvictedCells [NumTiers][NumEvictReasons]uint64
	// OutputCriticalEvictions counts blocks of OutputCritical that went for others' sake (EvictPressure, EvictPreempt),
	// each once: an answer that somebody was reading stood still. Alert on it.
	OutputCriticalEvictions uint64
}

// block is up to BlockCells cells.
type block struct {
	owner Owner
	tier  Tier
	refs  int // holders besides the owner: while there are any, it cannot be evicted
	cells int // Invariant: 1 … BlockCells while live, 0 while not
	used  uint64

	older, newer BlockID // in the tier's list, by used
	prev, next   BlockID // in the owner's list, in the order of allocation
}

// holder is what an owner has.
type holder struct {
	first, last BlockID           // all its blocks
	tail        [NumTiers]BlockID // the block of each tier that may have room left
	cells       [NumTiers]int
}

// Blocks is the ledger of KV cells by tier: who holds how many, in blocks of a fixed number of cells, and which would go
// first. It moves no bytes; what it returns as victims, the caller carries out.
//
// It is the whole block manager of a pool that knows nothing of sharing (the simulator's), with Allocate and Share. A
// daemon, whose prefix tree knows which cell is shared with whom, tells it how many cells each request holds alone and
// how many are cached:
//
//	at the start      SetCache, then OnCells(request, Prefix, what it was given and nobody else holds)
//	after Decode      OnCells(request, tier, n)    Prefix for its prompt, ThinkActive, then OutputCritical
//	at ExitThink      Demote(request)
//	at the end        Free(request), or Evict when it is preempted; then SetCache
//	for room          EvictOrder                   which tier has what to give, before anything is done
//
// and EvictCells(CacheOwner, Prefix, n, why), then SetCache, when the tree has evicted or dropped something. EvictOrder names CacheOwner first; what it names next
// are requests, to be parked or computed again: those that think before those whose answer somebody reads. A tier that
// nobody may take (think blocks, unless the daemon offloads or drops them) is no victim of its own: it goes with its
// request.
//
// It belongs to one goroutine.
type Blocks struct {
	cfg    BlocksConfig
	blocks []block   // an arena
	spare  []BlockID // Invariant: the ids of all blocks that are not live
	owners map[Owner]*holder
	rest   []*holder // to be used again
	lists  [NumTiers]struct{ oldest, newest BlockID }
	clock  uint64
	free   int // cells
	snap   BlocksSnapshot

	victims []BlockVictim
	calls   int // for the checks of invariant builds
}

// NewBlocks makes the ledger of an empty pool.
func NewBlocks(cfg BlocksConfig) (*Blocks, error) {
	if cfg.BlockCells == 0 {
		cfg.BlockCells = DefaultBlockCells
	}
	switch {
	case cfg.Cells < 1 || cfg.Cells > 1<<30:
		return nil, fmt.Errorf("meridian: cells = %d: must be 1 … %d", cfg.Cells, 1<<30)
	case cfg.BlockCells < 1 || cfg.BlockCells > 1<<16:
		return nil, fmt.Errorf("meridian: cells of a block = %d: must be 1 … %d", cfg.BlockCells, 1<<16)
	case cfg.CellBytes < 0:
		return nil, fmt.Errorf("meridian: cell bytes = %d: must not be negative", cfg.CellBytes)
	}
	b := &Blocks{cfg: cfg, owners: map[Owner]*holder{}, free: cfg.Cells, blocks: make([]block, 0, cfg.Cells/cfg.BlockCells+64)}
	for t := range b.lists {
		b.lists[t].oldest, b.lists[t].newest = noBlock, noBlock
	}
	return b, nil
}

// Allocate gives owner n more cells of a tier. When they are not free it evicts blocks of others, in the order of the
// tiers, the least recently used first, never one that is shared: the victims are what the caller has to carry out,
// valid until the next call. ErrNoCells, and nothing has changed, when even that would not be enough.
func (b *Blocks) Allocate(o Owner, t Tier, n int) ([]BlockVictim, error) {
	return b.AllocateAll([]Want{{o, t, n}})
}

// AllocateAll is Allocate of several parts: all of them or none.
func (b *Blocks) AllocateAll(wants []Want) ([]BlockVictim, error) {
	need := 0
	for _, w := range wants {
		if w.Cells < 0 || w.Tier >= NumTiers {
			return nil, fmt.Errorf("meridian: allocate %d cells of tier %d for %d: not a number of cells, or not a tier", w.Cells, w.Tier, w.Owner)
		}
		need += w.Cells
	}
	b.victims = b.victims[:0]
	mine := func(o Owner) bool { return slices.ContainsFunc(wants, func(w Want) bool { return w.Owner == o }) }
	if short := need - b.free; short > 0 {
		could := b.free
		for i := range b.blocks {
			if x := &b.blocks[i]; x.cells > 0 && x.refs == 0 && x.owner != HeldOwner && !mine(x.owner) {
				could += x.cells
			}
		}
		if could < need {
			return nil, fmt.Errorf("allocate: %w: %d cells are needed, %d can be had of %d", ErrNoCells, need, could, b.cfg.Cells)
		}
		b.evict(short, mine)
	}
	for _, w := range wants {
		b.extend(w.Owner, w.Tier, w.Cells)
	}
	b.verify()
	return b.victims, nil
}

// EvictFor frees at least n cells, or all that can be had, whole blocks only. The victims are in the order in which
// they went and valid until the next call; blocks of except stay.
func (b *Blocks) EvictFor(n int, except Owner) (freed int, victims []BlockVictim) {
	b.victims = b.victims[:0]
	return b.evict(n, func(o Owner) bool { return o == except }), b.victims
}

func (b *Blocks) evict(n int, spare func(Owner) bool) (freed int) {
	b.walk(n, spare, func(id BlockID, x *block) {
		freed += x.cells
		b.note(x)
		b.gone(x.tier, EvictPressure, 1, x.cells)
		b.remove(id)
	})
	return freed
}

// EvictOrder is what EvictFor would take, and changes nothing: what a daemon asks before it decides to evict cached
// prefixes (victims of CacheOwner), to offload a think block or to preempt a request. Valid until the next call.
func (b *Blocks) EvictOrder(n int, except Owner) (freed int, victims []BlockVictim) {
	b.victims = b.victims[:0]
	b.walk(n, func(o Owner) bool { return o == except }, func(_ BlockID, x *block) {
		freed += x.cells
		b.note(x)
	})
	return freed, b.victims
}

// walk visits the blocks that would have to go for n cells.
func (b *Blocks) walk(n int, spare func(Owner) bool, visit func(BlockID, *block)) {
	for _, t := range evictionOrder {
		for id := b.lists[t].oldest; id != noBlock && n > 0; {
			x := &b.blocks[id]
			next := x.newer
			if x.refs == 0 && x.owner != HeldOwner && !spare(x.owner) {
				n -= x.cells
				visit(id, x)
			}
			id = next
		}
	}
}

func (b *Blocks) note(x *block) {
	bytes := int64(x.cells) * int64(b.cfg.CellBytes)
	if k := len(b.victims) - 1; k >= 0 && b.victims[k].Owner == x.owner && b.victims[k].Tier == x.tier {
		v := &b.victims[k]
		v.Blocks, v.Cells, v.Bytes = v.Blocks+1, v.Cells+x.cells, v.Bytes+bytes
		return
	}
	b.victims = append(b.victims, BlockVictim{x.owner, x.tier, 1, x.cells, bytes})
}

// OnCells tells that owner has n more (or, negative, fewer) cells of a tier. Nothing is evicted: room was made before.
// It reports false, and changes nothing, when the pool has no such cells or the owner has not so many that are its
// alone. A decoded token costs O(1) and no allocation.
func (b *Blocks) OnCells(o Owner, t Tier, n int) bool {
	switch {
	case n > b.free:
		return false
	case n > 0:
		b.extend(o, t, n)
		b.verify()
	case n < 0:
		return b.shrink(o, t, -n)
	}
	return true
}

// SetCells makes the cells of owner in a tier exactly n. False, and no change, as for OnCells.
func (b *Blocks) SetCells(o Owner, t Tier, n int) bool {
	return n >= 0 && b.OnCells(o, t, n-b.CellsOf(o, t))
}

// SetCache tells how many cells are cached: those that can be evicted, and those that cannot because running requests
// share them or a user pinned them. False, and no change, when the pool has not so many.
func (b *Blocks) SetCache(evictable, held int) bool {
	a, c := b.CellsOf(CacheOwner, Prefix), b.CellsOf(HeldOwner, Prefix)
	if evictable < 0 || held < 0 || evictable-a+held-c > b.free {
		return false
	}
	// The one that shrinks first, so that the other finds room.
	if evictable < a {
		return b.SetCells(CacheOwner, Prefix, evictable) && b.SetCells(HeldOwner, Prefix, held)
	}
	return b.SetCells(HeldOwner, Prefix, held) && b.SetCells(CacheOwner, Prefix, evictable)
}

// CellsOf is how many cells owner has in a tier.
func (b *Blocks) CellsOf(o Owner, t Tier) int {
	if h := b.owners[o]; h != nil {
		return h.cells[t]
	}
	return 0
}

// FreeCells is how many cells nobody has.
func (b *Blocks) FreeCells() int { return b.free }

// Demote moves the ThinkActive blocks of owner to ThinkComplete, with their age, and returns their cells: at the end of
// its think block. It costs O(1) a block, and what is younger in the tier.
func (b *Blocks) Demote(o Owner) (cells int) {
	h := b.owners[o]
	if h == nil {
		return 0
	}
	at := noBlock // where the block after it went
	for id := h.last; id != noBlock; id = b.blocks[id].prev {
		x := &b.blocks[id]
		if x.tier != ThinkActive {
			continue
		}
		b.unlist(id)
		b.count(x, -1)
		x.tier = ThinkComplete
		b.count(x, 1)
		b.listBefore(id, at)
		at = id
		cells += x.cells
	}
	h.cells[ThinkComplete] += h.cells[ThinkActive]
	h.cells[ThinkActive] = 0
	if h.tail[ThinkActive] != noBlock {
		h.tail[ThinkComplete], h.tail[ThinkActive] = h.tail[ThinkActive], noBlock
	}
	return cells
}

// Touch makes the blocks of owner the most recently used of their tiers.
func (b *Blocks) Touch(o Owner) {
	if h := b.owners[o]; h != nil {
		for id := h.first; id != noBlock; id = b.blocks[id].next {
			b.TouchBlock(id)
		}
	}
}

// TouchBlock makes one block the most recently used of its tier. It never promotes. An id that is not live is ignored.
func (b *Blocks) TouchBlock(id BlockID) {
	if b.live(id) {
		b.unlist(id)
		b.list(id)
	}
}

// Free gives everything of owner's back and returns how many cells became free; blocks that others share go to
// HeldOwner until they are released. Idempotent.
func (b *Blocks) Free(o Owner) (cells int) { return b.end(o, NumEvictReasons) }

// Evict is Free of an owner that was not done, counted by reason.
func (b *Blocks) Evict(o Owner, why EvictReason) (cells int) { return b.end(o, why) }

func (b *Blocks) end(o Owner, why EvictReason) (cells int) {
	h := b.owners[o]
	if h == nil {
		return 0
	}
	for id := h.first; id != noBlock; {
		x := &b.blocks[id]
		next := x.next
		if x.refs > 0 {
			b.give(id, HeldOwner)
		} else {
			if why < NumEvictReasons {
				b.gone(x.tier, why, 1, x.cells)
			}
			cells += x.cells
			b.remove(id)
		}
		id = next
	}
	return cells
}

// EvictCells takes n cells of a tier from owner, the last ones first, and counts them as evicted: what the prefix tree has
// evicted (CacheOwner), or a think block that went to the host. False, and no change, as for OnCells.
func (b *Blocks) EvictCells(o Owner, t Tier, n int, why EvictReason) bool {
	before := b.snap.Blocks[t]
	if n < 0 || !b.OnCells(o, t, -n) {
		return false
	}
	b.gone(t, why, before-b.snap.Blocks[t], n)
	return true
}

// gone counts evicted blocks.
func (b *Blocks) gone(t Tier, why EvictReason, blocks, cells int) {
	b.snap.Evicted[t][why] += uint64(blocks)
	b.snap.EvictedCells[t][why] += uint64(cells)
	if t == OutputCritical && why != EvictDropped {
		b.snap.OutputCriticalEvictions += uint64(blocks)
	}
}

// Share adds a holder to a block: it cannot be evicted until Unshare was called as often.
func (b *Blocks) Share(id BlockID) error {
	if !b.live(id) {
		return fmt.Errorf("share block %d: %w", id, ErrNoBlock)
	}
	b.blocks[id].refs++
	return nil
}

// Unshare takes one Share back. A block whose owner has gone is freed with its last holder.
func (b *Blocks) Unshare(id BlockID) error {
	if !b.live(id) || b.blocks[id].refs == 0 {
		return fmt.Errorf("unshare block %d: %w that is shared", id, ErrNoBlock)
	}
	x := &b.blocks[id]
	if x.refs--; x.refs == 0 && x.owner == HeldOwner {
		b.remove(id)
	}
	return nil
}

// BlocksOf appends owner's blocks, in the order of allocation.
func (b *Blocks) BlocksOf(dst []BlockID, o Owner) []BlockID {
	if h := b.owners[o]; h != nil {
		for id := h.first; id != noBlock; id = b.blocks[id].next {
			dst = append(dst, id)
		}
	}
	return dst
}

// Snapshot is the ledger now.
func (b *Blocks) Snapshot() BlocksSnapshot {
	s := b.snap
	s.FreeCells = b.free
	for t := range s.Cells {
		s.Bytes[t] = int64(s.Cells[t]) * int64(b.cfg.CellBytes)
		s.CachedCells += b.CellsOf(CacheOwner, Tier(t)) + b.CellsOf(HeldOwner, Tier(t))
		s.LiveCells += s.Cells[t]
	}
	s.LiveCells -= s.CachedCells
	return s
}
