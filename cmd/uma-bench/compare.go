package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	results "github.com/uma-serve/uma-serve/bench/report"
)

func compareCommand() *cobra.Command {
	var failOver float64
	var changed bool
	var underTest, outDir, picture string
	cmd := &cobra.Command{
		Use:   "compare BASELINE.json… UNDER_TEST.json",
		Short: "compare a report with others; exit status 1 when it is worse",
		Long: `Compare the last report with the others: differences in percent, with Welch's 95 % intervals if both
have repeats.

The exit status is 1 when a metric is worse by more than --fail-over percent and its interval is clear of 0, when
answers were evicted or requests failed and none did before, or when a metric is missing. Measured and synthetic reports
cannot be compared.

With --changed, for replays of the same workload, it is 1 when any number differs by more than --fail-over percent, for
the better or the worse: a replay is deterministic, so a difference is a change of the code.`,
		Example: `  uma-bench compare main/report.json branch/report.json --fail-over 5
  uma-bench compare recorded.json build/replay/uma/report.json --changed`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			var reports []*results.Report
			seen := map[string]bool{}
			for _, path := range args {
				r, err := results.Read(path)
				if err != nil {
					return err
				}
				if seen[r.ConfigName] { // the same configuration at another time
					r.ConfigName = strings.TrimSuffix(filepath.ToSlash(path), ".json")
				}
				seen[r.ConfigName] = true
				r.Streams = 0 // compare the named files whatever their stream counts
				reports = append(reports, r)
			}
			under := reports[len(reports)-1].ConfigName
			if underTest != "" {
				under = underTest
			}
			d, err := results.New(reports, under)
			if err != nil {
				return err
			}
			for _, r := range reports {
				if r.Workload != d.Reports[under].Workload || r.Seed != d.Reports[under].Seed {
					fmt.Fprintf(os.Stderr, "warning: %s ran workload %s with seed %d, %s %s with seed %d\n",
						r.ConfigName, r.Workload, r.Seed, under, d.Reports[under].Workload, d.Reports[under].Seed)
				}
			}
			if picture != "" {
				svg, err := d.ITLPicture()
				if err != nil {
					return err
				}
				return os.WriteFile(picture, svg, 0o644)
			}
			if outDir != "" {
				err = write(d, outDir)
			} else {
				_, err = fmt.Print(d.Markdown())
			}
			if err != nil {
				return err
			}
			if changed {
				differ, err := d.Changes(failOver)
				if err == nil && len(differ) > 0 {
					err = fmt.Errorf("%s differs by more than %g %%:\n  %s", under, failOver,
						strings.Join(differ, "\n  "))
				}
				return err
			}
			if bad := d.Regressions(failOver); len(bad) > 0 {
				return fmt.Errorf("%s is worse:\n  %s", under, strings.Join(bad, "\n  "))
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.Float64Var(&failOver, "fail-over", 5, "maximum `percent` by which a metric may be worse; with --changed, differ")
	f.BoolVar(&changed, "changed", false, "compare replays: fail on differences for the better, too, in every number")
	f.StringVar(&underTest, "under-test", "", "config_name of the report under test (default: the last)")
	f.StringVar(&picture, "itl-svg", "", "only draw the inter-token latency over time of all reports to `FILE`")
	f.StringVar(&outDir, "out-dir", "", "also write report.json, ab-report.json, report.md and report.html")
	return cmd
}
