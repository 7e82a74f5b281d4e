package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/uma-serve/uma-serve/bench/loadgen"
	"github.com/uma-serve/uma-serve/bench/measure"
	results "github.com/uma-serve/uma-serve/bench/report"
	"github.com/uma-serve/uma-serve/bench/workload"
	"github.com/uma-serve/uma-serve/models/heldout"
)

// runOptions are the flags of run that are not the workload's own.
type runOptions struct {
	mode, workload, name, outDir string
	target, socket, url, model   string
	apiKeyEnv, extra, earlyExit  string
	modelFile                    string
	sides                        []string
	baseline, underTest          string
	sweep, ctxSizes              []int
	atMost                       []string
	repeats, warmUp              int
	seconds                      float64
	temperature                  float32
	timeout                      time.Duration
	quiet                        bool
	decoder, thinkEvict          string
	cells                        int
	options                      workload.Options
}

func runCommand() *cobra.Command {
	o := runOptions{options: workload.DefaultOptions()}
	cmd := &cobra.Command{
		Use:   "run [-- uma-serve options…]",
		Short: "run a workload on servers, or replay it in virtual time, and write reports",
		Long:  runHelp(),
		Example: `  uma-bench run --mode replay --baseline all        # the reference workload in virtual time
  uma-bench run --mode replay --baseline all --decoder laptop --arrival-rate 2 --scale 0.1
  uma-bench run --workload storm --sides stock,uma,meridian@50   # the page shows ITL over time
  uma-bench run --workload edit -m model.gguf --concurrency 1,16 --sides default:--speculate=off,default
  uma-bench run --workload decode-sweep --concurrency 1,4,16 -m model.gguf -- -t 4
  uma-bench run --workload heldout --requests 200 --temp 1 \
    --sides default,budget=64,budget=128,eat=0.001:eat_warmup_probes=1
  uma-bench run --workload sharegpt --file sg.json --target llama-server --url http://127.0.0.1:8080`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
			defer stop()
			o.options.Duration = time.Duration(o.seconds * float64(time.Second))
			if o.repeats < 1 || o.warmUp < 0 {
				return errors.New("--repeats must be at least 1, --warmup 0 or more")
			}
			limits, err := bounds(o.atMost)
			if err != nil {
				return err
			}
			d, err := o.document(ctx, given(cmd.Flags()), args)
			if err != nil {
				return err
			}
			if err := write(d, o.outDir); err != nil {
				return err
			}
			return exceeded(d.Reports[d.UnderTest], limits)
		},
	}
	o.flags(cmd.Flags())
	return cmd
}

func runHelp() string {
	var b strings.Builder
	b.WriteString(`Measure a workload and write report.json, report.md, report.html (and ab-report.json for several
sides) to --out-dir.

--mode real sends requests from a client process over real sockets: to a uma-serve started for each side (next to this
binary), to a running one (--socket), or to another server (--target, --url). --mode replay runs the daemon's
scheduler, prefix tree, block manager and phase control on a simulated decoder in virtual time; its numbers are marked
synthetic, and the same seed gives the same bytes.

Workloads:
`)
	table := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	for _, w := range workload.Names {
		fmt.Fprintf(table, "  %s\t%s\n", w.Name, w.Help)
	}
	table.Flush()
	b.WriteString("\nSides: " + measure.SidesHelp + ".")
	return b.String()
}

