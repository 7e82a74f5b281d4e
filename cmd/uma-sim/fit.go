package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sim/latency"
	"github.com/uma-serve/uma-serve/sim/workload"
)

func newFit() *cobra.Command {
	var recorded string
	c := &cobra.Command{
		Use:   "fit",
		Short: "Fit a cost model to what a uma-serve has recorded",
		Long: `Fit the cost model tick = a + b·prefill tokens + c·decode tokens + d·attended KV tokens (milliseconds) to the steps that a
uma-serve has recorded (uma-serve --trace FILE, or UMA_TRACE), and print it in the form that --cost-model reads, with how far
steps lie around it (noise) and what passes between two of them (between: milliseconds a step and a row).

  uma-sim fit --uma-trace recorded.txt > cost.json
  uma-sim run --cost-model cost.json --batch-formation uma --uma-trace recorded.txt`,
	}
	c.Flags().StringVar(&recorded, "uma-trace", "", "`FILE` that uma-serve recorded (UMA_TRACE)")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if recorded == "" {
			return usagef("--uma-trace is missing")
		}
		t, err := readFile(recorded, readTrace)
		if err != nil {
			return err
		}
		fitted, err := fitRecording(t, func(format string, args ...any) { fmt.Fprintf(c.ErrOrStderr(), format+"\n", args...) })
		if err != nil {
			return err
		}
		enc := json.NewEncoder(c.OutOrStdout())
		enc.SetIndent("", "  ")
		return enc.Encode(fitted)
	}
	return c
}

// fitRecording fits a cost model to a recording's steps, and says how well.
func fitRecording(t *sched.Trace, say func(format string, args ...any)) (*latency.Fitted, error) {
	samples, err := workload.StepCosts(t)
	if err != nil {
		return nil, err
	}
	fitted, median, err := latency.FitCosts(samples)
	if err != nil {
		return nil, err
	}
	say("%d steps; half of them are within %.1f %% of the model", len(samples), 100*median)
	return fitted, nil
}
