package api_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/api/apitest"
)

// TestUnknownFieldsAreLoggedOnce: a field is logged once for a client, and the log of all clients together is bounded.
func TestUnknownFieldsAreLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	s := &api.Server{Backend: &apitest.Backend{}, Log: slog.New(slog.NewTextHandler(&log, nil))}
	counted := 0
	s.CountIgnored = func(n int) { counted += n }
	handle := s.Telling(func(_ http.ResponseWriter, r *http.Request) {
		if _, err := (api.Table{}).Body(r); err != nil {
			t.Error(err)
		}
	})
	send := func(agent, body string) {
		r := httptest.NewRequest(http.MethodPost, "/v1/completions", strings.NewReader(body))
		r.Header.Set("User-Agent", agent)
		handle(httptest.NewRecorder(), r)
	}
	for range 3 {
		send("a\nb/1", `{"flux_mode":1,"temprature":2}`)
		send("c/2", `{"flux_mode":1}`)
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 3 || counted != 9 || !strings.Contains(lines[0], "field=flux_mode path=/v1/completions") ||
		!strings.Contains(lines[1], "did_you_mean=temperature") {
		t.Errorf("%d counted\n%s", counted, log.String())
	}
	for i := range 3000 {
		send(fmt.Sprint("agent", i), `{"flux_mode":1}`)
	}
	if n := strings.Count(log.String(), "\n"); n != 1025 || !strings.Contains(log.String(), "no further") {
		t.Errorf("%d lines", n)
	}
}
