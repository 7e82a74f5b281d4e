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

	"github.com/uma-serve/uma-serve/internal/ui"
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
	prev := v.prev
	v.prev = s
	rate := func(name, unit string) string {
		if prev == nil {
			return ""
		}
		seconds, delta := s.Time.Sub(prev.Time).Seconds(), s.num(name)-prev.num(name)
		if seconds <= 0 || delta < 0 { // a restarted daemon counts from zero
			return ""
		}
		if unit == "bytes" {
			return " (" + ui.Bytes(uint64(delta/seconds)) + "/s)"
		}
		return " (" + ui.Rate(delta/seconds) + "/s)"
	}
	count := func(name string) string { return ui.Count(int64(s.num(name))) }
	bytes := func(name string) string { return ui.Bytes(uint64(max(s.num(name), 0))) }
	millis := func(name string) string { return ui.Duration(msDuration(s.num(name))) }

	var t ui.Table
	var ranks []int
	add := func(rank int, label, format string, a ...any) {
		n := t.Len()
		if t.Row(label, format, a...); t.Len() > n {
			ranks = append(ranks, rank)
		}
	}
	add(0, "requests", "%s running, %s queued, %s so far%s",
		ui.Count(int64(s.num("running_prefill")+s.num("running_decode"))),
		ui.Count(int64(s.num("queued_interactive")+s.num("queued_background"))), count("prompts_total"),
		rate("prompts_total", ""))
	add(4, "", "prompt %s, answer %s, paused %s", count("running_prefill"), count("running_decode"),
		count("running_paused"))
	add(0, "tokens", "%s generated%s, %s of prompts%s", count("tokens_generated_total"),
		rate("tokens_generated_total", ""),
		count("prefill_tokens_merged_total"), rate("prefill_tokens_merged_total", ""))
	if total := s.num("kv_cells_total"); total > 0 {
		live := s.num("kv_cells_live")
		cached := ""
		if s.num("kv_cells_cached") > 0 {
			cached = ", " + count("kv_cells_cached") + " more cached"
		}
		add(0, "KV cells", "%s %3.0f %%  %s of %s%s", ui.Bar(live/total, 20), 100*live/total, count("kv_cells_live"),
			count("kv_cells_total"), cached)
	}
	if target := s.num("itl_target_ms"); target > 0 {
		state := strings.TrimSuffix(join(s.labels("guard")), " 1")
		add(0, "promise", "%s between tokens, %s late, prompts %s%s", ui.Duration(msDuration(target)),
			count("slo_violations_tbt_total"),
			guards[state], tail("; ", infeasible(s.num("itl_target_infeasible"))))
	}
	if s.num("io_errors_total")+s.num("decode_errors_total") > 0 {
		add(0, "errors", "decode %s, I/O %s", count("decode_errors_total"), count("io_errors_total"))
	}
	add(4, "ended", "%s", join(s.labels("requests_finished_total")))
	add(2, "refused", "%s", join(s.labels("requests_rejected_total")))
	add(2, "steps", "%s%s, last %s, average %s", count("batch_calls_total"), rate("batch_calls_total", ""),
		millis("decode_ms_last"), millis("decode_ms_ewma"))
	add(6, "batch", "%s tokens last, average %s of a budget of %s", count("last_batch_size"),
		ui.Rate(s.num("avg_budget_used")), ui.Rate(s.num("avg_budget_target")))
	if s.num("kv_lookups_total") > 0 {
		add(2, "prefix cache", "%.0f %% of %s prompts found something%s", 100*s.num("kv_hit_ratio"),
			count("kv_lookups_total"), tail(", tokens: ", join(s.labels("kv_cached_tokens_total"))))
	}
	if held := join(s.labels("kv_tier_bytes"), func(v float64) string { return ui.Bytes(uint64(v)) }); held != "" {
		add(6, "tiers", "%s", held)
	}
	if ends := join(s.labels("think_ended_total")); ends != "" {
		add(4, "thinking", "%s now; ended: %s", count("queue_depth_think"), ends)
	}
	if s.num("output_critical_eviction") > 0 {
		add(6, "evicted", "%s blocks of running answers", count("output_critical_eviction"))
	}
	add(2, "memory", "weights %s, KV %s, heap %s, resident %s", bytes("weights_bytes"), bytes("kv_bytes"),
		bytes("go_heap_bytes"), bytes("rss_bytes"))
	if s.num("repacked_bytes") > 0 {
		add(6, "", "%s more: weights repacked for this processor", bytes("repacked_bytes"))
	}
	add(6, "clients", "%s connected, %s so far, in %s%s, out %s%s", count("sessions_active"), count("accepted_total"),
		bytes("rx_bytes_total"), rate("rx_bytes_total", "bytes"), bytes("tx_bytes_total"),
		rate("tx_bytes_total", "bytes"))
	add(3, "up", "%s", millis("uptime_ms"))

	var lines []line
	for text := range strings.Lines(t.String(v.Out.Dim)) {
		lines = append(lines, line{strings.TrimSuffix(text, "\n"), ranks[len(lines)]})
	}
	lines = append(lines, line{"", 3}, line{v.Out.Dim(fmt.Sprintf("%-16s %9s %10s %10s %10s   %s", "", "count", "mean",
		"p50 ≤", "p95 ≤", "1 ms … 1 s")), 1})
	for _, h := range []struct {
		label, name string
		rank        int
	}{
		{"first token", "ttft_ms", 1}, {"first of answer", "ttot_ms", 5}, {"between tokens", "inter_token_ms", 1},
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
	if !v.Fit {
		return fit(lines, 0)
	}
	cols, rows := v.Out.Size()
	return ui.FitLines(fit(lines, rows), cols)
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
var guards = map[string]string{"open": "as they come", "trim": "cut to what fits", "hold": "held back"}

func infeasible(v float64) string {
	if v == 0 {
		return ""
	}
	return "cannot be kept"
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
