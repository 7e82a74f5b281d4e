package blocks

// Holders counts the sequences that hold a span.
type Holders struct {
	All     int // sequences
	Running int // of them: those of running requests
	Parked  int // of them: cached prefixes from which a preempted request continues
	Pinned  int // of them: cached prefixes that a user pinned
}

func (h Holders) plus(o Holders) Holders {
	return Holders{h.All + o.All, h.Running + o.Running, h.Parked + o.Parked, h.Pinned + o.Pinned}
}

// Minus returns the negative counts, with which Ledger.Hold takes holders away.
func (h Holders) Minus() Holders { return Holders{-h.All, -h.Running, -h.Parked, -h.Pinned} }

// Span is a run of cells that the same sequences hold and that have one tier. The prefix tree keeps one in each node.
// The zero Span is empty. Only the Ledger changes a Span.
type Span struct {
	cells   int // in the pool
	away    int // offloaded. Invariant: cells == 0 or away == 0
	tier    Tier
	holders Holders
	value   float64 // see Ledger.Touch
	used    int64   // time of the last use, in nanoseconds of the caller's clock
}

// Cells returns the number of cells of the pool in the span: its length, or 0 while it is offloaded.
func (s *Span) Cells() int { return s.cells }

// Len returns the length of the span in cells, in the pool or offloaded.
func (s *Span) Len() int { return s.cells + s.away }

// Location is the place of a span's cells.
type Location uint8

const (
	Local     Location = iota // in the pool
	Offloaded                 // copied out, and its cells given up: its request cannot step before IngestBlock
)

// String returns the location's name in dumps.
func (l Location) String() string { return [...]string{"local", "offloaded"}[l] }

// Tier returns the use of the cells. Invariant: Prefix while no running request and no parked prefix holds the span.
func (s *Span) Tier() Tier { return s.tier }

// Holders counts the sequences that hold the cells.
func (s *Span) Holders() Holders { return s.holders }

// State says to which field of Cells a span counts.
type State uint8

const (
	Own State = iota
	Shared
	Cached
	Pinned

	numStates
)

// String returns the state's name in dumps.
func (s State) String() string { return [...]string{"own", "shared", "cached", "pinned"}[s] }

// State returns what the holders make of the span. It is meaningless without holders.
func (s *Span) State() State {
	switch h := &s.holders; {
	case h.Running > 0 && h.All == 1:
		return Own
	case h.Running > 0:
		return Shared
	case h.Pinned > 0:
		return Pinned
	}
	return Cached
}
