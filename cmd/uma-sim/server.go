package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/uma-serve/uma-serve/sched/trace"
	"github.com/uma-serve/uma-serve/sim"
	"github.com/uma-serve/uma-serve/sim/blis"
	"github.com/uma-serve/uma-serve/sim/blis/gpu"
	"github.com/uma-serve/uma-serve/sim/latency"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// serverFlags are the keys that describe the simulated server.
type serverFlags struct {
	fs     *pflag.FlagSet
	config string         // file of --server
	has    map[string]any // its keys
	model  string
	vllm   string
	cost   string
	busy   []string    // busy
	flags  blis.Config // the keys' values; only those that were given override the file
	mend   bool        // no_overlap defaults to true: no engine can overlap two steps
	target bool        // itl_target_ms is the verb's own
	warn   func(format string, args ...any)
}

// aliases are the names other tools use.
var aliases = map[string]string{
	"max-num-seqs": "max-num-running-reqs", "max-num-batched-tokens": "max-num-scheduled-tokens",
	"block-size":              "block-size-in-tokens",
	"num-gpu-blocks-override": "total-kv-blocks", "parallel": "max-num-running-reqs",
	"batch-size":           "max-num-scheduled-tokens",
	"tensor-parallel-size": "tp", "model-config-folder": "model-config", "scheduling-policy": "scheduler",
}

