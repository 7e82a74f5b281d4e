// Package replay runs the benchmark without a server: the synthetic-replay mode. The requests, their lengths and their
// arrivals come from package workload, draw by draw those of the real mode; scheduler, prefix tree, block manager and
// phase control are the daemon's, with their queueing and contention; the decoder only takes virtual time, and obeys
// the drawn lengths to the token, unless phase control ends a thought. The same seed gives the same bytes.
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
	Meridian             meridian.Config
	Decoder              synthetic.Decoder
	Cells                int // of the pool; 0 = 32,768
	ThinkEvict           string
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
		c.Meridian, c.ThinkEvict = cfg.Meridian, cfg.ThinkEvict
		if cfg.Cells > 0 {
			c.Sched.Cells = cfg.Cells
		}
		// As the daemon: host memory for a pool's worth of cells, at a copy's price beside computing them.
		c.HostTokens, c.HostUs = c.Sched.Cells, cfg.Decoder.PrefillUs/copyRatio
		w := newWatcher(plan)
		c.Requests, c.Observer = w, w
		r, err := synthetic.Run(c)
		if err != nil {
			return nil, err
		}
		occupied.add(r, w.records)
		runs = append(runs, report.Run{Requests: plan.Requests, Evictions: float64(r.OutputCriticalEvictions),
			EvictedBlocks: evicted(r),
			Result:        &loadgen.Result{Records: w.records, WallNs: int64(r.VirtualSeconds * 1e9)}})
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

// copyRatio is the number of tokens whose cells are copied from host memory in the time of computing one token: some
// hundreds with small models (1,024 tokens in 3 ms instead of seconds), fewer with large cells.
const copyRatio = 100

func evicted(r *synthetic.Report) map[string]int {
	out := map[string]int{}
	for tier, n := range r.EvictedBlocks {
		out[tier] = int(n)
	}
	return out
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
