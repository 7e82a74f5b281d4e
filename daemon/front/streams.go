package front

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/front/lastwords"
	httpd "github.com/uma-serve/uma-serve/daemon/http"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Streams that can be resumed are kept by the engine process that answers. A client asks for one by its id alone: the
// front asks all processes for it.

// lookup is the path that tells which streams there are.
const lookup = "/v1/streams/lookup"

// serveStream passes a connection to the process that has the stream which it asks for.
func (f *Front) serveStream(w http.ResponseWriter, r *http.Request) {
	id := r.URL.Query().Get("conv_id")
	owner := f.ownerOf(r, id)
	if owner == nil && f.loads() {
		w.Header().Set("Retry-After", "1")
		f.answerError(w, r, &wire.Error{Code: wire.ModelUnready,
			Message: "a model is loading, and its streams are not known yet: ask again"})
		return
	}
	peer, _ := ipc.PeerOf(r.Context())
	if owner == nil || ipc.HandTo(w, r, func(c *ipc.Conn) *ipc.Link {
		if owner.dead {
			return nil
		}
		if peer.TCP() {
			c.Admit(f.in.Access.Admits(peer))
		}
		return owner.link
	}) != nil {
		f.noProcess(w, r)
	}
}

// loads reports whether a model is loading, or waits for that.
func (f *Front) loads() (any bool) {
	f.call(func() {
		for _, m := range f.models {
			any = any || m.state == loading || len(m.waiting) > 0
		}
	})
	return any
}

// ownerOf returns the process that has a stream of the client, nil when none has.
func (f *Front) ownerOf(r *http.Request, id string) *process {
	body := api.MustJSON(map[string][]string{"conversation_ids": {id}})
	q := r.Clone(r.Context())
	q.Method, q.URL = http.MethodPost, &url.URL{Path: lookup}
	for _, a := range f.overHTTP(q, body) {
		var found []struct {
			ID string `json:"conversation_id"`
		}
		if json.Unmarshal(a.body, &found) != nil { // an error
			continue
		}
		for _, s := range found {
			if s.ID == id {
				return a.proc
			}
		}
	}
	return nil
}

// serveStop ends a stream: that of a process, and a request for one that still waits for its model here.
func (f *Front) serveStop(w http.ResponseWriter, r *http.Request) {
	peer, _ := ipc.PeerOf(r.Context())
	id := r.URL.Query().Get("conv_id")
	f.call(func() { f.stopWaiting(peer.UID, id) })
	f.serveFirst(w, r, nil, nil)
}

// stopWaiting answers the requests that wait for a model under a stream's id. Poller's goroutine.
func (f *Front) stopWaiting(owner uint32, id string) {
	if id == "" {
		return
	}
	e := &wire.Error{Code: wire.BadRequest, Message: "the answer was cancelled before it began (DELETE /v1/stream)"}
	for _, m := range f.models {
		for _, c := range slices.Clone(m.waiting) {
			if s := &c.Routing; s.Stream == id && s.Owner == owner {
				c.ReplyLast(lastwords.Response(httpd.APIOf(s.Path), e))
			}
		}
	}
}

// serveLookup puts the answers of all processes together.
func (f *Front) serveLookup(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		f.answerError(w, r, &wire.Error{Code: wire.BadRequest, Message: "the body did not come whole: " + err.Error()})
		return
	}
	all := []json.RawMessage{}
	f.serveFirst(w, r, body, func(answers []httpAnswer) *httpAnswer {
		for i := range answers {
			var list []json.RawMessage
			if answers[i].status != http.StatusOK || json.Unmarshal(answers[i].body, &list) != nil {
				return &answers[i]
			}
			all = append(all, list...)
		}
		return &httpAnswer{status: http.StatusOK, body: api.MustJSON(all)}
	})
}

// serveFirst asks all processes and passes on the answer that choose makes of theirs; nil: the first one.
func (f *Front) serveFirst(w http.ResponseWriter, r *http.Request, body []byte,
	choose func([]httpAnswer) *httpAnswer) {
	answers := f.overHTTP(r, body)
	if len(answers) == 0 {
		f.noProcess(w, withBody(r, body))
		return
	}
	a := &answers[0]
	if choose != nil {
		a = choose(answers)
	}
	if len(a.body) > 0 {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(a.status)
	w.Write(a.body)
}

// noProcess answers as a process that has no stream does.
func (f *Front) noProcess(w http.ResponseWriter, r *http.Request) {
	none := httpd.Asleep{Facts: &api.Facts{Asleep: true}, Since: f.began, StrictFields: f.cfg.StrictFields}
	none.Serve(w, r, f.log)
}
