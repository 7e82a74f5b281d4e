package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sim/blis"
	"github.com/uma-serve/uma-serve/sim/blis/kv"
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

	Scheduler      string `json:"scheduler"`
	PriorityPolicy string `json:"priority_policy"`
	BatchFormation string `json:"batch_formation,omitempty"` // vllm (default) or uma

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
	// LongPrefill is the maximum of prompt tokens of one request in a step; 0 = no limit.
	LongPrefill int `json:"long_prefill_token_threshold"`
	MaxModelLen int `json:"max_model_len"` // 0 = unlimited

	KVBlocks    int    `json:"total_kv_blocks"`
	BlockTokens int    `json:"block_size_in_tokens"`
	KVCPUBlocks int    `json:"kv_cpu_blocks"` // > 0 turns the host tier on
	KVTierModel string `json:"kv_tier_model,omitempty"`
	// Batch formation uma: the tiers of uma-serve below its pool. KVCPUBlocks is its host tier.
	KVDiskBlocks int  `json:"kv_disk_blocks,omitempty"` // 0 = none
	KVFabric     bool `json:"kv_fabric,omitempty"`      // what is kept is found there when no tier has it any more
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

	OffloadThreshold  float64 `json:"kv_offload_threshold"`  // share of blocks in use, [0, 1]
	TransferBandwidth float64 `json:"kv_transfer_bandwidth"` // a block's tokens are divided by it: ticks a block
	TransferBaseUs    int64   `json:"kv_transfer_base_latency_us"`

	LatencyModel string         `json:"latency_model"`
	Beta         []float64      `json:"beta_coeffs,omitempty"`
	Alpha        []float64      `json:"alpha_coeffs,omitempty"`
	TP           int            `json:"tp"`
	GPU          string         `json:"gpu,omitempty"`
	HFConfigFile string         `json:"hf_config_file,omitempty"`
	HardwareFile string         `json:"hardware_config_file,omitempty"`
	MemoryShare  float64        `json:"gpu_memory_utilization,omitempty"`
	CostModel    []float64      `json:"cost_model_us,omitempty"` // calibrated: a, b, c, d, e (without e: 0)
	CostCurve    *latency.Curve `json:"cost_curve,omitempty"`    // calibrated: instead of them
	// CostNoise is the variance of a step's measured over predicted duration; 0 = none.
	CostNoise  float64        `json:"cost_noise,omitempty"`
	CostSpread latency.Spread `json:"cost_spread,omitempty"` // says more than cost_noise does, and is used instead
	// BetweenUs is the time between two steps: fixed, and per row of logits.
	BetweenUs []float64 `json:"between_us,omitempty"`

	RooflineTwoPhase      bool    `json:"roofline_two_phase,omitempty"`
	RooflineAllReduceGBs  float64 `json:"roofline_all_reduce_gbs,omitempty"` // of trained-roofline, too
	RooflineAllReduceUs   float64 `json:"roofline_all_reduce_us,omitempty"`  // likewise
	RooflineLayerOverhead float64 `json:"roofline_layer_overhead_us,omitempty"`

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

	dir string // where relative file names are looked for
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

// TierModels, BatchFormations, Engines, EarlyExits, ThinkEvicts, Admissions and LatencyModels are valid names, the
// default first.
var (
	TierModels      = []string{"offload", "mirror"}
	BatchFormations = []string{"vllm", "uma"}
	Engines         = []string{"", "fake"}
	EarlyExits      = []string{"", "off", "eat", "rpdi", "both"}
	ThinkEvicts     = []string{"", core.KeepThoughts, core.OffloadThoughts, core.DropThoughts}
	Admissions      = []string{"always", "token-bucket"}
	LatencyModels   = []string{"blackbox", "roofline", "crossmodel", "trained-roofline", "calibrated"}
)

// DefaultConfig returns the defaults of the flags.
func DefaultConfig() Config {
	return Config{
		Seed: 42, Scheduler: "fcfs", PriorityPolicy: "constant", BatchFormation: "vllm",
		MaxRunning: 256, MaxScheduledTokens: 2048, KVBlocks: 1_000_000, BlockTokens: 16,
		KVTierModel: "offload", OffloadThreshold: 0.9, TransferBandwidth: 100,
		KVTierUs: []float64{10, 10, 30}, KVPartTokens: 128,
		LatencyModel: "blackbox", TP: 1, MemoryShare: 0.9, Admission: "always",
	}
}

// ReadConfig parses a configuration file over the defaults. dir is where file names in it are relative to; they are
// also tried in dir's parents. unknown lists the keys that Config does not have: they are ignored, and the caller
// should warn.
func ReadConfig(data []byte, dir string) (c Config, unknown []string, err error) {
	c = DefaultConfig()
	if err := json.Unmarshal(data, &c); err != nil {
		return c, nil, fmt.Errorf("config: %w", explain(data, err))
	}
	c.dir = dir
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(data, &keys); err != nil {
		return c, nil, fmt.Errorf("config: %w", err)
	}
	known, _ := json.Marshal(filled())
	var have map[string]json.RawMessage
	if err := json.Unmarshal(known, &have); err != nil {
		return c, nil, err
	}
	for k := range keys {
		if _, ok := have[k]; !ok {
			unknown = append(unknown, k)
		}
	}
	slices.Sort(unknown)
	return c, unknown, nil
}

