// Command uma-bench measures what serving costs on this machine.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/internal/cli"
	"github.com/uma-serve/uma-serve/internal/cli/buildinfo"
	"github.com/uma-serve/uma-serve/internal/cli/clierr"
)

func main() {
	if err := newRoot().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "uma-bench:", clierr.Text(err))
		if _, ok := errors.AsType[usageError](err); ok {
			fmt.Fprintln(os.Stderr, "uma-bench --help shows the commands, uma-bench COMMAND --help its flags.")
			os.Exit(2)
		}
		os.Exit(1)
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "uma-bench",
		Short: "measure the cost of serving on this machine",
		Long: `uma-bench compares the daemon with the bare decode loop of the same engine, and measures its cost
when idle and after many requests. Every figure is a ratio within one run, because absolute speed
drifts on a laptop by more than the measured effects. Stop other programs while it runs.

  uma-bench run                 run a workload on servers or in virtual time; write a report
  uma-bench compare             compare a report with others; fail when it is worse
  uma-bench overhead            tokens/s and ITL of the daemon and of the bare decode loop
  uma-bench prompt              speed and TTFT of a lone prompt, daemon and bare decode loop
  uma-bench kernels             uma-serve's matrix and attention kernels compared with ggml's
  uma-bench idle                CPU and memory of an idle daemon with 1,000 connections
  uma-bench memory              resident memory over 10,000 requests
  uma-bench storm               ITL of chats during a storm of long prompts, by policy
  uma-bench front               cost of a front with an engine process
  uma-bench telemetry           cost of exporting to an OpenTelemetry collector: quick, slow or killed
  uma-bench two-models          ITL of one model beside a storm of prompts for another
  uma-bench models              many models asked in turn, with memory for only a few
  uma-bench soak                mixed load with faults, for hours or for days of virtual time: leaks, stuck requests
  uma-bench busy                speed of answers beside a busy process, and after it has ended
  uma-bench equal               equal clients at the same moment, by policy
  uma-bench kv                  sharing, restores, oversubscription and kill -9 of the KV cache
  uma-bench fidelity            uma-sim's predictions compared with the daemon
  uma-bench fair                overhead of a policy without competing requests
  uma-bench eval                grade answers to held-out problems
  uma-bench eat                 thinking ended early by EAT and RPDI, compared with a token cap
  uma-bench grammar             JSON schemas: instances accepted and rejected, time of a mask
  uma-bench bound               streams with a JSON schema beside streams without one
  uma-bench speculate           answers with speculation compared with answers without it
  uma-bench gpu-check           an accelerator's answers, speed and snapshots, beside llama-server`,
		Version:       buildinfo.Version,
		SilenceUsage:  true,
		SilenceErrors: true,

		SuggestionsMinimumDistance: 2,
	}
	root.AddCommand(runCommand(), compareCommand(), loadClientCommand(), overheadCommand(), promptCommand(),
		kernelsCommand(), idleCommand(), memoryCommand(), busyCommand(), spinCommand(), equalCommand(),
		stormCommand(), fairCommand(), frontCommand(), telemetryCommand(), twoModelsCommand(), modelsCommand(),
		kvCommand(), evalCommand(), eatCommand(), fidelityCommand(), grammarCommand(), boundCommand(),
		speculateCommand(), soakCommand(), realCommand(), clientCommand(),
		gpuCheckCommand())
	root.Args = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		hint := ""
		if near := root.SuggestionsFor(args[0]); len(near) > 0 {
			hint = "; did you mean " + near[0] + "?"
		}
		return usageError{fmt.Errorf("there is no command %q%s", args[0], hint)}
	}
	root.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", ".FlagUsagesWrapped 110"))
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return usageError{clierr.Flag(c.Flags(), err)} })
	for _, c := range root.Commands() {
		takes := c.Args
		c.Args = func(c *cobra.Command, args []string) error {
			if takes == nil || takes(c, args) == nil {
				return nil
			}
			return usageError{fmt.Errorf("%s does not take %q; usage: %s", c.CommandPath(), args, c.UseLine())}
		}
	}
	usage := func(err error) error { return usageError{err} }
	root.AddCommand(cli.CompletionCommand("uma-bench", usage), cli.ManPagesCommand("uma-bench", usage))
	return root
}

// usageError is a mistake on the command line: exit status 2.
type usageError struct{ error }
