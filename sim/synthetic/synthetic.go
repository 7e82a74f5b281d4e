// Package synthetic is the synthetic-replay mode of the benchmark (Meridian's ADR-0005): the real phase control and the
// real core, with its queueing, admission, sharing of prompts, eviction, preemption and contention for KV cells, over a
// decoder that only takes time. Time is virtual, so a run takes milliseconds, needs no model and no GPU, and gives the
// same numbers for the same seed: two changes to a policy can be compared number by number.
//
// It reports what a user of a reasoning model sees (the ADR says why not throughput): time to first token, time from
// the end of thinking to the first visible token, smoothness of the visible answer.
//
// What it cannot show: kernels, memory bandwidth, tokenisation; and nothing that depends on what the logits say. The
// only reason for which it ends a think block early is the hard cap: converged and overthinking need real logits.
package synthetic

import (
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sim"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// Decoder is what a decode step costs, microseconds. The defaults for thinking and output are the ADR's.
type Decoder struct {
	StepUs    float64 // fixed
	PrefillUs float64 // per prompt token
	ThinkUs   float64 // per token decoded in a think block
	OutputUs  float64 // per visible token
}

// DefaultDecoder approximates a data-centre GPU.
func DefaultDecoder() Decoder { return Decoder{StepUs: 40, PrefillUs: 2, ThinkUs: 6, OutputUs: 18} }

// Observer is told what a client of the replayed server would see. Requests are named by their Index, times are virtual
// nanoseconds since the start.
type Observer interface {
	// Token came, of thought or of the answer. The tags around a thought are none, nor is the end of generation: no
	// server sends them.
	Token(request, now int64, thinking bool)
	// Thought has ended after so many tokens.
	Thought(request int64, tokens int, ended meridian.Ended)
	// End: the request was answered, or rejected.
	End(request, now int64, answered bool)
}

// Config is one run.
type Config struct {
	Workload workload.Mix
	// Requests, if set, come instead of Workload's, which then only names the seed in the report. Think is part of
	// Output.
	Requests workload.Source
	Observer Observer // nil = none

	Sched       sched.Config
	Decoder     Decoder
	ThinkBudget int // tokens after which a think block is closed by force; 0 = never
}

// DefaultConfig is the ADR's reference workload on a server of 16 sequences and 32,768 cells.
func DefaultConfig() Config {
	return Config{Workload: workload.DefaultMix(), Decoder: DefaultDecoder(), ThinkBudget: 4096,
		Sched: sched.Config{Policy: sched.Policies()[0], MaxRunning: 16, Cells: 32768, MaxBatch: 512, MaxQueue: 1 << 16,
			Guard: sched.DefaultGuard}}
}

// Percentiles of one metric, milliseconds.
type Percentiles struct {
	Mean float64 `json:"mean_ms"`
	P50  float64 `json:"p50_ms"`
	P95  float64 `json:"p95_ms"`
	P99  float64 `json:"p99_ms"`
	N    int64   `json:"n"`
}

// Report has the ADR's metrics.
type Report struct {
	Mode   string `json:"mode"`
	Policy string `json:"policy"`
	Seed   int64  `json:"seed"`

	Requests  int64 `json:"requests"`
	Completed int64 `json:"completed"`
	Rejected  int64 `json:"rejected"`
	Reasoning int64 `json:"reasoning_requests"`

	TTFT      Percentiles `json:"ttft"`       // arrival to first token
	TTOT      Percentiles `json:"ttot"`       // end of thinking to first visible token
	OutputITL Percentiles `json:"output_itl"` // between visible tokens

	ThinkMean float64 `json:"think_tokens_mean"`
	ThinkP95  float64 `json:"think_tokens_p95"`

	// BudgetForced is the share of reasoning requests whose think block was closed by force, by reason.
	BudgetForced map[string]float64 `json:"budget_force_rate"`

	// OutputCriticalEvictions are blocks of visible answers that were given up for others (meridian/blocks). Any is a
	// stall that a user sees.
	OutputCriticalEvictions int64   `json:"output_critical_evictions"`
	Preemptions             int64   `json:"preemptions"`
	VirtualSeconds          float64 `json:"virtual_seconds"`
	BusySeconds             float64 `json:"busy_seconds"` // of these, the decoder's
	Steps                   int64   `json:"steps"`
}

// Run simulates until every request has ended.
func Run(cfg Config) (*Report, error) {
	d := cfg.Decoder
	for _, c := range []float64{d.StepUs, d.PrefillUs, d.ThinkUs, d.OutputUs} {
		if !(c >= 0) || math.IsInf(c, 0) {
			return nil, fmt.Errorf("decoder: costs must be finite and ≥ 0 microseconds, got %+v", d)
		}
	}
	if d.StepUs+d.OutputUs+d.ThinkUs+d.PrefillUs == 0 {
		return nil, fmt.Errorf("decoder: a step must take some time")
	}
	src := cfg.Requests
	if src == nil {
		var err error
		if src, err = cfg.Workload.New(); err != nil {
			return nil, err
		}
	}
	w, err := newWords()
	if err != nil {
		return nil, err
	}
	think := meridian.DefaultConfig()
	think.MaxThinkTokens = math.MaxInt32 // only Config.ThinkBudget bounds it
	c, err := core.New(core.Config{Sched: cfg.Sched, Sequences: core.MaxSequences, CellBytes: 1, CanRemoveRange: true,
		CanShift: true})
	if err != nil {
		return nil, err
	}
	if cfg.Observer == nil {
		cfg.Observer = unobserved{}
	}
	r := &replay{cfg: cfg, words: w, control: think, c: c, live: map[core.ID]*request{},
		rep: &Report{Mode: "synthetic-replay", Policy: cfg.Sched.Policy, Seed: cfg.Workload.Seed,
			BudgetForced: map[string]float64{}}}
	if err := r.run(src); err != nil {
		return nil, err
	}
	return r.rep, nil
}

// unobserved is the Observer of a run without one.
type unobserved struct{}

func (unobserved) Token(int64, int64, bool)           {}
func (unobserved) Thought(int64, int, meridian.Ended) {}
func (unobserved) End(int64, int64, bool)             {}

type replay struct {
	cfg     Config
	words   words
	control meridian.Config
	c       *core.Core
	live    map[core.ID]*request
	result  core.Result
	ids     []core.Token
	rep     *Report

	ttft, ttot, itl sim.Dist
	think           []int
}

func (r *replay) run(src workload.Source) error {
	var next workload.Request
	more := src.Next(&next)
	now, idle := int64(0), 0
	for {
		for more && next.Arrival*1000 <= now {
			if err := r.arrive(&next); err != nil {
				return err
			}
			more = src.Next(&next)
		}
		step := r.c.Next(core.Instant(now))
		plan := &step.Plan
		for i := range step.Notes {
			if step.Notes[i].Kind == core.Preempted {
				r.rep.Preemptions++
			}
		}
		for i := range step.Ends {
			r.reject(step.Ends[i].Request.ID, now)
		}
		r.result = core.Result{}
		if len(plan.Batch) > 0 {
			idle = 0
			took := r.decode(plan, now)
			now += took
			r.rep.Steps++
			r.rep.BusySeconds += float64(took) / 1e9
			continue
		}
		r.c.Done(core.Instant(now), &r.result)
		switch {
		case !step.Idle:
		case more && (plan.WakeAt == 0 || next.Arrival*1000 <= int64(plan.WakeAt)):
			now = max(now, next.Arrival*1000)
		case plan.WakeAt > 0:
			now = max(now+1, int64(plan.WakeAt))
		case len(r.live) == 0:
			r.finish(now)
			return nil
		default:
			if idle++; idle > 1 {
				return fmt.Errorf("livelock at %v: %d requests are alive and the scheduler plans nothing",
					time.Duration(now), len(r.live))
			}
		}
	}
}

func (r *replay) reject(id core.ID, now int64) {
	delete(r.live, id)
	r.rep.Rejected++
	r.cfg.Observer.End(int64(id)-1, now, false)
}

func (r *replay) arrive(w *workload.Request) error {
	r.rep.Requests++
	opt := r.control.Options()
	if r.cfg.ThinkBudget > 0 {
		opt.BudgetTokens = r.cfg.ThinkBudget
	}
	ctl, err := meridian.NewControl(&r.control, r.words.tags, opt, meridian.Begin{})
	if err != nil {
		return err
	}
	q := &request{Request: *w, ctl: thought{Control: ctl}, identity: w.Identity()}
	// Two tags and the end are tokens, too.
	q.core = core.Request{ID: core.ID(w.Index) + 1, Arrived: core.Instant(w.Arrival * 1000), Prompt: max(1, w.Input),
		MaxTokens: w.Output + 3, Control: &q.ctl}
	q.core.Tokens = q.identity.AppendTokens(make([]core.Token, 0, q.core.Prompt+w.Output+3), 0, q.core.Prompt)
	r.live[q.core.ID] = q
	if w.Think > 0 {
		r.rep.Reasoning++
	}
	r.c.Handle(q.core.Arrived, core.Input{Kind: core.Arrive, Request: &q.core})
	return nil
}

// decode carries out a batch that starts now and returns how long it took, nanoseconds.
func (r *replay) decode(plan *sched.Plan, now int64) int64 {
	d := r.cfg.Decoder
	us := d.StepUs + d.PrefillUs*float64(plan.PrefillTokens)
	for i := range plan.Batch {
		if sl := &plan.Batch[i]; sl.Kind == sched.SliceDecode {
			if r.live[sl.Req].ctl.Phase() == meridian.ThinkDecode {
				us += d.ThinkUs
			} else {
				us += d.OutputUs
			}
		}
	}
	took := max(1000, int64(us*1000))
	end := now + took
	r.result.Took = time.Duration(took)
	r.c.Done(core.Instant(end), &r.result)
	for i := range plan.Batch {
		if sl := &plan.Batch[i]; sl.Row >= 0 {
			r.token(sl.Req, end)
		}
	}
	return took
}

// token decides a request's next token at time now, in the order of calls that package meridian asks for.
func (r *replay) token(id core.ID, now int64) {
	q, w := r.live[id], &r.words
	was := q.ctl.Phase()
	tok, forced := q.ctl.Next(now)
	if !forced {
		tok = q.sample(w)
		tok, _ = q.ctl.Admit(tok, w.vocab.Piece(tok), tok == w.end, now)
	}
	q.ctl.tok, q.ctl.piece, q.ctl.eog = tok, w.vocab.Piece(tok), tok == w.end
	n := len(q.core.Tokens)
	r.ids = q.identity.AppendTokens(r.ids[:0], n, n+1)
	ev := r.c.Token(core.Instant(now), &q.core, r.ids[0], nil, tok == w.end, nil, nil).Event
	if !q.first {
		q.first = true
		r.ttft.Add(now/1000-q.Arrival, 1)
	}
	switch {
	case ev.Has(meridian.ExitThink):
		q.closed = now
		sum := q.ctl.Summary(now)
		r.think = append(r.think, sum.Tokens)
		r.cfg.Observer.Thought(q.Index, sum.Tokens, sum.Ended)
		if sum.Ended != meridian.EndedNatural {
			r.rep.BudgetForced[sum.Ended.String()]++ // finish makes a share of it
		}
	case ev.Has(meridian.Completed):
		r.rep.Completed++
		delete(r.live, id)
		r.cfg.Observer.End(q.Index, now, true)
		return
	case q.ctl.Phase() == meridian.OutputDecode:
		switch {
		case q.visible:
			r.itl.Add((now-q.last)/1000, 1)
		case was == meridian.OutputDecode && q.closed > 0:
			r.ttot.Add((now-q.closed)/1000, 1)
		}
		q.visible, q.last = true, now
		r.cfg.Observer.Token(q.Index, now, false)
	case !ev.Has(meridian.EnterThink):
		r.cfg.Observer.Token(q.Index, now, true)
	}
}

func (r *replay) finish(now int64) {
	rep := r.rep
	rep.OutputCriticalEvictions = int64(r.c.Ledger().Evictions().Answers)
	rep.VirtualSeconds = float64(now) / 1e9
	rep.TTFT, rep.TTOT, rep.OutputITL = percentiles(&r.ttft), percentiles(&r.ttot), percentiles(&r.itl)
	slices.Sort(r.think)
	if n := len(r.think); n > 0 {
		sum := 0
		for _, t := range r.think {
			sum += t
		}
		rep.ThinkMean = float64(sum) / float64(n)
		rep.ThinkP95 = float64(r.think[min(n-1, int(math.Ceil(0.95*float64(n)))-1)])
	}
	for why := range rep.BudgetForced {
		rep.BudgetForced[why] /= float64(rep.Reasoning)
	}
}

func percentiles(d *sim.Dist) Percentiles {
	return Percentiles{d.MeanMs(), d.PercentileMs(50), d.PercentileMs(95), d.PercentileMs(99), d.Count()}
}

// WriteMarkdown prints the report as a table that can be posted beside another.
func (r *Report) WriteMarkdown(w io.Writer) error {
	_, err := fmt.Fprintf(w, "### %s, policy %s, seed %d\n\n| metric | mean | p50 | p95 | p99 | n "+
		"|\n|---|---|---|---|---|---|\n", r.Mode, r.Policy, r.Seed)
	if err != nil {
		return err
	}
	for _, m := range []struct {
		name string
		p    Percentiles
	}{{"TTFT (ms)", r.TTFT}, {"TTOT (ms)", r.TTOT}, {"output ITL (ms)", r.OutputITL}} {
		if _, err := fmt.Fprintf(w, "| %s | %.3f | %.3f | %.3f | %.3f | %d |\n", m.name, m.p.Mean, m.p.P50, m.p.P95,
			m.p.P99, m.p.N); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(w, "\n| think tokens mean | p95 | forced by hard cap | output-critical evictions | "+
		"preemptions | completed | rejected |\n|---|---|---|---|---|---|---|\n"+
		"| %.0f | %.0f | %.1f %% | %d | %d | %d | %d |\n", r.ThinkMean, r.ThinkP95, 100*r.BudgetForced["hard_cap"],
		r.OutputCriticalEvictions, r.Preemptions, r.Completed, r.Rejected)
	return err
}
