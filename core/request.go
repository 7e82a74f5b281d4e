package core

import (
	"time"

	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sampler"
	"github.com/uma-serve/uma-serve/sched"
)

// Aliases of the vocabulary that every package shares.
type (
	// Instant is nanoseconds on the caller's monotonic axis.
	Instant = sched.Instant
	// ID names a request; the caller never reuses one.
	ID    = sched.ReqID
	Token = runtime.Token
	Seq   = runtime.Seq
)

// NoSeq: a request, or a restore, that has no sequence of the engine.
const NoSeq = kvsnap.NoSeq

// Request is one generation. The caller fills the first group, Handle(Arrive) takes it over; see the package comment.
type Request struct {
	ID         ID
	Owner      uint32 // peer uid: fairness key and cache namespace
	Class      sched.Class
	Arrived    Instant // when it reached the caller; ≤ the Handle that tells of it
	Strict     bool    // reject it when TargetTTFT cannot be met
	TargetTTFT time.Duration
	TargetITL  time.Duration
	// Tokens is the sequence's whole history: the prompt, then what was generated. Room for all of it saves allocations.
	// With Config.Tokens it may be empty until the request first starts.
	Tokens    []Token
	Prompt    int // tokens of the prompt, ≥ 1
	MaxTokens int // most tokens to generate, ≥ 1. Invariant: Prompt + MaxTokens ≤ Config.Tree.Cells unless Config.ContextShift
	Control   Thinking
	Text      sampler.TextStream // the visible answer; stop strings apply
	Thought   sampler.TextStream // the thinking; none apply
	Shareable int                // leading tokens that are the system prompt: see kvsnap.Prompt
	Keep      int                // leading tokens that a context shift leaves alone
	Chat      bool               // its next turn begins with its history as the chat template renders it (Step.Histories)
	Resident  int                // leading tokens that count as cached when it first starts: a recording's warm cache
	Data      any                // the caller's; core does not look at it

	// Of the token at hand, for an answer that is held to a grammar: set before each Token. Last: the answer is complete with
	// it. More: a forced token follows in another Token at once, and the scheduler hears of them together; they are computed
	// in one slice, without a row between them.
	Last, More bool

	// ---- owned by core; the caller may read those that are exported ----

	seq       Seq
	computed  int // tokens of its history in seq
	own       int // of them: cells that the scheduler counts as this request's own
	lingers   int // computed, when a chat ended
	had       int // computed, when it was preempted; 0 once it runs again
	held      bool
	joined    bool // has waited for another request's prompt since it last started
	cancelled bool
	ended     bool
	restoring *restore // that it waits for
	asked     bool     // the stores were asked since it last started
	restored  Tier     // what they gave
	started   bool     // it has been given a sequence before

	thinkFrom, thinkTo int     // its finished think block is Tokens[thinkFrom:thinkTo]; thinkTo 0: none, or no longer there
	cut                int     // tokens taken out of its history
	forkTokens         []Token // the rows of the probe it asked for last; Control's memory
	forced             int     // tokens behind the sampled one that the scheduler has not heard of
	fork               Seq     // its scratch sequence in a step that carries a fork of it
}

// Thinking follows a request's thought: *meridian.Control, or a simulator's wrapper of one that speaks in the tokens of its
// own model. The caller asks it before it draws a token (meridian.Control.Next, Admit); core calls these.
type Thinking interface {
	Phase() meridian.Phase
	OnToken(tok Token, piece []byte, eog bool, now int64) meridian.Step
	Flush() (think, answer []byte)
	EndThink(now int64) bool
	ProbeDue() (tokens []Token, ok bool)
	OnProbe(entropy float64)
	ProbeFailed()
}

// Generated is how many tokens the request has generated.
func (r *Request) Generated() int { return len(r.Tokens) + r.cut - r.Prompt }

// Computed is how many tokens of its history lie in its sequence.
func (r *Request) Computed() int { return r.computed }

// Seq is its sequence in the engine, NoSeq while it has none.
func (r *Request) Seq() Seq { return r.seq }

// Held reports whether it waits for another request to compute its prompt.
func (r *Request) Held() bool { return r.held }

// Ended reports whether the request has ended: events that name it are ignored.
func (r *Request) Ended() bool { return r.ended }

// Tier is a place outside the pool's cells, nearest first.
type Tier uint8

const (
	Device Tier = iota
	Host
	Disk
	Fabric
	NumTiers
)

// String is the tier's name on the wire and in metrics.
func (t Tier) String() string { return [...]string{"device", "host", "disk", "fabric"}[t] }

// InputKind says what happened.
type InputKind uint8

const (
	// Arrive: a request came in. Uses Request.
	Arrive InputKind = iota + 1
	// Cancel: the client cancelled it, or vanished.
	Cancel
	// EndThink: the client asks for an end of the thought.
	EndThink
	// Pause: the client does not read. Resume takes that back.
	Pause
	Resume
	// History answers Step.Histories. Tokens is what the next turn begins with; nil when that cannot be told.
	History
	// Part: the next part of a restore is at hand. Uses Restore, P0, P1.
	Part
	// PartsEnd: a restore's source has no further part.
	PartsEnd
	// Drain: reject what arrives from now on.
	Drain
)

// Input is one thing that happened since the last call.
type Input struct {
	Kind    InputKind
	Req     ID
	Request *Request
	Tokens  []Token
	Restore RestoreID
	P0, P1  int // positions [P0, P1)
}