func (f *serverFlags) register(fs *pflag.FlagSet) {
	f.fs = fs
	f.warnTo(io.Discard)

	f.flags = blis.DefaultConfig()
	f.flags.NoOverlap = f.mend
	c := &f.flags
	fs.IntVar(&c.MaxRunning, "max-num-running-reqs", c.MaxRunning,
		"maximum requests per batch (vLLM: --max-num-seqs, uma-serve: --parallel)")
	fs.IntVar(&c.MaxScheduledTokens, "max-num-scheduled-tokens", c.MaxScheduledTokens,
		"maximum new tokens per step (vLLM: --max-num-batched-tokens, uma-serve: --batch-size)")
	fs.IntVar(&c.LongPrefill, "long-prefill-token-threshold", c.LongPrefill,
		"maximum prompt tokens of one request per step, 0 = no limit")
	fs.IntVar(&c.BlockTokens, "block-size-in-tokens", c.BlockTokens, "tokens per KV block")
	fs.IntVar(&c.KVBlocks, "total-kv-blocks", c.KVBlocks,
		"KV blocks on the device; without this key a published fit or the roofline sizes them")
	fs.IntVar(&c.KVCPUBlocks, "kv-cpu-blocks", 0, "KV blocks in host memory, 0 = no second tier")
	fs.IntVar(&c.KVDiskBlocks, "kv-disk-blocks", 0, "uma: KV blocks on disk, 0 = none")
	fs.BoolVar(&c.KVFabric, "kv-fabric", false, "uma: a fabric holds prefixes that no other tier has")
	fs.Float64SliceVar(&c.KVTierUs, "kv-tier-us", c.KVTierUs,
		"uma: microseconds per token for copies between pool and host memory, from and to disk, from and to the fabric")
	fs.IntVar(&c.KVPartTokens, "kv-part-tokens", c.KVPartTokens,
		"uma: tokens per copy; two copies fit between two steps")
	fs.StringVar(&c.KVTierModel, "kv-tier-model", c.KVTierModel, "model of the host tier: "+
		strings.Join(blis.TierModels, ", "))
	fs.Float64Var(&c.OffloadThreshold, "kv-offload-threshold", c.OffloadThreshold,
		"fraction of device blocks in use above which free ones move to the host")
	fs.Float64Var(&c.TransferBandwidth, "kv-transfer-bandwidth", c.TransferBandwidth,
		"bandwidth from host to device, in tokens per microsecond")
	fs.Int64Var(&c.TransferBaseUs, "kv-transfer-base-latency", 0,
		"microseconds added to each block copied from host to device")
	fs.IntVar(&c.MaxModelLen, "max-model-len", 0,
		"maximum tokens of a sequence, 0 = unlimited (roofline: from the model)")
	fs.StringVar(&c.Scheduler, "scheduler", c.Scheduler, "order of the wait queue: "+
		strings.Join(blis.Schedulers, ", "))
	fs.StringVar(&c.PriorityPolicy, "priority-policy", c.PriorityPolicy,
		"sort key of priority-fcfs and reverse-priority: "+strings.Join(blis.PriorityPolicies, ", "))
	fs.StringVar(&c.BatchFormation, "batch-formation", c.BatchFormation,
		"batching algorithm: vllm, or uma (uma-serve's scheduler)")
	fs.StringVar(&c.Policy, "policy", "", "uma: scheduling policy, as uma-serve --policy")
	fs.IntVar(&c.MaxQueue, "max-queue", 0, "uma: maximum queued requests, 0 = no limit")
	fs.Float64Var(&c.TickBudgetMs, "tick-budget-ms", 0,
		"uma: target duration of a step with prompt tokens, 0 = the daemon's default")
	fs.Float64Var(&c.GuardMs, "guard-ms", 0,
		"uma: pause prompts while an answer waits this long for a token, 0 = the daemon's default, < 0 = off")
	if !f.target {
		fs.Float64Var(&c.ITLTargetMs, "itl-target-ms", 0,
			"uma: ITL target of answers under meridian, 0 = the daemon's default")
	}
	fs.Float64Var(&c.ThinkFloorMs, "think-floor-ms", 0,
		"uma: maximum time between two tokens of a thought or a background answer, 0 = the scheduler's default")
	fs.IntVar(&c.Threads, "threads", 0, "uma: compute threads, on as many processors; 0 = not modelled")
	fs.BoolVar(&c.FixedThreads, "fixed-threads", false,
		"uma: keep all compute threads while other processes occupy processors")
	fs.StringSliceVar(&f.busy, "busy", nil,
		"uma, with threads: interval `FROM-TO[xPROCESSES]` in which busy processes run beside it, such as 5s-10sx3")
	fs.IntVar(&c.Speculate, "speculate", 0, "uma: maximum drafted tokens of a request per step, as uma-serve "+
		"--speculate, 0 = none")
	fs.Float64Var(&c.Repeat, "repeat", 0, "uma: share of the answers that repeats earlier text and can therefore be "+
		"drafted, 0…1")
	fs.IntVar(&c.ThinkBudget, "think-budget", 0,
		"uma: thinking tokens after which a think block is closed, 0 = no limit")
	fs.StringVar(&c.EarlyExit, "early-exit", "", "uma: signals that close a think block earlier, on modelled "+
		"entropies: off, eat, rpdi, both")
	fs.StringVar(&c.ThinkEvict, "think-evict", "", "uma: KV cells of a finished thought: none, offload (needs "+
		"kv_cpu_blocks), drop")
	fs.IntVar(&c.MaxBackground, "max-background", 0,
		"uma: maximum background requests that run at the same time, 0 = no limit")
	fs.BoolVar(&c.NoPrefixCache, "no-prefix-cache", false, "uma: do not share prefixes between prompts")
	fs.StringVar(&c.Engine, "engine", "",
		"uma: fake = run each batch on uma-serve's test engine, which tracks every KV cell (slower)")
	fs.StringVar(&c.LatencyModel, "latency-model", "", "source of step times: "+strings.Join(blis.LatencyModels, ", "))
	fs.Float64SliceVar(&c.Alpha, "alpha-coeffs", nil,
		"microseconds outside the engine: before the queue, per prompt token, per output token")
	fs.Float64SliceVar(&c.Beta, "beta-coeffs", nil, "microseconds of a step: fixed, per prompt token, per decode token")
	fs.StringVar(&f.cost, "cost-model", "",
		"calibrated: cost model `FILE` from uma-cli info --cost-model, uma-sim fit, or uma-serve's cache directory")
	fs.Float64Var(&c.CostNoise, "cost-noise", 0,
		"variance of step times around the cost model (default: from the cost model file)")
	fs.Float64SliceVar(&c.BetweenUs, "between-us", nil,
		"microseconds between two steps: fixed, per logits row (default: from the cost model file or the recording)")
	fs.StringVar(&f.model, "model", "", "model `NAME` in the table of published coefficients")
	fs.StringVar(&c.GPU, "hardware", "", "GPU: H100, A100-SXM, A100-80, L40S, or one of hardware_config_file")
	fs.IntVar(&c.TP, "tp", 1, "GPUs that share the model")
	fs.StringVar(&f.vllm, "vllm-version", "", "vLLM version of the published fit, if there are several")
	fs.StringVar(&c.HFConfigFile, "model-config", "", "Hugging Face config.json of the model: `FILE` or its folder")
	fs.StringVar(&c.HardwareFile, "hardware-config", "", "hardware table `FILE` (JSON) instead of the built-in one")
	fs.Float64Var(&c.MemoryShare, "gpu-memory-utilization", c.MemoryShare,
		"fraction of GPU memory for weights and KV cache (roofline sizing)")
	fs.BoolVar(&c.RooflineTwoPhase, "roofline-two-phase", false,
		"charge the prefill and the decode of a step one after the other")
	fs.Float64Var(&c.RooflineAllReduceGBs, "roofline-all-reduce-gbs", 0,
		"roofline, trained-roofline: bandwidth between GPUs in GB/s, 0 = infinite")
	fs.Float64Var(&c.RooflineAllReduceUs, "roofline-all-reduce-us", 0,
		"roofline, trained-roofline: latency of an all-reduce in microseconds; there are two per layer")
	fs.Float64Var(&c.RooflineLayerOverhead, "roofline-layer-overhead-us", 0,
		"kernel launch time per layer in microseconds")
	fs.StringVar(&c.Admission, "admission", c.Admission, "admission policy: "+strings.Join(sim.Admissions, ", "))
	fs.Float64Var(&c.BucketCapacity, "token-bucket-capacity", 0, "token-bucket: capacity in prompt tokens")
	fs.Float64Var(&c.BucketRefill, "token-bucket-refill-rate", 0,
		"token-bucket: refill rate in prompt tokens per second")
	fs.BoolVar(&c.DeferBatch, "defer-batch", false,
		"defer the classes batch and background until no other request runs")
	fs.BoolVar(&c.NoOverlap, "no-overlap", c.NoOverlap,
		"prevent the overlap of two steps after a batch drains, a behaviour of BLIS")
	fs.Int64Var(&c.Seed, "seed", c.Seed, "random seed")
	fs.Int64Var(&c.HorizonUs, "horizon", 0, "end of the simulation in microseconds, 0 = until nothing is left")
	fs.BoolVar(&c.StrictHorizon, "strict-horizon", false,
		"stop before the first event past the horizon instead of after it")
	fs.BoolVar(&c.RecordSteps, "record-steps", false, "report each step")
	fs.BoolVar(&c.RecordITL, "record-itl", false, "report each inter-token latency")
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if to, ok := aliases[name]; ok {
			name = to
		}
		return pflag.NormalizedName(name)
	})
}

