package daemon

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/ipc"
)

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("daemon: status: " + err.Error()) // plain structs of numbers and strings
	}
	return b
}

// wantsJSON reports whether an Accept header asks for JSON rather than Prometheus' text.
func wantsJSON(accept string) bool { return strings.Contains(accept, "application/json") }

// routes are the paths of the HTTP side. What OpenAI's clients ask for is there with and without /v1: llama-server has
// both, and a client's base URL may end in either.
func (s *Server) routes() http.Handler {
	prometheus := s.metrics.PrometheusHandler()
	mux := http.NewServeMux()
	var known []string
	handle := func(method, path string, h http.HandlerFunc) {
		methods := []string{method}
		if method == http.MethodGet {
			methods = append(methods, http.MethodHead) // net/http leaves the body out
		}
		known = append(known, method+" "+path)
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if !slices.Contains(methods, r.Method) {
				allow := strings.Join(methods, ", ")
				w.Header().Set("Allow", allow)
				refuseHTTP(w, http.StatusMethodNotAllowed, fmt.Sprintf("%s %s: the method must be %s", r.Method, r.URL.Path, allow))
				return
			}
			h(w, r)
		})
	}
	handle(http.MethodGet, "/health", func(w http.ResponseWriter, _ *http.Request) {
		h := s.health()
		status := http.StatusOK
		if h.Status != "ok" {
			status = http.StatusServiceUnavailable
		}
		answerJSON(w, status, mustJSON(h))
	})
	handle(http.MethodGet, "/info", func(w http.ResponseWriter, _ *http.Request) { answerJSON(w, http.StatusOK, mustJSON(s.info())) })
	handle(http.MethodGet, "/metrics", func(w http.ResponseWriter, r *http.Request) {
		if wantsJSON(r.Header.Get("Accept")) {
			answerJSON(w, http.StatusOK, s.metrics.AppendJSON(nil))
			return
		}
		prometheus.ServeHTTP(w, r)
	})
	for _, base := range []string{"/v1", ""} {
		handle(http.MethodPost, base+"/chat/completions", s.openAI(true))
		handle(http.MethodPost, base+"/completions", s.openAI(false))
		handle(http.MethodGet, base+"/models", s.models)
		handle(http.MethodGet, base+"/models/{id...}", s.oneModel) // an id may hold slashes
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuseHTTP(w, http.StatusNotFound, fmt.Sprintf("there is no %s; there are %s; see docs/protocol.md", r.URL.Path, strings.Join(known, ", ")))
	})
	return mux
}

func answerJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(body, '\n'))
}

// refuseHTTP answers what is no request of the protocol: a path, a method, a model that is not there.
func refuseHTTP(w http.ResponseWriter, status int, message string) {
	type body struct {
		Code    int    `json:"code"`
		Type    string `json:"type"`
		Message string `json:"message"`
	}
	kind := "invalid_request_error"
	if status == http.StatusNotFound {
		kind = "not_found_error"
	}
	answerJSON(w, status, mustJSON(struct {
		Error body `json:"error"`
	}{body{status, kind, message}}))
}

// serveHTTP answers the connections that the poller found to speak HTTP. The channel is closed when it ends.
func (s *Server) serveHTTP() <-chan struct{} {
	idle := httpKeepAlive
	if s.cfg.IdleTimeout > 0 {
		idle = s.cfg.IdleTimeout
	}
	s.http = &http.Server{
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
		Handler:  s.bounded(s.routes()), ConnContext: ipc.ConnContext, ConnState: ipc.ConnState,
		ReadHeaderTimeout: s.cfg.HeaderTimeout, IdleTimeout: idle, MaxHeaderBytes: httpHeaderSize,
	}
	done := make(chan struct{})
	go func() {
		s.http.Serve(s.poller.HTTP()) // ends when s.http is closed
		close(done)
	}()
	return done
}
