package core

import (
	"time"

	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/meridian/blocks"
	"github.com/uma-serve/uma-serve/model/toolcall"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sampler"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sched/price"
	"github.com/uma-serve/uma-serve/spec"
)

// Aliases of types of other packages.
type (
	// Instant is nanoseconds on the caller's monotonic axis.
	Instant = sched.Instant
	// ID names a request; the caller never reuses one.
	ID    = sched.ReqID
	Token = runtime.Token
	Seq   = runtime.Seq
)

// NoSeq is the sequence of a request or a restore that has none.
const NoSeq = kvsnap.NoSeq

// Request is one generation, or one text to embed. The caller fills the first group of fields; from Handle(Arrive) on
// core owns the request, and Spec does not change. See the package comment.
//
// Invariant: Prompt + MaxTokens ≤ Config.Sched.Cells unless Config.ContextShift; with Fill, Prompt ≤
// Config.Sched.Cells.
type Request struct {
	ID ID
	*Spec
	Arrived Instant // when it reached the caller, not after its Handle(Arrive)
	// Tokens is the whole history: the prompt, then the generated tokens. Capacity for all of it saves allocations.
	// With Config.Tokens it may be empty until the request first starts.
	Tokens  []Token
	Control Thinking           // nil with Embed
	Text    sampler.TextStream // the visible answer; stop strings apply
	Lines   sampler.Lines      // ends it at a line
	Thought sampler.TextStream // the thinking; none apply
	Calls   *toolcall.Parser   // reads the calls of tools in the answer; nil: the request has no tools
	// Thinks reads calls with which the turn ends in a thought that the model does not close; nil: none are read.
	Thinks   *toolcall.Thought
	OneCall  bool               // the answer ends after its first call
	Distinct *toolcall.Distinct // the answer ends at a call that repeats an earlier one; nil: calls may repeat
	Data     any                // the caller's; core does not use it

	// Parts are the images of the prompt: each View's, with At counted from the prompt's begin. Ascending. A request
	// with images has no context shift, so that the places do not change.
	Segments []runtime.ViewSegment

	// Set by the caller before each Token of a constrained answer. Last: this token completes the answer. More: a
	// forced token follows at once in another Token; the scheduler hears of both in one event, and they are computed in
	// one slice, without a row between them.
	Last, More bool

	// Owned by core; methods return some of these.

	residence
	cancelled bool
	ended     bool
	outside
	started bool // it has had a sequence
	// times of the first token and the newest, for Lines
	firstAt, lastAt Instant

	thoughtCells
	guess guess
}

// thoughtCells are the parts of a request's history that its thinking adds and takes. Owned by core.
type thoughtCells struct {
	thought offload // of its finished thought
	// its finished think block is Tokens[thinkFrom:thinkTo]; thinkTo 0: there is none, or it was removed
	thinkFrom, thinkTo int
	cut                int     // tokens removed from its history
	forkTokens         []Token // the rows of the newest probe that it requested; owned by Control, or forkBehind
	forkBehind         []Token // scratch of probeFrom
	fork               Seq     // its scratch sequence in a step with a fork of it
}

// outside is the state of a request's cells that come from the stores. Owned by core.
type outside struct {
	restoring *restore // it waits for this one
	asked     bool     // the stores were asked since it last started
	looks     int      // how often the stores were asked for cells to read ahead
	deferred  bool     // its start waits for restoring
	restored  Tier     // where restored cells came from
	// duration of the restore that it waited for; 0 once it has started again
	restoredIn time.Duration
}

// residence says which cells of a request are in the pool. Owned by core.
type residence struct {
	seq      Seq
	computed int  // tokens of its history in seq
	lingers  int  // computed, when a chat ended
	had      int  // computed, when it was preempted; 0 once it runs again
	waiting  bool // for another request to compute its prompt
	joined   bool // has waited for another request's prompt since it last started
}

// Thinking controls the thinking of one request: a *meridian.Control, or in a simulation one that gets the simulated
// model's tokens. The caller asks it before it draws a token (meridian.Control.Next, Admit); core calls these methods.
type Thinking interface {
	Phase() meridian.Phase
	OnToken(tok Token, piece []byte, eog bool, now int64) meridian.Step
	Flush() (think, answer []byte)
	EndThink(now int64) bool
	ProbeDue() (tokens []Token, ok bool)
	OnProbe(entropy float64)
	ProbeFailed()
}

