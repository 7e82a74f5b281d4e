package batches

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/files"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// The paths of OpenAI's and of Anthropic's batches.
const (
	Path          = "/v1/batches"
	AnthropicPath = "/v1/messages/batches"
)

// endpoints are the paths whose requests a batch of OpenAI's may have.
var endpoints = []string{"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"}

// API answers requests about batches.
type API struct {
	Runner *Runner
	Files  *files.Store
	Owner  func(r *http.Request) uint32
	// Fail answers with an error in the form of the API that is asked.
	Fail func(w http.ResponseWriter, r *http.Request, e *wire.Error)
}

// Routes returns the paths of both APIs.
func (a *API) Routes() []api.Route {
	routes := []api.Route{
		{Method: http.MethodPost, Path: Path, Handle: a.create},
		{Method: http.MethodPost, Path: AnthropicPath, Handle: a.createMessages},
		{Method: http.MethodGet, Path: AnthropicPath + "/{id}/results", Handle: a.results},
		{Method: http.MethodDelete, Path: AnthropicPath + "/{id}", Handle: a.delete},
	}
	for _, p := range []string{Path, AnthropicPath} {
		routes = append(routes, api.Route{Method: http.MethodGet, Path: p, Handle: a.list},
			api.Route{Method: http.MethodGet, Path: p + "/{id}", Handle: a.get},
			api.Route{Method: http.MethodPost, Path: p + "/{id}/cancel", Handle: a.cancel})
	}
	return routes
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // fails when the client has left
}

func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	e := &wire.Error{Code: wire.InternalFailure, Message: err.Error()}
	if refused, ok := errors.AsType[*wire.RequestError](err); ok {
		e = &wire.Error{Code: refused.Code, Message: refused.Message}
	}
	a.Fail(w, r, e)
}

// create begins a batch of OpenAI's: a file of requests.
func (a *API) create(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Input    string          `json:"input_file_id"`
		Endpoint string          `json:"endpoint"`
		Window   string          `json:"completion_window"`
		Metadata json.RawMessage `json:"metadata"`
	}
	body, err := io.ReadAll(r.Body)
	if err == nil {
		if err = json.Unmarshal(body, &in); err != nil {
			err = refuse(wire.InvalidJSON, "the body is no JSON object: %v", err)
		}
	}
	switch {
	case err != nil:
	case !slices.Contains(endpoints, in.Endpoint):
		err = refuse(wire.BadRequest, "field \"endpoint\" is %.60q; it must be one of %s", in.Endpoint,
			strings.Join(endpoints, ", "))
	case in.Window != "24h":
		err = refuse(wire.BadRequest, "field \"completion_window\" is %.60q; it must be \"24h\"", in.Window)
	case len(in.Metadata) > 16<<10:
		err = refuse(wire.BadRequest, "field \"metadata\" has %d bytes; the maximum is %d", len(in.Metadata), 16<<10)
	}
	if err != nil {
		a.fail(w, r, err)
		return
	}
	owner := a.Owner(r)
	_, f, err := a.Files.Read(owner, in.Input)
	if err != nil {
		a.fail(w, r, refuse(wire.BadRequest, "field \"input_file_id\" is %.60q: %v", in.Input, err))
		return
	}
	defer f.Close()
	if bytes.Equal(in.Metadata, []byte("null")) {
		in.Metadata = nil
	}
	b, err := a.Runner.Create(Batch{Owner: owner, Endpoint: in.Endpoint, Input: in.Input, Metadata: in.Metadata},
		requestsOf(f, in.Endpoint))
	if err != nil {
		a.fail(w, r, err)
		return
	}
	answer(w, openAI(&b))
}

// requestsOf reads the lines of a file of requests.
func requestsOf(f io.Reader, endpoint string) func() (Request, error) {
	s := bufio.NewScanner(f)
	s.Buffer(nil, MaxLine)
	n := 0
	return func() (Request, error) {
		for s.Scan() {
			n++
			text := s.Bytes()
			if n == 1 {
				text = bytes.TrimPrefix(text, []byte("\ufeff")) // some editors begin a file so
			}
			text = bytes.TrimSpace(text)
			if len(text) == 0 {
				continue
			}
			fault := func(code, format string, args ...any) error {
				return &FaultError{Fault{n, code, fmt.Sprintf(format, args...)}}
			}
			var q struct {
				ID     string          `json:"custom_id"`
				Method string          `json:"method"`
				URL    string          `json:"url"`
				Body   json.RawMessage `json:"body"`
			}
			if err := json.Unmarshal(text, &q); err != nil {
				return Request{}, fault("invalid_json_line", "the line is no JSON object: %v", err)
			}
			switch {
			case q.Method != http.MethodPost:
				return Request{}, fault("invalid_method", "field \"method\" is %.40q; it must be \"POST\"", q.Method)
			case q.URL != endpoint:
				return Request{}, fault("mismatched_endpoint", "field \"url\" is %.60q; the batch's endpoint is %s",
					q.URL, endpoint)
			}
			body, err := withoutStream(q.Body)
			if err != nil {
				return Request{}, fault("invalid_request", "field \"body\" %v", err)
			}
			return Request{q.ID, body, n}, nil
		}
		if err := s.Err(); err != nil {
			return Request{}, &FaultError{Fault{n + 1, "invalid_line",
				fmt.Sprintf("%v; a line has at most %d bytes", err, MaxLine)}}
		}
		return Request{Line: n + 1}, io.EOF
	}
}

