package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/bench"
	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
	"github.com/uma-serve/uma-serve/models"
	"github.com/uma-serve/uma-serve/models/heldout"
)

func evalCommand() *cobra.Command {
	cfg := bench.EvalConfig{Log: os.Stderr}
	var problems, model, out string
	var each int
	var emptyThink, asJSON bool
	cmd := &cobra.Command{
		Use:   "eval [-- uma-serve options…]",
		Short: "ask held-out problems over the socket and grade the answers",
		Long: `Ask held-out problems over the socket and grade the answers: only the exact text is right.

--socket names a running daemon; without it, the uma-serve next to this binary is started on the built-in model or
--model. The problems are the built-in ones, on which that model was not trained, or a file with
lines like {"task":"add","question":"What is 1 + 2?","answer":"3"}.`,
		Example: `  uma-bench eval                                    # the accuracy table of the built-in model
  uma-bench eval --empty-think                      # the same without thinking
  uma-bench eval --each 10 --repeat 16 --temp 1     # how much the length of thinking varies
  uma-bench eval --socket /run/uma.sock --problems mine.jsonl --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cfg.Concurrency < 1 || cfg.Repeat < 1 || each < 0 {
				return errors.New("--concurrency and --repeat must be at least 1, --each 0 (all) or more")
			}
			if cfg.Socket != "" && (model != "" || len(args) > 0) {
				return errors.New("--socket names a running daemon: leave out --model and the options for uma-serve")
			}
			if emptyThink && (cfg.Socket != "" || model != "") {
				return errors.New("--empty-think is for the built-in model: leave out --socket and --model")
			}
			cfg.Problems = heldout.Problems()
			if problems != "" {
				b, err := os.ReadFile(problems)
				if err != nil {
					return err
				}
				if cfg.Problems, err = heldout.Parse(string(b)); err != nil {
					return fmt.Errorf("%s: %w", problems, err)
				}
			}
			cfg.Problems = firstOfEach(cfg.Problems, each)
			if emptyThink {
				dir, err := os.MkdirTemp("", "uma-bench")
				if err != nil {
					return err
				}
				defer os.RemoveAll(dir)
				model = filepath.Join(dir, "uma-tiny-empty-think.gguf")
				if err := models.WriteVariant(model, models.EmptyThink); err != nil {
					return err
				}
			}
			if cfg.Socket == "" {
				p, err := startForEval(model, cfg.Concurrency, args)
				if err != nil {
					return err
				}
				defer p.Stop(10 * time.Second)
				cfg.Socket = p.Socket
			}
			r, err := bench.RunEval(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			return report(r, out, asJSON)
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Socket, "socket", "", "socket `PATH` of a running daemon, instead of starting one")
	f.StringVarP(&model, "model", "m", "", "GGUF `file` for uma-serve (default: the built-in model)")
	f.StringVar(&problems, "problems", "", "JSON lines `FILE` of problems (default: the built-in ones)")
	f.IntVar(&each, "each", 0, "ask only the first `N` problems of each task; 0 = all")
	f.IntVarP(&cfg.Concurrency, "concurrency", "n", 8, "questions in flight")
	f.IntVar(&cfg.Repeat, "repeat", 1, "number of times each problem is asked")
	f.Float32Var(&cfg.Temperature, "temp", 0, "sampling temperature; 0 = greedy")
	f.Uint64Var(&cfg.Seed, "seed", 1, "sampling seed")
	f.IntVar(&cfg.MaxTokens, "max-tokens", 1000,
		"maximum tokens of an answer, with its thinking; an answer that is cut off is wrong")
	f.BoolVar(&emptyThink, "empty-think", false, "put an empty, closed think block before each answer")
	f.StringVar(&out, "out", "", "also write `BASE`.json and BASE.md")
	f.BoolVar(&asJSON, "json", false, "print JSON instead of Markdown")
	return cmd
}

// startForEval starts the daemon beside this binary, with a context that holds n answers.
func startForEval(model string, n int, more []string) (*daemonproc.Proc, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	bin := filepath.Join(filepath.Dir(self), "uma-serve")
	if _, err := os.Stat(bin); err != nil {
		if bin, err = exec.LookPath("uma-serve"); err != nil {
			return nil, errors.New("no uma-serve next to this binary or in PATH; run `make`, or name a running " +
				"daemon with --socket")
		}
	}
	args := []string{"--parallel", fmt.Sprint(n), "--ctx-size", fmt.Sprint(1024 * n)}
	if model != "" {
		args = append(args, "-m", model)
	}
	return daemonproc.Start(bin, time.Minute, nil, append(args, more...)...)
}

// firstOfEach keeps the first n problems of every task, all of them with n = 0.
func firstOfEach(ps []heldout.Problem, n int) []heldout.Problem {
	if n == 0 {
		return ps
	}
	var kept []heldout.Problem
	seen := map[string]int{}
	for _, p := range ps {
		if seen[p.Task]++; seen[p.Task] <= n {
			kept = append(kept, p)
		}
	}
	return kept
}

func report(r *bench.EvalReport, base string, asJSON bool) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	b = append(b, '\n')
	var md strings.Builder
	r.Markdown(&md)
	if base != "" {
		if err := errors.Join(os.WriteFile(base+".json", b, 0o644),
			os.WriteFile(base+".md", []byte(md.String()), 0o644)); err != nil {
			return err
		}
	}
	if asJSON {
		_, err = os.Stdout.Write(b)
	} else {
		_, err = os.Stdout.WriteString(md.String())
	}
	return err
}