// RestoreID names a restore until its CloseFetch.
type RestoreID uint32

// OpKind says what the caller is to do.
type OpKind uint8

const (
	// SeqCopy, SeqRemove, SeqShift are the engine's operations on sequences: Src, Dst, From, To (-1 = to the end), Delta.
	SeqCopy OpKind = iota + 1
	SeqRemove
	SeqShift
	// CopyOut stores the cells [From, To) of sequence Src as a part of Tokens[:To], in namespace NS. With Follows it goes on
	// from the CopyOut before it and must be left out when that one failed.
	CopyOut
	// Fetch begins restore Restore: bring the parts of Tokens to hand, where the pool already has the first From. Handle Part
	// or PartsEnd when the first one is there.
	Fetch
	// SkipPart leaves the part at hand out: the pool still has it. Handle Part or PartsEnd for the next.
	SkipPart
	// CopyIn restores the parts at hand of Restore into sequence Dst, from position From on, as far as To and as long as the
	// next one is at hand. Positions from Limit on are removed again. Answer with Result.Copies.
	CopyIn
	// CloseFetch ends a restore's source.
	CloseFetch
	// Flush says that no copies wait: send on what was gathered.
	Flush
	// Compute gives sequence Dst the cells [From, To) of Tokens at no cost in time: Request.Resident.
	Compute
)

// Op is one operation. The pool's books already count on it.
type Op struct {
	Kind     OpKind
	Src, Dst Seq
	From, To int
	Delta    int
	Limit    int
	Follows  bool
	Restore  RestoreID
	Tier     Tier // Fetch: where the parts are, the slowest of them
	NS       uint32
	Tokens   []Token // valid until the Done after
}

// EndKind says how a request ended.
type EndKind uint8

const (
	NotEnded EndKind = iota
	Stopped          // end of generation, or a stop string
	Length           // MaxTokens
	Cancelled
	Rejected // never started, or displaced while it waited: Reason, RetryAfter
	Failed   // Reason
)

// End is the end of a request that no token of its own ended.
type End struct {
	Request    *Request
	Kind       EndKind
	Reason     sched.Reason
	RetryAfter time.Duration
	Need, Have int // cells, when its prompt can never fit
}

// NoteKind says what a caller that counts or logs may want to know.
type NoteKind uint8

const (
	// Started: a request was given a sequence. Cached tokens came from Tier; First only at its first start.
	Started NoteKind = iota + 1
	// Preempted: its sequence was taken back; it waits to run again.
	Preempted
	// Parked, Recomputed: it runs again, with most of what it had, or without.
	Parked
	Recomputed
	// Shifted, ThoughtDropped: N tokens of its history were taken out.
	Shifted
	ThoughtDropped
	// Unpinned: a pinned prefix of N tokens gave way to the only request that could run.
	Unpinned
	// Restored: N tokens came back from Tier in Took.
	Restored
)

// Note is one of them.
type Note struct {
	Kind    NoteKind
	Request *Request
	First   bool
	N       int
	Tier    Tier
	Match   kvsnap.Match
	Entry   uint64
	Took    time.Duration
}

// Step is what to do until the next Next.
type Step struct {
	Ops       []Op
	Ends      []End
	Histories []*Request // render what the next turn of each begins with, then Handle(History)
	Notes     []Note
	Plan      sched.Plan // the scheduler's; Batch is what to decode
	// Idle: there is nothing to do before the next Input, or WakeAt.
	Idle   bool
	WakeAt Instant // 0 = none
}

func (s *Step) reset() {
	clear(s.Ops)
	clear(s.Ends)
	clear(s.Histories)
	clear(s.Notes)
	*s = Step{Ops: s.Ops[:0], Ends: s.Ends[:0], Histories: s.Histories[:0], Notes: s.Notes[:0]}
}

// CopyState is where a restore stands after a CopyIn.
type CopyState uint8

const (
	// PartAtHand: the next part, [P0, P1), can be copied.
	PartAtHand CopyState = iota + 1
	// PartAwaited: it cannot yet; Handle(Part) will tell.
	PartAwaited
	// PartsOver: there is none.
	PartsOver
)

// Copied answers a CopyIn: positions up to To are there.
type Copied struct {
	Restore RestoreID
	To      int
	State   CopyState
	P0, P1  int
}

// Result is what became of a Step.
type Result struct {
	Outcome sched.Outcome // of Decode; ignored without a batch
	Took    time.Duration // of Decode
	// Copies answers each CopyIn. CopyTook is how long all CopyIn and CopyOut took, CopyTokens how many tokens they moved.
	Copies     []Copied
	CopyTook   time.Duration
	CopyTokens int
	// CopyFailed: a CopyOut failed, for want of room or otherwise.
	CopyFailed bool
}

// Stores says what lies outside the pool. It is asked by Handle and Next, between two steps; it changes only through Ops.
type Stores interface {
	// Find names the nearest tier that has at least least leading tokens of tokens for ns, and how many it has. What a fabric
	// has is not known before it is asked: it may promise all.
	Find(ns uint32, tokens []Token, least int) (n int, tier Tier, ok bool)
	// Missing is the position from which on the local tiers lack cells of tokens; len(tokens) when they have all.
	Missing(ns uint32, tokens []Token) int
}
