package blis

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/sim"
	"github.com/uma-serve/uma-serve/sim/blis/gpu"
	"github.com/uma-serve/uma-serve/sim/blis/kv"
	"github.com/uma-serve/uma-serve/sim/latency"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// Config is one server of BLIS, or with batch formation uma one of uma-serve. The JSON keys are those of a
// configuration file; DefaultConfig has the defaults.
type Config struct {
	sim.Config

	Scheduler      string `json:"scheduler"`
	PriorityPolicy string `json:"priority_policy"`
	// LongPrefill is the maximum of prompt tokens of one request in a step; 0 = no limit.
	LongPrefill int `json:"long_prefill_token_threshold"`

	KVTierModel       string  `json:"kv_tier_model,omitempty"`
	OffloadThreshold  float64 `json:"kv_offload_threshold"`  // share of blocks in use, [0, 1]
	TransferBandwidth float64 `json:"kv_transfer_bandwidth"` // a block's tokens are divided by it: ticks a block
	TransferBaseUs    int64   `json:"kv_transfer_base_latency_us"`

	TP           int     `json:"tp"`
	GPU          string  `json:"gpu,omitempty"`
	HFConfigFile string  `json:"hf_config_file,omitempty"`
	HardwareFile string  `json:"hardware_config_file,omitempty"`
	MemoryShare  float64 `json:"gpu_memory_utilization,omitempty"`

	RooflineTwoPhase      bool    `json:"roofline_two_phase,omitempty"`
	RooflineAllReduceGBs  float64 `json:"roofline_all_reduce_gbs,omitempty"` // of trained-roofline, too
	RooflineAllReduceUs   float64 `json:"roofline_all_reduce_us,omitempty"`  // likewise
	RooflineLayerOverhead float64 `json:"roofline_layer_overhead_us,omitempty"`

	dir string // where relative file names are looked for
}

// TierModels, BatchFormations and LatencyModels are valid names, the default first.
var (
	TierModels      = []string{"offload", "mirror"}
	BatchFormations = []string{"vllm", "uma"}
	LatencyModels   = []string{"blackbox", "roofline", "crossmodel", "trained-roofline", "calibrated"}
)

// DefaultConfig returns the defaults of a configuration file.
func DefaultConfig() Config {
	c := Config{
		Config: sim.DefaultConfig(), Scheduler: "fcfs", PriorityPolicy: "constant",
		KVTierModel: "offload", OffloadThreshold: 0.9, TransferBandwidth: 100, TP: 1, MemoryShare: 0.9,
	}
	c.BatchFormation = "vllm"
	return c
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
	for k := range keys {
		if !known[k] {
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

// known are the keys of a configuration file.
var known = func() map[string]bool {
	m := map[string]bool{}
	for _, t := range []reflect.Type{reflect.TypeFor[Config](), reflect.TypeFor[sim.Config]()} {
		for f := range t.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			m[name] = name != "" && name != "-"
		}
	}
	return m
}()

// Validate checks every field. The error names each wrong one.
func (c *Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("config: "+format, args...)) }
	if c.LongPrefill < 0 {
		bad("long_prefill_token_threshold = %d: must be ≥ 0", c.LongPrefill)
	}
	if c.KVCPUBlocks > 0 {
		if !(c.OffloadThreshold >= 0 && c.OffloadThreshold <= 1) {
			bad("kv_offload_threshold = %v: must be in [0, 1]", c.OffloadThreshold)
		}
		if !(c.TransferBandwidth > 0) || math.IsInf(c.TransferBandwidth, 0) {
			bad("kv_transfer_bandwidth = %v: must be finite and > 0", c.TransferBandwidth)
		}
		if c.TransferBaseUs < 0 {
			bad("kv_transfer_base_latency_us = %d: must be ≥ 0", c.TransferBaseUs)
		}
	}
	errs = append(errs,
		sim.OneOf("scheduler", c.Scheduler, Schedulers),
		sim.OneOf("priority_policy", c.PriorityPolicy, PriorityPolicies),
		sim.OneOf("batch_formation", c.BatchFormation, BatchFormations),
		sim.OneOf("kv_tier_model", c.KVTierModel, TierModels),
		sim.OneOf("latency_model", c.LatencyModel, LatencyModels))
	s := c.Server()
	return errors.Join(append(errs, s.Validate())...)
}

