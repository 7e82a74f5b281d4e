// Command uma-bench measures what serving costs on this machine.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/internal/buildinfo"
)

func main() {
	root := &cobra.Command{
		Use:   "uma-bench",
		Short: "measure what serving costs on this machine",
		Long: `uma-bench holds the daemon against the bare decode loop of the same engine, and looks at what it
costs when idle and after many requests. Every figure is a ratio within one run: absolute speed
drifts on a laptop by more than the effects looked for. Stop other work while it runs.

  uma-bench run                 a workload against servers or in virtual time: report and page
  uma-bench compare             one report against others; fails when it is worse
  uma-bench overhead            tokens/s and inter-token latency, bare loop against served
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
	}
	root.AddCommand(runCommand(), compareCommand(), loadClientCommand(), overheadCommand(), idleCommand(), memoryCommand(), stormCommand(), fairCommand(), kvCommand(), evalCommand(), eatCommand(), fidelityCommand(), clientCommand())
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "uma-bench:", err)
		os.Exit(1)
	}
}
