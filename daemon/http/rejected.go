package httpd

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/metrics"
)

// counted counts in requests_rejected_total each error that next answers with: by the code that an API refused with, or
// where no API did, by the status. Errors within an event stream are counted at their source (relayed), and /health
// asks for nothing that could be refused.
func (s *Server) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/health") {
			next.ServeHTTP(w, r)
			return
		}
		o := &outcome{ResponseWriter: w, metrics: s.Metrics}
		next.ServeHTTP(o, r.WithContext(context.WithValue(r.Context(), outcomeKey{}, o)))
	})
}

// outcome counts the answer of one HTTP request.
type outcome struct {
	http.ResponseWriter
	metrics *metrics.Metrics
	begun   bool
	code    wire.Code // of an API's refusal
	relayed atomic.Bool
}

type outcomeKey struct{}

func (o *outcome) WriteHeader(status int) {
	if !o.begun && status >= http.StatusBadRequest && !o.relayed.Load() {
		if o.code == "" {
			o.code = codeOf(status)
		}
		o.metrics.Rejected(string(o.code)) // before the client can know of it
	}
	if !o.begun && hopeless(status) {
		o.Header().Set(retryHeader, "false")
	}
	o.begun = true
	o.ResponseWriter.WriteHeader(status)
}

// retryHeader is obeyed by the clients of OpenAI and Anthropic, which otherwise ask again after each 5xx.
const retryHeader = "X-Should-Retry"

// hopeless reports whether a request that was answered with a status is answered so again: it, or the model, is at
// fault, and not the moment.
func hopeless(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return false
	}
	return status >= http.StatusBadRequest && status < http.StatusInternalServerError ||
		status == http.StatusNotImplemented
}

// Unwrap lets http.ResponseController find the methods of the underlying writer.
func (o *outcome) Unwrap() http.ResponseWriter { return o.ResponseWriter }

// Flush serves handlers that use the writer as an http.Flusher.
func (o *outcome) Flush() { _ = http.NewResponseController(o.ResponseWriter).Flush() }

// Refused records the code of the error with which an API answers. api.Writer calls it.
func (o *outcome) Refused(c wire.Code) { o.code = c }

// relayed notes that an error of ctx's HTTP request is counted already.
func relayed(ctx context.Context) {
	if o, ok := ctx.Value(outcomeKey{}).(*outcome); ok {
		o.relayed.Store(true)
	}
}

// codeOf returns the code of an HTTP answer whose error has none, as that of an unknown path or method.
func codeOf(status int) wire.Code {
	if status < http.StatusInternalServerError {
		return wire.BadRequest
	}
	return wire.InternalFailure
}
