package sim

import (
	"math"

	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// Metrics add up what happened on one clock: over one server or over a cluster's.
type Metrics struct {
	Completed, StillQueued, StillRunning      int64
	Dropped, TimedOut, Rejected, LengthCapped int64
	Preemptions, AllocationFailures           int64
	InputTokens, OutputTokens                 int64
	TTFTSum                                   int64 // microseconds, of completed requests

	PeakBlocks int   // of any one server
	BlockTime  int64 // Σ steps of blocks in use × duration, block-microseconds

	TTFT  Dist // of every request that got a first token
	E2E   Dist // of completed requests
	ITL   Dist // every gap of completed requests
	Delay Dist // arrival to last admission, of every request that was admitted

	// Thoughts counts the think blocks by how they ended (batch formation uma), by meridian.Ended.
	Thoughts [meridian.EndedLength + 1]int64
	Forks    int64 // probe forks that were computed

	// Ended counts per SLO class and tenant, in order of appearance; only requests that name one.
	Classes []GroupMetrics
	Tenants []GroupMetrics

	Engines []EngineTotals
}

// GroupMetrics are the metrics of one SLO class or tenant.
type GroupMetrics struct {
	Name         string
	Completed    int64
	OutputTokens int64
	TTFT, E2E    Dist
}

// EngineTotals are the counters of one server's engine.
type EngineTotals struct {
	Clock               int64
	Steps               int
	Arrived             int64
	KVUsed              int // blocks at the end
	KV                  CacheStats
	HitRate, ThrashRate float64

	Restored                [3]int64 // batch formation uma: tokens that came back from each of TierNames
	OutputCriticalEvictions uint64   // batch formation uma: evictions of visible answers (meridian/blocks)
}

// observe adds a request's measurements, when it or the simulation ends.
func (m *Metrics) observe(r *request) {
	if r.hasTTFT {
		m.TTFT.Add(r.ttft, 1)
	}
	if r.admitted {
		m.Delay.Add(r.delay, 1)
	}
	if r.state != Completed {
		return
	}
	m.Completed++
	m.TTFTSum += r.ttft
	m.E2E.Add(r.e2e, 1)
	m.ITL.addAll(r.itl)
	out := r.outputTokens()
	m.OutputTokens += out
	if r.Spec.Class != "" {
		g := group(&m.Classes, r.Spec.Class)
		g.Completed++
		g.OutputTokens += out
		g.TTFT.Add(r.ttft, 1)
		g.E2E.Add(r.e2e, 1)
	}
	if r.Spec.Tenant != "" {
		g := group(&m.Tenants, r.Spec.Tenant)
		g.Completed++
		g.OutputTokens += out
	}
}

// maxGroups bounds the memory of classes and tenants; further names share one group.
const maxGroups = 64

func group(list *[]GroupMetrics, name string) *GroupMetrics {
	for i := range *list {
		if (*list)[i].Name == name {
			return &(*list)[i]
		}
	}
	if len(*list) == maxGroups {
		(*list)[maxGroups-1].Name = "(others)"
		return &(*list)[maxGroups-1]
	}
	*list = append(*list, GroupMetrics{Name: name})
	return &(*list)[len(*list)-1]
}

// outputTokens counts the first token, too: it comes with the prefill.
func (r *request) outputTokens() int64 {
	g := r.Progress - r.Spec.Input
	if g < r.Spec.Output {
		g++
	}
	return int64(g)
}

// itlMean is BLIS's per-request mean gap in microseconds: over one less than the output tokens; over one less
// than the gaps when the length was capped.
func (r *request) itlMean() float64 {
	if r.Spec.Output == 0 {
		return 0
	}
	by := max(r.Spec.Output-1, 1)
	if r.capped {
		by = max(len(r.itl)-1, 1)
	}
	return float64(r.itlSum) / float64(by)
}

// Injected returns the number of requests that the buckets account for.
func (m *Metrics) Injected() int64 {
	return m.Completed + m.StillQueued + m.StillRunning + m.Dropped + m.TimedOut + m.Rejected
}

// Result is one request's line of a report; nil means that the event did not happen. Times are microseconds.
type Result struct {
	ID        string   `json:"request_id"`
	ArrivalUs int64    `json:"arrival_us"`
	Input     int      `json:"input_tokens"`
	Output    int      `json:"output_tokens"`
	State     string   `json:"state"`
	TTFTUs    *int64   `json:"ttft_us"`
	E2EUs     *int64   `json:"e2e_us"`
	DelayUs   *int64   `json:"scheduling_delay_us"`
	ITLMeanUs *float64 `json:"itl_mean_us"`
	ITLsUs    []int64  `json:"itls_us,omitempty"`
	ITLs      int      `json:"num_itls"`
	LeftUs    *int64   `json:"request_left_us"`
	FirstStep int      `json:"scheduled_step"`
	LastStep  int      `json:"finished_step"`
	Capped    bool     `json:"length_capped"`

	Spec   workload.Request `json:"-"`
	ITLSum int64            `json:"-"`
}

func (e *Engine) result(r *request) Result {
	out := Result{
		ID: r.Spec.ID(), ArrivalUs: r.Spec.Arrival, Input: r.Spec.Input, Output: r.Spec.Output, State: r.state.String(),
		ITLs: len(r.itl), FirstStep: r.firstStep, LastStep: r.lastStep, Capped: r.capped,
		Spec: r.Spec, ITLSum: r.itlSum,
	}
	v := &struct {
		ttft, delay, e2e, left int64
		itl                    float64
	}{r.ttft, r.delay, r.e2e, r.left, r.itlMean()}
	if r.hasTTFT {
		out.TTFTUs = &v.ttft
	}
	if r.admitted {
		out.DelayUs = &v.delay
	}
	if r.state == Completed {
		out.E2EUs, out.LeftUs, out.ITLMeanUs = &v.e2e, &v.left, &v.itl
	}
	if e.cfg.RecordITL {
		out.ITLsUs = append([]int64(nil), r.itl...)
	}
	return out
}

// Numbers returns the aggregate in the order and with the names of the golden layout (encoding/json sorts a map's
// keys). Latencies and rates are there only when something completed.
func (m *Metrics) Numbers(cfg *Config) map[string]any {
	var kvs CacheStats
	var used, steps int
	var ended int64
	for _, e := range m.Engines {
		ended = max(ended, e.Clock)
		used += e.KVUsed
		steps += e.Steps
		kvs.Hits += e.KV.Hits
		kvs.Misses += e.KV.Misses
		kvs.HostMisses += e.KV.HostMisses
		kvs.Reloads += e.KV.Reloads
		kvs.Offloads += e.KV.Offloads
		kvs.Thrashes += e.KV.Thrashes
		kvs.Stores += e.KV.Stores
		kvs.Evictions += e.KV.Evictions
		kvs.HostUsed += e.KV.HostUsed
		kvs.Mirror = kvs.Mirror || e.KV.Mirror
	}
	ended = min(ended, cfg.horizon())
	n := map[string]any{
		"completed_requests": m.Completed, "still_queued": m.StillQueued, "still_running": m.StillRunning,
		"dropped_unservable": m.Dropped, "timed_out_requests": m.TimedOut, "length_capped_requests": m.LengthCapped,
		"injected_requests_accounted": m.Injected(), "preemption_count": m.Preemptions,
		"kv_allocation_failures": m.AllocationFailures, "total_input_tokens": m.InputTokens,
		"total_output_tokens": m.OutputTokens,
		"peak_kv_blocks_used": m.PeakBlocks, "kv_block_time_integral": m.BlockTime, "kv_used_blocks_at_end": used,
		"sim_ended_us": ended, "steps": steps, "ttft_sum_us": m.TTFTSum,
	}
	if m.Rejected > 0 {
		n["rejected_requests"] = m.Rejected
	}
	if cfg.ThinkBudget > 0 || cfg.EarlyExit != "" {
		for how := meridian.EndedConverged; how <= meridian.EndedNatural; how++ {
			n["thoughts_ended_"+how.String()] = m.Thoughts[how]
		}
		n["probe_forks"] = m.Forks
	}
	if len(m.Engines) == 1 {
		n["cache_hit_rate"], n["kv_thrashing_rate"] = m.Engines[0].HitRate, m.Engines[0].ThrashRate
	} else {
		n["cache_hit_rate"] = ratio(kvs.Hits, kvs.Hits+kvs.Misses)
		n["kv_thrashing_rate"] = ratio(kvs.Thrashes+kvs.Evictions, kvs.Offloads+kvs.Stores)
	}
	if cfg.KVCPUBlocks > 0 && cfg.BatchFormation == "uma" {
		for i, tokens := range m.restored() {
			n["restored_tokens_"+TierNames[i]] = tokens
		}
	}
	if cfg.KVCPUBlocks > 0 {
		n["gpu_cache_hit_blocks"], n["gpu_cache_miss_blocks"] = kvs.Hits, kvs.Misses
		n["cpu_miss_count"], n["cpu_reload_blocks"], n["cpu_blocks_used_at_end"] = kvs.HostMisses, kvs.Reloads,
			kvs.HostUsed
		if kvs.Mirror {
			n["cpu_mirror_stores"], n["cpu_evictions"] = kvs.Stores, kvs.Evictions
		} else {
			n["cpu_offload_blocks"], n["cpu_thrashing_count"] = kvs.Offloads, kvs.Thrashes
		}
	} else {
		n["cache_hit_blocks"], n["cache_miss_blocks"] = kvs.Hits, kvs.Misses
	}
	if m.Completed == 0 {
		return n
	}
	seconds := float64(ended) / 1e6
	n["vllm_estimated_duration_s"] = seconds
	n["responses_per_sec"], n["tokens_per_sec"] = 0.0, 0.0
	if seconds > 0 {
		n["responses_per_sec"] = float64(m.Completed) / seconds
		n["tokens_per_sec"] = float64(m.OutputTokens) / seconds
	}
	for _, d := range []struct {
		name string
		d    *Dist
	}{{"ttft", &m.TTFT}, {"e2e", &m.E2E}, {"itl", &m.ITL}} {
		n[d.name+"_mean_ms"] = d.d.MeanMs()
		n[d.name+"_p90_ms"] = d.d.PercentileMs(90)
		n[d.name+"_p95_ms"] = d.d.PercentileMs(95)
		n[d.name+"_p99_ms"] = d.d.PercentileMs(99)
	}
	n["scheduling_delay_p99_ms"] = m.Delay.PercentileMs(99)
	return n
}

func ratio(a, b int64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// Jain returns the fairness index of the tenants' output tokens: 1 = equal shares; NaN without tenants.
func (m *Metrics) Jain() float64 {
	if len(m.Tenants) == 0 {
		return math.NaN()
	}
	var sum, squares float64
	for _, t := range m.Tenants {
		x := float64(t.OutputTokens)
		sum += x
		squares += x * x
	}
	return sum * sum / (float64(len(m.Tenants)) * squares)
}

// restored returns the sum of all engines'.
func (m *Metrics) restored() (sum [3]int64) {
	for i := range m.Engines {
		for k, tokens := range m.Engines[i].Restored {
			sum[k] += tokens
		}
	}
	return sum
}
