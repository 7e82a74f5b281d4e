// Package openai is OpenAI's API: chat completions, completions, responses, embeddings and models, with llama-server's
// extensions (reasoning_content, timings, prompt_progress).
package openai

import (
	"fmt"
	"net/http"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// Routes returns the endpoints. They exist with and without /v1, as in llama-server: a client's base URL may have
// either form. Only /completions and /embeddings are llama-server's API.
func Routes(s *api.Server) (routes []api.Route) {
	responses := &responsesAPI{s: s}
	routes = append(routes,
		api.Route{Method: http.MethodPost, Path: "/v1/completions",
			Handle: func(w http.ResponseWriter, r *http.Request) { serveText(s, w, r) }},
		api.Route{Method: http.MethodPost, Path: "/v1/embeddings",
			Handle: func(w http.ResponseWriter, r *http.Request) { serveEmbeddings(s, w, r) }},
	)
	for _, base := range []string{"/v1", ""} {
		routes = append(routes,
			api.Route{Method: http.MethodPost, Path: base + "/chat/completions",
				Handle: func(w http.ResponseWriter, r *http.Request) { serveChat(s, w, r) }},
			api.Route{Method: http.MethodPost, Path: base + "/responses", Handle: responses.serveResponses},
			api.Route{Method: http.MethodPost, Path: base + "/responses/input_tokens", Handle: responses.serveCount},
			api.Route{Method: http.MethodPost, Path: base + "/responses/compact", Handle: responses.serveCompact},
			api.Route{Method: http.MethodGet, Path: base + "/responses/{id}", Handle: responses.serveStored},
			api.Route{Method: http.MethodDelete, Path: base + "/responses/{id}", Handle: responses.serveDelete},
			api.Route{Method: http.MethodGet, Path: base + "/responses/{id}/input_items", Handle: responses.serveItems},
			api.Route{Method: http.MethodPost, Path: base + "/responses/{id}/cancel", Handle: responses.serveCancel},
			api.Route{Method: http.MethodGet, Path: base + "/models",
				Handle: func(w http.ResponseWriter, r *http.Request) { serveModels(s, w) }},
			// an id may hold slashes
			api.Route{Method: http.MethodGet, Path: base + "/models/{id...}",
				Handle: func(w http.ResponseWriter, r *http.Request) { serveModel(s, w, r) }},
		)
	}
	return routes
}

// Tables returns the table of each endpoint's fields, by its path.
func Tables() map[string]api.Table {
	return map[string]api.Table{
		"/v1/chat/completions": chatTable, "/v1/completions": textTable, "/v1/responses": responsesTable,
		"/v1/embeddings": embeddingsTable,
	}
}

// Shapes returns the members of each endpoint's body.
func Shapes() map[string]*wire.Shape {
	return map[string]*wire.Shape{
		"/v1/chat/completions": api.ShapeOf(&chatBody{}, &options{}),
		"/v1/completions":      api.ShapeOf(&textBody{}, &options{}),
		"/v1/responses":        api.ShapeOf(&responsesBody{}),
	}
}

// Fail answers with an error: its status, and a body in OpenAI's format.
func Fail(w *api.Writer, e *api.Error) {
	w.Refuse(e)
	status, _ := wire.HTTPStatus(e.Code)
	w.JSON(status, failure(e))
}

// failure is the body of an error.
func failure(e *api.Error) any {
	return rawJSON(wire.AppendHTTPError(nil, (*wire.Error)(e)))
}

func serveModels(s *api.Server, w http.ResponseWriter) {
	s.NewWriter(w).JSON(http.StatusOK, reports.ServedModels{Object: "list", Data: s.Models()})
}

func serveModel(s *api.Server, w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	for _, m := range s.Models() {
		if m.ID == id {
			s.NewWriter(w).JSON(http.StatusOK, m)
			return
		}
	}
	NotFound(s.NewWriter(w), fmt.Sprintf("model %.100q is not served here; GET /v1/models lists the served models", id))
}

// Refusal is the body of an error that has no code of package wire.
type Refusal struct {
	Error RefusalDetails `json:"error"`
}

// RefusalDetails say what is wrong with a request.
type RefusalDetails struct {
	Code    int    `json:"code"` // the HTTP status
	Type    string `json:"type"`
	Message string `json:"message"`
}

// NotFound answers with HTTP 404.
func NotFound(w *api.Writer, message string) {
	w.JSON(http.StatusNotFound, Refusal{RefusalDetails{http.StatusNotFound, "not_found_error", message}})
}
