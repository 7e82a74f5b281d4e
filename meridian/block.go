package meridian

import (
	"errors"
	"fmt"
)

// Tier says what the cells of a block are to the request that owns them, and so how early they may go. The first
// three have the codes of the MRDN wire format.
type Tier uint8

const (
	ThinkComplete  Tier = iota // a think block that is over; its request writes the answer
	ThinkActive                // a think block that is being written
	OutputCritical             // an answer that a user watches
	Prefix                     // prompts and cached prefixes: nobody's own once they are cached

	NumTiers
)

// String is the tier's label in metrics.
func (t Tier) String() string {
	return [...]string{"think_complete", "think_active", "output_critical", "prefix"}[t]
}

// Owner is a request (its id), or CacheOwner, or HeldOwner.
type Owner uint64

// BlockID names a block while it is live; ids are reused, last freed first.
type BlockID int32

// ErrNoCells: not enough cells can be freed. Nothing was evicted.
var ErrNoCells = errors.New("KV cells are exhausted")

// BlocksConfig describes the pool.
type BlocksConfig struct {
	Cells      int // of the pool (n_ctx)
	BlockCells int // cells of one block; 0 = 16
	CellBytes  int // bytes of one cell, all layers, K and V, in the model's own KV types
}

// EvictReason says why blocks went.
type EvictReason uint8

const (
	EvictPressure EvictReason = iota // cells were needed
	EvictDropped                     // asked for by a user
	EvictPreempt                     // their request was parked or is computed again later

	NumEvictReasons
)

// BlockVictim is blocks of one owner and tier that went together.
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

// BlocksSnapshot is the ledger at one moment; each block is counted once.
type BlocksSnapshot struct {
	Blocks, Cells           [NumTiers]int
	Bytes                   [NumTiers]int64
	FreeCells               int
	Evicted                 [NumTiers][NumEvictReasons]uint64 // blocks
	EvictedCells            [NumTiers][NumEvictReasons]uint64
	OutputCriticalEvictions uint64 // blocks of OutputCritical that went for pressure; alert on it
}

// Blocks is the ledger of KV cells by tier.
type Blocks struct{ cfg BlocksConfig }

// NewBlocks makes the ledger of an empty pool.
func NewBlocks(cfg BlocksConfig) (*Blocks, error) {
	return nil, fmt.Errorf("meridian: skeleton")
}

// Allocate gives owner n more cells of a tier, evicting blocks of others when they do not fit: the victims, in order,
// are what the caller has to carry out. ErrNoCells, and nothing has changed, when even that would not be enough.
func (b *Blocks) Allocate(o Owner, t Tier, n int) ([]BlockVictim, error) { panic("skeleton") }

// AllocateAll is Allocate of several parts: all or none.
func (b *Blocks) AllocateAll(w []Want) ([]BlockVictim, error) { panic("skeleton") }

// OnCells tells that owner has n more (or, negative, fewer) cells of a tier, without evicting anything: the daemon's
// way, whose scheduler has made room before. O(1) and no allocation while the last block has room. It reports false,
// and changes nothing, when the pool has no such cells.
func (b *Blocks) OnCells(o Owner, t Tier, n int) bool { panic("skeleton") }

// SetCells makes the cells of owner in a tier exactly n.
func (b *Blocks) SetCells(o Owner, t Tier, n int) bool { panic("skeleton") }

// SetCache tells how many cells are cached: reclaimable, and held by running requests or pinned. The prefix tree
// knows which.
func (b *Blocks) SetCache(reclaimable, held int) bool { panic("skeleton") }

// Demote moves the ThinkActive blocks of owner to ThinkComplete, with their age: at the end of its think block.
func (b *Blocks) Demote(o Owner) (cells int) { panic("skeleton") }

// Touch makes owner the most recently used.
func (b *Blocks) Touch(o Owner) { panic("skeleton") }

// Free gives back everything of owner's and returns how many cells became free. Idempotent.
func (b *Blocks) Free(o Owner) (cells int) { panic("skeleton") }

// Snapshot is the ledger now.
func (b *Blocks) Snapshot() BlocksSnapshot { panic("skeleton") }
