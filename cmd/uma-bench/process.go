package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/bench"
	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// withDaemon runs fn against a uma-serve started for it, which lies beside this binary.
func withDaemon(model string, args []string, fn func(*daemonproc.Proc) error) error {
	if model == "" {
		var err error
		if model, err = cachedModel("uma-bench-tiny-v1.gguf", ggufgen.Tiny()); err != nil {
			return err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p, err := daemonproc.Start(filepath.Join(filepath.Dir(self), "uma-serve"), time.Minute, nil,
		append([]string{"-m", model}, args...)...)
	if err != nil {
		return err
	}
	if err := fn(p); err != nil {
		p.Stop(5 * time.Second)
		return err
	}
	return p.Stop(10 * time.Second)
}

func idleCommand() *cobra.Command {
	var model string
	var n int
	var window time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "idle",
		Short: "CPU and memory of an idle daemon, with and without idle connections (Linux)",
		Long: `Watches a daemon without requests. CPU and memory are those of all its processes: of the front and of the
engine process of the model. Pages that they share, such as those of the program, count twice.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return withDaemon(model, nil, func(p *daemonproc.Proc) error {
				without, with, err := bench.RunIdle(p, n, window)
				if err != nil {
					return err
				}
				if asJSON {
					return json.NewEncoder(os.Stdout).Encode([]bench.Idle{without, with})
				}
				fmt.Println("| idle connections | CPU, % of a core | RSS MiB | added MiB |\n|---|---|---|---|")
				for _, r := range []bench.Idle{without, with} {
					fmt.Printf("| %d | %.2f | %.1f | %.1f |\n", r.Connections, r.CPUPercent,
						float64(r.RSSBytes)/(1<<20), float64(r.AddedRSSBytes)/(1<<20))
				}
				return nil
			})
		},
	}
	f := cmd.Flags()
	f.StringVarP(&model, "model", "m", "", "GGUF `file` (default: a tiny generated one)")
	f.IntVar(&n, "connections", 1000, "idle connections")
	f.DurationVar(&window, "window", 10*time.Second, "measuring time of each state")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func memoryCommand() *cobra.Command {
	var model string
	var total, workers int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "memory",
		Short: "resident memory over many requests (Linux)",
		Long: `Floods a daemon with requests and prints the resident memory of all its processes after each tenth of
them. The daemon keeps at most 16 MiB of evicted prefixes (--cache-ram), which the warm-up fills.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return withDaemon(model, []string{"--cache-ram", "16MiB"}, func(p *daemonproc.Proc) error {
				m, err := bench.RunMemory(p, total, workers, os.Stderr)
				if err != nil {
					return err
				}
				if asJSON {
					return json.NewEncoder(os.Stdout).Encode(m)
				}
				fmt.Printf("%d requests: RSS after warm-up %.1f MiB, farthest from it %+.2f %%\n",
					total, float64(m.RSSBytes[0])/(1<<20), 100*m.Drift)
				return nil
			})
		},
	}
	f := cmd.Flags()
	f.StringVarP(&model, "model", "m", "", "GGUF `file` (default: a tiny generated one)")
	f.IntVarP(&total, "requests", "n", 10_000, "requests to measure, after a warm-up of a fifth as many")
	f.IntVar(&workers, "workers", 8, "requests in flight")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