// server builds the configuration: defaults, then the file or the recording that is the workload (nil: none), then
// keys, then what follows from the model.
func (f *serverFlags) server(work *workloadFlags) (blis.Config, error) {
	for _, text := range f.busy {
		b, err := sim.ParseBusy(text)
		if err != nil {
			return f.flags, fmt.Errorf("busy: %w", err)
		}
		f.flags.Busy = append(f.flags.Busy, b)
	}
	c := f.flags
	if work != nil {
		if err := work.prepare(); err != nil {
			return c, err
		}
	}
	if f.config != "" {
		data, err := os.ReadFile(f.config)
		if err != nil {
			return c, err
		}
		file, unknown, err := blis.ReadConfig(data, filepath.Dir(f.config))
		if err != nil {
			return c, fmt.Errorf("%s: %w", f.config, err)
		}
		for _, k := range unknown {
			if slices.Contains(serverOnly, k) {
				continue
			}
			f.warn("%s: key %q is unknown and ignored", f.config, k)
		}
		c = file
		if err := f.override(&c); err != nil {
			return c, err
		}
	} else if work != nil && work.recording != nil {
		c.SetRecorded(&work.recording.Config)
		if err := f.override(&c); err != nil {
			return c, err
		}
	}
	if err := f.costs(&c, work); err != nil {
		return c, err
	}
	if s, err := os.Stat(c.HFConfigFile); err == nil && s.IsDir() {
		c.HFConfigFile = filepath.Join(c.HFConfigFile, "config.json")
	}
	if err := f.chooseModel(&c); err != nil {
		return c, err
	}
	return c, c.Validate()
}