// withoutStream returns the body of a request, which must be an object that does not ask for a stream.
func withoutStream(body json.RawMessage) (json.RawMessage, error) {
	var of map[string]json.RawMessage
	if err := json.Unmarshal(body, &of); err != nil || of == nil {
		return nil, errors.New("must be an object")
	}
	if text := strings.TrimSpace(string(of["stream"])); text != "" && text != "false" && text != "null" {
		return nil, errors.New("asks for a stream, which a batch does not have")
	}
	return bytes.Clone(body), nil
}

// createMessages begins a batch of Anthropic's.
func (a *API) createMessages(w http.ResponseWriter, r *http.Request) {
	dec := json.NewDecoder(io.LimitReader(r.Body, MaxBytes))
	err, n := begin(dec), 0
	var b Batch
	if err == nil {
		b, err = a.Runner.Create(Batch{Owner: a.Owner(r), Anthropic: true, Endpoint: "/v1/messages"},
			func() (Request, error) {
				n++
				if !dec.More() { // nor is there more of a body that breaks off
					if err := end(dec); err != nil {
						return Request{}, err
					}
					return Request{Line: n}, io.EOF
				}
				var q struct {
					ID     string          `json:"custom_id"`
					Params json.RawMessage `json:"params"`
				}
				if err := dec.Decode(&q); err != nil {
					return Request{}, refuse(wire.InvalidJSON, "field \"requests\" is no list of objects: %v", err)
				}
				body, err := withoutStream(q.Params)
				if err != nil {
					return Request{}, refuse(wire.BadRequest, "field \"params\" of %.60q %v", q.ID, err)
				}
				return Request{q.ID, body, n}, nil
			})
	}
	if err == nil && b.Status == Failed { // here a wrong request is refused at once
		_ = a.Runner.Delete(b.Owner, b.ID)
		err = refuse(wire.BadRequest, "field \"requests\", entry %d: %s", b.Faults[0].Line, b.Faults[0].Message)
	}
	if err != nil {
		a.fail(w, r, err)
		return
	}
	answer(w, messages(r, &b))
}

// begin reads a body up to the first entry of "requests".
func begin(dec *json.Decoder) error {
	wrong := refuse(wire.BadRequest, `the body must be {"requests": [{"custom_id": …, "params": {…}}, …]}`)
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return wrong
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return wrong
		}
		if key == "requests" {
			if t, err := dec.Token(); err != nil || t != json.Delim('[') {
				return wrong
			}
			return nil
		}
		var other json.RawMessage
		if dec.Decode(&other) != nil {
			return wrong
		}
	}
	return wrong
}

// end reads a body from the end of "requests" on. It has other fields there, or none.
func end(dec *json.Decoder) error {
	for depth := 2; depth > 0; {
		t, err := dec.Token()
		switch {
		case err != nil:
			return refuse(wire.InvalidJSON, "the body did not come whole, or has more than %d bytes: %v", MaxBytes, err)
		case t == json.Delim(']') || t == json.Delim('}'):
			depth--
		case t == json.Delim('[') || t == json.Delim('{'):
			depth++
		}
	}
	return nil
}

// isAnthropic reports whether a path is Anthropic's.
func isAnthropic(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, AnthropicPath) }

// find returns the batch of a path, or answers that there is none.
func (a *API) find(w http.ResponseWriter, r *http.Request) (Batch, bool) {
	id := r.PathValue("id")
	b, ok := a.Runner.Get(a.Owner(r), id)
	if !ok || b.Anthropic != isAnthropic(r) {
		a.fail(w, r, refuse(wire.ModelNotFound, "there is no batch %.60q", id))
		return b, false
	}
	return b, true
}

func (a *API) get(w http.ResponseWriter, r *http.Request) {
	if b, ok := a.find(w, r); ok {
		answer(w, objectOf(r, &b))
	}
}

func (a *API) cancel(w http.ResponseWriter, r *http.Request) {
	b, ok := a.find(w, r)
	if !ok {
		return
	}
	if b, ok = a.Runner.Cancel(b.Owner, b.ID); ok {
		answer(w, objectOf(r, &b))
	}
}

func (a *API) delete(w http.ResponseWriter, r *http.Request) {
	b, ok := a.find(w, r)
	if !ok {
		return
	}
	if err := a.Runner.Delete(b.Owner, b.ID); err != nil {
		a.fail(w, r, err)
		return
	}
	answer(w, map[string]any{"id": b.ID, "type": "message_batch_deleted"})
}

