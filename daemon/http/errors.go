package httpd

import (
	"net/http"
	"net/url"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/api/anthropic"
	"github.com/uma-serve/uma-serve/daemon/api/gemini"
	"github.com/uma-serve/uma-serve/daemon/api/ollama"
	"github.com/uma-serve/uma-serve/daemon/api/openai"
	"github.com/uma-serve/uma-serve/daemon/shm/connstate"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/metrics"
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
	w := &api.Kept{}
	fail((&api.Server{}).NewWriter(w), of, e)
	return w.Status, w.Header(), w.Body
}

// Scrape returns metrics in Prometheus's text format.
func Scrape(m *metrics.Metrics) []byte {
	w := &api.Kept{}
	m.PrometheusHandler().ServeHTTP(w, &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/metrics"},
		Header: http.Header{}})
	return w.Body
}

// EventOf returns err as the error event that a client gets.
func EventOf(err error) *wire.Error {
	e := wire.Error(*api.AsError(err))
	return &e
}
