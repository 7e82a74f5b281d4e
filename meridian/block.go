package meridian

import (
	"errors"
	"fmt"
	"slices"
)

// Tier is the use of a block's cells. It determines how early they are evicted. The first three values are the codes of
// the MRDN wire format.
//
// The order of eviction is Prefix, ThinkComplete, ThinkActive, OutputCritical: idle cached prefixes first, answers
// last. A block's tier only changes towards eviction.
type Tier uint8

const (
	ThinkComplete  Tier = iota // a closed think block; its request writes the answer
	ThinkActive                // a think block that is being written
	OutputCritical             // an answer that is being written
	Prefix                     // prompts and cached prefixes

	NumTiers
)

// evictionOrder lists the tiers, the first evicted first.
var evictionOrder = [NumTiers]Tier{Prefix, ThinkComplete, ThinkActive, OutputCritical}

// String is the tier's label in metrics.
func (t Tier) String() string {
	return [...]string{"think_complete", "think_active", "output_critical", "prefix"}[t]
}

// Owner is the owner of blocks: a request's id, or one of the two below.
type Owner uint64

const (
	// CacheOwner owns the evictable cells of cached prefixes. The prefix tree knows which cells they are.
	CacheOwner Owner = ^Owner(0) - iota
	// SharedOwner owns the cells that cannot be evicted because they are shared or pinned.
	SharedOwner
)

// BlockID identifies a live block. Ids are reused, the last freed first.
type BlockID int32

const noBlock BlockID = -1

var (
	// ErrNoCells: there are not enough free and evictable cells. Nothing was evicted.
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

// EvictReason says why blocks were evicted.
type EvictReason uint8

const (
	EvictPressure EvictReason = iota // another request needed the cells
	EvictPreempt                     // their request was preempted
	EvictDropped                     // a user dropped the prefix

	NumEvictReasons
)

// String is the reason's label in metrics.
func (r EvictReason) String() string { return [...]string{"pressure", "preempt", "dropped"}[r] }

// BlockVictim is a run of blocks of one owner and tier in the order of eviction.
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

// BlocksSnapshot is a copy of the ledger's sums. A shared block counts once.
type BlocksSnapshot struct {
	Blocks       [NumTiers]int
	Cells        [NumTiers]int
	Bytes        [NumTiers]int64
	LiveCells    int // held by requests. Invariant: LiveCells + CachedCells + FreeCells == BlocksConfig.Cells
	CachedCells  int // of CacheOwner and SharedOwner
	FreeCells    int
	Evicted      [NumTiers][NumEvictReasons]uint64 // blocks
	EvictedCells [NumTiers][NumEvictReasons]uint64
	// OutputCriticalEvictions counts blocks of OutputCritical that were evicted for other requests (EvictPressure,
	// EvictPreempt). Each one interrupted an answer. Alert on it.
	OutputCriticalEvictions uint64
}

// block is up to BlockCells cells.
type block struct {
	owner Owner
	tier  Tier
	refs  int // Share calls less Unshare calls; while positive, the block cannot be evicted
	cells int // Invariant: 1 … BlockCells while live, 0 while not
	used  uint64

	older, newer BlockID // in the tier's list, by used
	prev, next   BlockID // in the owner's list, in the order of allocation
}

// ownerRecord lists an owner's blocks.
type ownerRecord struct {
	first, last BlockID           // in the order of allocation
	tail        [NumTiers]BlockID // the block of each tier that may have room
	cells       [NumTiers]int
}

// Blocks is the ledger of KV cells by tier: how many cells each owner has, in blocks of a fixed number of cells, and
// which blocks are evicted first. It moves no bytes; the caller carries out the evictions that it returns.
//
// For a pool without a prefix tree, Allocate and Share make it a complete block manager. With a prefix tree, which
// knows the sequences that share each cell, the caller reports how many cells each request holds alone and how many are
// cached:
//
//	at the start      SetCache, then OnCells(request, Prefix, acquired cells that no other sequence holds)
//	after Decode      OnCells(request, tier, n)    Prefix for its prompt, ThinkActive, then OutputCritical
//	at ExitThink      Demote(request)
//	at the end        Free(request), or Evict when it is preempted; then SetCache
//	for room          EvictOrder                   which owners would lose cells, before anything is done
//	after eviction    EvictCells(CacheOwner, Prefix, n, why), then SetCache
//
// EvictOrder names CacheOwner first, then requests to preempt: thinking ones before answering ones. Think blocks that
// the daemon may neither offload nor drop are evicted only together with their request.
//
// It belongs to one goroutine.
type Blocks struct {
	cfg    BlocksConfig
	blocks []block   // an arena
	spare  []BlockID // Invariant: the ids of all blocks that are not live
	owners map[Owner]*ownerRecord
	rest   []*ownerRecord // for reuse
	lists  [NumTiers]struct{ oldest, newest BlockID }
	clock  uint64
	free   int // cells
	snap   BlocksSnapshot

	victims []BlockVictim
	calls   int // counts verify calls
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
		return nil, fmt.Errorf("meridian: block cells = %d: must be 1 … %d", cfg.BlockCells, 1<<16)
	case cfg.CellBytes < 0:
		return nil, fmt.Errorf("meridian: cell bytes = %d: must not be negative", cfg.CellBytes)
	}
	b := &Blocks{cfg: cfg, owners: map[Owner]*ownerRecord{}, free: cfg.Cells,
		blocks: make([]block, 0, cfg.Cells/cfg.BlockCells+64)}
	for t := range b.lists {
		b.lists[t].oldest, b.lists[t].newest = noBlock, noBlock
	}
	return b, nil
}

