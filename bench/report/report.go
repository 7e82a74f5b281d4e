package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
)

// Schema names the format; a reader refuses another.
const Schema = "uma-bench/report/1"

// Provenance is the source of numbers.
type Provenance string

const (
	Measured  Provenance = "measured"  // seen by a client of a running server
	Synthetic Provenance = "synthetic" // computed in virtual time
)

// Num is a number that may be missing: NaN and infinities are null in JSON.
type Num float64

// MarshalJSON writes null for a value that is not finite.
func (n Num) MarshalJSON() ([]byte, error) {
	if f := float64(n); math.IsNaN(f) || math.IsInf(f, 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// UnmarshalJSON reads null as NaN.
func (n *Num) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*n = Num(math.NaN())
		return nil
	}
	return json.Unmarshal(b, (*float64)(n))
}

func (n Num) known() bool { return !math.IsNaN(float64(n)) && !math.IsInf(float64(n), 0) }

// Metric is one number of a report.
type Metric struct {
	Key, Title string
	Higher     bool // more is better
	Compared   bool // part of an A/B report
	Digits     int
}

// Metrics are all of them, in the order of tables. Times are milliseconds.
var Metrics = []Metric{
	{"ttft_p50_ms", "TTFT p50 ms", false, true, 2},
	{"ttft_p95_ms", "TTFT p95 ms", false, true, 2},
	{"ttft_p99_ms", "TTFT p99 ms", false, false, 2},
	{"ttot_p50_ms", "TTOT p50 ms", false, true, 2},
	{"ttot_p95_ms", "TTOT p95 ms", false, true, 2},
	{"ttot_p99_ms", "TTOT p99 ms", false, false, 2},
	{"output_itl_p50_ms", "output ITL p50 ms", false, true, 2},
	{"output_itl_p95_ms", "output ITL p95 ms", false, true, 2},
	{"output_itl_p99_ms", "output ITL p99 ms", false, true, 2},
	{"output_itl_max_ms", "output ITL max ms", false, false, 2},
	{"think_tokens_avg", "think tokens, mean", false, true, 1},
	{"think_tokens_p95", "think tokens p95", false, false, 0},
	{"output_tokens_avg", "output tokens, mean", false, false, 1},
	{"budget_forced_pct", "thoughts ended by force %", false, false, 1},
	{"output_critical_eviction_events", "OutputCritical evictions", false, true, 0},
	{"accuracy_pct", "accuracy %", true, true, 1},
	{"output_tokens_per_s", "generated tokens/s", true, false, 1},
	{"prompt_cached_pct", "prompt tokens cached %", true, false, 1},
	{"prefill_tokens_per_s", "prompt tokens/s in the storm", true, false, 0},
	{"client_cpu_pct_of_server", "client CPU, % of the server's", false, false, 2},
	{"client_cpu_pct_of_core", "client CPU, % of one core", false, false, 2},
}

// Environment describes the machine and settings of a run.
type Environment struct {
	CPU     string            `json:"cpu"`
	Cores   int               `json:"cores"` // that Go may use
	MemByte int64             `json:"memory_bytes"`
	OS      string            `json:"os"`
	Go      string            `json:"go"`
	Version string            `json:"version"` // of uma-bench
	Commit  string            `json:"commit"`
	Model   string            `json:"model"`
	Engine  string            `json:"engine"`
	Server  []string          `json:"server_flags"`
	Flags   map[string]string `json:"flags"` // of uma-bench run, the given ones
}

// Accuracy of graded answers.
type Accuracy struct {
	Asked int    `json:"asked"`
	Right int    `json:"right"`
	CI95  [2]Num `json:"ci95_pct"` // Wilson's interval
}

// Group is a part of the requests.
type Group struct {
	Name      string `json:"name"`
	Measured  bool   `json:"in_percentiles"`
	Requests  int    `json:"n_requests"`
	Errors    int    `json:"n_errors"`
	Skipped   string `json:"skipped,omitempty"` // reason why none was answered
	TTFTp50   Num    `json:"ttft_p50_ms"`
	TTFTp95   Num    `json:"ttft_p95_ms"`
	ITLp50    Num    `json:"output_itl_p50_ms"`
	ITLp95    Num    `json:"output_itl_p95_ms"`
	ITLp99    Num    `json:"output_itl_p99_ms"`
	ITLMax    Num    `json:"output_itl_max_ms"`
	Gaps      int    `json:"n_itl"`            // inter-token times
	Ends      Num    `json:"end_p50_ms"`       // sent → answered
	EachEnd   []Num  `json:"end_ms,omitempty"` // of each request, where they are few
	PromptSec Num    `json:"prompt_tokens_per_s"`
	Accuracy  Num    `json:"accuracy_pct"`
}

