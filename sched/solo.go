package sched

import "github.com/uma-serve/uma-serve/sched/cost"

// Steps that no answer waits for: prompts alone.

// soloExtrapolation is the most prompt tokens of such a step, whatever the cost model says. The first step with prompt
// tokens ever is a small one: it shows how fast the machine is.
func (s *Scheduler) soloExtrapolation() int {
	if s.cost.Prompts() == 0 {
		return max(1, s.cfg.FirstPrefill, s.cfg.MinPrefill)
	}
	return max(s.cfg.StartBudget, s.cfg.MinPrefill, int(2*s.cost.Largest()))
}

// soloFits is the most tokens of prompts, the farthest of which is at position start, that such a step has time for:
// the bound for policies that do not predict.
func (s *Scheduler) soloFits(start, most int) int {
	if s.cost.Prompts() == 0 {
		return min(most, s.soloExtrapolation())
	}
	ms := max(restSlack*float64(s.cfg.SoloBudget)/1e6, s.soloMs(cost.Load{}, start))
	n := max(s.cost.FitsLikely(ms, cost.Load{}, start, most), min(most, s.cfg.MinPrefill))
	if n < most {
		n = cost.WholeTiles(0, max(1, s.cfg.MinPrefill), n)
	}
	return n
}

// soloTokens is the chunk from which on larger ones gain nothing, one micro-batch of llama.cpp. Measured, 2 threads,
// medians, ms a token: 135 M parameters in Q8_0: 64 tokens 1.34, 128 1.26, 192 1.20, 512 1.14; 1.1 B in Q4_K_M: 16
// 11.9, 128 11.1, 512 10.6.
const soloTokens = 512

// soloMs returns the limit on such a step in milliseconds: Config.SoloBudget, or where soloTokens take longer, their
// time up to Config.SoloLimit. base is in the batch already; the first prompt is at position start.
func (s *Scheduler) soloMs(base cost.Load, start int) float64 {
	ms := float64(s.cfg.SoloBudget) / 1e6
	if limit := float64(s.cfg.SoloLimit) / 1e6; limit > ms {
		base.AddPrompt(start, soloTokens)
		ms = max(ms, min(s.cost.Likely(base), limit))
	}
	return ms
}
