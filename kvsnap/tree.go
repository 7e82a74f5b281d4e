package kvsnap

import (
	"errors"
	"fmt"
)

// Token is an id in the model's vocabulary, as in package runtime.
type Token = int32

// Seq is a sequence id of the engine. NoSeq is none.
type Seq = int32

// NoSeq stands where a sequence id is optional.
const NoSeq Seq = -1

// Instant is a point on the caller's monotonic axis, in nanoseconds; the tree never reads a clock. It is the axis of
// sched.Instant.
type Instant int64

var (
	// ErrNoSequence: every sequence id belongs to a running request; wait until one ends.
	ErrNoSequence = errors.New("no sequence id is free")
	// ErrNoEntry: no cached prefix has this id, or this hash.
	ErrNoEntry = errors.New("no such cached prefix")
	// ErrHeld: the cached prefix is being copied (Hold).
	ErrHeld = errors.New("it is being copied")
)

// Config describes the pool that a Tree keeps the books of.
type Config struct {
	Cells     int // KV cells in the pool (n_ctx), ≥ 1
	CellBytes int // bytes of one cell, all layers, K and V
	Sequences int // sequence ids of the engine (n_seq_max), 1 … 256
	Scratch   int // of them kept back for the caller (snapshots, probes): the highest ids, never handed out

	// WholeOnly says that the memory cannot drop or share ranges (sliding windows, recurrent models). A cached prefix is
	// then of use only to a prompt that continues all of it, and is handed over with its sequence id.
	WholeOnly bool
	// ShareSystem lets every namespace match the leading Shareable tokens of everybody's sequences (system prompts).
	// Otherwise namespaces see nothing of each other. It has no effect with WholeOnly.
	ShareSystem bool

	JoinMin  int    // a request waits for another one's prompt when that saves at least so many tokens; 0 = DefaultJoinMin
	KeepMin  int    // shortest prefix worth caching, in tokens; 0 = DefaultKeepMin
	DoubleAt int    // position at which a token costs twice what the first one costs to compute; 0 = DefaultDoubleAt
	Seed     uint64 // of the frequency sketch
}

// Defaults of Config.
const (
	DefaultJoinMin  = 64
	DefaultKeepMin  = 16
	DefaultDoubleAt = 8192
)

// Validate names the field that is out of range, and the range.
func (c *Config) Validate() error {
	switch {
	case c.Cells < 1 || c.Cells > 1<<30:
		return fmt.Errorf("kvsnap: cells = %d: must be 1 … %d", c.Cells, 1<<30)
	case c.CellBytes < 0:
		return fmt.Errorf("kvsnap: cell bytes = %d: must not be negative", c.CellBytes)
	case c.Sequences < 1 || c.Sequences > 256:
		return fmt.Errorf("kvsnap: sequences = %d: must be 1 … 256", c.Sequences)
	case c.Scratch < 0 || c.Scratch >= c.Sequences:
		return fmt.Errorf("kvsnap: scratch = %d: must be 0 … %d, one less than there are sequences", c.Scratch, c.Sequences-1)
	case c.JoinMin < 0 || c.KeepMin < 0 || c.DoubleAt < 0:
		return fmt.Errorf("kvsnap: join min %d, keep min %d, double at %d: must not be negative", c.JoinMin, c.KeepMin, c.DoubleAt)
	}
	return nil
}

// ActionKind says what the engine is to do.
type ActionKind uint8

const (
	// Copy: Engine.SeqCopy(Src, Dst, From, To).
	Copy ActionKind = iota + 1
	// Remove: Engine.SeqRemove(Dst, From, To); To is -1 for "to the end". From 0 to -1 drops the whole sequence, which
	// every memory can do.
	Remove
	// Shift: Engine.SeqAdd(Dst, From, To, Delta).
	Shift
)

// Action is one thing the caller must do in the engine, in the order given and before the next Decode. The tree has
// already counted on it.
type Action struct {
	Kind     ActionKind
	Src, Dst Seq // Src is NoSeq for Remove
	From, To int // positions [From, To); To is -1 for "to the end"
	Delta    int // Shift: added to each position
}

// Reason says why a match ends where it does. It is what a client is told about a cache miss.
type Reason uint8

