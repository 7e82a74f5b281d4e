// Package synthetic is the synthetic-replay mode of the benchmark (Meridian's ADR-0005): the real phase control and the
// real core, with its queueing, admission, sharing of prompts, eviction, preemption and contention for KV cells, over a
// decoder that only takes time. Time is virtual, so a run takes milliseconds, needs no model and no GPU, and gives the
// same numbers for the same seed: two changes to a policy can be compared number by number.
//
// It reports what a user of a reasoning model sees (the ADR says why not throughput): time to first token, time from
// the end of thinking to the first visible token, smoothness of the visible answer.
//
// The entropies that EAT and RPDI read come from package thinking: some thoughts settle, some stall, some drift. That
// shows what ending them early does to the queue, not how often a model's thoughts do so. Kernels, memory bandwidth and
// tokenisation are not there.
package synthetic

import (
	"fmt"
	"math"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sim"
	"github.com/uma-serve/uma-serve/sim/thinking"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// Decoder has the coefficients of a decode step's duration, in microseconds. The defaults for thinking and output are
// the ADR's.
type Decoder struct {
	StepUs    float64 // fixed
	PrefillUs float64 // per prompt token
	ThinkUs   float64 // per token decoded in a think block, and per token of a probe
	OutputUs  float64 // per visible token
}

// DefaultDecoder approximates a data-centre GPU.
func DefaultDecoder() Decoder { return Decoder{StepUs: 40, PrefillUs: 2, ThinkUs: 6, OutputUs: 18} }

// Observer is told what a client of the replayed server would see. Requests are named by their Index, times are virtual
// nanoseconds since the start.
type Observer interface {
	// Started: the request has a sequence for the first time. Of its prompt's tokens, cached need not be computed.
	Started(request int64, prompt, cached int)
	// Token came, of thought or of the answer. The tags around a thought are none, nor is the end of generation: no
	// server sends them.
	Token(request, now int64, thinking bool)
	// Thought has ended after so many tokens.
	Thought(request int64, tokens int, ended meridian.Ended)
	// End: the request was answered, or rejected.
	End(request, now int64, answered bool)
}

// Config is one run.
type Config struct {
	Workload workload.Mix
	// Requests, if set, come instead of Workload's, which then only names the seed in the report. Think is part of
	// Output; the classes background and batch are the scheduler's background class.
	Requests workload.Source
	Observer Observer // nil = none

	Sched       sched.Config
	Decoder     Decoder
	Meridian    meridian.Config // of phase control; ThinkBudget stands for its MaxThinkTokens
	ThinkBudget int             // tokens after which a think block is closed by force; 0 = never
	ThinkEvict  string          // as sim.Config's

	// HostTokens > 0 keeps evicted cells in host memory, copied at HostUs a token.
	HostTokens int
	HostUs     float64
}

// DefaultConfig returns the ADR's reference workload on a server of 16 sequences and 32,768 cells.
func DefaultConfig() Config {
	return Config{Workload: workload.DefaultMix(), Decoder: DefaultDecoder(), ThinkBudget: 4096,
		Meridian: meridian.DefaultConfig(),
		Sched: sched.Config{Policy: sched.Policies()[0], MaxRunning: 16, Cells: 32768, MaxBatch: 512, MaxQueue: 1 << 16,
			Guard: sched.DefaultGuard}}
}

// Percentiles of one metric, milliseconds.
type Percentiles struct {
	Mean float64 `json:"mean_ms"`
	P50  float64 `json:"p50_ms"`
	P95  float64 `json:"p95_ms"`
	P99  float64 `json:"p99_ms"`
	N    int64   `json:"n"`
}

// Report has the ADR's metrics.
type Report struct {
	Mode   string `json:"mode"`
	Policy string `json:"policy"`
	Seed   int64  `json:"seed"`

	Requests  int64 `json:"requests"`
	Completed int64 `json:"completed"`
	Rejected  int64 `json:"rejected"`
	Reasoning int64 `json:"reasoning_requests"`

	PromptTokens int64 `json:"prompt_tokens"`
	CachedTokens int64 `json:"cached_prompt_tokens"` // of them: shared or restored, not computed

	TTFT      Percentiles `json:"ttft"`       // arrival to first token
	TTOT      Percentiles `json:"ttot"`       // end of thinking to first visible token
	OutputITL Percentiles `json:"output_itl"` // between visible tokens

	ThinkMean float64 `json:"think_tokens_mean"`
	ThinkP95  float64 `json:"think_tokens_p95"`

	// BudgetForced is the share of reasoning requests whose think block was closed by force, by reason.
	BudgetForced map[string]float64 `json:"budget_force_rate"`
	Probes       int64              `json:"probe_forks"`

	// OutputCriticalEvictions are events in which visible answers gave up blocks for others (meridian/blocks). Any is a
	// stall that a user sees.
	OutputCriticalEvictions int64 `json:"output_critical_evictions"`
	// AvoidableEvictions are those of OutputCriticalEvictions for which a lower tier had cells. Any is a bug.
	AvoidableEvictions int64 `json:"avoidable_evictions"`
	// Blocks by tier: evicted because another request needed the cells, and taken from a preempted request.
	EvictedBlocks   map[string]int64 `json:"evicted_blocks"`
	PreemptedBlocks map[string]int64 `json:"preempted_blocks"`
	RestoredTokens  map[string]int64 `json:"restored_tokens"` // by the tier that had them, sim.TierNames
	Preemptions     int64            `json:"preemptions"`
	VirtualSeconds  float64          `json:"virtual_seconds"`
	BusySeconds     float64          `json:"busy_seconds"` // of these, the decoder's
	Steps           int64            `json:"steps"`
}

// Run simulates until every request has ended.
func Run(cfg Config) (*Report, error) {
	d := cfg.Decoder
	for _, c := range []float64{d.StepUs, d.PrefillUs, d.ThinkUs, d.OutputUs, cfg.HostUs} {
		if !(c >= 0) || math.IsInf(c, 0) {
			return nil, fmt.Errorf("decoder: costs must be finite and ≥ 0 microseconds, got %+v, host %v", d,
				cfg.HostUs)
		}
	}
	if d.StepUs+d.OutputUs+d.ThinkUs+d.PrefillUs == 0 {
		return nil, fmt.Errorf("decoder: a step must take some time")
	}
	src := cfg.Requests
	if src == nil {
		var err error
		if src, err = cfg.Workload.New(); err != nil {
			return nil, err
		}
	}
	cfg.Meridian.MaxThinkTokens = math.MaxInt32 // only Config.ThinkBudget bounds it
	model, err := thinking.New()
	if err != nil {
		return nil, err
	}
	tiers := cfg.tiers()
	c := core.Config{Sched: cfg.Sched, Sequences: core.MaxSequences, CellBytes: 1,
		CanShift: true, ThinkEvict: cfg.ThinkEvict}
	if tiers != nil {
		c.Stores, c.PartTokens, c.ByPrice = tiers, partTokens, true
		c.CopyPerToken = time.Duration(cfg.HostUs * float64(time.Microsecond))
	}
	r := &replay{cfg: cfg, model: model, tiers: tiers, come: newArrivals(src), live: map[core.ID]*request{},
		seed: workload.NumberedStream(cfg.Workload.Seed),
		rep: &Report{Mode: "synthetic-replay", Policy: cfg.Sched.Policy, Seed: cfg.Workload.Seed,
			BudgetForced: map[string]float64{}, EvictedBlocks: map[string]int64{},
			PreemptedBlocks: map[string]int64{}, RestoredTokens: map[string]int64{}}}
	if r.c, err = core.New(c); err != nil {
		return nil, err
	}
	if cfg.Observer == nil {
		r.cfg.Observer = unobserved{}
	}
	if err := r.run(); err != nil {
		return nil, err
	}
	return r.rep, nil
}

// partTokens is the unit of a copy, as the daemon's for small cells.
const partTokens = 128

// tiers returns the host tier, nil when there is none.
func (c *Config) tiers() *sim.Tiers {
	if c.HostTokens <= 0 {
		return nil
	}
	s := sim.DefaultConfig()
	s.Seed, s.BlockTokens, s.KVCPUBlocks, s.KVPartTokens = c.Workload.Seed, 1, c.HostTokens, partTokens
	s.KVTierUs = []float64{c.HostUs, 0, 0}
	return sim.NewTiers(&s)
}

// unobserved is the Observer of a run without one.
type unobserved struct{}

func (unobserved) Started(int64, int, int)            {}
func (unobserved) Token(int64, int64, bool)           {}
func (unobserved) Thought(int64, int, meridian.Ended) {}
func (unobserved) End(int64, int64, bool)             {}
