package measure

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/bench/loadgen"
	"github.com/uma-serve/uma-serve/bench/report"
	"github.com/uma-serve/uma-serve/bench/workload"
	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
)

// Config is one measurement: a workload on every side.
type Config struct {
	Name     string
	Workload string
	Options  workload.Options
	Sides    []Side // uma only; no Args for a daemon that is already running
	Sweep    []int  // concurrent streams; empty = as in Options
	Repeats  int
	WarmUp   int // requests before each run

	Job loadgen.Job // the target; with Address "" uma-serve is started

	ServerBin  string   // uma-serve
	ServerArgs []string // for every side, before the side's own
	ClientBin  string   // the program that calls loadgen.Serve …
	ClientArgs []string // … and its arguments

	Environment report.Environment
	Progress    func(label string, done, total int) // done = total ends a label
	Say         func(line string)                   // receives the result of each run in one line; may be nil
}

// Run measures. The reports are in the order of the sides, and of the sweep within a side.
func Run(ctx context.Context, cfg Config) ([]*report.Report, error) {
	if len(cfg.Sides) == 0 {
		cfg.Sides = []Side{{Name: "default"}}
	}
	for _, s := range cfg.Sides {
		switch {
		case cfg.Job.Address != "" && len(s.Args) > 0:
			return nil, fmt.Errorf("a server that runs already has one configuration, and side %s needs another: "+
				"leave it out, or let uma-bench start the server", s.Name)
		case cfg.Job.Target != "uma" && (s.EarlyExit != "" || s.ThinkBudget > 0):
			return nil, fmt.Errorf("side %s is one of uma-serve's", s.Name)
		}
	}
	if cfg.Job.Address == "" && cfg.Job.Target != "uma" {
		return nil, fmt.Errorf("where does %s listen? name it with --url", cfg.Job.Target)
	}
	if len(cfg.Sweep) == 0 {
		cfg.Sweep = []int{0}
	}
	rows := make([]*row, 0, len(cfg.Sides)*len(cfg.Sweep))
	for _, side := range cfg.Sides {
		for _, streams := range cfg.Sweep {
			rows = append(rows, &row{side: side, streams: streams})
		}
	}
	for k := range cfg.Repeats {
		for i := range cfg.Sides {
			if k%2 == 1 {
				i = len(cfg.Sides) - 1 - i
			}
			if err := cfg.side(ctx, k, cfg.Sides[i], rows[i*len(cfg.Sweep):(i+1)*len(cfg.Sweep)]); err != nil {
				return nil, fmt.Errorf("%s, repeat %d: %w", cfg.Sides[i].Name, k+1, err)
			}
		}
	}
	var out []*report.Report
	for _, r := range rows {
		out = append(out, cfg.report(r))
	}
	return out, nil
}

// row collects the data of one report.
type row struct {
	side    Side
	streams int
	plan    *workload.Plan // the last repeat's
	runs    []report.Run
	info    serverInfo
	notes   []string
}

// side runs one repeat of a side: every number of streams against one server.
func (cfg *Config) side(ctx context.Context, repeat int, side Side, rows []*row) error {
	s := &server{address: cfg.Job.Address, uma: cfg.Job.Target == "uma"}
	if s.address == "" {
		args := slices.Concat(cfg.ServerArgs, side.Args)
		p, err := daemonproc.Start(cfg.ServerBin, 2*time.Minute, nil, args...)
		if err != nil {
			return err
		}
		defer p.Stop(10 * time.Second)
		s.proc, s.address = p, p.Socket
	} else if s.uma {
		s.proc = &daemonproc.Proc{Socket: s.address}
	}
	info, err := s.info()
	if err != nil {
		return err
	}
	for _, r := range rows {
		if err := cfg.once(ctx, repeat, s, info, r); err != nil {
			return err
		}
	}
	return nil
}

func (cfg *Config) once(ctx context.Context, repeat int, s *server, info serverInfo, r *row) error {
	o := cfg.Options
	o.Seed += uint64(repeat)
	if repeat > 0 {
		o.Salt = fmt.Sprintf("r%d-", repeat)
	}
	if r.streams > 0 {
		o.Salt += fmt.Sprintf("c%d-", r.streams)
		if workload.AtOnce(cfg.Workload) {
			o.Streams = r.streams
		} else {
			o.Closed = r.streams
		}
	}
	label := fmt.Sprintf("%s, repeat %d of %d", r.side.Name, repeat+1, cfg.Repeats)
	if r.streams > 0 {
		label = fmt.Sprintf("%s, %d streams, repeat %d of %d", r.side.Name, r.streams, repeat+1, cfg.Repeats)
	}
	perWord, err := cfg.warmUp(ctx, s, o)
	if err != nil {
		return fmt.Errorf("warm-up: %w", err)
	}
	if perWord > 0 {
		o.TokensPerWord = perWord
	}
	plan, err := workload.New(cfg.Workload, o)
	if err != nil {
		return err
	}
	if info.Context > 0 {
		if q := longest(plan); q.Output < workload.Endless && q.Think+q.Output > info.Context {
			r.notes = []string{fmt.Sprintf("Some requests may generate %d tokens, the server's context holds %d: "+
				"--scale or a larger --ctx-size changes it.", q.Think+q.Output, info.Context)}
		}
	}
	job := cfg.Job
	job.Address, job.Requests, job.Workers, job.Seed = s.address, plan.Requests, plan.Workers, o.Seed
	if r.side.ThinkBudget > 0 {
		job.ThinkBudget = r.side.ThinkBudget
	}
	if r.side.EarlyExit != "" {
		job.EarlyExit = r.side.EarlyExit
	}
	// The progress of a workload with an end time follows the clock, that of another its requests.
	total := len(plan.Requests)
	end := plan.Requests[0].Until
	if end > 0 {
		total = int(end.Seconds())
	}
	watch := watchPrompts(func() float64 { return s.prefilled(o.PromptModel) }, plan.Mark,
		func(at time.Duration) {
			if end > 0 {
				cfg.progress(label, min(int(at.Seconds()), total-1), total)
			}
		})
	evicted, cells, cpu := s.evictions(), s.evictedBlocks(), s.cpu()
	res, err := loadgen.Spawn(ctx, &job, func(done int) {
		if end == 0 {
			cfg.progress(label, min(done, total-1), total)
		}
	}, cfg.ClientBin, cfg.ClientArgs...)
	prefill := watch()
	if err != nil {
		return err
	}
	cfg.progress(label, total, total)
	r.plan, r.info = plan, info
	run := report.Run{Requests: plan.Requests, Result: res, Evictions: s.evictions() - evicted,
		ServerCPU: s.cpu() - cpu, Mark: plan.Mark, Prefill: prefill, EvictedBlocks: s.evictedBlocks()}
	for tier := range run.EvictedBlocks {
		run.EvictedBlocks[tier] -= cells[tier]
	}
	r.runs = append(r.runs, run)
	if cfg.Say != nil {
		one := *r
		one.runs = []report.Run{run}
		cfg.Say(label + ": " + cfg.report(&one).Line())
	}
	return nil
}