const (
	// ReasonNothing: no sequence of this namespace begins like the prompt.
	ReasonNothing Reason = iota
	// ReasonFull: everything but the prompt's last token is there; that one is computed for its logits.
	ReasonFull
	// ReasonEnded: a resident sequence was used up whole, the prompt goes on: the next turn of a conversation.
	ReasonEnded
	// ReasonDiverged: a resident sequence goes on with another token.
	ReasonDiverged
	// ReasonComputing: a running request has the same tokens ahead, but has not computed them yet.
	ReasonComputing
	// ReasonEvicted: the prompt's next tokens were seen not long ago and are gone, and something was evicted. It is an
	// estimate (sketch): what was dropped, or not kept when its turn ended, looks the same.
	ReasonEvicted
	// ReasonWhole: tokens agree, but this model's memory cannot share part of a sequence, or the sequence is in use.
	ReasonWhole

	// NumReasons is how many there are.
	NumReasons
)

// String is the reason's name in events and metrics.
func (r Reason) String() string {
	return [...]string{"nothing_cached", "full", "ended", "diverged", "computing", "evicted", "whole_only"}[r]
}

// Prompt is a request that asks for cells.
type Prompt struct {
	Req    uint64  // the request's id; never reused by the caller
	NS     uint32  // namespace: the peer uid, set by the server
	Tokens []Token // ≥ 1; see Tree for how long the tree reads it
	// Shareable is how many leading tokens are the system prompt, which Config.ShareSystem shows to everybody.
	Shareable int
	// Alone keeps the request from waiting for another one's prompt.
	Alone bool
}

// Match is the longest prefix of a prompt that is resident and visible to its namespace.
type Match struct {
	Len     int    // tokens that can be shared, at most len(prompt)-1; 0 = none
	Source  Seq    // a sequence that holds them, NoSeq when Len is 0
	Running bool   // Source belongs to a running request
	Reason  Reason // why it is not longer
	At      int    // position of the first token that is not cached: "diverged at token 812"
	Ahead   int    // tokens beyond Len that the running request On is going to compute; 0 = none
	On      uint64 // the request meant by Ahead
}

// Started is what became of Tree.Start: either the request runs in Seq, or it has to wait.
type Started struct {
	// Held: nothing was started. Request On computes the same prompt and has not got far enough; the tree names this
	// request in the answer of the Progress (or Retain, Release, Stall) call after which it should be started again.
	Held  bool
	On    uint64
	Until int // tokens On will have computed then

	Seq     Seq      // the request's sequence until Retain or Release
	Cached  int      // tokens [0, Cached) are there: compute from Cached on
	Shared  int      // of Cached: cells that others hold too, so that they are not freed with this request
	Match   Match    // how it came about
	Evicted []Victim // cached prefixes that gave up their sequence id for it
	// Actions are valid until the next call.
	Actions []Action
}

// Ended is what became of Retain, Release, Drop.
type Ended struct {
	Entry   uint64   // the cached prefix that keeps the tokens, 0 = none
	Kept    int      // its tokens
	Actions []Action // valid until the next call
	Wake    []uint64 // requests to start again, valid until the next call
}

// Victim is a cached prefix that lost its tail, or all of itself.
type Victim struct {
	Entry    uint64
	NS       uint32
	Seq      Seq
	Tokens   []Token // all it held before; the caller may keep the slice
	From, To int     // positions [From, To) go; From 0 = the whole entry
	Freed    int     // cells that become free: those of the range that nobody else holds
	Offload  bool    // somebody has come back to it before: worth a copy on the host before it goes
	Bytes    int64   // of the freed cells
}

// Cells is the pool at one moment. Invariant: Own + Shared + Cached + Pinned + Free == Config.Cells.
type Cells struct {
	Own    int `json:"own"`    // held by exactly one running request and by nothing else: freed with it
	Shared int `json:"shared"` // held by a running request and by others too: not to be had while it runs
	Cached int `json:"cached"` // held by cached prefixes alone: EvictCells can free them
	Pinned int `json:"pinned"` // held by cached prefixes of which one is pinned or being copied
	Free   int `json:"free"`
}

// Stats count since the tree was made.
type Stats struct {
	Lookups       uint64 // starts, those that were held not counted
	Hits          uint64 // of them: with at least one token cached
	PromptTokens  uint64 // Σ tokens of started prompts
	CachedTokens  uint64 // Σ Cached
	Joins         uint64 // starts that were held for another request's prompt
	Retained      uint64 // cached prefixes made
	Merged        uint64 // cached prefixes that became part of a longer one
	Evictions     uint64 // victims for their cells, each call's once
	EvictedCells  uint64
	IDEvictions   uint64             // victims for their sequence id
	Misses        [NumReasons]uint64 // starts by Match.Reason
	Entries, Runs int                // now: cached prefixes, running requests
}
