package sched

import (
	"time"

	"github.com/uma-serve/uma-serve/sched/cost"
	"github.com/uma-serve/uma-serve/sched/reason"
	"github.com/uma-serve/uma-serve/sched/slo"
)

// Types of the rooms below that callers save and show.
type (
	Cost      = cost.Cost
	CostState = cost.State
	Class     = slo.Class
	Instant   = slo.Instant
	Reason    = reason.Reason // why a decision was made. Every slice, release, rejection and wait has exactly one
)

// Attended returns the number of KV cells that n rows from position start on attend to.
func Attended(start, n int) float64 { return cost.Attended(start, n) }

// ReqID names a request for its whole life. The caller never reuses one.
type ReqID uint64

const (
	Interactive = slo.Interactive
	Background  = slo.Background
	NumClasses  = slo.NumClasses
)

// State is a request's state. Ownership in each state:
//
//	Queued   waits; owns no sequence and no cells
//	Prefill  owns a sequence; part of its tokens is in the KV pool
//	Think    decodes its thinking, one token a step; owns a sequence
//	Output   decodes its visible answer, one token a step and forced ones with it; owns a sequence
//	Done     stopped, reached its limit, or was cancelled; owns nothing
//	Failed   was rejected, or failed; owns nothing
//
// A request thinks once: after its think block it stays in Output, as before the block. A preempted request goes back
// to Queued, computes in Prefill the tokens that are not cached, and continues in its phase.
type State uint8

const (
	Queued State = iota
	Prefill
	Think
	Output
	Done
	Failed
)

// Outcome is the result of Decode for a plan's batch.
type Outcome uint8

const (
	StepOK      Outcome = iota
	StepAborted         // nothing was computed; the caller removed what the batch had put into the sequences
	StepKVFull          // the engine had too few free cells; nothing was computed
	StepFailed          // the engine failed; every request of the batch fails
	StepLate            // given up as Plan.Bound allows; the caller removed what the batch had put into the sequences
)

// SliceKind says what a slice of the batch does.
type SliceKind uint8

const (
	SlicePrefill SliceKind = iota
	SliceDecode
	// SliceProbe is a fork of the request whose SliceDecode precedes it: N rows from the same Start on, in a scratch
	// sequence of the caller that shares the cells before Start (Seq is -1). Its first row is the decode's token again,
	// the caller supplies the others, and Row is its last. No event answers it. After the step, remove its N cells from
	// the scratch sequence.
	SliceProbe
)

// Slice is one request's part of the batch: N tokens of its history (prompt, then generated) from index Start,
// which is also their position in sequence Seq.
type Slice struct {
	Req   ReqID
	Seq   int32
	Start int
	N     int
	// Row is the batch index of the logits row of the history's last token, or -1 when the slice does not end the
	// history. The Guessed tokens stand behind that one, and each of them has a row too.
	Row int
	// Guessed is the number of the N tokens that are guesses of the caller for the tokens after the history
	// (EvToken.Offer).
	Guessed int
	// Drafted: the Guessed tokens are the draft model's (EvToken.Draft), which guesses them before Decode.
	Drafted bool
	// Feed is the number of history tokens that the draft model computes before Decode, from the first one that it
	// lacks on: all of them with Drafted.
	Feed   int
	Kind   SliceKind
	Reason Reason
}

// Start says that a request gets sequence Seq: share or restore its cached prefix, and answer with one EvStarted,
// EvDefer or EvCancel.
type Start struct {
	Req ReqID
	Seq int32
}

// Release says that a request no longer owns its sequence: remove its cells, or cache them. The Seq of a request that
// ends while it waits is -1.
type Release struct {
	Req    ReqID
	Seq    int32 // -1 = none
	Reason Reason
	Final  bool // the request has ended; false: it was preempted and will start again
	// Phase is the state of the preempted request: Prefill (no token yet), Think or Output. Zero without Config.Prefix
	// or when Final.
	Phase State
}

// Rejection ends a request that was never started.
type Rejection struct {
	Req        ReqID
	Reason     Reason
	RetryAfter time.Duration // 0 = retrying will not help
	Need, Have int           // cells, with reason.PromptTooLong: what it needs at least, and the size of the pool
	// With reason.TTFT, reason.MissesITL and reason.MissesTTOT: the target, and what was predicted for it. Predicted 0:
	// the target could be met, but then a promise given before could not; with reason.MissesITL Target is that promise.
	Target, Predicted time.Duration
}

