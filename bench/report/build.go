package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/bench/loadgen"
	"github.com/uma-serve/uma-serve/bench/workload"
)

// Run is the measurements of one repeat.
type Run struct {
	Requests  []workload.Request
	Result    *loadgen.Result
	Evictions float64       // OutputCritical evictions by the server's metrics; NaN = not known
	ServerCPU time.Duration // 0 = not known
	// EvictedBlocks are KV blocks that were evicted because another request needed them, by tier; nil = not known.
	EvictedBlocks map[string]int
	Mark          time.Duration // start of the disturbance, 0 = none
	Prefill       float64       // prompt tokens a second since then, by the server's count; NaN or 0 = not known
}

// forced are the ends of thinking that the server forced.
var forced = []string{"converged", "stalled", "overthinking", "hard_cap", "soft_cap", "static_cap"}

// tally sums over requests.
type tally struct {
	ttft, ttot, itl, think, output []float64 // ms; tokens
	reasoning, forced              int
	byReason                       map[string]int
	asked, right                   int
	generated                      int
	prompt, cached                 int
	from, to                       int64 // ns, of the measured requests
	answered                       int
}

// add counts a request; of its answer only p.
func (t *tally) add(q *workload.Request, r *loadgen.Record, p part) {
	t.answered++
	if t.answered == 1 || p.from < t.from {
		t.from = p.from
	}
	t.to = max(t.to, p.to)
	for i := 1; i < len(p.output); i++ {
		t.itl = append(t.itl, ms(p.output[i]-p.output[i-1]))
	}
	if n := len(p.output); r.Cut && n > 0 && p.to == r.End { // a gap that had not ended counts as long as it had lasted
		t.itl = append(t.itl, ms(p.to-p.output[n-1]))
	}
	if first := r.First(); first > 0 {
		t.ttft = append(t.ttft, ms(first-r.Sent))
	}
	if n := len(r.Think); n > 0 && r.Visible > 0 {
		t.ttot = append(t.ttot, ms(r.Visible-r.Think[n-1]))
	}
	if q.Kind == workload.Reasoning {
		t.reasoning++
		t.think = append(t.think, float64(r.Thought()))
		if slices.Contains(forced, r.ThinkEnded) {
			t.forced++
			t.byReason[r.ThinkEnded]++
		}
	}
	if !r.Cut {
		t.output = append(t.output, float64(r.Answered()))
	}
	if r.Graded {
		t.asked++
		if r.Right {
			t.right++
		}
	}
	t.generated += len(r.Think) + len(p.output)
	t.prompt += r.PromptTokens
	t.cached += r.CachedTokens
}

func ms(ns int64) float64 { return float64(ns) / 1e6 }

func newTally() *tally { return &tally{byReason: map[string]int{}} }

// merge adds the tally of another time.
func (t *tally) merge(o *tally) {
	t.ttft, t.ttot, t.itl = append(t.ttft, o.ttft...), append(t.ttot, o.ttot...), append(t.itl, o.itl...)
	t.think, t.output = append(t.think, o.think...), append(t.output, o.output...)
	t.reasoning, t.forced, t.asked, t.right = t.reasoning+o.reasoning, t.forced+o.forced, t.asked+o.asked,
		t.right+o.right
	t.generated, t.prompt, t.cached, t.answered = t.generated+o.generated, t.prompt+o.prompt, t.cached+o.cached,
		t.answered+o.answered
	t.from, t.to = 0, t.to-t.from+o.to-o.from
	for k, n := range o.byReason {
		t.byReason[k] += n
	}
}

// values returns the metrics of the tally; those of the whole run are not among them.
func (t *tally) values() map[string]Num {
	out := map[string]Num{}
	put := func(key string, v float64) { out[key] = Num(v) }
	for name, xs := range map[string][]float64{"ttft": t.ttft, "ttot": t.ttot, "output_itl": t.itl} {
		s := slices.Sorted(slices.Values(xs))
		put(name+"_p50_ms", quantile(s, 50))
		put(name+"_p95_ms", quantile(s, 95))
		put(name+"_p99_ms", quantile(s, 99))
		if name == "output_itl" {
			put("output_itl_max_ms", quantile(s, 100))
		}
	}
	put("think_tokens_avg", mean(t.think))
	put("think_tokens_p95", Percentile(t.think, 95))
	put("output_tokens_avg", mean(t.output))
	put("budget_forced_pct", 0)
	if t.reasoning > 0 {
		put("budget_forced_pct", 100*float64(t.forced)/float64(t.reasoning))
	}
	share := func(key string, part, all int) {
		put(key, math.NaN())
		if all > 0 {
			put(key, 100*float64(part)/float64(all))
		}
	}
	share("accuracy_pct", t.right, t.asked)
	share("prompt_cached_pct", t.cached, t.prompt)
	put("output_tokens_per_s", math.NaN())
	if d := ms(t.to-t.from) / 1000; d > 0 {
		put("output_tokens_per_s", float64(t.generated)/d)
	}
	return out
}

