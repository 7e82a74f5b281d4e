package synthetic

import (
	"fmt"
	"io"

	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/meridian/blocks"
)

// WriteMarkdown prints the report as tables that can be posted beside another's.
func (r *Report) WriteMarkdown(w io.Writer) error {
	out := printer{w: w}
	out.f("### %s, policy %s, seed %d\n\n| metric | mean | p50 | p95 | p99 | n |\n|---|---|---|---|---|---|\n", r.Mode,
		r.Policy, r.Seed)
	for _, m := range []struct {
		name string
		p    Percentiles
	}{{"TTFT (ms)", r.TTFT}, {"TTOT (ms)", r.TTOT}, {"output ITL (ms)", r.OutputITL}} {
		out.f("| %s | %.3f | %.3f | %.3f | %.3f | %d |\n", m.name, m.p.Mean, m.p.P50, m.p.P95, m.p.P99, m.p.N)
	}
	out.f("\n| think tokens mean | p95 | output-critical evictions | preemptions | completed | rejected |\n"+
		"|---|---|---|---|---|---|\n| %.0f | %.0f | %d | %d | %d | %d |\n", r.ThinkMean, r.ThinkP95,
		r.OutputCriticalEvictions, r.Preemptions, r.Completed, r.Rejected)
	out.f("\n| thought closed by | of reasoning requests |\n|---|---|\n")
	for _, why := range []meridian.Ended{meridian.EndedConverged, meridian.EndedStalled, meridian.EndedOverthinking,
		meridian.EndedHardCap} {
		out.f("| %s | %.1f %% |\n", why, 100*r.BudgetForced[why.String()])
	}
	out.f("\n| tier | blocks evicted | blocks of preempted requests |\n|---|---|---|\n")
	for _, tier := range blocks.EvictionOrder {
		out.f("| %s | %d | %d |\n", tier, r.EvictedBlocks[tier.String()], r.PreemptedBlocks[tier.String()])
	}
	return out.err
}

// printer keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) f(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}
