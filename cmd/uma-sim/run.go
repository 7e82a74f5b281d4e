package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sched/trace"
	"github.com/uma-serve/uma-serve/sim"
	"github.com/uma-serve/uma-serve/sim/blis"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// outputFlags select the output of one run.
type outputFlags struct {
	json      bool
	aggregate bool
	verbose   bool
	metrics   string
	results   string
	trace     string
	plans     string
}

func (o *outputFlags) register(c *cobra.Command) {
	fs := c.Flags()
	fs.BoolVar(&o.json, "json", false, "print aggregate, requests and steps as JSON")
	fs.BoolVar(&o.aggregate, "aggregate", false, "record no individual requests, so that memory use is constant")
	fs.BoolVar(&o.verbose, "verbose", false, "log each preemption to stderr")
	fs.StringVar(&o.metrics, "metrics-path", "", "write metrics and requests to `FILE` (JSON, BLIS layout)")
	fs.StringVar(&o.results, "results-path", "", "write finished requests to `FILE` (JSON, BLIS layout)")
	fs.StringVar(&o.trace, "trace-output", "", "write a TraceV2 to `NAME`.yaml and NAME.csv")
	fs.StringVar(&o.plans, "plan-output", "",
		"uma: write the scheduler's events and plans to `FILE` (UMA_TRACE layout)")
}

func newRun() *cobra.Command {
	var in inputs
	var out outputFlags
	c := &cobra.Command{
		Use:   "run",
		Short: "Simulate one configuration on one workload",
		Long: `Simulate one configuration on one workload and print the results.

  uma-sim run --server server.json --workload requests.csv --json
  uma-sim run --set model=meta-llama/llama-3.1-8b-instruct --set gpu=H100 --workload chatbot --set rate=8
  uma-sim run --server server.json --workload recorded.txt --set policy=meridian

A simulation that makes no more progress stops with an error that names the request and the numbers (exit status 4).
With a horizon it continues to the horizon, as BLIS does, and prints a warning.`,
	}
	in.register(c.Flags())
	out.register(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := in.load(c.ErrOrStderr()); err != nil {
			return err
		}
		cfg, err := in.server.server(&in.work)
		if err != nil {
			return err
		}
		src, err := in.work.source(cfg.Seed)
		if err != nil {
			return err
		}
		return out.simulate(c, cfg, src)
	}
	return c
}

// simulate runs and writes everything that was asked for.
func (o *outputFlags) simulate(c *cobra.Command, cfg blis.Config, src workload.Source) error {
	if o.aggregate {
		if o.metrics != "" || o.results != "" || o.trace != "" || o.json && cfg.RecordSteps {
			return usagef("--aggregate records no requests and steps; it excludes --metrics-path, --results-path, " +
				"--trace-output and record_steps")
		}
		cfg.Collect = sim.Aggregate
	}
	opt := sim.Options{}
	if o.verbose {
		opt.Preempted = func(r *workload.Request, now int64) {
			fmt.Fprintf(c.ErrOrStderr(), "uma-sim: %d us: %s is preempted and queued again\n", now, r.ID())
		}
	}
	if o.plans != "" {
		if cfg.BatchFormation != "uma" {
			return usagef("--plan-output needs batch_formation uma")
		}
		f, err := os.Create(o.plans)
		if err != nil {
			return err
		}
		defer f.Close()
		w := bufio.NewWriter(f)
		defer w.Flush()
		sc := sim.SchedConfig(&cfg.Config)
		w.Write(trace.AppendConfig(nil, &sc))
		var buf []byte
		opt.Planned = func(now sched.Instant, in *sched.Events, plan *sched.Plan) {
			buf = trace.AppendStep(buf[:0], now, in, plan)
			w.Write(buf)
		}
	}
	model, err := cfg.Latency()
	if err != nil {
		return err
	}
	began := time.Now()
	rep, runErr := sim.RunModel(cfg.Server(), model, src, opt)
	if rep == nil {
		return runErr
	}
	took := time.Since(began).Seconds()
	fmt.Fprintf(c.ErrOrStderr(), "simulated %d requests in %d steps, %.3f s of wall clock (%.0f requests/s)\n",
		rep.Arrived, rep.Metrics.Engines[0].Steps, took, float64(rep.Arrived)/took)
	if rep.Stuck != nil && runErr == nil {
		fmt.Fprintf(c.ErrOrStderr(), "uma-sim: %v\n", rep.Stuck)
	}
	w := bufio.NewWriter(c.OutOrStdout())
	if o.json {
		err = rep.WriteJSON(w)
	} else {
		err = rep.WriteText(w)
	}
	if err := firstOf(err, w.Flush()); err != nil {
		return err
	}
	for _, f := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{o.metrics, func(w io.Writer) error { return rep.WriteMetrics(w, "instance_0") }},
		{o.results, rep.WriteResults},
		{suffix(o.trace, ".csv"), rep.WriteTrace},
		{suffix(o.trace, ".yaml"), func(w io.Writer) error { return workload.WriteTraceHeader(w, &cfg.Seed) }},
	} {
		if f.name == "" {
			continue
		}
		if err := writeFile(f.name, f.write); err != nil {
			return err
		}
	}
	return runErr
}

func suffix(name, s string) string {
	if name == "" {
		return ""
	}
	return name + s
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	return firstOf(write(w), w.Flush(), f.Close())
}
