// Package control serves the framed protocol's control questions over HTTP: why, kv, cancel and end_think.
package control

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/api/openai"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Routes returns the endpoints. Their errors have OpenAI's format.
func Routes(s *api.Server) []api.Route {
	return []api.Route{
		{Method: http.MethodGet, Path: "/why",
			Handle: func(w http.ResponseWriter, r *http.Request) { serveWhy(s, w, r) }},
		{Method: http.MethodGet, Path: "/kv",
			Handle: func(w http.ResponseWriter, r *http.Request) { serveKV(s, w, r) }},
		{Method: http.MethodPost, Path: "/kv",
			Handle: func(w http.ResponseWriter, r *http.Request) { serveKVOp(s, w, r) }},
		{Method: http.MethodPost, Path: "/cancel",
			Handle: func(w http.ResponseWriter, r *http.Request) { serveByID(s, w, r, s.Cancel) }},
		{Method: http.MethodPost, Path: "/end_think",
			Handle: func(w http.ResponseWriter, r *http.Request) { serveByID(s, w, r, s.EndThink) }},
	}
}

// parse parses a question's fields as an event of the framed protocol.
func parse(fields map[string]any) (wire.Frame, error) {
	def := wire.DefaultRequest()
	return wire.Parse(new(wire.Parser), api.AppendJSON(nil, fields), &def)
}

// answer writes the daemon's answer to a question, or its error.
func answer(w *api.Writer, report json.RawMessage, err error) {
	if err != nil {
		e := api.AsError(err)
		e.ID = ""
		openai.Fail(w, e)
		return
	}
	w.JSON(http.StatusOK, report)
}

// serveWhy answers GET /why?request=ID or ?last=N.
func serveWhy(s *api.Server, w http.ResponseWriter, r *http.Request) {
	out := s.NewWriter(w)
	f, err := Why(r)
	if err != nil {
		answer(out, nil, err)
		return
	}
	report, err := s.Why(r.Context(), f.Why)
	answer(out, report, err)
}

// Why reads the query of GET /why.
func Why(r *http.Request) (f wire.Frame, err error) {
	q, fields := r.URL.Query(), map[string]any{"event": "why"}
	if q.Has("request") {
		fields["request"] = q.Get("request")
	}
	if q.Has("last") {
		n, err := strconv.Atoi(q.Get("last"))
		if err != nil {
			return f, api.Refusef(`"last" is %.40q; it must be an integer of 1…%d`, q.Get("last"), wire.MaxLast)
		}
		fields["last"] = n
	}
	return parse(fields)
}

// serveKV answers GET /kv; ?tree=true adds the tree as text.
func serveKV(s *api.Server, w http.ResponseWriter, r *http.Request) {
	f, err := KV(r)
	if err != nil {
		answer(s.NewWriter(w), nil, err)
		return
	}
	report, err := s.KV(r.Context(), f.KV)
	answer(s.NewWriter(w), report, err)
}

// KV reads the query of GET /kv.
func KV(r *http.Request) (f wire.Frame, err error) {
	tree, err := strconv.ParseBool(r.URL.Query().Get("tree"))
	if err != nil && r.URL.Query().Has("tree") {
		return f, api.Refuse(`"tree" must be true or false`)
	}
	return parse(map[string]any{"event": "kv", "tree": tree})
}

// serveKVOp answers POST /kv {"op":…,"target":…}.
func serveKVOp(s *api.Server, w http.ResponseWriter, r *http.Request) {
	out := s.NewWriter(w)
	f, err := KVCommand(r)
	if err != nil {
		answer(out, nil, err)
		return
	}
	report, err := s.KV(r.Context(), f.KV)
	answer(out, report, err)
}

// KVCommand reads the body of POST /kv.
func KVCommand(r *http.Request) (f wire.Frame, err error) {
	var in struct {
		Op     string `json:"op"`
		Target string `json:"target"`
	}
	if err := read(r, &in, "op", "target"); err != nil {
		return f, err
	}
	return parse(map[string]any{"event": "kv", "op": in.Op, "target": in.Target})
}

// serveByID answers POST /cancel and /end_think {"id":…}, and says whether the client has such a request.
func serveByID(s *api.Server, w http.ResponseWriter, r *http.Request, do func(context.Context, string) bool) {
	out := s.NewWriter(w)
	var in struct {
		ID string `json:"id"`
	}
	err := read(r, &in, "id")
	if err == nil && in.ID == "" {
		err = api.Refuse(`field "id" is missing; it must be the id of a request`)
	}
	if err != nil {
		answer(out, nil, err)
		return
	}
	out.JSON(http.StatusOK, struct {
		ID    string `json:"id"`
		Found bool   `json:"found"`
	}{in.ID, do(r.Context(), in.ID)})
}

// read parses a body of these fields.
func read(r *http.Request, dst any, fields ...string) error {
	body, err := api.Of(api.Taken, fields...).Body(r)
	if err == nil {
		err = body.Alone()
	}
	if err != nil {
		return err
	}
	return body.Into(dst)
}
