package httpd

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/api/anthropic"
	"github.com/uma-serve/uma-serve/daemon/api/changes"
	"github.com/uma-serve/uma-serve/daemon/api/control"
	"github.com/uma-serve/uma-serve/daemon/api/gemini"
	"github.com/uma-serve/uma-serve/daemon/api/llamaserver"
	"github.com/uma-serve/uma-serve/daemon/api/ollama"
	"github.com/uma-serve/uma-serve/daemon/api/openai"
	"github.com/uma-serve/uma-serve/daemon/api/predict"
	"github.com/uma-serve/uma-serve/daemon/api/resume"
	"github.com/uma-serve/uma-serve/daemon/api/worker"
	"github.com/uma-serve/uma-serve/daemon/live"
	"github.com/uma-serve/uma-serve/daemon/page"
	"github.com/uma-serve/uma-serve/daemon/shm/connstate"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// Routes returns the paths of a daemon with a model: its own and those of each API.
func (s *Server) Routes(d Daemon, views *live.Views) []api.Route {
	return slices.Concat(s.serverRoutes(d, views), apiRoutes(s.apis(d), s.defaults))
}

// apiRoutes returns the paths of all APIs. defaults returns the values of fields that a request omits; nil: those of
// package wire.
func apiRoutes(apis *api.Server, defaults func(context.Context) *wire.Request) []api.Route {
	streams := resume.New(apis)
	routes := slices.Concat(control.Routes(apis), openai.Routes(apis), anthropic.Routes(apis),
		llamaserver.Routes(apis), ollama.Routes(apis), worker.Routes(apis), gemini.Routes(apis),
		changes.AdapterRoutes(apis), streams.Routes())
	for i := range routes {
		r := &routes[i]
		r.Handle = apis.Telling(api.Defaulting(r.Handle, defaults))
		if r.Method == http.MethodGet && (r.Path == "/v1/models" || r.Path == "/v1/models/{id...}") {
			list := func(context.Context) []reports.ServedModel { return apis.Models() }
			r.Handle = gemini.OrModels(anthropic.OrModels(r.Handle, list), list)
		}
		if r.Method == http.MethodPost && resumable[r.Path] {
			r.Handle = streams.Keep(r.Handle)
		}
	}
	return append(routes, predict.Route(apis, routes))
}

// Handler returns the handler of routes, and of all other paths the answer that there is no such path.
func Handler(routes []api.Route) http.Handler {
	return Mux(routes, func(w http.ResponseWriter, r *http.Request) {
		refuseHTTP(w, r, http.StatusNotFound,
			fmt.Sprintf("%s %.100s: there is no such path; docs/http.md lists those that there are", r.Method,
				r.URL.Path))
	})
}

// wantsJSON reports whether an Accept header prefers JSON to Prometheus' text format.
func wantsJSON(accept string) bool { return strings.Contains(accept, "application/json") }

