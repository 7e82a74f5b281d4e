package soak

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

// Report collects the samples, events and failures of a run. Its methods may be called by several goroutines until
// Finish.
type Report struct {
	mu     sync.Mutex
	mode   string
	room   int // samples that a series has room for at first
	series []*Series
	events [Kinds]int
	counts map[string]int

	wrong, stuck, broken, leaked findings
}

// findings are the first of one kind, and how many there were.
type findings struct {
	n     int
	texts []string
}

// mostTexts bounds the findings that are kept.
const mostTexts = 20

func (f *findings) add(format string, args ...any) {
	if f.n++; len(f.texts) < mostTexts {
		f.texts = append(f.texts, fmt.Sprintf(format, args...))
	}
}

// NewReport makes an empty report; mode is "real" or "virtual". Its series have room for so many samples, so that they
// do not grow in a run that samples the memory of the process that holds them.
func NewReport(mode string, samples int) *Report {
	return &Report{mode: mode, room: samples, counts: map[string]int{}}
}

// Happened counts an event.
func (r *Report) Happened(k Kind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events[k]++
}

// Count counts something by its name: answers, refusals.
func (r *Report) Count(what string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[what] += n
}

// Wrong reports an answer that is not the right one.
func (r *Report) Wrong(format string, args ...any) { r.add(&r.wrong, format, args...) }

// Stuck reports a request without progress.
func (r *Report) Stuck(format string, args ...any) { r.add(&r.stuck, format, args...) }

// Broken reports counters that do not add up, or an unexpected error.
func (r *Report) Broken(format string, args ...any) { r.add(&r.broken, format, args...) }

// Leaked reports resources that are left after the drain.
func (r *Report) Leaked(format string, args ...any) { r.add(&r.leaked, format, args...) }

func (r *Report) add(f *findings, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f.add(format, args...)
}

// Sample adds a value to the series of that name, which the first one makes.
func (r *Report) Sample(at time.Duration, name, unit string, rule Rule, v float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.series, func(s *Series) bool { return s.Name == name })
	if i < 0 {
		i = len(r.series)
		r.series = append(r.series, &Series{Name: name, Unit: unit, Rule: rule, Hours: make([]float64, 0, r.room),
			Values: make([]float64, 0, r.room)})
	}
	s := r.series[i]
	s.Hours, s.Values = append(s.Hours, at.Hours()), append(s.Values, v)
}

// Result is a finished report.
type Result struct {
	Mode     string         `json:"mode"` // real or virtual
	Hours    float64        `json:"hours"`
	WarmUp   float64        `json:"warm_up_hours"`
	Events   map[string]int `json:"events"`
	Counts   map[string]int `json:"counts"`
	Rows     []Row          `json:"series"`
	Failures []string       `json:"failures"` // empty = passed
}

// Row is a series in figures. Unknown values are null.
type Row struct {
	Name    string   `json:"name"`
	Unit    string   `json:"unit"`
	Samples int      `json:"samples"`
	Least   *float64 `json:"least"`
	Median  *float64 `json:"median"` // after the warm-up, as the rest
	Most    *float64 `json:"most"`
	Last    *float64 `json:"last"`
	PerHour *float64 `json:"percent_per_hour"`
	Chance  *float64 `json:"chance_of_accident"`
	Verdict string   `json:"verdict"`
}

// WarmUp returns the part of a run that trends leave out: a tenth, at least 10 minutes, at most a day and half the run.
func WarmUp(length time.Duration) time.Duration {
	return min(max(length/10, LeastWarmUp), 24*time.Hour, length/2)
}

// LeastWarmUp is the warm-up of all but short runs.
const LeastWarmUp = 10 * time.Minute

// Finish judges a run of the given length.
func (r *Report) Finish(length time.Duration) *Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	warm := WarmUp(length).Hours()
	out := &Result{Mode: r.mode, Hours: length.Hours(), WarmUp: warm, Events: map[string]int{}, Counts: r.counts}
	for k, n := range r.events {
		out.Events[Kind(k).String()] = n
	}
	for _, f := range []struct {
		what string
		*findings
	}{{"wrong answers", &r.wrong}, {"stuck requests", &r.stuck}, {"errors", &r.broken}, {"leaks", &r.leaked}} {
		if f.n > 0 {
			out.Failures = append(out.Failures, fmt.Sprintf("%d %s: %s", f.n, f.what, strings.Join(f.texts, "; ")))
		}
	}
	for _, s := range r.series {
		row, bad := s.row(warm)
		out.Rows = append(out.Rows, row)
		if bad != "" {
			out.Failures = append(out.Failures, bad)
		}
	}
	return out
}

func (s *Series) row(warm float64) (row Row, bad string) {
	t := s.Trend(warm)
	bad = s.judge(&t)
	row = Row{Name: s.Name, Unit: s.Unit, Samples: t.Points, Median: known(t.Median), Verdict: "shown"}
	if t.Known() {
		row.PerHour, row.Chance = known(t.PerHour), known(t.Chance)
	}
	least, most, last := math.Inf(1), math.Inf(-1), math.NaN()
	for i, v := range s.Values {
		if s.Hours[i] >= warm && !math.IsNaN(v) {
			least, most, last = min(least, v), max(most, v), v
		}
	}
	row.Least, row.Most, row.Last = known(least), known(most), known(last)
	switch {
	case bad != "":
		row.Verdict = "FAILS"
	case s.Rule != Shown && !t.Known():
		row.Verdict = "too short to judge"
	case s.Rule == Bounded:
		row.Verdict = "bounded"
	case s.Rule == Flat:
		row.Verdict = "flat"
	}
	return row, bad
}

func known(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// Passed reports whether nothing was wrong.
func (r *Result) Passed() bool { return len(r.Failures) == 0 }

// WriteJSON writes the result as one JSON object.
func (r *Result) WriteJSON(w io.Writer) error { return json.NewEncoder(w).Encode(r) }

// Write writes the result as tables for a person.
func (r *Result) Write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %.2f hours, of them %.2f of warm-up\n\n", r.Mode, r.Hours, r.WarmUp)
	b.WriteString("| event | times |\n|---|---|\n")
	for _, name := range kindNames {
		fmt.Fprintf(&b, "| %s | %d |\n", name, r.Events[name])
	}
	for _, name := range slices.Sorted(maps.Keys(r.Counts)) {
		fmt.Fprintf(&b, "| %s | %d |\n", name, r.Counts[name])
	}
	b.WriteString("\n| series | samples | least | median | most | last | % an hour | chance of accident | verdict |\n" +
		"|---|---|---|---|---|---|---|---|---|\n")
	for i := range r.Rows {
		row := &r.Rows[i]
		name := row.Name
		if row.Unit != "" {
			name += ", " + row.Unit
		}
		fmt.Fprintf(&b, "| %s | %d | %s | %s | %s | %s | %s | %s | %s |\n", name, row.Samples, number(row.Least),
			number(row.Median), number(row.Most), number(row.Last), number(row.PerHour), number(row.Chance),
			row.Verdict)
	}
	b.WriteString("\n")
	for _, f := range r.Failures {
		fmt.Fprintf(&b, "FAILS: %s\n", f)
	}
	if r.Passed() {
		b.WriteString("passed\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// number returns v with three significant digits; – = not known.
func number(v *float64) string {
	switch {
	case v == nil:
		return "–"
	case *v == math.Trunc(*v) || math.Abs(*v) >= 1000:
		return fmt.Sprintf("%.0f", *v)
	case math.Abs(*v) < 10:
		return fmt.Sprintf("%.3f", *v)
	}
	return fmt.Sprintf("%.1f", *v)
}
