package explore

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/sim"
	"github.com/uma-serve/uma-serve/sim/blis"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// A server that takes one request at a time, 10 ms each: it saturates at 100 requests a second.
func single(rate float64, n int64, process string) func() (*sim.Report, error) {
	return func() (*sim.Report, error) {
		cfg := blis.DefaultConfig()
		cfg.Beta, cfg.MaxRunning, cfg.KVBlocks, cfg.NoOverlap = []float64{10000, 0, 0}, 1, 100, true
		d := workload.DefaultDistribution()
		d.Rate, d.Requests, d.Process = rate, n, process
		d.Input, d.Output = workload.Gaussian{Mean: 10, Min: 10, Max: 10}, workload.Gaussian{Mean: 1, Min: 1, Max: 1}
		s, err := d.Spec()
		if err != nil {
			return nil, err
		}
		return blis.Run(cfg, s.New())
	}
}

func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		rate    float64
		process string
		want    []Verdict
	}{
		{20, "constant", []Verdict{Stable}}, {95, "constant", []Verdict{Stable}}, {60, "poisson", []Verdict{Stable}},
		{150, "constant", []Verdict{Overloaded}}, {300, "poisson", []Verdict{Overloaded}},
		{104, "constant", []Verdict{Backlogged, Overloaded}},
	} {
		rep, err := single(c.rate, 2000, c.process)()
		if err != nil {
			t.Fatal(err)
		}
		if j := Judge(rep); !slices.Contains(c.want, j.Verdict) {
			t.Errorf("%v %s requests a second: %+v, want %v", c.rate, c.process, j, c.want)
		}
	}
}

// TestSaturation: the search ends within its 2 % of the true capacity.
func TestSaturation(t *testing.T) {
	rate, err := Saturation(20, 400,
		func(rate float64) (*sim.Report, error) { return single(rate, 2000, "constant")() })
	if err != nil || math.Abs(rate-100) > 4 {
		t.Errorf("saturation at %.2f requests a second (%v), want 100", rate, err)
	}
}

// TestParallel: results are in the order of the questions and all cores work.
func TestParallel(t *testing.T) {
	var jobs []Job
	for i := range 20 {
		jobs = append(jobs, Job{fmt.Sprint(i), single(float64(i+1), 20, "constant")})
	}
	ticks := 0
	rows, err := Sweep(jobs, func() { ticks++ })
	if err != nil || ticks != 20 {
		t.Fatalf("%v, %d ticks", err, ticks)
	}
	for i, r := range rows {
		if r.Label != fmt.Sprint(i) || r.Completed != 20 {
			t.Errorf("row %d is %+v", i, r)
		}
	}
	n := runtime.GOMAXPROCS(0)
	meet := make(chan struct{})
	jobs = nil
	for i := range n {
		jobs = append(jobs, Job{fmt.Sprint(i), func() (*sim.Report, error) { // they only all end if all run at once
			if i == n-1 {
				for range n - 1 {
					meet <- struct{}{}
				}
			} else {
				<-meet
			}
			return single(1, 1, "constant")()
		}})
	}
	if _, err := Sweep(jobs, func() {}); err != nil {
		t.Fatal(err)
	}
	bad := errors.New("broken")
	if _, err := Sweep([]Job{{"x", func() (*sim.Report, error) { return nil, bad }}}, func() {}); !errors.Is(err, bad) {
		t.Errorf("err = %v", err)
	}
}

func TestValues(t *testing.T) {
	for in, want := range map[string]string{"1,2, 5": "[1 2 5]", "1:3:1": "[1 2 3]", "0.1:0.3:0.1": "[0.1 0.2 0.3]",
		"1:8:x2": "[1 2 4 8]", "5:5:1": "[5]"} {
		got, err := Values(in)
		if err != nil || fmt.Sprint(got) != want {
			t.Errorf("%q: %v, %v, want %s", in, got, err, want)
		}
	}
	for _, bad := range []string{"", "1,,2", "1:2", "a:2:1", "1:2:0", "2:1:1", "1:2:x1", "0:9:x2", "1:1e9:1",
		"1:NaN:1"} {
		if got, err := Values(bad); err == nil {
			t.Errorf("%q gave %v", bad, got)
		}
	}
}

