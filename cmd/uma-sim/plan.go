package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/cmd/uma-sim/internal/explore"
	"github.com/uma-serve/uma-serve/sim"
	"github.com/uma-serve/uma-serve/sim/blis"
)

func newPlan() *cobra.Command {
	in := inputs{server: serverFlags{mend: true, target: true}}
	var grid explore.Grid
	var target explore.Target
	var asJSON bool
	var show int
	c := &cobra.Command{
		Use:   "plan",
		Short: "Find the context size, slots and policy that meet a latency target",
		Long: `Simulate every combination of context size, slots and policy and list those that meet the target, least
memory first.

  uma-sim plan --set cost_model=cost.json --workload recorded.txt --itl-target-ms 100
  uma-sim plan --server server.json --workload chatbot --set rate=0.4 --itl-target-ms 60 --ttft-target-ms 3000

The step time describes the machine: cost_model (measured by uma-serve), beta_coeffs, model or hf_config_file.`,
	}
	in.register(c.Flags())
	fs := c.Flags()
	fs.Float64Var(&target.ITLP95Ms, "itl-target-ms", 100, "target of the 95th percentile of ITL, 0 = any")
	fs.Float64Var(&target.TTFTP95Ms, "ttft-target-ms", 0, "target of the 95th percentile of TTFT, 0 = any")
	fs.IntSliceVar(&grid.Contexts, "contexts", []int{4096, 8192, 16384, 32768, 65536},
		"context sizes to try, in tokens of the whole KV cache")
	fs.IntSliceVar(&grid.Slots, "slots", []int{1, 2, 4, 8, 16, 32}, "numbers of parallel requests to try")
	fs.StringSliceVar(&grid.Policies, "policies", []string{"uma", "stock", "meridian"}, "policies to try")
	fs.IntVar(&show, "show", 12, "candidates to print")
	fs.BoolVar(&asJSON, "json", false, "print all candidates as JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := in.load(c.ErrOrStderr()); err != nil {
			return err
		}
		base, err := in.server.server(&in.work)
		if err != nil {
			return err
		}
		base.ITLTargetMs = target.ITLP95Ms // what uma-serve would be told, too
		for _, l := range []struct {
			name string
			n    int
		}{{"contexts", len(grid.Contexts)}, {"slots", len(grid.Slots)}, {"policies", len(grid.Policies)}} {
			if l.n == 0 {
				return usagef("--%s is empty", l.name)
			}
		}
		n := len(grid.Contexts) * len(grid.Slots) * len(grid.Policies)
		out, err := explore.Plan(base, grid, target, func(cfg blis.Config) (*sim.Report, error) {
			return simulate(cfg, &in.work)
		}, progress(c.ErrOrStderr(), n, "plan"))
		if err != nil {
			return err
		}
		if asJSON {
			enc := json.NewEncoder(c.OutOrStdout())
			enc.SetIndent("", "  ")
			return enc.Encode(out)
		}
		rows := make([]explore.Summary, 0, show)
		for i, o := range out {
			if i == show {
				break
			}
			rows = append(rows, o.Summary)
		}
		w := c.OutOrStdout()
		if err := explore.WriteTable(w, "configuration", rows); err != nil {
			return err
		}
		flag := ""
		if target.ITLP95Ms > 0 {
			flag = fmt.Sprintf(" --itl-target-ms %g", target.ITLP95Ms)
		}
		if best := out[0]; best.Meets {
			fmt.Fprintf(w, "\nserve it with: uma-serve --ctx-size %d --parallel %d --policy %s%s\n", best.Context,
				best.Slots, best.Policy, flag)
		} else {
			fmt.Fprintf(w, "\nnone of the %d configurations meets the target; the closest is %s\n", n, best.Label)
		}
		return nil
	}
	return c
}
