package daemon

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// waitingRoom holds the requests that come while the model loads, in their order (--while-loading wait). They count
// against the queue's limit like all others; the daemon is there for them from the moment it listens.
type waitingRoom struct {
	mu      sync.Mutex
	open    bool        // the model is loaded: requests go straight to intake
	shut    *wire.Error // what requests are refused with; nil: none are
	waiting []job       // Invariant: empty once open or shut is set.
}

// enter takes j in, or hands it to jobs, which must have room; otherwise it returns why j is refused.
func (w *waitingRoom) enter(j job, jobs chan<- job) *wire.Error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.shut != nil:
		e := *w.shut
		return &e
	case w.open:
		jobs <- j
	default:
		w.waiting = append(w.waiting, j)
	}
	return nil
}

// leave takes r out, which was cancelled; false: it does not wait here.
func (w *waitingRoom) leave(r *request) (job, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.IndexFunc(w.waiting, func(j job) bool { return j.r == r })
	if i < 0 {
		return job{}, false
	}
	j := w.waiting[i]
	w.waiting = slices.Delete(w.waiting, i, i+1)
	return j, true
}

// release hands all that wait to jobs, which must have room.
func (w *waitingRoom) release(jobs chan<- job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range w.waiting {
		jobs <- j
	}
	w.waiting, w.open = nil, true
}

// close refuses with e whatever comes from now on and returns what waits.
func (w *waitingRoom) close(e *wire.Error) (waiting []job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	waiting, w.waiting, w.shut = w.waiting, nil, e
	return waiting
}

// turnAway ends the requests that wait for the model, and all that come later, with e.
func (s *Server) turnAway(e *wire.Error) {
	for _, j := range s.room.close(e) {
		s.inside.Add(-1)
		own := *e
		s.refuse(j.r, &own)
	}
}

// loadFailed is what requests are told that waited for a model which cannot be loaded.
func loadFailed(err error) *wire.Error {
	return &wire.Error{Code: wire.InternalFailure, Message: "the model cannot be loaded: " + err.Error()}
}

// stillLoading is what requests are told with --while-loading refuse.
func (s *Server) stillLoading() *wire.Error {
	return &wire.Error{Code: wire.ModelUnready, RetryAfter: time.Second,
		Message: fmt.Sprintf(`the model is still loading (%.0f %%); {"type":"health"} says when it is ready`, 100*s.loadProgress())}
}

func shuttingDown() *wire.Error {
	return &wire.Error{Code: wire.ShuttingDown, Message: "the server is shutting down; try again when it is back"}
}
