package sim

import (
	"math"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sim/latency"
)

// Config is one server. The JSON keys are those of a configuration file; DefaultConfig has the defaults. Names that
// end in _us are microseconds, lengths are tokens.
type Config struct {
	Name        string `json:"name,omitempty"`
	Description string `json:"description,omitempty"`

	HorizonUs int64 `json:"horizon_us"` // 0 = unlimited
	// StrictHorizon stops before the first event beyond the horizon, not after it.
	StrictHorizon bool  `json:"strict_horizon,omitempty"`
	Seed          int64 `json:"seed"`

	// BatchFormation is uma, or the name of a Batcher.
	BatchFormation string     `json:"batch_formation,omitempty"`
	Batcher        NewBatcher `json:"-"`

	// Batch formation uma: uma-serve's flags of these names.
	Policy       string  `json:"policy,omitempty"`         // "" = uma
	MaxQueue     int     `json:"max_queue,omitempty"`      // 0 = no limit
	TickBudgetMs float64 `json:"tick_budget_ms,omitempty"` // 0 = the daemon's default
	GuardMs      float64 `json:"guard_ms,omitempty"`       // 0 = the daemon's default, < 0 = off
	ITLTargetMs  float64 `json:"itl_target_ms,omitempty"`  // 0 = the scheduler's default, as the next
	ThinkFloorMs float64 `json:"think_floor_ms,omitempty"`

	// Threads are the compute threads, on as many processors; 0 = not modelled.
	Threads      int    `json:"threads,omitempty"`
	FixedThreads bool   `json:"fixed_threads,omitempty"` // --fixed-threads
	Busy         []Busy `json:"busy,omitempty"`          // what takes processors

	MaxBackground int  `json:"max_background,omitempty"`  // background requests that run at once, 0 = no limit
	NoPrefixCache bool `json:"no_prefix_cache,omitempty"` // nothing is shared
	// Speculate is --speculate: the most tokens guessed for a step, 0 = none. Repeat is the share of the answers that
	// repeats earlier text of the request, for requests whose workload does not say.
	Speculate int     `json:"speculate,omitempty"`
	Repeat    float64 `json:"repeat,omitempty"`
	// Engine: "" asks the latency model only; "fake" also computes every batch with runtime/fake.
	Engine string `json:"engine,omitempty"`

	Base *sched.Config `json:"-"` // a recorded scheduler's configuration, under all of the above
	// CostState is the scheduler's cost model at the start; nil: untrained, or Base's.
	CostState *sched.CostState `json:"-"`

	MaxRunning         int `json:"max_num_running_reqs"`     // > 0
	MaxScheduledTokens int `json:"max_num_scheduled_tokens"` // per step, > 0
	MaxModelLen        int `json:"max_model_len"`            // 0 = unlimited

	KVBlocks    int `json:"total_kv_blocks"`
	BlockTokens int `json:"block_size_in_tokens"`
	KVCPUBlocks int `json:"kv_cpu_blocks"` // > 0 turns the host tier on
	// Batch formation uma: the tiers of uma-serve below its pool. KVCPUBlocks is its host tier.
	KVDiskBlocks int  `json:"kv_disk_blocks,omitempty"` // 0 = none
	KVFabric     bool `json:"kv_fabric,omitempty"`      // kept prefixes are found there when no tier has them any more
	// KVTierUs is the time per token to copy into or out of the pool, and before that to read from disk or from a
	// fabric.
	KVTierUs     []float64 `json:"kv_tier_us,omitempty"`
	KVPartTokens int       `json:"kv_part_tokens,omitempty"` // unit of a copy
	ThinkEvict   string    `json:"think_evict,omitempty"`    // --think-evict
	ContextShift bool      `json:"context_shift,omitempty"`  // --context-shift
	// ThinkBudget is the number of thinking tokens after which a think block is closed; 0 = no limit.
	ThinkBudget int `json:"think_budget,omitempty"`
	// EarlyExit names the signals that may close a think block earlier: off, eat, rpdi, both. They read the entropies
	// of package thinking, with the daemon's default thresholds.
	EarlyExit string `json:"early_exit,omitempty"`

	LatencyModel string         `json:"latency_model"`
	Beta         []float64      `json:"beta_coeffs,omitempty"`
	Alpha        []float64      `json:"alpha_coeffs,omitempty"`
	CostModel    []float64      `json:"cost_model_us,omitempty"` // calibrated: a, b, c, d, e (without e: 0)
	CostCurve    *latency.Curve `json:"cost_curve,omitempty"`    // calibrated: instead of them
	// CostNoise is the variance of a step's measured over predicted duration; 0 = none.
	CostNoise  float64        `json:"cost_noise,omitempty"`
	CostSpread latency.Spread `json:"cost_spread,omitempty"` // says more than cost_noise does, and is used instead
	// BetweenUs is the time between two steps: fixed, and per row of logits.
	BetweenUs []float64 `json:"between_us,omitempty"`

	Admission      string  `json:"admission,omitempty"` // always (default) or token-bucket
	BucketCapacity float64 `json:"token_bucket_capacity,omitempty"`
	BucketRefill   float64 `json:"token_bucket_refill_rate,omitempty"` // prompt tokens a second

	// DeferBatch defers requests of the classes batch and background until no other request runs, as BLIS's
	// multi-instance driver does.
	DeferBatch bool `json:"defer_batch,omitempty"`

	// NoOverlap mends an oddity of BLIS: a request that arrives while the last step of a batch still runs
	// starts a new step at once. With it, the new step waits for the old one's end.
	NoOverlap bool `json:"no_overlap,omitempty"`

	RecordSteps bool `json:"record_steps"`
	RecordITL   bool `json:"record_itl"`

	Collect  Collect  `json:"-"`
	Livelock Livelock `json:"-"`
}