// Generated returns the number of tokens that the request has generated.
func (r *Request) Generated() int { return len(r.Tokens) + r.cut - r.Prompt }

// Computed returns the number of tokens of its history that are in its sequence.
func (r *Request) Computed() int { return r.computed }

// Seq returns its sequence in the engine, NoSeq while it has none.
func (r *Request) Seq() Seq { return r.seq }

// Waiting reports whether it waits for another request to compute its prompt.
func (r *Request) Waiting() bool { return r.waiting }

// Ended reports whether the request has ended: events that name it are ignored.
func (r *Request) Ended() bool { return r.ended }

// Tier is a place of cells: the pool, then the stores, nearest first.
type Tier uint8

const (
	Device Tier = iota
	Host
	Disk
	Fabric
	NumTiers
)

// String returns the tier's name on the wire and in metrics.
func (t Tier) String() string { return [...]string{"device", "host", "disk", "fabric"}[t] }

// InputKind says what happened.
type InputKind uint8

const (
	// Arrive: a request arrived. Uses Request.
	Arrive InputKind = iota + 1
	// Cancel: the client cancelled it, or disconnected.
	Cancel
	// EndThink: the client asks for the thought to end.
	EndThink
	// Pause: the client does not read. Resume: it reads again.
	Pause
	Resume
	// History answers Step.Histories. Tokens is the beginning of the next turn, nil if it is unknown.
	History
	// Part: the next part of a restore is ready. Uses Restore, P0, P1.
	Part
	// PartsEnd: a restore's source has no further part.
	PartsEnd
	// Drain: reject later arrivals.
	Drain
	// Limit: other engines on the device leave a step this long (sched.EvLimit). Uses Limit, Waited. It is due before a
	// Next whose limit differs from that of the Next before it, or that has waited for the device.
	Limit
	// Offloaded: Tier has every OffloadBlock of Req's thought.
	Offloaded
	// Threads: steps are computed by N threads from now on (sched.EvThreads). Uses N, Disturbed.
	Threads
)

// Input is one thing that happened.
type Input struct {
	Kind    InputKind
	Req     ID
	Request *Request
	Tokens  []Token
	Restore RestoreID
	P0, P1  int // positions [P0, P1)
	Tier    Tier
	Limit   time.Duration // 0 = none
	Waited  time.Duration
	N       int

	Disturbed bool // see sched.EvThreads
}

// RestoreID names a restore until its CloseFetch.
type RestoreID uint32

// OpKind says what the caller is to do.
type OpKind uint8

const (
	// SeqCopy, SeqRemove, SeqShift are the engine's operations on sequences: Src, Dst, From, To (-1 = to the end),
	// Delta.
	SeqCopy OpKind = iota + 1
	SeqRemove
	SeqShift
	// CopyOut stores the cells [From, To) of sequence Src as a part of Tokens[:To], in namespace NS. With Follows it
	// continues the previous CopyOut and must be left out if that one failed.
	CopyOut
	// Fetch begins restore Restore: read the parts of Tokens, of which the pool already has the first From. Handle Part
	// or PartsEnd when the first one is ready. With Req the parts are those of that request's OffloadBlock, from From
	// on; one of them ends at First.
	Fetch
	// SkipPart drops the ready part, because the pool still has it. Handle Part or PartsEnd for the next one.
	SkipPart
	// CopyIn restores ready parts of Restore into sequence Dst, from position From on, up to To or the first part that
	// is not ready. Positions from Limit on are removed again. Answer with Result.Copies. With Req the parts are of a
	// thought that begins at First: Dst holds nothing before it, Src does.
	CopyIn
	// CloseFetch ends a restore's source.
	CloseFetch
	// Flush: no further copy is planned now; send what was gathered.
	Flush
	// Compute gives sequence Dst the cells [From, To) of Tokens at no cost in time: Request.Resident.
	Compute
	// OffloadBlock copies the cells [From, To) of sequence Src out as a part of Req's finished thought, or of the
	// answer behind it (Use). First is the beginning of the batch, and the part with Last its end: Handle Offloaded
	// once all of it is stored.
	OffloadBlock
	// DraftRemove is SeqRemove in the draft model's engine: Dst, From, To.
	DraftRemove
)

