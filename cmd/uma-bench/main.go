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
		Long: `uma-bench compares the daemon with the bare decode loop of the same engine, with other servers, and with
itself under other options. Every figure is a ratio within one run, because absolute speed drifts on a
laptop by more than the measured effects. Stop other programs while it runs.

  uma-bench run                 run a workload on servers or in virtual time; write a report
  uma-bench compare             compare a report with others; fail when it is worse
  uma-bench overhead            tokens/s and ITL of the daemon and of the bare decode loop, or of a lone prompt
  uma-bench kernels             uma-serve's matrix and attention kernels compared with ggml's
  uma-bench kv                  sharing, restores, oversubscription and kill -9 of the KV cache
  uma-bench soak                mixed load with faults, for hours or for days of virtual time: leaks, stuck requests
  uma-bench eat                 thinking ended early by EAT and RPDI, compared with a token cap
  uma-bench eval                grade answers to held-out problems
  uma-bench grammar             JSON schemas: instances accepted and rejected, time of a mask
  uma-bench fidelity            uma-sim's predictions compared with the daemon
  uma-bench real                a published model beside llama-server
  uma-bench gpu-check           an accelerator's answers, speed and snapshots, beside llama-server`,
		Version:       buildinfo.Version,
		SilenceUsage:  true,
		SilenceErrors: true,

		SuggestionsMinimumDistance: 2,
	}
	root.AddCommand(runCommand(), compareCommand(), overheadCommand(), kernelsCommand(), kvCommand(), soakCommand(),
		eatCommand(), evalCommand(), grammarCommand(), fidelityCommand(), realCommand(), gpuCheckCommand(),
		loadClientCommand(), clientCommand())
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
