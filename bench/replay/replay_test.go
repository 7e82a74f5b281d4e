package replay

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/bench/report"
	"github.com/uma-serve/uma-serve/bench/workload"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sim/synthetic"
)

var rewrite = flag.Bool("rewrite", false, "write testdata anew")

// document replays every policy.
func document(t *testing.T, seed uint64, decoder string, repeats int, policies ...string) *report.Document {
	t.Helper()
	var rs []*report.Report
	for _, policy := range policies {
		o := workload.DefaultOptions()
		o.Seed, o.Requests = seed, 60
		if decoder == "laptop" {
			o.Rate, o.Scale, o.Salt = 8, .1, "laptop"
		}
		r, err := Run(Config{Name: policy, Side: policy, Workload: "synthetic", Policy: policy,
			Decoder: Decoders[decoder], Target: 50 * time.Millisecond,
			ThinkBudget: int(2048 * o.Scale), Meridian: meridian.DefaultConfig(), Options: o, Repeats: repeats})
		if err != nil {
			t.Fatal(err)
		}
		if r.NRequests != 60*repeats || r.ForcedByReason["hard_cap"] == 0 || !(r.Value("ttft_p50_ms") > 0) ||
			r.CI95["ttot_p95_ms"].N != repeats {
			t.Errorf("%s: %+v", policy, r)
		}
		rs = append(rs, r)
	}
	d, err := report.New(rs, policies[len(policies)-1])
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestDeterminism: a seed is a report, to the byte; another seed is another one.
func TestDeterminism(t *testing.T) {
	make := func(seed uint64) []byte {
		d := document(t, seed, "reference", 2, sched.Policies()...)
		b, err := report.JSON(d)
		if err != nil {
			t.Fatal(err)
		}
		var page bytes.Buffer
		if err := d.HTML(&page); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(page.String(), "SYNTHETIC") {
			t.Error("the page does not say that it is synthetic")
		}
		return append(append(b, d.Markdown()...), page.Bytes()...)
	}
	a, b, c := make(7), make(7), make(8)
	if !bytes.Equal(a, b) {
		t.Error("the same seed gave two reports")
	}
	if bytes.Equal(a, c) {
		t.Error("two seeds gave one report")
	}
}

// TestGolden: the reference workload on a machine where requests wait, to the digits of the table. A change to a policy
// shows here; -rewrite takes it over. (The table, not the JSON: other processors round the last bits of a time
// elsewhere.)
func TestGolden(t *testing.T) {
	got := document(t, workload.DefaultSeed, "laptop", 1, "stock", "uma", "meridian").Markdown()
	path := filepath.Join("testdata", "reference.md")
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the table differs from %s (go test ./bench/replay -rewrite takes it over):\n%s", path, got)
	}
}

// spy checks what a client sees against what was asked for.
type spy struct {
	*watcher
	t      *testing.T
	budget int
	seen   map[int64]bool
}

func (s *spy) Thought(request int64, tokens int, ended meridian.Ended) {
	s.watcher.Thought(request, tokens, ended)
	q := s.plan[request]
	if q.Think <= s.budget && (tokens != q.Think || ended != meridian.EndedNatural) || q.Think > s.budget &&
		(tokens > s.budget || ended != meridian.EndedHardCap) {
		s.t.Errorf("%s was to think %d tokens under %d and thought %d, ended by %v", q.ID, q.Think, s.budget, tokens,
			ended)
	}
}

func (s *spy) End(request, now int64, answered bool) {
	s.watcher.End(request, now, answered)
	q, r := s.plan[request], s.records[request]
	if s.seen[request] || !answered {
		s.t.Errorf("%s ended twice, or unanswered (%v)", q.ID, answered)
	}
	s.seen[request] = true
	// A forced close looks for the end of a line: the words that the model writes meanwhile belong to the thought.
	if len(r.Output) != q.Output || len(r.Think) != r.ThinkTokens || (q.Think > 0) != (len(r.Think) > 0) ||
		r.Sent > r.First() || r.End < r.Output[len(r.Output)-1] {
		s.t.Errorf("%s, think %d output %d: saw %d (server: %d) and %d", q.ID, q.Think, q.Output, len(r.Think),
			r.ThinkTokens, len(r.Output))
	}
}