func (cfg *Config) progress(label string, done, total int) {
	if cfg.Progress != nil {
		cfg.Progress(label, done, total)
	}
}

func longest(p *workload.Plan) workload.Request {
	return slices.MaxFunc(p.Requests,
		func(a, b workload.Request) int { return a.Think + a.Output - b.Think - b.Output })
}

// calibrationWords is the number of words of a warm-up's first request.
const calibrationWords = 300

// warmUp sends a few short requests, so that pages are mapped and the clocks have risen, and returns the tokens per
// word of the server's tokenizer; 0 = unknown.
func (cfg *Config) warmUp(ctx context.Context, s *server, o workload.Options) (float64, error) {
	if cfg.WarmUp == 0 {
		return 0, nil
	}
	// With the seed a warm-up is no prefix of later prompts.
	w := workload.DefaultOptions()
	w.Seed, w.TokensPerWord, w.Tokens, w.Rounds, w.Context = o.Seed^0x5741524d, 1, 1, 1, 512
	w.Streams = cfg.WarmUp
	plan, err := workload.New("decode-sweep", w)
	if err != nil {
		return 0, err
	}
	for i := range plan.Requests {
		plan.Requests[i].After, plan.Requests[i].Output = i-1, 8
	}
	w.Prompt, w.Solo, w.Storm = calibrationWords, time.Second, time.Second
	text, err := workload.New("storm", w)
	if err != nil {
		return 0, err
	}
	for _, q := range text.Requests {
		if q.Group == "prompt" {
			plan.Requests[0].Prompt = q.Prompt
			break
		}
	}
	if cfg.Job.Target == "openai" { // not all of these servers continue raw text
		for i := range plan.Requests {
			q := &plan.Requests[i]
			q.Messages, q.Prompt = []workload.Message{{Role: "user", Content: q.Prompt}}, ""
		}
	}
	job := cfg.Job
	job.Address, job.Requests = s.address, plan.Requests
	res, err := loadgen.Spawn(ctx, &job, nil, cfg.ClientBin, cfg.ClientArgs...)
	if err != nil {
		return 0, err
	}
	for _, r := range res.Records {
		if r.Err != "" {
			return 0, errors.New(r.Err)
		}
	}
	return float64(res.Records[0].PromptTokens) / calibrationWords, nil
}

func (cfg *Config) report(r *row) *report.Report {
	name := cfg.Name
	if len(cfg.Sides) > 1 || r.side.Name != "default" {
		name += "-" + r.side.Name
	}
	if len(cfg.Sweep) > 1 {
		name = fmt.Sprintf("%s-c%d", name, r.streams)
	}
	out := &report.Report{Provenance: report.Measured, Mode: "real", ConfigName: name, Side: r.side.Name,
		Streams: r.streams, Workload: cfg.Workload, Target: cfg.Job.Target,
		Seed: cfg.Options.Seed, ArrivalRate: report.Num(math.NaN()), Environment: cfg.Environment, Notes: r.notes}
	if r.plan.Rate > 0 {
		out.ArrivalRate = report.Num(r.plan.Rate)
	}
	if workload.AtOnce(cfg.Workload) && out.Streams == 0 {
		out.Streams = cfg.Options.Streams
	} else if out.Streams == 0 {
		out.Streams = r.plan.Workers
	}
	e := &out.Environment
	e.Model, e.Engine = r.info.Model, r.info.Engine
	if e.Model == "" {
		e.Model = cfg.Job.Model
	}
	if cfg.Job.Address == "" {
		e.Server = slices.Concat(cfg.ServerArgs, r.side.Args)
		// The report omits the model's directory on this machine.
		for i, a := range e.Server {
			if i > 0 && (e.Server[i-1] == "-m" || e.Server[i-1] == "--model") {
				e.Server[i] = a[strings.LastIndexByte(a, '/')+1:]
			}
		}
	}
	out.Measure(r.runs)
	return out
}

// server is a server under test.
type server struct {
	uma     bool
	proc    *daemonproc.Proc // nil for other servers; no Cmd for one that was already running
	address string
}