// Measure fills a report from its repeats. The caller sets its name and settings.
func (r *Report) Measure(runs []Run) {
	all := newTally()
	var evictions, prefill, serverCPU, clientCPU, wall float64
	groups := map[string]*group{}
	var order []string
	for _, run := range runs {
		one, parts := newTally(), map[string]*tally{}
		for _, rec := range run.Result.Records {
			q := &run.Requests[rec.Index]
			name := cmp.Or(q.Group, q.Kind)
			g := groups[name]
			if g == nil {
				g = &group{tally: newTally(), measured: q.Measured}
				groups[name] = g
				order = append(order, name)
			}
			if parts[name] == nil {
				parts[name] = newTally()
			}
			switch {
			case rec.Err != "":
				r.NErrors++
				g.errors++
				if r.Errors == nil {
					r.Errors = map[string]int{}
				}
				what, _, _ := strings.Cut(rec.Err, "\n")
				r.Errors[what[:min(len(what), 200)]]++
				continue
			case rec.Skipped != "":
				r.NSkipped++
				g.skipped = rec.Skipped
				continue
			}
			whole := part{rec.Output, rec.Sent, rec.End}
			if q.Measured && run.Mark > 0 && len(rec.Output) > 0 && rec.Sent < int64(run.Mark) &&
				rec.End > int64(run.Mark) {
				// The workload measures the effect of the disturbance: the stream before it is a separate group.
				var before part
				before, whole = whole.divide(int64(run.Mark))
				alone := name + ", before"
				if groups[alone] == nil {
					groups[alone] = &group{tally: newTally()}
					order = append(order, alone)
				}
				if parts[alone] == nil {
					parts[alone] = newTally()
				}
				parts[alone].add(q, rec, before)
			}
			parts[name].add(q, rec, whole)
			g.ends = append(g.ends, ms(rec.End-rec.Sent))
			if !q.Measured {
				continue
			}
			one.add(q, rec, whole)
			if q.Kind == workload.Chat {
				r.NChat++
			}
			if q.X > 0 {
				g.x = append(g.x, at{float64(q.X), ms(rec.First() - rec.Sent)})
			}
		}
		for name, t := range parts {
			groups[name].merge(t)
		}
		values := r.without(one.values())
		values["output_critical_eviction_events"] = Num(run.Evictions)
		if run.Prefill == 0 {
			run.Prefill = math.NaN()
		}
		values["prefill_tokens_per_s"] = Num(run.Prefill)
		prefill += run.Prefill
		share := math.NaN()
		if run.ServerCPU > 0 && run.Result.CPUNs > 0 {
			share = 100 * float64(run.Result.CPUNs) / float64(run.ServerCPU)
		}
		values["client_cpu_pct_of_server"] = Num(share)
		values["client_cpu_pct_of_core"] = corePct(run.Result.CPUNs, run.Result.WallNs)
		r.Repeats = append(r.Repeats, values)
		evictions += run.Evictions
		if run.EvictedBlocks != nil && r.EvictedByTier == nil {
			r.EvictedByTier = map[string]int{}
		}
		for tier, n := range run.EvictedBlocks {
			if n > 0 {
				r.EvictedByTier[tier] += n
			}
		}
		serverCPU += float64(run.ServerCPU)
		clientCPU += float64(run.Result.CPUNs)
		wall += float64(run.Result.WallNs) / 1e9
		all.merge(one)
	}
	r.Values = r.without(all.values())
	r.Values["output_critical_eviction_events"] = Num(evictions)
	r.Values["prefill_tokens_per_s"] = Num(prefill / float64(len(runs)))
	r.Values["client_cpu_pct_of_server"] = Num(100 * clientCPU / serverCPU)
	r.Values["client_cpu_pct_of_core"] = corePct(int64(clientCPU), int64(wall*1e9))
	r.DurationS, r.NRequests, r.NReasoning, r.ForcedByReason = Num(wall), all.answered, all.reasoning, all.byReason
	if all.asked > 0 {
		low, high := Wilson(all.right, all.asked)
		r.Accuracy = &Accuracy{all.asked, all.right, [2]Num{Num(100 * low), Num(100 * high)}}
	}
	r.MarkS = Num(math.NaN())
	if len(runs) > 0 && runs[0].Mark > 0 {
		r.MarkS = Num(runs[0].Mark.Seconds())
	}
	for _, name := range order {
		g := groups[name]
		if g.skipped != "" {
			r.Notes = append(r.Notes, fmt.Sprintf("%s was not measured: %s.", name, g.skipped))
		}
		r.Groups = append(r.Groups, g.report(name))
		if c := g.curve(name); len(c.Points) > 0 {
			r.TTFTByX = append(r.TTFTByX, c)
		}
	}
	r.ITLOverTime = overTime(runs)
	r.ITLQuantile, r.TTFTQuant = quantiles(all.itl), quantiles(all.ttft)
	r.finish()
}

