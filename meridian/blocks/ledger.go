// Package blocks is the KV block manager: the one ledger of a pool's cells, and the order in which they are evicted.
//
// The ledger counts each cell once, as part of a Span. The prefix tree (kvsnap) keeps the spans, since it knows which
// sequences hold which cells, and tells the ledger of every change: allocation (Grow), sharing (Hold), use (SetTier,
// Touch), eviction (Evict). Scheduler, prefix tree, metrics and reports ask the ledger and count nothing themselves.
//
// # Eviction order
//
// Only cells that no running request holds and that no user pinned are evicted. Their order is Prefix, ThinkComplete,
// ThinkActive, OutputCritical: cached and idle prefixes first, answers last. Within a tier the least valuable span
// goes first (Touch), then the least recently used one. When a request is preempted its cells stay cached in the
// tiers that they had, so that the answer that it will continue outlives idle prefixes and all thoughts. When it
// ends, they become Prefix. A decoder attends to every earlier token, so the prefix tree offers the ends of its
// branches for eviction, and finished thoughts that were copied out: they go alone (OffloadBlock) and come back
// before their request runs (IngestBlock). A thought that was not copied out goes after the answer behind it, but
// before every other answer.
//
// Claim is the order in which running requests are preempted.
//
// The package is pure: it moves no bytes, reads no clock and belongs to one goroutine.
package blocks

import (
	"fmt"
	"iter"

	"github.com/uma-serve/uma-serve/internal/invariants"
)

// DefaultBlockCells is the default of Config.BlockCells.
const DefaultBlockCells = 16

// Config describes the pool.
type Config struct {
	Cells      int // KV cells in the pool (n_ctx), ≥ 1
	CellBytes  int // bytes of one cell, all layers, K and V, in the model's own KV types
	BlockCells int // cells of one block, the unit in which evictions are counted; 0 = DefaultBlockCells
}

// Cells counts the pool's cells by state. Invariant: Own + Shared + Cached + Pinned + Free == Config.Cells.
type Cells struct {
	Own    int `json:"own"`    // held by one running request only: freed with it
	Shared int `json:"shared"` // held by a running request and other sequences: unavailable while it runs
	Cached int `json:"cached"` // held by cached prefixes only: evictable
	Pinned int `json:"pinned"` // held by cached prefixes only, at least one of them pinned: not evictable
	Free   int `json:"free"`
}

// Evictions counts blocks and cells that were taken from their request or cached prefix since New.
type Evictions struct {
	Blocks [NumTiers][NumReasons]uint64
	Cells  [NumTiers][NumReasons]uint64
	// Answers counts blocks of OutputCritical that other requests needed (Pressure, Preempted).
	Answers uint64
	// Interruptions counts the events in which they were taken: a preempted answer, or an eviction that reached cells
	// of answers. Alert on it.
	Interruptions uint64
}

// Ledger counts the cells of one pool.
type Ledger struct {
	cfg      Config
	cells    [numStates][NumTiers]int
	free     int
	reserved int
	away     int     // cells of offloaded spans
	level    float64 // see Touch and RaiseLevel
	evicted  Evictions
}

// New returns the ledger of an empty pool. The error names the field that is out of range.
func New(cfg Config) (*Ledger, error) {
	if cfg.BlockCells == 0 {
		cfg.BlockCells = DefaultBlockCells
	}
	switch {
	case cfg.Cells < 1 || cfg.Cells > 1<<30:
		return nil, fmt.Errorf("blocks: cells = %d: must be 1 … %d", cfg.Cells, 1<<30)
	case cfg.CellBytes < 0:
		return nil, fmt.Errorf("blocks: cell bytes = %d: must not be negative", cfg.CellBytes)
	case cfg.BlockCells < 1 || cfg.BlockCells > 1<<16:
		return nil, fmt.Errorf("blocks: block cells = %d: must be 1 … %d", cfg.BlockCells, 1<<16)
	}
	return &Ledger{cfg: cfg, free: cfg.Cells}, nil
}

// Cells counts the cells by state.
func (l *Ledger) Cells() Cells {
	return Cells{Own: l.of(Own), Shared: l.of(Shared), Cached: l.of(Cached), Pinned: l.of(Pinned), Free: l.free}
}

func (l *Ledger) of(s State) (n int) {
	for _, c := range l.cells[s] {
		n += c
	}
	return n
}

// Free returns the number of cells that nothing holds.
func (l *Ledger) Free() int { return l.free }

// Room returns the number of cells that requests can have without a preemption: the free and the evictable ones, less
// the reserved ones. It is negative while reserved cells were given to requests.
func (l *Ledger) Room() int { return l.free + l.of(Cached) - l.reserved }

