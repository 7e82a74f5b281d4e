// Package metricsview formats the daemon's metrics snapshot as one screen, with rates if there is an earlier snapshot.
// docs/metrics.md describes the metrics. A metric that a daemon of another version lacks is shown as zero.
package metricsview

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/internal/cli/ui"
)

// Snapshot is a metrics snapshot with its time of reading.
type Snapshot struct {
	Time   time.Time
	fields map[string]json.RawMessage
}

// Parse reads the JSON of a snapshot.
func Parse(raw []byte, at time.Time) (*Snapshot, error) {
	s := &Snapshot{Time: at}
	if err := json.Unmarshal(raw, &s.fields); err != nil {
		return nil, fmt.Errorf("metrics: cannot parse the daemon's answer: %w", err)
	}
	return s, nil
}

// num returns a number of the snapshot; 0 when it is null, absent or not a number.
func (s *Snapshot) num(name string) float64 {
	var v float64
	if json.Unmarshal(s.fields[name], &v) != nil {
		return 0
	}
	return v
}

// labels returns a metric with several named counts.
func (s *Snapshot) labels(name string) map[string]float64 {
	var v map[string]float64
	if json.Unmarshal(s.fields[name], &v) != nil {
		return nil
	}
	return v
}

// histogram is a distribution: Counts[i] values are above Bounds[i-1] and at most Bounds[i]; the last entry of Counts
// counts the values above all bounds.
type histogram struct {
	Count, Sum float64
	Bounds     []float64
	Counts     []float64
}

func (s *Snapshot) histogram(name string) (h histogram) {
	var raw struct {
		Count   float64            `json:"count"`
		Sum     float64            `json:"sum"`
		Buckets map[string]float64 `json:"buckets"`
	}
	if json.Unmarshal(s.fields[name], &raw) != nil {
		return h
	}
	h.Count, h.Sum = raw.Count, raw.Sum
	for key := range raw.Buckets {
		if bound, err := strconv.ParseFloat(key, 64); err == nil && key != "+Inf" {
			h.Bounds = append(h.Bounds, bound)
		}
	}
	slices.Sort(h.Bounds)
	for _, b := range h.Bounds {
		h.Counts = append(h.Counts, raw.Buckets[strconv.FormatFloat(b, 'f', -1, 64)])
	}
	h.Counts = append(h.Counts, raw.Buckets["+Inf"])
	return h
}

// quantile returns the smallest bucket bound that at least the share q of all values does not exceed; ok is false when
// no bound suffices.
func (h histogram) quantile(q float64) (bound float64, ok bool) {
	sum := 0.0
	for i, b := range h.Bounds {
		if sum += h.Counts[i]; sum >= q*h.Count {
			return b, true
		}
	}
	return 0, false
}

// View draws snapshots. In a terminal it draws the most important lines that fit.
type View struct {
	Out  *ui.Terminal
	Fit  bool // leave out lines until the screen fits into Out's window
	prev *Snapshot
}

// line is a row of the screen. If not all rows fit, those with the highest rank are left out first.
type line struct {
	text string
	rank int
}

// tokenRank is the rank of the table of token counts, which is left out as a whole.
const tokenRank = 7

// fit returns the lines that fit into rows; 0 = all.
func fit(lines []line, rows int) string {
	for rows > 0 && len(lines) > rows {
		last := 0
		for i := range lines {
			if lines[i].rank >= lines[last].rank {
				last = i
			}
		}
		if lines[last].rank == tokenRank { // leave out a header without its rows
			lines = slices.DeleteFunc(lines, func(l line) bool { return l.rank == tokenRank })
			continue
		}
		lines = slices.Delete(lines, last, last+1)
	}
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.text + "\n")
	}
	return b.String()
}

// Render returns the screen for s. Rates are relative to the snapshot of the previous call.
func (v *View) Render(s *Snapshot) string {
	x := &screen{s: s, prev: v.prev}
	v.prev = s
	x.load()
	x.latency()
	x.memory()
	var lines []line
	for text := range strings.Lines(x.table.String(v.Out.Dim)) {
		lines = append(lines, line{strings.TrimSuffix(text, "\n"), x.ranks[len(lines)]})
	}
	lines = v.histograms(lines, s)
	if !v.Fit {
		return fit(lines, 0)
	}
	cols, rows := v.Out.Size()
	return ui.FitLines(fit(lines, rows), cols)
}

// screen is the upper part of the screen: a table of labels and values.
type screen struct {
	s, prev *Snapshot // prev is nil without rates
	table   ui.Table
	ranks   []int // of the rows
}

func (x *screen) add(rank int, label, format string, a ...any) {
	n := x.table.Len()
	if x.table.Row(label, format, a...); x.table.Len() > n {
		x.ranks = append(x.ranks, rank)
	}
}

