package daemon

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

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

// serveHTTP answers curl on the connections that the poller found to speak HTTP. The channel is closed when it ends.
func (s *Server) serveHTTP() <-chan struct{} {
	mux := http.NewServeMux()
	asJSON := func(w http.ResponseWriter, status int, body []byte) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		w.Write(append(body, '\n'))
	}
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		h := s.health()
		status := http.StatusOK
		if h.Status != "ok" {
			status = http.StatusServiceUnavailable
		}
		asJSON(w, status, mustJSON(h))
	})
	mux.HandleFunc("GET /info", func(w http.ResponseWriter, _ *http.Request) { asJSON(w, http.StatusOK, mustJSON(s.info())) })
	prometheus := s.metrics.PrometheusHandler()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		if wantsJSON(r.Header.Get("Accept")) {
			asJSON(w, http.StatusOK, s.metrics.AppendJSON(nil))
			return
		}
		prometheus.ServeHTTP(w, r)
	})
	mux.HandleFunc("POST /v1/chat/completions", s.openAI(true))
	mux.HandleFunc("POST /v1/completions", s.openAI(false))
	mux.HandleFunc("GET /v1/models", s.models)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		asJSON(w, http.StatusNotFound, []byte(`{"error":{"code":404,"type":"not_found_error","message":"there are GET /health, /metrics, /info and /v1/models, and POST /v1/chat/completions and /v1/completions; see docs/protocol.md"}}`))
	})
	s.http = &http.Server{
		Handler: mux, ConnContext: ipc.ConnContext, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
	}
	done := make(chan struct{})
	go func() {
		s.http.Serve(s.poller.HTTP()) // ends when s.http is closed
		close(done)
	}()
	return done
}
