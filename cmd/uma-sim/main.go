// Command uma-sim simulates an LLM server on virtual time: continuous batching, KV cache and scheduler. One verb a
// file; the engine is in package sim.
//
// Results go to stdout and are the same bytes for the same input; wall-clock times, progress and warnings go to stderr.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/internal/cli"
	"github.com/uma-serve/uma-serve/internal/cli/buildinfo"
	"github.com/uma-serve/uma-serve/internal/cli/clierr"
	"github.com/uma-serve/uma-serve/sim"
)

// Exit statuses.
const (
	exitError    = 1
	exitUsage    = 2
	exitLivelock = 4
)

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

// execute runs a command line and returns the exit status.
func execute(args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.Execute()
	var stuck *sim.Stuck
	var usage usageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &stuck):
		fmt.Fprintln(stderr, "uma-sim:", clierr.Text(err))
		return exitLivelock
	case errors.As(err, &usage):
		fmt.Fprintln(stderr, "uma-sim:", clierr.Text(err))
		fmt.Fprintln(stderr, "uma-sim --help shows the commands, uma-sim COMMAND --help its flags.")
		return exitUsage
	}
	fmt.Fprintln(stderr, "uma-sim:", clierr.Text(err))
	return exitError
}

// usageError is a mistake on the command line.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "uma-sim",
		Short: "Simulate the latency, throughput and KV cache of an LLM server",
		Long: `uma-sim simulates an LLM server step by step on virtual time: requests arrive, wait, join batches, get
KV blocks, are preempted and finish. It predicts the effect of a configuration on a workload: time to first token
(TTFT), inter-token latency (ITL), throughput, preemptions, cache hits and dropped requests.

A simulation needs:
  a server     the requests and tokens per step, the size of the KV cache, the scheduler
  a step time  coefficients, a published fit for a model and GPU, a roofline, or measurements of uma-serve
  a workload   a trace, a specification, a preset, or numbers

Examples:
  uma-sim run --server server.json --workload requests.yaml
  uma-sim run --set beta_coeffs=6900,17.7,2.8 --set rate=5 --set num_requests=200
  uma-sim sweep --set model=meta-llama/llama-3.1-8b-instruct --set gpu=H100 --values 1:20:1
  uma-sim compare --server server.json --workload meridian --set rate=0.5 --html report.html

The file of --server is JSON, that of --workload YAML; uma-sim keys lists their keys, which --set sets too.`,
		SilenceUsage: true, SilenceErrors: true, Version: buildinfo.Version, SuggestionsMinimumDistance: 2,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", ".FlagUsagesWrapped 110"))
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		if gone := goneFlag(err); gone != nil {
			return usageError{gone}
		}
		return usageError{clierr.Flag(c.Flags(), err)}
	})
	root.AddCommand(newRun(), newReplay(), newSweep(), newCompare(), newPlan(), newCluster(),
		newMachine(), newFit(), newKeys())
	for _, c := range root.Commands() {
		c.Args = noArgs
	}
	usage := func(err error) error { return usageError{err} }
	root.AddCommand(cli.CompletionCommand("uma-sim", usage), cli.ManPagesCommand("uma-sim", usage))
	return root
}

func noArgs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if c.HasParent() {
		return usagef("%s takes flags only, not %q", c.CommandPath(), args[0])
	}
	hint := ""
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "; did you mean " + near[0] + "?"
	}
	return usagef("there is no command %q%s", args[0], hint)
}
