package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/mattn/go-isatty"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/pflag"

	"github.com/uma-serve/uma-serve/sim"
	"github.com/uma-serve/uma-serve/sim/blis"
)

// progress shows a bar on a terminal and nothing elsewhere; the returned function is called after each of n jobs.
func progress(stderr io.Writer, n int, what string) func() {
	f, ok := stderr.(*os.File)
	if !ok || !isatty.IsTerminal(f.Fd()) {
		return func() {}
	}
	bar := progressbar.NewOptions(n, progressbar.OptionSetWriter(f), progressbar.OptionSetDescription(what),
		progressbar.OptionShowCount(), progressbar.OptionClearOnFinish())
	return func() { _ = bar.Add(1) }
}

// question is a command line's server and workload with some flags set anew; base has read the workload's file.
func question(from *pflag.FlagSet, base *workloadFlags, set map[string]string) (blis.Config, *workloadFlags, error) {
	server := serverFlags{mend: true}
	work := &workloadFlags{}
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	server.register(fs)
	work.register(fs)
	var errs []error
	from.Visit(func(f *pflag.Flag) {
		to := fs.Lookup(f.Name)
		if to == nil {
			return // the verb's own
		}
		if s, ok := f.Value.(pflag.SliceValue); ok {
			errs = append(errs, to.Value.(pflag.SliceValue).Replace(s.GetSlice()))
			to.Changed = true
			return
		}
		errs = append(errs, fs.Set(f.Name, f.Value.String()))
	})
	for name, value := range set {
		if fs.Lookup(name) == nil {
			return blis.Config{}, nil, usagef("there is no flag --%s", name)
		}
		if err := fs.Set(name, value); err != nil {
			errs = append(errs, usageError{err})
		}
	}
	if err := errors.Join(errs...); err != nil {
		return blis.Config{}, nil, err
	}
	if work.trace == base.trace && work.recorded == base.recorded && work.spec == base.spec {
		work.prepared, work.rows, work.parsed, work.recording = base.prepared, base.rows, base.parsed, base.recording
	}
	cfg, err := server.server(work)
	return cfg, work, err
}

// simulate runs one simulation of several.
func simulate(cfg blis.Config, work *workloadFlags) (*sim.Report, error) {
	src, err := work.source(cfg.Seed, 0)
	if err != nil {
		return nil, err
	}
	rep, err := blis.Run(cfg, src)
	if err != nil && rep == nil {
		return nil, fmt.Errorf("%w", err)
	}
	return rep, err
}
