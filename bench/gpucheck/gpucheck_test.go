package gpucheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// cand are candidates: token, log-probability, token, …
func cand(pairs ...float64) (out []candidate) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, candidate{int(pairs[i]), pairs[i+1]})
	}
	return out
}

func TestAgree(t *testing.T) {
	first := answer{tokens: []int{1, 2, 3}, probs: [][]candidate{cand(1, -0.1, 9, -3), cand(2, -0.7, 5, -0.8, 6, -2),
		cand(3, -0.1)}}
	other := func(tokens ...int) answer {
		return answer{tokens: tokens, probs: [][]candidate{cand(1, -0.15), cand(float64(tokens[1]), -0.6), nil}}
	}
	for name, c := range map[string]struct {
		first, other answer
		want         Agreement
	}{
		"equal": {first, other(1, 2, 3), Agreement{Answers: 1, Equal: 1, Drift: 0.1, MeanDrift: 0.075}},
		"near tie": {first, other(1, 5, 8), Agreement{Answers: 1, Near: 1, WorstGap: 0.1, Drift: 0.05,
			MeanDrift: 0.05}},
		"beyond": {first, other(1, 6, 8), Agreement{Answers: 1, Different: 1, WorstGap: 1.3, Drift: 0.05,
			MeanDrift: 0.05}},
		"no candidate": {first, other(1, 77, 8), Agreement{Answers: 1, Different: 1, WorstGap: 1e3, Drift: 0.05,
			MeanDrift: 0.05}},
		"shorter": {first, answer{tokens: []int{1, 2}}, Agreement{Answers: 1, Different: 1, WorstGap: 1e3}},
		"without probs": {answer{tokens: []int{1}}, answer{tokens: []int{2}},
			Agreement{Answers: 1, Different: 1, WorstGap: 1e3}},
	} {
		got := agree([]answer{c.first}, []answer{c.other}, 0.25)
		near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
		if !near(got.WorstGap, c.want.WorstGap) || !near(got.Drift, c.want.Drift) ||
			!near(got.MeanDrift, c.want.MeanDrift) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		got.WorstGap, got.Drift, got.MeanDrift = c.want.WorstGap, c.want.Drift, c.want.MeanDrift
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestLatency(t *testing.T) {
	at := func(ms ...int) (a answer) {
		for _, m := range ms {
			a.times = append(a.times, time.Duration(m)*time.Millisecond)
		}
		return a
	}
	got := latencyOf([]answer{at(10, 20, 40), at(30, 60, 100), at(50)})
	if want := (latency{TTFT: 30, ITL95: 40, Rate: 70, Tokens: 7}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := latencyOf(nil); got != (latency{}) {
		t.Errorf("of no answers: %+v", got)
	}
}

// fake answers as a server does whose model says the sum of what it has read, in tokens of one byte.
type fake struct {
	shift     int           // added to each token: another model's answers
	noReuse   bool          // cached prefixes are not found
	broken    string        // a path that answers 500
	device    string        // "" = gpu
	slow      chan struct{} // answers wait until it is closed; nil = they do not
	mu        sync.Mutex
	seen      map[string]bool // prompts that can be used again
	busy      int
	cancelled int
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.broken != "" && strings.HasPrefix(r.URL.Path, f.broken) {
		http.Error(w, "broken", http.StatusInternalServerError)
		return
	}
	var body struct {
		Content string
		Prompt  []int
		Predict int  `json:"n_predict"`
		Probs   int  `json:"n_probs"`
		Cache   bool `json:"cache_prompt"`
	}
	if r.Method == "POST" {
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	switch {
	case r.URL.Path == "/info":
		device := f.device
		if device == "" {
			device = "gpu"
		}
		fmt.Fprintf(w, `{"engine":"llama.cpp X","capabilities":{"device":%q,"device_name":"Card"}}`, device)
	case r.URL.Path == "/tokenize":
		var ids []int
		for _, b := range []byte(body.Content) {
			ids = append(ids, int(b))
		}
		json.NewEncoder(w).Encode(map[string]any{"tokens": ids})
	case r.URL.Path == "/slots":
		f.mu.Lock()
		defer f.mu.Unlock()
		fmt.Fprintf(w, `[{"is_processing":%t}]`, f.busy > 0)
	case strings.HasPrefix(r.URL.Path, "/slots/"):
		io.WriteString(w, `{"n_saved":600,"n_restored":600}`)
	case r.URL.Path == "/completion":
		f.complete(w, r, body.Prompt, body.Predict, body.Probs > 0, body.Cache)
	default:
		http.NotFound(w, r)
	}
}

func (f *fake) complete(w http.ResponseWriter, r *http.Request, prompt []int, n int, probs, cache bool) {
	if f.slow != nil {
		select {
		case <-f.slow:
		case <-r.Context().Done():
			return
		}
	}
	key := fmt.Sprint(prompt)
	f.mu.Lock()
	f.busy++
	cached := 0
	if cache && f.seen[key] && !f.noReuse {
		cached = len(prompt)
	}
	f.seen[key] = true
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.busy--
		f.mu.Unlock()
	}()
	sum := f.shift
	for _, t := range prompt {
		sum += t
	}
	for i := range n {
		id := (sum + i) % 1000
		event := map[string]any{"tokens": []int{id}, "content": "x", "stop": false}
		if probs {
			event["completion_probabilities"] = []any{map[string]any{"top_logprobs": cand(float64(id), -0.1)}}
		}
		b, _ := json.Marshal(event)
		fmt.Fprintf(w, "data: %s\n\n", b)
		w.(http.Flusher).Flush()
		if n > 1000 && i == 10 { // its client will disconnect
			<-r.Context().Done()
			f.mu.Lock()
			f.cancelled++
			f.mu.Unlock()
			return
		}
	}
	fmt.Fprintf(w, "data: {\"stop\":true,\"tokens\":[],\"timings\":{\"cache_n\":%d}}\n\n", cached)
}

// examine runs the steps of one model on fakes: the processor's, the accelerator's and llama-server.
func examine(t *testing.T, limit time.Duration, cpu, gpu, llama *fake) *Report {
	t.Helper()
	r := newRun(t, limit, llama, func(_ string, processor bool) *fake {
		if processor {
			return cpu
		}
		return gpu
	})
	r.model("folder/model.gguf")
	return r.report
}

// examineFloats runs the steps of the model at path without llama-server: floats answers for the processor with the
// copy in F32, own with the model. It returns the folder of the copy.
func examineFloats(t *testing.T, path string, decode Decoder, floats, own, gpu *fake) (*Report, string) {
	t.Helper()
	r := newRun(t, 5*time.Minute, nil, func(model string, processor bool) *fake {
		switch {
		case !processor:
			return gpu
		case model == path:
			return own
		}
		if _, err := os.Stat(model); err != nil {
			t.Error(err)
		}
		return floats
	})
	r.Decode, r.llamaStart = decode, nil
	r.model(path)
	return r.report, r.Scratch
}

// newRun is an examination whose servers are fakes, ended after limit.
func newRun(t *testing.T, limit time.Duration, llama *fake, uma func(model string, processor bool) *fake) *run {
	r := &run{Config: &Config{Backend: "cuda", Scratch: t.TempDir(), Tokens: 4, Prompts: 4, Pasted: 8, Near: 0.25,
		Limit: limit, StepMax: limit, Log: t.Output()}, report: &Report{Backend: "cuda"}, saved: func(*Report) {}}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	r.ctx = ctx
	start := func(f *fake) (*server, error) {
		if f == nil {
			return nil, errors.New("no such server")
		}
		if f.seen == nil {
			f.seen = map[string]bool{}
		}
		s := httptest.NewServer(f)
		return &server{s.URL, s.Client(), func() error { s.Close(); return nil }, func() string { return "why" }}, nil
	}
	r.umaStart = func(args ...string) (*server, error) {
		after := func(name string) string { return args[slices.Index(args, name)+1] }
		return start(uma(after("-m"), after("--gpu-layers") == "0"))
	}
	r.llamaStart = func(...string) (*server, error) { return start(llama) }
	return r
}

// TestRun: every step is run whatever became of those before it, and each says what is wrong.
func TestRun(t *testing.T) {
	for name, c := range map[string]struct {
		cpu, gpu, llama *fake
		want            map[string]string // step and server -> a part of its error
	}{
		"all is well": {&fake{}, &fake{}, &fake{}, nil},
		"another model's answers": {&fake{}, &fake{shift: 1}, &fake{shift: 1}, map[string]string{
			"answers, uma-serve": "4 of 4 answers part"}},
		"no prefix": {&fake{}, &fake{noReuse: true}, &fake{noReuse: true}, map[string]string{
			"prefix, uma-serve": "0 of 768 tokens", "prefix, llama-server": "0 of 768 tokens",
			"snapshot, restore, uma-serve": "0 of 512 tokens"}},
		"no device": {&fake{}, &fake{device: "cpu"}, &fake{}, map[string]string{
			"device, uma-serve": "computes on the processor"}},
		"no slots": {&fake{}, &fake{broken: "/slots"}, &fake{}, map[string]string{
			"snapshot, save, uma-serve": "500", "cancel, uma-serve": "500"}},
		"no processor": {nil, &fake{}, &fake{}, map[string]string{
			"start, uma-serve, processor": "no such server", "answers, uma-serve": "nothing to compare"}},
		"no llama-server": {&fake{}, &fake{}, nil, map[string]string{"start, llama-server": "no such server"}},
		"neither answers": {&fake{}, &fake{broken: "/completion"}, nil, map[string]string{
			"answers, uma-serve": "500", "1 stream, uma-serve": "500", "4 streams, uma-serve": "500",
			"16 streams, uma-serve": "500", "64 streams, uma-serve": "500", "storm, uma-serve": "500",
			"prefix, uma-serve": "500", "snapshot, save, uma-serve": "500", "cancel, uma-serve": "500",
			"start, llama-server": "no such server"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := examine(t, 5*time.Minute, c.cpu, c.gpu, c.llama)
			got, logs := map[string]string{}, map[string]int{}
			for _, s := range report.Steps {
				if s.Error != "" {
					got[s.Name+", "+s.Server] = s.Error
				}
				if s.Values["log"] != nil {
					logs[s.Server]++
				}
			}
			if name == "neither answers" && (logs["uma-serve"] != 1 || logs["llama-server"] != 0) {
				t.Errorf("logs of failed steps: %v, want one of uma-serve", logs)
			}
			for step, part := range c.want {
				if !strings.Contains(got[step], part) {
					t.Errorf("%s: %q, want %q", step, got[step], part)
				}
				delete(got, step)
			}
			if len(got) > 0 {
				t.Errorf("these failed too: %v", got)
			}
			if report.Failed() != len(c.want) {
				t.Errorf("%d failed, want %d", report.Failed(), len(c.want))
			}
			if table := report.Markdown(); !strings.Contains(table, "| model | storm |") && name == "all is well" {
				t.Errorf("no storm in\n%s", table)
			}
			c.gpu.mu.Lock()
			defer c.gpu.mu.Unlock()
			if c.gpu.cancelled != 8 && name == "all is well" {
				t.Errorf("%d answers were cancelled, want 8", c.gpu.cancelled)
			}
		})
	}
}

// TestLight: a light load has prompts of a quarter of the tokens and at most 16 streams, and all other steps.
func TestLight(t *testing.T) {
	steps := map[string]Step{}
	for _, light := range []bool{false, true} {
		one := &fake{}
		r := newRun(t, 5*time.Minute, nil, func(string, bool) *fake { return one })
		r.Light, r.llamaStart = light, nil
		r.model("/m/model.gguf")
		if n := r.report.Failed(); n > 0 {
			t.Fatalf("%d steps failed\n%s", n, r.report.Markdown())
		}
		for _, s := range r.report.Steps {
			switch {
			case !light:
				steps[s.Name] = s
			case s.Name == "prefix" && s.Values["prompt"] != 768/4:
				t.Errorf("%+v", s)
			}
			if light {
				delete(steps, s.Name)
			}
		}
	}
	if _, has := steps["64 streams"]; !has || len(steps) != 1 {
		t.Errorf("a light load leaves out %v", steps)
	}
}

// TestLightRows: a model that is not tiny computes as many rows at once as kernels for vectors take.
func TestLightRows(t *testing.T) {
	file := filepath.Join(t.TempDir(), "model.gguf")
	for size, want := range map[int64]string{1 << 20: "1", 100 << 20: "8"} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(file, size); err != nil {
			t.Fatal(err)
		}
		r := &run{Config: &Config{Light: true}}
		if args := r.umaArgs(file, true); !slices.Contains(args, "--ubatch-size") || args[slices.Index(args,
			"--ubatch-size")+1] != want {
			t.Errorf("%d bytes: %q, want %s rows", size, args, want)
		}
	}
}

// TestLimit: what does not end within the limit ends with it, and the rest is not run and says so.
func TestLimit(t *testing.T) {
	stuck := make(chan struct{})
	defer close(stuck)
	report := examine(t, 2*time.Second, &fake{slow: stuck}, &fake{}, &fake{})
	var late, skipped int
	for _, s := range report.Steps {
		switch {
		case strings.Contains(s.Error, "not done within"):
			late++
		case strings.Contains(s.Error, "not run"):
			skipped++
		}
	}
	if late != 1 || skipped != 2 { // the two other servers are not started
		t.Errorf("%d late and %d not run\n%s", late, skipped, report.Markdown())
	}
}

// TestStop: a server that does not end as it should is recorded, also once the time is over.
func TestStop(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r := &run{Config: &Config{Log: t.Output()}, ctx: ctx, report: &Report{}, saved: func(*Report) {}}
	start := func(...string) (*server, error) {
		return &server{stop: func() error { return errors.New("killed") }}, nil
	}
	r.serve("model.gguf", "uma-serve", start, nil, func(*server, string) { cancel() })
	if n := len(r.report.Steps); n != 2 || r.report.Steps[1].Name != "stop" || r.report.Steps[1].Error != "killed" {
		t.Errorf("%+v", r.report.Steps)
	}
}

// TestBuild: the last line of a build is kept, a failure tells what was printed, and a limit ends its children too.
func TestBuild(t *testing.T) {
	v := map[string]any{}
	if err := build(t.Context(), []string{"printf", `one\ntwo\n`}, v); err != nil || v["made"] != "two" {
		t.Errorf("%v %v", v, err)
	}
	err := build(t.Context(), []string{"ls", "/nonexistent-folder"}, v)
	if err == nil || !strings.Contains(err.Error(), "nonexistent-folder") ||
		!strings.Contains(err.Error(), "exit status") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	// A child that lived on would hold the pipe of the output, and build would wait for it.
	if err := build(ctx, []string{"sh", "-c", "sleep 86400 & sleep 86400"}, v); err == nil {
		t.Error("a build that does not end has no error")
	}
}
