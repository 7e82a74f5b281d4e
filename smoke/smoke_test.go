//go:build cgo && (llama_engine || llama_system)

package smoke

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
	"github.com/uma-serve/uma-serve/runtime/llama"
)

// greedy is a deterministic request for n tokens.
func greedy(id, prompt string, n int) string {
	return fmt.Sprintf(`{"id":%q,"prompt":%q,"max_tokens":%d,"temperature":0,"ignore_eos":true,"stream":true}`, id,
		prompt, n)
}

// unread is a request whose events are so large that it pauses, long before its end, while the client does not read.
func unread(id, prompt string, n int) string { return compared(id, prompt, n) }

// long is a prompt of about n tokens: the tiny model's vocabulary has no merge for these.
func long(n int) string { return strings.Repeat("q7 ", n/3) }

func TestM1OneClientEveryProtocol(t *testing.T) {
	s := start(t)

	t.Run("framed", func(t *testing.T) {
		c := s.dial()
		defer c.Close()
		c.request(`{"id":"1","prompt":"once upon a time","max_tokens":12,"temperature":0,"ignore_eos":true,` +
			`"stream":true,"logprobs":20,"metadata":{"k":[1,"é"]}}`)
		eos := c.mustEnd("1", wire.Length)
		if eos.Usage.CompletionTokens != 12 || eos.Usage.PromptTokens == 0 || eos.Timings.TTFT <= 0 ||
			string(eos.Metadata) != `{"k":[1,"é"]}` {
			t.Errorf("eos %+v", eos)
		}
		streamed := c.text["1"].String()
		c.request(`{"id":"2","prompt":"once upon a time","max_tokens":12,"temperature":0,"ignore_eos":true,` +
			`"stream":false}`)
		if eos := c.mustEnd("2", wire.Length); string(eos.Text)+string(eos.Think) != streamed || streamed == "" {
			t.Errorf("not streamed %q, streamed %q", eos.Text, streamed)
		}
		// The same connection, several at once, told apart by id.
		for i := range 4 {
			c.request(compared(fmt.Sprint("m", i), "once upon a time", 6+i))
		}
		for left := 4; left > 0; {
			ev, err := c.next()
			if err != nil {
				t.Fatal(err)
			}
			if ev.Kind == wire.EventEOS {
				left--
			}
		}
		for i := range 4 {
			if err := likeAlone(c.said["1"], c.said[fmt.Sprint("m", i)], 6+i, llama.Exact()); err != nil {
				t.Errorf("answer %d of four side by side: %v", i, err)
			}
		}
		c.request(`{"id":"c","messages":[{"role":"user","content":"Hello"}],"max_tokens":5,"logprobs":2,` +
			`"temperature":0.7,"seed":3}`)
		ev, err := c.end("c")
		if err != nil || ev.Kind != wire.EventEOS {
			t.Errorf("chat: %+v %v", ev, err)
		}
		for _, what := range []string{"health", "info", "metrics"} {
			c.request(fmt.Sprintf(`{"type":%q,"id":"q"}`, what))
			if ev, err := c.next(); err != nil || ev.Kind != wire.EventReport || !json.Valid(ev.Report) {
				t.Errorf("%s: %+v %v", what, ev, err)
			}
		}
	})

	t.Run("newline", func(t *testing.T) {
		conn, err := net.Dial("unix", s.Socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(waitfor.Limit))
		// The tiny model never ends by itself: this one is cut by the context. A line is a prompt, so is the next.
		fmt.Fprintf(conn, "metrics\n")
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil || !json.Valid([]byte(line)) {
			t.Fatalf("metrics line %q: %v", line, err)
		}
		if _, err := io.ReadAll(conn); err != nil {
			t.Errorf("the connection should close after metrics: %v", err)
		}
	})

	t.Run("http", func(t *testing.T) {
		for path, want := range map[string]string{"/health": `"status":"ok"`, "/info": `"n_ctx"`, "/metrics": "uma_",
			"/nothing": "GET /nothing: there is no such path; docs/http.md lists"} {
			out := get(t, s, path, "*/*")
			if !strings.Contains(out, want) {
				t.Errorf("GET %s: %q lacks %q", path, out, want)
			}
		}
		if out := get(t, s, "/metrics", "application/json"); !json.Valid([]byte(out)) {
			t.Errorf("metrics as JSON: %s", out)
		}
		// OpenAI's API says what frames say.
		c := s.dial()
		defer c.Close()
		c.request(greedy("x", "over HTTP", 12))
		c.mustEnd("x", wire.Length)
		var answer struct {
			Choices []struct{ Text string }
			Usage   struct {
				Completion int `json:"completion_tokens"`
			}
		}
		out := fetch(t, s, "POST", "/v1/completions", `{"prompt":"over HTTP","max_tokens":12,"temperature":0,`+
			`"ignore_eos":true}`, "*/*")
		if err := json.Unmarshal([]byte(out), &answer); err != nil || len(answer.Choices) != 1 ||
			answer.Choices[0].Text != c.text["x"].String() || answer.Usage.Completion != 12 {
			t.Errorf("POST /v1/completions: %s; in frames %q", out, c.text["x"].String())
		}
	})
	s.nothingLeft()
}

