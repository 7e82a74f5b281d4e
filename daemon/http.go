package daemon

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/api/anthropic"
	"github.com/uma-serve/uma-serve/daemon/api/openai"
	"github.com/uma-serve/uma-serve/daemon/api/own"
	"github.com/uma-serve/uma-serve/internal/buildinfo"
	"github.com/uma-serve/uma-serve/internal/page"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
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

// routes are the paths of the HTTP side: the daemon's own, and those of each API.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	apis := s.apis()
	methods := map[string][]string{} // by path
	handlers := map[string]map[string]http.HandlerFunc{}
	var known []string
	for _, r := range slices.Concat(s.ownRoutes(), own.Routes(apis), openai.Routes(apis), anthropic.Routes(apis)) {
		path := handlers[r.Path]
		if path == nil {
			path = map[string]http.HandlerFunc{}
			handlers[r.Path] = path
			mux.HandleFunc(r.Path, func(w http.ResponseWriter, req *http.Request) {
				h := path[req.Method]
				if h == nil {
					allow := strings.Join(methods[r.Path], ", ")
					w.Header().Set("Allow", allow)
					refuseHTTP(w, http.StatusMethodNotAllowed, fmt.Sprintf("%s %s: the method must be %s", req.Method, req.URL.Path, allow))
					return
				}
				h(w, req)
			})
		}
		known = append(known, r.Method+" "+r.Path)
		path[r.Method], methods[r.Path] = r.Handle, append(methods[r.Path], r.Method)
		if r.Method == http.MethodGet { // net/http leaves the body out
			path[http.MethodHead], methods[r.Path] = r.Handle, append(methods[r.Path], http.MethodHead)
		}
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuseHTTP(w, http.StatusNotFound, fmt.Sprintf("there is no %s; there are %s; see docs/http.md", r.URL.Path, strings.Join(known, ", ")))
	})
	return mux
}

// ownRoutes are the paths that belong to no API.
func (s *Server) ownRoutes() []api.Route {
	prometheus := s.metrics.PrometheusHandler()
	return []api.Route{
		{Method: http.MethodGet, Path: "/health", Handle: func(w http.ResponseWriter, _ *http.Request) {
			h := s.health()
			status := http.StatusOK
			if h.Status != "ok" {
				status = http.StatusServiceUnavailable
			}
			answerJSON(w, status, mustJSON(h))
		}},
		{Method: http.MethodGet, Path: "/info", Handle: func(w http.ResponseWriter, _ *http.Request) {
			answerJSON(w, http.StatusOK, mustJSON(s.info()))
		}},
		{Method: http.MethodGet, Path: "/metrics", Handle: func(w http.ResponseWriter, r *http.Request) {
			if wantsJSON(r.Header.Get("Accept")) {
				answerJSON(w, http.StatusOK, s.metrics.AppendJSON(nil))
				return
			}
			prometheus.ServeHTTP(w, r)
		}},
		{Method: http.MethodGet, Path: "/live", Handle: s.liveEvents},
		{Method: http.MethodGet, Path: "/{$}", Handle: page.ServeHTTP},
		{Method: http.MethodGet, Path: page.Prefix + "{file}", Handle: page.ServeHTTP},
	}
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
		Handler:  s.guarded(s.bounded(s.routes())), ConnContext: ipc.ConnContext, ConnState: ipc.ConnState,
		ReadHeaderTimeout: s.cfg.HeaderTimeout, IdleTimeout: idle, MaxHeaderBytes: httpHeaderSize,
	}
	s.http.RegisterOnShutdown(func() { s.live.end(s) })
	done := make(chan struct{})
	go func() {
		s.http.Serve(s.poller.HTTP()) // ends when s.http is closed
		close(done)
	}()
	return done
}

// apis is what the HTTP APIs are made with.
func (s *Server) apis() *api.Server {
	return &api.Server{Backend: backend{s}, StallTimeout: s.cfg.StallTimeout, Version: buildinfo.Version, Log: s.log, Now: time.Now}
}

// httpError answers a request that no API has seen yet with an error, in the form of the API that its path belongs to.
func (s *Server) httpError(w http.ResponseWriter, r *http.Request, e *wire.Error) {
	out := s.apis().NewWriter(w)
	if strings.HasPrefix(r.URL.Path, "/v1/messages") {
		anthropic.Fail(out, (*api.Error)(e))
		return
	}
	openai.Fail(out, (*api.Error)(e))
}