// Collect says how much a Report holds.
type Collect uint8

const (
	EveryRequest Collect = iota // a line per request; memory grows with them
	Aggregate                   // memory independent of the number of requests
)

// Livelock says what a simulation does when it makes no more progress.
type Livelock uint8

const (
	LivelockAuto Livelock = iota // stop, unless a horizon will
	LivelockStop
	LivelockReport // go on to the horizon, and tell
)

// Engines, EarlyExits, ThinkEvicts, Admissions and LatencyModels are valid names, the
// default first.
var (
	Engines       = []string{"", "fake"}
	EarlyExits    = []string{"", "off", "eat", "rpdi", "both"}
	ThinkEvicts   = []string{"", core.KeepThoughts, core.OffloadThoughts, core.DropThoughts}
	Admissions    = []string{"always", "token-bucket"}
	LatencyModels = []string{"blackbox", "calibrated"}
)

// DefaultConfig returns a server of batch formation uma.
func DefaultConfig() Config {
	return Config{
		Seed: 42, BatchFormation: "uma",
		MaxRunning: 256, MaxScheduledTokens: 2048, KVBlocks: 1_000_000, BlockTokens: 16,
		KVTierUs: []float64{10, 10, 30}, KVPartTokens: 128,
		LatencyModel: "blackbox", Admission: "always",
	}
}

// SetRecorded makes c the server of a recorded scheduler configuration: batch formation uma, its limits and policy, and
// s under them for every other setting.
func (c *Config) SetRecorded(s *sched.Config) {
	c.Base, c.BatchFormation = s, "uma"
	c.Policy, c.MaxRunning, c.MaxScheduledTokens, c.MaxQueue = s.Policy, s.MaxRunning, s.MaxBatch, s.MaxQueue
	for s.Cells%c.BlockTokens != 0 {
		c.BlockTokens /= 2 // blocks only count here
	}
	c.KVBlocks = s.Cells / c.BlockTokens
	if c.GuardMs = float64(s.Guard) / 1e6; s.Guard == 0 {
		c.GuardMs = -1
	}
}

func (c *Config) horizon() int64 {
	if c.HorizonUs == 0 {
		return math.MaxInt64
	}
	return c.HorizonUs
}

// Latency builds the latency model that the configuration names.
func (c *Config) Latency() (latency.Model, error) {
	alpha := c.Alpha
	if len(alpha) == 0 {
		alpha = []float64{0, 0, 0}
	}
	switch c.LatencyModel {
	case "blackbox":
		return latency.NewBlackbox(alpha, c.Beta)
	case "calibrated":
		m, err := latency.NewCalibrated(alpha, c.CostModel)
		if err == nil {
			m.Curve = c.CostCurve
		}
		return m, err
	}
	return nil, OneOf("latency_model", c.LatencyModel, LatencyModels)
}