// Op is one operation. The ledger already includes its effect.
type Op struct {
	Kind     OpKind
	Src, Dst Seq
	From, To int
	Delta    int
	Limit    int
	Follows  bool
	Last     bool
	First    int
	Req      ID
	Restore  RestoreID
	Tier     Tier        // Fetch: where the parts are, the slowest of them
	Use      blocks.Tier // CopyOut, OffloadBlock: of the part's last cell
	NS       uint64
	// Fetch: how long each token is worth waiting for, that is as long as computing it takes; 0 = unknown.
	Patience time.Duration
	Tokens   []Token // valid until the Done after
	// Fetch: the ends of messages in Tokens, ascending, where others may have sealed them; with Config.Seals.
	Seals []int
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

// End is the end of a request without a last token.
type End struct {
	Request    *Request
	Kind       EndKind
	Reason     sched.Reason
	RetryAfter time.Duration
	// of a strict request, the target that would be missed and what was predicted: see sched.Rejection
	Target, Predicted time.Duration
}

// NoteKind says what happened, for callers that count or log.
type NoteKind uint8

const (
	// Started: a request got a sequence. Cached tokens came from Tier; First is set at its first start, Took when it
	// waited for a restore.
	Started NoteKind = iota + 1
	// Preempted: the request lost its sequence and waits to run again.
	Preempted
	// Parked, Recomputed: it runs again, with at least half of what it had computed, or with less.
	Parked
	Recomputed
	// Shifted, ThoughtDropped: N tokens of its history were removed.
	Shifted
	ThoughtDropped
	// Unpinned: a pinned prefix of N tokens was unpinned for the only request that could run.
	Unpinned
	// Restored: N tokens were restored from Tier in Took.
	Restored
	// ReadAhead: the restore of N tokens from Tier begins while Request is queued.
	ReadAhead
	// Ingested: the N tokens of Request's offloaded thought are in the pool again, from Tier, after Took.
	Ingested
	// Priced: it was decided whether N tokens that Tier has are restored for Request or computed, or, without a
	// Request, whether N evicted tokens are copied to Tier. Uses Price.
	Priced
	// Verified: of the N guessed tokens from Source that the previous step computed for Request, Accepted were what was
	// sampled. Thinking is the phase at the first of them.
	Verified
)

// Note is an event for callers that count or log.
type Note struct {
	Kind    NoteKind
	Request *Request
	First   bool
	N       int
	Tier    Tier
	Match   kvsnap.Match
	Entry   uint64
	Took    time.Duration
	Price   price.Price

	Source   spec.Source
	Accepted int
	Thinking bool
}

// Step is the decision of one Next, for the caller to carry out: see the package comment.
type Step struct {
	Ops       []Op
	Ends      []End
	Histories []*Request // render what the next turn of each begins with, then Handle(History)
	Notes     []Note
	Plan      sched.Plan // the scheduler's; Batch has the rows to decode
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

// CopyState is the state of a restore after a CopyIn.
type CopyState uint8

const (
	// PartAtHand: the next part, [P0, P1), is ready.
	PartAtHand CopyState = iota + 1
	// PartAwaited: it is being read; Handle(Part) will follow.
	PartAwaited
	// PartsOver: there is no further part.
	PartsOver
)

// Copied answers a CopyIn: positions up to To are there.
type Copied struct {
	Restore RestoreID
	To      int
	State   CopyState
	P0, P1  int
}

// Result is the result of a Step.
type Result struct {
	Outcome sched.Outcome // of Decode; ignored without a batch
	Took    time.Duration // of Decode
	// Copies answers each CopyIn. CopyTook is the duration of all CopyIn and CopyOut, CopyTokens the number of tokens
	// that they moved.
	Copies     []Copied
	CopyTook   time.Duration
	CopyTokens int
	// CopyFailed: a CopyOut failed, for lack of room or otherwise.
	CopyFailed bool
}

// Stores lists the cells that are stored outside the pool. Handle and Next ask it, between two steps; only Ops change
// it.
type Stores interface {
	// Find returns the nearest tier that has at least least leading tokens of tokens for ns, and their number. The
	// contents of a fabric are not known before it is asked: Find may then return all.
	Find(ns uint64, tokens []Token, least int) (n int, tier Tier, ok bool)
	// Missing returns the position from which on the local tiers lack cells of tokens; len(tokens) when they have all.
	Missing(ns uint64, tokens []Token) int
}
