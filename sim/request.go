package sim

import "github.com/uma-serve/uma-serve/sim/workload"

// State is a request's state, as a report names it.
type State uint8

const (
	NotArrived State = iota // its arrival lies beyond the end
	Delayed                 // arrived, in the enqueue delay; BLIS calls it not_arrived, and so do reports
	Queued
	Running
	Completed
	TimedOut
	Dropped  // can never be served: too long for the model or for the cache
	Rejected // refused by the admission policy
	Moved    // went on to another server with its prompt computed
)

var stateNames = [...]string{"not_arrived", "not_arrived", "queued", "running", "completed", "timed_out", "dropped",
	"rejected", "moved"}

func (s State) String() string { return stateNames[s] }

// Request is a live request as a batch formation sees it: counters in tokens.
//
// With n prompt and m output tokens: prefill while Progress < n, decode after. The first output token comes with the
// last prompt token, so there are max(m-1, 0) decode steps and the request is complete at Progress = n + max(m,1) - 1.
type Request struct {
	Spec     workload.Request
	Slot     int32 // its place among the live requests; reused
	Identity workload.Identity

	Progress  int  // prompt tokens computed + decode tokens produced
	NewTokens int  // granted in this step
	Computed  int  // tokens with room in the cache
	HighWater int  // most Progress it ever had: preemption resets Progress, not this
	LostKV    bool // it was preempted: a moved request has to compute its prompt after all
}

// Prefilling reports whether part of the prompt is still to be computed.
func (r *Request) Prefilling() bool { return r.Progress < r.Spec.Input }

// Moved reports whether another server computed its prompt and its cache came along (prefill-decode disaggregation).
func (r *Request) Moved() bool { return r.Spec.Prefilled && !r.LostKV }

// compute gives the request the tokens that it was granted. decoded: one of them is a decode step's; further: it never
// got this far before.
func (r *Request) compute() (decoded, further bool) {
	if r.Prefilling() {
		r.Progress = r.Computed
	} else if r.NewTokens > 0 {
		r.Progress++
		decoded = true
	}
	if r.Progress > r.HighWater {
		r.HighWater = r.Progress
		further = true
	}
	return decoded, further
}

// request is one live request: the counters of the batch formation, and the measurements. Structs are reused; Slot
// and gen tell the events of one life from those of the next.
type request struct {
	Request
	gen uint32

	state State

	ttft      int64 // microseconds after arrival
	ttftSet   bool  // in this life since the last preemption
	hasTTFT   bool  // ever
	itl       []int64
	itlSum    int64
	delay     int64 // last admission - arrival
	admitted  bool  // ever
	enqueued  int64 // when it joined the queue
	firstStep int   // of its last admission
	lastStep  int   // in which it finished
	left      int64 // end of that step
	capped    bool  // ended by max_model_len
	e2e       int64

	tokens   int   // batch formation uma: tokens sampled; a preemption keeps them
	limit    int   // … and the most it may
	handed   bool  // … and it goes to another server with its first token
	stalls   int   // … and how many of Spec.Stalls have begun
	paused   bool  // … and that its client does not read
	moved    int64 // … and when it last got further than before
	lastEmit int64 // … and when the last one was; elsewhere ≠ 0 only until a moved request's next token

	stallMark int64 // Engine.advances + 1 at its last preemption
	idleMark  int64 // the same when it last could not be admitted to an idle server
}

// arena allocates request structs and reuses them.
type arena struct {
	slots []*request
	free  []int32
}

func (a *arena) get() *request {
	if n := len(a.free); n > 0 {
		r := a.slots[a.free[n-1]]
		a.free = a.free[:n-1]
		return r
	}
	r := &request{Request: Request{Slot: int32(len(a.slots))}}
	a.slots = append(a.slots, r)
	return r
}

// put frees a request's struct. Events that still name the request become void.
func (a *arena) put(r *request) {
	itl := r.itl[:0]
	*r = request{Request: Request{Slot: r.Slot}, gen: r.gen + 1, itl: itl}
	a.free = append(a.free, r.Slot)
}

// of returns the request an event names, nil when it is gone.
func (a *arena) of(e *event) *request {
	if r := a.slots[e.slot]; r.gen == e.gen {
		return r
	}
	return nil
}

// entry returns the request that a list of the batch formation names.
func (a *arena) entry(r *Request) *request { return a.slots[r.Slot] }
