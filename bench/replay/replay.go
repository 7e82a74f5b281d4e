// Package replay runs the benchmark without a server: the synthetic-replay mode. The scheduler and the phase control are
// the daemon's own, with their queueing and contention; the decoder only takes virtual time. The same seed gives
// the same bytes.
//
// The requests are sim/workload's Mix, not load's synthetic: the same ranges and arrivals, drawn otherwise. Real and
// replayed runs of one seed therefore do not have the same requests, one by one.
//
// What it cannot show is said by sim/synthetic, whose engine it is; its numbers are marked as synthetic wherever they go.
package replay

import (
	"fmt"
	"math"

	"github.com/uma-serve/uma-serve/bench/load"
	"github.com/uma-serve/uma-serve/bench/report"
	"github.com/uma-serve/uma-serve/sim/synthetic"
)

// Config is one configuration of the replay.
type Config struct {
	Name, Side, Workload string
	Policy               string
	ThinkBudget          int // tokens; 0 = thoughts are never ended by force
	Options              load.Options
	Repeats              int
	Environment          report.Environment
	Done                 func() // a repeat has ended
}

// Run replays and reports. Repeat k has the seed Options.Seed + k.
func Run(cfg Config) (*report.Report, error) {
	ratio := cfg.Options.ReasoningRatio
	switch cfg.Workload {
	case "synthetic":
	case "chat":
		ratio = 0
	case "reasoning":
		ratio = 1
	default:
		return nil, fmt.Errorf("workload %s needs a server: the replay mode has synthetic, chat and reasoning", cfg.Workload)
	}
	if cfg.Options.Closed > 0 {
		return nil, fmt.Errorf("the replay mode has arrivals only: leave out --concurrency")
	}
	out := &report.Report{Provenance: report.Synthetic, Mode: "replay", ConfigName: cfg.Name, Side: cfg.Side, Workload: cfg.Workload, Target: "replay",
		Seed: cfg.Options.Seed, ArrivalRate: report.Num(cfg.Options.Rate), ForcedByReason: map[string]int{}, MarkS: report.Num(math.NaN()), Environment: cfg.Environment}
	out.Notes = []string{"Requests are those of sim/workload's Mix: the reference's ranges and Poisson arrivals, but answers to reasoning of 80 … 400 tokens and draws of its own; prompts have lengths and no text."}
	if cfg.Repeats > 1 {
		out.Notes = append(out.Notes, "Headline values of a replay are means over its repeats: the engine keeps percentiles, not samples.")
	}
	duration := 0.0
	for k := range cfg.Repeats {
		c := synthetic.DefaultConfig()
		c.Workload.Rate, c.Workload.ReasoningRatio = cfg.Options.Rate, ratio
		c.Workload.Seed = int64(cfg.Options.Seed) + int64(k)
		c.Workload.Requests = int64(cfg.Options.Requests)
		if c.Workload.Requests == 0 {
			c.Workload.Requests = int64(cfg.Options.Duration.Seconds() * cfg.Options.Rate)
		}
		c.Sched.Policy, c.ThinkBudget = cfg.Policy, cfg.ThinkBudget
		r, err := synthetic.Run(c)
		if err != nil {
			return nil, err
		}
		v := map[string]report.Num{"think_tokens_avg": report.Num(r.ThinkMean), "think_tokens_p95": report.Num(r.ThinkP95),
			"output_critical_eviction_events": report.Num(r.OutputCriticalEvictions)}
		if r.Reasoning == 0 {
			v["think_tokens_avg"], v["think_tokens_p95"] = report.Num(math.NaN()), report.Num(math.NaN())
		}
		for name, p := range map[string]synthetic.Percentiles{"ttft": r.TTFT, "ttot": r.TTOT, "output_itl": r.OutputITL} {
			if p.N == 0 {
				p.P50, p.P95, p.P99 = math.NaN(), math.NaN(), math.NaN()
			}
			v[name+"_p50_ms"], v[name+"_p95_ms"], v[name+"_p99_ms"] = report.Num(p.P50), report.Num(p.P95), report.Num(p.P99)
		}
		forced := 0.0
		for reason, share := range r.BudgetForced {
			forced += share
			if n := int(math.Round(share * float64(r.Reasoning))); n > 0 {
				out.ForcedByReason[reason] += n
			}
		}
		v["budget_forced_pct"] = report.Num(100 * forced)
		out.Repeats = append(out.Repeats, v)
		out.NRequests += int(r.Completed)
		out.NErrors += int(r.Rejected)
		out.NReasoning += int(r.Reasoning)
		out.NChat += int(r.Requests - r.Reasoning)
		duration += r.VirtualSeconds
		if cfg.Done != nil {
			cfg.Done()
		}
	}
	if out.NErrors > 0 {
		out.Errors = map[string]int{"rejected by the scheduler": out.NErrors}
	}
	out.DurationS = report.Num(duration)
	out.Average()
	return out, nil
}
