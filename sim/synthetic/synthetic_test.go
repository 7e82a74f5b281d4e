package synthetic

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/sched"
)

// TestRun checks what holds for every policy: each request ends exactly once, each reasoning request has one TTOT, a
// think block is never longer than the budget, and two runs are the same bytes.
func TestRun(t *testing.T) {
	for _, policy := range sched.Policies() {
		t.Run(policy, func(t *testing.T) {
			cfg := DefaultConfig()
			cfg.Sched.Policy, cfg.Workload.Requests = policy, 120
			rep, err := Run(cfg)
			if err != nil {
				t.Fatal(err)
			}
			again, err := Run(cfg)
			if err != nil {
				t.Fatal(err)
			}
			a, _ := json.Marshal(rep)
			b, _ := json.Marshal(again)
			if !bytes.Equal(a, b) {
				t.Error("two runs differ")
			}
			if rep.Requests != 120 || rep.Completed+rep.Rejected != 120 || rep.Rejected != 0 {
				t.Errorf("%d requests, %d completed, %d rejected", rep.Requests, rep.Completed, rep.Rejected)
			}
			if rep.Reasoning == 0 || rep.TTOT.N != rep.Reasoning || rep.TTFT.N != 120 {
				t.Errorf("%d reasoning requests, %d TTOT, %d TTFT", rep.Reasoning, rep.TTOT.N, rep.TTFT.N)
			}
			if rep.ThinkP95 > float64(cfg.ThinkBudget) || rep.BudgetForced["hard_cap"] == 0 {
				t.Errorf("think p95 %v under a budget of %d, forced %v", rep.ThinkP95, cfg.ThinkBudget,
					rep.BudgetForced)
			}
			if rep.OutputITL.P50 <= 0 || rep.OutputITL.P50 > rep.OutputITL.P95 ||
				rep.OutputITL.P95 > rep.OutputITL.P99 {
				t.Errorf("output ITL %+v", rep.OutputITL)
			}
		})
	}
}

// TestPressure: a cache that is too small for all costs preemptions, and no request is lost.
func TestPressure(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Sched.Cells, cfg.Workload.Requests, cfg.Workload.Rate = 9000, 60, 50
	rep, err := Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if rep.Completed != 60 || rep.Preemptions == 0 {
		t.Errorf("%d completed, %d preemptions", rep.Completed, rep.Preemptions)
	}
}

// TestTierOrder: in a pool a quarter as large as the thoughts and answers want, prefixes and thoughts make room, and no
// answer loses a block while a lower tier has one; with a host tier, evicted cells come back.
func TestTierOrder(t *testing.T) {
	for _, policy := range sched.Policies() {
		for _, evict := range []string{"none", "offload", "drop"} {
			if testing.Short() && evict != "offload" {
				continue
			}
			cfg := DefaultConfig()
			cfg.Sched.Policy, cfg.ThinkEvict, cfg.Sched.Cells = policy, evict, 12000
			cfg.HostTokens, cfg.HostUs = 12000, 1
			cfg.Workload.Requests, cfg.Workload.Rate = 100, 50
			cfg.Decoder = Decoder{StepUs: 4300, PrefillUs: 400, ThinkUs: 300, OutputUs: 300}
			cfg.Meridian.EarlyExit = meridian.ExitBoth
			rep, err := Run(cfg)
			if err != nil {
				t.Fatalf("%s, %s: %v", policy, evict, err)
			}
			if rep.Completed != 100 || rep.AvoidableEvictions != 0 || rep.EvictedBlocks["prefix"] == 0 ||
				rep.EvictedBlocks["think_active"] == 0 || rep.RestoredTokens["host"] == 0 {
				t.Errorf("%s, %s: %d completed, %d avoidable evictions of answers, evicted %v, restored %v", policy,
					evict, rep.Completed, rep.AvoidableEvictions, rep.EvictedBlocks, rep.RestoredTokens)
			}
			if rep.Probes == 0 || rep.BudgetForced["converged"] == 0 || rep.BudgetForced["overthinking"] == 0 {
				t.Errorf("%s, %s: %d probes, forced %v", policy, evict, rep.Probes, rep.BudgetForced)
			}
		}
	}
}

func TestConfigErrors(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"rate":    func(c *Config) { c.Workload.Rate = 0 },
		"ratio":   func(c *Config) { c.Workload.ReasoningRatio = 1.5 },
		"decoder": func(c *Config) { c.Decoder.OutputUs = -1 },
		"policy":  func(c *Config) { c.Sched.Policy = "nope" },
	} {
		cfg := DefaultConfig()
		change(&cfg)
		if _, err := Run(cfg); err == nil || !strings.Contains(strings.ToLower(err.Error()), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
