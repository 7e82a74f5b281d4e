package daemon

import (
	"slices"
	"sync"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// waitroom is what lies between the poller and intake: parsed requests, and how many of each user are inside the server at
// all. Users take turns, so that one that sends a thousand prompts does not keep another's from being tokenized, and
// a full server refuses only those that have their share of it already (the scheduler then makes room for the others:
// sched/share.go).
//
// Requests that come while the model loads wait here too (--while-loading wait): intake begins when it is loaded.
type waitroom struct {
	limit int           // requests inside: --max-queue plus --parallel
	wake  chan struct{} // capacity 1: a token here means "look", or that the room is closed

	mu     sync.Mutex
	users  map[uint32]*waiting // those with requests inside
	turns  []*waiting          // of these, those with requests that wait for intake, in turn
	inside int
	shut   *wire.Error // what requests are refused with; nil: none are
}

// waiting is one user's part.
type waiting struct {
	uid    uint32
	inside int
	jobs   []job // that wait for intake
}

func newWaitroom(limit int) *waitroom {
	return &waitroom{limit: limit, wake: make(chan struct{}, 1), users: map[uint32]*waiting{}}
}

// enter counts a request of uid in, which leave undoes. ok is false when the server is full and uid has its share of it:
// mine requests, where each of so many users may have limit / users.
//
// A user below its share is let in also when the server is full. So less than twice limit is inside at any time.
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

// leave is the end of a request of uid.
func (w *waitroom) leave(uid uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	u := w.users[uid]
	w.inside--
	if u.inside--; u.inside == 0 {
		delete(w.users, uid)
	}
}

// put hands a request that has entered to intake; otherwise it returns why it is refused.
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

// withdraw takes r out, which was cancelled; false: it does not wait here.
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

// count is how many requests are inside.
func (w *waitroom) count() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return int64(w.inside)
}

// next is the oldest request of the user whose turn it is. ok is false when none waits; then closed says whether none will.
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

// close refuses with e what comes from now on, ends intake and returns what waits.
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
