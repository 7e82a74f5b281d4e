package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/bench"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// promptSizes are the shapes of generated models that `prompt` knows.
var promptSizes = map[string][]ggufgen.Config{
	"135m": {ggufgen.Bench135M(), ggufgen.Bench135MWide()},
	"1b":   {ggufgen.Bench1B()},
	"30m":  {ggufgen.Bench30M()},
}

func promptCommand() *cobra.Command {
	cfg := bench.PromptConfig{Log: os.Stderr}
	var model, size string
	var weights []string
	var threads int
	var asJSON bool
	names := strings.Join(slices.Sorted(maps.Keys(promptSizes)), ", ")
	cmd := &cobra.Command{
		Use:   "prompt [flags] [-- SERVER OPTIONS]",
		Short: "a lone prompt's speed and first token: the daemon over its socket against the bare decode loop",
		Long: `Alternates, on one engine in this process, a prompt in the bare loop (one llama_decode of the tokens)
with one of as many tokens asked of the daemon over its socket. Both repack weights alike. The ratio is
served over bare speed: prompt tokens/s until the first token of the answer is read.

  uma-bench prompt                                  1.1 B parameters, Q4_K_M: 512 tokens, and 64
  uma-bench prompt --size 135m --weights q8_0,f16 --tokens 512
  uma-bench prompt -m model.gguf -t 4
  uma-bench prompt -- --policy stock                options of the daemon`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
				return errors.New("options of the daemon go after --")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, options []string) error {
			shapes, ok := promptSizes[size]
			switch {
			case !ok:
				return usageError{fmt.Errorf("--size is %q; it takes %s", size, names)}
			case len(cfg.Tokens) == 0 || slices.Min(cfg.Tokens) < 1 || slices.Max(cfg.Tokens) > promptCells/2:
				return usageError{fmt.Errorf("--tokens is %v; each must be 1…%d", cfg.Tokens, promptCells/2)}
			case cfg.Rounds < 1:
				return usageError{fmt.Errorf("--rounds is %d; it must be at least 1", cfg.Rounds)}
			}
			models, err := benchModels(model, weights, shapes...)
			if err != nil {
				return err
			}
			var all []bench.Prompt
			for _, m := range models {
				err := serveHere(cmd.Context(), m.path, func(h here) error {
					cfg.Socket, cfg.Idle, cfg.Client = h.socket, h.idle, clientProcess
					rows, err := bench.RunPrompt(cfg, h.engine)
					for i := range rows {
						rows[i].Weights = m.weights
					}
					all = append(all, rows...)
					return err
				}, append([]string{"--parallel", "4", "--ctx-size", strconv.Itoa(promptCells), "--threads",
					strconv.Itoa(threads)}, options...)...)
				if err != nil {
					return err
				}
			}
			if asJSON {
				return json.NewEncoder(os.Stdout).Encode(all)
			}
			printPrompts(os.Stdout, all)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVarP(&model, "model", "m", "", "GGUF `file` (default: a generated one of --size and each of --weights)")
	f.StringVar(&size, "size", "1b", "parameters of the generated model: "+names)
	f.StringSliceVar(&weights, "weights", []string{"q4_k_m"}, "`types` of the generated models: "+ggufgen.TypeNames())
	f.IntSliceVar(&cfg.Tokens, "tokens", []int{512, 64}, "`tokens` of a prompt, exactly")
	f.IntVar(&cfg.Rounds, "rounds", 7, "pairs of bare and served for each length")
	f.IntVarP(&threads, "threads", "t", 0, "compute threads; 0 = physical cores")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// promptCells is the context that prompts are computed in.
const promptCells = 2048

func printPrompts(w io.Writer, rows []bench.Prompt) {
	fmt.Fprintln(w, "| weights | prompt tokens | bare: first token ms | served: first token ms | bare tok/s | served "+
		"tok/s | served, in decodes ms | steps | ratio |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|")
	for _, r := range rows {
		fmt.Fprintf(w, "| %s | %d | %.1f | %.1f | %.1f | %.1f | %.1f | %.0f | **%.3f** |\n", r.Weights, r.Tokens,
			r.Bare.FirstTokenMs, r.Served.FirstTokenMs,
			r.Bare.TokensPerSecond, r.Served.TokensPerSecond, r.Served.DecodeMs, r.Served.Steps, r.Ratio)
	}
}
