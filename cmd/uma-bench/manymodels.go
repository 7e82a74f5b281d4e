package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/bench"
	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
)

func modelsCommand() *cobra.Command {
	cfg := bench.ManyModelsConfig{Log: os.Stderr}
	var asJSON, check bool
	cmd := &cobra.Command{
		Use:   "models [-- uma-serve options…]",
		Short: "many models asked in turn, with memory for only a few (Linux)",
		Long: `Asks models by their names, one after the other, behind one front whose --memory has room for --room of
them. All have the same file. Memory is that of all processes together: RSS counts the pages of the
file in each process that maps them, PSS once.

Required: memory stays below the limit, by the front's count and by RSS; no request is refused; loads
equal unloads plus the models still loaded; the front's memory does not grow.`,
		Example: `  uma-bench models
  uma-bench models --models 50 --room 4 --rounds 2 --json
  uma-bench models -m model.gguf -- --ctx-size 4096`,
		RunE: func(_ *cobra.Command, args []string) error {
			switch {
			case cfg.Room < 1 || cfg.Models <= cfg.Room:
				return usageError{fmt.Errorf("--models is %d and --room %d; --room must be 1 or more, and --models "+
					"more than --room", cfg.Models, cfg.Room)}
			case cfg.Rounds < 1 || cfg.Tokens < 1:
				return usageError{fmt.Errorf("--rounds is %d and --tokens %d; both must be 1 or more", cfg.Rounds,
					cfg.Tokens)}
			}
			var err error
			if cfg.File, err = benchModel(cfg.File); err != nil {
				return err
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			cfg.Args = args
			cfg.Start = func(args ...string) (*daemonproc.Proc, error) {
				return daemonproc.Start(filepath.Join(filepath.Dir(self), "uma-serve"), time.Minute, nil, args...)
			}
			m, err := bench.RunManyModels(cfg)
			if err != nil {
				return err
			}
			if asJSON {
				err = json.NewEncoder(os.Stdout).Encode(&m)
			} else {
				printManyModels(&m)
			}
			if check && !m.Holds {
				err = errors.Join(err, errors.New("the figures do not hold"))
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVarP(&cfg.File, "model", "m", "", "GGUF `file` (default: a generated one of 135 M parameters, Q8_0)")
	f.IntVar(&cfg.Models, "models", 50, "models")
	f.IntVar(&cfg.Room, "room", 4, "models that fit into the memory")
	f.IntVar(&cfg.Rounds, "rounds", 2, "times that each model is asked")
	f.IntVar(&cfg.Tokens, "tokens", 8, "`tokens` of each answer")
	f.BoolVar(&check, "check", false, "exit with status 1 when the figures do not hold")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printManyModels(m *bench.ManyModels) {
	mib := func(n int64) float64 { return float64(n) / (1 << 20) }
	holds := "no"
	if m.Holds {
		holds = "yes"
	}
	fmt.Println("| requests | refused | limit MiB | counted | peak RSS | peak PSS | loads | unloads | loaded at " +
		"the end | front's RSS early → late | first token p50 / p95 ms, load included | holds |\n" +
		"|---|---|---|---|---|---|---|---|---|---|---|---|")
	fmt.Printf("| %d | %d | %.0f | %.0f | **%.0f** | %.0f | %d | %d | %d | %.1f → %.1f MiB | %.0f / %.0f "+
		"| %s |\n", m.Requests, m.Refused, mib(m.LimitBytes), mib(m.CountedBytes), mib(m.RSSBytes),
		mib(m.PSSBytes), m.Loads, m.Unloads, m.Loaded, mib(m.FrontEarlyBytes), mib(m.FrontLateBytes), m.FirstP50Ms,
		m.FirstP95Ms, holds)
}
