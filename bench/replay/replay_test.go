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
			o.Rate, o.Scale = 2, .1
		}
		r, err := Run(Config{Name: policy, Side: policy, Workload: "synthetic", Policy: policy,
			Decoder: Decoders[decoder], Target: 50 * time.Millisecond,
			ThinkBudget: int(2048 * o.Scale), Options: o, Repeats: repeats})
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
	q := s.requests[request]
	if q.Think <= s.budget && (tokens != q.Think || ended != meridian.EndedNatural) || q.Think > s.budget &&
		(tokens > s.budget || ended != meridian.EndedHardCap) {
		s.t.Errorf("%s was to think %d tokens under %d and thought %d, ended by %v", q.ID, q.Think, s.budget, tokens,
			ended)
	}
}

func (s *spy) End(request, now int64, answered bool) {
	s.watcher.End(request, now, answered)
	q, r := s.requests[request], s.records[request]
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

func TestChatAlone(t *testing.T) {
	o := workload.DefaultOptions()
	o.Requests = 20
	r, err := Run(Config{Name: "x", Workload: "chat", Policy: "stock", Decoder: Decoders["reference"], Options: o,
		Repeats: 1})
	if err != nil {
		t.Fatal(err)
	}
	b, err := report.JSON(r)
	if err != nil || !strings.Contains(string(b), `"ttot_p50_ms": null`) || r.NReasoning != 0 {
		t.Errorf("%v: chats have no TTOT: %s", err, b)
	}
	o.Problems = []workload.Problem{{Task: "add", Question: "1+1?", Answer: "2"}}
	for _, name := range []string{"storm", "agent-chain", "heldout", "nope"} {
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
