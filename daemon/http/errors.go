package httpd

import (
	"net/http"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/api/anthropic"
	"github.com/uma-serve/uma-serve/daemon/api/gemini"
	"github.com/uma-serve/uma-serve/daemon/api/ollama"
	"github.com/uma-serve/uma-serve/daemon/api/openai"
	"github.com/uma-serve/uma-serve/daemon/shm/connstate"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// fail answers with e as an API does.
func fail(out *api.Writer, of connstate.API, e *wire.Error) {
	switch of {
	case connstate.Anthropic:
		anthropic.Fail(out, (*api.Error)(e))
	case connstate.Gemini:
		gemini.Fail(out, (*api.Error)(e))
	case connstate.Ollama:
		ollama.Fail(out, (*api.Error)(e))
	default:
		openai.Fail(out, (*api.Error)(e))
	}
}

// Rendered returns the HTTP response with which an API reports e.
func Rendered(of connstate.API, e *wire.Error) (status int, header http.Header, body []byte) {
	w := &Kept{}
	fail((&api.Server{}).NewWriter(w), of, e)
	return w.Status, w.Header(), w.Body
}

// Kept is an http.ResponseWriter that keeps the response.
type Kept struct {
	Status int
	Body   []byte
	header http.Header
}

// Header returns the header, which the handler writes to.
func (w *Kept) Header() http.Header {
	if w.header == nil {
		w.header = http.Header{}
	}
	return w.header
}

// WriteHeader keeps the status.
func (w *Kept) WriteHeader(status int) { w.Status = status }

func (w *Kept) Write(b []byte) (int, error) {
	w.Body = append(w.Body, b...)
	return len(b), nil
}

// EventOf returns err as the error event that a client gets.
func EventOf(err error) *wire.Error {
	e := wire.Error(*api.AsError(err))
	return &e
}
