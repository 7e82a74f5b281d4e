package main

import (
	"encoding/json"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/bench"
	"github.com/uma-serve/uma-serve/models/heldout"
)

// eatOptions are the options of [meridian] for EAT: a model of short thoughts needs a shorter warm-up than the default.
var eatOptions = []string{"eat_warmup_probes=1", "ema_alpha=0.5", "min_think_tokens=0", "eat_probe_interval_tokens=1",
	"eat_probe_max_interval_tokens=0"}

func eatCommand() *cobra.Command {
	cfg := bench.EATConfig{Log: os.Stderr, EAT: eatOptions}
	cfg.Eval.Repeat, cfg.Eval.MaxTokens = 1, 1000
	var model, png string
	var each, check int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "eat",
		Short: "think tokens saved by EAT and RPDI early exit, compared with a token cap",
		Long: `Ask held-out problems once for each EAT threshold δ, each RPDI threshold λ and each token cap, and report
accuracy by think tokens. Each point starts a new daemon on the built-in model or --model.

The threshold of each signal that needs the fewest think tokens, at no more than --loss points of accuracy, is
then checked: on --check other problems of each task, with other random numbers, against thinking as the model
decides. Its savings have a 95 % interval (bootstrap over problems).`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg.Eval.Problems = firstOfEach(heldout.Problems(), each)
			if each > 0 && check > 0 {
				cfg.Check = slices.DeleteFunc(firstOfEach(heldout.Problems(), each+check),
					func(p heldout.Problem) bool { return slices.Contains(cfg.Eval.Problems, p) })
			}
			cfg.Loss /= 100
			cfg.Serve = func(options ...string) (string, func() error, error) {
				p, err := startForEval(model, cfg.Eval.Concurrency, options)
				if err != nil {
					return "", nil, err
				}
				return p.Socket, func() error { return p.Stop(10 * time.Second) }, nil
			}
			r, err := bench.RunEAT(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			if png != "" {
				if err := bench.PlotEAT(png, r.Points); err != nil {
					return err
				}
			}
			if asJSON {
				return json.NewEncoder(os.Stdout).Encode(r)
			}
			r.Markdown(os.Stdout)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVarP(&model, "model", "m", "", "GGUF `file` (default: the built-in model)")
	f.IntVar(&each, "each", 34, "ask the first `N` problems of each task; 0 = all")
	f.IntVar(&check, "check", 34, "check the chosen thresholds on the next `N` problems of each task; 0 = no check")
	f.Float64Var(&cfg.Loss, "loss", 1, "`points` of accuracy that a threshold may cost on the problems that choose it")
	f.IntVarP(&cfg.Eval.Concurrency, "concurrency", "n", 8, "questions in flight")
	f.Float32Var(&cfg.Eval.Temperature, "temp", 1,
		"sampling temperature; with greedy sampling the built-in model hardly ever thinks longer than needed")
	f.Uint64Var(&cfg.Eval.Seed, "seed", 1, "sampling seed, the same for every point")
	f.Float64SliceVar(&cfg.Deltas, "delta", []float64{1e-6, 1e-4, 1e-3, 1e-2, 1e-1, 1},
		"thresholds of EAT's EMA variance, in nats²")
	f.Float64SliceVar(&cfg.Lambdas, "lambda", []float64{1.5, 2, 3, 4, 6}, "thresholds of RPDI's index")
	f.IntSliceVar(&cfg.Caps, "cap", []int{20, 40, 60, 80, 100, 130, 160, 200}, "token caps")
	f.StringSliceVar(&cfg.RPDI, "rpdi", []string{"rpdi_window=8", "rpdi_boundaries=1", "min_think_tokens=0"},
		"options of [meridian] for the RPDI runs; a model of short thoughts needs a shorter window than the default")
	f.StringVar(&png, "png", "", "draw the curves to `file`")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