func (a *API) list(w http.ResponseWriter, r *http.Request) {
	all := a.Runner.List(a.Owner(r))
	all = slices.DeleteFunc(all, func(b Batch) bool { return b.Anthropic != isAnthropic(r) })
	id := func(b *Batch) string { return b.ID }
	page, more, err := files.Page(r, all, id, files.Limits{Listed: 20, Most: 1000})
	if err != nil {
		a.fail(w, r, err)
		return
	}
	data := []any{}
	for i := range page {
		data = append(data, objectOf(r, &page[i]))
	}
	first, last := files.Ends(page, id)
	out := map[string]any{"data": data, "has_more": more, "first_id": first, "last_id": last}
	if !isAnthropic(r) {
		out["object"] = "list"
	}
	answer(w, out)
}

func objectOf(r *http.Request, b *Batch) any {
	if b.Anthropic {
		return messages(r, b)
	}
	return openAI(b)
}

// openAI returns a batch in OpenAI's form.
func openAI(b *Batch) map[string]any {
	when := func(t int64, is bool) any {
		if !is || t == 0 {
			return nil
		}
		return t
	}
	out := map[string]any{"id": b.ID, "object": "batch", "endpoint": b.Endpoint, "errors": nil,
		"input_file_id": b.Input, "completion_window": "24h", "status": b.Status, "output_file_id": nil,
		"error_file_id": nil, "created_at": b.Created, "in_progress_at": when(b.Created, b.Status != Failed),
		"expires_at": b.Expires, "finalizing_at": when(b.Ended, b.Status == Completed),
		"completed_at": when(b.Ended, b.Status == Completed), "failed_at": when(b.Ended, b.Status == Failed),
		"expired_at": when(b.Ended, b.Status == Expired), "cancelling_at": when(b.Canceled, true),
		"cancelled_at": when(b.Ended, b.Status == Canceled), "metadata": nil,
		"request_counts": map[string]int{"total": b.Counts.Total, "completed": b.Counts.Succeeded,
			"failed": b.Counts.Done() - b.Counts.Succeeded}}
	if b.Output != "" {
		out["output_file_id"] = b.Output
	}
	if b.Errors != "" {
		out["error_file_id"] = b.Errors
	}
	if b.Metadata != nil {
		out["metadata"] = b.Metadata
	}
	if len(b.Faults) > 0 {
		list := []any{}
		for _, f := range b.Faults {
			list = append(list, map[string]any{"code": f.Code, "line": f.Line, "message": f.Message, "param": nil})
		}
		out["errors"] = map[string]any{"object": "list", "data": list}
	}
	return out
}

// messages returns a batch in Anthropic's form.
func messages(r *http.Request, b *Batch) map[string]any {
	when := func(t int64) any {
		if t == 0 {
			return nil
		}
		return time.Unix(t, 0).UTC().Format(time.RFC3339)
	}
	status := "in_progress"
	var results any
	switch {
	case b.Status == Canceling:
		status = "canceling"
	case b.Status.over():
		status = "ended"
		scheme := "http"
		if r.TLS != nil {
			scheme = "https"
		}
		results = scheme + "://" + r.Host + AnthropicPath + "/" + b.ID + "/results"
	}
	return map[string]any{"id": b.ID, "type": "message_batch", "processing_status": status,
		"request_counts": map[string]int{"processing": b.Counts.Total - b.Counts.Done(),
			"succeeded": b.Counts.Succeeded, "errored": b.Counts.Errored, "canceled": b.Counts.Canceled,
			"expired": b.Counts.Expired},
		"created_at": when(b.Created), "expires_at": when(b.Expires), "ended_at": when(b.Ended),
		"cancel_initiated_at": when(b.Canceled), "archived_at": nil, "results_url": results}
}

// results answers with the results of a batch of Anthropic's, a line each.
func (a *API) results(w http.ResponseWriter, r *http.Request) {
	b, ok := a.find(w, r)
	if !ok {
		return
	}
	in, err := a.Runner.Results(b.Owner, b.ID)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	defer in.Close()
	w.Header().Set("Content-Type", "application/x-jsonl")
	enc := json.NewEncoder(w)
	_ = lines(in, func(text []byte) bool { // fails when the disk does; the answer ends early
		var res Result
		if json.Unmarshal(text, &res) != nil {
			return true
		}
		return enc.Encode(map[string]any{"custom_id": res.ID, "result": messageResult(&res)}) == nil
	})
}

// messageResult returns a result in Anthropic's form.
func messageResult(res *Result) map[string]any {
	switch {
	case res.Outcome == string(Canceled):
		return map[string]any{"type": "canceled"}
	case res.Outcome == string(Expired):
		return map[string]any{"type": "expired"}
	case res.Status/100 == 2:
		return map[string]any{"type": "succeeded", "message": res.Body}
	}
	return map[string]any{"type": "errored", "error": res.Body}
}
