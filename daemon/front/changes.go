package front

import (
	"context"
	"encoding/json"
	"io"
	"net/http"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// Models that are loaded and unloaded by request, as llama-server's router does it: POST /models/load and
// /models/unload. They cost other users the model that they use, so root and the server's user alone may ask, or with
// --allow-model-changes everyone.

// serveLoad answers POST /models/load: the model begins to load, if it is not loaded. GET /models says how it goes.
func (f *Front) serveLoad(w http.ResponseWriter, r *http.Request) {
	if name, ok := f.changed(w, r); ok {
		f.change(w, r, name, f.loadAsked)
	}
}

// loadAsked begins to load a model that a request names. Poller's goroutine.
func (f *Front) loadAsked(m *served) *wire.Error {
	f.want(m)
	if m.state == down && m.down != nil {
		e := *m.down
		return &e
	}
	m.touch() // an idle model counts from now
	return nil
}

// serveUnload answers POST /models/unload: the model leaves when its running answers have ended. The next request for
// it loads it again.
//
// The name of a download cancels that.
func (f *Front) serveUnload(w http.ResponseWriter, r *http.Request) {
	name, ok := f.changed(w, r)
	if !ok {
		return
	}
	if f.cancelDownload(r.Context(), name) {
		api.AnswerJSON(w, http.StatusOK, map[string]any{"success": true,
			"status": reports.ServedStatus{Value: unloaded.served()}})
		return
	}
	f.change(w, r, name, f.unloadAsked)
}

// unloadAsked unloads a model that a request names, if it may leave. Poller's goroutine.
func (f *Front) unloadAsked(m *served) *wire.Error {
	switch {
	case m.pinned:
		return wire.Errorf(wire.BadRequest, "model %s is pinned: the configuration file keeps it loaded", m.name)
	case m.state == queued || m.state == starting || m.state == loading:
		return wire.Errorf(wire.ModelUnready, "model %s is being loaded; unload it when it is ready", m.name)
	case m.state == ready:
		f.unload(m, "a request to /models/unload")
	}
	return nil
}

// maxChangeBody bounds the body of a change, in bytes.
const maxChangeBody = 64 << 10

// onlyAdmins is the answer to a client that may not change which models there are, and which are loaded.
const onlyAdmins = "only root and the user of uma-serve may load, unload, download, copy and delete models; " +
	"--allow-model-changes lets every client"

// privileged reports whether a request's client may change which models there are, and which are loaded.
func (f *Front) privileged(r *http.Request) bool {
	peer, _ := ipc.PeerOf(r.Context())
	return f.cfg.AllowModelChanges || f.cfg.Privileged(f.in.Access.OwnerOf(r, peer))
}

// mayChange is privileged; it answers where the client is not.
func (f *Front) mayChange(w http.ResponseWriter, r *http.Request) bool {
	if f.privileged(r) {
		return true
	}
	api.AnswerJSON(w, http.StatusForbidden, map[string]any{"error": map[string]any{"code": http.StatusForbidden,
		"type": "permission_error", "message": onlyAdmins}})
	return false
}

// changed returns the name of the model that the body of a change has; false: the request has been answered.
func (f *Front) changed(w http.ResponseWriter, r *http.Request) (name string, ok bool) {
	if !f.mayChange(w, r) {
		return "", false
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxChangeBody+1))
	if err != nil || len(body) > maxChangeBody {
		f.answerError(w, r, wire.Errorf(wire.BadRequest, "the body did not come whole, or has more than %d bytes",
			maxChangeBody))
		return "", false
	}
	var q struct {
		Model *string `json:"model"`
	}
	if err := json.Unmarshal(body, &q); err != nil || q.Model == nil {
		f.answerError(w, r, &wire.Error{Code: wire.BadRequest, Message: `the body must be {"model": "NAME"}`})
		return "", false
	}
	return *q.Model, true
}

// change does something to the model that a request names, and answers.
func (f *Front) change(w http.ResponseWriter, r *http.Request, name string, do func(*served) *wire.Error) {
	state, e := f.do(r.Context(), name, do)
	if e != nil {
		f.answerError(w, r, e)
		return
	}
	api.AnswerJSON(w, http.StatusOK, map[string]any{"success": true, "status": reports.ServedStatus{Value: state}})
}

// present scans the folders for a name that no model has: a program may have put the model there just before it asks.
func (f *Front) present(ctx context.Context, name string) {
	f.known(ctx, name)
	there := false
	f.call(func() {
		m := f.find(name)
		there = m != nil && f.own(m, name)
	})
	if !there && f.found.store != nil {
		f.rescan()
	}
}

// do does something to the model of a name, and returns the word for its state.
func (f *Front) do(ctx context.Context, name string, do func(*served) *wire.Error) (state string, e *wire.Error) {
	f.present(ctx, name)
	if !f.call(func() {
		m := f.find(name)
		switch {
		case f.draining:
			e = shuttingDown()
		case m == nil || !f.own(m, name):
			e = f.unknownModel(name)
		default:
			m.calledBy(name)
			if e = do(m); e == nil {
				state = m.state.served()
			}
		}
	}) {
		e = shuttingDown()
	}
	return state, e
}
