package main

import (
	"encoding/json"
	"fmt"
	"io"

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
uma-serve has recorded (UMA_TRACE), and print it in the form that --cost-model reads.

  uma-sim fit --uma-trace recorded.txt > cost.json
  uma-sim run --cost-model cost.json --batch-formation uma --uma-trace recorded.txt`,
	}
	c.Flags().StringVar(&recorded, "uma-trace", "", "`FILE` that uma-serve recorded (UMA_TRACE)")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if recorded == "" {
			return usagef("--uma-trace is missing")
		}
		samples, err := readFile(recorded, func(r io.Reader) ([]latency.Sample, error) {
			data, err := io.ReadAll(r)
			if err != nil {
				return nil, err
			}
			t, err := sched.ReadTrace(data)
			if err != nil {
				return nil, err
			}
			return workload.StepCosts(t)
		})
		if err != nil {
			return err
		}
		us, median, err := latency.FitCosts(samples)
		if err != nil {
			return err
		}
		fmt.Fprintf(c.ErrOrStderr(), "%d steps; half of them are within %.1f %% of the model\n", len(samples), 100*median)
		enc := json.NewEncoder(c.OutOrStdout())
		enc.SetIndent("", "  ")
		return enc.Encode(struct {
			A float64 `json:"a"`
			B float64 `json:"b"`
			C float64 `json:"c"`
			D float64 `json:"d"`
		}{us[0] / 1000, us[1] / 1000, us[2] / 1000, us[3] / 1000})
	}
	return c
}
