package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/bench"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
	"github.com/uma-serve/uma-serve/runtime/llama"
)

func kernelsCommand() *cobra.Command {
	cfg := bench.KernelsConfig{Use: llama.UseKernels, Log: os.Stderr}
	var model, size string
	var weights, kernels []string
	var threads, long int
	var asJSON bool
	cmd := &cobra.Command{
		Use: "kernels",
		Short: "uma-serve's matrix and attention kernels against ggml's, with repacked weights: decode steps and a " +
			"prompt",
		Long: `Opens a model twice, with uma-serve's kernels and with ggml's (and the weights that ggml repacks), and
alternates the same step on both: one token each of 1, 4 and 16 sequences, and a prompt. The ratio is ggml's
time divided by that of uma-serve's kernels. Between single rows the model's file is read with nothing computed: no
step of one row is much faster than that. Where memory is the limit for both, --size 30m shows the kernels themselves:
its weights stay in a cache of 32 MB.

  uma-bench kernels                                      1.1 B parameters: Q4_K_M, Q6_K, Q4_0
  uma-bench kernels --kernels avx2 --weights q4_k_m
  uma-bench kernels --size 30m --rows 1 --prompt 0 --rounds 301
  uma-bench kernels --size 135m --weights f16,bf16 --rounds 15
  uma-bench kernels --size 135m --weights q8_0 --long 16000     a prompt of 16,000 tokens and steps behind it`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			shapes, ok := benchSizes[size]
			switch {
			case !ok:
				return usageError{fmt.Errorf("--size is %q; it takes %s", size, benchSizeNames)}
			case cfg.Rounds < 1:
				return usageError{fmt.Errorf("--rounds is %d; it must be at least 1", cfg.Rounds)}
			case cfg.Prompt < 0 || cfg.Prompt > 2048:
				return usageError{fmt.Errorf("--prompt is %d; it must be 0…2048", cfg.Prompt)}
			case len(cfg.Rows) > 0 && (slices.Min(cfg.Rows) < 1 || slices.Max(cfg.Rows) > 64):
				return usageError{fmt.Errorf("--rows is %v; each must be 1…64", cfg.Rows)}
			case long < 0 || long > 1<<20:
				return usageError{fmt.Errorf("--long is %d; it must be 0…%d", long, 1<<20)}
			}
			models, err := benchModels(model, weights, shapes...)
			if err != nil {
				return err
			}
			var all []bench.Kernels
			var longs []bench.LongContext
			for _, m := range models {
				for _, k := range kernels {
					fmt.Fprintln(os.Stderr, m.weights, k)
					if long > 0 {
						r, err := longContext(m.path, k, long, threads)
						if err != nil {
							return err
						}
						longs = append(longs, r)
						continue
					}
					rows, err := compareKernels(cfg, m, k, threads)
					if err != nil {
						return err
					}
					all = append(all, rows...)
				}
			}
			switch {
			case asJSON && long > 0:
				return json.NewEncoder(os.Stdout).Encode(longs)
			case asJSON:
				return json.NewEncoder(os.Stdout).Encode(all)
			case long > 0:
				printLongContexts(os.Stdout, longs)
			default:
				printKernels(os.Stdout, all)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVarP(&model, "model", "m", "", "GGUF `file` (default: a generated one of --size and each of --weights)")
	f.StringVar(&size, "size", "1b", "parameters of the generated model: "+benchSizeNames)
	f.StringSliceVar(&weights, "weights", []string{"q4_k_m", "q6_k", "q4_0"}, "`types` of the generated models: "+
		ggufgen.TypeNames())
	f.StringSliceVar(&kernels, "kernels", []string{"auto"}, "our `kernels` to compare: auto, amx, avx512, avxvnni, "+
		"avx2, i8mm, neon")
	f.IntSliceVar(&cfg.Rows, "rows", []int{1, 4, 16}, "`sequences` that decode one token each in a step")
	f.IntVar(&cfg.Prompt, "prompt", 512, "`tokens` of a prompt; 0 = none")
	f.IntVar(&cfg.Rounds, "rounds", 7, "pairs of steps for each case")
	f.IntVar(&long, "long", 0, "measure a prompt of so many `tokens` and the steps behind it instead, with --kernels "+
		"alone")
	f.IntVarP(&threads, "threads", "t", 2, "compute threads; 0 = one per physical core")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func compareKernels(cfg bench.KernelsConfig, m benchModelFile, kernels string, threads int) ([]bench.Kernels, error) {
	most := 1
	if len(cfg.Rows) > 0 {
		most = slices.Max(cfg.Rows)
	}
	open := func(kernels string) (runtime.Engine, error) {
		return llama.Open(runtime.Options{ModelPath: m.path, ContextTokens: max(2048, cfg.Prompt+most*(bench.KernelsDepth+1)),
			Sequences: most + 1, Threads: threads, Kernels: kernels})
	}
	ours, err := open(kernels)
	if err != nil {
		return nil, err
	}
	defer ours.Close()
	name := ours.Capabilities().Kernels
	stock, err := open("ggml")
	if err != nil {
		return nil, err
	}
	defer stock.Close()
	cfg.Model, cfg.Threads = m.path, ours.Capabilities().Threads
	rows, err := bench.RunKernels(cfg, name, ours, stock)
	for i := range rows {
		rows[i].Weights = m.weights
	}
	return rows, err
}

func longContext(path, kernels string, tokens, threads int) (bench.LongContext, error) {
	const steps = 32
	e, err := llama.Open(runtime.Options{ModelPath: path, ContextTokens: tokens + steps, Sequences: 1, Threads: threads,
		Kernels: kernels})
	if err != nil {
		return bench.LongContext{}, err
	}
	defer e.Close()
	return bench.RunLongContext(e, path, tokens, steps, e.Capabilities().Threads)
}

func printKernels(w io.Writer, rows []bench.Kernels) {
	fmt.Fprintln(w, "| weights | kernels | step | ms | ggml's ms | ratio | reading the file ms |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|")
	for _, r := range rows {
		plain := "–"
		if r.PlainMs > 0 {
			plain = fmt.Sprintf("%.2f", r.PlainMs)
		}
		fmt.Fprintf(w, "| %s | %s | %s | %.2f | %.2f | **%.2f** | %s |\n", r.Weights, r.Kernels, r.Case, r.Ms,
			r.StockMs, r.Ratio, plain)
	}
}

func printLongContexts(w io.Writer, rows []bench.LongContext) {
	fmt.Fprintln(w, "| kernels | prompt tokens | prompt s | step behind them ms | weights and cells MB | GB/s | "+
		"plain reading GB/s |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|")
	for _, r := range rows {
		fmt.Fprintf(w, "| %s | %d | %.1f | %.1f | %.0f | **%.1f** | %.1f |\n", r.Kernels, r.Tokens, r.PromptMs/1000,
			r.StepMs, r.BytesRead/1e6, r.GBPerSecond, r.PlainGBPerSecond)
	}
}