// get does what curl --unix-socket does.
func get(t *testing.T, s *server, path, accept string) string {
	t.Helper()
	return fetch(t, s, "GET", path, "", accept)
}

func fetch(t *testing.T, s *server, method, path, body, accept string) string {
	t.Helper()
	c := http.Client{Timeout: waitfor.Limit, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", s.Socket)
		},
	}}
	req, err := http.NewRequest(method, "http://uma"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	res, err := c.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return string(answer)
}

func TestM1NewlineAnswers(t *testing.T) {
	c := ggufgen.Tiny()
	c.EndEvery = 8 // its answers end by themselves
	s := startModel(t, ggufgen.Cached(t, c), "--seed", "1")
	conn, err := net.Dial("unix", s.Socket)
	if err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(waitfor.Limit))
	r := bufio.NewReader(conn)
	for range 2 {
		fmt.Fprintf(conn, "hello there\n")
		if line, err := r.ReadString('\n'); err != nil || line == "" {
			t.Fatalf("answer %q: %v", line, err)
		}
	}
	conn.Close()
	s.nothingLeft()
}

func TestM2EightClients(t *testing.T) {
	s := start(t)
	prompts := make([]string, 8)
	alone, texts := make([]said, 8), make([]string, 8)
	const tokens, begins = 40, 8 // no two answers begin alike for so long
	for i := range prompts {
		prompts[i] = fmt.Sprintf("story %d about %s: ", i, strings.Repeat(string(rune('a'+i)), 5+i))
		c := s.dial()
		c.request(compared("x", prompts[i], tokens))
		c.mustEnd("x", wire.Length)
		alone[i] = c.said["x"]
		texts[i] = alone[i][:begins].text()
		c.Close()
	}
	for i := range alone {
		for j := range i {
			if texts[i] == texts[j] {
				t.Fatalf("prompts %d and %d have the same answer: the test cannot see a mix-up", i, j)
			}
		}
	}
	var wg sync.WaitGroup
	for i := range prompts {
		wg.Go(func() {
			c := s.dial()
			defer c.Close()
			for round := range 3 {
				id := fmt.Sprint(i, "/", round)
				c.request(compared(id, prompts[i], tokens))
				if ev, err := c.end(id); err != nil || ev.Kind != wire.EventEOS {
					t.Errorf("client %d: %+v %v", i, ev, err)
					return
				}
				if err := likeAlone(alone[i], c.said[id], tokens, llama.Exact()); err != nil {
					t.Errorf("client %d, among others: %v", i, err)
				}
				for j := range alone {
					if i != j && strings.HasPrefix(c.said[id].text(), texts[j]) {
						t.Errorf("client %d got the answer of client %d", i, j)
					}
				}
			}
		})
	}
	wg.Wait()
	s.nothingLeft()
}

