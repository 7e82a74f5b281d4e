package main

import (
	"io"

	"github.com/spf13/pflag"

	"github.com/uma-serve/uma-serve/sched/trace"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// workloadFlags are the keys that describe the simulated server's workload.
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
	rows     []workload.Request // of a trace or a recording
	parsed   *workload.Spec     // of a specification

	recording *trace.Trace // of uma-serve
}

func (w *workloadFlags) register(fs *pflag.FlagSet) {
	w.fs = fs
	w.d = workload.DefaultDistribution()
	w.name = "distribution"
	fs.Float64Var(&w.d.Rate, "rate", w.d.Rate, "requests per second; of a specification its aggregate rate")
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
		"closed loop: users that each wait for their answer; rate is ignored")
	fs.Int64Var(&w.thinkMs, "think-time-ms", 0, "closed loop: milliseconds between an answer and the next request")
	fs.Float64Var(&w.ratio, "reasoning-ratio", workload.DefaultMix().ReasoningRatio,
		"meridian: fraction of requests that think")
}

// prepare reads the workload's file, once. After it source may be called from many goroutines.
func (w *workloadFlags) prepare() (err error) {
	if w.prepared {
		return nil
	}
	switch {
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

// source returns the workload from its start.
func (w *workloadFlags) source(seed int64) (workload.Source, error) {
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
		if w.fs.Changed("rate") {
			s.AggregateRate = w.d.Rate
		}
		if w.fs.Changed("num-requests") {
			s.NumRequests = w.d.Requests
		}
		if err := s.Check(); err != nil {
			return nil, err
		}
		return s.New(), nil
	case w.name == "meridian":
		return workload.Mix{Rate: w.d.Rate, Requests: w.d.Requests, Seed: seed, ReasoningRatio: w.ratio}.New()
	}
	d := w.d
	d.Seed, d.ThinkUs = seed, w.thinkMs*1000
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

func readTrace(r io.Reader) (*trace.Trace, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	return trace.Read(data)
}