// Point of a curve with its scatter.
type Point struct {
	X    float64 `json:"x"`
	P50  Num     `json:"p50"`
	Low  Num     `json:"low"`  // 5th percentile
	High Num     `json:"high"` // 95th
	N    int     `json:"n"`
}

// Curve is a named series of points.
type Curve struct {
	Name   string  `json:"name"`
	Points []Point `json:"points"`
}

// Report is one configuration under one workload.
type Report struct {
	Schema     string     `json:"schema"`
	Provenance Provenance `json:"provenance"`
	Mode       string     `json:"mode"` // real or replay
	ConfigName string     `json:"config_name"`
	Side       string     `json:"side"`    // the server's configuration: stock, uma, …
	Streams    int        `json:"streams"` // at once, where the workload fixes it; 0 = arrivals
	Workload   string     `json:"workload"`
	Target     string     `json:"target"`
	Seed       uint64     `json:"seed"`

	DurationS   Num `json:"duration_s"` // of all repeats together; virtual seconds in a replay
	ArrivalRate Num `json:"arrival_rate_rps"`
	NRepeats    int `json:"n_repeats"`
	NRequests   int `json:"n_requests"` // that were answered, over all repeats
	NReasoning  int `json:"n_reasoning"`
	NChat       int `json:"n_chat"`
	NErrors     int `json:"n_errors"`
	NSkipped    int `json:"n_skipped"`

	Values map[string]Num `json:"-"` // by Metric.Key; written into the same object

	ForcedByReason map[string]int      `json:"budget_forced_by_reason"`
	EvictedByTier  map[string]int      `json:"evicted_blocks_by_tier"` // nil = not known
	Accuracy       *Accuracy           `json:"accuracy"`
	CI95           map[string]Interval `json:"ci95"`
	Repeats        []map[string]Num    `json:"repeats"` // the metrics of each
	Errors         map[string]int      `json:"errors"`  // number of errors by message
	Groups         []Group             `json:"groups"`

	ITLOverTime []Point `json:"itl_over_time"` // x: seconds since the start; high is the longest there
	MarkS       Num     `json:"mark_s"`        // start of the disturbance
	TTFTByX     []Curve `json:"ttft_by_x"`     // x: tokens of prefix or prompt
	ITLQuantile []Num   `json:"itl_quantiles"` // ms, at 0, 1, … 100 %
	TTFTQuant   []Num   `json:"ttft_quantiles"`

	Environment Environment `json:"environment"`
	Notes       []string    `json:"notes"`
}

// Value returns a metric, NaN when it is not known.
func (r *Report) Value(key string) float64 {
	if v, ok := r.Values[key]; ok {
		return float64(v)
	}
	return math.NaN()
}

// samples returns a metric's values over the repeats.
func (r *Report) samples(key string) (xs []float64) {
	for _, m := range r.Repeats {
		if v, ok := m[key]; ok && v.known() {
			xs = append(xs, float64(v))
		}
	}
	return xs
}

type plainReport Report

