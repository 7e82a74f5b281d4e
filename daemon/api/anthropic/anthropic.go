// Package anthropic is Anthropic's Messages API. Thinking blocks are the model's thinking; their budget is the thinking
// budget.
package anthropic

import (
	"fmt"
	"net/http"
	"strings"

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

// errorBody is the body of an error, and the data of an error event.
type errorBody struct {
	Type  string       `json:"type"` // "error"
	Error errorDetails `json:"error"`
}

type errorDetails struct {
	Type    string `json:"type"`
	Message string `json:"message"`
	UMACode string `json:"uma_code"`

	Details *unsupported `json:"details,omitempty"` // of a refused thread
}

// unsupported is what Anthropic's library wants to hear of a server without threads: it goes on without.
type unsupported struct {
	Code   string   `json:"error_code"`
	Fields []string `json:"unsupported"`
}

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
	case wire.EngineCrashed:
		return http.StatusBadGateway, "api_error"
	case wire.SessionLimit, wire.ModelUnready, wire.ModelTooLarge, wire.ShuttingDown:
		return 529, "overloaded_error"
	}
	return http.StatusInternalServerError, "api_error"
}

func failure(e *api.Error) *errorBody {
	_, kind := status(e.Code)
	message := e.Message
	if e.Overflow() {
		most := min(e.NCtx, e.NPrompt-1) // a prompt that just fills the context leaves no room for an answer
		message = fmt.Sprintf("prompt is too long: %d tokens > %d maximum", e.NPrompt, most)
	}
	out := &errorBody{"error", errorDetails{Type: kind, Message: message, UMACode: string(e.Code)}}
	if strings.HasPrefix(message, `field "thread"`) {
		out.Error.Details = &unsupported{"thread_unsupported_request", []string{"thread"}}
	}
	return out
}

// Fail answers with an error: its status, and a body in Anthropic's format.
func Fail(w *api.Writer, e *api.Error) {
	w.Refuse(e)
	code, _ := status(e.Code)
	w.JSON(code, failure(e))
}