func (o *runOptions) flags(f *pflag.FlagSet) {
	f.SortFlags = false
	f.StringVar(&o.mode, "mode", "real", "real, or replay (virtual time, no model)")
	f.StringVar(&o.workload, "workload", "synthetic", "name of the workload")
	f.StringSliceVar(&o.sides, "sides", nil,
		"`CONFIGURATIONS` of uma-serve to measure, comma-separated; the last is under test (default: the server's "+
			"own; replay: uma)")
	f.StringVar(&o.baseline, "baseline", "none",
		"adds sides: none, stock, static-budget, all (those two and every policy)")
	f.StringVar(&o.underTest, "under-test", "", "`SIDE` to compare with the others (default: the last)")
	f.IntVar(&o.repeats, "repeats", 3, "number of runs of each side, for confidence intervals")
	f.IntVar(&o.warmUp, "warmup", 3,
		"unmeasured requests before each run; 0 also skips the calibration of prompt lengths")
	f.StringVar(&o.name, "name", "", "config_name of the report (default MODE-WORKLOAD)")
	f.StringVar(&o.outDir, "out-dir", "bench-out", "`directory` of the reports")

	f.Float64Var(&o.seconds, "duration-s", 30, "duration of the arrivals in seconds: requests = duration × rate")
	f.Float64Var(&o.options.Rate, "arrival-rate", o.options.Rate, "open loop: requests per second, Poisson")
	f.IntSliceVarP(&o.sweep, "concurrency", "c", nil,
		"closed loop instead of arrivals: number of clients; a list makes a sweep")
	f.IntVar(&o.options.Requests, "requests", 0, "requests of a run (default: duration × rate; heldout: all)")
	f.Float64Var(&o.options.ReasoningRatio, "reasoning-ratio", o.options.ReasoningRatio,
		"fraction of reasoning requests in synthetic and mix")
	f.Float64Var(&o.options.BackgroundRatio, "background-ratio", 0,
		"fraction of the requests of synthetic, sharegpt, math500 and mix that are background requests")
	f.Uint64Var(&o.options.Seed, "seed", o.options.Seed, "seed of the workload and the sampling; repeat k has seed + k")
	f.Float64Var(&o.options.Scale, "scale", 1,
		"factor on the lengths of synthetic, sharegpt, math500; below 1 for a slow machine")
	f.BoolVar(&o.options.Exact, "exact", false,
		"ignore end of generation, so that answers have the drawn length (uma, llama-server)")
	f.StringVar(&o.options.File, "file", "", "`FILE` of ShareGPT (JSON) or MATH-500 (JSON lines)")
	f.StringVar(&o.options.MathFile, "math-file", "", "mix: `FILE` of MATH-500 (JSON lines)")
	f.IntVar(&o.options.Streams, "streams", o.options.Streams,
		"storm: chats; decode-sweep, schemas, edit: answers at once")
	f.IntVar(&o.options.Clients, "clients", o.options.Clients,
		"storm: clients that submit prompts; agent-chain: agents; two-app: batch clients")
	f.IntVar(&o.options.Prompt, "prompt", o.options.Prompt, "storm, two-app: `tokens` of a long prompt")
	f.IntVar(&o.options.Tokens, "tokens", o.options.Tokens,
		"decode-sweep, schemas, long-context, shared-prefix, agent-chain, ipc: `tokens` of an answer")
	f.DurationVar(&o.options.Solo, "solo", o.options.Solo, "storm: time that the chats run alone")
	f.DurationVar(&o.options.Storm, "storm", o.options.Storm, "storm: time that the chats run with the prompts")
	f.BoolVar(&o.options.Background, "background", false, "storm: send the prompts as background requests")
	f.StringVar(&o.options.PromptModel, "prompt-model", "",
		"storm: `NAME` of another model of uma-serve, which gets the prompts")
	f.IntVar(&o.options.Context, "context", o.options.Context, "long-context, shared-prefix: maximum prompt `tokens`")
	f.IntSliceVar(&o.ctxSizes, "ctx-sizes", nil,
		"KV cells of uma-serve, comma-separated: measure each side with each, as in long-context --context 4096 "+
			"--ctx-sizes 4096,65536")
	f.StringSliceVar(&o.atMost, "at-most", nil,
		"`BOUNDS` of what is under test, such as ttft_p50_ms=150: above one the exit status is 1, as it is if a "+
			"request failed")
	f.IntVar(&o.options.Turns, "turns", o.options.Turns, "agent-chain: turns")
	f.IntVar(&o.options.Rounds, "rounds", o.options.Rounds,
		"shared-prefix, long-context, ipc: repetitions within a run")

	f.StringVar(&o.target, "target", "uma", "kind of server: "+strings.Join(loadgen.Targets, ", "))
	f.StringVar(&o.socket, "socket", "", "socket `PATH` of a running uma-serve")
	f.StringVar(&o.url, "url", "", "`URL` or socket path of another server")
	f.StringVar(&o.model, "model-name", "", "name of the model for ollama and openai servers")
	f.StringVarP(&o.modelFile, "model", "m", "",
		"GGUF `file` for uma-serve, or builtin (default: a generated one of 135 M parameters; heldout: builtin)")
	f.StringVar(&o.apiKeyEnv, "api-key-env", "", "environment `VARIABLE` that holds the server's API key")
	f.StringVar(&o.extra, "extra", "",
		"`JSON` object to merge into the body of HTTP requests, such as {\"ignore_eos\":true}")
	f.Float32Var(&o.temperature, "temp", 0, "sampling temperature; 0 = greedy")
	f.StringVar(&o.earlyExit, "early-exit", "",
		"think.early_exit of reasoning requests to uma: off, eat, rpdi, both (default: the server's; replay: off)")
	f.DurationVar(&o.timeout, "timeout", 10*time.Minute, "time limit of one answer")
	f.StringVar(&o.decoder, "decoder", "reference",
		"replay: cost of decoding: reference (a data-centre GPU), laptop, or step=US,prefill=US,think=US,output=US")
	f.IntVar(&o.cells, "cells", 0, "replay: KV cells of the pool (default 32768)")
	f.StringVar(&o.thinkEvict, "think-evict", "none", "replay: KV cells of a finished thought: none, offload, drop")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "do not print progress")
}

