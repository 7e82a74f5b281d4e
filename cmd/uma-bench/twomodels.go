package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/bench"
	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
)

func twoModelsCommand() *cobra.Command {
	cfg := bench.TwoModelsConfig{Log: os.Stderr}
	var other string
	var asJSON, check bool
	cmd := &cobra.Command{
		Use:   "two-models [-- uma-serve options…]",
		Short: "ITL of one model's answer while another model gets a storm of prompts, with and without the arbiter",
		Long: fmt.Sprintf(`Two models behind one front on the same cores: model A answers one request, clients submit
prompts for model B back to back. Each side starts a front, measures each model alone, then both.
The prompt speed is relative to that of model B alone on the same side.

Required with the arbiter: the answer's ITL p95 is at most --target ms, the prompts keep at least
%.2f of their speed.

llama-server, one process per model on the same files, is not run; --llama-server takes figures that
were measured elsewhere, for a third row: ITL p95 in ms and the ratio of the prompt speed.`, bench.MinPromptRatio),
		Example: `  uma-bench two-models
  uma-bench two-models --chat a.gguf --prompts b.gguf --target 50
  uma-bench two-models --llama-server 212.5,0.48`,
		RunE: func(_ *cobra.Command, args []string) error {
			cfg.Args = args
			var given *bench.TwoModels
			if other != "" {
				var err error
				if given, err = givenFigures(other, cfg.TargetMs); err != nil {
					return usageError{err}
				}
			}
			for _, file := range []*string{&cfg.Chat, &cfg.Prompts} {
				var err error
				if *file, err = benchModel(*file); err != nil {
					return err
				}
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			cfg.Start = func(args ...string) (*daemonproc.Proc, error) {
				return daemonproc.Start(filepath.Join(filepath.Dir(self), "uma-serve"), time.Minute, nil, args...)
			}
			sides, err := bench.RunTwoModels(cfg)
			if given != nil {
				sides = append(sides, *given)
			}
			if asJSON {
				err = errors.Join(err, json.NewEncoder(os.Stdout).Encode(sides))
			} else {
				printTwoModels(os.Stdout, sides)
			}
			if err == nil && check && !(sides[0].MeetsChat && sides[0].MeetsRatio) {
				err = fmt.Errorf("with the arbiter: ITL p95 %.1f ms (target %g ms), prompt speed %.2f of alone (%.2f)",
					sides[0].Chat.P95, cfg.TargetMs, sides[0].Ratio, bench.MinPromptRatio)
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Chat, "chat", "", "GGUF `file` of model A (default: a generated one of 135 M parameters, Q8_0)")
	f.StringVar(&cfg.Prompts, "prompts", "", "GGUF `file` of model B (default: the same)")
	f.Float64Var(&cfg.TargetMs, "target", 100, "ITL target of the answer, in `ms`")
	f.IntVar(&cfg.Clients, "clients", 4, "clients that submit prompts")
	f.IntVar(&cfg.Prompt, "prompt", 1500, "approximate `tokens` of each prompt")
	f.DurationVar(&cfg.Alone, "alone", 10*time.Second, "time for which each model is measured alone")
	f.DurationVar(&cfg.Storm, "storm", 20*time.Second, "time that the storm lasts")
	f.StringVar(&other, "llama-server", "", "`P95,RATIO` of llama-server twice, measured elsewhere, as a third row")
	f.BoolVar(&check, "check", false, "exit with status 1 when the figures do not hold")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// givenFigures reads the value of --llama-server.
func givenFigures(text string, target float64) (*bench.TwoModels, error) {
	p95, ratio, ok := strings.Cut(text, ",")
	s := &bench.TwoModels{Side: "llama-server, one process each", FromFlags: true}
	var errs [2]error
	s.Chat.P95, errs[0] = strconv.ParseFloat(p95, 64)
	s.Ratio, errs[1] = strconv.ParseFloat(ratio, 64)
	if err := errors.Join(errs[:]...); !ok || err != nil || !(s.Chat.P95 > 0) || !(s.Ratio >= 0) {
		return nil, fmt.Errorf("--llama-server is %q; it must be an ITL in ms and a ratio, as in 212.5,0.48", text)
	}
	s.Judge(target)
	return s, nil
}

// printTwoModels writes the table, as far as it was measured.
func printTwoModels(w io.Writer, sides []bench.TwoModels) {
	fmt.Fprintln(w, "| | A alone: ITL p50 / p95 ms | A in the storm: ITL p50 / p95 / worst ms | B alone: prompt tok/s "+
		"| B in the storm | ratio | B's steps cut for A | holds | load |\n|---|---|---|---|---|---|---|---|---|")
	for _, s := range sides {
		holds := "no"
		if s.MeetsChat && s.MeetsRatio {
			holds = "yes"
		}
		if s.FromFlags {
			fmt.Fprintf(w, "| %s | – | – / **%.1f** / – | – | – | **%.2f** | – | %s | as given |\n", s.Side, s.Chat.P95,
				s.Ratio, holds)
			continue
		}
		fmt.Fprintf(w, "| %s | %.1f / %.1f | %.1f / **%.1f** / %.1f | %.0f | %.0f | **%.2f** | %.0f | %s | %s |\n",
			s.Side, s.ChatAlone.P50, s.ChatAlone.P95, s.Chat.P50, s.Chat.P95, s.Chat.Worst, s.Alone, s.Prompts, s.Ratio,
			s.Yields, holds, s.Load)
	}
}