// Reserve sets n free or evictable cells aside for a copy that is under way; a negative n returns them.
func (l *Ledger) Reserve(n int) {
	if l.reserved += n; l.reserved < 0 {
		panic(fmt.Sprintf("blocks: %d cells are reserved", l.reserved))
	}
}

// Reserved returns the number of cells that Reserve set aside.
func (l *Ledger) Reserved() int { return l.reserved }

// EvictableBefore returns the number of evictable cells whose tier goes before t.
func (l *Ledger) EvictableBefore(t Tier) (n int) {
	for o, c := range l.cells[Cached] {
		if Tier(o).Before(t) {
			n += c
		}
	}
	return n
}

// Tiers counts the cells in use by tier.
func (l *Ledger) Tiers() (cells [NumTiers]int) {
	for s := range l.cells {
		for t, c := range l.cells[s] {
			cells[t] += c
		}
	}
	return cells
}

// Bytes returns the size of n cells.
func (l *Ledger) Bytes(n int) int64 { return int64(n) * int64(l.cfg.CellBytes) }

// Evictions returns the counters.
func (l *Ledger) Evictions() Evictions { return l.evicted }

// Allocate makes s a span of n free cells for the given holders. It panics when fewer cells are free: evict first.
func (l *Ledger) Allocate(s *Span, t Tier, n int, h Holders) {
	*s = Span{tier: t}
	l.Hold(s, h)
	l.Grow(s, n)
}

// Grow adds n free cells to a span that has holders. It panics when fewer cells are free: evict first.
func (l *Ledger) Grow(s *Span, n int) {
	if n > l.free {
		panic(fmt.Sprintf("blocks: a span grows by %d cells, %d are free", n, l.free))
	}
	l.cells[s.State()][s.tier] += n
	s.cells += n
	l.free -= n
	l.verify()
}

// Hold adds holders to s, or takes them away (Holders.Minus). The cells of a span without holders are free.
func (l *Ledger) Hold(s *Span, h Holders) {
	l.count(s, -1)
	if s.holders = s.holders.plus(h); s.holders.Running+s.holders.Parked == 0 {
		s.tier = Prefix
	}
	if s.holders.All == 0 {
		l.away -= s.away // nothing needs it any more
		s.away = 0
	}
	l.count(s, 1)
	l.verify()
}

// SetTier changes the use of a span's cells.
func (l *Ledger) SetTier(s *Span, t Tier) {
	l.count(s, -1)
	s.tier = t
	l.count(s, 1)
}

// OffloadBlock gives up the cells of s, which were copied out and which no request that steps holds, and returns
// their number. With IngestBlock and BlockLocation it is offload_block, ingest_block and block_location of Meridian's
// ADR-0006; the caller moves the bytes.
func (l *Ledger) OffloadBlock(s *Span) int {
	if s.holders.Running > 0 || s.holders.Pinned > 0 || s.cells == 0 {
		panic(fmt.Sprintf("blocks: a span of %d cells with holders %+v is offloaded", s.cells, s.holders))
	}
	l.count(s, -1)
	s.cells, s.away = 0, s.cells
	l.away += s.away
	l.count(s, 1)
	l.verify()
	return s.away
}

// IngestBlock gives s free cells again, into which its content has been copied. It panics when fewer cells are free:
// evict first.
func (l *Ledger) IngestBlock(s *Span) {
	n := s.away
	l.away -= n
	s.away = 0
	l.Grow(s, n)
}

// BlockLocation returns the place of the cells of s.
func (l *Ledger) BlockLocation(s *Span) Location {
	if s.away > 0 {
		return Offloaded
	}
	return Local
}

// Offloaded returns the number of cells that OffloadBlock has given up and IngestBlock has not had back.
func (l *Ledger) Offloaded() int { return l.away }

// Split makes upper, an empty span, the first n cells of s, which keeps the others.
func (l *Ledger) Split(upper, s *Span, n int) {
	*upper = *s
	upper.cells = n
	s.cells -= n
}

// Join adds the cells of upper, which the same sequences hold, to s. upper is empty then. s gets the tier that is
// evicted later, and the higher value.
func (l *Ledger) Join(upper, s *Span) {
	l.count(upper, -1)
	l.count(s, -1)
	s.cells += upper.cells
	s.tier, s.value, s.used = later(s.tier, upper.tier), max(s.value, upper.value), max(s.used, upper.used)
	*upper = Span{}
	l.count(s, 1)
	l.verify()
}

// count adds s to the sums, or with sign -1 takes it out.
func (l *Ledger) count(s *Span, sign int) {
	if s.holders.All > 0 {
		l.cells[s.State()][s.tier] += sign * s.cells
		l.free -= sign * s.cells
	}
}

