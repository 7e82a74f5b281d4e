package daemon

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/internal/buildinfo"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Live views: GET /live sends what the daemon is doing as server-sent events. One sampler serves all of them. It
// runs only while a view is open, reads atomics and the ring of steps, and asks the decode loop for a copy of the rest
// twice a second.

const (
	liveEvery = 500 * time.Millisecond // between two samples
	liveFirst = 50 * time.Millisecond  // from the first view to its first sample
	livePing  = 15 * time.Second       // without an event, a comment shows that the connection lives

	maxViews     = 64 // open at once
	maxUserViews = 16 // of one user, unless it is the operator
	viewBacklog  = 8  // events that wait for a view that does not read; with one more it is closed
)

// live is the set of open views.
type live struct {
	ring atomic.Pointer[stepRing] // nil: no view is open, and the decode loop records nothing

	mu    sync.Mutex
	views map[*view]struct{}
	stop  chan struct{} // ends the sampler; nil: none runs
	ended bool          // the server stops
}

// view is an open connection of GET /live.
type view struct {
	uid      uint32
	operator bool
	out      chan []byte   // events, whole
	gone     chan struct{} // closed when the view is to end
	last     []byte        // the state that it was sent last; the sampler's
}

// add takes a view in, and starts the sampler with the first. ok is false when there are too many.
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

// remove ends a view, and the sampler with the last. Removing a view twice does nothing.
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

// end closes every view, for the end of the server.
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
		sm.ask()
		select {
		case <-stop:
			return
		case <-timer.C:
		}
		timer.Reset(liveEvery)
		sm.look()
		s.live.mu.Lock()
		for w := range s.live.views {
			sm.tell(w)
		}
		s.live.mu.Unlock()
	}
}

// tell sends a view what is new since its last event. A view that does not read is closed: its browser opens another one.
func (sm *sampling) tell(w *view) {
	t := sm.toldOf(w.uid, w.operator)
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
	operator := s.cfg.privileged(peer.UID)
	v, ok := s.live.add(s, peer.UID, operator)
	if !ok {
		s.httpError(w, r, &wire.Error{Code: wire.SessionLimit, RetryAfter: 5 * time.Second, Message: fmt.Sprintf(
			"%d live views are open, or %d of this user's, or the server stops; close one", maxViews, maxUserViews)})
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
	hello := wire.LiveHello{UID: peer.UID, Operator: operator, Version: buildinfo.Version, EveryMs: int(liveEvery / time.Millisecond)}
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
