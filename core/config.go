package core

import (
	"errors"
	"fmt"
	"time"

	"github.com/uma-serve/uma-serve/sched"
)

const (
	// MaxSequences is the largest number of sequence ids of an engine: llama.cpp's LLAMA_MAX_SEQ.
	MaxSequences = 256
	// scratchSequences of them belong to no request: one for snapshots, one for a thought that is copied back, the
	// others for the probe forks of one step.
	scratchSequences = 6
	// MaxForks is the limit on probe forks in a step.
	MaxForks = scratchSequences - 2
)

// What --think-evict does with a finished thought's cells.
const (
	KeepThoughts = "none"
	// copied out when they end; under pressure a preempted request gives up their cells first
	OffloadThoughts = "offload"
	DropThoughts    = "drop" // removed from the sequence when cells run low: lossy
)

// SchedConfig returns the configuration of New's scheduler: Config.Sched with cached prefixes and forks.
func SchedConfig(c sched.Config) sched.Config {
	c.Prefix, c.Forks = true, MaxForks
	return c
}

// Config describes the server.
type Config struct {
	Sched     sched.Config // see SchedConfig
	Sequences int          // sequence ids of the engine, see Sequences
	CellBytes int          // bytes of one KV cell, all layers, K and V
	// cells of one block, the unit in which evictions are counted; 0 = blocks.DefaultBlockCells
	BlockCells    int
	ShareSystem   bool // system prompts are shared between owners
	NoPrefixCache bool // requests that end leave no cached prefix

	Seals        bool // a sequence can be shared at its end alone: see kvsnap.Config.Seals
	CanShift     bool // the engine's memory can move positions
	ContextShift bool // a full context loses its oldest half
	// Longest is the largest context of one request, in tokens; 0 = Sched.Cells.
	Longest    int `json:",omitempty"`
	ThinkEvict string

	Stores     Stores `json:"-"` // nil: cells that are evicted are computed again
	Durable    bool   // new prefixes are copied out in idle time: a tier outlives the process, or is shared
	PartTokens int    // unit of every copy, see PartTokensOf
	// CopyPerToken is the expected time of copying one token's cells, until copies are measured.
	CopyPerToken time.Duration

	// ByPrice: cells are restored, and copied as they are evicted, only where that is predicted to be quicker than
	// computing them (sched.Prices); else always.
	ByPrice bool

	Draft DraftConfig // of the draft model
	// Synthetic are the probabilities with which guess i of a step is taken for the model's token, whatever the model
	// says, if those before it were: for measuring what guesses of such a quality bring. nil: guesses are compared.
	Synthetic []float64 `json:",omitempty"`

	// Tokens fills Request.Tokens of a request that starts for the first time; nil: they are set at Arrive.
	Tokens func(*Request) `json:"-"`
	// Trace records every call; nil: nothing is recorded.
	Trace *Trace `json:"-"`
	// Planned gets each list of events and the scheduler's plan. Both are valid during the call only.
	Planned func(now Instant, in *sched.Events, plan *sched.Plan) `json:"-"`
}

// PartTokensOf returns the unit of every copy, in tokens, for cells of so many bytes: at most 128 tokens and about 4
// MiB, which take 0.3 to 1 ms, and at most as many as a snapshot may have (0 = any number; a divisor of it, so that no
// part crosses the border of two of its length). It depends on the model alone and parts end at multiples of it, so
// that two machines cut the same prompt in the same places.
func PartTokensOf(cellBytes, most int) int {
	n := min(128, max(16, 4<<20/max(cellBytes, 1)/16*16))
	if most > 0 {
		for n = min(n, most); most%n != 0; n-- {
		}
	}
	return n
}

// Validate returns an error that names the first field out of range.
func (c *Config) Validate() error {
	switch {
	case c.Sequences > MaxSequences:
		return fmt.Errorf("core: sequences = %d: must be at most %d", c.Sequences, MaxSequences)
	case c.Sched.MaxRunning > MaxRunning(c.Sequences):
		return fmt.Errorf("core: %d requests may run, but only %d sequence ids are left for them", c.Sched.MaxRunning,
			MaxRunning(c.Sequences))
	case c.Stores != nil && c.PartTokens < 1:
		return errors.New("core: part tokens = 0: copies need a unit")
	}
	for i, p := range c.Synthetic {
		if !(p >= 0 && p <= 1) {
			return fmt.Errorf("core: synthetic chance %d = %v: must be 0…1", i, p)
		}
	}
	switch c.ThinkEvict {
	case "", KeepThoughts, OffloadThoughts, DropThoughts:
		return c.Draft.Validate()
	}
	return fmt.Errorf("core: think evict %q: must be %q, %q or %q", c.ThinkEvict, KeepThoughts, OffloadThoughts,
		DropThoughts)
}
