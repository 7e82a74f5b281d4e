package ollama

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/api/changes"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/models/download"
)

// ChangeRoutes returns the endpoints that change which models there are.
func ChangeRoutes(s *api.Server, h changes.Host) (routes []api.Route) {
	c := &changer{s, h}
	add := func(method, path string, handle func(w *api.Writer, r *http.Request) error) {
		routes = append(routes, api.Route{Method: method, Path: path,
			Handle: s.Telling(func(rw http.ResponseWriter, r *http.Request) {
				w := s.NewWriter(rw)
				if status, why := h.May(r); status != 0 {
					w.JSON(status, failure{why})
					return
				}
				if err := handle(w, r); err != nil {
					c.fail(w, api.AsError(err))
				}
			})})
	}
	add(http.MethodPost, "/api/pull", c.pull)
	add(http.MethodDelete, "/api/delete", c.remove)
	add(http.MethodPost, "/api/copy", c.copy)
	add(http.MethodPost, "/api/create", c.create)
	add(http.MethodGet, "/api/blobs/{digest}", c.hasBlob) // HEAD
	add(http.MethodPost, "/api/blobs/{digest}", c.putBlob)
	add(http.MethodPost, "/api/push", refusePush)
	return routes
}

// changer answers the endpoints that change models.
type changer struct {
	*api.Server
	host changes.Host
}

// fail answers with an error, as a line if the answer has begun.
func (c *changer) fail(w *api.Writer, e *api.Error) {
	if w.Begun() {
		w.Line(failureOf(e))
		_ = w.Flush() // the client has left
		return
	}
	Fail(w, e)
}

func refusePush(*api.Writer, *http.Request) error {
	return &api.Error{Code: wire.NotSupported, Message: "/api/push is not supported: this server publishes no " +
		"models; put the GGUF file into a repository of Hugging Face, such as with hf upload"}
}

// name returns the model that a body names, under the member's present or former name.
func nameOf(model, former string) (string, error) {
	if model == "" {
		model = former
	}
	if model == "" {
		return "", api.Refuse("model is required")
	}
	return model, nil
}

// missing is the error of a name that no model has, in the words of ollama.
func missing(name string, e *wire.Error) error {
	if e == nil {
		return nil
	}
	bad := api.Error(*e)
	if bad.Code == wire.ModelNotFound && !strings.Contains(bad.Message, "not found") {
		bad.Message = fmt.Sprintf("model '%.200s' not found: %s", name, bad.Message)
	}
	return &bad
}

// status is a line of an answer that tells how a change goes.
type status struct {
	Status string `json:"status"`
	Digest string `json:"digest,omitempty"`
	Total  int64  `json:"total,omitempty"`
	Done   int64  `json:"completed,omitempty"`
}

// teller sends status lines; without a stream it keeps them for itself.
type teller struct {
	w      *api.Writer
	stream bool
}

// newTeller takes the member "stream", which is true when it is absent.
func newTeller(w *api.Writer, stream *bool) *teller { return &teller{w, stream == nil || *stream} }

// tell returns false when the client has left.
func (t *teller) tell(s status) bool {
	if !t.stream {
		return true
	}
	t.w.Line(s)
	return t.w.Flush() == nil
}

// success ends the answer.
func (t *teller) success() error {
	if t.stream {
		t.tell(status{Status: "success"})
	} else {
		t.w.JSON(http.StatusOK, status{Status: "success"})
	}
	return nil
}

var pullTable = append(api.Of(api.Taken, "model", "name", "stream"), api.Table{
	{Name: "insecure", Use: api.Refused, But: []string{"false"}, Why: "registries are asked over https, and over " +
		"http on this machine alone"},
	{Name: "username", Use: api.Refused, But: []string{`""`}, Why: "HF_TOKEN of the server is the only credential"},
	{Name: "password", Use: api.Refused, But: []string{`""`}, Why: "HF_TOKEN of the server is the only credential"},
}...)

// pull answers POST /api/pull.
func (c *changer) pull(w *api.Writer, r *http.Request) error {
	var in struct {
		Model  string `json:"model"`
		Name   string `json:"name"`
		Stream *bool  `json:"stream"`
	}
	err := readAlone(r, pullTable, &in)
	if err != nil {
		return err
	}
	name, err := nameOf(in.Model, in.Name)
	if err != nil {
		return err
	}
	t := newTeller(w, in.Stream)
	if err := c.fetch(r, t, name); err != nil {
		return err
	}
	return t.success()
}

// fetch downloads a model and tells how it goes.
func (c *changer) fetch(r *http.Request, t *teller, name string) error {
	ticket, e := c.host.Download(name, name, false)
	if e != nil {
		return (*api.Error)(e)
	}
	defer ticket.Release()
	if !t.tell(status{Status: "pulling manifest"}) {
		return nil
	}
	told := map[string]int64{}
	last, ok := changes.Follow(r.Context(), ticket, func(st *download.State) bool {
		for _, f := range st.Files {
			if done, known := told[f.File]; known && done == f.Done {
				continue
			}
			told[f.File] = f.Done
			digest := digestOf(st.Choice, f.File)
			if !t.tell(status{"pulling " + short(digest), digest, f.Total, f.Done}) {
				return false
			}
		}
		return true
	})
	switch {
	case !ok:
		return nil // the client has left
	case last.Status != download.Finished:
		return (*api.Error)(changes.DownloadError(last.Err))
	}
	for _, text := range []string{"verifying sha256 digest", "writing manifest"} {
		t.tell(status{Status: text})
	}
	return nil
}

// digestOf returns the digest of a file of a download.
func digestOf(c *download.Choice, file string) string {
	if c != nil {
		for i, name := range c.Files {
			if name == file && i < len(c.Sums) {
				return c.Sums[i]
			}
		}
	}
	return file
}

// short returns the first digits of a digest, as ollama's clients show it.
func short(digest string) string {
	_, hex, ok := strings.Cut(digest, ":")
	if !ok {
		return digest
	}
	return hex[:min(len(hex), 12)]
}

var deleteTable = api.Of(api.Taken, "model", "name")

// remove answers DELETE /api/delete.
func (c *changer) remove(w *api.Writer, r *http.Request) error {
	var in struct {
		Model string `json:"model"`
		Name  string `json:"name"`
	}
	err := readAlone(r, deleteTable, &in)
	if err != nil {
		return err
	}
	name, err := nameOf(in.Model, in.Name)
	if err != nil {
		return err
	}
	if err := missing(name, c.host.Remove(r.Context(), name)); err != nil {
		return err
	}
	w.Empty(http.StatusOK)
	return nil
}
