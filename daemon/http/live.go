package httpd

import (
	"fmt"
	"net/http"
	"time"

	"github.com/uma-serve/uma-serve/daemon/live"
	"github.com/uma-serve/uma-serve/internal/cli/buildinfo"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// LivePath is the path of live views.
const LivePath = "/live"

// livePing is the time without an event after which a comment keeps the connection of a live view alive.
const livePing = 15 * time.Second

// liveEvents answers GET /live.
func (s *Server) liveEvents(views *live.Views) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		peer, ok := ipc.PeerOf(r.Context())
		if !ok {
			s.Fail(w, r, &wire.Error{Code: wire.InternalFailure, Message: "the client is not known"})
			return
		}
		h := w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		if r.Method == http.MethodHead {
			return
		}
		operator := s.Config.Privileged(peer.UID)
		v, ok := views.Open(peer.UID, operator)
		if !ok {
			s.Fail(w, r, &wire.Error{Code: wire.SessionLimit, RetryAfter: 5 * time.Second, Message: fmt.Sprintf(
				"at most %d live views may be open, %d per user, and none while the server stops; close one",
				live.MaxViews, live.MaxUserViews)})
			return
		}
		defer views.Close(v)
		hello := reports.LiveHello{UID: peer.UID, Operator: operator, Version: buildinfo.Version,
			EveryMs: int(live.Every / time.Millisecond)}
		s.sendView(w, r, v, live.AppendEvent([]byte("retry: 2000\n"), "hello", hello))
	}
}

// sendView sends begin and the events of v until either side ends the view.
func (s *Server) sendView(w http.ResponseWriter, r *http.Request, v *live.View, begin []byte) {
	rc := http.NewResponseController(w)
	ping := time.NewTimer(livePing)
	defer ping.Stop()
	for b := begin; ; {
		if s.Config.StallTimeout > 0 {
			rc.SetWriteDeadline(time.Now().Add(s.Config.StallTimeout))
		}
		if _, err := w.Write(b); err != nil || rc.Flush() != nil {
			return
		}
		ping.Reset(livePing)
		select {
		case <-r.Context().Done():
			return
		case <-v.Gone:
			return
		case b = <-v.Out:
		case <-ping.C:
			b = []byte(": \n\n")
		}
	}
}
