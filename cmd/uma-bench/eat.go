package main

import (
	"encoding/json"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/bench"
	"github.com/uma-serve/uma-serve/models/heldout"
)

func eatCommand() *cobra.Command {
	cfg := bench.EATConfig{Log: os.Stderr}
	cfg.Eval.Repeat, cfg.Eval.MaxTokens = 1, 1000
	var model, png string
	var each int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "eat",
		Short: "think tokens saved by EAT early exit, compared with a token cap",
		Long: `Ask held-out problems once for each EAT threshold δ and once for each token cap, and report accuracy by
think tokens. Each point starts a new daemon on the built-in model or --model.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg.Eval.Problems = firstOfEach(heldout.Problems(), each)
			cfg.Serve = func(options ...string) (string, func() error, error) {
				p, err := startForEval(model, cfg.Eval.Concurrency, options)
				if err != nil {
					return "", nil, err
				}
				return p.Socket, func() error { return p.Stop(10 * time.Second) }, nil
			}
			points, err := bench.RunEAT(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			if png != "" {
				if err := bench.PlotEAT(png, points); err != nil {
					return err
				}
			}
			if asJSON {
				return json.NewEncoder(os.Stdout).Encode(points)
			}
			bench.PrintEAT(os.Stdout, points)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVarP(&model, "model", "m", "", "GGUF `file` (default: the built-in model)")
	f.IntVar(&each, "each", 34, "ask the first `N` problems of each task; 0 = all")
	f.IntVarP(&cfg.Eval.Concurrency, "concurrency", "n", 8, "questions in flight")
	f.Float32Var(&cfg.Eval.Temperature, "temp", 1,
		"sampling temperature; with greedy sampling the built-in model hardly ever thinks longer than needed")
	f.Uint64Var(&cfg.Eval.Seed, "seed", 1, "sampling seed, the same for every point")
	f.Float64SliceVar(&cfg.Deltas, "delta", []float64{1e-6, 1e-4, 1e-3, 1e-2, 1e-1, 1},
		"thresholds of EAT's EMA variance, in nats²")
	f.IntSliceVar(&cfg.Caps, "cap", []int{20, 40, 60, 80, 100, 130, 160, 200}, "token caps")
	f.StringSliceVar(&cfg.EAT, "eat", []string{
		"eat_warmup_probes=1", "ema_alpha=0.5", "min_think_tokens=0", "eat_probe_interval_tokens=1",
		"eat_probe_max_interval_tokens=0",
	}, "options of [meridian] for the EAT runs; a model of short thoughts needs a shorter warm-up than the default")
	f.StringVar(&png, "png", "", "draw the two curves to `file`")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