// Allocate gives owner n more cells of a tier. If too few are free, it evicts blocks of other owners in the order of
// the tiers, the least recently used first, and never a shared one. The caller carries out the evictions it returns,
// valid until the next call. If that is not enough, it fails with ErrNoCells and changes nothing.
func (b *Blocks) Allocate(o Owner, t Tier, n int) ([]BlockVictim, error) {
	return b.AllocateAll([]Want{{o, t, n}})
}

// AllocateAll is Allocate of several parts: either all of them or none.
func (b *Blocks) AllocateAll(wants []Want) ([]BlockVictim, error) {
	need := 0
	for _, w := range wants {
		if w.Cells < 0 || w.Tier >= NumTiers {
			return nil,
				fmt.Errorf("meridian: allocate %d cells of tier %d for owner %d: cells must not be negative, tier must be below %d",
					w.Cells, w.Tier, w.Owner, NumTiers)
		}
		need += w.Cells
	}
	b.victims = b.victims[:0]
	mine := func(o Owner) bool { return slices.ContainsFunc(wants, func(w Want) bool { return w.Owner == o }) }
	if short := need - b.free; short > 0 {
		could := b.free
		for i := range b.blocks {
			if x := &b.blocks[i]; x.cells > 0 && x.refs == 0 && x.owner != SharedOwner && !mine(x.owner) {
				could += x.cells
			}
		}
		if could < need {
			return nil, fmt.Errorf("allocate: %w: %d cells are needed, %d of %d are free or evictable", ErrNoCells,
				need, could, b.cfg.Cells)
		}
		b.evict(short, mine)
	}
	for _, w := range wants {
		b.extend(w.Owner, w.Tier, w.Cells)
	}
	b.verify()
	return b.victims, nil
}

// EvictFor frees at least n cells in whole blocks, or as many as are evictable; it spares the blocks of except. The
// victims are in the order of eviction and valid until the next call.
func (b *Blocks) EvictFor(n int, except Owner) (freed int, victims []BlockVictim) {
	b.victims = b.victims[:0]
	return b.evict(n, func(o Owner) bool { return o == except }), b.victims
}

func (b *Blocks) evict(n int, spare func(Owner) bool) (freed int) {
	b.walk(n, spare, func(id BlockID, x *block) {
		freed += x.cells
		b.addVictim(x)
		b.countEvicted(x.tier, EvictPressure, 1, x.cells)
		b.remove(id)
	})
	return freed
}

// EvictOrder returns what EvictFor would evict, and changes nothing. It tells a daemon whether to evict cached prefixes
// (victims of CacheOwner), offload a think block or preempt a request. The result is valid until the next call.
func (b *Blocks) EvictOrder(n int, except Owner) (freed int, victims []BlockVictim) {
	b.victims = b.victims[:0]
	b.walk(n, func(o Owner) bool { return o == except }, func(_ BlockID, x *block) {
		freed += x.cells
		b.addVictim(x)
	})
	return freed, b.victims
}

// walk visits, in the order of eviction, the blocks that must go to free n cells.
func (b *Blocks) walk(n int, spare func(Owner) bool, visit func(BlockID, *block)) {
	for _, t := range evictionOrder {
		for id := b.lists[t].oldest; id != noBlock && n > 0; {
			x := &b.blocks[id]
			next := x.newer
			if x.refs == 0 && x.owner != SharedOwner && !spare(x.owner) {
				n -= x.cells
				visit(id, x)
			}
			id = next
		}
	}
}

// addVictim adds a block to the victims.
func (b *Blocks) addVictim(x *block) {
	bytes := int64(x.cells) * int64(b.cfg.CellBytes)
	if k := len(b.victims) - 1; k >= 0 && b.victims[k].Owner == x.owner && b.victims[k].Tier == x.tier {
		v := &b.victims[k]
		v.Blocks, v.Cells, v.Bytes = v.Blocks+1, v.Cells+x.cells, v.Bytes+bytes
		return
	}
	b.victims = append(b.victims, BlockVictim{x.owner, x.tier, 1, x.cells, bytes})
}