// given returns the flags that were set.
func given(f *pflag.FlagSet) map[string]string {
	out := map[string]string{}
	f.Visit(func(f *pflag.Flag) {
		// Where results go, and where files lie on this machine, does not change them.
		switch f.Name {
		case "out-dir", "quiet":
		case "file", "math-file", "model", "socket":
			out[f.Name] = filepath.Base(f.Value.String())
		default:
			out[f.Name] = strings.Trim(f.Value.String(), "[]")
		}
	})
	return out
}

// document measures and puts the reports beside each other.
func (o *runOptions) document(ctx context.Context, flags map[string]string, args []string) (*results.Document, error) {
	reports, err := o.run(ctx, flags, args)
	if err != nil {
		return nil, err
	}
	under := reports[len(reports)-1].ConfigName
	for _, r := range reports {
		if r.Side == o.underTest || r.ConfigName == o.underTest {
			under = r.ConfigName
		}
	}
	return results.New(reports, under)
}

func (o *runOptions) run(ctx context.Context, flags map[string]string, args []string) ([]*results.Report, error) {
	sides, err := o.allSides()
	if err != nil {
		return nil, err
	}
	if o.underTest != "" && !slices.ContainsFunc(sides, func(s measure.Side) bool { return s.Name == o.underTest }) {
		return nil, fmt.Errorf("--under-test %s is not among the sides", o.underTest)
	}
	name := cmp.Or(o.name, o.mode+"-"+o.workload)
	progress := newProgress(o.quiet)
	switch o.mode {
	case "real":
		return o.real(ctx, name, sides, flags, args, progress)
	case "replay":
	default:
		return nil, fmt.Errorf("--mode is %q; it must be real or replay", o.mode)
	}
	return o.replay(name, sides, flags, args, progress)
}