// costs reads the cost model, and takes from a recording what neither that nor a flag says.
func (f *serverFlags) costs(c *blis.Config, work *workloadFlags) error {
	var fitted *latency.Fitted
	switch {
	case f.cost != "":
		data, err := os.ReadFile(f.cost)
		if err != nil {
			return err
		}
		if fitted, err = latency.ParseCostModel(data); err != nil {
			return fmt.Errorf("%s: %w", f.cost, err)
		}
		if c.LatencyModel == "" || f.config != "" && !f.fs.Changed("latency-model") {
			c.LatencyModel = "calibrated"
		}
	case work != nil && work.recording != nil && f.model == "" && c.HFConfigFile == "" && len(c.Beta) == 0 &&
		len(c.CostModel) == 0:
		var err error
		if fitted, err = fitRecordings([]*trace.Trace{work.recording}, f.warn); err != nil {
			return fmt.Errorf("the recording has no step times; give a cost_model: %w", err)
		}
		c.LatencyModel = "calibrated"
	}
	if fitted != nil {
		c.CostModel, c.CostCurve = fitted.Us, fitted.Curve
		if !f.fs.Changed("cost-noise") {
			c.CostNoise, c.CostSpread = fitted.Noise, fitted.Spread
		}
		if !f.fs.Changed("between-us") {
			c.BetweenUs = fitted.Between
		}
		if c.Base == nil {
			c.CostState = fitted.State
		}
	}
	if work != nil && work.recording != nil && len(c.BetweenUs) == 0 && !f.fs.Changed("between-us") {
		samples, err := workload.StepCosts(work.recording)
		if err != nil {
			return err
		}
		c.BetweenUs = latency.FitBetween(samples)
	}
	return nil
}

// override copies the flags that were given over a configuration file.
func (f *serverFlags) override(c *blis.Config) error {
	flags, err := json.Marshal(f.flags)
	if err != nil {
		return err
	}
	var values map[string]json.RawMessage
	if err := json.Unmarshal(flags, &values); err != nil {
		return err
	}
	given := map[string]json.RawMessage{}
	f.fs.Visit(func(fl *pflag.Flag) {
		if key, ok := keyOf[fl.Name]; ok {
			if v, ok := values[key]; ok {
				given[key] = v
			} else {
				given[key] = json.RawMessage(zero(fl)) // omitted because it is the zero value
			}
		}
	})
	over, err := json.Marshal(given)
	if err != nil {
		return err
	}
	return json.Unmarshal(over, c)
}

func zero(fl *pflag.Flag) string {
	switch fl.Value.Type() {
	case "string":
		return `""`
	case "bool":
		return "false"
	case "float64Slice", "stringSlice":
		return "null"
	}
	return "0"
}