// Server returns the configuration for package sim, with the rules of BLIS for batch formation vllm.
func (c *Config) Server() sim.Config {
	s := c.Config
	if c.BatchFormation == "vllm" {
		r := c.rules()
		s.Batcher = func(admitted, preempted func(*sim.Request)) sim.Batcher {
			return newServer(r, admitted, preempted)
		}
	}
	return s
}

// Run is sim.Run for this configuration.
func Run(cfg Config, src workload.Source) (*sim.Report, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	model, err := cfg.Latency()
	if err != nil {
		return nil, err
	}
	return sim.RunModel(cfg.Server(), model, src, sim.Options{})
}

// rules returns those of batch formation vllm.
func (c *Config) rules() rules {
	k := kv.Config{BlockTokens: c.BlockTokens, Blocks: c.KVBlocks}
	if c.KVCPUBlocks > 0 {
		k.Tier, k.HostBlocks, k.OffloadThreshold = kv.Offload, c.KVCPUBlocks, c.OffloadThreshold
		if c.KVTierModel == "mirror" {
			k.Tier = kv.Mirror
		}
		k.ReloadTicks = c.TransferBaseUs + latency.Ticks(math.Ceil(float64(c.BlockTokens)/c.TransferBandwidth))
	}
	return rules{
		maxRunning: c.MaxRunning, maxTokens: c.MaxScheduledTokens, longPrefill: c.LongPrefill,
		maxModelLen: c.MaxModelLen, scheduler: c.Scheduler, priority: c.PriorityPolicy, cache: k,
	}
}

// Latency builds the latency model that the configuration names, reading the files it names.
func (c *Config) Latency() (latency.Model, error) {
	if c.LatencyModel == "blackbox" || c.LatencyModel == "calibrated" {
		return c.Config.Latency()
	}
	shape, err := c.Shape()
	if err != nil {
		return nil, err
	}
	if c.LatencyModel == "crossmodel" {
		return gpu.NewCrossModel(c.Alpha, c.Beta, shape, c.TP)
	}
	g, err := c.Hardware()
	if err != nil {
		return nil, err
	}
	sums := gpu.AllReduce{GBs: c.RooflineAllReduceGBs, Us: c.RooflineAllReduceUs}
	if c.LatencyModel == "trained-roofline" {
		return gpu.NewTrainedRoofline(c.Alpha, c.Beta, shape, g, c.TP, sums)
	}
	alpha := c.Alpha
	if len(alpha) == 0 {
		alpha = []float64{0, 0, 0}
	}
	return gpu.NewRoofline(alpha, shape, g, c.TP, gpu.RooflineOptions{
		TwoPhase: c.RooflineTwoPhase, AllReduce: sums, LayerOverhead: c.RooflineLayerOverhead})
}

// Shape reads the model's config.json.
func (c *Config) Shape() (gpu.Shape, error) {
	if c.HFConfigFile == "" {
		return gpu.Shape{}, fmt.Errorf(
			"latency model %s needs the model's config.json (hf_config_file)", c.LatencyModel)
	}
	data, err := c.read(c.HFConfigFile)
	if err != nil {
		return gpu.Shape{}, fmt.Errorf("model config: %w", err)
	}
	return gpu.ParseShape(data, strings.TrimSuffix(filepath.Base(c.HFConfigFile), ".json"))
}

// Hardware finds the GPU, in the configuration's table or in the built-in one.
func (c *Config) Hardware() (gpu.GPU, error) {
	table := gpu.GPUs
	if c.HardwareFile != "" {
		data, err := c.read(c.HardwareFile)
		if err != nil {
			return gpu.GPU{}, fmt.Errorf("hardware config: %w", err)
		}
		if table, err = gpu.ParseGPUs(data); err != nil {
			return gpu.GPU{}, err
		}
	}
	return gpu.FindGPU(table, c.GPU)
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
