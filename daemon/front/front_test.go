package front

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/daemon"
	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/daemon/config/configtest"
	"github.com/uma-serve/uma-serve/daemon/documents"
	"github.com/uma-serve/uma-serve/daemon/link"
	"github.com/uma-serve/uma-serve/daemon/toolbox"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/internal/wireclient"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/models/download"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// The test program is its own engine process, on the fake engine.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == link.EngineArg {
		if err := daemon.RunEngine(context.Background(), engineLog(), openFake, func(*slog.Logger) {}); err != nil {
			fmt.Fprintln(os.Stderr, "engine process:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 1 && os.Args[1] == toolbox.BridgeArg {
		fakeBridge()
		os.Exit(0)
	}
	if len(os.Args) > 1 && os.Args[1] == download.Arg {
		if err := download.Run(os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 1 && os.Args[1] == documents.Arg {
		if err := documents.Run(os.Stdin, os.Stdout, slices.Contains(os.Args[2:], documents.Confined)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 1 && os.Args[1] == link.DevicesArg {
		reportDevices(os.Getenv("FRONT_TEST_DEVICES"))
	}
	os.Exit(func() int {
		home, err := os.MkdirTemp("", "uma-home") // without models of the machine that the tests run on
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(home)
		for _, name := range []string{"HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "HF_HOME", "OLLAMA_MODELS",
			"LLAMA_CACHE"} {
			os.Setenv(name, filepath.Join(home, name))
		}
		os.Unsetenv("HF_HUB_CACHE")
		return m.Run()
	}())
}

// engineLog is stderr where a test is looked into.
func engineLog() io.Writer {
	if os.Getenv("FRONT_TEST_LOG") != "" {
		return os.Stderr
	}
	return io.Discard
}

// openFake makes an engine whose behaviour the model's name tells: "slow" steps take 5 ms, those of "turns" count the
// processes that compute at once, "stuck" ones never end, "gated" is loaded when a file NAME.open is there, "broken"
// cannot be loaded, "hostile" tries to leave the sandbox.
func openFake(o runtime.Options) (runtime.Engine, error) {
	name := filepath.Base(o.ModelPath)
	cfg := fake.Config{Options: o, Scripts: []fake.Script{
		{After: "whoami<|im_end|>\n<|im_start|>assistant\n", Emit: "I am " + name},
		{After: "add it<|im_end|>\n<|im_start|>assistant\n", Emit: `{"name": "s__add", "arguments": {}}`},
	}}
	switch {
	case strings.HasPrefix(name, "slow"):
		cfg.Cost, cfg.Advance = fake.Cost{BaseMs: 5}, time.Sleep
	case strings.HasPrefix(name, "turns"):
		advance, err := oneAtATime(filepath.Dir(o.ModelPath), time.Sleep)
		if err != nil {
			return nil, err
		}
		cfg.Cost, cfg.Advance = fake.Cost{BaseMs: 1, PrefillMs: 0.5}, advance
	case strings.HasPrefix(name, "stuck"):
		cfg.Cost, cfg.Advance = fake.Cost{BaseMs: 1}, func(time.Duration) { select {} }
	case strings.HasPrefix(name, "gated"):
		for range time.Tick(5 * time.Millisecond) {
			if _, err := os.Stat(o.ModelPath + ".open"); err == nil {
				break
			}
			o.Progress(0.42)
		}
	case strings.HasPrefix(name, "broken"):
		return nil, errors.New("the file is damaged")
	case strings.HasPrefix(name, "hostile"):
		return nil, errors.New(attack())
	}
	return fake.New(cfg), nil
}

// attack tries to leave the sandbox and returns the results.
func attack() string {
	var out []string
	try := func(what string, err error) { out = append(out, fmt.Sprintf("%s: %v", what, err)) }
	try("exec", exec.Command("/bin/true").Run())
	_, err := net.Dial("tcp", "127.0.0.1:1")
	try("connect", err)
	_, err = os.ReadFile("/etc/passwd")
	try("open", err)
	try("write", os.WriteFile(filepath.Join(os.TempDir(), "uma-hostile"), nil, 0o600))
	try("kill", syscall.Kill(os.Getppid(), 0))
	return strings.Join(out, "; ")
}

// running is a Front on fake engines.
type running struct {
	*Front
	t    *testing.T
	log  *lines
	stop func() error
	end  func() error // waits until Serve has ended by itself
	ends bool         // with an error, which the test expects
}

// lines collects the front's log.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if os.Getenv("FRONT_TEST_LOG") != "" {
		os.Stderr.Write(b)
	}
	return l.b.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start serves models of these names; edit may change the configuration.
func start(t *testing.T, o Options, names []string, edit func(*config.Config), args ...string) *running {
	t.Helper()
	dir, err := os.MkdirTemp("", "uma")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, n := range names {
		if err := os.WriteFile(filepath.Join(dir, n), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fs, cfg, _ := config.NewFlagSet()
	args = append([]string{"--socket", filepath.Join(dir, "s"), "--single=false", "--memory",
		"1000GiB", "--cache-ram", "0"}, args...)
	if err := fs.Parse(configtest.Args(t, cfg, args)); err != nil {
		t.Fatal(err)
	}
	if err := cfg.Load([]string{"UMA_CONFIG="}); err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		cfg.Models = append(cfg.Models, config.Model{Name: n, Model: filepath.Join(dir, n),
			Aliases: []string{n + "-alias"}, IdleUnload: -1})
	}
	if edit != nil {
		edit(cfg)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o.Program, o.Args = exe, []string{link.EngineArg}
	if os.Getenv("FRONT_TEST_LOG") == "" { // those that are killed write all of their goroutines
		if o.Stderr, err = os.OpenFile(os.DevNull, os.O_WRONLY, 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { o.Stderr.Close() })
	}
	if o.KeptDir == "" {
		o.KeptDir = filepath.Join(dir, "kept")
	}
	if o.Demand == nil {
		o.Demand = func(*config.Config) (config.Demand, error) { return takes(100), nil }
	}
	r := &running{t: t, log: &lines{}}
	ctx, cancel := context.WithCancel(context.Background())
	r.Front, err = New(ctx, cfg, slog.New(slog.NewTextHandler(r.log, nil)), o)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx) }()
	r.end = sync.OnceValue(func() error { return <-done })
	r.stop = func() error { cancel(); return r.end() }
	t.Cleanup(func() {
		if err := r.stop(); err != nil && !r.ends {
			t.Errorf("Serve: %v", err)
		}
		if t.Failed() {
			t.Logf("log:\n%s", r.log)
		}
	})
	return r
}

// takes is the demand of a model with so many bytes, whatever its context is.
func takes(bytes int64) config.Demand { return config.Demand{Fixed: bytes, Most: 4096, Least: 4096} }

// startFull serves three models of which memory has room for two: "pinned" is loaded, "slow" answers without an end,
// and "three" has to wait.
func startFull(t *testing.T) *running {
	t.Helper()
	r := start(t, Options{}, []string{"pinned", "slow", "three"}, func(c *config.Config) { c.Models[0].Pinned = true },
		"--memory", "200b")
	r.awaitReady("pinned")
	st, err := r.dial().Stream(context.Background(), endless("slow"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Next(); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *running) socket() string { return r.cfg.Socket }

func (r *running) dial() *wireclient.Client {
	r.t.Helper()
	c, err := wireclient.Dial(context.Background(), r.socket())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	return c
}

// request returns a framed request to a model.
func request(model string, edit func(*wire.Request)) *wire.Request {
	q := wire.DefaultRequest()
	q.Model, q.Sampling.Temperature = model, 0
	q.Messages = []wire.Message{{Role: "user", Content: "whoami"}}
	if edit != nil {
		edit(&q)
	}
	return &q
}

// whole asks for a whole answer and returns its text, or the error.
func whole(c *wireclient.Client, q *wire.Request) (string, error) {
	st, err := c.Stream(context.Background(), q)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for {
		ev, err := st.Next()
		if err != nil {
			return text.String(), err
		}
		switch ev.Kind {
		case wire.EventToken:
			text.Write(ev.Token.Text)
		case wire.EventEOS:
			text.Write(ev.EOS.Text)
			return text.String(), nil
		}
	}
}

// code returns the protocol's code of an error, "" if it has none.
func code(err error) wire.Code {
	var e *wireclient.ServerError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// endless returns a request whose answer does not end by itself.
func endless(model string) *wire.Request {
	return request(model, func(q *wire.Request) {
		q.Messages, q.Prompt, q.Stream, q.Sampling.IgnoreEOS = nil, "tell on", true, true
	})
}

// pid returns the process id of a model's engine process, 0 when none is ready.
func (r *running) pid(name string) (pid int) {
	r.call(func() {
		if m := r.find(name); m.proc != nil && m.state == ready {
			pid = m.proc.pid()
		}
	})
	return pid
}

func (r *running) awaitReady(name string) int {
	r.t.Helper()
	waitfor.True(r.t, name+" is ready", func() bool { return r.pid(name) != 0 })
	return r.pid(name)
}

// descriptors returns the number of open file descriptors of this process.
func descriptors(t *testing.T) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(d)
}

func TestNamesFindTheirProcesses(t *testing.T) {
	r := start(t, Options{}, []string{"one", "two"}, nil)
	for name, want := range map[string]string{"one": "I am one", "two": "I am two", "two-alias": "I am two",
		"": "I am one", "TWO": "I am two", "two:latest": "I am two"} {
		if got, err := whole(r.dial(), request(name, nil)); err != nil || got != want {
			t.Errorf("%q answers %q, %v; want %q", name, got, err, want)
		}
	}
	_, err := whole(r.dial(), request("tow", nil))
	if code(err) != wire.ModelNotFound || !strings.Contains(err.Error(), `did you mean "two"`) {
		t.Errorf("an unknown name: %v", err)
	}
	// One connection goes from process to process and back, and a refusal in between leaves it alive.
	c := r.dial()
	for i := range 12 {
		name := []string{"one", "two", "missing"}[i%3]
		got, err := whole(c, request(name, nil))
		if name == "missing" {
			if code(err) != wire.ModelNotFound {
				t.Fatalf("%d: %v", i, err)
			}
		} else if err != nil || got != "I am "+name {
			t.Fatalf("%d: %s answers %q, %v", i, name, got, err)
		}
	}
	if text := string(r.scrape()); !strings.Contains(text,
		`uma_requests_rejected_total{reason="E_MODEL_NOT_FOUND"} 5`) {
		t.Errorf("five refusals are not counted: %s", text)
	}
	if s := r.loop.Stats(); s.HandedBack.Load() < 7 {
		t.Errorf("%d connections were handed back", s.HandedBack.Load())
	}
}

// TestLargeRequestFindsItsModel: the model's name may stand behind more text than a socket's buffer holds.
func TestLargeRequestFindsItsModel(t *testing.T) {
	r := start(t, Options{}, []string{"one", "two"}, nil, "-c", "1000000")
	h := r.http()
	long := strings.Repeat("x", 700<<10)
	body := `{"messages":[{"role":"system","content":"` + long + `"},{"role":"user","content":"whoami"}],` +
		`"max_tokens":4,"model":"two"}`
	for range 2 {
		status, text := h.post("/v1/chat/completions", body)
		if status != 200 || !strings.Contains(text, `"I am`) {
			t.Fatalf("%d %.300s", status, text)
		}
		body = strings.Replace(body, `"two"`, `"one"`, 1)
	}
}

// httpClient is one keep-alive connection.
type httpClient struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func (r *running) http() *httpClient {
	r.t.Helper()
	conn, err := net.Dial("unix", r.socket())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	return &httpClient{r.t, conn, bufio.NewReader(conn)}
}

func (h *httpClient) send(method, path, body string, headers ...string) {
	h.t.Helper()
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: uma\r\nContent-Type: application/json\r\nContent-Length: %d\r\n",
		method, path, len(body))
	for _, x := range headers {
		head += x + "\r\n"
	}
	if _, err := io.WriteString(h.conn, head+"\r\n"+body); err != nil {
		h.t.Fatal(err)
	}
}

func (h *httpClient) receive() *http.Response {
	h.t.Helper()
	resp, err := http.ReadResponse(h.in, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	return resp
}

func (h *httpClient) do(method, path, body string, headers ...string) (int, string) {
	h.t.Helper()
	h.send(method, path, body, headers...)
	resp := h.receive()
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func (h *httpClient) post(path, body string) (int, string) {
	h.t.Helper()
	return h.do("POST", path, body)
}

func chat(model string, more string) string {
	return `{"model":` + strconv.Quote(model) + `,"messages":[{"role":"user","content":"whoami"}]` + more + `}`
}

func TestHTTPConnectionGoesFromModelToModel(t *testing.T) {
	r := start(t, Options{}, []string{"one", "two"}, nil)
	h := r.http()
	for i := range 6 {
		name := []string{"one", "two"}[i%2]
		if status, text := h.post("/v1/chat/completions", chat(name, "")); status != 200 ||
			!strings.Contains(text, "I am "+name) {
			t.Fatalf("%d: %d %s", i, status, text)
		}
		state := []string{"unloaded", "loaded"}[min(i, 1)] // of two, which the second request loads
		// An engine process answers, and then says that it is ready.
		waitfor.True(t, "the list has the states", func() bool {
			status, text := h.do("GET", "/v1/models", "")
			if status != 200 || !strings.Contains(text, `"id":"two"`) {
				t.Fatalf("models: %d %s", status, text)
			}
			return strings.Contains(text, `"aliases":["one-alias"],"status":{"value":"loaded"}`) &&
				strings.Contains(text, `"aliases":["two-alias"],"status":{"value":"`+state+`"}`)
		})
	}
	for path, want := range map[string]string{
		"/v1/chat/completions": `{"error":{"code":404,"type":"not_found_error","message":"there is no model`,
		"/v1/messages":         `{"type":"error","error":{"type":"not_found_error","message":"there is no model`,
		"/api/chat":            `{"error":"there is no model`,
	} {
		h := r.http()
		status, text := h.post(path, chat("on", `,"max_tokens":5`))
		if status != 404 || !strings.HasPrefix(text, want) || !strings.Contains(text, "one") {
			t.Errorf("%s: %d %s", path, status, text)
		}
		if status, text := h.post("/v1/chat/completions", chat("one", "")); status != 200 ||
			!strings.Contains(text, "I am one") {
			t.Errorf("after %s: %d %s", path, status, text)
		}
	}
	// A body that comes after "Expect: 100-continue", and one in chunks.
	h = r.http()
	body := chat("two", "")
	fmt.Fprintf(h.conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: uma\r\nExpect: 100-continue\r\nContent-Length: "+
		"%d\r\n\r\n", len(body))
	if line, err := h.in.ReadString('\n'); err != nil || !strings.Contains(line, "100") {
		t.Fatalf("%q, %v", line, err)
	}
	h.in.ReadString('\n')
	io.WriteString(h.conn, body)
	for resp := h.receive(); ; resp = h.receive() {
		if resp.StatusCode == 100 {
			continue
		}
		if b, _ := io.ReadAll(resp.Body); resp.StatusCode != 200 || !bytes.Contains(b, []byte("I am two")) {
			t.Errorf("%d %s", resp.StatusCode, b)
		}
		break
	}
	h = r.http()
	fmt.Fprintf(h.conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: uma\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n"+
		"%s\r\n0\r\n\r\n", len(body), body)
	if resp := h.receive(); resp.StatusCode != 200 {
		t.Errorf("chunks: %d", resp.StatusCode)
	}
}

func TestLinesOfText(t *testing.T) {
	r := start(t, Options{}, []string{"one", "two"}, nil)
	conn, err := net.Dial("unix", r.socket())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	for range 2 {
		fmt.Fprintln(conn, "whoami")
		if line, err := in.ReadString('\n'); err != nil || line != "I am one\n" {
			t.Fatalf("%q, %v", line, err)
		}
	}
	m, err := net.Dial("unix", r.socket())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	fmt.Fprintln(m, "metrics")
	b, err := io.ReadAll(m)
	var doc struct {
		Models map[string]json.RawMessage
	}
	if err != nil || json.Unmarshal(b, &doc) != nil || doc.Models["one"] == nil {
		t.Errorf("%s, %v", b, err)
	}
}
