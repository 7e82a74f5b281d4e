package sim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/uma-serve/uma-serve/sim/workload"
)

// The output formats of BLIS's command line, for both batch formations: metrics JSON, text, exported trace, results.

// blisAggregate is the metrics JSON, in its order.
type blisAggregate struct {
	Instance   string  `json:"instance_id"`
	Completed  int64   `json:"completed_requests"`
	Queued     int64   `json:"still_queued"`
	Running    int64   `json:"still_running"`
	Injected   int64   `json:"injected_requests"`
	InTokens   int64   `json:"total_input_tokens"`
	OutTokens  int64   `json:"total_output_tokens"`
	Seconds    float64 `json:"vllm_estimated_duration_s"`
	Responses  float64 `json:"responses_per_sec"`
	Tokens     float64 `json:"tokens_per_sec"`
	E2EMean    float64 `json:"e2e_mean_ms"`
	E2EP90     float64 `json:"e2e_p90_ms"`
	E2EP95     float64 `json:"e2e_p95_ms"`
	E2EP99     float64 `json:"e2e_p99_ms"`
	TTFTMean   float64 `json:"ttft_mean_ms"`
	TTFTP90    float64 `json:"ttft_p90_ms"`
	TTFTP95    float64 `json:"ttft_p95_ms"`
	TTFTP99    float64 `json:"ttft_p99_ms"`
	ITLMean    float64 `json:"itl_mean_ms"`
	ITLP90     float64 `json:"itl_p90_ms"`
	ITLP95     float64 `json:"itl_p95_ms"`
	ITLP99     float64 `json:"itl_p99_ms"`
	DelayP99   float64 `json:"scheduling_delay_p99_ms"`
	Failures   int64   `json:"kv_allocation_failures,omitempty"`
	Preempted  int64   `json:"preemption_count"`
	Dropped    int64   `json:"dropped_unservable"`
	Capped     int64   `json:"length_capped_requests"`
	TimedOut   int64   `json:"timed_out_requests"`
	Rejected   int64   `json:"rejected_requests,omitempty"`
	PerRequest []any   `json:"requests,omitempty"`
}

type blisRequest struct {
	Arrived   float64 `json:"arrived_at"` // seconds
	ID        string  `json:"requestID"`
	Prefill   int     `json:"num_prefill_tokens"`
	Decode    int     `json:"num_decode_tokens"`
	TTFT      float64 `json:"ttft_ms"`
	ITL       float64 `json:"itl_ms"`
	E2E       float64 `json:"e2e_ms"`
	Delay     float64 `json:"scheduling_delay_ms"`
	Class     string  `json:"slo_class,omitempty"`
	Tenant    string  `json:"tenant_id,omitempty"`
	HandledBy string  `json:"handled_by,omitempty"`
	Model     string  `json:"model,omitempty"`
	Capped    bool    `json:"length_capped,omitempty"`
}

func (rep *Report) blis(instance string) blisAggregate {
	m, cfg := rep.Metrics, &rep.Config
	a := blisAggregate{Instance: instance, Completed: m.Completed, Queued: m.StillQueued, Running: m.StillRunning,
		Injected: m.Injected(),
		InTokens: m.InputTokens, OutTokens: m.OutputTokens, Failures: m.AllocationFailures, Preempted: m.Preemptions,
		Dropped: m.Dropped,
		Capped:  m.LengthCapped, TimedOut: m.TimedOut, Rejected: m.Rejected}
	for _, e := range m.Engines {
		a.Seconds = max(a.Seconds, float64(min(e.Clock, cfg.horizon()))/1e6)
	}
	if m.Completed == 0 {
		return a
	}
	if a.Seconds > 0 {
		a.Responses, a.Tokens = float64(m.Completed)/a.Seconds, float64(m.OutputTokens)/a.Seconds
	}
	fill := func(d *Dist, mean, p90, p95, p99 *float64) {
		*mean, *p90, *p95, *p99 = d.MeanMs(), d.PercentileMs(90), d.PercentileMs(95), d.PercentileMs(99)
	}
	fill(&m.E2E, &a.E2EMean, &a.E2EP90, &a.E2EP95, &a.E2EP99)
	fill(&m.TTFT, &a.TTFTMean, &a.TTFTP90, &a.TTFTP95, &a.TTFTP99)
	fill(&m.ITL, &a.ITLMean, &a.ITLP90, &a.ITLP95, &a.ITLP99)
	a.DelayP99 = m.Delay.PercentileMs(99)
	return a
}