// rate returns a counter's rate in parentheses; "" without an earlier snapshot.
func (x *screen) rate(name, unit string) string {
	if x.prev == nil {
		return ""
	}
	seconds, delta := x.s.Time.Sub(x.prev.Time).Seconds(), x.s.num(name)-x.prev.num(name)
	if seconds <= 0 || delta < 0 { // a restarted daemon counts from zero
		return ""
	}
	if unit == "bytes" {
		return " (" + ui.Bytes(uint64(delta/seconds)) + "/s)"
	}
	return " (" + ui.Rate(delta/seconds) + "/s)"
}

// perStep returns the increase of a counter with labels, all together, for each step: since the earlier snapshot, or
// since the start.
func (x *screen) perStep(name string) string {
	sum := func(s *Snapshot) (n float64) {
		for _, v := range s.labels(name) {
			n += v
		}
		return n
	}
	n, steps := sum(x.s), x.s.num("batch_calls_total")
	if x.prev != nil && x.prev.num("batch_calls_total") < steps { // else it has not computed, or was restarted
		n, steps = n-sum(x.prev), steps-x.prev.num("batch_calls_total")
	}
	return ui.Rate(max(n, 0) / max(steps, 1))
}

func (x *screen) count(name string) string  { return ui.Count(int64(x.s.num(name))) }
func (x *screen) bytes(name string) string  { return ui.Bytes(uint64(max(x.s.num(name), 0))) }
func (x *screen) millis(name string) string { return ui.Duration(msDuration(x.s.num(name))) }

// load adds requests, tokens and KV cells.
func (x *screen) load() {
	x.add(0, "requests", "%s running, %s queued, %s so far%s",
		ui.Count(int64(x.s.num("running_prefill")+x.s.num("running_decode"))),
		ui.Count(int64(x.s.num("queued_interactive")+x.s.num("queued_background"))), x.count("prompts_total"),
		x.rate("prompts_total", ""))
	x.add(4, "", "prompt %s, answer %s, paused %s", x.count("running_prefill"), x.count("running_decode"),
		x.count("running_paused"))
	x.add(0, "tokens", "%s generated%s, %s of prompts%s", x.count("tokens_generated_total"),
		x.rate("tokens_generated_total", ""),
		x.count("prefill_tokens_merged_total"), x.rate("prefill_tokens_merged_total", ""))
	if total := x.s.num("kv_cells_total"); total > 0 {
		live := x.s.num("kv_cells_live")
		cached := ""
		if x.s.num("kv_cells_cached") > 0 {
			cached = ", " + x.count("kv_cells_cached") + " more cached"
		}
		x.add(0, "KV cells", "%s %3.0f %%  %s of %s%s", ui.Bar(live/total, 20), 100*live/total,
			x.count("kv_cells_live"), x.count("kv_cells_total"), cached)
	}
}

// latency adds the ITL target, errors and steps.
func (x *screen) latency() {
	if target := x.s.num("itl_target_ms"); target > 0 {
		state := strings.TrimSuffix(join(x.s.labels("guard")), " 1")
		x.add(0, "ITL target", "%s, missed %s times, prompts %s%s", ui.Duration(msDuration(target)),
			x.count("slo_violations_tbt_total"),
			guards[state], tail("; ", infeasible(x.s.num("itl_target_infeasible"))))
		x.add(1, "limited", "%s requests a step, by that target (smaller chunks, or no tokens)",
			x.perStep("itl_limited_total"))
	}
	if x.s.num("io_errors_total")+x.s.num("decode_errors_total") > 0 {
		x.add(0, "errors", "decode %s, I/O %s", x.count("decode_errors_total"), x.count("io_errors_total"))
	}
	x.add(4, "ended", "%s", join(x.s.labels("requests_finished_total")))
	x.add(2, "refused", "%s", join(x.s.labels("requests_rejected_total")))
	x.add(2, "steps", "%s%s, last %s, average %s", x.count("batch_calls_total"), x.rate("batch_calls_total", ""),
		x.millis("decode_ms_last"), x.millis("decode_ms_ewma"))
	x.add(6, "batch", "%s tokens last, average %s of a budget of %s", x.count("last_batch_size"),
		ui.Rate(x.s.num("avg_budget_used")), ui.Rate(x.s.num("avg_budget_target")))
}

