package main

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/cmd/uma-sim/internal/explore"
	"github.com/uma-serve/uma-serve/sim"
	"github.com/uma-serve/uma-serve/sim/blis"
)

func newSweep() *cobra.Command {
	in := inputs{server: serverFlags{mend: true}}
	var param, values string
	var asJSON bool
	c := &cobra.Command{
		Use:   "sweep",
		Short: "Simulate a range of rates, or of any key, and find where the server saturates",
		Long: `Simulate a range of rates, or of any other key, on all cores.

  uma-sim sweep --server server.json --values 1:30:2 --set num_requests=1000
  uma-sim sweep --server server.json --set rate=12 --param max_num_running_reqs --values 4,8,16,32
  uma-sim sweep --set beta_coeffs=6900,17.7,2.8 --values 0.5:64:x2

Each line reports the state of the server:
  STABLE      the queue does not grow
  BACKLOGGED  the queue grows slowly; the server nearly keeps up
  OVERLOADED  the queue grows as long as requests arrive, or requests are lost
For rates, the saturation point between the last stable rate and the next is then found to 2 %. The verdict needs some
hundred requests (num_requests) whose arrivals span more time than one request takes.`,
	}
	in.register(c.Flags())
	c.Flags().StringVar(&param, "param", "rate", "`KEY` of the server or the workload to vary")
	c.Flags().StringVar(&values, "values", "1:10:1", "A,B,C or FROM:TO:STEP or FROM:TO:xFACTOR")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		list, err := explore.Values(values)
		if err != nil {
			return usageError{err}
		}
		if err := in.load(c.ErrOrStderr()); err != nil {
			return err
		}
		if err := in.work.prepare(); err != nil {
			return err
		}
		ask := func(v string) (blis.Config, *workloadFlags, error) {
			q, err := in.question(map[string]string{param: v})
			if err != nil {
				return blis.Config{}, nil, err
			}
			cfg, err := q.server.server(&q.work)
			return cfg, &q.work, err
		}
		var jobs []explore.Job
		for _, v := range list {
			cfg, work, err := ask(v)
			if err != nil {
				return err
			}
			jobs = append(jobs, explore.Job{Label: v, Run: func() (*sim.Report, error) { return simulate(cfg, work) }})
		}
		rows, err := explore.Sweep(jobs, progress(c.ErrOrStderr(), len(jobs), "sweep"))
		if err != nil {
			return err
		}
		saturation, known, err := saturate(param, rows, func(rate string) (*sim.Report, error) {
			cfg, work, err := ask(rate)
			if err != nil {
				return nil, err
			}
			return simulate(cfg, work)
		})
		if err != nil {
			return err
		}
		if asJSON {
			out := struct {
				Param      string            `json:"param"`
				Points     []explore.Summary `json:"points"`
				Saturation *float64          `json:"saturation_rate,omitempty"`
			}{Param: param, Points: rows}
			if known {
				out.Saturation = &saturation
			}
			enc := json.NewEncoder(c.OutOrStdout())
			enc.SetIndent("", "  ")
			return enc.Encode(out)
		}
		if err := explore.WriteTable(c.OutOrStdout(), param, rows); err != nil {
			return err
		}
		switch {
		case known:
			fmt.Fprintf(c.OutOrStdout(), "saturation: stable up to %.4g requests/s\n", saturation)
		case param == "rate" && rows[len(rows)-1].Verdict == explore.Stable:
			fmt.Fprintln(c.OutOrStdout(), "saturation: not reached; try higher rates")
		case param == "rate":
			fmt.Fprintln(c.OutOrStdout(), "saturation: below the lowest rate")
		}
		return nil
	}
	return c
}

// saturate looks between the last stable rate before the first unstable one, and that.
func saturate(param string, rows []explore.Summary, ask func(string) (*sim.Report, error)) (rate float64, known bool,
	err error) {
	if param != "rate" {
		return 0, false, nil
	}
	for i := 1; i < len(rows); i++ {
		if rows[i].Verdict == explore.Stable || rows[i-1].Verdict != explore.Stable {
			continue
		}
		lo, err1 := strconv.ParseFloat(rows[i-1].Label, 64)
		hi, err2 := strconv.ParseFloat(rows[i].Label, 64)
		if err1 != nil || err2 != nil || lo >= hi {
			return 0, false, nil
		}
		rate, err = explore.Saturation(lo, hi, func(r float64) (*sim.Report, error) {
			return ask(strconv.FormatFloat(r, 'g', -1, 64))
		})
		return rate, err == nil, err
	}
	return 0, false, nil
}
