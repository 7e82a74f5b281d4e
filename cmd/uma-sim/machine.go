package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/sim"
)

func newMachine() *cobra.Command {
	var servers, works []string
	var all inputs
	var asJSON bool
	c := &cobra.Command{
		Use:   "machine",
		Short: "Simulate several models on one machine, whose engines compute in turn",
		Long: `Simulate several models behind one uma-serve: each has a server and a workload, and their engines
compute one after the other on the same device. The daemon's arbiter decides who is next, and how long
its step may be.

--server and --workload name the files of one model, in this order; give both once for each model. --set holds for all
of them. The batch formation is uma.

  uma-sim machine --server a.json --workload chat.yaml --server b.json --workload prompts.yaml`,
	}
	c.Flags().StringArrayVar(&servers, "server", nil, "`FILE` of one model's server; repeatable")
	c.Flags().StringArrayVar(&works, "workload", nil, "`FILE` or preset of one model's workload; repeatable")
	all.registerSet(c.Flags())
	c.Flags().BoolVar(&asJSON, "json", false, "print the results as JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if len(servers) == 0 || len(servers) != len(works) {
			return usagef("give at least one --server, and a --workload for each")
		}
		var list []sim.Shared
		for i, text := range servers {
			in := &inputs{serverFile: text, workloadFile: works[i], set: all.set, command: c.Flags(), seed: all.seed,
				server: serverFlags{mend: true}}
			s, err := in.shared(c.ErrOrStderr())
			if err != nil {
				return fmt.Errorf("--server %d: %w", i+1, err)
			}
			list = append(list, s)
		}
		began := time.Now()
		reports, runErr := sim.RunMachine(list)
		if len(reports) < len(list) {
			return runErr
		}
		fmt.Fprintf(c.ErrOrStderr(), "simulated %d servers in %.3f s of wall clock\n", len(list),
			time.Since(began).Seconds())
		if asJSON {
			return firstOf(writeMachineJSON(c.OutOrStdout(), servers, reports), runErr)
		}
		return firstOf(writeMachine(c.OutOrStdout(), reports), runErr)
	}
	return c
}

// shared returns one of the servers of a machine.
func (in *inputs) shared(stderr io.Writer) (out sim.Shared, err error) {
	if err := in.load(stderr); err != nil {
		return out, err
	}
	if _, given := in.server.has["batch_formation"]; !given && !in.keys.Changed("batch-formation") {
		if err := in.assign("batch_formation", "uma"); err != nil {
			return out, err
		}
	}
	cfg, err := in.server.server(&in.work)
	if err != nil {
		return out, err
	}
	if out.Model, err = cfg.Latency(); err != nil {
		return out, err
	}
	out.Config = cfg.Server()
	out.Source, err = in.work.source(out.Config.Seed)
	return out, err
}

func writeMachineJSON(w io.Writer, servers []string, reports []*sim.Report) error {
	type row struct {
		Server    string         `json:"server"` // its file
		Aggregate map[string]any `json:"aggregate"`
		Turns     *sim.Turns     `json:"turns"`
	}
	var rows []row
	for i, rep := range reports {
		rows = append(rows, row{servers[i], rep.Metrics.Numbers(&rep.Config), rep.Turns})
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", " ")
	return enc.Encode(rows)
}

// writeMachine prints a line for each server.
func writeMachine(w io.Writer, reports []*sim.Report) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "server\tcompleted\tTTFT p95 ms\tITL p50 ms\tITL p95 ms\tITL p99 ms\tprompt tok/s\t"+
		"answer tok/s\tsteps\twaited\twait ms\theld %\t")
	for i, rep := range reports {
		m, turns := rep.Metrics, rep.Turns
		seconds := float64(m.Engines[0].Clock) / 1e6
		per := func(n int64, by float64) float64 {
			if by == 0 {
				return 0
			}
			return float64(n) / by
		}
		fmt.Fprintf(t, "%d\t%d\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%d\t%d\t%.2f\t%.1f\t\n", i+1, m.Completed,
			m.TTFT.PercentileMs(95), m.ITL.PercentileMs(50), m.ITL.PercentileMs(95), m.ITL.PercentileMs(99),
			per(m.InputTokens, seconds), per(m.OutputTokens, seconds), turns.Steps, turns.Contended,
			per(turns.WaitedUs, 1000*float64(turns.Contended)), 100*per(turns.HeldUs, 1e6*seconds))
	}
	return t.Flush()
}
