package sim

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/core"
)

// Validate checks every field. The error names each wrong one.
func (c *Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	positive := func(name string, v, most int) {
		if v <= 0 || v > most {
			bad("%s = %d: must be between 1 and %d", name, v, most)
		}
	}
	positive("max_num_running_reqs", c.MaxRunning, 1<<24)
	positive("max_num_scheduled_tokens", c.MaxScheduledTokens, 1<<30)
	positive("block_size_in_tokens", c.BlockTokens, 1<<24)
	positive("total_kv_blocks", c.KVBlocks, math.MaxInt32)
	if c.MaxModelLen < 0 {
		bad("max_model_len = %d: must be ≥ 0", c.MaxModelLen)
	}
	if c.HorizonUs < 0 {
		bad("horizon_us = %d: must be ≥ 0 (0 = unlimited)", c.HorizonUs)
	}
	if c.MaxModelLen > 0 && c.BlockTokens > 0 && (c.MaxModelLen+c.BlockTokens-1)/c.BlockTokens > c.KVBlocks {
		bad("the cache is too small for max_model_len: %d tokens need %d blocks of %d, total_kv_blocks is %d",
			c.MaxModelLen, (c.MaxModelLen+c.BlockTokens-1)/c.BlockTokens, c.BlockTokens, c.KVBlocks)
	}
	if c.KVCPUBlocks < 0 || c.KVCPUBlocks > math.MaxInt32 {
		bad("kv_cpu_blocks = %d: must be between 0 and %d", c.KVCPUBlocks, math.MaxInt32)
	}
	if c.KVDiskBlocks < 0 || c.KVDiskBlocks > math.MaxInt32 {
		bad("kv_disk_blocks = %d: must be between 0 and %d", c.KVDiskBlocks, math.MaxInt32)
	}
	if c.BatchFormation == "uma" && c.KVCPUBlocks == 0 && (c.KVDiskBlocks > 0 || c.KVFabric) {
		bad("kv_disk_blocks and kv_fabric need the host tier, as uma-serve does: kv_cpu_blocks is 0")
	}
	if len(c.KVTierUs) != 3 || slices.ContainsFunc(c.KVTierUs,
		func(us float64) bool { return !(us >= 0 && us < 1e9) }) {
		bad("kv_tier_us = %v: must be three numbers ≥ 0, microseconds a token of the host, disk and fabric", c.KVTierUs)
	}
	positive("kv_part_tokens", c.KVPartTokens, 1<<20)
	if c.ThinkBudget < 0 || c.ThinkBudget > 1<<24 {
		bad("think_budget = %d: must be between 0 and %d", c.ThinkBudget, 1<<24)
	}
	c.checkBusy(bad)
	errs = append(errs,
		OneOf("engine", c.Engine, Engines),
		OneOf("early_exit", c.EarlyExit, EarlyExits),
		OneOf("think_evict", c.ThinkEvict, ThinkEvicts),
		OneOf("admission", c.Admission, Admissions))
	if c.BatchFormation != "uma" && c.Batcher == nil {
		bad("batch_formation %q has no batcher; uma needs none", c.BatchFormation)
	}
	if c.Speculate < 0 || c.Speculate > core.MaxGuess {
		bad("speculate = %d: must be between 0 and %d", c.Speculate, core.MaxGuess)
	}
	if !(c.Repeat >= 0 && c.Repeat < 1) {
		bad("repeat = %v: must be in [0, 1), the share of answers that repeats earlier text", c.Repeat)
	}
	if !(c.CostNoise >= 0 && c.CostNoise <= 1) {
		bad("cost_noise = %v: must be in [0, 1], the variance of took / predicted", c.CostNoise)
	}
	if err := errors.Join(c.CostCurve.Check(), c.CostSpread.Check()); err != nil {
		errs = append(errs, err)
	}
	if len(c.BetweenUs) != 0 && (len(c.BetweenUs) != 2 ||
		!(c.BetweenUs[0] >= 0 && c.BetweenUs[0] < 1e9 && c.BetweenUs[1] >= 0 && c.BetweenUs[1] < 1e9)) {
		bad("between_us = %v: must be two numbers ≥ 0, microseconds a step and a row", c.BetweenUs)
	}
	if c.Admission == "token-bucket" && !(c.BucketCapacity > 0 && c.BucketRefill > 0) {
		bad("token-bucket admission needs token_bucket_capacity and token_bucket_refill_rate > 0")
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("config: %w", err)
	}
	return nil
}

// OneOf is the error for a name that is none of the valid ones.
func OneOf(field, got string, valid []string) error {
	if slices.Contains(valid, got) {
		return nil
	}
	return fmt.Errorf("%s %q is unknown; valid are %s", field, got, strings.Join(valid, ", "))
}
