package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/sim/workload"
)

func newReplay() *cobra.Command {
	var in inputs
	var out outputFlags
	var header, data, steps string
	c := &cobra.Command{
		Use:   "replay",
		Short: "Simulate one configuration on a TraceV2, or check a daemon's recording step by step",
		Long: `Simulate one configuration on a TraceV2 (a YAML header and a CSV of 27 columns, written by BLIS or
uma-sim --trace-output).

  uma-sim replay --steps recording.trace       # recorded by uma-serve --trace recording.trace

With --steps the scheduling core decides every step of a daemon's recording again, from the same inputs, with its
restores, evictions, copies and preemptions. The first step that differs is an error (exit status 1).

  uma-sim replay --trace-header t.yaml --trace-data t.csv --server server.json \
    --results-path results.json

The simulation ends when all requests have ended. BLIS ends at twice the latest arrival; pass that as
--set horizon_us=… to compare.`,
	}
	c.Flags().StringVar(&in.serverFile, "server", "", serverUsage)
	in.registerSet(c.Flags())
	in.command = c.Flags()
	out.register(c)
	c.Flags().StringVar(&header, "trace-header", "", "`FILE.yaml` with the header of the TraceV2")
	c.Flags().StringVar(&steps, "steps", "",
		"check a daemon's recording `FILE` (uma-serve --trace) step by step, instead of a simulation")
	c.Flags().StringVar(&data, "trace-data", "", "`FILE.csv` with the rows of the TraceV2")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if steps != "" {
			b, err := os.ReadFile(steps)
			if err != nil {
				return err
			}
			got, err := core.Replay(b)
			if err != nil {
				return fmt.Errorf("%s: %w (%d steps were equal)", steps, err, got.Steps)
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%d steps equal: %d batches, %d tokens, %d operations on cells\n",
				got.Steps, got.Batches, got.Tokens, got.Ops)
			return err
		}
		if data == "" {
			return usagef("--trace-data is missing")
		}
		if header != "" {
			h, err := os.ReadFile(header)
			if err != nil {
				return err
			}
			if _, err := workload.ParseTraceHeader(h); err != nil {
				return err
			}
		}
		if err := in.load(c.ErrOrStderr()); err != nil {
			return err
		}
		cfg, err := in.server.server(nil)
		if err != nil {
			return err
		}
		rows, err := readFile(data, workload.ReadTraceV2)
		if err != nil {
			return err
		}
		return out.simulate(c, cfg, workload.NewList(rows))
	}
	return c
}
