package files

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Path is the path of files in OpenAI's and Anthropic's APIs; a request with the header anthropic-version gets the
// latter's form.
const Path = "/v1/files"

// API answers requests about files.
type API struct {
	Store *Store
	Owner func(r *http.Request) uint32
	// Fail answers with an error in the form of the API that is asked.
	Fail func(w http.ResponseWriter, r *http.Request, e *wire.Error)
}

// Routes returns the paths of the API.
func (a *API) Routes() []api.Route {
	return []api.Route{
		{Method: http.MethodPost, Path: Path, Handle: a.create},
		{Method: http.MethodGet, Path: Path, Handle: a.list},
		{Method: http.MethodGet, Path: Path + "/{id}", Handle: a.get},
		{Method: http.MethodDelete, Path: Path + "/{id}", Handle: a.delete},
		{Method: http.MethodGet, Path: Path + "/{id}/content", Handle: a.content},
	}
}

// Anthropic reports whether a client speaks Anthropic's API.
func Anthropic(r *http.Request) bool { return r.Header.Get("Anthropic-Version") != "" }

// objectOf returns a file as in the client's API.
func objectOf(r *http.Request, f *File) any {
	if Anthropic(r) {
		return map[string]any{"id": f.ID, "type": "file", "filename": f.Name, "mime_type": f.MIME,
			"size_bytes": f.Bytes, "created_at": time.Unix(f.Created, 0).UTC().Format(time.RFC3339),
			"downloadable": true}
	}
	out := map[string]any{"id": f.ID, "object": "file", "bytes": f.Bytes, "created_at": f.Created, "filename": f.Name,
		"purpose": f.Purpose, "status": "processed"}
	if f.Expires != 0 {
		out["expires_at"] = f.Expires
	}
	return out
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // fails when the client has left
}

// fail answers with err.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	e := &wire.Error{Code: wire.InternalFailure, Message: err.Error()}
	var refused *wire.RequestError
	switch {
	case errors.As(err, &refused):
		e = &wire.Error{Code: refused.Code, Message: refused.Message}
	case errors.Is(err, ErrNone):
		e = wire.Errorf(wire.ModelNotFound, "there is no file %.60q", r.PathValue("id"))
	}
	a.Fail(w, r, e)
}

func bad(format string, args ...any) error {
	return &wire.RequestError{Code: wire.BadRequest, Message: fmt.Sprintf(format, args...)}
}

// maxField bounds a field of a form besides the file, in bytes.
const maxField = 1 << 10

func (a *API) create(w http.ResponseWriter, r *http.Request) {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/form-data" {
		a.fail(w, r, bad("the body must be a form (multipart/form-data) with the fields \"purpose\" and \"file\""))
		return
	}
	f := File{}
	if Anthropic(r) {
		f.Purpose = "user_data" // its API has none
	}
	parts := multipart.NewReader(r.Body, params["boundary"])
	p, err := a.fields(&f, parts)
	if err == nil && p == nil {
		err = bad("the form has no field \"file\" with a name")
	}
	if err == nil {
		f.Name, f.MIME = p.FileName(), "application/octet-stream"
		kind, _, kerr := mime.ParseMediaType(p.Header.Get("Content-Type"))
		if kerr == nil && len(kind) <= maxPurpose {
			f.MIME = kind
		}
		f, err = a.Store.CreateThen(a.Owner(r), f, p, func(f *File) error { // some clients send the purpose last
			p, err := a.fields(f, parts)
			if err == nil && p != nil {
				err = bad("the form has two fields \"file\"; send one file a request")
			}
			return err
		})
	}
	if err != nil {
		a.fail(w, r, err)
		return
	}
	answer(w, objectOf(r, &f))
}

// maxFields bounds the fields before and behind the file.
const maxFields = 8

// fields reads the fields of a form up to a file, which it returns; nil: there is none.
func (a *API) fields(f *File, parts *multipart.Reader) (*multipart.Part, error) {
	for range maxFields {
		p, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		if err != nil {
			return nil, bad("the form did not come whole: %v", err)
		}
		if p.FormName() == "file" {
			return p, nil
		}
		if err := field(f, p, a.Store.now()); err != nil {
			return nil, err
		}
	}
	return nil, bad("the form has more than %d fields beside \"file\"", maxFields)
}

// field reads a field of the form.
func field(f *File, p *multipart.Part, now time.Time) error {
	text, err := io.ReadAll(io.LimitReader(p, maxField+1))
	if err != nil || len(text) > maxField {
		return bad("field %.60q did not come whole, or has more than %d bytes", p.FormName(), maxField)
	}
	switch p.FormName() {
	case "purpose":
		if f.Purpose = string(text); f.Purpose == Results {
			return bad("field \"purpose\" is %q, which is for the results of batches", Results)
		}
	case "expires_after[seconds]":
		n, err := strconv.ParseInt(string(text), 10, 64)
		if err != nil || n < 3600 || n > 2_592_000 {
			return bad("field \"expires_after.seconds\" is %.40q; it must be 3600…2592000", text)
		}
		f.Expires = now.Unix() + n
	case "expires_after[anchor]":
		if string(text) != "created_at" {
			return bad("field \"expires_after.anchor\" is %.40q; it must be \"created_at\"", text)
		}
	}
	return nil
}

func (a *API) list(w http.ResponseWriter, r *http.Request) {
	list := a.Store.List(a.Owner(r))
	if purpose := r.URL.Query().Get("purpose"); purpose != "" {
		list = slices.DeleteFunc(list, func(f File) bool { return f.Purpose != purpose })
	}
	id := func(f *File) string { return f.ID }
	page, more, err := Page(r, list, id, Limits{Listed: 1000, Most: 10_000})
	if err != nil {
		a.fail(w, r, err)
		return
	}
	data := []any{}
	for i := range page {
		data = append(data, objectOf(r, &page[i]))
	}
	first, last := Ends(page, id)
	out := map[string]any{"data": data, "has_more": more, "first_id": first, "last_id": last}
	if !Anthropic(r) {
		out["object"] = "list"
	}
	answer(w, out)
}

func (a *API) get(w http.ResponseWriter, r *http.Request) {
	f, err := a.Store.Get(a.Owner(r), r.PathValue("id"))
	if err != nil {
		a.fail(w, r, err)
		return
	}
	answer(w, objectOf(r, &f))
}

func (a *API) delete(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	if err := a.Store.Delete(a.Owner(r), id); err != nil {
		a.fail(w, r, err)
		return
	}
	if Anthropic(r) {
		answer(w, map[string]any{"id": id, "type": "file_deleted"})
		return
	}
	answer(w, map[string]any{"id": id, "object": "file", "deleted": true})
}

func (a *API) content(w http.ResponseWriter, r *http.Request) {
	f, in, err := a.Store.Read(a.Owner(r), r.PathValue("id"))
	if err != nil {
		a.fail(w, r, err)
		return
	}
	defer in.Close()
	w.Header().Set("Content-Type", "application/octet-stream") // not the client's type: a browser must not run it
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Length", strconv.FormatInt(f.Bytes, 10))
	_, _ = io.Copy(w, in) // fails when the client has left
}
