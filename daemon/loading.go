package daemon

import (
	"sync"
	"time"

	httpd "github.com/uma-serve/uma-serve/daemon/http"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

func (s *Server) loadProgress() float64 { return float64(s.loaded.Load()) / 1000 }

// refuseAll refuses the requests that wait for intake or for a grammar, and all later ones, with e.
func (s *Server) refuseAll(e *wire.Error) {
	s.opened.end(e)
	s.refuseJobs(append(s.room.Close(e), s.closeGrammars()...), e)
}

// loadWait lets goroutines wait for the end of the model's load.
type loadWait struct {
	once    sync.Once
	done    chan struct{} // closed when the model is loaded, or will not be
	failure *wire.Error   // the error of the load, nil without one; constant once done is closed
}

func newOpening() *loadWait { return &loadWait{done: make(chan struct{})} }

// end ends the wait; nil: the model is loaded. Later calls do nothing.
func (o *loadWait) end(failure *wire.Error) {
	o.once.Do(func() {
		o.failure = failure
		close(o.done)
	})
}

// refuseJobs refuses admitted requests that have not reached the decode loop.
func (s *Server) refuseJobs(jobs []job, e *wire.Error) {
	for _, j := range jobs {
		s.room.Leave(j.r.Owner)
		own := *e
		s.refuse(j.r, &own)
	}
}

// tellLoading tells the framed requests that wait for the model how much of it is loaded. Those of HTTP learn it from
// httpd, which asks for it while they wait.
func (s *Server) tellLoading() {
	now, loaded := time.Now(), s.loadProgress()
	for _, j := range s.room.Queued() {
		if r := j.r; j.w != nil && !r.lines && (j.w.Progress || j.w.Stream && !j.w.NoProgress) {
			r.conn.ReplyEvent(wire.ProgressEvent(&wire.Progress{ID: r.wireID, Elapsed: now.Sub(r.arrived),
				Waiting: httpd.WaitsForLoad, Loaded: loaded}))
		}
	}
}