// OnCells records that owner has n more cells of a tier, or with a negative n fewer. It evicts nothing: the caller has
// made room before. It returns false and changes nothing when the pool has fewer than n free cells, or the owner fewer
// than -n unshared ones. A decoded token costs O(1) and no allocation.
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

// SetCells sets the number of owner's cells in a tier to n. It fails as OnCells does.
func (b *Blocks) SetCells(o Owner, t Tier, n int) bool {
	return n >= 0 && b.OnCells(o, t, n-b.CellsOf(o, t))
}

// SetCache records how many cells cached prefixes hold: evictable ones, and ones that running requests share or a user
// pinned. It returns false and changes nothing when the pool has fewer cells.
func (b *Blocks) SetCache(evictable, held int) bool {
	a, c := b.CellsOf(CacheOwner, Prefix), b.CellsOf(SharedOwner, Prefix)
	if evictable < 0 || held < 0 || evictable-a+held-c > b.free {
		return false
	}
	// Shrink one before growing the other: the other may need its cells.
	if evictable < a {
		return b.SetCells(CacheOwner, Prefix, evictable) && b.SetCells(SharedOwner, Prefix, held)
	}
	return b.SetCells(SharedOwner, Prefix, held) && b.SetCells(CacheOwner, Prefix, evictable)
}

// CellsOf returns the number of cells that owner has in a tier.
func (b *Blocks) CellsOf(o Owner, t Tier) int {
	if h := b.owners[o]; h != nil {
		return h.cells[t]
	}
	return 0
}

// FreeCells returns the number of free cells.
func (b *Blocks) FreeCells() int { return b.free }

// Demote moves the ThinkActive blocks of owner to ThinkComplete at the end of its think block, and returns their cells.
// The blocks keep their age. Each block costs O(1) plus the number of younger blocks in the tier.
func (b *Blocks) Demote(o Owner) (cells int) {
	h := b.owners[o]
	if h == nil {
		return 0
	}
	at := noBlock // the block moved before this one, the next younger
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

// TouchBlock makes one block the most recently used of its tier. It never changes the tier and ignores ids that are not
// live.
func (b *Blocks) TouchBlock(id BlockID) {
	if b.live(id) {
		b.unlist(id)
		b.list(id)
	}
}

// Free frees owner's blocks and returns the number of cells that became free. Shared blocks pass to SharedOwner until
// the last Unshare. It is idempotent.
func (b *Blocks) Free(o Owner) (cells int) { return b.end(o, NumEvictReasons) }

// Evict is Free, and counts the blocks as evicted for a reason.
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
			b.transfer(id, SharedOwner)
		} else {
			if why < NumEvictReasons {
				b.countEvicted(x.tier, why, 1, x.cells)
			}
			cells += x.cells
			b.remove(id)
		}
		id = next
	}
	return cells
}

// EvictCells takes n cells of a tier from owner, the newest first, and counts them as evicted: cells that the prefix
// tree evicted (CacheOwner), or a think block that was copied to the host. It fails as OnCells does.
func (b *Blocks) EvictCells(o Owner, t Tier, n int, why EvictReason) bool {
	before := b.snap.Blocks[t]
	if n < 0 || !b.OnCells(o, t, -n) {
		return false
	}
	b.countEvicted(t, why, before-b.snap.Blocks[t], n)
	return true
}

// countEvicted adds evicted blocks to the snapshot.
func (b *Blocks) countEvicted(t Tier, why EvictReason, blocks, cells int) {
	b.snap.Evicted[t][why] += uint64(blocks)
	b.snap.EvictedCells[t][why] += uint64(cells)
	if t == OutputCritical && why != EvictDropped {
		b.snap.OutputCriticalEvictions += uint64(blocks)
	}
}

// Share protects a block from eviction until Unshare has been called as often.
func (b *Blocks) Share(id BlockID) error {
	if !b.live(id) {
		return fmt.Errorf("share block %d: %w", id, ErrNoBlock)
	}
	b.blocks[id].refs++
	return nil
}

// Unshare undoes one Share. The last Unshare frees a block whose owner has been freed.
func (b *Blocks) Unshare(id BlockID) error {
	if !b.live(id) || b.blocks[id].refs == 0 {
		return fmt.Errorf("unshare block %d: %w that is shared", id, ErrNoBlock)
	}
	x := &b.blocks[id]
	if x.refs--; x.refs == 0 && x.owner == SharedOwner {
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

// Snapshot returns the ledger's sums.
func (b *Blocks) Snapshot() BlocksSnapshot {
	s := b.snap
	s.FreeCells = b.free
	for t := range s.Cells {
		s.Bytes[t] = int64(s.Cells[t]) * int64(b.cfg.CellBytes)
		s.CachedCells += b.CellsOf(CacheOwner, Tier(t)) + b.CellsOf(SharedOwner, Tier(t))
		s.LiveCells += s.Cells[t]
	}
	s.LiveCells -= s.CachedCells
	return s
}
