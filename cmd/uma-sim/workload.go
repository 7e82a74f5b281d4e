package main

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// workloadFlags are the flags that describe the simulated server's workload.
type workloadFlags struct {
	fs       *pflag.FlagSet
	trace    string
	recorded string
	spec     string
	name     string
	d        workload.Distribution
	ratio    float64
	thinkMs  int64
	prepared bool
	rows     []workload.Request // of --trace or --uma-trace
	parsed   *workload.Spec     // of --workload-spec

	recording *sched.Trace // of --uma-trace
}

func (w *workloadFlags) register(fs *pflag.FlagSet) {
	w.fs = fs
	w.d = workload.DefaultDistribution()
	fs.StringVar(&w.trace, "trace", "", "workload from a trace `FILE.csv`: "+strings.Join(workload.TraceColumns, ","))
	fs.StringVar(&w.recorded, "uma-trace", "",
		"workload, server and step times from a recording `FILE` (uma-serve --trace, UMA_TRACE); flags override it")
	fs.StringVar(&w.spec, "workload-spec", "", "workload from a specification `FILE.yaml`")
	fs.StringVar(&w.name, "workload", "distribution", "distribution, meridian (chat and reasoning), "+
		strings.Join(workload.PresetNames(), ", "))
	fs.Float64Var(&w.d.Rate, "rate", w.d.Rate, "requests per second (with --workload-spec: its aggregate rate)")
	fs.Int64Var(&w.d.Requests, "num-requests", w.d.Requests, "total number of requests")
	fs.StringVar(&w.d.Process, "arrival-process", w.d.Process, "distribution: constant, poisson, gamma, weibull")
	for _, g := range []struct {
		name string
		g    *workload.Gaussian
	}{{"prompt-tokens", &w.d.Input}, {"output-tokens", &w.d.Output}} {
		fs.Float64Var(&g.g.Mean, g.name, g.g.Mean, "distribution: mean")
		fs.Float64Var(&g.g.SD, g.name+"-stdev", g.g.SD, "distribution: standard deviation")
		fs.Float64Var(&g.g.Min, g.name+"-min", g.g.Min, "distribution: minimum")
		fs.Float64Var(&g.g.Max, g.name+"-max", g.g.Max, "distribution: maximum")
	}
	fs.IntVar(&w.d.Prefix, "prefix-tokens", 0, "tokens of a prefix that all prompts share")
	fs.IntVar(&w.d.Concurrency, "concurrency", 0,
		"closed loop: users that each wait for their answer; --rate is ignored")
	fs.Int64Var(&w.thinkMs, "think-time-ms", 0, "closed loop: milliseconds between an answer and the next request")
	fs.Float64Var(&w.ratio, "reasoning-ratio", workload.DefaultMix().ReasoningRatio,
		"meridian: fraction of requests that think")
}

// prepare reads the file that the flags name, once. After it source may be called from many goroutines.
func (w *workloadFlags) prepare() (err error) {
	if w.prepared {
		return nil
	}
	given := 0
	for _, f := range []string{"trace", "uma-trace", "workload-spec", "workload"} {
		if w.fs.Changed(f) {
			given++
		}
	}
	switch {
	case given > 1:
		return usagef("give only one of --trace, --uma-trace, --workload-spec and --workload")
	case w.trace != "":
		w.rows, err = readFile(w.trace, workload.ReadCSV)
	case w.recorded != "":
		if w.recording, err = readFile(w.recorded, readTrace); err == nil {
			w.rows, err = workload.FromRecording(w.recording)
		}
	case w.spec != "":
		w.parsed, err = readFile(w.spec, func(r io.Reader) (*workload.Spec, error) {
			data, err := io.ReadAll(r)
			if err != nil {
				return nil, err
			}
			return workload.ParseSpec(data)
		})
	}
	w.prepared = err == nil
	return err
}

// source returns the workload from its start. rate ≤ 0: the rate of the flags.
func (w *workloadFlags) source(seed int64, rate float64) (workload.Source, error) {
	if rate <= 0 {
		rate = w.d.Rate
	} else if w.trace != "" || w.recorded != "" {
		return nil, usagef("--rate applies to generated workloads only; a trace has its own arrival times")
	}
	if err := w.prepare(); err != nil {
		return nil, err
	}
	switch {
	case w.trace != "":
		return workload.NewList(w.rows), nil
	case w.recorded != "":
		return workload.NewChained(w.rows), nil
	case w.spec != "":
		s := *w.parsed
		if w.fs.Changed("seed") {
			s.Seed = seed
		}
		if w.fs.Changed("rate") || rate != w.d.Rate {
			s.AggregateRate = rate
		}
		if w.fs.Changed("num-requests") {
			s.NumRequests = w.d.Requests
		}
		if err := s.Check(); err != nil {
			return nil, err
		}
		return s.New(), nil
	case w.name == "meridian":
		return workload.Mix{Rate: rate, Requests: w.d.Requests, Seed: seed, ReasoningRatio: w.ratio}.New()
	}
	d := w.d
	d.Rate, d.Seed, d.ThinkUs = rate, seed, w.thinkMs*1000
	if w.name != "distribution" {
		if err := d.Preset(w.name); err != nil {
			return nil, usageError{err}
		}
	}
	s, err := d.Spec()
	if err != nil {
		return nil, err
	}
	return s.New(), nil
}

func readTrace(r io.Reader) (*sched.Trace, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	return sched.ReadTrace(data)
}

// readFile opens a file, through gzip when its name ends in .gz.
func readFile[T any](name string, read func(io.Reader) (T, error)) (out T, err error) {
	f, err := os.Open(name)
	if err != nil {
		return out, err
	}
	defer f.Close()
	var in io.Reader = bufio.NewReaderSize(f, 1<<16)
	if strings.HasSuffix(name, ".gz") {
		if in, err = gzip.NewReader(in); err != nil {
			return out, fmt.Errorf("%s: %w", name, err)
		}
	}
	if out, err = read(in); err != nil {
		return out, fmt.Errorf("%s: %w", name, err)
	}
	return out, nil
}