func TestM3Trouble(t *testing.T) {
	s := start(t, "--max-prompt-bytes", "20000", "--max-frame-bytes", "65536", "-b", "512", "-c", "4096")
	run := func(name string, f func(t *testing.T, c *client)) {
		t.Run(name, func(t *testing.T) {
			c := s.dial()
			defer c.Close()
			c.t = t
			f(t, c)
		})
		s.nothingLeft()
	}
	alive := func(c *client) {
		c.t.Helper()
		c.request(`{"id":"alive","prompt":"a","max_tokens":1}`)
		c.mustEnd("alive", wire.Length)
	}

	run("mixed long and short", func(t *testing.T, c *client) {
		for i := range 3 {
			c.request(greedy(fmt.Sprint("long", i), long(900+i), 8))
			c.request(greedy(fmt.Sprint("short", i), "hi", 30))
		}
		for left := 6; left > 0; {
			ev, err := c.next()
			if err != nil {
				t.Fatal(err)
			}
			switch ev.Kind {
			case wire.EventEOS:
				left--
			case wire.EventError:
				t.Fatalf("%+v", ev.Error)
			}
		}
	})
	run("cancel in prefill", func(t *testing.T, c *client) {
		c.request(greedy("p", long(3000), 8), `{"event":"cancel","id":"p"}`)
		if eos := c.mustEnd("p", wire.Cancelled); eos.Usage.CompletionTokens > 2 {
			t.Errorf("cancelled in its prompt, but %+v", eos.Usage)
		}
		alive(c)
	})
	run("cancel in decode", func(t *testing.T, c *client) {
		c.request(unread("d", "tell", 3000))
		for range 5 {
			if ev, err := c.next(); err != nil || ev.Kind != wire.EventToken {
				t.Fatalf("%+v %v", ev, err)
			}
		}
		c.request(`{"event":"cancel","id":"d"}`)
		if eos := c.mustEnd("d", wire.Cancelled); eos.Usage.CompletionTokens < 5 {
			t.Errorf("%+v", eos.Usage)
		}
		c.request(`{"event":"cancel","id":"d"}`) // an ended one: ignored
		alive(c)
	})
	run("client vanishes", func(t *testing.T, c *client) {
		c.request(unread("v", "tell", 3000))
		if _, err := c.next(); err != nil {
			t.Fatal(err)
		}
		c.Close()
	})
	run("client vanishes in prefill", func(t *testing.T, c *client) {
		c.request(greedy("v", long(3500), 100))
		c.Close()
	})
	run("client never reads", func(t *testing.T, c *client) {
		// Far more events than the socket and the ring hold: the request must pause, and others go on.
		for i := range 8 {
			c.request(fmt.Sprintf(`{"id":"n%d","prompt":"x","max_tokens":400,"ignore_eos":true,"logprobs":20,`+
				`"stream":true}`, i))
		}
		o := s.dial()
		defer o.Close()
		o.t = t
		for i := range 20 {
			o.request(greedy(fmt.Sprint("o", i), "other", 20))
			o.mustEnd(fmt.Sprint("o", i), wire.Length)
		}
		c.Close()
	})
	run("slow reader gets everything", func(t *testing.T, c *client) {
		c.request(`{"id":"s","prompt":"x","max_tokens":900,"temperature":0,"ignore_eos":true,"logprobs":20,` +
			`"stream":true}`)
		// Until it stands still: its ring is full and it is paused.
		s.settle(func(reports.Info) error {
			body, err := s.Ask("metrics")
			if err == nil && !strings.Contains(body, `"running_paused":1`) {
				err = errors.New("not paused")
			}
			return err
		})
		tokens := 0
		for {
			ev, err := c.next()
			if err != nil {
				t.Fatal(err)
			}
			if ev.Kind == wire.EventToken {
				tokens++
			}
			if ev.Kind == wire.EventEOS {
				break
			}
		}
		if tokens != 900 {
			t.Errorf("%d tokens arrived of 900", tokens)
		}
	})
	run("oversize prompt", func(t *testing.T, c *client) {
		c.request(greedy("o", strings.Repeat("a", 20001), 1))
		if e := c.mustFail("o", wire.PromptTooLarge); !strings.Contains(e.Message, "20000") {
			t.Errorf("%+v", e)
		}
		alive(c)
	})
	run("context exceeded", func(t *testing.T, c *client) {
		c.request(greedy("o", strings.Repeat("7", 6000), 1))
		e := c.mustFail("o", wire.ContextLength)
		if e.NCtx != 4096 || e.NPrompt < 4096 || !strings.Contains(e.Message, "context_length_exceeded") {
			t.Errorf("%+v", e)
		}
		alive(c)
	})
	run("invalid UTF-8", func(t *testing.T, c *client) {
		c.Write(wire.AppendFrame(nil, []byte("{\"id\":\"u\",\"prompt\":\"\xff\xfe\"}")))
		ev, err := c.next()
		if err != nil || ev.Kind != wire.EventError || ev.Error.Code != wire.InvalidJSON &&
			ev.Error.Code != wire.BadRequest {
			t.Fatalf("%+v %v", ev, err)
		}
		alive(c)
	})
	run("bad requests", func(t *testing.T, c *client) {
		for body, want := range map[string]wire.Code{
			`{"id":"b","prompt":"x","temperature":"hot"}`:       wire.BadRequest,
			`{"id":"b","prompt":"x","top_p":7}`:                 wire.BadRequest,
			`{"id":"b"}`:                                        wire.BadRequest,
			`{"id":"b","prompt":"x","logit_bias":{"999999":1}}`: wire.BadRequest,
		} {
			c.request(body)
			if e := c.mustFail("b", want); e.Message == "" {
				t.Errorf("%s: no message", body)
			}
		}
		c.request(unread("twice", "x", 3000), unread("twice", "x", 3000))
		c.mustFail("twice", wire.DuplicateID)
		c.request(`{"event":"cancel","id":"twice"}`)
		c.mustEnd("twice", wire.Cancelled)
		c.request(`{not json`)
		if ev, err := c.next(); err != nil || ev.Kind != wire.EventError || ev.Error.Code != wire.InvalidJSON {
			t.Fatalf("%+v %v", ev, err)
		}
		alive(c)
	})
	run("broken frame", func(t *testing.T, c *client) {
		c.Write([]byte{0xff, 0xff, 0xff, 0x00, 'x'})
		ev, err := c.next()
		if err != nil || ev.Kind != wire.EventError || ev.Error.Code != wire.FrameTooLarge {
			t.Fatalf("%+v %v", ev, err)
		}
		c.mustClose()
	})
	run("half a frame", func(t *testing.T, c *client) {
		c.Write([]byte{100, 0, 0, 0, '{'})
	})
}

