package workload

import (
	"bytes"
	"math"
	"reflect"
	"strings"
	"testing"
)

func TestReadCSV(t *testing.T) {
	rows, err := ReadCSV(strings.NewReader(
		"\ufeffrequest_id,arrival_us,input_tokens,output_tokens,prefix_group,prefix_tokens,max_output_len," +
			"deadline_us,slo_class\n" +
			"request_0,5,100,10,g,64,,,batch\nx,3,1,0,,9,0,77,\n"))
	if err != nil {
		t.Fatal(err)
	}
	a, b := rows[0], rows[1]
	if a.ID() != "request_0" || a.Budget != 10 || a.PrefixLen != 64 || a.Class != "batch" || b.ID() != "x" ||
		b.Budget != 0 || b.Deadline != 77 || b.PrefixLen != 0 {
		t.Errorf("%+v\n%+v", a, b)
	}
	const head = "request_id,arrival_us,input_tokens,output_tokens,prefix_group,prefix_tokens\n"
	for _, c := range []struct{ text, want string }{
		{"", "is empty"},
		{"request_id,arrival_us\n", `column "input_tokens" is missing`},
		{"request_id,bogus\n", `column "bogus" is unknown`},
		{"request_id,request_id\n", "twice"},
		{head + "a,x,1,1,,\n", "line 2: arrival_us"},
		{head + "a,1,,1,,\n", "input_tokens"},
		{head + "a,-1,1,1,,\n", "arrival"},
		{head + "a,1,99999999999,1,,\n", "input_tokens"},
		{head + "a,1,5,1,g,6\n", "prefix_tokens"},
		{head + ",1,5,1,,\n", "request_id is empty"},
		{head + "a,1,5,1,,\na,1,5,1,,\n", "line 3: request_id \"a\" appears in an earlier line"},
	} {
		if _, err := ReadCSV(strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q in it", c.text, err, c.want)
		}
	}
}

