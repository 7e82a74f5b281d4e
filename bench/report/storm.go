package report

import (
	"fmt"
	"strconv"
	"strings"
)

// Gaps summarises inter-token times, in ms.
type Gaps struct {
	Tokens int `json:"tokens"`
	P50    Num `json:"p50_ms"`
	P95    Num `json:"p95_ms"`
	P99    Num `json:"p99_ms"`
	Worst  Num `json:"worst_ms"`
}

func (g *Group) gaps() Gaps { return Gaps{g.Gaps, g.ITLp50, g.ITLp95, g.ITLp99, g.ITLMax} }

// Storm is the result of workload storm: the chats' inter-token times and the prompts' speed.
type Storm struct {
	Side            string `json:"side"`
	Policy          string `json:"policy"`
	TargetMs        Num    `json:"itl_target_ms"` // null = the server's own
	Alone           Gaps   `json:"alone"`
	Storm           Gaps   `json:"storm"`
	Fifth           []Num  `json:"fifth_tokens_ms"`     // time to the 5th token of each newcomer in the storm
	SoloFifthMs     Num    `json:"solo_fifth_token_ms"` // median beside the chats alone
	FifthMs         Num    `json:"fifth_token_ms"`      // median in the storm
	PromptTokensSec Num    `json:"prompt_tokens_per_second"`
	Prompts         int    `json:"prompts"` // answered
}

// Storms returns the storms among the reports, in their order.
func (d *Document) Storms() (out []Storm) {
	for _, name := range d.names() {
		if s, ok := d.Reports[name].storm(); ok {
			out = append(out, s)
		}
	}
	return out
}

func (r *Report) storm() (s Storm, ok bool) {
	if r.Workload != "storm" || !r.MarkS.known() {
		return s, false
	}
	var none Group
	none.ITLp50, none.ITLp95, none.ITLp99, none.ITLMax = nan, nan, nan, nan
	s = Storm{Side: r.Side, Policy: r.Side, TargetMs: nan, Alone: none.gaps(), Storm: none.gaps(), SoloFifthMs: nan,
		FifthMs: nan, PromptTokensSec: Num(r.Value("prefill_tokens_per_s"))}
	if policy, target, has := strings.Cut(r.Side, "@"); has {
		if ms, err := strconv.ParseFloat(target, 64); err == nil {
			s.Policy, s.TargetMs = policy, Num(ms)
		}
	}
	for i := range r.Groups {
		switch g := &r.Groups[i]; g.Name {
		case "chat, before":
			s.Alone = g.gaps()
		case "chat":
			s.Storm = g.gaps()
		case "newcomer-alone":
			s.SoloFifthMs = g.Ends
		case "newcomer-storm":
			s.FifthMs, s.Fifth = g.Ends, g.EachEnd
		case "prompt":
			s.Prompts = g.Requests
		}
	}
	return s, true
}

// stormHead are the columns of stormRows.
var stormHead = []string{"policy", "target ms", "alone p50 / p95 / worst ms", "storm p50 / p95 / p99 / worst ms",
	"prompt tok/s", "of the first", "5th token, alone → storm ms"}

func stormRows(ss []Storm) (rows [][]string) {
	one, whole := Metric{Digits: 1}, Metric{}
	f := func(ns ...Num) string {
		var out []string
		for _, n := range ns {
			out = append(out, one.text(float64(n)))
		}
		return strings.Join(out, " / ")
	}
	for _, s := range ss {
		target := "–"
		if s.TargetMs.known() {
			target = strconv.FormatFloat(float64(s.TargetMs), 'f', -1, 64)
		}
		rows = append(rows, []string{s.Policy, target, f(s.Alone.P50, s.Alone.P95, s.Alone.Worst),
			f(s.Storm.P50, s.Storm.P95, s.Storm.P99, s.Storm.Worst),
			whole.text(float64(s.PromptTokensSec)),
			Metric{Digits: 2}.text(float64(s.PromptTokensSec / ss[0].PromptTokensSec)),
			fmt.Sprintf("%s → %s (%s×)", whole.text(float64(s.SoloFifthMs)), whole.text(float64(s.FifthMs)),
				Metric{Digits: 2}.text(float64(s.FifthMs/s.SoloFifthMs)))})
	}
	return rows
}

// StormTable returns the storms as Markdown, "" when there are none. The prompts' speed is relative to the first's.
func (d *Document) StormTable() string {
	ss := d.Storms()
	if len(ss) == 0 {
		return ""
	}
	var b strings.Builder
	for i, row := range append([][]string{stormHead}, stormRows(ss)...) {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			b.WriteString(strings.Repeat("|---", len(row)) + "|\n")
		}
	}
	return b.String()
}

// Line returns a report in one line, for progress output.
func (r *Report) Line() string {
	one := Metric{Digits: 1}
	v := func(key string) string { return one.text(r.Value(key)) }
	var parts []string
	if s, ok := r.storm(); ok {
		parts = append(parts, fmt.Sprintf("alone p50 %s p95 %s ms, in the storm p50 %s p95 %s worst %s ms, %s prompt "+
			"tokens/s", one.text(float64(s.Alone.P50)), one.text(float64(s.Alone.P95)),
			one.text(float64(s.Storm.P50)), one.text(float64(s.Storm.P95)), one.text(float64(s.Storm.Worst)),
			Metric{}.text(float64(s.PromptTokensSec))))
	} else {
		parts = append(parts, fmt.Sprintf("%d answered, TTFT p50 %s p95 %s ms, ITL p50 %s p95 %s ms", r.NRequests,
			v("ttft_p50_ms"), v("ttft_p95_ms"), v("output_itl_p50_ms"), v("output_itl_p95_ms")))
	}
	if r.Accuracy != nil {
		parts = append(parts, fmt.Sprintf("%s %% right with %s think tokens", v("accuracy_pct"), v("think_tokens_avg")))
	}
	if r.NErrors > 0 {
		parts = append(parts, fmt.Sprintf("%d errors (%s)", r.NErrors, counts(r.Errors)))
	}
	return strings.Join(parts, ", ")
}