// allSides returns the baselines and --sides, each once; the side under test comes last.
func (o *runOptions) allSides() (out []measure.Side, err error) {
	var names []string
	switch o.baseline {
	case "none":
	case "stock", "static-budget":
		names = []string{o.baseline}
	case "all":
		names = []string{"stock", "static-budget", "uma", "meridian_static", "meridian"}
	default:
		return nil, fmt.Errorf("--baseline is %q; it must be none, stock, static-budget or all", o.baseline)
	}
	sides := o.sides
	if len(sides) == 0 && o.baseline != "all" {
		sides = []string{"default"}
		if o.mode == "replay" {
			sides = []string{"uma"}
		}
	}
	names = append(names, sides...)
	if len(o.ctxSizes) > 0 {
		var each []string
		for _, n := range names {
			for _, cells := range o.ctxSizes {
				each = append(each, fmt.Sprintf("%s:--ctx-size=%d", n, cells))
			}
		}
		names = each
	}
	for _, n := range names {
		out = slices.DeleteFunc(out, func(s measure.Side) bool { return s.Name == n })
		s, err := measure.ParseSide(n)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

func (o *runOptions) real(ctx context.Context, name string, sides []measure.Side, flags map[string]string,
	args []string, progress func(string, int, int)) ([]*results.Report, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if o.socket != "" && o.target != "uma" {
		return nil, errors.New("--socket is for uma-serve; use --url for other servers")
	}
	if (o.socket != "" || o.target != "uma") && (len(args) > 0 || o.modelFile != "") {
		return nil, errors.New("a running server has its own model and options: leave out --model and uma-serve's " +
			"options")
	}
	cfg := measure.Config{Name: name, Workload: o.workload, Options: o.options, Sides: sides, Sweep: o.sweep,
		Repeats: o.repeats, WarmUp: o.warmUp,
		ClientBin: self, ClientArgs: []string{"load-client"}, Environment: measure.Environment(flags),
		Progress: progress,
		Say: func(line string) {
			if !o.quiet {
				fmt.Fprintln(os.Stderr, line)
			}
		},
		Job: loadgen.Job{Target: o.target, Address: cmp.Or(o.socket, o.url), Model: o.model, KeyEnv: o.apiKeyEnv,
			Extra: json.RawMessage(o.extra), Temperature: o.temperature,
			Timeout: o.timeout, EarlyExit: o.earlyExit}}
	for _, p := range heldout.Problems() {
		cfg.Options.Problems = append(cfg.Options.Problems, workload.Problem(p))
	}
	// Mistakes show before a server is started.
	if _, err := workload.New(o.workload, cfg.Options); err != nil {
		return nil, err
	}
	if cfg.Job.Address == "" && o.target == "uma" {
		if cfg.ServerBin = filepath.Join(filepath.Dir(self), "uma-serve"); !exists(cfg.ServerBin) {
			if cfg.ServerBin, err = exec.LookPath("uma-serve"); err != nil {
				return nil, errors.New("no uma-serve next to this binary or in PATH; run `make`, or name a running " +
					"one with --socket")
			}
		}
		model := o.modelFile
		switch {
		case model == "builtin", model == "" && o.workload == "heldout":
			model = ""
		default:
			if model, err = benchModel(model); err != nil {
				return nil, err
			}
		}
		cells := 16384
		if o.workload == "long-context" || o.workload == "shared-prefix" {
			cells = max(cells, o.options.Context)
		}
		cfg.ServerArgs = []string{"--ctx-size", fmt.Sprint(cells), "--parallel", "16"}
		if model != "" {
			cfg.ServerArgs = append(cfg.ServerArgs, "-m", model)
		}
		if o.workload == "ipc" {
			cfg.ServerArgs = append(cfg.ServerArgs, "--max-tokens", fmt.Sprint(o.options.Tokens), "--think", "off",
				"--seed", "1")
		}
		cfg.ServerArgs = append(cfg.ServerArgs, args...)
	}
	return measure.Run(ctx, cfg)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// newProgress draws a bar for each label on a terminal.
func newProgress(quiet bool) func(label string, done, total int) {
	if quiet {
		return func(string, int, int) {}
	}
	if !isatty.IsTerminal(os.Stderr.Fd()) { // a line for each is written when it has ended
		return func(string, int, int) {}
	}
	var bar *progressbar.ProgressBar
	var of string
	return func(label string, done, total int) {
		if of != label {
			of = label
			bar = progressbar.NewOptions(total, progressbar.OptionSetWriter(os.Stderr),
				progressbar.OptionSetDescription(label), progressbar.OptionShowCount(),
				progressbar.OptionSetWidth(30), progressbar.OptionSetElapsedTime(true),
				progressbar.OptionThrottle(100*time.Millisecond))
		}
		bar.Set(done)
		if done == total {
			fmt.Fprintln(os.Stderr)
			of = ""
		}
	}
}

// write puts a document's files into dir and its tables on stdout.
func write(d *results.Document, dir string) error {
	if err := save(d, dir); err != nil {
		return err
	}
	_, err := fmt.Print(d.Markdown())
	fmt.Fprintf(os.Stderr, "\n%s\n", filepath.Join(dir, "report.html"))
	return err
}

// save puts a document's files into dir.
func save(d *results.Document, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var page strings.Builder
	if err := d.HTML(&page); err != nil {
		return err
	}
	one, err := results.JSON(d.Reports[d.UnderTest])
	if err != nil {
		return err
	}
	files := map[string]string{"report.json": string(one), "report.md": d.Markdown(), "report.html": page.String()}
	if len(d.Reports) > 1 {
		all, err := results.JSON(d)
		if err != nil {
			return err
		}
		files["ab-report.json"] = string(all)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// loadClientCommand is the process that run measures from.
func loadClientCommand() *cobra.Command {
	return &cobra.Command{Use: "load-client", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return loadgen.Serve(cmd.Context(), os.Stdin, os.Stdout)
		}}
}
