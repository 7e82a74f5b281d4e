package daemon

import (
	"slices"
	"testing"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/sched"
)

// TestInfoShowsPolicyKnobs: info lists the options that the policy in use obeys, with their values, and no others.
func TestInfoShowsPolicyKnobs(t *testing.T) {
	ofOthers := map[string][]string{
		"uma": {"itl-target-ms", "think-floor-ms"}, "meridian": {"tick-budget-ms", "latency-guard-ms"},
		"stock":           {"itl-target-ms", "tick-budget-ms", "max-background", "start-budget"},
		"meridian_static": {"itl-target-ms", "tick-budget-ms", "max-background", "start-budget"},
	}
	own := map[string]wire.PolicyOption{
		"uma": policyOption("tick-budget-ms", 12), "meridian": policyOption("itl-target-ms", 34),
		"stock": policyOption("batch-size", 78), "meridian_static": policyOption("batch-size", 78),
	}
	for _, policy := range sched.Policies() {
		flags, c, _ := NewFlagSet()
		if err := flags.Parse([]string{"--policy", policy, "--tick-budget-ms", "12", "--itl-target-ms", "34",
			"--batch-size", "78", "--start-budget", "5"}); err != nil {
			t.Fatal(err)
		}
		got := c.policyOptions()
		if !slices.Contains(got, own[policy]) {
			t.Errorf("%s: %v lacks %v", policy, got, own[policy])
		}
		for _, o := range got {
			if flags.Lookup(o.Name) == nil && meridianKeys[o.Name] == 0 {
				t.Errorf("%s: %q is no option", policy, o.Name)
			}
			if slices.Contains(ofOthers[policy], o.Name) {
				t.Errorf("%s does not obey %s", policy, o.Name)
			}
		}
	}
}
