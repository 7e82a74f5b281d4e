package kvsnap

import (
	"errors"
	"fmt"

	"github.com/uma-serve/uma-serve/meridian/blocks"
)

// Token is an id in the model's vocabulary, as in package runtime.
type Token = int32

// Seq is a sequence id of the engine.
type Seq = int32

// NoSeq means that there is no sequence.
const NoSeq Seq = -1

// Instant is a time on the caller's monotonic clock, in nanoseconds; the same clock as sched.Instant.
type Instant int64

var (
	// ErrNoSequence: every sequence id belongs to a running request or a pinned prefix; wait until a request ends.
	ErrNoSequence = errors.New("no sequence id is free")
	// ErrNoEntry: no cached prefix has this id.
	ErrNoEntry = errors.New("no such cached prefix")
)

// Config describes the pool that a Tree manages.
type Config struct {
	Cells      int // KV cells in the pool (n_ctx), ≥ 1
	CellBytes  int // bytes of one cell, all layers, K and V
	BlockCells int // cells of one block, the unit in which evictions are counted; 0 = blocks.DefaultBlockCells
	Sequences  int // sequence ids of the engine (n_seq_max), 1 … 256
	Scratch    int // sequence ids reserved for the caller (snapshots, probes): the highest ones

	// Seals says that the memory keeps a state beside cells or in place of them (recurrent layers): a sequence can be
	// shared at its end only, and no part of it can be removed. The tree then seals prompts: see tree_seal.go.
	Seals bool
	// SealEvery is the distance of seals in a long prompt, in tokens; 0 = DefaultSealEvery.
	SealEvery int
	// ShareSystem lets every namespace match the leading Shareable tokens (system prompts) of all sequences.
	ShareSystem bool

	// JoinMin is the smallest number of tokens for which a request waits for another request's prompt; 0 =
	// DefaultJoinMin.
	JoinMin  int
	KeepMin  int    // shortest prefix worth caching, in tokens; 0 = DefaultKeepMin
	DoubleAt int    // position at which a token costs twice as much to compute as the first; 0 = DefaultDoubleAt
	Seed     uint64 // seed of the frequency sketch
}

// Defaults of Config.
const (
	DefaultJoinMin  = 64
	DefaultKeepMin  = 16
	DefaultDoubleAt = 8192
	// DefaultSealEvery costs a prompt of 2,000 tokens five more steps, and one that parts from it behind the first 512
	// tokens computes 256 again in the mean.
	DefaultSealEvery = 512
)

// Validate returns an error that names the first of the tree's own fields out of range, and the range. New also checks
// the ledger's: Cells, CellBytes and BlockCells.
func (c *Config) Validate() error {
	switch {
	case c.Sequences < 1 || c.Sequences > 256:
		return fmt.Errorf("kvsnap: sequences = %d: must be 1 … 256", c.Sequences)
	case c.Scratch < 0 || c.Scratch >= c.Sequences:
		return fmt.Errorf("kvsnap: scratch = %d: must be 0 … %d, fewer than the sequences", c.Scratch, c.Sequences-1)
	case min(c.JoinMin, c.KeepMin, c.DoubleAt, c.SealEvery) < 0:
		return fmt.Errorf("kvsnap: join min = %d, keep min = %d, double at = %d, seal every = %d: must not be negative",
			c.JoinMin, c.KeepMin, c.DoubleAt, c.SealEvery)
	}
	return nil
}

// ActionKind is the engine operation of an Action.
type ActionKind uint8

const (
	// Copy: Engine.SeqCopy(Src, Dst, From, To).
	Copy ActionKind = iota + 1
	// Remove: Engine.SeqRemove(Dst, From, To). From 0 to -1 drops the whole sequence, which every memory can do.
	Remove
	// Shift: Engine.SeqAdd(Dst, From, To, Delta).
	Shift
)

// Action is an engine operation. The caller carries out all actions, in the order given, before the next Decode: the
// tree's state already includes them.
type Action struct {
	Kind     ActionKind
	Src, Dst Seq // Src is NoSeq for Remove
	From, To int // positions [From, To); To is -1 for "to the end"
	Delta    int // Shift: added to each position
}

// Reason says why a match ends where it does. Clients see it as the cause of a cache miss.
type Reason uint8

const (
	// ReasonNothing: no sequence of this namespace begins like the prompt.
	ReasonNothing Reason = iota
	// ReasonFull: all tokens but the last are cached; the last one is computed for its logits.
	ReasonFull
	// ReasonEnded: the prompt continues all of a resident sequence, as the next turn of a conversation does.
	ReasonEnded
	// ReasonDiverged: the resident sequence continues with another token.
	ReasonDiverged
	// ReasonComputing: a running request has the same tokens but has not computed them yet.
	ReasonComputing
	// ReasonEvicted: the next block was requested lately and is no longer resident, and the tree has evicted cells. It
	// is an estimate from the sketch: dropped cells, and cells that Retain did not keep, look the same.
	ReasonEvicted
	// ReasonWhole: tokens agree, but with Config.Seals a sequence is shared at its end only.
	ReasonWhole

	// NumReasons is the number of reasons.
	NumReasons
)

