package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/bench/gpucheck"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
	"github.com/uma-serve/uma-serve/runtime/llama"
)

func gpuCheckCommand() *cobra.Command {
	cfg := gpucheck.Config{Log: os.Stderr, Pasted: 8, Near: 0.25}
	var build, reference string
	cmd := &cobra.Command{
		Use:   "gpu-check OUT [MODEL.gguf…]",
		Short: "an accelerator's answers, speed and snapshots, beside llama-server",
		Long: `For each model: greedy answers on the accelerator and on the processor, 1, 4, 16 and 64 streams,
chats beside pasted prompts, a prefix used again, a snapshot over a restart, clients that disconnect, and the
same load on llama-server. A step that fails is recorded and the next one is run. Writes OUT/gpu-check.json
and OUT/gpu-check.md; exits with 1 when a step failed. uma-serve lies beside this binary, and so does the
library of the back end. scripts/gpu-check.sh builds that library and calls this command.

The processor answers with the model's weights in F32, because its products with quantised ones round
activations. For that a copy of 4 bytes a weight is made in TMPDIR, for the time of the model's first steps.

Without a MODEL two generated ones are used, of 135 M parameters (Q8_0) and 1.1 B (Q4_K_M).`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if !slices.Contains([]string{"cuda", "vulkan", "cpu"}, cfg.Backend) {
				return usageError{fmt.Errorf("--backend is %q; it must be cuda, vulkan or cpu", cfg.Backend)}
			}
			switch reference {
			case "f32":
				cfg.Decode = llama.Floats
			case "own":
			default:
				return usageError{fmt.Errorf("--reference is %q; it must be f32 or own", reference)}
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			if cfg.Light {
				cfg.Pasted = 2
			}
			cfg.Bin, cfg.Build, cfg.Models = filepath.Dir(self), strings.Fields(build), args[1:]
			if len(cfg.Models) == 0 {
				if cfg.Models, err = gpuCheckModels(); err != nil {
					return err
				}
			}
			for i, m := range cfg.Models {
				if cfg.Models[i], err = filepath.Abs(m); err != nil {
					return err
				}
				if _, err := os.Stat(m); err != nil {
					return err
				}
			}
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			if cfg.Scratch, err = os.MkdirTemp("", "gpu-check"); err != nil {
				return err
			}
			defer os.RemoveAll(cfg.Scratch)
			var unsaved error
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			report := gpucheck.Run(ctx, cfg, func(r *gpucheck.Report) {
				b, err := json.MarshalIndent(r, "", "\t")
				file := func(name string, b []byte) error {
					return os.WriteFile(filepath.Join(args[0], name), b, 0o644)
				}
				unsaved = errors.Join(err, file("gpu-check.json", append(b, '\n')),
					file("gpu-check.md", []byte(r.Markdown())))
			})
			if unsaved != nil {
				return unsaved
			}
			fmt.Print(report.Markdown())
			if n := report.Failed(); n > 0 {
				return fmt.Errorf("%d of %d steps failed", n, len(report.Steps))
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Backend, "backend", "cuda", "back `end`: cuda, vulkan, or cpu in an accelerator's place")
	f.StringVar(&cfg.Llama, "llama-server", "", "`program` to compare with; without it the comparison is left out")
	f.StringVar(&build, "build", "", "`command` that makes the library of the back end, run first and timed")
	f.StringVar(&reference, "reference", "f32",
		"`weights` that the processor answers with: f32, or own (the file's, rounded activations with them)")
	f.IntVar(&cfg.Tokens, "tokens", 48, "`tokens` of an answer")
	f.BoolVar(&cfg.Light, "light", false, "a load that a processor in a device's place can do: prompts of a quarter "+
		"of the tokens, two of them pasted, 16 streams at most, eight rows a graph (a tiny model: one)")
	f.IntVar(&cfg.Prompts, "prompts", 24, "`prompts` whose answers are compared, at most 24")
	f.DurationVar(&cfg.Limit, "limit", 8*time.Minute, "time limit of everything")
	f.DurationVar(&cfg.StepMax, "step-limit", time.Minute, "time limit of a step")
	return cmd
}

// gpuCheckModels returns the models of a machine that has none.
func gpuCheckModels() ([]string, error) {
	var paths []string
	for _, m := range []struct {
		weights string
		shape   ggufgen.Config
	}{{"q8_0", ggufgen.Bench135M()}, {"q4_k_m", ggufgen.Bench1B()}} {
		files, err := benchModels("", []string{m.weights}, m.shape)
		if err != nil {
			return nil, err
		}
		paths = append(paths, files[0].path)
	}
	return paths, nil
}
