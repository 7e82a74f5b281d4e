package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/bench"
	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
)

func busyCommand() *cobra.Command {
	cfg := bench.BusyConfig{Log: os.Stderr}
	var model string
	var processes int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "busy [-- OPTIONS OF THE DAEMON]",
		Short: "speed of answers beside a busy process, and after it has ended",
		Long: `busy starts two daemons, one with default options and one with --fixed-threads, and measures in turns how
fast each answers undisturbed, beside processes that never sleep, and after their end.`,
		RunE: func(_ *cobra.Command, args []string) error {
			model, err := benchModel(model)
			if err != nil {
				return err
			}
			cfg.Disturb = func() (func(), error) { return spin(processes) }
			options := append([]string{"--parallel", "16", "--ctx-size", "8192", "--no-prefix-cache"}, args...)
			return withDaemon(model, options, func(a *daemonproc.Proc) error {
				fixed := append([]string{"--fixed-threads"}, options...)
				return withDaemon(model, fixed, func(b *daemonproc.Proc) error {
					rows, err := bench.RunBusy(cfg, []bench.BusySide{{Name: "default", Socket: a.Socket},
						{Name: "--fixed-threads", Socket: b.Socket}})
					if err != nil {
						return err
					}
					if asJSON {
						return json.NewEncoder(os.Stdout).Encode(rows)
					}
					printBusy(os.Stdout, rows)
					return nil
				})
			})
		},
	}
	f := cmd.Flags()
	f.StringVarP(&model, "model", "m", "", "GGUF `file` (default: a generated one of 135 M parameters, Q8_0)")
	f.IntSliceVar(&cfg.Streams, "streams", []int{1, 4}, "answers at the same time")
	f.IntVar(&cfg.Tokens, "tokens", 256, "`tokens` of each answer; the next one is asked for at once")
	f.DurationVar(&cfg.Phase, "phase", 6*time.Second, "length of each measurement: undisturbed, disturbed, after")
	f.IntVar(&cfg.Rounds, "rounds", 3, "rounds per number of streams")
	f.IntVar(&processes, "processes", 1, "processes that never sleep")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// spin starts processes that never sleep. end ends them.
func spin(n int) (end func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var started []*exec.Cmd
	end = func() {
		for _, c := range started {
			_ = c.Process.Kill()
			_ = c.Wait() // it says that the process was killed
		}
	}
	for range n {
		c := exec.Command(self, "spin")
		c.Env = append(os.Environ(), "GOMAXPROCS=1")
		if err := c.Start(); err != nil {
			end()
			return nil, err
		}
		started = append(started, c)
	}
	return end, nil
}

// spinCommand is one of spin's processes.
func spinCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "spin",
		Hidden: true,
		Args:   cobra.NoArgs,
		Run: func(*cobra.Command, []string) {
			for parent := os.Getppid(); os.Getppid() == parent; { // it ends with its parent
				for range 50_000_000 { // Go keeps empty loops
				}
			}
		},
	}
}

func printBusy(w io.Writer, rows []bench.Busy) {
	fmt.Fprintln(w, "| streams | daemon | undisturbed tok/s | disturbed tok/s | ratio | "+
		"ITL p95 undisturbed / disturbed ms | back after s | undisturbed, relative to fixed |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|")
	for _, r := range rows {
		idle := "–"
		if r.IdleCost > 0 {
			idle = fmt.Sprintf("%.3f", r.IdleCost)
		}
		fmt.Fprintf(w, "| %d | %s | %.1f | %.1f | **%.2f** | %.1f / %.1f | %.2f | %s |\n", r.Streams, r.Side,
			r.Undisturbed, r.Disturbed, r.Ratio, r.CalmITLp95Ms, r.ITLp95Ms, r.BackSeconds, idle)
	}
}