func TestM3KVPressure(t *testing.T) {
	// Eight long answers in a pool that holds three of them: preempted ones are computed again, none is wrong.
	s := start(t, "-c", "512", "--parallel", "8", "-b", "64")
	c := s.dial()
	c.request(compared("alone", "pressure", 150))
	c.mustEnd("alone", wire.Length)
	var all []string
	for i := range 8 {
		all = append(all, compared(fmt.Sprint("k", i), "pressure", 150))
	}
	c.request(all...)
	for left := 8; left > 0; {
		ev, err := c.next()
		if err != nil {
			t.Fatal(err)
		}
		if ev.Kind == wire.EventError {
			t.Fatalf("%+v", ev.Error)
		}
		if ev.Kind == wire.EventEOS {
			left--
		}
	}
	for i := range 8 {
		if err := likeAlone(c.said["alone"], c.said[fmt.Sprint("k", i)], 150, llama.Exact()); err != nil {
			t.Errorf("answer %d of eight under pressure: %v", i, err)
		}
	}
	if body, err := s.Ask("metrics"); err != nil || strings.Contains(body, `"preemptions_total":0`) {
		t.Errorf("no request was preempted: the test shows nothing (%v)", err)
	}
	c.Close()
	s.nothingLeft()
}

func TestM3QueueFull(t *testing.T) {
	s := start(t, "--parallel", "1", "--max-queue", "2", "-b", "64")
	c := s.dial()
	var all []string
	for i := range 8 {
		all = append(all, greedy(fmt.Sprint("q", i), "x", 400))
	}
	c.request(all...)
	done, refused := 0, 0
	for done+refused < 8 {
		ev, err := c.next()
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case ev.Kind == wire.EventEOS:
			done++
		case ev.Kind == wire.EventError:
			refused++
			if ev.Error.Code != wire.QueueLimit || ev.Error.RetryAfter <= 0 {
				t.Errorf("%+v", ev.Error)
			}
		}
	}
	if done < 3 || refused == 0 {
		t.Errorf("%d answered, %d refused; 3 or more must be answered and some refused", done, refused)
	}
	c.Close()
	s.nothingLeft()
}

