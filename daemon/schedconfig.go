package daemon

import (
	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sched"
)

// scheduler is what the options mean to the scheduler of an engine.
func (c *Config) scheduler(caps runtime.Capabilities) sched.Config {
	s := sched.Config{
		Policy: c.Policy, Prefix: true, MaxRunning: c.Parallel, Cells: caps.ContextTokens, MaxBatch: caps.MaxBatch, Forks: core.ScratchSeqs - 1,
		TickBudget: msDuration(c.TickBudgetMs), Guard: msDuration(c.GuardMs), MaxQueue: c.MaxQueue,
		ITLTarget: msDuration(c.Meridian.OutputTPOTBudgetMs), ThinkFloor: msDuration(c.Meridian.ThinkTPOTBudgetMs),
		ThinkMultiplier: c.Meridian.ThinkBatchMultiplier,
	}
	s.Limits[sched.Background].MaxRunning = c.MaxBackground
	return s
}
