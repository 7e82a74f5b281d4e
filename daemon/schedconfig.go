package daemon

import (
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sched"
)

// scheduler is what the options mean to the scheduler of an engine.
func (c *Config) scheduler(caps runtime.Capabilities) sched.Config {
	s := sched.Config{
		Policy: c.Policy, MaxRunning: c.Parallel, Cells: caps.ContextTokens, MaxBatch: caps.MaxBatch,
		FirstPrefill: sched.DefaultFirstPrefill, TickBudget: msDuration(c.TickBudgetMs), Guard: msDuration(c.GuardMs), MaxQueue: c.MaxQueue,
		ITLTarget: msDuration(c.Meridian.ITLTargetMs), ThinkFloor: msDuration(c.Meridian.ThinkFloorMs),
		ThinkMultiplier: c.Meridian.ThinkBatchMultiplier,
	}
	s.Limits[sched.Background].MaxRunning = c.MaxBackground
	return s
}

// PolicyOption is an option that the policy in use obeys, with its value in the unit its name ends with.
type PolicyOption struct {
	Name  string  `json:"name"` // of the command line, or of the file's [meridian] table
	Value float64 `json:"value"`
}

// policyOptions are the options that change what the configured policy does; the others of the section Scheduling belong to
// other policies.
func (c *Config) policyOptions() []PolicyOption {
	target := PolicyOption{"itl-target-ms", c.Meridian.ITLTargetMs}
	batch := PolicyOption{"batch-size", float64(c.BatchSize)}
	multiplier := PolicyOption{"think_batch_multiplier", c.Meridian.ThinkBatchMultiplier}
	background := PolicyOption{"max-background", float64(c.MaxBackground)}
	switch c.Policy {
	case "meridian":
		return []PolicyOption{target, {"think-floor-ms", c.Meridian.ThinkFloorMs}, multiplier, background}
	case "pascal":
		return []PolicyOption{target, background}
	case "uma":
		return []PolicyOption{{"tick-budget-ms", c.TickBudgetMs}, {"latency-guard-ms", c.GuardMs}, background}
	case "meridian_static":
		return []PolicyOption{multiplier, batch}
	}
	return []PolicyOption{batch}
}
