// Package queue holds the requests that wait, and decides which of them is next and which are rejected: fairness
// between owners (flow.go), equal shares of the queue and of sequences (share.go), and order by deadline within both.
//
// An Entry is what it knows of a request: whose it is, its class and rank, when its first token is due, and what was
// computed for it. Whether sequences and cells suffice for the next one, and which running request is preempted for it,
// the scheduler knows, which tells each change by one method. It is pure, and allocates only for new owners.
package queue

import (
	"math"
	"time"

	"github.com/uma-serve/uma-serve/sched/cost"
	"github.com/uma-serve/uma-serve/sched/reason"
	"github.com/uma-serve/uma-serve/sched/slo"
)

// Config bounds a Queue; sched.Config has the fields' meaning.
type Config struct {
	MaxRunning int                 // sequences, of which users that wait have equal shares
	MaxQueue   int                 // entries that have never started
	MaxClass   [slo.NumClasses]int // of them: those of a class; 0 = MaxQueue only
	ShareGrace time.Duration
	ByOwner    bool // sequences and cells are shared between users; the queue is in any case
	ByDeadline bool // earlier deadlines go first
}

// Lane names a queue of entries: one lane is served first come, first served, the lanes of a class share by computed
// tokens.
type Lane struct {
	Class slo.Class
	Owner uint32
}

// Entry is one request. It belongs to the queue from Add to Remove; the caller reads its fields and sets Rank.
type Entry struct {
	Slot int // the caller's number of the request's record
	Lane
	User *User

	// Rank orders entries: in one class, the smaller one never gives up cells for the larger one.
	Rank     uint64
	Arrived  slo.Instant
	Deadline slo.Instant // target of the first token; slo.Never = none
	Due      slo.Instant // order of new entries in their flow
	Promise  slo.Instant // Deadline while it is promised and open, else slo.Never
	QueuedAt slo.Instant // when it last entered its flow
	Started  bool        // had a sequence: Config.MaxQueue does not apply, and it is not rejected
	Queued   bool        // is in its flow
	Running  bool        // has a sequence

	flow       *flow
	prev, next *Entry // in its flow
	// paid is the number of tokens of its history that its flow was charged for: computing them again is free. unpaid
	// is the number of prompt tokens that it will still be charged for.
	paid, unpaid int

	waits          bool   // is on its user's waiting list: it never started, and counts against Config.MaxQueue
	waitNo         uint64 // order of these lists
	bornAt         uint64 // Queue.step of its arrival
	earlier, later *Entry // on that list
}

// Served returns the tokens computed for e's lane, in virtual time.
func (e *Entry) Served() int64 { return e.flow.vt }

// Counts are one class's entries.
type Counts struct {
	Members  int         // live
	Queued   int         // in the flows
	Fresh    int         // never started
	Running  int         // with a sequence
	ServedAt slo.Instant // when the class last got a sequence, or began to wait

	vnow int64 // see virtualNow
}

// Queue is the waiting requests of one scheduler, which owns it. The zero value is not usable; see New.
type Queue struct {
	cfg  Config
	now  slo.Instant
	step uint64 // counts Begins

	counts [slo.NumClasses]Counts
	dated  int // entries with a deadline

	flowOf map[Lane]*flow
	heaps  [slo.NumClasses]flowHeap
	busy   [slo.NumClasses][]*flow // those with a running entry

	users     map[uint32]*User // those with live entries
	freeUsers []*User          // records to reuse
	waitNo    uint64           // the newest Entry.waitNo
	excess    []Excess         // scratch
	rejected  int              // entries rejected since a place in the queue became free
	ends      cost.Gaps        // of running entries
}

// New returns an empty queue.
func New(cfg Config) *Queue {
	return &Queue{cfg: cfg, flowOf: make(map[Lane]*flow), users: make(map[uint32]*User)}
}

// Begin sets the time of what follows, at the begin of each Step.
func (q *Queue) Begin(now slo.Instant) {
	q.now = now
	q.step++
}

