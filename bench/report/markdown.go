package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// text returns a metric's value for people, "–" when it is not known.
func (m Metric) text(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "–"
	}
	digits := m.Digits
	if a := math.Abs(v); digits == 2 && a > 0 && a < 1 { // virtual decoders take microseconds
		digits = 3
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}

// interval returns a confidence interval. None of the metrics can be negative, though Student's intervals of a few
// values reach below 0.
func (m Metric) interval(ci Interval, between string) string {
	return m.text(max(0, float64(ci.Low))) + between + m.text(float64(ci.High))
}

// Markdown returns the report as a table.
func (d *Document) Markdown() string {
	var b strings.Builder
	u := d.Reports[d.UnderTest]
	fmt.Fprintf(&b, "### %s\n\n", strings.TrimSuffix(d.head()+", "+u.Environment.line(), ", "))
	names := d.names()
	row := func(cells ...string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	head := []string{"metric"}
	for _, name := range names {
		n := d.label(name)
		if name == d.UnderTest && len(names) > 1 {
			n += " (under test)"
		}
		head = append(head, n)
	}
	baselines := d.baselines()
	for _, n := range baselines {
		head = append(head, "Δ% vs "+d.label(n))
	}
	row(head...)
	row(slices.Repeat([]string{"---"}, len(head))...)
	for _, m := range Metrics {
		if !d.any(m.Key) {
			continue
		}
		cells := []string{m.Title}
		for _, n := range names {
			r := d.Reports[n]
			text := m.text(r.Value(m.Key))
			if ci, ok := r.CI95[m.Key]; ok && ci.Low.known() {
				text += " [" + m.interval(ci, ", ") + "]"
			}
			cells = append(cells, text)
		}
		for _, n := range baselines {
			cells = append(cells, d.verdict(n, m).String())
		}
		row(cells...)
	}
	if storm := d.StormTable(); storm != "" {
		b.WriteString("\n" + storm)
	}
	var noted []string
	for _, n := range names {
		r := d.Reports[n]
		fmt.Fprintf(&b, "\n**%s**: %d answered (%d chat, %d reasoning) in %s s, %d repeats, %d errors", n, r.NRequests,
			r.NChat, r.NReasoning,
			strconv.FormatFloat(float64(r.DurationS), 'f', 1, 64), r.NRepeats, r.NErrors)
		if len(r.ForcedByReason) > 0 {
			fmt.Fprintf(&b, "; thoughts ended by force: %s", counts(r.ForcedByReason))
		}
		if len(r.EvictedByTier) > 0 {
			fmt.Fprintf(&b, "; KV blocks evicted: %s", counts(r.EvictedByTier))
		}
		if len(r.Errors) > 0 {
			fmt.Fprintf(&b, "; errors: %s", counts(r.Errors))
		}
		b.WriteByte('\n')
		if len(r.Groups) > 1 {
			b.WriteString("\n| group | requests | errors | TTFT p50 / p95 ms | ITL p50 / p95 ms | end p50 ms | " +
				"prompt tok/s | accuracy % |\n|---|---|---|---|---|---|---|---|\n")
			for _, g := range r.Groups {
				f := Metric{Digits: 2}
				name := g.Name
				if !g.Measured {
					name += " (load)"
				}
				if g.Skipped != "" {
					row(name, "0", "0", g.Skipped, "–", "–", "–", "–")
					continue
				}
				row(name, strconv.Itoa(g.Requests), strconv.Itoa(g.Errors), f.text(float64(g.TTFTp50))+" / "+
					f.text(float64(g.TTFTp95)),
					f.text(float64(g.ITLp50))+" / "+f.text(float64(g.ITLp95)), f.text(float64(g.Ends)),
					Metric{}.text(float64(g.PromptSec)), Metric{Digits: 1}.text(float64(g.Accuracy)))
			}
		}
		for _, note := range r.Notes {
			if !slices.Contains(noted, note) {
				noted = append(noted, note)
				fmt.Fprintf(&b, "\n> %s\n", note)
			}
		}
	}
	return b.String()
}

func (d *Document) head() string {
	u := d.Reports[d.UnderTest]
	how := "measured"
	if d.Provenance == Synthetic {
		how = "SYNTHETIC (virtual time, no model)"
	}
	return fmt.Sprintf("%s, workload %s, seed %d", how, u.Workload, u.Seed)
}

func (e *Environment) line() string {
	var parts []string
	for _, s := range []string{e.Model, e.CPU, e.OS, e.Version} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	if e.Commit != "" {
		parts = append(parts, "commit "+e.Commit)
	}
	return strings.Join(parts, ", ")
}

func (d *Document) any(key string) bool {
	for _, r := range d.Reports {
		if Num(r.Value(key)).known() {
			return true
		}
	}
	return false
}

func counts(m map[string]int) string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for i, k := range keys {
		keys[i] = fmt.Sprintf("%s %d", k, m[k])
	}
	return strings.Join(keys, ", ")
}

// label returns a report's name in a table: its side without options, its side with them, or its name; the first of
// them that is unique.
func (d *Document) label(name string) string {
	for _, short := range []func(*Report) string{
		func(r *Report) string { head, _, _ := strings.Cut(r.Side, ":"); return r.times(head) },
		func(r *Report) string { return r.times(r.Side) },
	} {
		s := short(d.Reports[name])
		unique := s != ""
		for other, r := range d.Reports {
			unique = unique && (other == name || short(r) != s)
		}
		if unique {
			return s
		}
	}
	return name
}

// times adds the streams to a report's label.
func (r *Report) times(name string) string {
	if r.Streams > 0 && name != "" {
		return fmt.Sprintf("%s ×%d", name, r.Streams)
	}
	return name
}