// TestDrawsAreObeyed: the requests are load's, and each gets the tokens that were drawn for it.
func TestDrawsAreObeyed(t *testing.T) {
	plan, err := workload.New("synthetic", workload.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	c := synthetic.DefaultConfig()
	w := &spy{newWatcher(plan), t, 3000, map[int64]bool{}}
	c.Requests, c.Observer, c.ThinkBudget = w, w, w.budget
	rep, err := synthetic.Run(c)
	if err != nil {
		t.Fatal(err)
	}
	if len(w.seen) != 240 || rep.Reasoning != 94 || rep.Completed != 240 ||
		!(rep.BusySeconds > 0 && rep.BusySeconds <= rep.VirtualSeconds) {
		t.Errorf("%d ended, %+v", len(w.seen), rep)
	}
}

// TestWhatShips: the replay covers the daemon's features. Thoughts end as converged, stalled and overthinking;
// background requests wait for the others; prompts share what others computed; a pool that is too small evicts prefixes
// first and no answer.
func TestWhatShips(t *testing.T) {
	for _, policy := range []string{"uma", "meridian"} {
		o := workload.DefaultOptions()
		o.BackgroundRatio = 0.25
		cfg := Config{Name: policy, Workload: "synthetic", Policy: policy, ThinkBudget: 4096, Cells: 12000,
			Decoder:  synthetic.Decoder{StepUs: 4300, PrefillUs: 400, ThinkUs: 300, OutputUs: 300},
			Meridian: meridian.DefaultConfig(), ThinkEvict: "offload", Options: o, Repeats: 1}
		cfg.Meridian.EarlyExit = meridian.ExitBoth
		r, err := Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, why := range []string{"converged", "stalled", "overthinking", "hard_cap"} {
			if r.ForcedByReason[why] == 0 {
				t.Errorf("%s: no thought ended as %s: %v", policy, why, r.ForcedByReason)
			}
		}
		ttft := map[string]float64{}
		for _, g := range r.Groups {
			ttft[g.Name] = float64(g.TTFTp50)
		}
		if front, back := ttft["chat"], ttft["chat in the background"]; !(back > 1.5*front) || len(ttft) != 4 {
			t.Errorf("%s: TTFT p50 of chats %v ms, in the background %v ms", policy, front, back)
		}
		if r.EvictedByTier["prefix"] == 0 || r.EvictedByTier["think_active"] == 0 ||
			r.Value("output_critical_eviction_events") != 0 {
			t.Errorf("%s: evicted %v", policy, r.EvictedByTier)
		}
		if cached := r.Value("prompt_cached_pct"); !(cached > 20) || r.NErrors != 0 || r.NRequests != 240 {
			t.Errorf("%s: %v %% of the prompts were cached; %d answered, %d errors", policy, cached, r.NRequests,
				r.NErrors)
		}
	}
}

// TestChains: requests that follow others arrive behind their end, with the pause of the workload, and find what their
// conversation has computed.
func TestChains(t *testing.T) {
	for name, least := range map[string]float64{"agent-chain": 75, "shared-prefix": 60} {
		o := workload.DefaultOptions()
		r, err := Run(Config{Name: name, Workload: name, Policy: "meridian", Decoder: Decoders["laptop"],
			Meridian: meridian.DefaultConfig(), Options: o, Repeats: 1})
		if err != nil {
			t.Fatal(err)
		}
		if cached := r.Value("prompt_cached_pct"); !(cached > least && cached < 100) {
			t.Errorf("%s: %v %% of the prompts were cached", name, cached)
		}
		plan, err := workload.New(name, o)
		if err != nil || r.NRequests != len(plan.Requests) {
			t.Errorf("%s: %d of %d requests were answered: %v", name, r.NRequests, len(plan.Requests), err)
		}
		c := synthetic.DefaultConfig()
		w := newWatcher(plan)
		c.Requests, c.Observer = w, w
		if _, err := synthetic.Run(c); err != nil {
			t.Fatal(err)
		}
		for i, q := range plan.Requests {
			if q.After >= 0 && w.records[i].Sent < w.records[q.After].End+int64(q.Pause) {
				t.Errorf("%s: %s was sent at %v, the request before it ended at %v", name, q.ID,
					time.Duration(w.records[i].Sent), time.Duration(w.records[q.After].End))
			}
		}
	}
}

func TestChatAlone(t *testing.T) {
	o := workload.DefaultOptions()
	o.Requests = 20
	r, err := Run(Config{Name: "x", Workload: "chat", Policy: "stock", Decoder: Decoders["reference"], Options: o,
		Meridian: meridian.DefaultConfig(),
		Repeats:  1})
	if err != nil {
		t.Fatal(err)
	}
	b, err := report.JSON(r)
	if err != nil || !strings.Contains(string(b), `"ttot_p50_ms": null`) || r.NReasoning != 0 {
		t.Errorf("%v: chats have no TTOT: %s", err, b)
	}
	o.Problems = []workload.Problem{{Task: "add", Question: "1+1?", Answer: "2"}}
	for _, name := range []string{"storm", "two-app", "ipc", "heldout", "schemas", "edit",
		"nope"} {
		if _, err := Run(Config{Workload: name, Options: o, Repeats: 1}); err == nil {
			t.Errorf("%s was replayed", name)
		}
	}
}

func TestParseDecoder(t *testing.T) {
	for text, want := range map[string]synthetic.Decoder{"laptop": Decoders["laptop"],
		"step=1,prefill=2,think=3,output=4.5": {StepUs: 1, PrefillUs: 2, ThinkUs: 3, OutputUs: 4.5},
		"step=7":                              {StepUs: 7}} {
		if d, err := ParseDecoder(text); err != nil || d != want {
			t.Errorf("%s: %v, %+v", text, err, d)
		}
	}
	for _, text := range []string{"", "gpu", "step", "step=x", "step=-1", "step=NaN", "walk=1"} {
		if d, err := ParseDecoder(text); err == nil {
			t.Errorf("%q was taken: %+v", text, d)
		}
	}
}
