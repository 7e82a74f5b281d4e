package daemon

import (
	"slices"
	"sync"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// waitroom is the queue between the poller and intake. It also counts each user's requests in the server. Intake serves
// users in turn, so that a thousand prompts of one user do not delay those of another. A full server refuses only users
// at or above their share; the scheduler then makes room for the others (sched/share.go).
//
// Requests that arrive while the model loads wait here too (--while-loading wait).
type waitroom struct {
	limit int           // of requests in the server: --max-queue plus --parallel
	wake  chan struct{} // capacity 1; signals a new job, or the end

	mu     sync.Mutex
	users  map[uint32]*waiting // users with requests in the server
	turns  []*waiting          // users with jobs, in the order of their turns
	inside int                 // requests in the server
	shut   *wire.Error         // the error of new requests; nil while open
}

// waiting is one user's part.
type waiting struct {
	uid    uint32
	inside int   // requests in the server
	jobs   []job // requests that wait for intake
}

func newWaitroom(limit int) *waitroom {
	return &waitroom{limit: limit, wake: make(chan struct{}, 1), users: map[uint32]*waiting{}}
}

// enter admits a request of uid and counts it until leave. ok is false if the server is full and uid has its share:
// mine requests, where each of users may have limit / users.
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
	u := w.users[uid]
	if u.jobs = append(u.jobs, j); len(u.jobs) == 1 {
		w.turns = append(w.turns, u)
	}
	w.ring()
	return nil
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
	if len(u.jobs) == 0 {
		w.turns = append(w.turns, u)
	}
	u.jobs = slices.Insert(u.jobs, 0, jobs...)
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
	i := slices.IndexFunc(u.jobs, func(j job) bool { return j.r == r })
	if i < 0 {
		return job{}, false
	}
	j := u.jobs[i]
	if u.jobs = slices.Delete(u.jobs, i, i+1); len(u.jobs) == 0 {
		w.turns = slices.DeleteFunc(w.turns, func(o *waiting) bool { return o == u })
	}
	return j, true
}

// count returns the number of requests in the server.
func (w *waitroom) count() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return int64(w.inside)
}

// next removes the oldest request of the next user in turn. ok is false if none waits; closed then reports the end.
func (w *waitroom) next() (j job, ok, closed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.turns) == 0 {
		return job{}, false, w.shut != nil
	}
	u := w.turns[0]
	w.turns = append(w.turns[:0], w.turns[1:]...)
	j = u.jobs[0]
	u.jobs[0] = job{}
	if u.jobs = u.jobs[1:]; len(u.jobs) > 0 {
		w.turns = append(w.turns, u)
	} else {
		u.jobs = nil
	}
	return j, true, false
}

// close refuses new requests with e, ends intake and returns the queued requests.
func (w *waitroom) close(e *wire.Error) (jobs []job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, u := range w.turns {
		jobs = append(jobs, u.jobs...)
		u.jobs = nil
	}
	w.turns, w.shut = nil, e
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
	for _, u := range w.turns {
		jobs = append(jobs, u.jobs...)
	}
	return jobs
}