// String returns the reason's name in events and metrics.
func (r Reason) String() string {
	return [...]string{"nothing_cached", "full", "ended", "diverged", "computing", "evicted", "whole_only"}[r]
}

// Prompt is a request for cells.
type Prompt struct {
	Req    uint64  // the request's id; never reused by the caller
	NS     uint64  // namespace: the peer uid, set by the server
	Tokens []Token // ≥ 1; see Tree for how long the tree reads it
	// Base is the namespace of the first BaseLen tokens, whose cells are as those of Base's prompts; BaseLen 0 = none.
	// Two prompts of one NS have the same BaseLen.
	Base    uint64
	BaseLen int
	// Shareable is the length of the system prompt, in tokens. Config.ShareSystem makes it visible to every namespace.
	Shareable int
	// Seals are the positions to which later prompts are expected to return, in ascending order: the ends of messages.
	// The tree reads them with Config.Seals.
	Seals []int
	// NoWait acquires at once instead of waiting while another request computes the same prompt.
	NoWait bool
	// Apart: nothing is shared with the request, and nothing of it is shared or retained. It is no lookup in Stats.
	Apart bool
}

// Match is the longest prefix of a prompt that is resident and visible to its namespace.
type Match struct {
	Len     int    // tokens that can be shared, at most len(prompt)-1; 0 = none
	Source  Seq    // a sequence that holds them, NoSeq when Len is 0
	Running bool   // Source belongs to a running request
	Reason  Reason // why it is not longer

	Ahead    int    // tokens beyond Len that running request AheadReq is going to compute; 0 = none
	AheadReq uint64 // valid when Ahead > 0
	aheadSeq Seq    // AheadReq's sequence
	agreed   int    // with Config.Seals: tokens that agree with a sequence, sealed or not

	generation uint64 // Tree.generation when the match was made, for AcquireMatch
}

// Acquired is the result of Tree.Acquire: either the request has sequence Seq, or it waits.
type Acquired struct {
	// Waiting: the request got no sequence, because request WaitFor is computing the same prompt. The Progress (or
	// Retain, Release, Stall) call after which this request should call Acquire again returns its id.
	Waiting bool
	WaitFor uint64
	Until   int // tokens that WaitFor will have computed then

	Seq     Seq      // the request's sequence until Retain or Release
	Cached  int      // tokens [0, Cached) are resident: compute from Cached on
	Shared  int      // of Cached: cells that other sequences hold too; releasing this request does not free them
	Match   Match    // the match that Cached follows from
	Evicted []Victim // cached prefixes that gave up their sequence id
	// Stops are the positions behind Cached, in ascending order, at which the caller must end a step and call Seal.
	// They are valid while the request has its sequence.
	Stops []int
	// Actions are valid until the next call.
	Actions []Action
}

// Released is the result of the calls that take cells from a sequence: Retain, Release, Drop, Cut.
type Released struct {
	Entry   uint64   // the cached prefix that keeps the tokens, 0 = none
	Kept    int      // its length in tokens
	Actions []Action // valid until the next call
	Wake    []uint64 // waiting requests that should call Acquire again, in this order; valid until the next call
}

// Victim is a cached prefix that eviction shortened or removed.
type Victim struct {
	Entry    uint64
	NS       uint64
	Seq      Seq
	Tokens   []Token     // the prefix before the eviction; the caller may keep the slice
	From, To int         // the evicted positions [From, To); From 0 = the whole entry
	Req      uint64      // whose preempted request continues with it, 0 = none
	Whole    int         // positions before it are in the pool; To unless a thought of the prefix is offloaded
	Freed    int         // cells that become free: those of the range that no other sequence holds
	Tier     blocks.Tier // of the cells at its end
	Offload  bool        // the prefix was used again at least once: worth a copy on the host
	Bytes    int64       // size of the freed cells
}

// Stats are counters since New, and two current values.
type Stats struct {
	Lookups       uint64 // requests that acquired a sequence
	Hits          uint64 // of them: with at least one token cached
	PromptTokens  uint64 // Σ tokens of their prompts
	CachedTokens  uint64 // Σ Cached
	Joins         uint64 // Acquire calls that answered Waiting
	Retained      uint64 // cached prefixes made, Seals included
	Seals         uint64 // made in the middle of a prompt
	Merged        uint64 // cached prefixes that were merged into a longer one
	Evictions     uint64 // prefixes evicted for their cells, counted once per EvictCells call
	EvictedCells  uint64
	IDEvictions   uint64             // prefixes evicted for their sequence id
	Misses        [NumReasons]uint64 // acquired sequences by Match.Reason
	Entries, Runs int                // now: cached prefixes, running requests
}
