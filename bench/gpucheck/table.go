package gpucheck

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Markdown returns the report as tables for people.
func (r *Report) Markdown() string {
	var b strings.Builder
	passed := len(r.Steps) - r.Failed()
	fmt.Fprintf(&b, "# %s: %s\n\n%s, %s, %.0f s; %d of %d steps passed.\n\n", r.Backend,
		cmp.Or(r.Device, "no device"), cmp.Or(r.Engine, "no engine"), r.Started, r.Seconds, passed, len(r.Steps))
	b.WriteString("## Answers\n\n| model | compared | answers | equal | near ties | different | worst gap | drift | " +
		"mean drift |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, s := range r.Steps {
		if _, ok := s.Values["equal"]; ok {
			fmt.Fprintf(&b, "| %s | %s, %s | %s |\n", s.Model, s.Server, s.Name,
				cells(s, "answers", "equal", "near_ties", "different", "worst_gap", "drift", "mean_drift"))
		}
	}
	b.WriteString("\nGaps and drift are in nats.\n\n## Load\n\n| model | load | server | tokens/s | TTFT p50, ms | " +
		"ITL p95, ms |\n|---|---|---|---|---|---|\n")
	for _, s := range r.Steps {
		if _, ok := s.Values["tokens_per_second"]; ok && s.Error == "" {
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", s.Model, s.Name, s.Server,
				cells(s, "tokens_per_second", "ttft_p50_ms", "itl_p95_ms"))
		}
	}
	b.WriteString("\n## Steps\n\n| step | model | server | seconds | result |\n|---|---|---|---|---|\n")
	for _, s := range r.Steps {
		result := "passed"
		if s.Error != "" {
			line, _, _ := strings.Cut(s.Error, "\n")
			result = "**failed**: " + strings.ReplaceAll(line, "|", `\|`)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %.1f | %s |\n", s.Name, s.Model, s.Server, s.Seconds, result)
	}
	return b.String()
}

func cells(s Step, names ...string) string {
	out := make([]string, len(names))
	for i, n := range names {
		switch v := s.Values[n].(type) {
		case float64:
			out[i] = strconv.FormatFloat(v, 'f', 3, 64)
			if v >= 10 {
				out[i] = strconv.FormatFloat(v, 'f', 1, 64)
			}
		case nil:
			out[i] = "–"
		default:
			out[i] = fmt.Sprint(v)
		}
	}
	return strings.Join(out, " | ")
}
