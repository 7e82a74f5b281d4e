package sim

import "github.com/uma-serve/uma-serve/sim/blis"

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

// request is one live request: the counters of the batch formation, and the measurements. Structs are reused; Slot
// and gen tell the events of one life from those of the next.
type request struct {
	blis.Request
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
	r := &request{Request: blis.Request{Slot: int32(len(a.slots))}}
	a.slots = append(a.slots, r)
	return r
}

// put frees a request's struct. Events that still name the request become void.
func (a *arena) put(r *request) {
	itl := r.itl[:0]
	seq := r.Seq
	seq.Reset()
	*r = request{Request: blis.Request{Slot: r.Slot, Seq: seq}, gen: r.gen + 1, itl: itl}
	a.free = append(a.free, r.Slot)
}

// of returns the request an event names, nil when it is gone.
func (a *arena) of(e *event) *request {
	if r := a.slots[e.slot]; r.gen == e.gen {
		return r
	}
	return nil
}

// entry returns the request that a list of the server names.
func (a *arena) entry(r *blis.Request) *request { return a.slots[r.Slot] }
