package daemon

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/internal/cli/buildinfo"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Live views: GET /live sends the state of the daemon as server-sent events. One sampler goroutine serves all views,
// and runs only while one is open. It reads atomics and the ring of steps, and twice a second has the decode loop copy
// the rest.

const (
	liveEvery = 500 * time.Millisecond // between two samples
	liveFirst = 50 * time.Millisecond  // from opening the first view to its first sample
	livePing  = 15 * time.Second       // without an event, a comment keeps the connection alive

	maxViews     = 64 // open at the same time
	maxUserViews = 16 // of one user, except an operator
	viewBacklog  = 8  // events queued for a view that does not read; the next one closes it
)

// live is the set of open views.
type live struct {
	ring atomic.Pointer[stepRing] // nil: no view is open, and the decode loop records nothing

	mu    sync.Mutex
	views map[*view]struct{}
	stop  chan struct{} // ends the sampler; nil: none runs
	ended bool          // the server is stopping
}

// view is an open connection of GET /live.
type view struct {
	uid      uint32
	operator bool
	out      chan []byte   // events, whole
	gone     chan struct{} // closed to end the view
	last     []byte        // the state sent last; owned by the sampler
}

// add opens a view, and starts the sampler with the first. ok is false if too many are open.
func (v *live) add(s *Server, uid uint32, operator bool) (w *view, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	mine := 0
	for o := range v.views {
		if o.uid == uid {
			mine++
		}
	}
	if v.ended || len(v.views) >= maxViews || !operator && mine >= maxUserViews {
		return nil, false
	}
	w = &view{uid: uid, operator: operator, out: make(chan []byte, viewBacklog), gone: make(chan struct{})}
	if v.views == nil {
		v.views = map[*view]struct{}{}
	}
	v.views[w] = struct{}{}
	s.metrics.LiveViews.Set(int64(len(v.views)))
	if v.stop == nil {
		v.stop = make(chan struct{})
		ring := new(stepRing)
		v.ring.Store(ring)
		go s.sampleLive(ring, v.stop)
	}
	return w, true
}

// remove closes a view, and ends the sampler with the last one. Removing a view twice does nothing.
func (v *live) remove(s *Server, w *view) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.drop(s, w)
}

// drop is remove with mu held.
func (v *live) drop(s *Server, w *view) {
	if _, open := v.views[w]; !open {
		return
	}
	close(w.gone)
	delete(v.views, w)
	s.metrics.LiveViews.Set(int64(len(v.views)))
	if len(v.views) == 0 {
		v.ring.Store(nil)
		close(v.stop)
		v.stop = nil
	}
}

// end closes all views when the server stops.
func (v *live) end(s *Server) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.ended = true
	for w := range v.views {
		v.drop(s, w)
	}
}

// sampleLive sends samples to the open views until stop is closed.
func (s *Server) sampleLive(ring *stepRing, stop <-chan struct{}) {
	sm := sampling{s: s, ring: ring}
	timer := time.NewTimer(liveFirst)
	defer timer.Stop()
	for {
		sm.requestSnapshot()
		select {
		case <-stop:
			return
		case <-timer.C:
		}
		timer.Reset(liveEvery)
		sm.collect()
		s.live.mu.Lock()
		for w := range s.live.views {
			sm.send(w)
		}
		s.live.mu.Unlock()
	}
}

// send sends a view the changes since its last event. It closes a view that does not read; the browser reconnects.
func (sm *sampling) send(w *view) {
	t := sm.stateFor(w.uid, w.operator)
	ev := t.full
	if bytes.Equal(t.state, w.last) {
		if ev = sm.brief; len(sm.steps) == 0 && sm.missed == 0 {
			return
		}
	}
	w.last = t.state
	select {
	case w.out <- ev:
	default:
		sm.s.live.drop(sm.s, w)
	}
}

// appendEvent appends a server-sent event.
func appendEvent(dst []byte, name string, data any) []byte {
	b, err := json.Marshal(data)
	if err != nil {
		panic("daemon: live: " + err.Error()) // structs of finite numbers and strings
	}
	return append(append(append(append(append(dst, "event: "...), name...), "\ndata: "...), b...), "\n\n"...)
}

// LivePath is the path of live views.
const LivePath = "/live"

// liveEvents answers GET /live.
func (s *Server) liveEvents(w http.ResponseWriter, r *http.Request) {
	peer, ok := ipc.PeerOf(r.Context())
	if !ok {
		s.httpError(w, r, &wire.Error{Code: wire.InternalFailure, Message: "the client is not known"})
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if r.Method == http.MethodHead {
		return
	}
	operator := s.cfg.Privileged(peer.UID)
	v, ok := s.live.add(s, peer.UID, operator)
	if !ok {
		s.httpError(w, r, &wire.Error{Code: wire.SessionLimit, RetryAfter: 5 * time.Second, Message: fmt.Sprintf(
			"at most %d live views may be open, %d per user, and none while the server stops; close one", maxViews,
			maxUserViews)})
		return
	}
	defer s.live.remove(s, v)
	rc := http.NewResponseController(w)
	send := func(b []byte) bool {
		if s.cfg.StallTimeout > 0 {
			rc.SetWriteDeadline(time.Now().Add(s.cfg.StallTimeout))
		}
		_, err := w.Write(b)
		return err == nil && rc.Flush() == nil
	}
	hello := wire.LiveHello{UID: peer.UID, Operator: operator, Version: buildinfo.Version,
		EveryMs: int(liveEvery / time.Millisecond)}
	if !send(appendEvent([]byte("retry: 2000\n"), "hello", hello)) {
		return
	}
	ping := time.NewTimer(livePing)
	defer ping.Stop()
	for {
		var b []byte
		select {
		case <-r.Context().Done():
			return
		case <-v.gone:
			return
		case b = <-v.out:
		case <-ping.C:
			b = []byte(": \n\n")
		}
		if !send(b) {
			return
		}
		ping.Reset(livePing)
	}
}
