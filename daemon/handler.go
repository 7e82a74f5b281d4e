package daemon

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// The Server is the poller's ipc.Handler: these methods run on the poller goroutine and only look, count and hand
// over. Control questions are answered here at once, from atomics: they never wait for a decode step.

// Request takes a generation request in, or refuses it.
func (s *Server) Request(c *ipc.Conn, w *wire.Request) {
	refuse := func(e wire.Error) {
		e.ID = w.ID
		s.metrics.Rejected(rejectLabel(e.Code))
		c.Fail(&e)
	}
	switch {
	case s.draining.Load():
		refuse(wire.Error{Code: wire.ShuttingDown, Message: "the server is shutting down; try again when it is back"})
		return
	case s.loop.Load() == nil:
		refuse(wire.Error{Code: wire.ModelUnready, Message: "the model is still loading; {\"type\":\"health\"} says how far", RetryAfter: time.Second})
		return
	}
	if e := s.checkTexts(w); e != nil {
		refuse(*e)
		return
	}
	if s.inside.Add(1) > int64(cap(s.jobs)) {
		s.inside.Add(-1)
		refuse(wire.Error{Code: wire.QueueLimit, RetryAfter: time.Second, Message: "too many requests are waiting (--max-queue); try again later"})
		return
	}
	s.metrics.Prompts.Inc()
	// Never full: fewer than cap(jobs) requests are inside.
	s.jobs <- job{c, w, time.Now()}
}

// checkTexts applies --max-prompt-bytes to a prompt or to the sum of a conversation.
func (s *Server) checkTexts(w *wire.Request) *wire.Error {
	if len(w.Messages) == 0 {
		return checkText("prompt", w.Prompt, s.cfg.MaxPromptBytes)
	}
	total := 0
	for i := range w.Messages {
		total += len(w.Messages[i].Content) + len(w.Messages[i].ReasoningContent)
	}
	if total > s.cfg.MaxPromptBytes {
		return &wire.Error{Code: wire.PromptTooLarge, Message: tooLarge("messages", total, s.cfg.MaxPromptBytes)}
	}
	return nil
}

// Cancel ends a request at the client's wish, within one step: also in the middle of its prefill.
func (s *Server) Cancel(c *ipc.Conn, id string) {
	// TODO adapt to ipc
}

// rejectLabel is the bounded metric label of an error code.
func rejectLabel(c wire.Code) string { return string(c) }

// Admin answers metrics, health and info.
func (s *Server) Admin(c *ipc.Conn, k wire.Kind, id string) {
	c.SendControl(wire.AppendReport(nil, k, id, s.report(k)))
}

func (s *Server) report(k wire.Kind) []byte {
	switch k {
	case wire.KindMetrics:
		return s.metrics.AppendJSON(nil)
	case wire.KindHealth:
		return mustJSON(s.health())
	}
	return mustJSON(s.info())
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("daemon: status: " + err.Error()) // plain structs of numbers and strings
	}
	return b
}

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
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		asJSON(w, http.StatusNotFound, []byte(`{"error":{"code":404,"type":"not_found_error","message":"there are GET /health, GET /metrics and GET /info; generation speaks framed JSON, see docs/protocol.md"}}`))
	})
	srv := &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
	}
	done := make(chan struct{})
	go func() {
		srv.Serve(s.poller.HTTP()) // ends when the poller closes the listener
		srv.Close()
		close(done)
	}()
	return done
}