// Plan is the decision of one Step. Carry it out in this order: Release, Reject, Start, then decode Batch. Its slices
// belong to the scheduler and are valid until the next Step.
type Plan struct {
	Release []Release
	Reject  []Rejection
	Start   []Start // with Config.Prefix only
	Batch   []Slice // in batch order; the sum of N never exceeds the batch limit
	// Again: the batch is empty because it is not decided yet. Carry out Release and Start, then call Step at once with
	// the answers to Start and, if it changed, EvCells. Only with Config.Prefix.
	Again bool
	// Reclaim is the number of cells that the only request that could run still needs: unpin prefixes. If Again is set
	// too and the cells do not come, the request fails.
	Reclaim int
	WakeAt  Instant // call Step again at this later time even without an event; 0 = only on an event

	Tokens        int // Σ Batch.N
	DecodeTokens  int
	PrefillTokens int
	ProbeTokens   int
	GuessedTokens int                // not among DecodeTokens
	Predicted     time.Duration      // of Decode, by the cost model; 0 with an empty Batch
	Bound         Bound              // when Decode is better given up
	Drafting      time.Duration      // predicted for the draft model, before Decode
	States        bool               // a head may soon need the states of the batch's rows (Config.DraftStates)
	Budget        int                // most tokens of this step
	PrefillHeld   bool               // the guard kept prompts out of this step
	Reason        Reason             // why the batch is not larger
	Waiting       [NumClasses]Reason // why the head of each queue waits; reason.None = the queue is empty
}

// Bound lets the caller give a step up that is going to miss the ITL target: the answers get their tokens from the next
// one, without the prompts. The zero value: it is computed in any case.
type Bound struct {
	Decide time.Duration // the latest time after the begin of Decode at which giving it up keeps the target
	Limit  time.Duration // it is given up if it is going to take longer
}

// GuardState is the effect of the ITL target on prompts.
type GuardState uint8

const (
	GuardOpen GuardState = iota // no answer with a target runs
	GuardTrim                   // chunks are cut to what fits under the target
	GuardHold                   // prompts are left out of the step

	NumGuardStates
)

// Decision is one entry of a request's log: consecutive decisions for the same reason.
type Decision struct {
	Reason Reason
	First  Instant // of the first such decision
	Last   Instant // of the newest
	Times  int     // decisions
	Tokens int     // computed by them
	Latest int     // of Tokens: by the newest decision
}

// Summary describes a request that has ended.
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
	FreeCells         int // cells that requests can have
	LostCells         int // of FreeCells: those that the engine seems to lack after StepKVFull, decaying
	// tokens that a step with prompt work aims at while answers run; Config.MaxBatch under `stock`
	BudgetTarget int
	SoloTarget   int // the same while no answer runs
	TickEWMA     time.Duration
	Preemptions  uint64
	GuardSkips   uint64 // steps whose prompts the guard held
	Ignored      uint64 // events for requests that had ended already

	// ByState counts live requests by class and state: Queued (paused and deferred ones too), Prefill, Think, Output.
	ByState [NumClasses][Output + 1]int
	Parked  int // of Queued: preempted requests
	// ParkedIn counts those of Parked that continue a thought or an answer; indexed by State.
	ParkedIn [Output + 1]int
	Deferred int // of Queued: requests that wait for a prefix (EvDefer)

	Guard            GuardState
	TargetInfeasible bool          // a step of answers alone takes longer than the tightest ITL target
	ITLTarget        time.Duration // the tightest one of the newest step; 0 = none
	ThinkHeld        int           // rows of thinking requests that the newest step left out
	ThinkHeldTotal   uint64
	TTFTAtRisk       int // requests before their first token that missed TargetTTFT, or will by the cost model

	Cost      Cost          // the coefficients now
	CostError float64       // moving average of |predicted − took| / took
	CostRatio float64       // what the next step takes at most in 95 of 100 cases, relative to the prediction
	Predicted time.Duration // of the newest batch
}
