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
//	Output   decodes one token a step of the visible answer; owns a sequence
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
	// EvArrive: a request came in. Uses Req, Class, Owner, Prompt, MaxTokens, TargetTTFT, TargetTBT, Thinking.
	EvArrive EventKind = iota + 1
	// EvCancel: the client cancelled or vanished. Unknown or finished requests are ignored.
	EvCancel
	// EvStep: the outcome of the plan before: Outcome, Took. Exactly one follows every plan with a batch and
	// comes before the EvToken and EvFinish events of that plan's rows.
	EvStep
	// EvToken: a token was sampled from this request's logits row and must be fed next. Uses Req, Thinking.
	EvToken
	// EvFinish: the request ended by itself: its last sampled token was an end of generation, a stop string, or
	// its limit. Uses Req, Finish. Every row is answered by one EvToken, EvFinish or EvCancel.
	EvFinish
	// EvPause: the client does not read; compute nothing for it. EvResume takes that back.
	EvPause
	EvResume
	// EvDrain: take no new request from now on; those that arrive later are rejected.
	EvDrain
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
	Finish     Reason        // EvFinish

	Outcome Outcome       // EvStep
	Took    time.Duration // EvStep: how long Decode took
}

// SliceKind says what a slice of the batch does.
type SliceKind uint8

const (
	SlicePrefill SliceKind = iota
	SliceDecode
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

// Release says that a request no longer owns its sequence: remove its cells. A request that ends while it waits
// owned none: its Seq is -1.
type Release struct {
	Req    ReqID
	Seq    int32 // -1 = none
	Reason Reason
	Final  bool // the request is finalised; false: preempted, it will be computed again
}

// Rejection finalises a request that was never started.
type Rejection struct {
	Req        ReqID
	Reason     Reason
	RetryAfter time.Duration // 0 = retrying will not help
}

// Plan is what to do until the next Step, in this order: Release, Reject, then decode Batch. It is data: it can
// be printed, compared, replayed. Its slices belong to the scheduler and are valid until the next Step.
type Plan struct {
	Release []Release
	Reject  []Rejection
	Batch   []Slice // in batch order; the sum of N never exceeds the batch limit
	WakeAt  Instant // call Step again at this time although nothing happened; 0 = only on an event

	Tokens        int // Σ Batch.N
	DecodeTokens  int
	PrefillTokens int
	Budget        int                // tokens this step was allowed
	PrefillHeld   bool               // the latency guard kept prefill out of this step
	Reason        Reason             // why the batch is not larger
	Waiting       [NumClasses]Reason // why the head of each queue waits; ReasonNone = nobody does
}

// Stats are gauges of the scheduler's state after a Step.
type Stats struct {
	QueuedInteractive int
	QueuedBackground  int
	Prefilling        int
	Decoding          int // Think and Output
	Paused            int
	LiveCells         int // cells held by running requests
	FreeCells         int // Invariant: LiveCells + FreeCells == Config.Cells
	LostCells         int // of FreeCells: those the engine lately refused to give (StepKVFull), decaying
	BudgetTarget      int // tokens a step with prompt work aims at while answers run; Config.MaxBatch under `stock`
	SoloTarget        int // the same while no answer runs
	TickEWMA          time.Duration
	Preemptions       uint64
	GuardSkips        uint64 // steps whose prompts the guard held back
	Ignored           uint64 // events for requests that had ended already
}
