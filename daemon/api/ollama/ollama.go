// Package ollama is ollama's API for one model that is always loaded. Names, shapes and defaults are those of ollama
// 0.17.4 (docs/api.md, api/types.go).
package ollama

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// APIVersion is the version of ollama whose API this is. Clients check it against the oldest version that they support.
const APIVersion = "0.17.4"

type rawJSON = json.RawMessage

// Routes returns the endpoints.
func Routes(s *api.Server) (routes []api.Route) {
	add := func(method, path string, handle func(*api.Server, http.ResponseWriter, *http.Request)) {
		routes = append(routes,
			api.Route{Method: method, Path: path,
				Handle: func(w http.ResponseWriter, r *http.Request) { handle(s, w, r) }})
	}
	add(http.MethodPost, "/api/chat", serveChat)
	add(http.MethodPost, "/api/generate", serveGenerate)
	add(http.MethodPost, "/api/show", serveShow)
	add(http.MethodGet, "/api/tags", serveTags)
	add(http.MethodGet, "/api/ps", servePS)
	add(http.MethodGet, "/api/version", serveVersion)
	add(http.MethodPost, "/api/embed", serveEmbed)
	add(http.MethodPost, "/api/embeddings", serveEmbeddings)
	for _, path := range []string{"/api/pull", "/api/push", "/api/create", "/api/copy", "/api/blobs/{digest}"} {
		add(http.MethodPost, path, refuse(api.OneModel))
	}
	add(http.MethodDelete, "/api/delete", refuse(api.OneModel))
	return routes
}

// Tables returns the table of each endpoint's fields, by its path.
func Tables() map[string]api.Table {
	return map[string]api.Table{
		"/api/chat": chatTable, "/api/generate": generateTable, "/api/show": showTable, "options": optionsTable,
		"/api/embed": embedTable, "/api/embeddings": embeddingsTable, "/api/pull": pullTable,
		"/api/delete": deleteTable, "/api/copy": copyTable, "/api/create": createTable,
	}
}

// Shapes returns the members of each endpoint's body.
func Shapes() map[string]*wire.Shape {
	return map[string]*wire.Shape{
		"/api/chat": api.ShapeOf(&chatBody{}), "/api/generate": api.ShapeOf(&generateBody{}),
	}
}

// Greet answers GET / of ollama's clients, which check with it whether a server runs; next answers other clients.
func Greet(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		agent := strings.ToLower(r.UserAgent())
		if !strings.HasPrefix(agent, "ollama") {
			next(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Write([]byte("Ollama is running"))
	}
}

// failure is the body of an error.
type failure struct {
	Error string `json:"error"`
}

// Fail answers with an error: its status, and a body in ollama's format.
func Fail(w *api.Writer, e *api.Error) {
	w.Refuse(e)
	status, _ := wire.HTTPStatus(e.Code)
	w.JSON(status, failureOf(e))
}

// failureOf is the body of an error, or the last line of an answer.
func failureOf(e *api.Error) failure {
	if e.Overflow() {
		return failure{"the input length exceeds the context length: " + e.Message}
	}
	return failure{e.Message}
}

// refuse returns a handler that answers an unsupported endpoint with the reason.
func refuse(why string) func(*api.Server, http.ResponseWriter, *http.Request) {
	return func(s *api.Server, w http.ResponseWriter, r *http.Request) {
		s.NewWriter(w).JSON(http.StatusNotImplemented, failure{r.URL.Path + " is not supported: " + why})
	}
}

// read parses a body. A field without a row in the table is one of a request.
func read(r *http.Request, table api.Table, dst any) (*api.Body, error) {
	body, err := table.Body(r)
	if err != nil {
		return nil, err
	}
	return body, body.Into(dst)
}