// Mux returns the handler of routes: a method that a path does not have gets 405, and other answers all other paths.
func Mux(routes []api.Route, other http.HandlerFunc) http.Handler {
	mux := http.NewServeMux()
	methods := map[string][]string{} // by path
	handlers := map[string]map[string]http.HandlerFunc{}
	for _, r := range routes {
		path := handlers[r.Path]
		if path == nil {
			path = map[string]http.HandlerFunc{}
			handlers[r.Path] = path
			mux.HandleFunc(r.Path, func(w http.ResponseWriter, req *http.Request) {
				h := path[req.Method]
				if h == nil {
					allow := strings.Join(methods[r.Path], ", ")
					w.Header().Set("Allow", allow)
					refuseHTTP(w, req, http.StatusMethodNotAllowed,
						fmt.Sprintf("%s %s: the method must be %s", req.Method, req.URL.Path, allow))
					return
				}
				h(w, req)
			})
		}
		path[r.Method], methods[r.Path] = r.Handle, append(methods[r.Path], r.Method)
		if r.Method == http.MethodGet { // net/http omits the body of HEAD
			path[http.MethodHead], methods[r.Path] = r.Handle, append(methods[r.Path], http.MethodHead)
		}
	}
	mux.HandleFunc("/", other)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect { // a ServeMux answers it in its own form
			refuseHTTP(w, r, http.StatusMethodNotAllowed, "CONNECT: this server is no proxy")
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// resumable are the paths whose streams are kept for clients that ask for it.
var resumable = map[string]bool{
	"/v1/chat/completions": true, "/chat/completions": true, "/v1/completions": true, "/completion": true,
	"/completions": true, "/infill": true, "/v1/responses": true, "/responses": true, "/v1/messages": true,
}

// serverRoutes returns the paths that belong to no API: health, info, metrics, live views and the page.
func (s *Server) serverRoutes(d Daemon, views *live.Views) []api.Route {
	prometheus := s.Metrics.PrometheusHandler()
	routes := s.PageRoutes()
	return append(routes, []api.Route{
		{Method: http.MethodGet, Path: "/health", Handle: func(w http.ResponseWriter, r *http.Request) {
			AnswerHealth(w, r, d.Health())
		}},
		{Method: http.MethodGet, Path: "/info", Handle: func(w http.ResponseWriter, _ *http.Request) {
			api.AnswerJSON(w, http.StatusOK, d.Info())
		}},
		{Method: http.MethodGet, Path: "/metrics", Handle: func(w http.ResponseWriter, r *http.Request) {
			if wantsJSON(r.Header.Get("Accept")) {
				w.Header().Set("Content-Type", "application/json")
				w.Write(append(s.Metrics.AppendJSON(nil), '\n'))
				return
			}
			w.Header().Set("Process-Start-Time-Unix", s.Metrics.Began()) // llama-server's
			prometheus.ServeHTTP(w, r)
		}},
		{Method: http.MethodGet, Path: ToolServersPath, Handle: func(w http.ResponseWriter, _ *http.Request) {
			api.AnswerJSON(w, http.StatusOK, map[string][]any{"servers": {}}) // a front has them
		}},
		{Method: http.MethodGet, Path: LivePath, Handle: s.liveEvents(views)},
	}...)
}

// PageRoutes returns the paths of the page.
func (s *Server) PageRoutes() []api.Route {
	routes := []api.Route{
		{Method: http.MethodGet, Path: "/{$}", Handle: ollama.Greet(s.page())},
		{Method: http.MethodGet, Path: page.Prefix + "{file}", Handle: s.page()},
	}
	for _, path := range page.Roots {
		routes = append(routes, api.Route{Method: http.MethodGet, Path: path, Handle: s.page()})
	}
	return routes
}

// page returns the handler of the page's files.
func (s *Server) page() http.HandlerFunc {
	if !s.Config.NoPage {
		return page.ServeHTTP
	}
	return func(w http.ResponseWriter, r *http.Request) {
		refuseHTTP(w, r, http.StatusNotFound,
			fmt.Sprintf("%s %.100s: the page is off (--no-page)", r.Method, r.URL.Path))
	}
}

// ToolServersPath is the path of the list of MCP servers that a client may use.
const ToolServersPath = "/mcp/servers"

// AnswerHealth answers GET /health: to a client that is not known with the status alone.
func AnswerHealth(w http.ResponseWriter, r *http.Request, h reports.Health) {
	status := http.StatusOK
	if h.Status != "ok" {
		status = http.StatusServiceUnavailable
	}
	if Anonymous(r.Context()) {
		api.AnswerJSON(w, status, struct {
			Status string `json:"status"`
		}{h.Status})
		return
	}
	api.AnswerJSON(w, status, h)
}

// refuseHTTP answers a request for an unknown path, method or model.
func refuseHTTP(w http.ResponseWriter, r *http.Request, status int, message string) {
	if strings.HasPrefix(r.URL.Path, "/api/") {
		api.AnswerJSON(w, status, struct {
			Error string `json:"error"`
		}{message})
		return
	}
	kind := "invalid_request_error"
	if status == http.StatusNotFound {
		kind = "not_found_error"
	}
	switch apiOf(r) {
	case connstate.Gemini:
		api.AnswerJSON(w, status, gemini.Refusal(status, message))
		return
	case connstate.Anthropic:
		api.AnswerJSON(w, status, anthropic.Failure{Type: "error",
			Error: anthropic.FailureDetails{Type: kind, Message: message}})
		return
	}
	details := openai.RefusalDetails{Code: status, Type: kind, Message: message}
	api.AnswerJSON(w, status, openai.Refusal{Error: details})
}
