package measure

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uma-serve/uma-serve/bench/loadgen"
	"github.com/uma-serve/uma-serve/bench/workload"
)

func TestMain(m *testing.M) {
	if os.Getenv("UMA_TEST_LOADGEN_CLIENT") == "1" {
		if err := loadgen.Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestRun measures a server that answers at once: every repeat sends its plan after a warm-up, which is not counted,
// with prompts that no other repeat had.
func TestRun(t *testing.T) {
	var asked atomic.Int64
	seen := map[string]int{}
	turn := make(chan struct{}, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct{ Messages []workload.Message }
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil || r.URL.Path != "/v1/chat/completions" {
			http.Error(w, "no", 400)
			return
		}
		asked.Add(1)
		turn <- struct{}{}
		seen[q.Messages[0].Content]++
		<-turn
		words := len(strings.Fields(q.Messages[0].Content))
		fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"content\":\"7\"}}]}\n\ndata: "+
			"{\"choices\":[{\"delta\":{\"content\":\"!\"},\"finish_reason\":\"stop\"}]}\n\n"+
			"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":2}}\n\n", 2*words)
	}))
	defer s.Close()
	t.Setenv("UMA_TEST_LOADGEN_CLIENT", "1")
	o := workload.DefaultOptions()
	o.Requests, o.Rate = 12, 200
	ends := 0
	cfg := Config{Name: "real-synthetic", Workload: "synthetic", Options: o, Repeats: 2, WarmUp: 2,
		Job: loadgen.Job{Target: "openai", Address: s.URL}, ClientBin: os.Args[0],
		Sweep: []int{1, 3}, Environment: Environment(map[string]string{"requests": "12"}),
		Progress: func(_ string, done, total int) {
			if done == total {
				ends++
			}
		}}
	reports, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(reports) != 2 || asked.Load() != 2*2*(12+2) || ends != 4 {
		t.Fatalf("%d reports, %d requests, %d progress ends", len(reports), asked.Load(), ends)
	}
	for text, n := range seen {
		if n > 1 && len(strings.Fields(text)) < 100 && strings.Contains(text, "(") {
			t.Errorf("asked %d times: %s", n, text)
		}
	}
	for i, r := range reports {
		if r.NRequests != 24 || r.NErrors != 0 || r.NRepeats != 2 || r.Streams != cfg.Sweep[i] ||
			r.Provenance != "measured" || !(r.Value("ttft_p50_ms") > 0) || r.Value("output_tokens_avg") != 2 {
			t.Errorf("report %+v", r)
		}
	}
	if reports[0].ConfigName != "real-synthetic-c1" || reports[1].ConfigName != "real-synthetic-c3" {
		t.Errorf("called %s and %s", reports[0].ConfigName, reports[1].ConfigName)
	}
}

func TestRunErrors(t *testing.T) {
	side, err := ParseSide("stock")
	if err != nil {
		t.Fatal(err)
	}
	for want, cfg := range map[string]Config{
		"one configuration": {Job: loadgen.Job{Target: "uma", Address: "x"}, Sides: []Side{side}},
		"uma-serve's": {Job: loadgen.Job{Target: "openai", Address: "x"},
			Sides: []Side{{Name: "budget=5", ThinkBudget: 5}}},
		"--url":              {Job: loadgen.Job{Target: "ollama"}},
		"ask uma-serve on x": {Job: loadgen.Job{Target: "uma", Address: "x"}, Repeats: 1},
	} {
		if _, err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
}

// TestWatchPrompts: 100 tokens a second from the first step that is seen to advance them, whatever was before the mark
// and while the server was busy.
func TestWatchPrompts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, ticks := time.Now(), 0
		counted := func() float64 {
			at := time.Since(start)
			switch {
			case at < 10*time.Second:
				t.Error("asked before the mark")
			case at.Truncate(time.Second) == 15*time.Second:
				return math.NaN() // no answer
			}
			return 1000 + 200*math.Floor(max(0, at.Seconds()-12)/2)
		}
		stop := watchPrompts(counted, 10*time.Second, func(time.Duration) { ticks++ })
		time.Sleep(20*time.Second + time.Millisecond)
		if rate := stop(); math.Abs(rate-100) > 1e-6 || ticks != 20 {
			t.Errorf("%v tokens/s, %d ticks", rate, ticks)
		}
		stop = watchPrompts(func() float64 { return 7 }, time.Second, func(time.Duration) {})
		time.Sleep(9 * time.Second)
		if rate := stop(); !math.IsNaN(rate) {
			t.Errorf("nothing was computed, at %v tokens/s", rate)
		}
	})
	if rate := watchPrompts(nil, 0, nil)(); !math.IsNaN(rate) {
		t.Errorf("a workload without a mark has %v", rate)
	}
}

func TestParseSide(t *testing.T) {
	for name, want := range map[string]string{
		"default": "", "stock": "--policy stock off", "static-budget": "--policy stock off 2048",
		"static-budget=64": "--policy stock off 64", "uma": "--policy uma",
		"meridian@50": "--policy meridian --itl-target-ms 50", "budget=7": "off 7",
		"eat=0.01":                                 "--meridian eat_ema_variance_threshold=0.01 eat",
		"rpdi=2:rpdi_window=64":                    "--meridian rpdi_threshold=2 --meridian rpdi_window=64 rpdi",
		"default:early-exit=both:think-budget=9":   "both 9",
		"meridian@50:early-exit=eat:ema_alpha=0.5": "--policy meridian --itl-target-ms 50 --meridian ema_alpha=0.5 eat",
		"default:--single":                         "--single",
		"stock:ema_alpha=0.5:--speculate=off:--fabric=redis://host:1": "--policy stock --meridian ema_alpha=0.5 " +
			"--speculate=off --fabric=redis://host:1 off",
	} {
		s, err := ParseSide(name)
		got := strings.Join(append(s.Args, s.EarlyExit), " ")
		if s.ThinkBudget > 0 {
			got += fmt.Sprint(" ", s.ThinkBudget)
		}
		if got = strings.TrimSpace(got); err != nil || got != want || s.Name != name {
			t.Errorf("%s: %v, %q, want %q", name, err, got, want)
		}
	}
	for _, name := range []string{"", "nope", "eat", "eat=x", "eat=NaN", "budget", "budget=0", "default=1",
		"meridian@0", "meridian@soon", "stock=1", "eat=1:", "uma:x", "uma:early-exit=soon", "uma:think-budget=0",
		"uma:--", "uma:--so cket=x", "uma:--single:", "eat=1::ema_alpha=1"} {
		if s, err := ParseSide(name); err == nil {
			t.Errorf("%q was taken: %+v", name, s)
		}
	}
}
