package main

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/sched/trace"
	"github.com/uma-serve/uma-serve/sim/latency"
	"github.com/uma-serve/uma-serve/sim/workload"
)

func newFit() *cobra.Command {
	var recorded, against, speed []string
	c := &cobra.Command{
		Use:   "fit",
		Short: "Fit a cost model to recordings of uma-serve",
		Long: `Fit the cost model tick = a + b·prefill tokens + c·decode tokens + d·attended KV tokens + e·KV tokens
read (milliseconds) to the steps of a recording (uma-serve --trace FILE, or UMA_TRACE), and print it for cost_model.
The tokens of a chunk share what is read, and each attends to it. The output also has what the coefficients cannot
express: the step time by number of tokens and attended cells (curve), the distribution of step times around it
(noise, spread), and the time between two steps (between: milliseconds per step and per row).

  uma-sim fit --uma-trace recorded.txt > cost.json
  uma-sim run --set cost_model=cost.json --workload recorded.txt
  uma-sim fit --uma-trace monday.txt --uma-trace tuesday.txt --against wednesday.txt`,
	}
	c.Flags().StringArrayVar(&recorded, "uma-trace", nil,
		"recording `FILE` of uma-serve (UMA_TRACE); repeatable, fitted together")
	c.Flags().StringArrayVar(&against, "against", nil,
		"report how well the fit predicts the steps of another recording `FILE`")
	c.Flags().StringArrayVar(&speed, "as-fast-as", nil,
		"scale the fit to the speed of the machine in a recording `FILE`; repeatable")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if len(recorded) == 0 {
			return usagef("--uma-trace is missing")
		}
		say := func(format string, args ...any) { fmt.Fprintf(c.ErrOrStderr(), format+"\n", args...) }
		var traces []*trace.Trace
		for _, name := range recorded {
			t, err := readFile(name, readTrace)
			if err != nil {
				return err
			}
			traces = append(traces, t)
		}
		fitted, err := fitRecordings(traces, say)
		if err != nil {
			return err
		}
		var then []latency.Sample
		for _, name := range speed {
			samples, err := readSteps(name)
			if err != nil {
				return err
			}
			then = append(then, samples...)
		}
		if k := fitted.AsFastAs(then); len(speed) > 0 {
			say("steps took %.3f of that then", k)
		}
		for _, name := range against {
			samples, err := readSteps(name)
			if err != nil {
				return err
			}
			sayErrors(say, name, fitted, samples)
		}
		enc := json.NewEncoder(c.OutOrStdout())
		enc.SetIndent("", "  ")
		return enc.Encode(fitted)
	}
	return c
}

func readSteps(name string) ([]latency.Sample, error) {
	t, err := readFile(name, readTrace)
	if err != nil {
		return nil, err
	}
	samples, err := workload.StepCosts(t)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return samples, nil
}

// fitRecordings fits a cost model to the steps of all recordings, and says how well.
func fitRecordings(traces []*trace.Trace, say func(format string, args ...any)) (*latency.Fitted, error) {
	var samples []latency.Sample
	for _, t := range traces {
		s, err := workload.StepCosts(t)
		if err != nil {
			return nil, err
		}
		samples = append(samples, s...)
	}
	fitted, median, err := latency.FitCosts(samples)
	if err != nil {
		return nil, err
	}
	say("%d steps; half of them are within %.1f %% of the model", len(samples), 100*median)
	return fitted, nil
}

// sayErrors prints the model's errors for steps that were not fitted.
func sayErrors(say func(format string, args ...any), name string, fitted *latency.Fitted, samples []latency.Sample) {
	var errs []float64
	var took, predicted float64
	for i := range samples {
		if s := &samples[i]; s.Us > 0 && s.PrefillTokens+s.DecodeTokens > 0 {
			us := fitted.Predict(s)
			errs = append(errs, 100*(us/s.Us-1))
			took, predicted = took+s.Us, predicted+us
		}
	}
	if len(errs) == 0 {
		say("%s: no measured step", name)
		return
	}
	slices.Sort(errs)
	q := func(p float64) float64 { return errs[int(p*float64(len(errs)-1))] }
	say("%s: %d steps; predicted against measured %+.1f %% in all; at quantiles 5, 25, 50, 75, 95: %+.1f, %+.1f, "+
		"%+.1f, %+.1f, %+.1f %%",
		name, len(errs), 100*(predicted/took-1), q(.05), q(.25), q(.5), q(.75), q(.95))
}
