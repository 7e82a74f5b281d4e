// Command uma-bench measures what serving costs on this machine.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/internal/buildinfo"
	"github.com/uma-serve/uma-serve/internal/clierr"
	"github.com/uma-serve/uma-serve/internal/completion"
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
		Short: "measure what serving costs on this machine",
		Long: `uma-bench holds the daemon against the bare decode loop of the same engine, and looks at what it
costs when idle and after many requests. Every figure is a ratio within one run: absolute speed
drifts on a laptop by more than the effects looked for. Stop other work while it runs.

  uma-bench run                 a workload against servers or in virtual time: report and page
  uma-bench compare             one report against others; fails when it is worse
  uma-bench overhead            tokens/s and inter-token latency, bare loop against served
  uma-bench prompt              a lone prompt's speed and first token, bare loop against served
  uma-bench idle                processor and memory of an idle daemon, with 1,000 connections
  uma-bench memory              resident memory along 10,000 requests
  uma-bench storm               chats beside long prompts, policy by policy
  uma-bench kv                  sharing, restores, oversubscription, kill -9: what KV memory promises
  uma-bench fidelity            what uma-sim predicts against what the daemon did
  uma-bench fair                what a policy costs where there is nothing to arbitrate
  uma-bench eval                answers to held-out problems, graded
  uma-bench eat                 ending thinking early by EAT, next to a plain token cap`,
		Version:       buildinfo.Version,
		SilenceUsage:  true,
		SilenceErrors: true,

		SuggestionsMinimumDistance: 2,
	}
	root.AddCommand(runCommand(), compareCommand(), loadClientCommand(), overheadCommand(), promptCommand(), idleCommand(), memoryCommand(), stormCommand(), fairCommand(), kvCommand(), evalCommand(), eatCommand(), fidelityCommand(), clientCommand())
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
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return usageError{clierr.Flag(c.Flags(), err)} })
	for _, c := range root.Commands() {
		takes := c.Args
		c.Args = func(c *cobra.Command, args []string) error {
			if takes == nil || takes(c, args) == nil {
				return nil
			}
			return usageError{fmt.Errorf("%s does not take %q; its usage is: %s", c.CommandPath(), args, c.UseLine())}
		}
	}
	root.AddCommand(completion.Command("uma-bench", func(err error) error { return usageError{err} }))
	return root
}

// usageError is a mistake on the command line: exit status 2.
type usageError struct{ error }
