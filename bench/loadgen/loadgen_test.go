package loadgen

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uma-serve/uma-serve/bench/workload"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

func TestMain(m *testing.M) {
	if os.Getenv("UMA_TEST_LOADGEN_CLIENT") == "1" {
		if err := Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// What the fake servers do with every request.
const (
	ttft   = 60 * time.Millisecond // to the first token of thought
	thinks = 4
	gap    = 20 * time.Millisecond // between two tokens of a phase
	ttot   = 35 * time.Millisecond // last token of thought → first of the answer
	speaks = 12
)

// script plays it: token is called when one is due, after pause of the time until then.
func script(pause func(time.Duration)) func(token func(thinking bool, n int)) {
	return func(token func(thinking bool, n int)) {
		pause(ttft)
		for n := range thinks + speaks {
			token(n < thinks, n)
			if n == thinks-1 {
				pause(ttot)
			} else if n < thinks+speaks-1 {
				pause(gap)
			}
		}
	}
}

// atOnce plays the script without delays.
var atOnce = script(func(time.Duration) {})

// protocols are the protocols over which the script is requested; raw is a bare prompt.
var protocols = []struct {
	target, address string
	raw             bool
}{{"uma", "pipes", false}, {"openai", "http://server/v1/", false}, {"llama-server", "http://server", false},
	{"llama-server", "http://server", true}, {"ollama", "http://server", false}}

func scripted(target, address string, raw bool) *Job {
	job := &Job{Target: target, Address: address, Model: "m"}
	for i := range 5 {
		r := workload.Request{ID: fmt.Sprint(i), Kind: workload.Reasoning, After: i - 1, Measured: true, Think: thinks,
			Output: speaks}
		if raw {
			r.Prompt = "go on"
		} else {
			r.Messages = []workload.Message{{Role: "user", Content: "hello"}}
		}
		job.Requests = append(job.Requests, r)
	}
	return job
}

// counted compares what a record counts with the script.
func counted(t *testing.T, target string, raw bool, res *Result) {
	t.Helper()
	if len(res.Records) != 5 {
		t.Fatalf("%d records", len(res.Records))
	}
	for _, r := range res.Records {
		if r.Err != "" || r.Reason != "stop" || r.PromptTokens != prompts || r.CachedTokens != cached &&
			target != "ollama" {
			t.Fatalf("record %+v", r)
		}
		switch {
		case raw: // llama-server's /completion does not tell thoughts from answers
			if len(r.Output) != thinks+speaks {
				t.Fatalf("%d tokens", len(r.Output))
			}
		case len(r.Think) != thinks || len(r.Output) != speaks || r.Thought() != thinks || r.Answered() != speaks:
			t.Fatalf("%d tokens of thought, %d of the answer; %d and %d by the server", len(r.Think), len(r.Output),
				r.Thought(), r.Answered())
		}
	}
}

// TestTruth compares what the client measures with servers whose delays are known, to the nanosecond: on a clock that
// stands still while anything can run.
func TestTruth(t *testing.T) {
	for _, c := range protocols {
		t.Run(fmt.Sprint(c.target, " raw ", c.raw), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				say := script(func(d time.Duration) { time.Sleep(d) })
				ln := newPipes()
				if c.target == "uma" {
					defer ln.Close()
					go fakeUMA(ln, say)
				} else {
					s := &http.Server{Handler: &fake{play: say}}
					defer s.Close()
					go s.Serve(ln)
				}
				res, err := run(t.Context(), scripted(c.target, c.address, c.raw), nil, ln.dial)
				if err != nil {
					t.Fatal(err)
				}
				counted(t, c.target, c.raw, res)
				for _, r := range res.Records {
					want := r.Sent + int64(ttft)
					for n, at := range slices.Concat(r.Think, r.Output) {
						if at != want {
							t.Fatalf("token %d came %v after the request, measured as %v", n,
								time.Duration(want-r.Sent), time.Duration(at-r.Sent))
						}
						want += int64(gap)
						if n == thinks-1 {
							want += int64(ttot - gap)
						}
					}
					if !c.raw && r.Visible != r.Output[0] || r.First() != r.Sent+int64(ttft) ||
						r.End != want-int64(gap) {
						t.Errorf("first %d, visible %d, end %d of %+v", r.First(), r.Visible, r.End, r)
					}
				}
			})
		})
	}
}

