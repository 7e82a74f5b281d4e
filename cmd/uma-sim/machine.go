package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/uma-serve/uma-serve/sim"
)

func newMachine() *cobra.Command {
	var servers []string
	var asJSON bool
	c := &cobra.Command{
		Use:   "machine",
		Short: "Simulate several models on one machine, whose engines compute in turn",
		Long: `Simulate several models behind one uma-serve: each has a server and a workload, and their engines
compute one after the other on the same device. The daemon's arbiter decides who is next, and how long
its step may be.

--server has the flags of uma-sim run for one model, separated by spaces; give it once for each model. The batch
formation is uma.

  uma-sim machine \
    --server "--cost-model a.json --parallel 8 --itl-target-ms 100 --workload chatbot --concurrency 1" \
    --server "--cost-model b.json --parallel 8 --prompt-tokens 1500 --output-tokens 1 --concurrency 4"`,
	}
	c.Flags().StringArrayVar(&servers, "server", nil, "`FLAGS` of one model's server and workload, as of uma-sim run")
	c.Flags().BoolVar(&asJSON, "json", false, "print the results as JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if len(servers) == 0 {
			return usagef("give at least one --server, with the flags of uma-sim run in quotes")
		}
		var list []sim.Shared
		for i, text := range servers {
			s, err := sharedServer(text, c.ErrOrStderr())
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

// sharedServer reads the value of --server.
func sharedServer(text string, stderr io.Writer) (out sim.Shared, err error) {
	server := serverFlags{mend: true}
	work := &workloadFlags{}
	fs := pflag.NewFlagSet("--server", pflag.ContinueOnError)
	server.register(fs)
	work.register(fs)
	server.warnTo(stderr)
	if err := fs.Parse(strings.Fields(text)); err != nil {
		return out, usageError{err}
	}
	if rest := fs.Args(); len(rest) > 0 {
		return out, usagef("%q is no flag of uma-sim run", rest[0])
	}
	if !fs.Changed("batch-formation") {
		if err := fs.Set("batch-formation", "uma"); err != nil {
			return out, err
		}
	}
	cfg, err := server.server(work)
	if err != nil {
		return out, err
	}
	if out.Model, err = cfg.Latency(); err != nil {
		return out, err
	}
	out.Config = cfg.Server()
	out.Source, err = work.source(out.Config.Seed, 0)
	return out, err
}

func writeMachineJSON(w io.Writer, servers []string, reports []*sim.Report) error {
	type row struct {
		Server    string         `json:"server"` // its flags
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
