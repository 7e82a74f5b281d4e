package front

import (
	"fmt"
	"net/http"
	"time"

	"github.com/uma-serve/uma-serve/daemon/front/modelnews"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// serveModelEvents answers GET /models/sse: what becomes of the models, as server-sent events in the form of
// llama-server's router.
func (f *Front) serveModelEvents(w http.ResponseWriter, r *http.Request) {
	peer, _ := ipc.PeerOf(r.Context())
	owner := f.in.Access.OwnerOf(r, peer)
	if !f.watchers.Enter(owner) {
		f.answerError(w, r, &wire.Error{Code: wire.SessionLimit, RetryAfter: time.Second, Message: fmt.Sprintf(
			"%d clients of this user watch the models already, or %d of all users", modelnews.UserWatchers,
			modelnews.MaxWatchers)})
		return
	}
	defer f.watchers.Leave(owner)
	source := modelnews.Source{Models: f.watched, Downloads: f.downloads.List, Removed: &f.removed,
		Reloads: f.reloads.Load}
	source.Serve(w, r)
}

// watched returns the states of all models that were asked for, by label; nil: the front ends.
func (f *Front) watched() map[string]modelnews.Seen {
	out := map[string]modelnews.Seen{}
	if !f.call(func() {
		if f.draining {
			out = nil
			return
		}
		for _, m := range f.models {
			s := modelnews.Seen{Status: m.state.served(), Failed: m.state == down}
			if m.state == loading {
				s.Progress = m.status.Progress
			}
			out[m.label()] = s
		}
	}) {
		return nil
	}
	return out
}
