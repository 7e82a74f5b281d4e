// Package live makes live views: what the daemon does now, twice a second, as server-sent events (GET /live, package
// daemon/http). One sampler goroutine serves all views, and runs only while one is open. It reads atomics and a ring of
// steps, and has the decode loop copy the rest between two steps: no wake-up falls into a decode.
package live

import (
	"bytes"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/metrics"
)

const (
	Every = 500 * time.Millisecond // between two samples
	first = 50 * time.Millisecond  // from opening the first view to its first sample

	MaxViews     = 64 // open at the same time
	MaxUserViews = 16 // of one user, except an operator
	viewBacklog  = 8  // events queued for a view that does not read; the next one closes it
)

// Views is the set of open views. Safe from any goroutine.
type Views struct {
	src     Source
	metrics *metrics.Metrics
	ring    atomic.Pointer[Ring] // nil: no view is open, and the decode loop records nothing

	mu    sync.Mutex
	views map[*View]struct{}
	stop  chan struct{} // ends the sampler; nil: none runs
	ended bool          // the server is stopping
}

// New returns an empty set of views of src.
func New(src Source, m *metrics.Metrics) *Views { return &Views{src: src, metrics: m} }

// Ring returns the ring into which the decode loop puts its steps; nil while no view is open.
func (v *Views) Ring() *Ring { return v.ring.Load() }

// View is an open view.
type View struct {
	Out  chan []byte   // events, whole
	Gone chan struct{} // closed to end the view

	uid      uint32
	operator bool
	last     []byte // the state sent last; owned by the sampler
}

// Open opens a view, and starts the sampler with the first. ok is false if too many are open.
func (v *Views) Open(uid uint32, operator bool) (w *View, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	mine := 0
	for o := range v.views {
		if o.uid == uid {
			mine++
		}
	}
	if v.ended || len(v.views) >= MaxViews || !operator && mine >= MaxUserViews {
		return nil, false
	}
	w = &View{uid: uid, operator: operator, Out: make(chan []byte, viewBacklog), Gone: make(chan struct{})}
	if v.views == nil {
		v.views = map[*View]struct{}{}
	}
	v.views[w] = struct{}{}
	v.metrics.LiveViews.Set(int64(len(v.views)))
	if v.stop == nil {
		v.stop = make(chan struct{})
		ring := new(Ring)
		v.ring.Store(ring)
		go v.sample(ring, v.stop)
	}
	return w, true
}

// Close closes a view, and ends the sampler with the last one. Closing a view twice does nothing.
func (v *Views) Close(w *View) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.drop(w)
}

// drop is Close with mu held.
func (v *Views) drop(w *View) {
	if _, open := v.views[w]; !open {
		return
	}
	close(w.Gone)
	delete(v.views, w)
	v.metrics.LiveViews.Set(int64(len(v.views)))
	if len(v.views) == 0 {
		v.ring.Store(nil)
		close(v.stop)
		v.stop = nil
	}
}

// End closes all views when the server stops.
func (v *Views) End() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.ended = true
	for w := range v.views {
		v.drop(w)
	}
}

// sample sends samples to the open views until stop is closed.
func (v *Views) sample(ring *Ring, stop <-chan struct{}) {
	sm := sampler{src: v.src, ring: ring}
	timer := time.NewTimer(first)
	defer timer.Stop()
	for {
		sm.requestSnapshot()
		select {
		case <-stop:
			return
		case <-timer.C:
		}
		timer.Reset(Every)
		sm.collect()
		v.mu.Lock()
		for w := range v.views {
			v.send(w, &sm)
		}
		v.mu.Unlock()
	}
}

// send sends a view the changes since its last event. It closes a view that does not read; the browser reconnects.
// Caller holds mu.
func (v *Views) send(w *View, sm *sampler) {
	t := sm.stateFor(w.uid, w.operator)
	ev := t.full
	if bytes.Equal(t.state, w.last) {
		if ev = sm.brief; len(sm.steps) == 0 && sm.missed == 0 {
			return
		}
	}
	w.last = t.state
	select {
	case w.Out <- ev:
	default:
		v.drop(w)
	}
}

// AppendEvent appends a server-sent event. data has finite numbers and strings.
func AppendEvent(dst []byte, name string, data any) []byte {
	b, err := json.Marshal(data)
	if err != nil {
		panic("live: " + err.Error())
	}
	return append(append(append(append(append(dst, "event: "...), name...), "\ndata: "...), b...), "\n\n"...)
}
