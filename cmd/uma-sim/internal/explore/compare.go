package explore

import (
	"fmt"
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sim"
	"github.com/uma-serve/uma-serve/sim/blis"
)

// SetPolicy makes cfg use a policy: NAME is one of package sched's (batch formation uma), vllm:SCHEDULER or
// vllm:SCHEDULER/PRIORITY one of BLIS's.
func SetPolicy(cfg *blis.Config, policy string) error {
	rest, vllm := strings.CutPrefix(policy, "vllm:")
	if !vllm {
		name := strings.TrimPrefix(policy, "uma:")
		if !slices.Contains(sched.Policies(), name) {
			return fmt.Errorf("policy %q is unknown; valid are %s, and vllm:SCHEDULER with %s", policy,
				strings.Join(sched.Policies(), ", "), strings.Join(blis.Schedulers, ", "))
		}
		cfg.BatchFormation, cfg.Policy = "uma", name
		return nil
	}
	cfg.BatchFormation = "vllm"
	cfg.Scheduler, cfg.PriorityPolicy, _ = strings.Cut(rest, "/")
	if cfg.PriorityPolicy == "" {
		cfg.PriorityPolicy = "constant"
	}
	if !slices.Contains(blis.Schedulers, cfg.Scheduler) || !slices.Contains(blis.PriorityPolicies, cfg.PriorityPolicy) {
		return fmt.Errorf("policy %q is unknown; schedulers are %s, priorities %s", policy,
			strings.Join(blis.Schedulers, ", "), strings.Join(blis.PriorityPolicies, ", "))
	}
	return nil
}

// Comparison is policies side by side on one workload.
type Comparison struct {
	Title   string        `json:"title"`
	Rows    []Summary     `json:"policies"`
	Reports []*sim.Report `json:"-"`
}

// Compare runs each policy on the same workload.
func Compare(title string, base blis.Config, policies []string, run func(blis.Config) (*sim.Report, error),
	done func()) (*Comparison, error) {
	var jobs []Job
	for _, p := range policies {
		cfg := base
		if err := SetPolicy(&cfg, p); err != nil {
			return nil, err
		}
		jobs = append(jobs, Job{p, func() (*sim.Report, error) { return run(cfg) }})
	}
	reports, err := Parallel(jobs, func(_ Job, rep *sim.Report) *sim.Report { return rep }, done)
	if err != nil {
		return nil, err
	}
	c := &Comparison{Title: title, Reports: reports}
	for i, rep := range reports {
		c.Rows = append(c.Rows, Summarise(policies[i], rep))
	}
	return c, nil
}