// MarshalJSON writes the metrics into the report's own object, keys sorted.
func (r *Report) MarshalJSON() ([]byte, error) {
	b, err := json.Marshal((*plainReport)(r))
	if err != nil {
		return nil, err
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, err
	}
	for _, k := range Metrics {
		v, ok := r.Values[k.Key]
		if !ok {
			v = Num(math.NaN())
		}
		if m[k.Key], err = v.MarshalJSON(); err != nil {
			return nil, err
		}
	}
	return json.Marshal(m)
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (r *Report) UnmarshalJSON(b []byte) error {
	if err := json.Unmarshal(b, (*plainReport)(r)); err != nil {
		return err
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	r.Values = map[string]Num{}
	for _, k := range Metrics {
		v := Num(math.NaN())
		if raw, ok := m[k.Key]; ok {
			if err := v.UnmarshalJSON(raw); err != nil {
				return fmt.Errorf("%s: %w", k.Key, err)
			}
		}
		r.Values[k.Key] = v
	}
	return r.check()
}

func (r *Report) check() error {
	switch {
	case r.Schema != Schema:
		return fmt.Errorf("schema is %q; this version reads %q", r.Schema, Schema)
	case r.Provenance != Measured && r.Provenance != Synthetic:
		return fmt.Errorf("provenance is %q; it must be %q or %q", r.Provenance, Measured, Synthetic)
	case (r.Provenance == Synthetic) != (r.Mode == "replay"):
		return fmt.Errorf("provenance is %q in mode %q: replays are synthetic, and only they", r.Provenance, r.Mode)
	case r.ConfigName == "":
		return fmt.Errorf("config_name is missing")
	}
	return nil
}

// finish fills the derived fields.
func (r *Report) finish() {
	r.Schema, r.NRepeats = Schema, len(r.Repeats)
	r.CI95 = map[string]Interval{}
	for _, m := range Metrics {
		if xs := r.samples(m.Key); len(xs) > 0 {
			r.CI95[m.Key] = interval(xs)
		}
	}
	if r.ForcedByReason == nil {
		r.ForcedByReason = map[string]int{}
	}
	if r.Errors == nil {
		r.Errors = map[string]int{}
	}
}

// Document is the reports of one run, or of several that are compared.
type Document struct {
	Schema     string             `json:"schema"`
	Provenance Provenance         `json:"provenance"`
	UnderTest  string             `json:"under_test"` // a report's config_name
	Reports    map[string]*Report `json:"reports"`
	// baseline → metric → (under test - baseline) / baseline
	Delta map[string]map[string]Num     `json:"delta_pct"`
	Welch map[string]map[string]*[2]Num `json:"welch_ci95_pct"`

	order []string
}

// DocumentSchema names the format of a Document.
const DocumentSchema = "uma-bench/ab-report/1"

// New makes a document of reports, in their order. The report under test is compared with the others of its workload
// that ran as many streams.
func New(reports []*Report, underTest string) (*Document, error) {
	d := &Document{Schema: DocumentSchema, UnderTest: underTest, Reports: map[string]*Report{},
		Delta: map[string]map[string]Num{}, Welch: map[string]map[string]*[2]Num{}}
	if len(reports) == 0 {
		return nil, fmt.Errorf("there are no reports")
	}
	d.Provenance = reports[0].Provenance
	for _, r := range reports {
		if err := r.check(); err != nil {
			return nil, fmt.Errorf("%s: %w", r.ConfigName, err)
		}
		if r.Provenance != d.Provenance {
			return nil, fmt.Errorf("%s is %s and %s is %s: measured and synthetic numbers cannot be compared",
				reports[0].ConfigName, d.Provenance, r.ConfigName, r.Provenance)
		}
		if d.Reports[r.ConfigName] != nil {
			return nil, fmt.Errorf("two reports are called %s", r.ConfigName)
		}
		d.Reports[r.ConfigName] = r
		d.order = append(d.order, r.ConfigName)
	}
	u := d.Reports[underTest]
	if u == nil {
		return nil, fmt.Errorf("no report is called %q; there are %s", underTest, strings.Join(d.order, ", "))
	}
	for _, name := range d.baselines() {
		b := d.Reports[name]
		d.Delta[name], d.Welch[name] = map[string]Num{}, map[string]*[2]Num{}
		for _, m := range Metrics {
			if !m.Compared {
				continue
			}
			d.Delta[name][m.Key] = Num(deltaPct(b.Value(m.Key), u.Value(m.Key)))
			if base := mean(b.samples(m.Key)); base > 0 {
				if low, high, ok := welch(b.samples(m.Key), u.samples(m.Key)); ok {
					d.Welch[name][m.Key] = &[2]Num{Num(100 * low / base), Num(100 * high / base)}
				}
			}
		}
	}
	return d, nil
}

// baselines returns the names of the reports with which the report under test is compared.
func (d *Document) baselines() (names []string) {
	u := d.Reports[d.UnderTest]
	for _, name := range d.names() {
		if b := d.Reports[name]; b != u && b.Streams == u.Streams {
			names = append(names, name)
		}
	}
	return names
}

// names returns the names of all reports in order.
func (d *Document) names() []string {
	if len(d.order) == 0 {
		for name := range d.Reports {
			d.order = append(d.order, name)
		}
		slices.Sort(d.order)
	}
	return d.order
}

// deltaPct returns the difference between v and baseline in percent, NaN without a baseline.
func deltaPct(baseline, v float64) float64 {
	if !(baseline > 0) || math.IsInf(baseline, 0) || math.IsNaN(v) || math.IsInf(v, 0) {
		return math.NaN()
	}
	return (v - baseline) / baseline * 100
}

// JSON returns v as JSON with sorted keys and an indent of four.
func JSON(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var tree any
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber() // digits stay as they are
	if err := dec.Decode(&tree); err != nil {
		return nil, err
	}
	b, err = json.MarshalIndent(tree, "", "    ")
	return append(b, '\n'), err
}

// Read reads a report, or the one under test of a document.
func Read(path string) (*Report, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var head struct {
		Schema  string                     `json:"schema"`
		Under   string                     `json:"under_test"`
		Reports map[string]json.RawMessage `json:"reports"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if head.Schema == DocumentSchema {
		b = head.Reports[head.Under]
		if b == nil {
			return nil, fmt.Errorf("%s: under_test is %q, which is not among its reports", path, head.Under)
		}
	}
	var r Report
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &r, nil
}
