package daemon

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/internal/wireclient"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// raw is a bare connection to r's socket.
func (r *running) raw() *net.UnixConn {
	r.t.Helper()
	c, err := net.Dial("unix", r.cfg.Socket)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(60 * time.Second))
	return c.(*net.UnixConn)
}

func (r *running) say(c net.Conn, format string, a ...any) {
	r.t.Helper()
	if _, err := fmt.Fprintf(c, format, a...); err != nil {
		r.t.Fatal(err)
	}
}

// response reads one HTTP response whole.
func response(t *testing.T, br *bufio.Reader) (status int, body string) {
	t.Helper()
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Errorf("no response: %v", err)
		return 0, ""
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("half a response: %v", err)
	}
	return resp.StatusCode, string(b)
}

func httpPost(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: uma\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
}

// TestBurstOfCompletions: 300 clients connect, then all of them ask at once; each gets an answer.
func TestBurstOfCompletions(t *testing.T) {
	const n = 300
	r := serve(t, fake.Config{}, "-c", "65536", "--max-queue", "1000")
	conns := make([]*net.UnixConn, n)
	for i := range conns {
		conns[i] = r.raw()
	}
	var wg sync.WaitGroup
	for i, c := range conns {
		wg.Go(func() {
			if i%2 == 0 {
				io.WriteString(c, "GET /health HTTP/1.1\r\nHost: uma\r\n\r\n")
			} else {
				io.WriteString(c, httpPost("/v1/completions", `{"prompt":"x","max_tokens":2}`))
			}
			if status, body := response(t, bufio.NewReader(c)); status != 200 {
				t.Errorf("client %d: %d %s", i, status, body)
			}
		})
	}
	wg.Wait()
	for _, c := range conns {
		c.Close()
	}
	r.nothingLeft()
}

