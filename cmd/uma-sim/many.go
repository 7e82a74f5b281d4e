package main

import (
	"fmt"
	"io"
	"os"

	"github.com/mattn/go-isatty"
	"github.com/schollz/progressbar/v3"

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

// simulate runs one simulation of several.
func simulate(cfg blis.Config, work *workloadFlags) (*sim.Report, error) {
	src, err := work.source(cfg.Seed)
	if err != nil {
		return nil, err
	}
	rep, err := blis.Run(cfg, src)
	if err != nil && rep == nil {
		return nil, fmt.Errorf("%w", err)
	}
	return rep, err
}
