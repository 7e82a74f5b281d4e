package admission

import (
	"slices"
	"sync"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Waitroom is the queue between the poller and intake. It also counts each user's requests in the server. Intake serves
// users in turn, so that a thousand prompts of one user do not delay those of another, and requests of a lower lane
// first: thousands of texts to embed take seconds, and delay no chat. A full server refuses only users at or above
// their share; the scheduler then makes room for the others (sched/share.go).
//
// Requests that arrive while the model loads wait here too.
type Waitroom[J Job] struct {
	limit int           // of requests in the server: --max-queue plus --parallel
	each  int           // of requests of a user in the server: --limits user_requests; 0 = none
	wake  chan struct{} // capacity 1

	mu     sync.Mutex
	users  map[uint32]*waiting[J] // users with requests in the server
	turns  [lanes][]*waiting[J]   // users with jobs in each lane, in the order of their turns
	inside int                    // requests in the server
	shut   *wire.Error            // the error of new requests; nil while open
}

// Lanes are kinds of requests. Intake takes those of a lower one first, also while it prepares texts to embed.
const (
	LaneAnswers    = iota // answers that a user waits for
	LaneTexts             // texts to embed or rank that a user waits for
	LaneBackground        // all others
	lanes
)

// Job is a request that waits, with what intake needs of it.
type Job interface {
	Owner() uint32 // the user
	Lane() int
}

// waiting is one user's part.
type waiting[J Job] struct {
	inside int        // requests in the server
	jobs   [lanes][]J // requests that wait for intake
}

// NewWaitroom returns a waitroom for limit requests, of which each user may have that many; 0 = no limit of a user's.
func NewWaitroom[J Job](limit, each int) *Waitroom[J] {
	return &Waitroom[J]{limit: limit, each: each, wake: make(chan struct{}, 1), users: map[uint32]*waiting[J]{}}
}

// Wake signals a new job, or the end.
func (w *Waitroom[J]) Wake() <-chan struct{} { return w.wake }

// Enter admits a request of uid and counts it until Leave. ok is false if the server is full and uid has its share:
// mine requests, where each of users may have limit / users. Of a user that has as many as a user may have, users is 0.
//
// A user below its share is admitted to a full server too, so that fewer than 2 × limit requests are in the server.
func (w *Waitroom[J]) Enter(uid uint32) (mine, users int, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	u, users := w.users[uid], len(w.users)
	if u == nil {
		u = &waiting[J]{}
		users++
	}
	if w.each > 0 && u.inside >= w.each {
		return u.inside, 0, false
	}
	if w.inside >= w.limit && u.inside >= max(1, w.limit/users) {
		return u.inside, users, false
	}
	w.users[uid] = u
	u.inside++
	w.inside++
	return u.inside, users, true
}

// Leave ends the count of a request of uid.
func (w *Waitroom[J]) Leave(uid uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	u := w.users[uid]
	w.inside--
	if u.inside--; u.inside == 0 {
		delete(w.users, uid)
	}
}

// Put queues an admitted request for intake. After Close it returns the error to refuse it with.
func (w *Waitroom[J]) Put(uid uint32, j J) *wire.Error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shut != nil {
		e := *w.shut
		return &e
	}
	w.queue(w.users[uid], j, false)
	w.ring()
	return nil
}

// queue adds a job to those of a user, as the first of its lane or as the last. Caller holds mu.
func (w *Waitroom[J]) queue(u *waiting[J], j J, first bool) {
	lane := j.Lane()
	list := &u.jobs[lane]
	if len(*list) == 0 {
		w.turns[lane] = append(w.turns[lane], u)
	}
	if first {
		*list = slices.Insert(*list, 0, j)
	} else {
		*list = append(*list, j)
	}
}

// PutBack queues requests of one user again, which Next returned, before the user's other requests. After Close it
// returns the error to refuse them with.
func (w *Waitroom[J]) PutBack(jobs []J) *wire.Error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shut != nil {
		e := *w.shut
		return &e
	}
	u := w.users[jobs[0].Owner()]
	for _, j := range slices.Backward(jobs) {
		w.queue(u, j, true)
	}
	w.ring()
	return nil
}

// Withdraw removes a request of uid that was cancelled from the queue: that for which is returns true. It returns false
// if none is queued.
func (w *Waitroom[J]) Withdraw(uid uint32, is func(J) bool) (j J, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	u := w.users[uid]
	if u == nil {
		return j, false
	}
	for lane := range u.jobs {
		list := &u.jobs[lane]
		i := slices.IndexFunc(*list, is)
		if i < 0 {
			continue
		}
		j = (*list)[i]
		if *list = slices.Delete(*list, i, i+1); len(*list) == 0 {
			w.turns[lane] = slices.DeleteFunc(w.turns[lane], func(o *waiting[J]) bool { return o == u })
		}
		return j, true
	}
	return j, false
}

// Count returns the number of requests in the server.
func (w *Waitroom[J]) Count() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return int64(w.inside)
}

// Next removes the oldest request of the next user in turn, of the lowest lane. ok is false if none waits; closed then
// reports the end.
func (w *Waitroom[J]) Next() (j J, ok, closed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if j, ok = w.take(lanes); !ok {
		return j, false, w.shut != nil
	}
	return j, true, false
}

// Before is Next for the requests of the lanes below one.
func (w *Waitroom[J]) Before(lane int) (j J, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.take(lane)
}

// take is Before; the caller holds mu.
func (w *Waitroom[J]) take(below int) (j J, ok bool) {
	for lane := range below {
		turns := &w.turns[lane]
		if len(*turns) == 0 {
			continue
		}
		u := (*turns)[0]
		*turns = append((*turns)[:0], (*turns)[1:]...)
		list := &u.jobs[lane]
		j = (*list)[0]
		clear((*list)[:1])
		if *list = (*list)[1:]; len(*list) > 0 {
			*turns = append(*turns, u)
		} else {
			*list = nil
		}
		return j, true
	}
	return j, false
}

// Close refuses new requests with e, ends intake and returns the queued requests.
func (w *Waitroom[J]) Close(e *wire.Error) (jobs []J) {
	w.mu.Lock()
	defer w.mu.Unlock()
	jobs = w.all()
	for _, u := range w.users {
		u.jobs = [lanes][]J{}
	}
	w.turns, w.shut = [lanes][]*waiting[J]{}, e
	w.ring()
	return jobs
}

func (w *Waitroom[J]) ring() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Queued returns the requests that wait for intake.
func (w *Waitroom[J]) Queued() (jobs []J) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all()
}

// all is Queued; the caller holds mu.
func (w *Waitroom[J]) all() (jobs []J) {
	for lane, turns := range w.turns {
		for _, u := range turns {
			jobs = append(jobs, u.jobs[lane]...)
		}
	}
	return jobs
}
