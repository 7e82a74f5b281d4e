package sched

import "time"

// Instant is a point on a monotonic axis, in nanoseconds; the caller chooses its origin. The scheduler never
// reads a clock.
type Instant int64

// Add returns the instant d later.
func (t Instant) Add(d time.Duration) Instant { return t + Instant(d) }

// Sub returns how long after u the instant t is.
func (t Instant) Sub(u Instant) time.Duration { return time.Duration(t - u) }

// ReqID names a request for its whole life. The caller never reuses one.
type ReqID uint64

// Class is a request's priority class. Interactive goes before Background.
type Class uint8

const (
	Interactive Class = iota
	Background

	// NumClasses is how many there are, for arrays indexed by Class.
	NumClasses
)

// State is where a request is. Ownership in each state:
//
//	Queued   waits; owns no sequence and no cells
//	Prefill  owns a sequence; part of its tokens is in the KV pool
//	Think    decodes one token a step inside its thinking block; owns a sequence
//	Output   decodes one token a step of the visible answer, or forced ones with it; owns a sequence
//	Done     finalised by itself (stop, length, cancelled); owns nothing
//	Failed   finalised by a rejection or an error; owns nothing
//
// A request thinks once: after its think block has ended it stays in Output (what it writes before the block
// counts as Output too). A preempted one goes back to Queued, computes its tokens
// again in Prefill, and then goes on in the phase it had.
type State uint8

const (
	Queued State = iota
	Prefill
	Think
	Output
	Done
	Failed
)

// EventKind says what happened since the last Step.
type EventKind uint8

const (
	// EvArrive: a request came in. Uses Req, Class, Owner, Prompt, MaxTokens, TargetTTFT, TargetTBT, Thinking,
	// Strict, Ago, and Shared as EvReady does.
	EvArrive EventKind = iota + 1
	// EvCancel: the client cancelled or vanished. Unknown or finished requests are ignored.
	EvCancel
	// EvStep: the outcome of the plan before: Outcome, Took. Exactly one follows every plan with a batch and
	// comes before the EvToken and EvFinish events of that plan's rows.
	EvStep
	// EvToken: a token was sampled from this request's logits row and must be fed next. Uses Req, Thinking, Probe, Cut,
	// Forced.
	EvToken
	// EvFinish: the request ended by itself: its last sampled token was an end of generation, a stop string, or
	// its limit. Uses Req, Finish. Every row is answered by one EvToken, EvFinish or EvCancel.
	EvFinish
	// EvPause: the client does not read; compute nothing for it. EvResume takes that back.
	EvPause
	EvResume
	// EvDrain: take no new request from now on; those that arrive later are rejected.
	EvDrain

	// The rest exists with Config.Prefix only.

	// EvStarted answers a Plan.Start: the request goes on. Uses Req, Cached, Shared.
	EvStarted
	// EvHold answers a Plan.Start: a prefix that it needs is not there yet. It waits at the head of its queue,
	// without a sequence, until EvReady. Uses Req, Finish: ReasonJoining or ReasonRestoring.
	EvHold
	// EvReady: what EvHold waited for is there, or never will be. Uses Req, and Shared: how many cells of its history
	// lie in the pool that EvPool tells of, or are owned by a running request, as far as is known (0 = not known);
	// so much less is asked of the free cells to let it in.
	EvReady
	// EvPool: how many cells are held by nobody's request and cannot be given up: cached prefixes that a running
	// request shares (after the one that computed them has gone), or that are pinned, or being copied. Uses Cells: an
	// absolute number.
	EvPool
)

// Outcome is what Decode did with a plan's batch.
type Outcome uint8

const (
	StepOK      Outcome = iota
	StepAborted         // nothing of the batch counts; the caller removed the sequences back to where they were
	StepKVFull          // no cell was free; nothing of the batch counts: make room
	StepFailed          // the backend failed; every request of the batch is failed
)

// Event is one thing that happened, as plain data: a recorded list of (now, events) replays to the same plans.
type Event struct {
	Kind EventKind
	Req  ReqID

	Class      Class         // EvArrive
	Owner      uint32        // EvArrive: peer uid, the fairness key
	Prompt     int           // EvArrive: tokens to compute before the first can be sampled, ≥ 1
	MaxTokens  int           // EvArrive: most tokens it will generate, ≥ 1
	TargetTTFT time.Duration // EvArrive: wished time to first token, 0 = none; orders the prompts of one owner
	TargetTBT  time.Duration // EvArrive: wished time between tokens, 0 = the configured one
	Thinking   bool          // EvArrive: the prompt's tail opens a think block; EvToken: the state after this token
	Strict     bool          // EvArrive: reject it at once when TargetTTFT is not to be kept
	Finish     Reason        // EvFinish, EvHold

	// EvArrive: how long before this Step the request had reached the caller. It decides nothing; a recorded trace has
	// it, so that a simulation lets the request arrive when it did, not when the running step was over.
	Ago time.Duration

	// EvToken: in the step that carries this request's next row, decode a fork of so many rows too (SliceProbe).
	// 0 = none.
	Probe int
	// EvToken: so many tokens of its history were taken out of its sequence, which holds that many fewer now: a context
	// shift, or a thought that was dropped. They must have been its own cells. 0 = none.
	Cut int
	// EvToken: so many tokens follow the sampled one that need no row, because a grammar leaves no other. They are computed
	// with it, in one slice where there is room. 0 = none.
	Forced int
	// EvStarted: so many tokens of its history are in its sequence already; fewer than its history has.
	Cached int
	// EvStarted: of Cached, those whose cells are counted elsewhere, by EvPool or as another request's own.
	Shared int
	Cells  int // EvPool

	Outcome Outcome       // EvStep
	Took    time.Duration // EvStep: how long Decode took
}