// TestSpawn: a client process measures the same requests, over real sockets.
func TestSpawn(t *testing.T) {
	hosted := (&fake{play: atOnce}).start(t)
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go fakeUMA(ln, atOnce)
	t.Setenv("UMA_TEST_LOADGEN_CLIENT", "1")
	for _, c := range protocols {
		t.Run(fmt.Sprint(c.target, " raw ", c.raw), func(t *testing.T) {
			address := strings.Replace(c.address, "http://server", hosted, 1)
			if c.target == "uma" {
				address = path
			}
			ended := 0
			res, err := Spawn(t.Context(), scripted(c.target, address, c.raw), func(n int) { ended = n }, os.Args[0])
			if err != nil {
				t.Fatal(err)
			}
			if ended != 5 || res.CPUNs <= 0 {
				t.Fatalf("%d ended, %d ns of CPU", ended, res.CPUNs)
			}
			counted(t, c.target, c.raw, res)
			for _, r := range res.Records {
				if times := slices.Concat([]int64{r.Sent}, r.Think, r.Output, []int64{r.End}); !slices.IsSorted(times) {
					t.Errorf("times %v", times)
				}
			}
		})
	}
}

// BenchmarkClient measures the client's processor time per token at 16 streams, written in turns as the daemon does.
func BenchmarkClient(b *testing.B) {
	const streams, tokens, step = 16, 50, 80 * time.Millisecond
	path := filepath.Join(b.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	b.Setenv("UMA_TEST_LOADGEN_CLIENT", "1")
	job := Job{Target: "uma", Address: path}
	for range streams {
		job.Requests = append(job.Requests, workload.Request{Prompt: "x", After: -1, Output: tokens})
	}
	var cpu, server time.Duration
	for b.Loop() {
		done := make(chan time.Duration)
		go func() {
			var conns [streams]net.Conn
			for i := range conns {
				conns[i], _ = ln.Accept()
				conns[i].Read(make([]byte, 4096))
			}
			before := cpuTime()
			for n := range tokens {
				time.Sleep(step)
				for _, c := range conns {
					c.Write(wire.AppendToken(nil, &wire.Token{ID: "b", Text: []byte("w "), TokenID: int32(n),
						Phase: wire.Output}))
				}
			}
			for _, c := range conns {
				c.Write(wire.AppendEOS(nil, &wire.EOS{ID: "b", Reason: wire.Stop, Streamed: true}))
			}
			done <- cpuTime() - before
		}()
		res, err := Spawn(b.Context(), &job, nil, os.Args[0])
		if err != nil {
			b.Fatal(err)
		}
		cpu, server = cpu+time.Duration(res.CPUNs), server+<-done
	}
	all := float64(b.N) * streams * tokens
	b.ReportMetric(float64(cpu.Microseconds())/all, "client-µs/token")
	b.ReportMetric(float64(server.Microseconds())/all, "writer-µs/token")
	b.ReportMetric(0, "ns/op")
}

// TestLoops: open and closed loops send everything once, keep the order of dependent requests, and use no more workers
// than allowed.
func TestLoops(t *testing.T) {
	for _, workers := range []int{0, 2} {
		synctest.Test(t, func(t *testing.T) {
			say := script(func(d time.Duration) { time.Sleep(d) })
			ln := newPipes()
			defer ln.Close()
			go fakeUMA(ln, say)
			job := Job{Target: "uma", Address: "pipes", Workers: workers, Requests: []workload.Request{
				{ID: "a", Prompt: "x", Output: 9, After: -1, Measured: true},
				{ID: "refused", Prompt: "refuse me", Output: 9, After: -1, Measured: true, At: 10 * time.Millisecond},
				{ID: "b", Prompt: "x", Output: 9, After: 0, Measured: true, Pause: 5 * time.Millisecond},
				{ID: "never", Prompt: "x", Output: 9, After: 1, Measured: true},
				{ID: "short", Prompt: "x", Output: workload.Endless, After: -1, Measured: true},
				{ID: "cut", Prompt: "x", Output: 9, After: -1, Measured: true, At: 100 * time.Millisecond,
					Until: 200 * time.Millisecond},
			}}
			if workers > 0 { // a closed loop has no times
				job.Requests = job.Requests[:5]
			}
			res, err := run(t.Context(), &job, nil, ln.dial)
			if err != nil {
				t.Fatal(err)
			}
			byID := map[string]*Record{}
			for _, r := range res.Records {
				byID[job.Requests[r.Index].ID] = r
			}
			a, b := byID["a"], byID["b"]
			if a == nil || b == nil || a.Err+b.Err != "" || b.Sent != a.End+int64(5*time.Millisecond) {
				t.Fatalf("workers %d: b must come 5 ms after a: %+v %+v", workers, a, b)
			}
			if r := byID["refused"]; r == nil || !strings.Contains(r.Err, "E_LIMIT_QUEUE") || byID["never"] != nil ||
				workers == 0 && r.Sent != int64(10*time.Millisecond) {
				t.Errorf("workers %d: refused %+v, and what comes after it %+v", workers, r, byID["never"])
			}
			if r := byID["short"]; r == nil || !strings.Contains(r.Err, "context is full") {
				t.Errorf("a stream that ends on its own: %+v", r)
			}
			if workers == 0 {
				if r := byID["cut"]; r == nil || !r.Cut || r.Err != "" || r.Sent != int64(100*time.Millisecond) ||
					r.End != int64(200*time.Millisecond) {
					t.Errorf("cut %+v", r)
				}
			}
		})
	}
}

// TestConversationGrows: the next turn holds the answer to the last one.
func TestConversationGrows(t *testing.T) {
	var bodies [][]workload.Message
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct{ Messages []workload.Message }
		json.NewDecoder(r.Body).Decode(&q)
		bodies = append(bodies, q.Messages)
		fmt.Fprint(w, "data: {\"choices\":[{\"delta\":{\"content\":\"<think>\"}}]}\n\ndata: "+
			"{\"choices\":[{\"delta\":{\"content\":\"hm\"}}]}\n\n"+
			"data: {\"choices\":[{\"delta\":{\"content\":\"</think>\"}}]}\n\ndata: "+
			"{\"choices\":[{\"delta\":{\"content\":\"42\"},\"finish_reason\":\"stop\"}]}\n\n")
	}))
	defer s.Close()
	user := func(text string) []workload.Message { return []workload.Message{{Role: "user", Content: text}} }
	job := Job{Target: "openai", Address: s.URL, Requests: []workload.Request{
		{ID: "1", Messages: user("one"), After: -1, Output: 5, Answer: "42", Grader: "exact"},
		{ID: "2", Messages: user("two"), After: 0, Grow: true, Output: 5, Answer: "41", Grader: "exact"}}}
	res, err := Run(t.Context(), &job, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(bodies), "[[{user one}] [{user one} {assistant 42} {user two}]]"; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
	if a, b := res.Records[0], res.Records[1]; !a.Right || b.Right || len(a.Think) != 1 || len(a.Output) != 1 {
		t.Errorf("right %v %v, think %d, output %d", a.Right, b.Right, len(a.Think), len(a.Output))
	}
}