func TestM3Shutdown(t *testing.T) {
	exe := filepath.Join(bin, "uma-serve")
	model := ggufgen.Cached(t, ggufgen.Tiny())
	begin := func(t *testing.T, args ...string) (*server, *client) {
		p, err := daemonproc.Start(exe, waitfor.Limit, nil,
			append([]string{"-m", model, "-t", "1", "--shutdown-timeout", "1h"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		s := &server{Proc: p, t: t}
		t.Cleanup(func() { p.Stop(time.Second) })
		c := s.dial()
		c.t = t
		c.request(unread("run", "x", 3500))
		if _, err := c.next(); err != nil {
			t.Fatal(err)
		}
		return s, c
	}
	waitfor.Hangup(t)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		t.Run("newcomers while it drains after "+sig.String(), func(t *testing.T) {
			s, c := begin(t)
			s.Cmd.Process.Signal(sig)
			// A new connection each time: taken before the signal was handled, or refused after, never lost.
			for i, refused := 0, false; !refused; i++ {
				late := s.dial()
				id := fmt.Sprint("late", i)
				late.request(greedy(id, "x", 1))
				ev, err := late.end(id)
				if err != nil {
					t.Fatal(err)
				}
				if refused = ev.Kind == wire.EventError; refused && ev.Error.Code != wire.ShuttingDown {
					t.Errorf("%+v", ev.Error)
				}
				late.Close()
			}
			out, err := exec.Command(filepath.Join(bin, "uma-cli"), "health", "--live", "--socket",
				s.Socket).CombinedOutput()
			if err != nil || !strings.Contains(string(out), "draining") {
				t.Errorf("health --live: %v, %s", err, out)
			}
			c.mustEnd("run", wire.Length)
			c.mustClose()
			if !s.Ended(waitfor.Limit) || s.Err() != nil {
				t.Errorf("end: %v\n%s", s.Err(), s.Log())
			}
		})
	}
	t.Run("drain", func(t *testing.T) {
		s, c := begin(t)
		s.Cmd.Process.Signal(syscall.SIGTERM)
		// Taken before the signal was handled or refused after: never lost.
		for i := 0; ; i++ {
			id := fmt.Sprint("late", i)
			c.request(greedy(id, "x", 1))
			ev, err := c.end(id)
			if err != nil {
				t.Fatal(err)
			}
			if ev.Kind == wire.EventError {
				if ev.Error.Code != wire.ShuttingDown {
					t.Errorf("%+v", ev.Error)
				}
				break
			}
		}
		c.mustEnd("run", wire.Length)
		c.mustClose()
		if !s.Ended(waitfor.Limit) || s.Err() != nil {
			t.Errorf("end: %v\n%s", s.Err(), s.Log())
		}
	})
	t.Run("timeout", func(t *testing.T) {
		s, c := begin(t, "--shutdown-timeout", "50ms")
		s.Cmd.Process.Signal(syscall.SIGTERM)
		c.mustEnd("run", wire.Shutdown)
		if !s.Ended(waitfor.Limit) || s.Err() != nil {
			t.Errorf("end: %v\n%s", s.Err(), s.Log())
		}
	})
	t.Run("second signal", func(t *testing.T) {
		s, c := begin(t)
		s.Cmd.Process.Signal(syscall.SIGTERM)
		for draining := false; !draining; { // two signals at once are one
			c.request(`{"type":"health"}`)
			for {
				ev, err := c.next()
				if err != nil {
					t.Fatal(err)
				}
				if ev.Kind == wire.EventReport {
					draining = strings.Contains(string(ev.Report), "draining")
					break
				}
			}
		}
		s.Cmd.Process.Signal(syscall.SIGTERM)
		c.mustEnd("run", wire.Shutdown)
		if !s.Ended(waitfor.Limit) || s.Err() != nil {
			t.Errorf("end: %v\n%s", s.Err(), s.Log())
		}
	})
}

func TestCLI(t *testing.T) {
	c := ggufgen.Tiny()
	c.EndEvery = 8
	s := startModel(t, ggufgen.Cached(t, c))
	cli := func(stdin string, args ...string) (string, error) {
		cmd := exec.Command(filepath.Join(bin, "uma-cli"), args...)
		cmd.Env = append(cmd.Environ(), "UMA_SOCKET="+s.Socket)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.Output()
		return string(out), err
	}
	if out, err := cli("", "run", "-n", "20", "hello"); err != nil || strings.TrimSpace(out) == "" {
		t.Errorf("run: %q %v", out, err)
	}
	if out, err := cli("piped text", "run", "--json", "-n", "5"); err != nil || !strings.Contains(out, `"eos"`) {
		t.Errorf("run --json: %q %v", out, err)
	}
	for _, verb := range []string{"health", "info", "metrics"} {
		if out, err := cli("", verb); err != nil || out == "" {
			t.Errorf("%s: %q %v", verb, out, err)
		}
	}
	s.nothingLeft()
	cmd := exec.Command(filepath.Join(bin, "uma-cli"), "--socket", filepath.Join(t.TempDir(), "none"), "health")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "uma-serve") {
		t.Errorf("without a daemon: %q %v", out, err)
	}
}
