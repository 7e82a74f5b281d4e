package opening

import (
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sched"
)

// The options as the configurations of other packages: the scheduler's, the core's and the engine's.

func msDuration(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// Durations of steps that compute only prompts, on an engine whose steps can be aborted. Short steps take longer per
// token (see sched.Config.SoloLimit); in long ones another client's request waits for the end of the step.
const (
	SoloBudget = 400 * time.Millisecond
	SoloLimit  = 1500 * time.Millisecond
)

// schedulerConfig returns the scheduler's configuration for an open engine.
func schedulerConfig(c *config.Config, caps runtime.Capabilities) sched.Config {
	s := sched.Config{
		Policy: c.Policy, MaxRunning: min(c.Parallel, core.MaxRunning(caps.MaxSequences)),
		Cells: caps.ContextTokens, MaxBatch: caps.MaxBatch,
		FirstPrefill: sched.DefaultFirstPrefill, TickBudget: msDuration(c.TickBudgetMs), Guard: msDuration(c.GuardMs),
		MaxQueue: c.MaxQueue, StartBudget: c.StartTargetTokens,
		ITLTarget: msDuration(c.Meridian.ITLTargetMs), ThinkFloor: msDuration(c.Meridian.ThinkFloorMs),
		ThinkMultiplier: c.Meridian.ThinkBatchMultiplier,
	}
	if caps.CanAbort && !caps.Seals {
		s.SoloBudget, s.SoloLimit = max(SoloBudget, 8*s.TickBudget), SoloLimit
	}
	s.EveryRows = caps.MaxEmbeddingRows
	s.Limits[sched.Interactive].MaxQueue = c.Limits.InteractiveQueue
	s.Limits[sched.Background].MaxQueue = c.Limits.BackgroundQueue
	s.Limits[sched.Interactive].StepTokens = c.Limits.InteractiveTokens
	s.Limits[sched.Background].StepTokens = c.Limits.BackgroundTokens
	return s
}

// CoreConfig returns the core's configuration for an open engine.
func CoreConfig(c *config.Config, caps runtime.Capabilities, info runtime.ModelInfo,
	cost sched.CostState) core.Config {
	cc := core.Config{
		Sched:     schedulerConfig(c, caps),
		Sequences: caps.MaxSequences, CellBytes: info.KVBytesPerToken, BlockCells: c.KVBlockTokens,
		ShareSystem:   c.SharePrefixes == "system",
		NoPrefixCache: c.NoPrefixCache,
		Seals:         caps.Seals, CanShift: caps.CanShift, ContextShift: c.ContextShift,
		Longest:    c.Longest(caps.ContextTokens),
		ThinkEvict: c.ThinkEvict,
		PartTokens: core.PartTokensOf(info.KVBytesPerToken, caps.SnapshotTokens),
	}
	cc.Sched.Cost = cost
	cc.Synthetic, _ = c.SyntheticRates() // validated by Load
	if info.Encoder {
		cc.Sched.Cells = encoderCells(c, caps)
	}
	return cc
}

// encoderCells returns the number of cells in the ledger of an engine without KV memory: enough for --parallel texts of
// full length, each with the cell that the scheduler reserves for a next token. These cells take no memory.
func encoderCells(c *config.Config, caps runtime.Capabilities) int {
	return c.Parallel * (caps.ContextTokens + 1)
}

// EngineOptions returns the options with which the engine of the model at path is opened.
func EngineOptions(c *config.Config, path string) runtime.Options {
	sequences, sealBytes := c.Sequences(path)
	layers, placed := engineLayers(c)
	return runtime.Options{
		ModelPath: path, ContextTokens: c.ContextTokens(path), Batch: c.BatchSize, MicroBatch: c.UBatchSize,
		Sequences: sequences, SealBytes: sealBytes,
		Threads: c.Threads, GPULayers: layers, Placed: placed, CPUMoE: c.CPUMoE,
		FlashAttn: c.FlashAttn, KVTypeK: c.CacheTypeK, KVTypeV: c.CacheTypeV, NoKVOffload: c.NoKVOffload,
		MLock: c.MLock, NoMMap: c.NoMMap, NoRepack: c.NoRepack, Kernels: c.Kernels,
		Projector: c.Projector(), ProjectorFound: c.MMProjFound,
		Head: c.NoHead() == "",
	}
}

// allLayers as runtime.Options.GPULayers.
const allLayers = -1

// engineLayers returns how many layers the engine puts on devices, and which on which.
func engineLayers(c *config.Config) (n int, on []runtime.DeviceLayers) {
	switch {
	case c.Place != nil:
		return c.Place.Layers(), c.Place.On
	case c.GPULayers < 0:
		return allLayers, nil
	}
	return c.GPULayers, nil
}

// Limits of the draft model's engine.
const (
	draftSequences = 16  // requests for which it drafts at once
	draftBatch     = 512 // tokens of a Decode
)

// DraftOptions returns the options with which the draft model's engine is opened.
func DraftOptions(c *config.Config) runtime.Options {
	layers, placed := engineLayers(c)
	if c.Place != nil && len(placed) > 0 && c.Place.Draft != "" { // whole on one device
		layers, placed = allLayers, []runtime.DeviceLayers{{Device: c.Place.Draft, Layers: 1}}
	}
	return runtime.Options{
		ModelPath: c.DraftModel, ContextTokens: c.DraftContextTokens(), Batch: min(draftBatch, c.BatchSize),
		MicroBatch: min(draftBatch, c.UBatchSize), Sequences: min(draftSequences, c.Parallel), Threads: c.Threads,
		GPULayers: layers, Placed: placed, FlashAttn: c.FlashAttn, NoKVOffload: c.NoKVOffload,
		MLock: c.MLock, NoMMap: c.NoMMap, NoRepack: c.NoRepack, Kernels: c.Kernels,
	}
}

// HeadOptions returns the options with which the head of the model's file is opened.
func HeadOptions(c *config.Config) runtime.HeadOptions {
	return runtime.HeadOptions{ContextTokens: c.HeadContextTokens(), Batch: min(draftBatch, c.BatchSize),
		Sequences: min(draftSequences, c.Parallel)}
}