// explain adds the line to a JSON error.
func explain(data []byte, err error) error {
	var at int64 = -1
	var syntax *json.SyntaxError
	var typ *json.UnmarshalTypeError
	if errors.As(err, &syntax) {
		at = syntax.Offset
	} else if errors.As(err, &typ) {
		at = typ.Offset
	}
	if at < 0 || at > int64(len(data)) {
		return err
	}
	return fmt.Errorf("line %d: %w", 1+bytes.Count(data[:at], []byte("\n")), err)
}

// filled has every field set, so that its JSON has every key.
func filled() Config {
	c := DefaultConfig()
	c.Name, c.Description, c.Policy, c.GPU, c.HFConfigFile, c.HardwareFile = "-", "-", "-", "-", "-", "-"
	c.StrictHorizon, c.RooflineTwoPhase, c.NoOverlap, c.DeferBatch = true, true, true, true
	c.Threads, c.FixedThreads, c.Busy = 1, true, []Busy{{}}
	c.MaxQueue, c.TickBudgetMs, c.GuardMs, c.ITLTargetMs, c.ThinkFloorMs, c.MaxBackground = 1, 1, 1, 1, 1, 1
	c.Speculate, c.Repeat = 1, 0.5
	c.ThinkEvict, c.ContextShift, c.ThinkBudget, c.EarlyExit = "-", true, 1, "-"
	c.NoPrefixCache, c.Engine, c.CostNoise, c.BetweenUs, c.CostCurve = true, "-", 1, []float64{1, 1}, &latency.Curve{}
	c.CostSpread, c.KVDiskBlocks, c.KVFabric = latency.Spread{{}}, 1, true
	c.Beta, c.Alpha, c.CostModel = []float64{1}, []float64{1}, []float64{1}
	c.RooflineAllReduceUs = 1
	c.RooflineAllReduceGBs, c.RooflineLayerOverhead, c.BucketCapacity, c.BucketRefill = 1, 1, 1, 1
	return c
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

// blis is the server of batch formation vllm.
func (c *Config) blis() blis.Config {
	k := kv.Config{BlockTokens: c.BlockTokens, Blocks: c.KVBlocks}
	if c.KVCPUBlocks > 0 {
		k.Tier, k.HostBlocks, k.OffloadThreshold = kv.Offload, c.KVCPUBlocks, c.OffloadThreshold
		if c.KVTierModel == "mirror" {
			k.Tier = kv.Mirror
		}
		k.ReloadTicks = c.TransferBaseUs + latency.Ticks(math.Ceil(float64(c.BlockTokens)/c.TransferBandwidth))
	}
	return blis.Config{
		MaxRunning: c.MaxRunning, MaxTokens: c.MaxScheduledTokens, LongPrefill: c.LongPrefill,
		MaxModelLen: c.MaxModelLen,
		Scheduler:   c.Scheduler, Priority: c.PriorityPolicy, Cache: k,
	}
}

// Latency builds the latency model that the configuration names, reading the files it names.
func (c *Config) Latency() (latency.Model, error) {
	alpha := c.Alpha
	if len(alpha) == 0 && c.LatencyModel != "crossmodel" && c.LatencyModel != "trained-roofline" {
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
	shape, err := c.Shape()
	if err != nil {
		return nil, err
	}
	if c.LatencyModel == "crossmodel" {
		return latency.NewCrossModel(alpha, c.Beta, shape, c.TP)
	}
	gpu, err := c.Hardware()
	if err != nil {
		return nil, err
	}
	sums := latency.AllReduce{GBs: c.RooflineAllReduceGBs, Us: c.RooflineAllReduceUs}
	if c.LatencyModel == "trained-roofline" {
		return latency.NewTrainedRoofline(alpha, c.Beta, shape, gpu, c.TP, sums)
	}
	return latency.NewRoofline(alpha, shape, gpu, c.TP, latency.RooflineOptions{
		TwoPhase: c.RooflineTwoPhase, AllReduce: sums, LayerOverhead: c.RooflineLayerOverhead})
}

// Shape reads the model's config.json.
func (c *Config) Shape() (latency.Shape, error) {
	if c.HFConfigFile == "" {
		return latency.Shape{}, fmt.Errorf(
			"latency model %s needs the model's config.json (hf_config_file, --model-config)", c.LatencyModel)
	}
	data, err := c.read(c.HFConfigFile)
	if err != nil {
		return latency.Shape{}, fmt.Errorf("model config: %w", err)
	}
	return latency.ParseShape(data, strings.TrimSuffix(filepath.Base(c.HFConfigFile), ".json"))
}

// Hardware finds the GPU, in the configuration's table or in the built-in one.
func (c *Config) Hardware() (latency.GPU, error) {
	table := latency.GPUs
	if c.HardwareFile != "" {
		data, err := c.read(c.HardwareFile)
		if err != nil {
			return latency.GPU{}, fmt.Errorf("hardware config: %w", err)
		}
		if table, err = latency.ParseGPUs(data); err != nil {
			return latency.GPU{}, err
		}
	}
	return latency.FindGPU(table, c.GPU)
}

// read opens a file named in the configuration: relative to the configuration's folder or one of its parents.
func (c *Config) read(name string) ([]byte, error) {
	data, err := os.ReadFile(name)
	if err == nil || filepath.IsAbs(name) || c.dir == "" {
		return data, err
	}
	dir, aerr := filepath.Abs(c.dir)
	if aerr != nil {
		return nil, aerr
	}
	for range 4 {
		if data, e := os.ReadFile(filepath.Join(dir, name)); e == nil {
			return data, nil
		}
		dir = filepath.Dir(dir)
	}
	return nil, err
}
