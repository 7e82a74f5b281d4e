package daemon

import (
	"fmt"
	"time"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// refuseAll refuses the requests that wait for intake or for a grammar, and all later ones, with e.
func (s *Server) refuseAll(e *wire.Error) {
	s.refuseJobs(append(s.room.close(e), s.forms.close()...), e)
}

// refuseJobs refuses admitted requests that have not reached the decode loop.
func (s *Server) refuseJobs(jobs []job, e *wire.Error) {
	for _, j := range jobs {
		s.room.leave(j.r.Owner)
		own := *e
		s.refuse(j.r, &own)
	}
}

// loadFailed is the error of requests that waited for a model whose load failed.
func loadFailed(err error) *wire.Error {
	return &wire.Error{Code: wire.InternalFailure, Message: "the model cannot be loaded: " + err.Error()}
}

// stillLoading is the error of requests refused while the model loads.
func (s *Server) stillLoading() *wire.Error {
	return &wire.Error{Code: wire.ModelUnready, RetryAfter: time.Second,
		Message: fmt.Sprintf(`the model is still loading (%.0f %%); {"type":"health"} says when it is ready`,
			100*s.loadProgress())}
}

func shuttingDown() *wire.Error {
	return &wire.Error{Code: wire.ShuttingDown, Message: "the server is shutting down; try again when it is back"}
}
