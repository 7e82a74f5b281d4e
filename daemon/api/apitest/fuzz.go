package apitest

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Fuzz sends bodies to a path. Each must get an answer or an error in the API's format, and the daemon must be able to
// parse the request of an accepted body.
func Fuzz(f *testing.F, routes func(*api.Server) []api.Route, path string, seeds ...string) {
	FuzzAt(f, routes, path, path, seeds...)
}

// FuzzAt is Fuzz for a path of a route with a pattern.
func FuzzAt(f *testing.F, routes func(*api.Server) []api.Route, pattern, path string, seeds ...string) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	b := &Backend{Answer: func(r *wire.Request) []wire.Event {
		return append(append([]wire.Event{Progress(2), Think("h"), Text("t")}, Call(0, "c", "f", "{}")...),
			EOS(wire.Calls))
	}}
	s := &api.Server{Backend: b, Version: "test", Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return Clock }}
	var handle http.HandlerFunc
	for _, r := range routes(s) {
		if r.Method == http.MethodPost && r.Path == pattern {
			handle = s.Telling(r.Handle)
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		b.mu.Lock()
		b.requests, b.broken = nil, nil
		b.mu.Unlock()
		w := httptest.NewRecorder()
		handle(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(string(body))))
		if b.broken != nil {
			t.Fatalf("%q was taken, but its request is refused: %v", body, b.broken)
		}
		switch kind := w.Header().Get("Content-Type"); {
		case kind == "text/event-stream" && w.Code == http.StatusOK:
			for _, ev := range Events(t, w.Body.String()) {
				if ev.Data != "[DONE]" && ev.Data != ":" && !json.Valid([]byte(ev.Data)) {
					t.Fatalf("%q: not JSON: %q", body, ev.Data)
				}
			}
		case kind == "application/x-ndjson" && w.Code == http.StatusOK:
			for line := range strings.Lines(w.Body.String()) {
				if !json.Valid([]byte(line)) {
					t.Fatalf("%q: not JSON: %q", body, line)
				}
			}
		case kind == "application/json":
			var answer struct {
				Error json.RawMessage // an object with a message, or the message
			}
			if w.Body.Bytes()[0] == '[' { // several answers
				if !json.Valid(w.Body.Bytes()) || w.Code != http.StatusOK {
					t.Fatalf("%q: %d %q", body, w.Code, w.Body)
				}
				return
			}
			if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
				t.Fatalf("%q: %d %q: %v", body, w.Code, w.Body, err)
			}
			message := errorMessage(answer.Error)
			if failed := answer.Error != nil && string(answer.Error) != "null"; failed != (w.Code >= 400) || failed &&
				(message == "" || len(message) > 2000) || w.Code >= 500 {
				t.Fatalf("%q: %d %q", body, w.Code, w.Body)
			}
		default:
			t.Fatalf("%q: %d, %q: %q", body, w.Code, kind, w.Body)
		}
	})
}

// errorMessage returns the message of an error: a string, or a member of an object; "" if there is none.
func errorMessage(raw json.RawMessage) (message string) {
	var in struct{ Message string }
	if json.Unmarshal(raw, &message) == nil {
		return message
	}
	json.Unmarshal(raw, &in)
	return in.Message
}
