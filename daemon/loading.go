package daemon

import (
	"time"

	httpd "github.com/uma-serve/uma-serve/daemon/http"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// refuseAll refuses the requests that wait for intake or for a grammar, and all later ones, with e.
func (s *Server) refuseAll(e *wire.Error) {
	s.about.End(e)
	s.refuseJobs(append(s.room.Close(e), s.closeGrammars()...), e)
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
	now, loaded := time.Now(), s.about.LoadProgress()
	for _, j := range s.room.Queued() {
		if r := j.r; j.w != nil && !r.lines && (j.w.Progress || j.w.Stream && !j.w.NoProgress) {
			r.conn.ReplyEvent(wire.ProgressEvent(&wire.Progress{ID: r.wireID, Elapsed: now.Sub(r.arrived),
				Waiting: httpd.WaitsForLoad, Loaded: loaded}))
		}
	}
}