func compareAll(t *testing.T) *Comparison {
	t.Helper()
	cfg := blis.DefaultConfig()
	cfg.Beta, cfg.KVBlocks = []float64{3000, 100, 200}, 500
	c, err := Compare("a <b> title", cfg, []string{"uma", "stock", "vllm:sjf", "vllm:priority-fcfs/inverted-slo"},
		func(cfg blis.Config) (*sim.Report, error) {
			src, err := workload.Mix{Rate: 2, Requests: 40, Seed: 1, ReasoningRatio: 0.2}.New()
			if err != nil {
				return nil, err
			}
			return blis.Run(cfg, src)
		}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestPage: the page is whole, escaped, and needs nothing from anywhere.
func TestPage(t *testing.T) {
	c := compareAll(t)
	var page, again bytes.Buffer
	if err := c.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	if err := compareAll(t).WriteHTML(&again); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(page.Bytes(), again.Bytes()) {
		t.Error("two pages differ")
	}
	s := page.String()
	if strings.Count(s, "<svg") != 4 || strings.Count(s, "</svg>") != 4 || strings.Contains(s, "a <b>") {
		t.Errorf("%d plots", strings.Count(s, "<svg"))
	}
	for _, r := range c.Rows {
		if strings.Count(s, r.Label) < 2 {
			t.Errorf("policy %s is missing from table or legend", r.Label)
		}
	}
	for _, bad := range []string{"<script", "src=", "<link", "@import", "url("} {
		if strings.Contains(s, bad) {
			t.Errorf("the page has %q: it must need nothing else", bad)
		}
	}
	for _, part := range strings.Split(s, "<svg")[1:] {
		d := xml.NewDecoder(strings.NewReader("<svg" + part[:strings.Index(part, "</svg>")+6]))
		for {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("a plot is not well-formed: %v", err)
			}
		}
	}
}

func TestTable(t *testing.T) {
	var b strings.Builder
	if err := WriteTable(&b, "policy", compareAll(t).Rows); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 5 || !strings.HasPrefix(lines[0], "policy") || !strings.Contains(lines[1], "uma") {
		t.Errorf("%s", b.String())
	}
}

// TestPlan: the smallest context that meets the target is proposed first; nothing that misses it is said to meet it.
func TestPlan(t *testing.T) {
	base := blis.DefaultConfig()
	base.Beta = []float64{5000, 200, 300}
	grid := Grid{Contexts: []int{2048, 8192, 32768}, Slots: []int{1, 8}, Policies: []string{"uma", "vllm:fcfs"}}
	run := func(cfg blis.Config) (*sim.Report, error) {
		d := workload.DefaultDistribution()
		d.Rate, d.Requests, d.Process = 1, 120, "poisson"
		if err := d.Preset("chatbot"); err != nil {
			return nil, err
		}
		s, err := d.Spec()
		if err != nil {
			return nil, err
		}
		return blis.Run(cfg, s.New())
	}
	target := Target{ITLP95Ms: 80}
	out, err := Plan(base, grid, target, run, func() {})
	if err != nil || len(out) != 12 {
		t.Fatalf("%d candidates, %v", len(out), err)
	}
	if !out[0].Meets || out[0].Slots != 8 {
		t.Errorf("best is %+v", out[0])
	}
	missed := false
	for i, c := range out {
		if c.Meets && (missed || c.ITLP95 > 80 || c.Verdict != Stable || i > 0 && c.Context < out[i-1].Context) {
			t.Errorf("candidate %d is out of place: %+v", i, c)
		}
		missed = missed || !c.Meets
	}
	if !missed {
		t.Error("one slot should not serve a request a second that takes two")
	}
	grid.Policies = []string{"nope"}
	if _, err := Plan(base, grid, target, run, func() {}); err == nil ||
		!strings.Contains(err.Error(), "valid are uma") {
		t.Errorf("err = %v", err)
	}
}