// TestHalfClosedHTTPClientGetsItsAnswer: a client that sends its whole request and shuts down its write side is
// answered like any other, whole and streamed, also where its answer takes long after.
func TestHalfClosedHTTPClientGetsItsAnswer(t *testing.T) {
	gate := make(chan struct{})
	r := serve(t, fake.Config{Advance: func(time.Duration) { <-gate }})
	var readers []*bufio.Reader
	for _, ask := range []string{
		"GET /health HTTP/1.1\r\nHost: uma\r\n\r\n",
		httpPost("/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],"max_tokens":3}`),
		httpPost("/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],"max_tokens":3,"stream":true}`),
		httpPost("/v1/completions", `{"prompt":"x","max_tokens":3}`) +
			httpPost("/v1/completions", `{"prompt":"x","max_tokens":3}`),
	} {
		c := r.raw()
		r.say(c, "%s", ask)
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		readers = append(readers, bufio.NewReader(c))
	}
	eventually(t, "the requests are in flight", func() bool { return r.info().Live.InFlight == 3 })
	close(gate)
	for i, br := range readers {
		status, body := response(t, br)
		if status != 200 || i == 2 && !strings.Contains(body, "[DONE]") {
			t.Errorf("request %d: %d %s", i, status, body)
		}
	}
	if status, body := response(t, readers[3]); status != 200 {
		t.Errorf("the pipelined request: %d %s", status, body)
	}
	for i, br := range readers {
		if b, err := io.ReadAll(br); len(b) != 0 || err != nil {
			t.Errorf("request %d: after the answer %q, %v", i, b, err)
		}
	}
	r.nothingLeft()
}

// TestHalfClosedHTTPClientThatGoesCancels: what a half-closed client asked is cancelled when it goes altogether.
func TestHalfClosedHTTPClientThatGoesCancels(t *testing.T) {
	r := serve(t, fake.Config{}, "-c", "1000000")
	h := r.hold() // the client does not read, and disconnects before its context is full
	c := r.raw()
	r.say(c, "%s", httpPost("/v1/completions", `{"prompt":"endless"}`))
	c.CloseWrite()
	h.arrived(1)
	c.Close()
	h.mailed("it is cancelled", cmdCancel, 1)
	h.release()
	r.nothingLeft()
}

// TestDeadlinesFreeTheirConnections: requests of every kind that never become whole do not lock the daemon.
func TestDeadlinesFreeTheirConnections(t *testing.T) {
	const sessions = 40
	r := serve(t, fake.Config{}, "--max-sessions", fmt.Sprint(sessions), "--body-timeout", "150ms", "--header-timeout",
		"150ms", "--idle-timeout", "10s")
	asks := []struct {
		say    string
		status int // 0: framed or text
	}{
		{"POST /v1/chat/completions HTTP/1.1\r\nHost: uma\r\nContent-Length: 100\r\n\r\n", 408},
		{"POST /v1/chat/completions HTTP/1.1\r\nHost: uma\r\nContent-Length: 100\r\n\r\n{\"mess", 408},
		{"POST /v1/completions HTTP/1.1\r\nHost: uma\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", 408},
		{"POST /nowhere HTTP/1.1\r\nHost: uma\r\nContent-Length: 100\r\n\r\n", 408},
		{"PUT /health HTTP/1.1\r\nHost: uma\r\nContent-Length: 100\r\n\r\n", 408},
		{"GET /health HTTP/1.1\r\nHost: uma\r\nContent-Length: 100\r\n\r\n", 200},
		{"GET /health HTTP/1.1\r\nHost: uma\r\nTransfer-Encoding: chunked\r\n\r\n", 200},
		{"GET /health HTTP/1.1\r\nHost: u", 408},
		{"POST", 408},
		{"\x00\x10\x00\x00{", 0},
		{"half a line", 0},
		{"POST /v1/completions HTTP/1.1\r\nHost: uma\r\nContent-Length: 99999999\r\n\r\n", 413},
	}
	var conns []*net.UnixConn
	for i := range sessions - 2 {
		c := r.raw()
		r.say(c, "%s", asks[i%len(asks)].say)
		conns = append(conns, c)
	}
	for i, c := range conns {
		ask := asks[i%len(asks)]
		br := bufio.NewReader(c)
		if ask.status != 0 {
			status, body := response(t, br)
			if status != ask.status || status == 408 && !strings.Contains(body, string(wire.Timeout)) {
				t.Errorf("%q: %d %s", ask.say, status, body)
			}
		}
		b, err := io.ReadAll(br)
		if err != nil && !errors.Is(err, syscall.ECONNRESET) || ask.status == 0 &&
			!bytes.Contains(b, []byte(wire.Timeout)) || ask.status != 0 && len(b) != 0 {
			t.Errorf("%q: then %q, %v", ask.say, b, err)
		}
	}
	eventually(t, "the sessions are free", func() bool { return r.poller.Stats().Sessions.Load() == 0 })
	if a := r.ask(r.dial(), func(q *wire.Request) { q.MaxTokens = 2 }); a.err != nil {
		t.Error(a.err)
	}
	r.nothingLeft()
}

// TestSlowlorisOverHTTP: a byte now and then gains no time, in a header, a body, a chunked body or a pipelined request.
func TestSlowlorisOverHTTP(t *testing.T) {
	r := serve(t, fake.Config{}, "--body-timeout", "150ms", "--header-timeout", "150ms")
	for name, head := range map[string]string{
		"header":       "GET /health HTTP/1.1\r\nX-Slow: ",
		"body":         "POST /v1/completions HTTP/1.1\r\nHost: uma\r\nContent-Length: 100000\r\n\r\n",
		"chunked body": "POST /v1/completions HTTP/1.1\r\nHost: uma\r\nTransfer-Encoding: chunked\r\n\r\n8000\r\n",
		"pipelined":    "GET /v1/models HTTP/1.1\r\nHost: uma\r\n\r\nGET /health HTTP/1.1\r\nX-Slow: ",
	} {
		t.Run(name, func(t *testing.T) {
			c := r.raw()
			r.say(c, "%s", head)
			var wg sync.WaitGroup
			wg.Go(func() { // as fast as the daemon reads, for as long as it does
				for {
					if _, err := c.Write([]byte("x")); err != nil {
						return
					}
					select {
					case <-time.After(5 * time.Millisecond): // the attack's own pace
					case <-t.Context().Done():
						return
					}
				}
			})
			br := bufio.NewReader(c)
			if name == "pipelined" {
				if status, body := response(t, br); status != 200 {
					t.Errorf("the first: %d %s", status, body)
				}
			}
			if status, body := response(t, br); status != 408 {
				t.Errorf("%d %s", status, body)
			}
			c.Close()
			wg.Wait()
		})
	}
	r.nothingLeft()
}

// loading is a Server whose model loads until load is called.
type loading struct {
	*running
	signals chan error // result of Serve
	load    func(error)
}

func serveLoading(t *testing.T, advance func(time.Duration), args ...string) *loading {
	t.Helper()
	fs, cfg, _ := config.NewFlagSet()
	if err := fs.Parse(append([]string{"--model", "fake", "--socket", filepath.Join(t.TempDir(), "s")},
		args...)); err != nil {
		t.Fatal(err)
	}
	if err := cfg.Load(nil); err != nil {
		t.Fatal(err)
	}
	s, err := New(cfg, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	l := &loading{running: &running{Server: s, t: t}, signals: make(chan error, 1)}
	result := make(chan error)
	ctx, cancel := context.WithCancel(context.Background())
	l.load = func(err error) { result <- err }
	go func() {
		l.signals <- s.Serve(ctx, func(o runtime.Options) (runtime.Engine, error) {
			o.Progress(0.5)
			if err := <-result; err != nil {
				return nil, err
			}
			return fake.New(fake.Config{Options: o, Advance: advance}), nil
		})
	}()
	l.stop = func() error { cancel(); return <-l.signals }
	eventually(t, "half of the model is there", func() bool { return s.about.LoadProgress() == 0.5 })
	return l
}

// TestRequestsWaitForTheModel: in every protocol requests that come while the model loads wait in their order and are
// answered; health, metrics and info answer meanwhile; one that is cancelled, or whose client goes, waits no longer.
func TestRequestsWaitForTheModel(t *testing.T) {
	r := serveLoading(t, nil, "--parallel", "1")
	c := r.dial()
	framed := make(chan answer, 1)
	go func() { framed <- r.ask(c, func(q *wire.Request) { q.ID, q.MaxTokens = "a", 4 }) }()
	eventually(t, "the framed request waits", func() bool { return r.room.Count() == 1 })
	text := r.raw()
	r.say(text, "a question\n")
	eventually(t, "the line waits", func() bool { return r.room.Count() == 2 })
	web := r.raw()
	r.say(web, "%s", httpPost("/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],"max_tokens":3}`))
	eventually(t, "the HTTP request waits", func() bool { return r.room.Count() == 3 })

	c2 := r.dial()
	req := wire.DefaultRequest()
	req.ID, req.Prompt = "cancelled", "x"
	st, err := c2.Stream(context.Background(), &req)
	if err != nil {
		t.Fatal(err)
	}
	if err := c2.Cancel(t.Context(), "cancelled"); err != nil {
		t.Fatal(err)
	}
	if a := collect(st); a.eos.Reason != wire.Cancelled {
		t.Errorf("cancelled while loading: %+v", a)
	}
	gone := r.raw()
	r.say(gone, "%s", httpPost("/v1/completions", `{"prompt":"x"}`))
	eventually(t, "the next HTTP request waits", func() bool { return r.room.Count() == 4 })
	gone.Close()
	eventually(t, "it is forgotten with its client", func() bool { return r.room.Count() == 3 })

	h, err := c2.Health(context.Background())
	if err != nil || h.Status != "loading" || h.Progress != 0.5 || h.Requests != 3 {
		t.Errorf("health %+v, %v", h, err)
	}
	if _, err := c2.Info(context.Background()); err != nil {
		t.Errorf("info: %v", err)
	}
	m := r.raw()
	r.say(m, "GET /metrics HTTP/1.1\r\nHost: uma\r\n\r\n")
	if status, body := response(t, bufio.NewReader(m)); status != 200 ||
		!strings.Contains(body, "uma_load_progress_ratio 0.5") {
		t.Errorf("metrics: %d", status)
	}
	r.load(nil)
	if a := <-framed; a.err != nil || a.tokens != 4 {
		t.Errorf("framed: %+v", a)
	}
	if status, body := response(t, bufio.NewReader(web)); status != 200 {
		t.Errorf("HTTP: %d %s", status, body)
	}
	text.CloseWrite()
	if b, err := io.ReadAll(text); err != nil || len(b) < 2 || bytes.HasPrefix(b, []byte("error")) {
		t.Errorf("text: %q, %v", b, err)
	}
	r.nothingLeft()
	if err := r.stop(); err != nil {
		t.Error(err)
	}
}

// TestQueueLimitHoldsWhileLoading: --max-queue (and --parallel) bounds those that wait for the model; all that were
// taken are answered.
func TestQueueLimitHoldsWhileLoading(t *testing.T) {
	r := serveLoading(t, nil, "--parallel", "2", "--max-queue", "3")
	c := r.dial()
	var answers []chan answer
	for i := range 5 {
		ch := make(chan answer, 1)
		answers = append(answers, ch)
		go func() { ch <- r.ask(c, func(q *wire.Request) { q.MaxTokens = 2 }) }()
		eventually(t, "it waits", func() bool { return r.room.Count() == int64(i+1) })
	}
	if a := r.ask(c, nil); a.code() != wire.QueueLimit {
		t.Errorf("the sixth: %+v", a)
	}
	r.load(nil)
	for i, ch := range answers {
		if a := <-ch; a.err != nil || a.tokens != 2 {
			t.Errorf("request %d: %+v", i, a)
		}
	}
	if err := r.stop(); err != nil {
		t.Error(err)
	}
}

// TestFailedLoadEndsWaitingRequests: they are told why, in their protocol.
func TestFailedLoadEndsWaitingRequests(t *testing.T) {
	r := serveLoading(t, nil)
	c := r.dial()
	framed := make(chan answer, 1)
	go func() { framed <- r.ask(c, nil) }()
	web := r.raw()
	r.say(web, "%s", httpPost("/v1/completions", `{"prompt":"x"}`))
	text := r.raw()
	r.say(text, "a question\n")
	eventually(t, "all wait", func() bool { return r.room.Count() == 3 })
	r.load(errors.New("tensor 7 is damaged"))
	a := <-framed
	var e *wireclient.ServerError
	if !errors.As(a.err, &e) || e.Code != wire.InternalFailure || !strings.Contains(e.Message, "tensor 7 is damaged") {
		t.Errorf("framed: %+v", a)
	}
	if status, body := response(t, bufio.NewReader(web)); status != 500 ||
		!strings.Contains(body, "tensor 7 is damaged") {
		t.Errorf("HTTP: %d %s", status, body)
	}
	if b, err := bufio.NewReader(text).ReadString('\n'); err != nil || !strings.Contains(b, "error: E_INTERNAL: ") ||
		!strings.Contains(b, "tensor 7") {
		t.Errorf("text: %q, %v", b, err)
	}
	if err := <-r.signals; err == nil || !strings.Contains(err.Error(), "tensor 7 is damaged") {
		t.Errorf("Serve: %v", err)
	}
}

// TestStopWhileLoading: a loader that does not look up does not hold the end, and who waits is told.
func TestStopWhileLoading(t *testing.T) {
	r := serveLoading(t, nil)
	c := r.dial()
	framed := make(chan answer, 1)
	go func() { framed <- r.ask(c, nil) }()
	eventually(t, "it waits", func() bool { return r.room.Count() == 1 })
	ended := make(chan error, 1)
	go func() { ended <- r.stop() }()
	if a := <-framed; a.code() != wire.ShuttingDown {
		t.Errorf("%+v", a)
	}
	if err := waitfor.Recv(t, "the daemon does not wait for its loader", ended); err != nil {
		t.Error(err)
	}
	r.load(errors.New("late")) // the loader's goroutine ends
}

// TestSocketAnswersWhileDraining: until the running request ends, newcomers in every protocol are told that the server
// shuts down, and health says so.
func TestSocketAnswersWhileDraining(t *testing.T) {
	gate := make(chan struct{})
	r := serve(t, fake.Config{Advance: func(time.Duration) { <-gate }})
	c := r.dial()
	running := make(chan answer, 1)
	go func() { running <- r.ask(c, func(q *wire.Request) { q.MaxTokens = 3 }) }()
	eventually(t, "it runs", func() bool { return r.info().Live.Requests == 1 })
	ended := make(chan error, 1)
	go func() { ended <- r.stop() }()
	eventually(t, "it drains", r.draining.Load)
	late := r.dial()
	if h, err := late.Health(context.Background()); err != nil || h.Status != "draining" {
		t.Errorf("health: %+v, %v", h, err)
	}
	if a := r.ask(late, nil); a.code() != wire.ShuttingDown {
		t.Errorf("framed: %+v", a)
	}
	web := r.raw()
	r.say(web, "%sGET /health HTTP/1.1\r\nHost: uma\r\n\r\n", httpPost("/v1/completions", `{"prompt":"x"}`))
	br := bufio.NewReader(web)
	if status, body := response(t, br); status != 503 || !strings.Contains(body, string(wire.ShuttingDown)) {
		t.Errorf("HTTP: %d %s", status, body)
	}
	if status, body := response(t, br); status != 503 || !strings.Contains(body, "draining") {
		t.Errorf("HTTP health: %d %s", status, body)
	}
	text := r.raw()
	r.say(text, "a question\n")
	if b, err := bufio.NewReader(text).ReadString('\n'); err != nil ||
		!strings.HasPrefix(b, "error: E_SHUTTING_DOWN: ") {
		t.Errorf("text: %q, %v", b, err)
	}
	close(gate)
	if a := <-running; a.err != nil || a.tokens != 3 {
		t.Errorf("the running request: %+v", a)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("unix", r.cfg.Socket); err == nil {
		t.Error("the socket is there after the end")
	}
}

// TestSecondSignalEndsAtOnce: also within a step that cannot be aborted, and while a drain would go on for long.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	waitfor.Hangup(t)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			gate := make(chan struct{})
			r := serveLoading(t, func(time.Duration) { <-gate }, "--shutdown-timeout", "1h")
			r.load(nil)
			c := r.dial()
			if err := c.WaitReady(context.Background(), nil); err != nil {
				t.Fatal(err)
			}
			ended := make(chan answer, 1)
			go func() { ended <- r.ask(c, nil) }()
			eventually(t, "it runs", func() bool { return r.info().Live.Requests == 1 })
			syscall.Kill(syscall.Getpid(), sig)
			eventually(t, "it drains", r.draining.Load)
			syscall.Kill(syscall.Getpid(), sig)
			if err := waitfor.Recv(t, "the step at hand does not hold the end", r.signals); err != nil {
				t.Error(err)
			}
			if a := <-ended; a.err == nil {
				t.Errorf("%+v", a)
			}
			close(gate) // the abandoned step
			eventually(t, "the loop has ended", func() bool { return !r.loop.Load().mail.Put(command{kind: cmdStop}) })
		})
	}
}

// TestKeepAliveAfterALargeBody: a request that is longer than net/http's buffer leaves its connection as it was.
func TestKeepAliveAfterALargeBody(t *testing.T) {
	r := serve(t, fake.Config{}, "-c", "100000")
	conn, err := net.Dial("unix", r.cfg.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	body := `{"prompt":"` + strings.Repeat("x", 20_000) + `","n_predict":2}`
	for i := range 3 {
		fmt.Fprintf(conn, "POST /completion HTTP/1.1\r\nHost: uma\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK || resp.Close {
			t.Fatalf("answer %d: %d %.300s %v", i, resp.StatusCode, b, err)
		}
	}
}
