package front

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/race"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/internal/wireclient"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// TestCrashIsContained: each client of a process that is killed is told in its own protocol, at any point of its
// answer; those of another model notice nothing; the process comes back and answers.
func TestCrashIsContained(t *testing.T) {
	r := start(t, Options{}, []string{"slow", "other"}, nil)
	pid := r.awaitReady("slow")

	idle := r.dial()
	if got, err := whole(idle, request("slow", nil)); err != nil || got != "I am slow" {
		t.Fatalf("%q, %v", got, err)
	}
	two := r.dial() // two requests on one connection
	var streams []*wireclient.Stream
	for range 2 {
		st, err := two.Stream(context.Background(), endless("slow"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := st.Next(); err != nil {
			t.Fatal(err)
		}
		streams = append(streams, st)
	}
	const forever = `,"ignore_eos":true,"stream":true`
	open := map[string]*httpClient{}
	for path, body := range map[string]string{
		"/v1/chat/completions": chat("slow", forever),
		"/v1/messages":         chat("slow", `,"max_tokens":100000,"ignore_eos":true,"stream":true`),
		"/v1/responses":        `{"model":"slow","input":"tell on","ignore_eos":true,"stream":true}`,
		"/api/chat":            chat("slow", `,"options":{"num_predict":100000},"ignore_eos":true`),
		"/completion":          `{"model":"slow","prompt":"tell on","ignore_eos":true,"stream":true}`,
	} {
		h := r.http()
		h.send("POST", path, body)
		open[path] = h
	}
	whole := r.http() // nothing of its answer is written when the process ends
	whole.send("POST", "/v1/chat/completions", chat("slow", `,"ignore_eos":true`))
	ollama := r.http()
	ollama.send("POST", "/api/generate", `{"model":"slow","prompt":"tell on","ignore_eos":true,"stream":false}`)
	line, err := net.Dial("unix", r.socket())
	if err != nil {
		t.Fatal(err)
	}
	defer line.Close()
	io.WriteString(line, "tell on and on\n")

	other, err := r.dial().Stream(context.Background(), endless("other"))
	if err != nil {
		t.Fatal(err)
	}
	waitfor.True(t, "all requests run", func() bool {
		n := 0
		r.call(func() { n = r.find("slow").proc.table.InFlight() })
		return n == 2+len(open)+2+1
	})
	bodies := map[string]io.Reader{}
	for path, h := range open {
		resp := h.receive()
		if resp.StatusCode != 200 {
			b, _ := io.ReadAll(resp.Body)
			t.Fatalf("%s: %d %s", path, resp.StatusCode, b)
		}
		if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		bodies[path] = resp.Body
	}
	begun := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for i, st := range streams {
		_, err := st.Next()
		for err == nil {
			_, err = st.Next()
		}
		if code(err) != wire.EngineCrashed {
			t.Errorf("stream %d: %v", i, err)
		}
	}
	for path, want := range map[string]string{
		"/v1/chat/completions": `data: {"error":{"code":502,"type":"server_error"`,
		"/v1/messages":         "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\"",
		"/v1/responses":        "event: error\ndata: {\"type\":\"error\",\"code\":\"E_ENGINE_CRASHED\"",
		"/api/chat":            `{"error":"the engine process of model slow has ended`,
		"/completion":          `data: {"error":{"code":502`,
	} {
		b, err := io.ReadAll(bodies[path])
		last := string(b[max(0, len(b)-600):])
		if err != nil || !strings.Contains(last, want) {
			t.Errorf("%s: ends with %q, %v; want %s", path, last, err, want)
		}
	}
	resp := whole.receive()
	b, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != 502 || resp.Header.Get("Retry-After") != "1" ||
		!strings.Contains(string(b), "E_ENGINE_CRASHED") {
		t.Errorf("a whole answer: %d %s", resp.StatusCode, b)
	}
	resp = ollama.receive()
	b, _ = io.ReadAll(resp.Body)
	if resp.StatusCode != 502 || !strings.HasPrefix(string(b), `{"error":"the engine process`) {
		t.Errorf("ollama: %d %s", resp.StatusCode, b)
	}
	if b, err := io.ReadAll(line); err != nil || !strings.Contains(string(b), "\nerror: E_ENGINE_CRASHED: ") {
		t.Errorf("a line: %.200q, %v", b, err)
	}
	if took := time.Since(begun); took > time.Second && !race.Enabled {
		t.Errorf("the clients were told after %v", took)
	}
	if _, err := other.Next(); err != nil {
		t.Errorf("another model's stream: %v", err)
	}
	// The connections that stayed reach the process that was started again.
	for _, c := range []*wireclient.Client{idle, two, r.dial()} {
		if got, err := wholeOf(c, "slow"); err != nil || got != "I am slow" {
			t.Errorf("after the crash: %q, %v", got, err)
		}
	}
	if again := r.awaitReady("slow"); again == pid {
		t.Error("the process is the same")
	}
}

func wholeOf(c *wireclient.Client, model string) (string, error) {
	return whole(c, request(model, nil))
}

// TestCrashesUnderLoad kills a process again and again while it answers.
func TestCrashesUnderLoad(t *testing.T) {
	rounds := 200
	if testing.Short() || race.Enabled {
		rounds = 20
	}
	r := start(t, Options{CrashLimit: rounds + 1}, []string{"slow", "slow-other"}, nil)
	r.awaitReady("slow")
	r.awaitReadyByAsking("slow-other")
	other := r.dial()
	if _, err := wholeOf(other, "slow-other"); err != nil {
		t.Fatal(err)
	}
	before := descriptors(t)

	// The other model's stream must not stop.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var gap atomic.Int64 // the longest of that stream: what the machine lets a stream wait that no crash concerns
	ended := make(chan error, 1)
	st, err := other.Stream(ctx, endless("slow-other"))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for last := time.Now(); ; last = time.Now() {
			_, err := st.Next()
			if errors.Is(err, io.EOF) { // its context is full: on a busy machine the crashes take that long
				st, err = other.Stream(ctx, endless("slow-other"))
			}
			if err != nil {
				ended <- err
				return
			}
			gap.Store(max(gap.Load(), int64(time.Since(last))))
		}
	}()
	const load = 4
	for round := range rounds {
		told := make(chan error, load)
		running := make(chan struct{}, load)
		for range load {
			go func() {
				c, err := wireclient.Dial(context.Background(), r.socket())
				if err != nil {
					running <- struct{}{}
					told <- err
					return
				}
				defer c.Close()
				st, err := c.Stream(context.Background(), endless("slow"))
				if err == nil {
					_, err = st.Next()
				}
				running <- struct{}{}
				for err == nil {
					_, err = st.Next()
				}
				told <- err
			}()
		}
		for range load {
			waitfor.Recv(t, "a stream runs", running)
		}
		pid := r.awaitReady("slow")
		sig := []syscall.Signal{syscall.SIGKILL, syscall.SIGSEGV, syscall.SIGABRT}[round%3]
		begun := time.Now()
		if err := syscall.Kill(pid, sig); err != nil {
			t.Fatal(err)
		}
		for range load {
			if err := waitfor.Recv(t, "the client of a dead process is told", told); code(err) != wire.EngineCrashed {
				t.Fatalf("round %d, %v: %v", round, sig, err)
			}
		}
		if took := time.Since(begun); took > time.Second+time.Duration(gap.Load()) && !race.Enabled {
			t.Errorf("round %d, %v: told after %v; the other model's stream waited %v at most", round, sig, took,
				time.Duration(gap.Load()))
		}
		c := r.dial()
		got, err := wholeOf(c, "slow")
		c.Close()
		if err != nil || got != "I am slow" {
			t.Fatalf("round %d: the next answer is %q, %v", round, got, err)
		}
	}
	select {
	case err := <-ended:
		t.Errorf("the other model's stream ended: %v", err)
	default:
		cancel()
		<-ended
	}
	t.Logf("longest gap of the other model's stream: %v", time.Duration(gap.Load()))
	waitfor.True(t, "all descriptors are closed", func() bool { return descriptors(t) <= before })
	r.call(func() {
		if n := r.find("slow").crashed; n != rounds {
			t.Errorf("%d crashes are counted of %d", n, rounds)
		}
	})
}

func (r *running) awaitReadyByAsking(name string) {
	r.t.Helper()
	c := r.dial()
	defer c.Close()
	if got, err := wholeOf(c, name); err != nil || got != "I am "+name {
		r.t.Fatalf("%s: %q, %v", name, got, err)
	}
}

func TestStaysDownAfterThreeCrashes(t *testing.T) {
	r := start(t, Options{}, []string{"one", "two"}, nil)
	for range 3 {
		pid := r.awaitReady("one")
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		waitfor.True(t, "it has ended", func() bool { return r.pid("one") != pid })
	}
	waitfor.True(t, "it stays down", func() bool {
		down := false
		r.call(func() { h := r.health(); down = h.Status == "down" && h.Models["one"] == "down" })
		return down
	})
	_, err := wholeOf(r.dial(), "one")
	if code(err) != wire.EngineCrashed || !strings.Contains(err.Error(), "stays down") {
		t.Errorf("%v", err)
	}
	if status, text := r.http().post("/v1/chat/completions", chat("one", "")); status != 502 ||
		!strings.Contains(text, "stays down") {
		t.Errorf("%d %s", status, text)
	}
	if got, err := wholeOf(r.dial(), "two"); err != nil || got != "I am two" {
		t.Errorf("%q, %v", got, err)
	}
	if !strings.Contains(r.log.String(), "the model stays down") {
		t.Error("the log does not say so")
	}
}

// TestStepThatNeverEnds: health says so, then the process ends itself, and its clients are told as of any other crash.
func TestStepThatNeverEnds(t *testing.T) {
	t.Parallel() // it waits for most of its time
	r := start(t, Options{CrashLimit: 100}, []string{"stuck"}, nil, "--step-timeout", "8s")
	r.awaitReady("stuck")
	ended := make(chan error, 1)
	go func() {
		_, err := wholeOf(r.dial(), "stuck")
		ended <- err
	}()
	var h reports.Health
	waitfor.True(t, "health says that no step ends", func() bool {
		r.call(func() { h = r.health() })
		return h.Status == "stalled"
	})
	if h.Models["stuck"] != "stalled" || h.StalledMs < 4000 || h.StalledSince == "" {
		t.Errorf("%+v", h)
	}
	if err := waitfor.Recv(t, "the process ends", ended); code(err) != wire.EngineCrashed {
		t.Errorf("%v", err)
	}
	waitfor.True(t, "it is no longer stalled", func() bool {
		r.call(func() { h = r.health() })
		return h.Status != "stalled"
	})
}

func TestModelThatCannotBeLoaded(t *testing.T) {
	r := start(t, Options{}, []string{"one", "broken"}, nil)
	for range 2 {
		_, err := wholeOf(r.dial(), "broken")
		if code(err) != wire.InternalFailure || !strings.Contains(err.Error(), "the file is damaged") {
			t.Errorf("%v", err)
		}
	}
	status, text := r.http().post("/v1/chat/completions", chat("broken", ""))
	if status != 500 || !strings.Contains(text, "the file is damaged") {
		t.Errorf("%d %s", status, text)
	}
	r.call(func() {
		if m := r.find("broken"); m.crashed != 0 || m.state != down {
			t.Errorf("%d crashes, %v", m.crashed, m.state)
		}
	})
}

// TestHostileModel: a process that tries to start a program, to connect, to open another file and to signal its front
// is refused, and the front's log says so.
func TestHostileModel(t *testing.T) {
	os.Remove(os.TempDir() + "/uma-hostile")
	r := start(t, Options{}, []string{"one", "hostile"}, nil)
	_, err := wholeOf(r.dial(), "hostile")
	if err == nil {
		t.Fatal("a model that cannot be loaded answers")
	}
	text := err.Error()
	for _, what := range []string{"exec: fork/exec /bin/true: operation not permitted",
		"connect: dial tcp 127.0.0.1:1: socket: operation not permitted",
		"open: open /etc/passwd: permission denied", "write: open " + os.TempDir() + "/uma-hostile: permission denied",
		"kill: operation not permitted"} {
		if !strings.Contains(text, what) {
			t.Errorf("%s; want %q", text, what)
		}
	}
	if _, err := os.Stat(os.TempDir() + "/uma-hostile"); err == nil {
		t.Error("it has written a file")
	}
	log := r.log.String()
	for _, what := range []string{"execve", "socket", "openat of /etc/passwd",
		"openat of " + os.TempDir() + "/uma-hostile", "kill"} {
		if !strings.Contains(log, `"an engine process was refused `+what+`" model=hostile pid=`) {
			t.Errorf("the log lacks %s with the model's name", what)
		}
	}
}

func TestInfoSaysWhatConfines(t *testing.T) {
	r := start(t, Options{}, []string{"one"}, nil)
	r.awaitReady("one")
	status, text := r.http().do("GET", "/info", "")
	var in reports.Info
	if err := json.Unmarshal([]byte(text), &in); err != nil || status != 200 {
		t.Fatalf("%d %s: %v", status, text, err)
	}
	if in.PID != os.Getpid() || len(in.Models) != 1 || in.Models[0].Info == nil || in.Models[0].PID == os.Getpid() {
		t.Fatalf("%s", text)
	}
	if box := in.Models[0].Info.Sandbox; box == nil || !box.Seccomp || !box.NoNewPrivs || box.Landlock == 0 {
		t.Errorf("%+v", box)
	}
}
