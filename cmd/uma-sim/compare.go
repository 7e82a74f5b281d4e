package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/cmd/uma-sim/internal/explore"
	"github.com/uma-serve/uma-serve/sim"
	"github.com/uma-serve/uma-serve/sim/blis"
)

func newCompare() *cobra.Command {
	in := inputs{server: serverFlags{mend: true}}
	var policies []string
	var html, title string
	var asJSON bool
	c := &cobra.Command{
		Use:   "compare",
		Short: "Simulate scheduling policies side by side on one workload",
		Long: `Simulate scheduling policies on one workload and print a table, JSON, or a self-contained HTML page with
plots.

  uma-sim compare --server server.json --workload meridian --set rate=0.5
  uma-sim compare --server server.json --workload recorded.txt --policies uma,stock --html report.html
  uma-sim compare --server server.json --set rate=20 --policies vllm:fcfs,vllm:sjf,vllm:priority-fcfs/slo-based

uma and stock are policies of uma-serve's scheduler, the code that the daemon runs; vllm:… is vLLM's algorithm.`,
	}
	in.register(c.Flags())
	c.Flags().StringSliceVar(&policies, "policies", []string{"uma", "stock", "vllm:fcfs", "vllm:sjf"},
		"policies to compare")
	c.Flags().StringVar(&html, "html", "", "write an HTML page to `FILE`")
	c.Flags().StringVar(&title, "title", "uma-sim: policies compared", "title of the page")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := in.load(c.ErrOrStderr()); err != nil {
			return err
		}
		base, err := in.server.server(&in.work)
		if err != nil {
			return err
		}
		if len(policies) == 0 {
			return usagef("--policies is empty")
		}
		cmp, err := explore.Compare(title, base, policies, func(cfg blis.Config) (*sim.Report, error) {
			return simulate(cfg, &in.work)
		}, progress(c.ErrOrStderr(), len(policies), "compare"))
		if err != nil {
			return err
		}
		if html != "" {
			if err := writeFile(html, cmp.WriteHTML); err != nil {
				return err
			}
			fmt.Fprintln(c.ErrOrStderr(), "wrote", html)
		}
		if asJSON {
			enc := json.NewEncoder(c.OutOrStdout())
			enc.SetIndent("", "  ")
			return enc.Encode(cmp)
		}
		return explore.WriteTable(c.OutOrStdout(), "policy", cmp.Rows)
	}
	return c
}
