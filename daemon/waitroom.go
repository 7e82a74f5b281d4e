package daemon

import (
	"slices"
	"sync"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// waitroom is the queue between the poller and intake. It also counts each user's requests in the server. Intake serves
// users in turn, so that a thousand prompts of one user do not delay those of another, and requests of a lower lane
// first: thousands of texts to embed take seconds, and delay no chat. A full server refuses only users at or above
// their share; the scheduler then makes room for the others (sched/share.go).
//
// Requests that arrive while the model loads wait here too.
type waitroom struct {
	limit int           // of requests in the server: --max-queue plus --parallel
	each  int           // of requests of a user in the server: --limits user_requests; 0 = none
	wake  chan struct{} // capacity 1; signals a new job, or the end

	mu     sync.Mutex
	users  map[uint32]*waiting // users with requests in the server
	turns  [lanes][]*waiting   // users with jobs in each lane, in the order of their turns
	inside int                 // requests in the server
	shut   *wire.Error         // the error of new requests; nil while open
}

// A lane is a kind of requests. Intake takes those of a lower one first, also while it prepares texts to embed.
const (
	laneAnswers    = iota // answers that a user waits for
	laneTexts             // texts to embed or rank that a user waits for
	laneBackground        // all others
	lanes
)

// lane returns the lane of a job.
func (j *job) lane() int {
	switch {
	case j.r.embed != nil && j.r.embed.w.Priority == wire.PriorityBackground,
		j.w != nil && j.w.Priority == wire.PriorityBackground:
		return laneBackground
	case j.r.embed != nil:
		return laneTexts
	}
	return laneAnswers
}

// waiting is one user's part.
type waiting struct {
	uid    uint32
	inside int          // requests in the server
	jobs   [lanes][]job // requests that wait for intake
}

func newWaitroom(limit, each int) *waitroom {
	return &waitroom{limit: limit, each: each, wake: make(chan struct{}, 1), users: map[uint32]*waiting{}}
}

// enter admits a request of uid and counts it until leave. ok is false if the server is full and uid has its share:
// mine requests, where each of users may have limit / users. Of a user that has as many as a user may have, users is 0.
//
// A user below its share is admitted to a full server too, so that fewer than 2 × limit requests are in the server.
func (w *waitroom) enter(uid uint32) (mine, users int, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	u, users := w.users[uid], len(w.users)
	if u == nil {
		u = &waiting{uid: uid}
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

// leave ends the count of a request of uid.
func (w *waitroom) leave(uid uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	u := w.users[uid]
	w.inside--
	if u.inside--; u.inside == 0 {
		delete(w.users, uid)
	}
}

// put queues an admitted request for intake. After close it returns the error to refuse it with.
func (w *waitroom) put(uid uint32, j job) *wire.Error {
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
func (w *waitroom) queue(u *waiting, j job, first bool) {
	lane := j.lane()
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

// putBack queues requests of one user again, which next returned, before the user's other requests. After close it
// returns the error to refuse them with.
func (w *waitroom) putBack(jobs []job) *wire.Error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shut != nil {
		e := *w.shut
		return &e
	}
	u := w.users[jobs[0].r.Owner]
	for _, j := range slices.Backward(jobs) {
		w.queue(u, j, true)
	}
	w.ring()
	return nil
}

// withdraw removes a cancelled request from the queue. It returns false if r is not queued.
func (w *waitroom) withdraw(r *request) (job, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	u := w.users[r.Owner]
	if u == nil {
		return job{}, false
	}
	for lane := range u.jobs {
		list := &u.jobs[lane]
		i := slices.IndexFunc(*list, func(j job) bool { return j.r == r })
		if i < 0 {
			continue
		}
		j := (*list)[i]
		if *list = slices.Delete(*list, i, i+1); len(*list) == 0 {
			w.turns[lane] = slices.DeleteFunc(w.turns[lane], func(o *waiting) bool { return o == u })
		}
		return j, true
	}
	return job{}, false
}

// count returns the number of requests in the server.
func (w *waitroom) count() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return int64(w.inside)
}

// next removes the oldest request of the next user in turn, of the lowest lane. ok is false if none waits; closed then
// reports the end.
func (w *waitroom) next() (j job, ok, closed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if j, ok = w.take(lanes); !ok {
		return job{}, false, w.shut != nil
	}
	return j, true, false
}

// before is next for the requests of the lanes below one.
func (w *waitroom) before(lane int) (j job, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.take(lane)
}

// take is before; the caller holds mu.
func (w *waitroom) take(below int) (j job, ok bool) {
	for lane := range below {
		turns := &w.turns[lane]
		if len(*turns) == 0 {
			continue
		}
		u := (*turns)[0]
		*turns = append((*turns)[:0], (*turns)[1:]...)
		list := &u.jobs[lane]
		j = (*list)[0]
		(*list)[0] = job{}
		if *list = (*list)[1:]; len(*list) > 0 {
			*turns = append(*turns, u)
		} else {
			*list = nil
		}
		return j, true
	}
	return job{}, false
}

// close refuses new requests with e, ends intake and returns the queued requests.
func (w *waitroom) close(e *wire.Error) (jobs []job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	jobs = w.all()
	for _, u := range w.users {
		u.jobs = [lanes][]job{}
	}
	w.turns, w.shut = [lanes][]*waiting{}, e
	w.ring()
	return jobs
}

func (w *waitroom) ring() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// queued returns the requests that wait for intake.
func (w *waitroom) queued() (jobs []job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all()
}

// all is queued; the caller holds mu.
func (w *waitroom) all() (jobs []job) {
	for lane, turns := range w.turns {
		for _, u := range turns {
			jobs = append(jobs, u.jobs[lane]...)
		}
	}
	return jobs
}