// memory adds caches, thinking, memory and clients.
func (x *screen) memory() {
	if x.s.num("kv_lookups_total") > 0 {
		x.add(2, "prefix cache", "%.0f %% of %s prompts had a cached prefix%s", 100*x.s.num("kv_hit_ratio"),
			x.count("kv_lookups_total"), tail(", tokens: ", join(x.s.labels("kv_cached_tokens_total"))))
	}
	if held := join(x.s.labels("kv_tier_bytes"), func(v float64) string { return ui.Bytes(uint64(v)) }); held != "" {
		x.add(6, "tiers", "%s", held)
	}
	if ends := join(x.s.labels("think_ended_total")); ends != "" {
		x.add(4, "thinking", "%s now; ended: %s", x.count("queue_depth_think"), ends)
	}
	if x.s.num("output_critical_eviction") > 0 {
		x.add(6, "evicted", "running answers lost cells %s times", x.count("output_critical_eviction"))
	}
	x.add(2, "memory", "weights %s, KV %s, heap %s, resident %s", x.bytes("weights_bytes"), x.bytes("kv_bytes"),
		x.bytes("go_heap_bytes"), x.bytes("rss_bytes"))
	if x.s.num("repacked_bytes") > 0 {
		x.add(6, "", "%s more: weights repacked for this processor", x.bytes("repacked_bytes"))
	}
	x.add(6, "clients", "%s connected, %s so far, in %s%s, out %s%s", x.count("sessions_active"),
		x.count("accepted_total"), x.bytes("rx_bytes_total"), x.rate("rx_bytes_total", "bytes"),
		x.bytes("tx_bytes_total"), x.rate("tx_bytes_total", "bytes"))
	x.add(3, "up", "%s", x.millis("uptime_ms"))
}

// histograms appends the table of distributions.
func (v *View) histograms(lines []line, s *Snapshot) []line {
	lines = append(lines, line{"", 3}, line{v.Out.Dim(fmt.Sprintf("%-16s %9s %10s %10s %10s   %s", "", "count", "mean",
		"p50 ≤", "p95 ≤", "1 ms … 1 s")), 1})
	for _, h := range []struct {
		label, name string
		rank        int
	}{
		{"first token", "ttft_ms", 1}, {"first of answer", "time_to_answer_ms", 5}, {"between tokens",
			"inter_token_ms", 1},
		{"  thinking", "inter_token_think_ms", 5},
		{"  answering", "inter_token_output_ms", 5}, {"waiting", "request_queue_ms", 3},
		{"prompt", "request_prefill_ms", 3}, {"step", "decode_ms", 3}, {"cancel", "cancel_latency_ms", 6},
	} {
		lines = append(lines, line{v.row(h.label, s.histogram(h.name),
			func(x float64) string { return ui.Duration(msDuration(x)) }), h.rank})
	}
	lines = append(lines, line{v.Out.Dim(fmt.Sprintf("%60s   %s", "", "1 … tokens")), tokenRank})
	for _, h := range []struct{ label, name string }{{"batch", "batch_size"}, {"answer length", "response_tokens"},
		{"thought length", "think_tokens"}} {
		lines = append(lines, line{v.row(h.label, s.histogram(h.name),
			func(x float64) string { return ui.Count(int64(x)) }), tokenRank})
	}
	return lines
}

func (v *View) row(label string, h histogram, show func(float64) string) string {
	mean, p50, p95 := "–", "–", "–"
	quantile := func(q float64) string {
		if bound, ok := h.quantile(q); ok {
			return show(bound)
		}
		return "> " + show(h.Bounds[len(h.Bounds)-1])
	}
	if h.Count > 0 && len(h.Bounds) > 0 {
		mean, p50, p95 = show(h.Sum/h.Count), quantile(0.5), quantile(0.95)
	}
	return strings.TrimRight(fmt.Sprintf("%s %9s %10s %10s %10s   %s", v.Out.Dim(fmt.Sprintf("%-16s", label)),
		ui.Count(int64(h.Count)), mean, p50, p95, ui.Spark(h.Counts)), " ")
}

func msDuration(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// guards describes the effect of the guard's states on prompts.
var guards = map[string]string{"open": "unlimited", "trim": "in reduced chunks", "hold": "held back"}

func infeasible(v float64) string {
	if v == 0 {
		return ""
	}
	return "cannot be met"
}

// tail returns sep and text; "" when text is empty.
func tail(sep, text string) string {
	if text == "" {
		return ""
	}
	return sep + text
}

// join lists the counts above zero, the most frequent first. show formats a value; the default is a plain number.
func join(counts map[string]float64, show ...func(float64) string) string {
	write := func(v float64) string { return ui.Count(int64(v)) }
	if len(show) > 0 {
		write = show[0]
	}
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(-cmp.Compare(counts[a], counts[b]), cmp.Compare(a, b))
	})
	var parts []string
	for _, n := range names {
		if counts[n] > 0 {
			parts = append(parts, ui.Sanitize(n)+" "+write(counts[n]))
		}
	}
	return strings.Join(parts, ", ")
}