// TestWishes: a side's options are sent with its reasoning requests, and a chat does not think.
func TestWishes(t *testing.T) {
	u := &uma{client: &client{job: &Job{EarlyExit: "eat", ThinkBudget: 7, Seed: 5, Temperature: 1}}}
	talk := []workload.Message{{Role: "user", Content: "x"}}
	for _, c := range []struct {
		r    workload.Request
		want wire.Think
	}{
		{workload.Request{Kind: workload.Reasoning, Messages: talk, Think: 3, Output: 4},
			wire.Think{EarlyExit: wire.ExitEAT, BudgetTokens: 7}},
		{workload.Request{Kind: workload.Chat, Messages: talk, Output: 7}, wire.Think{Mode: wire.ThinkOff}},
		{workload.Request{Kind: workload.Reasoning, Prompt: "x", Think: 3, Output: 4}, wire.Think{}},
	} {
		q := defaults
		if err := u.setOptions(&q, &c.r, &Record{Index: 2}); err != nil || q.Think != c.want || q.MaxTokens != 7 ||
			q.Sampling.Seed != 7 || !q.Sampling.SeedSet {
			t.Errorf("%v %+v", err, q)
		}
	}
	u.job.EarlyExit = "soon"
	q := defaults
	if err := u.setOptions(&q, &workload.Request{Prompt: "x", Model: "small", Schema: "{}"}, &Record{}); err != nil ||
		q.Model != "small" || q.Format.Kind != wire.FormatSchema || q.Format.Payload != "{}" {
		t.Errorf("%+v, %v", q, err)
	}
	if err := u.setOptions(&q, &workload.Request{Kind: workload.Reasoning, Messages: talk}, &Record{}); err == nil {
		t.Error("an early exit that does not exist was taken")
	}
}