// WriteMetrics writes BLIS's --metrics-path file: aggregates and a line per request by arrival.
func (rep *Report) WriteMetrics(w io.Writer, instance string) error {
	a := rep.blis(instance)
	rows := slices.Clone(rep.Requests)
	slices.SortStableFunc(rows, func(x, y Result) int {
		return cmp.Or(cmp.Compare(x.ArrivalUs, y.ArrivalUs), cmp.Compare(x.ID, y.ID))
	})
	for _, r := range rows {
		if r.State == Dropped.String() || r.State == Rejected.String() {
			continue
		}
		b := blisRequest{Arrived: float64(r.ArrivalUs) / 1e6, ID: r.ID, Prefill: r.Input, Decode: r.Output,
			Class: r.Spec.Class, Tenant: r.Spec.Tenant, HandledBy: "instance_0", Model: r.Spec.Model, Capped: r.Capped}
		if r.State == Completed.String() {
			b.TTFT, b.E2E, b.Delay, b.ITL = float64(*r.TTFTUs)/1000, float64(*r.E2EUs)/1000, float64(*r.DelayUs)/1000,
				*r.ITLMeanUs/1000
		}
		a.PerRequest = append(a.PerRequest, b)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(a)
}

// WriteText prints what BLIS prints after a run.
func (rep *Report) WriteText(w io.Writer) error {
	m := rep.Metrics
	fmt.Fprintln(w, "=== Simulation Metrics ===")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if err := enc.Encode(rep.blis("instance_0")); err != nil {
		return err
	}
	if len(m.Engines) == 1 {
		e := m.Engines[0]
		if preempted := ratio(m.Preemptions, m.Completed); preempted != 0 || e.HitRate != 0 || e.ThrashRate != 0 {
			fmt.Fprintf(w, "=== KV Cache Metrics ===\nPreemption Rate: %.4f\nCache Hit Rate: %.4f\nKV Thrashing "+
				"Rate: %.4f\n", preempted, e.HitRate, e.ThrashRate)
		}
	}
	if r := m.restored(); r != [3]int64{} {
		fmt.Fprintf(w, "=== Restored Tokens ===\nHost: %d\nDisk: %d\nFabric: %d\n", r[tierHost], r[tierDisk],
			r[tierFabric])
	}
	byName := func(list []GroupMetrics) []GroupMetrics {
		out := slices.Clone(list)
		slices.SortFunc(out, func(a, b GroupMetrics) int { return cmp.Compare(a.Name, b.Name) })
		return out
	}
	if len(m.Classes) > 1 {
		fmt.Fprintln(w, "=== Per-SLO Metrics ===")
		for _, g := range byName(m.Classes) {
			fmt.Fprintf(w, "  %s:\n    TTFT: mean=%.2f p99=%.2f (n=%d)\n    E2E:  mean=%.2f p99=%.2f (n=%d)\n", g.Name,
				g.TTFT.MeanMs()*1000, g.TTFT.PercentileMs(99)*1000, g.TTFT.Count(), g.E2E.MeanMs()*1000,
				g.E2E.PercentileMs(99)*1000, g.E2E.Count())
		}
	}
	if len(m.Tenants) > 0 {
		fmt.Fprintln(w, "=== Per-Tenant Metrics ===")
		for _, g := range byName(m.Tenants) {
			fmt.Fprintf(w, "  %s: requests=%d, tokens=%d\n", g.Name, g.Completed, g.OutputTokens)
		}
		fmt.Fprintf(w, "  Jain Fairness Index: %.4f\n", m.Jain())
	}
	return nil
}

// WriteTrace exports the run as the CSV half of a TraceV2.
func (rep *Report) WriteTrace(w io.Writer) error {
	t, err := workload.NewTraceWriter(w)
	if err != nil {
		return err
	}
	for i := range rep.Requests {
		r := &rep.Requests[i]
		s := workload.Served{Status: "incomplete"}
		if r.TTFTUs != nil {
			s.FirstUs = r.ArrivalUs + *r.TTFTUs
			s.LastUs = s.FirstUs + r.ITLSum
		}
		switch r.State {
		case "completed":
			s.Status = "ok"
		case "timed_out":
			s.Status = "timeout"
		}
		if err := t.Write(&r.Spec, s); err != nil {
			return err
		}
	}
	return t.Flush()
}

// WriteResults writes BLIS's --results-path file: the finished requests by id.
func (rep *Report) WriteResults(w io.Writer) error {
	type row struct {
		ID     string `json:"request_id"`
		TTFT   int64  `json:"ttft_us"`
		E2E    int64  `json:"e2e_us"`
		Input  int    `json:"input_tokens"`
		Output int    `json:"output_tokens"`
	}
	rows := []row{}
	for _, r := range rep.Requests {
		if r.State == "completed" {
			rows = append(rows, row{r.ID, *r.TTFTUs, *r.E2EUs, r.Input, r.Output})
		}
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.ID, b.ID) })
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(rows)
}