// SliceKind says what a slice of the batch does.
type SliceKind uint8

const (
	SlicePrefill SliceKind = iota
	SliceDecode
	// SliceProbe is a fork of the request whose SliceDecode is the slice before: N rows from the same Start on, in
	// a scratch sequence of the caller's that shares the cells before Start (Seq is -1). Its first row is the
	// decode's token again, its others are the caller's; Row is its last. No EvToken answers it, and when the
	// step is over its N cells are free again: remove them from the scratch sequence.
	SliceProbe
)

// Slice is one request's part of the batch: N tokens of its history (prompt, then generated) from index Start,
// which is also their position in sequence Seq.
type Slice struct {
	Req    ReqID
	Seq    int32
	Start  int
	N      int
	Row    int // batch index of the logits row (its last token), or -1 when the slice does not end the history
	Kind   SliceKind
	Reason Reason
}

// Start says that a request is let in and owns sequence Seq: look for its cached prefix, share or restore it, and
// answer with one EvStarted, EvHold or EvCancel.
type Start struct {
	Req ReqID
	Seq int32
}

// Release says that a request no longer owns its sequence: remove its cells. A request that ends while it waits
// owned none: its Seq is -1.
type Release struct {
	Req    ReqID
	Seq    int32 // -1 = none
	Reason Reason
	Final  bool // the request is finalised; false: preempted, it will be computed again
	// Phase is what a preempted request was doing: Prefill (no token yet), Think or Output. Zero without
	// Config.Prefix or when Final.
	Phase State
}

// Rejection finalises a request that was never started.
type Rejection struct {
	Req        ReqID
	Reason     Reason
	RetryAfter time.Duration // 0 = retrying will not help
	Need, Have int           // cells, with ReasonPromptTooLong: the least it needs, and what the pool has
}

// Plan is what to do until the next Step, in this order: Release, Reject, Start, then decode Batch. It is data: it
// can be printed, compared, replayed. Its slices belong to the scheduler and are valid until the next Step.
type Plan struct {
	Release []Release
	Reject  []Rejection
	Start   []Start // with Config.Prefix only
	Batch   []Slice // in batch order; the sum of N never exceeds the batch limit
	// Again: the batch is not decided yet, and empty. Carry out Release and Start, then call Step at once with the
	// answers to Start and, if it changed, EvPool. Only with Config.Prefix.
	Again bool
	// Reclaim is how many cells of EvPool's are in the way of the one request that is next, while nothing else runs:
	// pins must give way. If they do not when Again is set too, the request fails.
	Reclaim int
	WakeAt  Instant // call Step again at this time, which lies ahead, although nothing happened; 0 = only on an event

	Tokens        int // Σ Batch.N
	DecodeTokens  int
	PrefillTokens int
	ProbeTokens   int
	Predicted     time.Duration      // what the cost model says that Decode will take; 0 with an empty Batch
	Budget        int                // tokens this step was allowed
	PrefillHeld   bool               // the latency guard kept prefill out of this step
	Reason        Reason             // why the batch is not larger
	Waiting       [NumClasses]Reason // why the head of each queue waits; ReasonNone = nobody does
}

// GuardState is what the latency promise does to prompts.
type GuardState uint8

const (
	GuardOpen GuardState = iota // nothing runs that a chunk could delay too long
	GuardTrim                   // chunks are cut to what fits under the target
	GuardHold                   // prompts are left out of the step

	NumGuardStates
)

// Decision is one entry of a request's log: the same reason in consecutive decisions, told once.
type Decision struct {
	Reason Reason
	First  Instant // of the first such decision
	Last   Instant // of the newest
	Times  int     // how many these were
	Tokens int     // computed for it by them; the newest one's in Latest
	Latest int
}

// Summary is what is remembered of a request that has ended.
type Summary struct {
	Req       ReqID
	Class     Class
	Owner     uint32
	Arrived   Instant
	Ended     Instant
	Reason    Reason // why it ended
	Prompt    int
	Generated int
}

// Stats are gauges of the scheduler's state after a Step.
type Stats struct {
	QueuedInteractive int
	QueuedBackground  int
	Prefilling        int
	Decoding          int // Think and Output
	Paused            int
	LiveCells         int // cells that are running requests' own
	PoolCells         int // EvPool's
	FreeCells         int // Invariant: LiveCells + PoolCells + FreeCells == Config.Cells
	LostCells         int // of FreeCells: those the engine lately refused to give (StepKVFull), decaying
	BudgetTarget      int // tokens a step with prompt work aims at while answers run; Config.MaxBatch under `stock`
	SoloTarget        int // the same while no answer runs
	TickEWMA          time.Duration
	Preemptions       uint64
	GuardSkips        uint64 // steps whose prompts the guard held back
	Ignored           uint64 // events for requests that had ended already

	// ByState counts live requests by class and by what they do: Queued (paused and held ones too), Prefill, Think,
	// Output.
	ByState [NumClasses][Output + 1]int
	Parked  int // of Queued: those that ran before and were preempted
	Held    int // of Queued: those that wait for a prefix (EvHold)

	Guard            GuardState
	TargetInfeasible bool          // a step of answers alone takes longer than the tightest target between tokens
	ITLTarget        time.Duration // the tightest target between tokens of the newest step; 0 = none
	ThinkHeld        int           // think rows that the newest step left out
	ThinkHeldTotal   uint64
	TTFTAtRisk       int // requests before their first token whose TargetTTFT passed, or will by the cost model

	Cost      Cost          // the coefficients now
	CostError float64       // moving average of |predicted − took| / took
	CostRatio float64       // the took / predicted that 95 of 100 steps stay below
	Predicted time.Duration // of the newest batch
}