func TestJobErrors(t *testing.T) {
	ok := workload.Request{Prompt: "x", After: -1, Output: 1}
	for want, j := range map[string]Job{
		"is none of":  {Target: "x", Address: "a", Requests: []workload.Request{ok}},
		"address":     {Target: "uma", Requests: []workload.Request{ok}},
		"no requests": {Target: "uma", Address: "a"},
		"not a JSON object": {Target: "uma", Address: "a", Requests: []workload.Request{ok},
			Extra: json.RawMessage("{")},
		"comes after 4": {Target: "uma", Address: "a", Requests: []workload.Request{{After: 4}}},
		"only target uma": {Target: "ollama", Address: "a",
			Requests: []workload.Request{{Prompt: "x", After: -1, Output: 1, Schema: "{}"}}},
	} {
		if _, err := Run(t.Context(), &j, nil); err == nil ||
			!strings.Contains(strings.ReplaceAll(err.Error(), "number ", ""), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
	if err := Serve(t.Context(), strings.NewReader("{"), io.Discard); err == nil {
		t.Error("half a job was taken")
	}
	res, err := Run(t.Context(), &Job{Target: "uma", Address: filepath.Join(t.TempDir(), "none"),
		Requests: []workload.Request{ok}}, nil)
	if err != nil || !strings.Contains(res.Records[0].Err, "connect to the daemon") {
		t.Errorf("%v %+v", err, res)
	}
}

// FuzzEvents: any bytes from a server give an error or an answer.
func FuzzEvents(f *testing.F) {
	f.Add("data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\n")
	f.Add("data: {\"content\":1}\n")
	f.Add("data: {\"usage\":{}}\r\n:comment\n\ndata: [DONE]")
	var answer []byte
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write(answer) }))
	defer s.Close()
	f.Fuzz(func(t *testing.T, text string) {
		answer = bytes.Clone([]byte(text))
		job := Job{Target: "openai", Address: s.URL, Requests: []workload.Request{{Prompt: "x", After: -1, Output: 1}}}
		res, err := Run(t.Context(), &job, nil)
		if err != nil || len(res.Records) != 1 || (res.Records[0].Err == "") != (res.Records[0].Reason != "") {
			t.Errorf("%v %+v", err, res.Records[0])
		}
	})
}
