// Package gemini is Google's Gemini API: generateContent, streamGenerateContent, countTokens and the list of models.
package gemini

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// Path is the path of the list of models; those of its models begin with it and a slash. PathV1 is that of the API's
// version 1, which SDKs of late 2026 use, and which OpenAI's API has too.
const (
	Path   = "/v1beta/models"
	PathV1 = "/v1/models"
)

// The methods, which follow the name of the model behind a colon.
const (
	generate = "generateContent"
	stream   = "streamGenerateContent"
	count    = "countTokens"
)

// Routes returns the endpoints. A pattern of net/http cannot end a segment with a method, so one route has them all.
func Routes(s *api.Server) []api.Route {
	list := func(context.Context) []reports.ServedModel { return s.Models() }
	call := func(w http.ResponseWriter, r *http.Request) { serve(s, w, r) }
	return []api.Route{
		{Method: http.MethodPost, Path: Path + "/{id...}", Handle: call},
		{Method: http.MethodPost, Path: PathV1 + "/{id...}", Handle: call},
		{Method: http.MethodGet, Path: Path, Handle: Models(list)},
		{Method: http.MethodGet, Path: Path + "/{id...}", Handle: Model(list)},
	}
}

// others are methods of the API that are not served.
var others = map[string]bool{"embedContent": true, "batchEmbedContents": true, "asyncBatchEmbedContent": true,
	"batchGenerateContent": true, "predict": true, "predictLongRunning": true}

// ModelOf returns the model that the path of a POST names, and the method behind it; ok is false for paths of other
// APIs.
func ModelOf(path string) (model, method string, ok bool) {
	call, beta := strings.CutPrefix(path, Path+"/")
	if !beta {
		if call, ok = strings.CutPrefix(path, PathV1+"/"); !ok {
			return "", "", false
		}
	}
	model = call
	if i := strings.LastIndexByte(call, ':'); i >= 0 { // models may have one in their names
		model, method = call[:i], call[i+1:]
	}
	known := method == generate || method == stream || method == count || others[method]
	return model, method, beta || known
}

// Calls reports whether a path is one of ModelOf.
func Calls(path string) bool {
	_, _, ok := ModelOf(path)
	return ok
}

// Speaks reports whether a request comes from one of Google's SDKs. Paths that OpenAI's API shares are then answered in
// Google's format.
func Speaks(r *http.Request) bool {
	return r.Header.Get("X-Goog-Api-Client") != "" || r.Header.Get("X-Goog-Api-Key") != ""
}

// Generates reports whether the endpoint of a path needs the model loaded.
func Generates(path string) bool {
	_, method, ok := ModelOf(path)
	return ok && (method == generate || method == stream || method == count)
}

func serve(s *api.Server, w http.ResponseWriter, r *http.Request) {
	model, method, _ := ModelOf(r.URL.Path)
	switch method {
	case generate, stream:
		serveGenerate(s, w, r, model, method == stream)
	case count:
		serveCount(s, w, r, model)
	default:
		Fail(s.NewWriter(w), &api.Error{Code: wire.NotSupported, Message: fmt.Sprintf("the method %.40q is not "+
			"supported; this server has %s, %s and %s (embeddings: POST /v1/embeddings)", method, generate, stream,
			count)})
	}
}

// Tables returns the table of each endpoint's fields, by its path.
func Tables() map[string]api.Table {
	return map[string]api.Table{Path + "/{model}:" + generate: contentTable, "generationConfig": configTable,
		Path + "/{model}:" + count: countTable}
}

// Failure is the body of an error, and the last part of a stream that fails.
type Failure struct {
	Error FailureDetails `json:"error"`
}

// FailureDetails say what went wrong.
type FailureDetails struct {
	Code    int    `json:"code"` // the HTTP status
	Message string `json:"message"`
	Status  string `json:"status"`
	Details []any  `json:"details,omitempty"`
}

// errorInfo has the code of the error.
type errorInfo struct {
	Type   string `json:"@type"`
	Reason string `json:"reason"`
	Domain string `json:"domain"`
}

// retryInfo says when to try again.
type retryInfo struct {
	Type  string `json:"@type"`
	Delay string `json:"retryDelay"`
}

// status returns the HTTP status of an error.
func status(c wire.Code) int {
	switch c {
	case wire.BadRequest, wire.InvalidJSON, wire.DuplicateID, wire.ContextLength:
		return http.StatusBadRequest
	case wire.PromptTooLarge, wire.FrameTooLarge:
		return http.StatusRequestEntityTooLarge
	case wire.Timeout:
		return http.StatusRequestTimeout
	case wire.QueueLimit:
		return http.StatusTooManyRequests
	case wire.ModelNotFound:
		return http.StatusNotFound
	case wire.NotSupported:
		return http.StatusNotImplemented
	case wire.EngineCrashed:
		return http.StatusBadGateway
	case wire.SessionLimit, wire.ModelUnready, wire.ModelTooLarge, wire.ShuttingDown:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// statusNames are the names of HTTP statuses in Google's APIs.
var statusNames = map[int]string{
	http.StatusBadRequest: "INVALID_ARGUMENT", http.StatusUnauthorized: "UNAUTHENTICATED",
	http.StatusForbidden: "PERMISSION_DENIED", http.StatusNotFound: "NOT_FOUND",
	http.StatusMethodNotAllowed: "INVALID_ARGUMENT", http.StatusRequestTimeout: "DEADLINE_EXCEEDED",
	http.StatusRequestEntityTooLarge: "INVALID_ARGUMENT", http.StatusTooManyRequests: "RESOURCE_EXHAUSTED",
	http.StatusNotImplemented: "UNIMPLEMENTED", http.StatusBadGateway: "INTERNAL",
	http.StatusServiceUnavailable: "UNAVAILABLE", http.StatusInternalServerError: "INTERNAL",
}

// Refusal returns the error with this HTTP status.
func Refusal(status int, message string) *Failure {
	return &Failure{FailureDetails{Code: status, Message: message, Status: statusNames[status]}}
}

func failure(e *api.Error) *Failure {
	f := Refusal(status(e.Code), e.Message)
	if e.Overflow() {
		most := min(e.NCtx, e.NPrompt-1) // a prompt that just fills the context leaves no room for an answer
		f.Error.Message = fmt.Sprintf("The input token count (%d) exceeds the maximum number of tokens allowed (%d).",
			e.NPrompt, most)
	}
	f.Error.Details = []any{errorInfo{"type.googleapis.com/google.rpc.ErrorInfo", string(e.Code), "uma-serve"}}
	if e.RetryAfter > 0 {
		delay := fmt.Sprintf("%ds", (e.RetryAfter+time.Second-1)/time.Second)
		f.Error.Details = append(f.Error.Details, retryInfo{"type.googleapis.com/google.rpc.RetryInfo", delay})
	}
	return f
}

// Fail answers with an error: its status, and a body in the form of Google's APIs.
func Fail(w *api.Writer, e *api.Error) {
	w.Refuse(e)
	f := failure(e)
	w.JSON(f.Error.Code, f)
}