// keyOf is the name of a key in a configuration file.
var keyOf = func() map[string]string {
	m := map[string]string{
		"kv-transfer-base-latency": "kv_transfer_base_latency_us", "hardware": "gpu", "model-config": "hf_config_file",
		"hardware-config": "hardware_config_file", "horizon": "horizon_us",
	}
	for _, name := range []string{"max-num-running-reqs", "max-num-scheduled-tokens", "long-prefill-token-threshold",
		"block-size-in-tokens",
		"total-kv-blocks", "kv-cpu-blocks", "kv-tier-model", "kv-offload-threshold", "kv-transfer-bandwidth",
		"max-model-len", "scheduler",
		"priority-policy", "batch-formation", "policy", "max-queue", "tick-budget-ms", "guard-ms", "latency-model",
		"alpha-coeffs", "beta-coeffs",
		"tp", "gpu-memory-utilization", "roofline-two-phase", "roofline-all-reduce-gbs", "roofline-all-reduce-us",
		"roofline-layer-overhead-us",
		"admission",
		"itl-target-ms", "think-floor-ms", "max-background", "no-prefix-cache", "engine", "cost-noise", "between-us",
		"kv-disk-blocks", "kv-fabric", "kv-tier-us", "kv-part-tokens", "token-bucket-capacity",
		"token-bucket-refill-rate", "defer-batch", "speculate", "repeat", "no-overlap", "seed", "strict-horizon",
		"record-steps", "record-itl", "threads", "fixed-threads", "busy", "think-budget", "early-exit", "think-evict"} {
		m[name] = strings.ReplaceAll(name, "-", "_")
	}
	return m
}()

// chooseModel fills in what a model's name or shape decides.
func (f *serverFlags) chooseModel(c *blis.Config) error {
	if f.config == "" && (f.fs.Changed("alpha-coeffs") != f.fs.Changed("beta-coeffs")) && c.LatencyModel == "" &&
		f.fs.Changed("alpha-coeffs") {
		return usagef("alpha_coeffs needs beta_coeffs, which gives the time of a step")
	}
	if c.LatencyModel == "" {
		switch {
		case len(c.Beta) > 0 || f.model != "":
			c.LatencyModel = "blackbox"
		case c.HFConfigFile != "":
			c.LatencyModel = "roofline"
		default:
			return usagef("the time of a step is missing; the file of --server has it: beta_coeffs [A, B, C] " +
				"(microseconds), model with gpu and tp (published fits), hf_config_file with gpu (roofline), or " +
				"cost_model (measured by uma-serve)")
		}
	}
	if c.LatencyModel == "roofline" && f.config == "" && (len(c.Alpha) > 0 || len(c.Beta) > 0) {
		return usagef("alpha_coeffs and beta_coeffs are for the blackbox model; roofline computes its own")
	}
	if c.LatencyModel == "trained-roofline" && c.TP > 1 && (len(c.Beta) < 4 || c.Beta[3] == 0) {
		f.warn("trained-roofline: beta 3 is 0, so the all-reduce of tp %d takes no time", c.TP)
	}
	_, given := f.has["total_kv_blocks"]
	sized := f.fs.Changed("total-kv-blocks") || f.config != "" && (given || f.model == "") || c.Base != nil
	if c.LatencyModel == "blackbox" && f.model != "" && len(c.Beta) == 0 {
		fit, err := gpu.FindFit(f.model, c.GPU, c.TP, f.vllm)
		if err != nil {
			return err
		}
		c.Beta = fit.Beta
		if len(c.Alpha) == 0 {
			c.Alpha = fit.Alpha
		}
		if !sized && fit.Blocks > 0 {
			c.KVBlocks, sized = fit.Blocks, true
		}
	}
	if c.LatencyModel == "roofline" && f.config == "" {
		shape, err := c.Shape()
		if err != nil {
			return err
		}
		card, err := c.Hardware()
		if err != nil {
			return err
		}
		if !sized {
			n, err := gpu.KVBlocks(shape, card, c.TP, c.MemoryShare, c.BlockTokens)
			if err != nil {
				return err // BLIS continues with a million blocks that do not exist
			}
			c.KVBlocks, sized = n, true
		}
		if !f.fs.Changed("max-model-len") {
			c.MaxModelLen = gpu.MaxModelLen(shape, c.KVBlocks, c.BlockTokens)
		}
	}
	if !sized {
		f.warn("the KV cache has %d blocks of %d tokens by default (total_kv_blocks)", c.KVBlocks, c.BlockTokens)
	}
	return nil
}

func (f *serverFlags) warnTo(w io.Writer) {
	f.warn = func(format string, args ...any) { fmt.Fprintf(w, "uma-sim: "+format+"\n", args...) }
}
