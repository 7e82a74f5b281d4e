// Package replay runs the benchmark without a server: the synthetic-replay mode. The requests, their lengths and their
// arrivals come from package workload, draw by draw those of the real mode; scheduler and phase control are the
// daemon's own, with their queueing and contention; the decoder only takes virtual time, and obeys the drawn lengths to
// the token. The same seed gives the same bytes.
//
// Package sim/synthetic is its engine and documents its limits. Its numbers are marked as synthetic in every report.
package replay

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/bench/loadgen"
	"github.com/uma-serve/uma-serve/bench/report"
	"github.com/uma-serve/uma-serve/bench/workload"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sim/synthetic"
	simload "github.com/uma-serve/uma-serve/sim/workload"
)

// Decoders are the machines that can be replayed, by name. "reference" has the costs of the reference harness, whose
// steps are far shorter than anything a reader notices; "laptop" those measured here of 135 M parameters on two cores.
var Decoders = map[string]synthetic.Decoder{
	"reference": {StepUs: 40, PrefillUs: 1.2, ThinkUs: 6, OutputUs: 18},
	"laptop":    {StepUs: 4300, PrefillUs: 4900, ThinkUs: 2400, OutputUs: 2400},
}

// ParseDecoder reads a name of Decoders, or "step=US,prefill=US,think=US,output=US": a step's fixed cost and each
// token's.
func ParseDecoder(text string) (synthetic.Decoder, error) {
	if d, ok := Decoders[text]; ok {
		return d, nil
	}
	var d synthetic.Decoder
	for part := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(part, "=")
		field := map[string]*float64{"step": &d.StepUs, "prefill": &d.PrefillUs, "think": &d.ThinkUs,
			"output": &d.OutputUs}[key]
		us, err := strconv.ParseFloat(value, 64)
		if field == nil || err != nil || !(us >= 0 && us <= 1e9) {
			return d, fmt.Errorf("decoder %q: it must be one of %s, or step=US,prefill=US,think=US,output=US with "+
				"microseconds", text, strings.Join(slices.Sorted(maps.Keys(Decoders)), ", "))
		}
		*field = us
	}
	return d, nil
}

// Config is one configuration of the replay.
type Config struct {
	Name, Side, Workload string
	Policy               string
	Target               time.Duration // between two tokens of an answer; 0 = the scheduler's own
	ThinkBudget          int           // tokens; 0 = thoughts are never ended by force
	Decoder              synthetic.Decoder
	Options              workload.Options
	Repeats              int
	Environment          report.Environment
	Done                 func() // a repeat has ended
}

// Run replays and reports. Repeat k has the seed Options.Seed + k.
func Run(cfg Config) (*report.Report, error) {
	out := &report.Report{Provenance: report.Synthetic, Mode: "replay", ConfigName: cfg.Name, Side: cfg.Side,
		Workload: cfg.Workload, Target: "replay",
		Seed: cfg.Options.Seed, Environment: cfg.Environment}
	var runs []report.Run
	var occupied occupancy
	for k := range cfg.Repeats {
		o := cfg.Options
		o.Seed += uint64(k)
		plan, err := workload.New(cfg.Workload, o)
		if err != nil {
			return nil, err
		}
		if err := replayable(plan); err != nil {
			return nil, err
		}
		out.ArrivalRate = report.Num(plan.Rate)
		c := synthetic.DefaultConfig()
		c.Workload.Seed, c.Decoder = int64(o.Seed), cfg.Decoder
		c.Sched.Policy, c.Sched.ITLTarget, c.ThinkBudget = cfg.Policy, cfg.Target, cfg.ThinkBudget
		w := newWatcher(plan)
		c.Requests, c.Observer = w, w
		r, err := synthetic.Run(c)
		if err != nil {
			return nil, err
		}
		occupied.add(r, w.records)
		runs = append(runs, report.Run{Requests: plan.Requests, Evictions: float64(r.OutputCriticalEvictions),
			Result: &loadgen.Result{Records: w.records, WallNs: int64(r.VirtualSeconds * 1e9)}})
		if cfg.Done != nil {
			cfg.Done()
		}
	}
	if occupied.idle(cfg.Target) {
		out.Notes = []string{"Steps are short beside the latency targets and hardly anybody waits: policies have " +
			"little to decide here. --decoder is a slower machine, --arrival-rate a busier one."}
	}
	out.Measure(runs)
	return out, nil
}

// occupancy is the load of the replayed server.
type occupancy struct {
	busy, virtual float64 // seconds
	present       float64 // request-seconds
	steps         int64
}

func (o *occupancy) add(r *synthetic.Report, records []*loadgen.Record) {
	o.busy, o.virtual, o.steps = o.busy+r.BusySeconds, o.virtual+r.VirtualSeconds, o.steps+r.Steps
	for _, rec := range records {
		o.present += float64(rec.End-rec.Sent) / 1e9
	}
}

// idle reports whether less than half of the sequences were wanted, and steps took less than a tenth of the target.
func (o *occupancy) idle(target time.Duration) bool {
	d := synthetic.DefaultConfig().Sched
	return o.present/o.virtual < float64(d.MaxRunning)/2 &&
		o.busy/float64(o.steps) < cmp.Or(target, sched.DefaultITLTarget).Seconds()/10
}

// replayable refuses workloads that depend on a server's answers.
func replayable(p *workload.Plan) error {
	if p.Workers > 0 {
		return fmt.Errorf("the replay mode has arrivals only: leave out --concurrency")
	}
	for _, r := range p.Requests {
		if r.After >= 0 || r.Until > 0 || r.Grader == "exact" {
			return fmt.Errorf("workload %s needs a server: the replay mode has those of independent arrivals with "+
				"known lengths (synthetic, chat, reasoning, sharegpt, math500, mix)", p.Name)
		}
	}
	return nil
}

// watcher passes the plan's requests to the simulation and records their times, as a client would.
type watcher struct {
	requests []workload.Request
	records  []*loadgen.Record
	next     int
}

func newWatcher(p *workload.Plan) *watcher {
	return &watcher{requests: p.Requests, records: make([]*loadgen.Record, len(p.Requests))}
}

// Next implements simload.Source.
func (w *watcher) Next(r *simload.Request) bool {
	if w.next == len(w.requests) {
		return false
	}
	q := &w.requests[w.next]
	chars := len(q.Prompt)
	for _, m := range q.Messages {
		chars += len(m.Content)
	}
	us := q.At.Microseconds()
	*r = simload.Request{Index: int64(w.next), Arrival: us, Class: "interactive", Client: q.Kind,
		Input: max(8, chars/4), Think: q.Think, Output: q.Think + q.Output}
	at := us * int64(time.Microsecond)
	w.records[w.next] = &loadgen.Record{Index: w.next, Due: at, Sent: at}
	w.next++
	return true
}

// Token implements synthetic.Observer.
func (w *watcher) Token(request, now int64, thinking bool) {
	w.records[request].Token(now, thinking, "x", false)
}

// Thought implements synthetic.Observer.
func (w *watcher) Thought(request int64, tokens int, ended meridian.Ended) {
	r := w.records[request]
	r.ThinkTokens, r.ThinkEnded = tokens, ended.String()
}

// End implements synthetic.Observer.
func (w *watcher) End(request, now int64, answered bool) {
	r := w.records[request]
	r.End, r.Reason = now, "stop"
	if !answered {
		r.Reason, r.Err = "", "rejected by the scheduler"
	}
}