// Touch records that s was used now and is worth so much: how often its cells were requested lately times the cost of
// computing one of them again. The value of a span is its worth plus the eviction level, which rises to the value of
// each span that is evicted. This is GreedyDual-Size-Frequency (Cherkasova, HP Labs technical report HPL-98-69R1,
// 1998): cells that are no longer requested fall behind, and cells requested k times outlive k pools of cells
// requested once.
func (l *Ledger) Touch(s *Span, now int64, worth float64) {
	s.used = max(s.used, now)
	s.value = max(s.value, l.level+worth)
}

// Inherit raises the value of s to that of o, which s replaces.
func (l *Ledger) Inherit(s, o *Span) { s.value = max(s.value, o.value) }

// Worth returns the value of s above the eviction level.
func (l *Ledger) Worth(s *Span) float64 { return s.value - l.level }

// MoreValuable reports whether a is worth more than b.
func (l *Ledger) MoreValuable(a, b *Span) bool { return a.value > b.value }

// Compare orders spans by eviction: it is negative when a goes before b, and 0 when the ledger does not distinguish
// them.
func (l *Ledger) Compare(a, b *Span) int {
	switch {
	case a.tier != b.tier:
		return rank[a.tier] - rank[b.tier]
	case a.value != b.value:
		return sign(a.value < b.value)
	case a.used != b.used:
		return sign(a.used < b.used)
	}
	return 0
}

func sign(less bool) int {
	if less {
		return -1
	}
	return 1
}

// RaiseLevel raises the eviction level to the value of s, which is evicted for want of cells; see Touch.
func (l *Ledger) RaiseLevel(s *Span) { l.level = max(l.level, s.value) }

// Evict counts n cells that were taken from the holders of s for a reason. s may be a copy from before.
func (l *Ledger) Evict(s *Span, n int, why Reason) { l.EvictTier(s.tier, n, why) }

// EvictTier is Evict for n cells of a tier.
func (l *Ledger) EvictTier(t Tier, n int, why Reason) {
	blocks := uint64((n + l.cfg.BlockCells - 1) / l.cfg.BlockCells)
	l.evicted.Blocks[t][why] += blocks
	l.evicted.Cells[t][why] += uint64(n)
	if t == OutputCritical && why != Dropped {
		l.evicted.Answers += blocks
	}
}

// AnswerBlocks returns Evictions.Answers, for Interrupted.
func (l *Ledger) AnswerBlocks() uint64 { return l.evicted.Answers }

// Interrupted counts an event if AnswerBlocks has risen since it was before.
func (l *Ledger) Interrupted(before uint64) {
	if l.evicted.Answers > before {
		l.evicted.Interruptions++
	}
}

// Audit recounts the cells from all spans that have holders and returns an error that names the first difference.
func (l *Ledger) Audit(spans iter.Seq[*Span]) error {
	recount := Ledger{free: l.cfg.Cells}
	for s := range spans {
		switch h := s.holders; {
		case s.Len() < 1 || s.cells > 0 && s.away > 0 || h.All < 1 || min(h.Running, h.Parked, h.Pinned) < 0 ||
			h.Running+max(h.Parked, h.Pinned) > h.All:
			return fmt.Errorf("a span of %d cells has holders %+v", s.cells, h)
		case h.Running+h.Parked == 0 && s.tier != Prefix:
			return fmt.Errorf("no request needs a span of %v", s.tier)
		}
		recount.count(s, 1)
		recount.away += s.away
	}
	if recount.away != l.away {
		return fmt.Errorf("the ledger counts %d offloaded cells, the spans have %d", l.away, recount.away)
	}
	if recount.cells != l.cells || recount.free != l.free {
		return fmt.Errorf("the ledger counts %v and %d free cells by state and tier, the spans have %v and %d", l.cells,
			l.free, recount.cells, recount.free)
	}
	return l.conserved()
}

// conserved checks that the sums and the free cells are those of the pool.
func (l *Ledger) conserved() error {
	n := l.free
	for s := range l.cells {
		for t, c := range l.cells[s] {
			if n += c; c < 0 {
				return fmt.Errorf("%d cells are %v %v", c, State(s), Tier(t))
			}
		}
	}
	if n != l.cfg.Cells || l.free < 0 {
		return fmt.Errorf("%v and %d free cells by state and tier in a pool of %d", l.cells, l.free, l.cfg.Cells)
	}
	return nil
}

// verify follows every change in builds with invariants.
func (l *Ledger) verify() {
	if invariants.Enabled {
		if err := l.conserved(); err != nil {
			panic("blocks: " + err.Error())
		}
	}
}
