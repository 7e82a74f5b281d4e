// Package anthropic is Anthropic's Messages API. Thinking blocks are the model's thinking; their budget is the thinking
// budget.
package anthropic

import (
	"fmt"
	"net/http"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Routes returns the endpoints.
func Routes(s *api.Server) []api.Route {
	return []api.Route{
		{Method: http.MethodPost, Path: "/v1/messages",
			Handle: func(w http.ResponseWriter, r *http.Request) { serveMessages(s, w, r) }},
		{Method: http.MethodPost, Path: "/v1/messages/count_tokens",
			Handle: func(w http.ResponseWriter, r *http.Request) { serveCount(s, w, r) }},
	}
}

// Tables returns the table of each endpoint's fields, by its path.
func Tables() map[string]api.Table {
	return map[string]api.Table{"/v1/messages": messagesTable, "/v1/messages/count_tokens": messagesTable}
}

// Shapes returns the members of each endpoint's body.
func Shapes() map[string]*wire.Shape {
	return map[string]*wire.Shape{"/v1/messages": api.ShapeOf(&body{})}
}

// Failure is the body of an error, and the data of an error event.
type Failure struct {
	Type  string         `json:"type"` // "error"
	Error FailureDetails `json:"error"`
}

// FailureDetails say what went wrong.
type FailureDetails struct {
	Type    string       `json:"type"`
	Message string       `json:"message"`
	UMACode string       `json:"uma_code,omitempty"`
	Details *unsupported `json:"details,omitempty"`
}

// unsupported are the details of errThread.
type unsupported struct {
	Code  string   `json:"error_code"`
	Names []string `json:"unsupported"`
}

// errThread refuses a request that is part of a stored conversation. By its details the SDK's tool_runner knows that it
// must send whole conversations, and does so from then on.
var errThread = api.Refuse(`field "thread" is not supported: this server keeps no conversations; send the whole ` +
	`conversation without it`)

// status returns the HTTP status and the type of an error. 529 is Anthropic's status for an overloaded server.
func status(c wire.Code) (int, string) {
	switch c {
	case wire.BadRequest, wire.InvalidJSON, wire.DuplicateID, wire.ContextLength:
		return http.StatusBadRequest, "invalid_request_error"
	case wire.PromptTooLarge, wire.FrameTooLarge:
		return http.StatusRequestEntityTooLarge, "request_too_large"
	case wire.Timeout:
		return http.StatusRequestTimeout, "timeout_error"
	case wire.QueueLimit:
		return http.StatusTooManyRequests, "rate_limit_error"
	case wire.ModelNotFound:
		return http.StatusNotFound, "not_found_error"
	case wire.NotSupported:
		return http.StatusNotImplemented, "api_error"
	case wire.EngineCrashed:
		return http.StatusBadGateway, "api_error"
	case wire.SessionLimit, wire.ModelUnready, wire.ModelTooLarge, wire.ShuttingDown:
		return 529, "overloaded_error"
	}
	return http.StatusInternalServerError, "api_error"
}

func failure(e *api.Error) *Failure {
	_, kind := status(e.Code)
	message := e.Message
	if e.Overflow() {
		most := min(e.NCtx, e.NPrompt-1) // a prompt that just fills the context leaves no room for an answer
		message = fmt.Sprintf("prompt is too long: %d tokens > %d maximum", e.NPrompt, most)
	}
	f := &Failure{"error", FailureDetails{Type: kind, Message: message, UMACode: string(e.Code)}}
	if e == errThread {
		f.Error.Details = &unsupported{"thread_unsupported_request", []string{"thread"}}
	}
	return f
}

// Fail answers with an error: its status, and a body in Anthropic's format.
func Fail(w *api.Writer, e *api.Error) {
	w.Refuse(e)
	code, _ := status(e.Code)
	w.JSON(code, failure(e))
}
