package httpd

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/metrics"
)

// TestDisplacedCompletionIsToldWhy: an HTTP client whose connection makes way while its request runs reads a JSON
// error.
func TestDisplacedCompletionIsToldWhy(t *testing.T) {
	c := backend{s: &Server{Config: &config.Config{MaxSessions: 7}, Metrics: newTestMetrics()}}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(ipc.ErrDisplaced)
	e := c.lost(ctx, net.ErrClosed)
	if e.Code != wire.SessionLimit || !strings.Contains(e.Message, "makes way") || e.RetryAfter == 0 {
		t.Errorf("%+v", e)
	}
	if e := c.lost(context.Background(),
		&wire.RequestError{Code: wire.SessionLimit, Message: "no descriptor"}); e.Code != wire.SessionLimit ||
		e.RetryAfter == 0 {
		t.Errorf("%+v", e)
	}
	if e := c.lost(context.Background(), io.EOF); e.Code != wire.ShuttingDown {
		t.Errorf("%+v", e)
	}
	left, leave := context.WithCancel(context.Background())
	o := &outcome{ResponseWriter: httptest.NewRecorder(), metrics: c.s.Metrics}
	left = context.WithValue(left, outcomeKey{}, o)
	leave()
	e = c.lost(left, net.ErrClosed)
	o.Refused(e.Code)
	o.WriteHeader(http.StatusServiceUnavailable)
	var m map[string]any
	if err := json.Unmarshal(c.s.Metrics.AppendJSON(nil), &m); err != nil {
		t.Fatal(err)
	}
	if n := m["requests_rejected_total"].(map[string]any)[string(wire.SessionLimit)]; n != 2.0 {
		t.Errorf("%v rejections are counted, want 2", n)
	}
	if n := m["requests_rejected_total"].(map[string]any)[string(wire.ShuttingDown)]; n != 0.0 {
		t.Errorf("a client that has left counts as %v rejections", n)
	}
}

func newTestMetrics() *metrics.Metrics {
	m := metrics.New(metrics.Build{})
	for _, c := range wire.Codes {
		m.RejectReasons.Declare(string(c))
	}
	return m
}