func TestTraceV2RoundTrip(t *testing.T) {
	rows := []Request{
		{Index: 0, Arrival: 5, Input: 114, Output: 20, Budget: 20, Prefix: "g", PrefixLen: 64, Client: "c", Tenant: "t",
			Class: "batch", Session: "s", Round: 2, ReasonRatio: 0.25, Think: 5, Deadline: 900, Model: "m",
			Streaming: true},
		{Index: 1, Name: "request_7", Arrival: 9, Input: 1, Output: 0},
	}
	var buf bytes.Buffer
	w, err := NewTraceWriter(&buf)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		if err := w.Write(&rows[i], Served{Status: "ok"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	again, err := ReadTraceV2(&buf)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		if !reflect.DeepEqual(again[i], rows[i]) {
			t.Errorf("row %d:\n got %+v\nwant %+v", i, again[i], rows[i])
		}
	}
	for _, bad := range []string{"trace_version: 1\n", "trace_version: 2\ntime_unit: ms\n", "bogus: 1\n",
		"trace_version: 2\ntime_unit: microseconds\nmode: x\n"} {
		if _, err := ParseTraceHeader([]byte(bad)); err == nil {
			t.Errorf("header %q was accepted", bad)
		}
	}
}

// TestArrivalProcesses: each process has the mean and the variation it was asked for.
func TestArrivalProcesses(t *testing.T) {
	cv := func(x float64) *float64 { return &x }
	for _, c := range []struct {
		a    Arrival
		want float64
	}{{Arrival{Process: "poisson"}, 1}, {Arrival{Process: "constant"}, 0}, {Arrival{Process: "gamma", CV: cv(2)}, 2},
		{Arrival{Process: "gamma", CV: cv(0.5)}, 0.5},
		{Arrival{Process: "weibull", CV: cv(1.5)}, 1.5}, {Arrival{Process: "weibull"}, 1},
		{Arrival{Process: "gamma", CV: cv(20)}, 1}} {
		gap, rng := c.a.gaps(5e-5), newRand(1)
		const n = 200_000
		var sum, squares float64
		for range n {
			x := float64(gap(rng))
			sum += x
			squares += x * x
		}
		mean := sum / n
		got := math.Sqrt(max(0, squares/n-mean*mean)) / mean
		if math.Abs(mean-20000) > 400 || math.Abs(got-c.want) > 0.05*max(c.want, 0.1) {
			t.Errorf("%+v: mean gap %.0f us, variation %.3f", c.a, mean, got)
		}
	}
}

// TestLengths: each distribution has the mean it promises.
func TestLengths(t *testing.T) {
	p := func(kv ...any) map[string]float64 {
		m := map[string]float64{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i].(string)] = kv[i+1].(float64)
		}
		return m
	}
	for _, c := range []struct {
		l    Lengths
		want float64
	}{
		{Lengths{"constant", p("value", 7.0)}, 7},
		{Lengths{"gaussian", p("mean", 200.0, "std_dev", 20.0, "min", 1.0, "max", 400.0)}, 200},
		{Lengths{"gaussian", p("mean", 200.0, "std_dev", 20.0, "min", 9.0, "max", 9.0)}, 9},
		{Lengths{"exponential", p("mean", 300.0)}, 300},
		{Lengths{"pareto_lognormal", p("alpha", 3.0, "xm", 100.0, "mu", 0.0, "sigma", 0.0, "mix_weight", 1.0)}, 150},
		{Lengths{"pareto_lognormal", p("alpha", 3.0, "xm", 100.0, "mu", 5.0, "sigma", 0.5, "mix_weight", 0.0)},
			math.Exp(5.125)},
		{Lengths{"empirical", p("10", 1.0, "20", 3.0, "5", 0.0)}, 17.5},
	} {
		if err := c.l.check(); err != nil {
			t.Fatal(err)
		}
		draw, rng := c.l.sampler(), newRand(2)
		sum := 0
		for range 100_000 {
			sum += draw(rng)
		}
		if mean := float64(sum) / 100_000; math.Abs(mean-c.want) > 0.02*c.want {
			t.Errorf("%+v: mean %.2f, want %.2f", c.l, mean, c.want)
		}
	}
	for _, bad := range []Lengths{{}, {"gaussian", p("mean", 1.0)}, {"constant", p("value", 1.0, "x", 1.0)},
		{"empirical", nil}, {"empirical", p("a", 1.0)},
		{"gaussian", p("mean", 1.0, "std_dev", 1.0, "min", 5.0, "max", 2.0)}, {"exponential", p("mean", math.NaN())}} {
		if bad.check() == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}

const cohorts = `
version: "2"
aggregate_rate: 50
horizon: 20000000
cohorts:
  - id: day
    population: 3
    rate_fraction: 0.6
    arrival: {process: poisson}
    input_distribution: {type: constant, params: {value: 10}}
    output_distribution: {type: constant, params: {value: 5}}
    drain: {start_time_us: 5000000, ramp_duration_us: 5000000}
  - id: burst
    population: 2
    rate_fraction: 0.4
    arrival: {process: constant}
    input_distribution: {type: constant, params: {value: 10}}
    output_distribution: {type: constant, params: {value: 5}}
    spike: {start_time_us: 8000000, duration_us: 1000000}
`

// TestCohorts: members share the fraction, patterns switch them on and off, rows come in order.
func TestCohorts(t *testing.T) {
	s, err := ParseSpec([]byte(cohorts))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := Collect(s.New(), 0)
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	last := int64(0)
	for i, r := range rows {
		if r.Arrival < last || r.Index != int64(i) {
			t.Fatalf("row %d arrives at %d after %d, index %d", i, r.Arrival, last, r.Index)
		}
		last = r.Arrival
		count[r.Client]++
		if strings.HasPrefix(r.Client, "burst") && (r.Arrival < 8e6 || r.Arrival >= 9e6) || r.Arrival >= 10e6 {
			t.Fatalf("%s sent at %d us, when it is off", r.Client, r.Arrival)
		}
	}
	// day: 10/s each for 5 s, then about half of it for 5 s more; burst: 10/s each for 1 s.
	if len(count) != 5 || count["day-0"] < 50 || count["day-0"] > 110 || count["burst-1"] < 9 || count["burst-1"] > 11 {
		t.Errorf("%v", count)
	}
}

