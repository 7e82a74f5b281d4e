package front

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/documents"
	"github.com/uma-serve/uma-serve/daemon/front/engineproc"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// openDocuments makes the reader of documents. It starts a process for each PDF that it has not read yet.
func (f *Front) openDocuments() {
	args := []string{documents.Arg, documents.Confined}
	if !f.cfg.Sandbox {
		args[1] = "unconfined"
	}
	f.docs = documents.New(documents.Options{
		Read: documents.NewProgram(f.opts.Program, args, f.log).Read,
		File: func(owner uint32, id string) (*documents.File, error) {
			name, data, err := f.kept.ReadFile(owner, id, documents.MaxBytes)
			if err != nil {
				return nil, err
			}
			return &documents.File{Name: name, Data: data}, nil
		}})
}

// serveText answers with the text of a file of the client.
func (f *Front) serveText(w http.ResponseWriter, r *http.Request) {
	peer, _ := ipc.PeerOf(r.Context())
	text, err := f.docs.Text(r.Context(), peer.UID, r.PathValue("id"))
	if err != nil {
		f.failed(w, r, err)
		return
	}
	api.AnswerJSON(w, http.StatusOK, map[string]string{"text": text})
}

// rewritten returns the body of a request with its documents as text.
func (f *Front) rewritten(r *http.Request, body []byte) ([]byte, error) {
	if !documents.Asks(r, body) {
		return body, nil
	}
	peer, _ := ipc.PeerOf(r.Context())
	return f.docs.Rewrite(r.Context(), peer.UID, body)
}

// serveDocuments answers a request with documents: the process of its model gets their text, and its answer goes to the
// client as it comes.
func (f *Front) serveDocuments(w http.ResponseWriter, r *http.Request, body []byte) {
	body, err := f.rewritten(r, body)
	if err != nil {
		f.failed(w, r, err)
		return
	}
	peer, _ := ipc.PeerOf(r.Context())
	resp, err := f.askAs(r.Context(), peer, r.URL.RequestURI(), engineproc.Header(r.Header), body)
	if err != nil {
		f.failed(w, r, err)
		return
	}
	defer resp.Body.Close()
	engineproc.Relay(w, resp)
}

// failed answers with an error, if there is a client that waits for it.
func (f *Front) failed(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler)
	}
	e := (*api.Error)(nil)
	if !errors.As(err, &e) {
		e = &api.Error{Code: wire.InternalFailure, Message: err.Error()}
	}
	f.answerError(w, r, (*wire.Error)(e))
}

// pathOf returns the URL of a request of the front to a model's process.
func pathOf(path string) *url.URL {
	u, err := url.ParseRequestURI(path)
	if err != nil {
		return &url.URL{Path: path}
	}
	return u
}
