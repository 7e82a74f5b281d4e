package daemon

import (
	"time"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sched"
)

// Durations of steps that compute only prompts, on an engine whose steps can be aborted. Short steps take longer per
// token (see sched.Config.SoloLimit); in long ones another client's request waits for the end of the step.
const (
	soloBudget = 400 * time.Millisecond
	soloLimit  = 1500 * time.Millisecond
)

// scheduler returns the scheduler's configuration for an open engine.
func (c *Config) scheduler(caps runtime.Capabilities) sched.Config {
	s := sched.Config{
		Policy: c.Policy, MaxRunning: c.Parallel, Cells: caps.ContextTokens, MaxBatch: caps.MaxBatch,
		FirstPrefill: sched.DefaultFirstPrefill, TickBudget: msDuration(c.TickBudgetMs), Guard: msDuration(c.GuardMs),
		MaxQueue: c.MaxQueue, StartBudget: c.StartBudget,
		ITLTarget: msDuration(c.Meridian.ITLTargetMs), ThinkFloor: msDuration(c.Meridian.ThinkFloorMs),
		ThinkMultiplier: c.Meridian.ThinkBatchMultiplier,
	}
	if caps.CanAbort && caps.CanRemoveRange {
		s.SoloBudget, s.SoloLimit = max(soloBudget, 8*s.TickBudget), soloLimit
	}
	s.EveryRows = caps.MaxEmbeddingRows
	s.Limits[sched.Background].MaxRunning = c.MaxBackground
	return s
}

// engineOptions returns the options with which the engine of the model at path is opened.
func (c *Config) engineOptions(path string) runtime.Options {
	return runtime.Options{
		ModelPath: path, ContextTokens: c.contextTokens(path), Batch: c.BatchSize, MicroBatch: c.UBatchSize,
		Sequences: c.kvSequences(path), Threads: c.Threads, ThreadsBatch: c.ThreadsBatch, GPULayers: c.GPULayers,
		FlashAttn: c.FlashAttn, KVTypeK: c.CacheTypeK, KVTypeV: c.CacheTypeV, NoKVOffload: c.NoKVOffload,
		MLock: c.MLock, NoMMap: c.NoMMap, NoRepack: c.NoRepack, Kernels: c.Kernels,
	}
}

// encoderCells returns the number of cells in the ledger of an engine without KV memory: enough for --parallel texts of
// full length, each with the cell that the scheduler reserves for a next token. These cells take no memory.
func (c *Config) encoderCells(caps runtime.Capabilities) int {
	return c.Parallel * (caps.ContextTokens + 1)
}

// policyOptions returns the scheduling options that the configured policy uses.
func (c *Config) policyOptions() []wire.PolicyOption {
	target := policyOption("itl-target-ms", c.Meridian.ITLTargetMs)
	batch := policyOption("batch-size", float64(c.BatchSize))
	multiplier := policyOption("think_batch_multiplier", c.Meridian.ThinkBatchMultiplier)
	background := policyOption("max-background", float64(c.MaxBackground))
	start := policyOption("start-budget", float64(c.StartBudget))
	switch c.Policy {
	case "meridian":
		floor := policyOption("think-floor-ms", c.Meridian.ThinkFloorMs)
		return []wire.PolicyOption{target, floor, multiplier, start, background}
	case "uma":
		budget, guard := policyOption("tick-budget-ms", c.TickBudgetMs), policyOption("latency-guard-ms", c.GuardMs)
		return []wire.PolicyOption{budget, guard, start, background}
	case "meridian_static":
		return []wire.PolicyOption{multiplier, batch}
	}
	return []wire.PolicyOption{batch}
}

func policyOption(name string, value float64) wire.PolicyOption {
	return wire.PolicyOption{Name: name, Value: value}
}