// without leaves the generated tokens per second out where requests arrive at a rate: they are then those of the
// workload and say nothing about the server, unless it is overloaded.
func (r *Report) without(values map[string]Num) map[string]Num {
	if r.Streams == 0 && r.ArrivalRate > 0 {
		values["output_tokens_per_s"] = Num(math.NaN())
	}
	return values
}

// corePct returns the share of one core that a process used; unknown in a replay and on some systems.
func corePct(cpu, wall int64) Num {
	if cpu == 0 || wall == 0 {
		return nan
	}
	return Num(100 * float64(cpu) / float64(wall))
}

// part is a stretch of an answer: its tokens' times, and from when to when it went.
type part struct {
	output   []int64
	from, to int64
}

// divide splits a stream at a moment. A gap belongs to the part it ends in: a stall that began just before counts.
func (p part) divide(mark int64) (before, after part) {
	k, _ := slices.BinarySearch(p.output, mark)
	return part{p.output[:k], p.from, mark}, part{p.output[max(k-1, 0):], mark, p.to}
}

type at struct{ x, y float64 }

// few requests of a group are listed one by one.
const few = 32

type group struct {
	*tally
	measured bool
	errors   int
	skipped  string
	ends     []float64
	x        []at
}

func (g *group) report(name string) Group {
	v := g.values()
	rate := math.NaN()
	if d := ms(g.to-g.from) / 1000; d > 0 && g.prompt > g.cached {
		rate = float64(g.prompt-g.cached) / d
	}
	out := Group{Name: name, Measured: g.measured, Requests: g.answered, Errors: g.errors, Skipped: g.skipped,
		TTFTp50: v["ttft_p50_ms"], TTFTp95: v["ttft_p95_ms"],
		ITLp50: v["output_itl_p50_ms"], ITLp95: v["output_itl_p95_ms"], ITLp99: v["output_itl_p99_ms"],
		ITLMax: v["output_itl_max_ms"], Gaps: len(g.itl),
		Ends: Num(Percentile(g.ends, 50)), PromptSec: Num(rate), Accuracy: v["accuracy_pct"]}
	if len(g.ends) <= few {
		for _, e := range g.ends {
			out.EachEnd = append(out.EachEnd, Num(e))
		}
	}
	return out
}

func (g *group) curve(name string) Curve {
	byX := map[float64][]float64{}
	for _, p := range g.x {
		byX[p.x] = append(byX[p.x], p.y)
	}
	c := Curve{Name: name}
	for x, ys := range byX {
		c.Points = append(c.Points, point(x, ys, 5, 95))
	}
	slices.SortFunc(c.Points, func(a, b Point) int { return cmp.Compare(a.X, b.X) })
	return c
}

func point(x float64, ys []float64, low, high float64) Point {
	s := slices.Sorted(slices.Values(ys))
	return Point{x, Num(quantile(s, 50)), Num(quantile(s, low)), Num(quantile(s, high)), len(s)}
}

// overTime sorts the gaps between output tokens into stretches of time, at most about 120. A gap counts in every
// stretch that it covers, so that a stall shows for its whole length, also if it never ended.
func overTime(runs []Run) []Point {
	end := int64(0)
	for _, run := range runs {
		end = max(end, run.Result.WallNs)
	}
	width := max(int64(250*time.Millisecond), end/120)
	slots := map[int64][]float64{}
	gap := func(from, to int64) {
		last := min(to, end) / width
		for k := min(from/width+1, last); k <= last; k++ {
			slots[k] = append(slots[k], ms(to-from))
		}
	}
	for _, run := range runs {
		for _, rec := range run.Result.Records {
			if !run.Requests[rec.Index].Measured {
				continue
			}
			for i := 1; i < len(rec.Output); i++ {
				gap(rec.Output[i-1], rec.Output[i])
			}
			if n := len(rec.Output); rec.Cut && n > 0 && rec.End > rec.Output[n-1] {
				gap(rec.Output[n-1], rec.End)
			}
		}
	}
	var out []Point
	for k, ys := range slots {
		out = append(out, point((float64(k)+.5)*float64(width)/1e9, ys, 5, 100))
	}
	slices.SortFunc(out, func(a, b Point) int { return cmp.Compare(a.X, b.X) })
	return out
}

// quantiles are 101 points of the distribution; none of fewer than 20 values, which make no curve.
func quantiles(xs []float64) []Num {
	if len(xs) < 20 {
		return nil
	}
	s := slices.Sorted(slices.Values(xs))
	out := make([]Num, 101)
	for p := range out {
		out[p] = Num(quantile(s, float64(p)))
	}
	return out
}
