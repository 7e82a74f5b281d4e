package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/bench"
	"github.com/uma-serve/uma-serve/bench/real"
	"github.com/uma-serve/uma-serve/bench/workload"
	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/models/heldout"
)

// realChecks are the checks of `real`, in their order.
var realChecks = []string{"greedy", "perplexity", "prefix", "tools", "schemas", "storm", "eat", "adapters", "images"}

// defaultChecks are the checks that every published model can have.
var defaultChecks = realChecks[:6]

const (
	nearTie       = 0.5   // greedy: the largest gap of a near tie, in nats
	chunkTokens   = 512   // perplexity: of a chunk
	pplDifference = 0.001 // perplexity: the largest relative difference
	eatProblems   = 5     // eat: the first of each task
	eatTokens     = 300   // eat: maximum of an answer with its thinking
)

// realOptions are the flags of real.
type realOptions struct {
	model, name, out      string
	llamaServer, llamaPPL string
	llamaQuantize         string
	checks                []string
	base, forks           bool
	first, tokens         int
	threads, concurrency  int
	text                  string
	chunks                int
	storm                 time.Duration
	target                float64
}

func realCommand() *cobra.Command {
	var o realOptions
	cmd := &cobra.Command{
		Use:   "real -m FILE",
		Short: "a published model beside llama-server: answers, perplexity, tools, schemas, prefixes, a storm",
		Long: `Serves a model with uma-serve and with llama-server and checks:

greedy      200 prompts: equal tokens, until a near tie; then the gap in log-probabilities is told and the
            comparison goes on behind llama-server's token. A second llama-server, without flash attention, measures
            what rounding changes: twice that is a near tie as well. A larger gap is explained where uma-serve is no
            further from the same weights in F32, which llama-quantize writes (4 bytes a parameter, in TMPDIR)
perplexity  of one text, beside llama-perplexity
prefix      prompts that begin alike: what was computed is used again
tools       50 questions with a call required: each call is valid
schemas     100 JSON schemas: each answer is valid
storm       chats while long prompts are computed: inter-token times stay under --target
eat         sums with an opened thought, ended by EAT and by a plain cap: the curve, whatever it shows
adapters    two random LoRA adapters of a Llama model: 16 streams at once that have the one, the other and none in
            turn, equal tokens as in greedy, with the model's weights and the same in F32; the tokens a second of
            streams without an adapter, with one, and of both kinds and none at once
images      an image of 4,096 × 4,096 pixels for two random projectors, one of 12 layers: the inter-token times of four
            streams beside it stay under --target, and it is encoded once, also over a restart with --cache-dir; the
            time to the first token of it then, and of another image that is encoded

It ends with 1 if a check failed. make real runs it on the models of models.lock.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, c := range o.checks {
				if !slices.Contains(realChecks, c) {
					return usageError{fmt.Errorf("--checks has %q; it takes %s", c, strings.Join(realChecks, ", "))}
				}
			}
			switch {
			case o.model == "":
				return usageError{errors.New("name a GGUF file with --model")}
			case o.tokens < 1 || o.first < 0 || o.chunks < 1:
				return usageError{errors.New("--tokens and --chunks must be at least 1, --first 0 or more")}
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
			defer stop()
			r, failed := o.run(ctx)
			if o.out != "" {
				b, err := json.MarshalIndent(r, "", "  ")
				if err != nil {
					return err
				}
				if err := errors.Join(os.MkdirAll(filepath.Dir(o.out), 0o755),
					os.WriteFile(o.out, append(b, '\n'), 0o644)); err != nil {
					return err
				}
			}
			r.Markdown(os.Stdout, true)
			r.Failures(os.Stderr)
			if failed == nil && !r.OK() {
				failed = errors.New("a check failed")
			}
			return failed
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&o.model, "model", "m", "", "GGUF `file`")
	f.StringVar(&o.name, "name", "", "name of the model in the report (default: the file's)")
	f.StringVar(&o.out, "out", "", "also write the report as JSON to `FILE`")
	f.StringVar(&o.llamaServer, "llama-server", "llama-server", "llama.cpp's server, for greedy and prefix")
	f.StringVar(&o.llamaPPL, "llama-perplexity", "llama-perplexity", "llama.cpp's program, for perplexity")
	f.StringVar(&o.llamaQuantize, "llama-quantize", "llama-quantize",
		"llama.cpp's program, for greedy: it writes the weights in F32 where an answer differs")
	f.StringSliceVar(&o.checks, "checks", defaultChecks, "what to check")
	f.BoolVar(&o.base, "base", false, "a base model: prompts are plain texts, not chats")
	f.BoolVar(&o.forks, "forks", true,
		"a prefix that ends in the middle must be used again; false for windows and states")
	f.IntVar(&o.first, "first", 0, "only the first `N` prompts, questions and schemas; 0 = all")
	f.IntVar(&o.tokens, "tokens", 24, "greedy: maximum `tokens` of an answer")
	f.StringVar(&o.text, "text", "", "perplexity: the text, a `FILE`; \"\": one of this program")
	f.IntVar(&o.chunks, "chunks", 8, "perplexity: number of chunks")
	f.DurationVar(&o.storm, "storm", 15*time.Second, "storm: time that the chats run with the prompts")
	f.Float64Var(&o.target, "target", 100, "storm, images: target of inter-token times, in `ms`")
	f.IntVarP(&o.concurrency, "concurrency", "n", 4, "answers in flight")
	f.IntVarP(&o.threads, "threads", "t", 0,
		"compute threads of each server; 0 = uma-serve's default, fewer where three servers compute at the same time")
	return cmd
}

func (o *realOptions) run(ctx context.Context) (*real.Report, error) {
	r := &real.Report{Model: o.name}
	if r.Model == "" {
		r.Model = strings.TrimSuffix(filepath.Base(o.model), ".gguf")
	}
	wants := func(names ...string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return slices.Contains(o.checks, n) })
	}
	add := func(c real.Check) {
		fmt.Fprintf(os.Stderr, "%s, %s: %s\n", r.Model, c.Name, c.Summary)
		r.Checks = append(r.Checks, c)
	}
	var err error
	group := func(threads []string, checks func(*daemonproc.Proc) error) {
		if err != nil {
			return
		}
		args := []string{"--parallel", strconv.Itoa(max(o.concurrency, 4)), "--ctx-size", "16384"}
		err = o.serve(append(args, threads...), checks)
	}
	if wants("greedy", "prefix") {
		threads := o.besideArgs()
		group(threads, func(p *daemonproc.Proc) error { return o.beside(ctx, r, p, threads, wants, add) })
	}
	if wants("perplexity", "tools", "schemas") {
		group(o.threadArgs(), func(p *daemonproc.Proc) error { return o.answers(ctx, r, p, wants, add) })
	}
	if err == nil && wants("storm") {
		add(o.stormCheck(ctx))
	}
	if err == nil && wants("eat") {
		add(o.eatCheck(ctx))
	}
	if err == nil && wants("adapters") {
		err = o.adapterChecks(ctx, r, add)
	}
	if err == nil && wants("images") {
		var c real.Check
		if c, err = o.imageCheck(ctx); err == nil {
			add(c)
		}
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	return r, err
}

// firstOf returns the first n of all, or all of them with n = 0.
func firstOf[T any](all []T, n int) []T {
	if n == 0 {
		return all
	}
	return all[:min(n, len(all))]
}

// serve runs f against the uma-serve beside this binary. A busy machine may take minutes to load a model and to stop.
func (o *realOptions) serve(args []string, f func(*daemonproc.Proc) error) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p, err := daemonproc.Start(filepath.Join(filepath.Dir(self), "uma-serve"), 10*time.Minute, nil,
		append([]string{"-m", o.model}, args...)...)
	if err != nil {
		return err
	}
	return errors.Join(f(p), p.Stop(2*time.Minute))
}

func (o *realOptions) threadArgs() []string {
	if o.threads == 0 {
		return nil
	}
	return []string{"--threads", strconv.Itoa(o.threads)}
}

// besideArgs returns the compute threads of each of three servers that compute at the same time: with more threads than
// cores, those of ggml spend most of the time waiting for each other.
func (o *realOptions) besideArgs() []string {
	beside := *o
	if beside.threads == 0 {
		beside.threads = max(1, runtime.NumCPU()/3)
	}
	return beside.threadArgs()
}

// beside are the checks that compare one daemon with llama-server.
func (o *realOptions) beside(ctx context.Context, r *real.Report, p *daemonproc.Proc, threads []string,
	wants func(...string) bool, add func(real.Check)) error {
	ours := &real.Server{Name: "uma-serve", Socket: p.Socket}
	defer ours.Close()
	r.Ours = ours.Build(ctx)
	start := func(more ...string) (*real.Process, error) {
		args := append([]string{"-c", "16384", "--parallel", strconv.Itoa(max(o.concurrency, 1)), "--kv-unified"},
			threads...)
		return real.StartLlamaServer(ctx, o.llamaServer, o.model, append(args, more...)...)
	}
	theirs, err := start()
	if err != nil {
		return err
	}
	defer theirs.Stop()
	r.Theirs = theirs.Build(ctx)
	c := real.Compare{Ours: ours, Theirs: theirs.Server, Tokens: o.tokens, Near: nearTie, Concurrency: o.concurrency}
	if wants("greedy") {
		control, err := start("--flash-attn", "off")
		if err != nil {
			return err
		}
		defer control.Stop()
		c.Control = control.Server
		c.Truth = func(ctx context.Context) (*real.Server, func(), error) {
			return real.StartTruth(ctx, o.llamaServer, o.llamaQuantize, o.model, o.threads)
		}
		add(c.Check(ctx, firstOf(real.Prompts(), o.first), !o.base))
	}
	if wants("prefix") {
		add(c.CheckPrefix(ctx, real.Text, o.forks))
	}
	return nil
}

// answers are the checks that ask one daemon alone.
func (o *realOptions) answers(ctx context.Context, r *real.Report, p *daemonproc.Proc, wants func(...string) bool,
	add func(real.Check)) error {
	ours := &real.Server{Name: "uma-serve", Socket: p.Socket}
	defer ours.Close()
	r.Ours = ours.Build(ctx)
	if wants("perplexity") {
		c, err := o.perplexity(ctx, ours)
		if err != nil {
			return err
		}
		add(c)
	}
	if wants("tools") {
		tools, tasks, err := real.Tools()
		if err != nil {
			return err
		}
		add(real.CheckTools(ctx, ours, tools, firstOf(tasks, o.first), o.concurrency))
	}
	if wants("schemas") {
		schemas, err := real.Schemas()
		if err != nil {
			return err
		}
		add(real.CheckSchemas(ctx, ours, firstOf(schemas, o.first), o.concurrency))
	}
	return nil
}

func (o *realOptions) perplexity(ctx context.Context, ours *real.Server) (real.Check, error) {
	dir, err := os.MkdirTemp("", "uma-bench")
	if err != nil {
		return real.Check{}, err
	}
	defer os.RemoveAll(dir)
	text, file := real.Text, filepath.Join(dir, "text.txt")
	if o.text != "" {
		b, err := os.ReadFile(o.text)
		if err != nil {
			return real.Check{}, err
		}
		text = string(b)
	}
	text = strings.TrimSuffix(text, "\n") // llama-perplexity drops a last line break
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return real.Check{}, err
	}
	cfg := real.PerplexityConfig{Ours: ours, Program: o.llamaPPL, Args: append([]string{"-m", o.model},
		o.threadArgs()...), File: file, Text: text, Chunk: chunkTokens, Chunks: o.chunks,
		Most: pplDifference}
	return cfg.Check(ctx), nil
}

// stormCheck is one storm under policy meridian with the target.
func (o *realOptions) stormCheck(ctx context.Context) real.Check {
	c, start := real.Check{Name: "storm", OK: true}, time.Now()
	run := runOptions{mode: "real", workload: "storm", target: "uma", baseline: "none", warmUp: 3, timeout: time.Hour,
		repeats: 1, quiet: true, modelFile: o.model, sides: []string{fmt.Sprintf("meridian@%g", o.target)},
		options: workload.DefaultOptions()}
	run.options.Storm = o.storm
	d, err := run.document(ctx, map[string]string{}, o.threadArgs())
	c.Seconds = time.Since(start).Seconds()
	if err != nil {
		c.Fail("%v", err)
		return c
	}
	for _, s := range d.Storms() {
		c.Details = s
		c.Summary = fmt.Sprintf("ITL p50 %.1f, p95 %.1f ms, target %.0f ms; alone p95 %.1f; %.0f prompt tokens/s",
			float64(s.Storm.P50), float64(s.Storm.P95), o.target, float64(s.Alone.P95), float64(s.PromptTokensSec))
		if !(float64(s.Storm.P95) <= o.target) || s.Storm.Tokens == 0 {
			c.Fail("the inter-token time's p95 is %.1f ms in the storm, the target is %.0f ms", float64(s.Storm.P95),
				o.target)
		}
	}
	if c.Details == nil {
		c.Fail("the report has no storm")
	}
	return c
}

// eatTasks are the built-in model's tasks whose answers are numbers.
var eatTasks = []string{"add", "subtract", "times-digit", "times-2x2", "story"}

// eatCheck draws accuracy over think tokens of a model that reasons only because its prompt opens a thought. The answer
// is held to a number. No shape of the curve is a failure.
func (o *realOptions) eatCheck(ctx context.Context) real.Check {
	c, start := real.Check{Name: "eat", OK: true}, time.Now()
	r, err := o.eat(ctx)
	c.Seconds = time.Since(start).Seconds()
	if err != nil {
		c.Fail("%v", err)
		return c
	}
	c.Details = r
	var points []string
	for _, p := range r.Points {
		points = append(points, fmt.Sprintf("%s: %d of %d right with %.1f tokens", bench.SignalName(p.Kind, p.Value),
			p.Score.Right, p.Score.Asked, p.Score.ThinkTokens))
	}
	c.Summary = strings.Join(points, "; ")
	return c
}

func (o *realOptions) eat(ctx context.Context) (*bench.EATReport, error) {
	dir, err := os.MkdirTemp("", "uma-bench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	template := filepath.Join(dir, "think.jinja")
	if err := os.WriteFile(template, []byte(real.ThinkTemplate), 0o600); err != nil {
		return nil, err
	}
	cfg := bench.EATConfig{Log: os.Stderr, Deltas: []float64{1e-4, 1e-2, 1e-1, 1}, Caps: []int{16, 32, 64},
		EAT: eatOptions}
	cfg.Eval.Problems = firstOfEach(slices.DeleteFunc(heldout.Problems(),
		func(p heldout.Problem) bool { return !slices.Contains(eatTasks, p.Task) }), eatProblems)
	cfg.Eval.Repeat, cfg.Eval.MaxTokens, cfg.Eval.Seed, cfg.Eval.Concurrency = 1, eatTokens, 1, o.concurrency
	cfg.Eval.Format = wire.Format{Kind: wire.FormatRegex, Payload: "-?[0-9]{1,9}"}
	cfg.Serve = func(options ...string) (string, func() error, error) {
		p, err := startForEval(o.model, o.concurrency, append(append([]string{"--chat-template", template},
			o.threadArgs()...), options...))
		if err != nil {
			return "", nil, err
		}
		return p.Socket, func() error { return p.Stop(10 * time.Second) }, nil
	}
	return bench.RunEAT(ctx, cfg)
}