func TestOpenLoopSessions(t *testing.T) {
	s, err := ParseSpec([]byte(strings.Replace(strings.Replace(cohorts,
		"    drain: {start_time_us: 5000000, ramp_duration_us: 5000000}\n",
		"    closed_loop: false\n    reasoning: {multi_turn: {max_rounds: 3, think_time_us: 1000, context_growth: "+
			"accumulate}}\n", 1), "horizon: 20000000", "num_requests: 90", 1)))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := Collect(s.New(), 0)
	if err != nil || len(rows) != 90 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	last, later := int64(0), 0
	for _, r := range rows {
		if r.Arrival < last {
			t.Fatalf("%s out of order", r.ID())
		}
		last = r.Arrival
		if r.Session != "" && r.Input != 10+15*r.Round {
			t.Errorf("round %d has %d prompt tokens", r.Round, r.Input)
		}
		if r.Round > 0 {
			later++
		}
	}
	if later < 40 {
		t.Errorf("%d later rounds", later)
	}
}

func TestSpecErrors(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{"aggregate_rate: 50", "aggregate_rate: -1", "aggregate_rate"},
		{"aggregate_rate: 50", "aggregat_rate: 50", "aggregat_rate"},
		{"aggregate_rate: 50", "servegen_data: {}", "does not model"},
		{"horizon: 20000000", "seed: 1", "never ends"},
		{"process: constant", "process: lunar", "lunar"},
		{"population: 2", "population: 0", "population"},
		{"rate_fraction: 0.4", "rate_fraction: 0", "either rate_fraction or concurrency"},
		{"type: constant", "type: cauchy", "cauchy"},
		{"duration_us: 1000000", "duration_us: 0", "spike"},
		{`version: "2"`, `version: "9"`, "version"},
		{"horizon: 20000000", "num_requests: 5\nhorizon: 0", ""},
		{"horizon: 20000000", "num_requests: 5\nhorizon: 900000000000000000", ""},
	} {
		if _, err := ParseSpec([]byte(strings.Replace(cohorts, c.from, c.to, 1))); (err == nil) != (c.want == "") ||
			err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q in it", c.to, err, c.want)
		}
	}
}

// TestFarWindow: a window that would take for ever to reach is refused.
func TestFarWindow(t *testing.T) {
	text := strings.Replace(strings.Replace(cohorts, "horizon: 20000000", "num_requests: 5", 1),
		"start_time_us: 8000000", "start_time_us: 800000000000000000", 1)
	if _, err := ParseSpec([]byte(text)); err == nil || !strings.Contains(err.Error(), "last window") {
		t.Errorf("err = %v", err)
	}
}

func TestMix(t *testing.T) {
	m := DefaultMix()
	m.Requests = 5000
	src, err := m.New()
	if err != nil {
		t.Fatal(err)
	}
	rows, err := Collect(src, 0)
	if err != nil {
		t.Fatal(err)
	}
	thinking := 0
	for _, r := range rows {
		if r.Think > 0 {
			thinking++
			if r.Think < 600 || r.Think > 6000 || r.Output <= r.Think {
				t.Fatalf("%+v", r)
			}
		} else if r.Output < 40 || r.Output > 240 {
			t.Fatalf("%+v", r)
		}
	}
	if share := float64(thinking) / 5000; math.Abs(share-0.4) > 0.03 {
		t.Errorf("%.3f of the requests think, want 0.4", share)
	}
	if rate := 5000 / (float64(rows[4999].Arrival) / 1e6); math.Abs(rate-4) > 0.3 {
		t.Errorf("%.2f requests a second, want 4", rate)
	}
}
