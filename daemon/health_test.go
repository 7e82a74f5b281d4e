package daemon

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/daemon/opening"
	"github.com/uma-serve/uma-serve/internal/logq"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// TestHealthFailsWhenNoStepEnds: the decode loop hangs inside a decode with work to do. Health says so, and since when,
// also while the daemon drains; before the limit and after the loop has gone on it is well.
func TestHealthFailsWhenNoStepEnds(t *testing.T) {
	hang, hung := make(chan struct{}), make(chan struct{})
	first := true
	r := serve(t, fake.Config{Advance: func(time.Duration) {
		if first {
			first = false
			close(hung)
			<-hang
		}
	}})
	c := r.dial()
	q := wire.DefaultRequest()
	q.Prompt, q.MaxTokens = "x", 2
	st, err := c.Stream(context.Background(), &q)
	if err != nil {
		t.Fatal(err)
	}
	<-hung
	l := r.loop.Load()
	began := time.Now()
	if _, ok := l.state.stalled(began, stallAfter); ok {
		t.Error("stalled at once")
	}
	// The limit passes: the loop's last sign of life is that much older.
	l.state.busySince.Add(-int64(stallAfter + time.Second))
	for _, drain := range []bool{false, true} {
		r.draining.Store(drain)
		h := r.health()
		since, err := time.Parse(time.RFC3339, h.StalledSince)
		if h.Status != "stalled" || err != nil || began.Sub(since) < stallAfter ||
			h.StalledMs < stallAfter.Milliseconds() {
			t.Errorf("draining %v: %+v", drain, h)
		}
	}
	r.draining.Store(false)
	rec := httptest.NewRecorder()
	r.in.Web.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/health", nil))
	if rec.Code != http.StatusServiceUnavailable || !strings.Contains(rec.Body.String(), `"stalled_since"`) {
		t.Errorf("GET /health: %d %s", rec.Code, rec.Body)
	}
	close(hang)
	for {
		ev, err := st.Next()
		if err != nil {
			t.Fatal(err)
		}
		if ev.Kind == wire.EventEOS {
			break
		}
	}
	eventually(t, "it is well again", func() bool { return r.health().Status == "ok" })
}

// TestStalledState: what counts as a stall, by itself.
func TestStalledState(t *testing.T) {
	now := time.Unix(1000, 0)
	ago := func(d time.Duration) int64 { return now.Add(-d).UnixNano() }
	for _, c := range []struct {
		what       string
		busy, last int64
		want       bool
	}{
		{"it sleeps and has no work", 0, ago(time.Hour), false},
		{"work came just now", ago(time.Second), ago(time.Hour), false},
		{"steps end", ago(time.Hour), ago(time.Second), false},
		{"no step has ended", ago(time.Minute), 0, true},
		{"the last step ended long ago", ago(time.Hour), ago(time.Minute), true},
	} {
		var st loopState
		st.busySince.Store(c.busy)
		st.lastStep.Store(c.last)
		since, ok := st.stalled(now, stallAfter)
		if ok != c.want || ok && since.UnixNano() != max(c.busy, c.last) {
			t.Errorf("%s: %v since %v", c.what, ok, since)
		}
	}
}

// A step in which a device's driver compiles kernels is not taken for one that never ends.
func TestStepTimeout(t *testing.T) {
	for device, want := range map[runtime.DeviceKind]time.Duration{runtime.DeviceCPU: time.Minute,
		runtime.DeviceFake: time.Minute, runtime.DeviceGPU: 5 * time.Minute, runtime.DeviceIGPU: 5 * time.Minute,
		runtime.DeviceMetal: 5 * time.Minute} {
		if got := opening.StepTimeout(config.DefaultTuning().StepTimeout, device); got != want {
			t.Errorf("%s: %v, want %v", device, got, want)
		}
		if got := opening.StepTimeout(0, device); got != 0 {
			t.Errorf("%s: %v of no limit", device, got)
		}
	}
}

// TestClientThatDoesNotReadIsNoStall: a request whose client reads nothing cannot advance. That is the client's fault,
// and a service manager must not restart the daemon for it.
func TestClientThatDoesNotReadIsNoStall(t *testing.T) {
	r := serve(t, fake.Config{}, "--stall-timeout", "0", "-c", "65536")
	c := r.dial()
	q := wire.DefaultRequest()
	q.Prompt, q.MaxTokens, q.Stream, q.Sampling.IgnoreEOS = "x", 60000, true, true
	if _, err := c.Stream(context.Background(), &q); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the request is paused", func() (paused bool) {
		r.inLoop(func(l *loop) { paused = l.stalled == 1 })
		return paused
	})
	eventually(t, "the loop sleeps", func() bool { return r.loop.Load().state.busySince.Load() == 0 })
	if h := r.health(); h.Status != "ok" || h.Requests != 1 {
		t.Errorf("%+v", h)
	}
}

// neverRead is a log's reader that does not read.
type neverRead struct{ until chan struct{} }

func (n neverRead) Write(b []byte) (int, error) { <-n.until; return len(b), nil }

// TestUnreadLogDoesNotStopTheLoop: the decode loop logs an error for each of many requests, and nothing reads the log.
// All of them are answered, as is a request after them.
func TestUnreadLogDoesNotStopTheLoop(t *testing.T) {
	n := neverRead{make(chan struct{})}
	lines, log := logq.New(n, func(w io.Writer) slog.Handler { return slog.NewTextHandler(w, nil) },
		logq.Options{QueueBytes: 1024, Burst: 1 << 30})
	r := serveLogging(t, log, fake.Config{})
	c := r.dial()
	for range 50 {
		r.inLoop(func(l *loop) { l.log.Error("sampling failed", "request", "x") })
		if a := r.ask(c, func(q *wire.Request) { q.MaxTokens = 1 }); a.err != nil {
			t.Fatal(a.err)
		}
	}
	if s := lines.Stats(); s.Dropped == 0 {
		t.Errorf("%+v", s)
	}
	if got := string(r.metrics.AppendJSON(nil)); strings.Contains(got, `"log_dropped_total":0,`) ||
		!strings.Contains(got, `"log_dropped_total":`) {
		t.Error("the metric does not show it")
	}
	close(n.until)
}