// Counts returns those of a class.
func (q *Queue) Counts(class slo.Class) Counts { return q.counts[class] }

// Len returns the number of entries that wait in a flow.
func (q *Queue) Len() int { return q.counts[slo.Interactive].Queued + q.counts[slo.Background].Queued }

// Dated returns the number of entries with a deadline.
func (q *Queue) Dated() int { return q.dated }

// Add queues a new entry, whose caller has set Slot, Lane, Rank, Deadline, Due and Promise. Tokens is the length of its
// prompt, owner the one whose share it counts against: a lane can have several.
func (q *Queue) Add(e *Entry, owner uint32, tokens int) {
	e.Arrived, e.bornAt, e.unpaid = q.now, q.step, tokens
	if e.Deadline != slo.Never {
		q.dated++
	}
	e.flow = q.openFlow(e.Lane)
	e.User = q.openUser(owner)
	q.Await(e)
	after := e.flow.tail
	for after != nil && e.Before(after) {
		after = after.prev
	}
	q.insert(e, after)
}

// Remove forgets an entry that has ended, or was rejected.
func (q *Queue) Remove(e *Entry) {
	q.Unqueue(e)
	q.unwait(e)
	if e.Deadline != slo.Never {
		q.dated--
	}
	q.closeFlow(e.flow)
	q.closeUser(e.User)
}

// Start gives e a sequence.
func (q *Queue) Start(e *Entry) {
	q.Unqueue(e)
	if !e.Started {
		e.Started = true
		q.unwait(e)
		q.rejected = max(0, q.rejected-1)
	}
	c, f := &q.counts[e.Class], e.flow
	c.Running++
	c.ServedAt = q.now
	e.Running = true
	e.User.Running++
	q.occupy(f)
	f.pending += int64(e.unpaid)
	q.heaps[e.Class].fix(f)
}

// Stop takes e's sequence away.
func (q *Queue) Stop(e *Entry) {
	f := e.flow
	q.counts[e.Class].Running--
	e.Running = false
	e.User.Running--
	q.vacate(f)
	f.pending -= int64(e.unpaid)
	q.heaps[e.Class].fix(f)
}

// Ended records that a running entry has ended: its place is free.
func (q *Queue) Ended() { q.ends.Add(int64(q.now), 0.2) }

// Charge adds to e's flow what was computed for e, of whose history computed tokens are in its sequence, except tokens
// that were computed before.
func (q *Queue) Charge(e *Entry, computed int) {
	n := computed - e.paid
	if n <= 0 {
		return
	}
	q.pay(e, n)
	e.flow.vt += int64(n)
	q.heaps[e.Class].fix(e.flow)
}

// Spare takes the first cached tokens of e's history as paid: flows are charged for computed tokens.
func (q *Queue) Spare(e *Entry, cached int) {
	q.pay(e, max(0, cached-e.paid))
	q.heaps[e.Class].fix(e.flow)
}

func (q *Queue) pay(e *Entry, n int) {
	was := e.unpaid
	e.paid += n
	e.unpaid = max(0, was-n)
	e.flow.pending -= int64(was - e.unpaid)
}

// Retry bounds a retry-after hint, and rounds it.
func Retry(d time.Duration) time.Duration {
	return min(max(d.Round(10*time.Millisecond), minRetry), maxRetry)
}

// retryAfter estimates when a place in the queue will be free for the newest rejected entry: each end of a request
// opens one, and the requests rejected earlier will come back too.
func (q *Queue) retryAfter() time.Duration {
	if !q.ends.Known {
		return time.Second
	}
	gap := math.Max(q.ends.Value, float64(int64(q.now)-q.ends.Last))
	return Retry(time.Duration(math.Min(gap*float64(q.rejected), float64(maxRetry))))
}

// Retry-after hints stay within these.
const (
	minRetry = 100 * time.Millisecond
	maxRetry = time.Minute
)

// Excess is an entry for which the queue has no room.
type Excess struct {
	*Entry
	Why        reason.Reason
	RetryAfter time.Duration
}
