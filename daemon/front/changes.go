package front

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Models that are loaded and unloaded by request, as llama-server's router does it: POST /models/load and
// /models/unload. They cost other users the model that they use, so root and the server's user alone may ask, or with
// --allow-model-changes everyone.

// serveLoad answers POST /models/load: the model begins to load, if it is not loaded. GET /models says how it goes.
func (f *Front) serveLoad(w http.ResponseWriter, r *http.Request) {
	f.change(w, r, func(m *served) *wire.Error {
		f.want(m)
		if m.state == down && m.down != nil {
			e := *m.down
			return &e
		}
		m.touch() // an idle model counts from now
		return nil
	})
}

// serveUnload answers POST /models/unload: the model leaves when its running answers have ended. The next request for
// it loads it again.
func (f *Front) serveUnload(w http.ResponseWriter, r *http.Request) {
	f.change(w, r, func(m *served) *wire.Error {
		switch {
		case m.pinned:
			return &wire.Error{Code: wire.BadRequest, Message: fmt.Sprintf("model %s is pinned: the configuration "+
				"file keeps it loaded", m.name)}
		case m.state == queued || m.state == starting || m.state == loading:
			return &wire.Error{Code: wire.ModelUnready, Message: fmt.Sprintf("model %s is being loaded; unload it "+
				"when it is ready", m.name)}
		case m.state == ready:
			f.unload(m, "a request to /models/unload")
		}
		return nil
	})
}

// maxChangeBody bounds the body of a change, in bytes.
const maxChangeBody = 64 << 10

// change does something to the model that a request's body names.
func (f *Front) change(w http.ResponseWriter, r *http.Request, do func(*served) *wire.Error) {
	peer, _ := ipc.PeerOf(r.Context())
	if !f.cfg.AllowModelChanges && !f.cfg.Privileged(f.in.Access.OwnerOf(r, peer)) {
		answerJSON(w, http.StatusForbidden, map[string]any{"error": map[string]any{"code": http.StatusForbidden,
			"type": "permission_error", "message": "only root and the user of uma-serve may load and unload models; " +
				"--allow-model-changes lets every client"}})
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxChangeBody+1))
	if err != nil || len(body) > maxChangeBody {
		f.answerError(w, r, &wire.Error{Code: wire.BadRequest, Message: fmt.Sprintf("the body did not come whole, or "+
			"has more than %d bytes", maxChangeBody)})
		return
	}
	var q struct {
		Model *string `json:"model"`
	}
	if err := json.Unmarshal(body, &q); err != nil || q.Model == nil {
		f.answerError(w, r, &wire.Error{Code: wire.BadRequest, Message: `the body must be {"model": "NAME"}`})
		return
	}
	f.known(r.Context(), *q.Model)
	var e *wire.Error
	var state string
	f.call(func() {
		m := f.find(*q.Model)
		switch {
		case f.draining:
			e = shuttingDown()
		case m == nil || !f.own(m, *q.Model):
			e = f.unknownModel(*q.Model)
		default:
			m.calledBy(*q.Model)
			if e = do(m); e == nil {
				state = m.state.served()
			}
		}
	})
	if e != nil {
		f.answerError(w, r, e)
		return
	}
	answerJSON(w, http.StatusOK, map[string]any{"success": true, "status": wire.ServedStatus{Value: state}})
}
