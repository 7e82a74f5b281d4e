package synthetic

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/meridian/blocks"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sim"
	"github.com/uma-serve/uma-serve/sim/thinking"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// replay is a run under way.
type replay struct {
	cfg    Config
	seed   uint64
	model  *thinking.Model
	c      *core.Core
	tiers  *sim.Tiers // nil: cells that are evicted are computed again
	come   *arrivals
	live   map[core.ID]*request
	result core.Result
	ids    []core.Token
	rep    *Report

	ttft, ttot, itl sim.Dist
	think           []int
}

func (r *replay) run() error {
	now, idle := int64(0), 0
	for {
		for at, ok := r.come.at(); ok && at*1000 <= now; at, ok = r.come.at() {
			if err := r.arrive(r.come.take()); err != nil {
				return err
			}
		}
		if r.tiers != nil {
			r.tiers.Arrive(r.c, now/1000)
		}
		step := r.c.Next(core.Instant(now))
		plan := &step.Plan
		now += r.carryOut(step, now)
		if len(plan.Batch) > 0 {
			idle = 0
			took := r.decode(plan, now)
			now += took
			r.rep.Steps++
			r.rep.BusySeconds += float64(took) / 1e9
			continue
		}
		r.c.Done(core.Instant(now), &r.result)
		if !step.Idle {
			continue
		}
		wake, ok := r.wake(int64(plan.WakeAt))
		switch {
		case ok:
			idle = 0
			now = max(now+1, wake)
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

// wake returns the time of an idle server's next event, in nanoseconds: planned by the scheduler (0 = none), an
// arrival, or a part that is read.
func (r *replay) wake(planned int64) (at int64, ok bool) {
	if planned > 0 {
		at, ok = planned, true
	}
	if us, comes := r.come.at(); comes && (!ok || us*1000 < at) {
		at, ok = us*1000, true
	}
	if r.tiers != nil {
		if us, ready := r.tiers.Next(); ready && (!ok || us*1000 < at) {
			at, ok = us*1000, true
		}
	}
	return at, ok
}

// carryOut does what the step says beside its batch, and returns how long its copies took, nanoseconds.
func (r *replay) carryOut(step *core.Step, now int64) (took int64) {
	r.result = core.Result{Copies: r.result.Copies[:0]}
	if r.tiers != nil {
		for i := range step.Ops {
			r.tiers.Carry(&step.Ops[i], now/1000, &r.result)
		}
		took = r.tiers.Passed() * 1000
		r.result.CopyTook = time.Duration(took)
	}
	for i := range step.Notes {
		switch n := &step.Notes[i]; {
		case n.Kind == core.Preempted:
			r.rep.Preemptions++
		case n.Kind == core.Started && n.First:
			cached := min(n.N, n.Request.Prompt)
			r.rep.PromptTokens += int64(n.Request.Prompt)
			r.rep.CachedTokens += int64(cached)
			r.cfg.Observer.Started(int64(n.Request.ID)-1, n.Request.Prompt, cached)
		}
	}
	for i := range step.Ends {
		if q := r.live[step.Ends[i].Request.ID]; q != nil {
			r.rep.Rejected++
			r.end(q, now, false)
		}
	}
	return took
}

func (r *replay) end(q *request, now int64, answered bool) {
	delete(r.live, q.core.ID)
	r.cfg.Observer.End(q.Index, now, answered)
	how := workload.Completed
	if !answered {
		how = workload.Dropped
	}
	r.come.ended(&q.Request, how, (now+999)/1000)
}

func (r *replay) arrive(w *workload.Request) error {
	r.rep.Requests++
	opt := r.cfg.Meridian.Options()
	if r.cfg.ThinkBudget > 0 {
		opt.BudgetTokens = r.cfg.ThinkBudget
	}
	ctl, err := meridian.NewControl(&r.cfg.Meridian, r.model.Tags, opt, meridian.Begin{})
	if err != nil {
		return err
	}
	q := &request{Request: *w, identity: w.Identity()}
	q.ctl = thought{Control: ctl, course: thinking.NewCourse(r.seed^uint64(w.Index), w.Think)}
	// Two tags and the end are tokens, too.
	spec := &core.Spec{Spec: sched.Spec{Prompt: max(1, w.Input), MaxTokens: w.Output + 3}}
	if w.Class == "background" || w.Class == "batch" {
		spec.Class = sched.Background
	}
	q.core = core.Request{ID: core.ID(w.Index) + 1, Spec: spec, Arrived: core.Instant(w.Arrival * 1000),
		Control: &q.ctl}
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
		switch sl := &plan.Batch[i]; {
		case sl.Kind == sched.SlicePrefill:
		case sl.Kind == sched.SliceProbe:
			us += d.ThinkUs * float64(sl.N)
		case r.live[sl.Req].ctl.Phase() == meridian.ThinkDecode:
			us += d.ThinkUs
		default:
			us += d.OutputUs
		}
	}
	took := max(1000, int64(us*1000))
	end := now + took
	r.result.Took = time.Duration(took)
	r.c.Done(core.Instant(end), &r.result)
	for i := range plan.Batch {
		switch sl := &plan.Batch[i]; {
		case sl.Kind == sched.SliceProbe:
			if q := r.live[sl.Req]; q != nil {
				r.rep.Probes++
				r.c.Probed(&q.core, q.ctl.entropy(), true)
			}
		case sl.Row >= 0:
			r.token(sl.Req, end)
		}
	}
	return took
}

// token decides a request's next token at time now, in the order of calls that package meridian asks for.
func (r *replay) token(id core.ID, now int64) {
	q, w := r.live[id], r.model
	was := q.ctl.Phase()
	q.ctl.observe()
	tok, forced := q.ctl.Next(now)
	if !forced {
		tok = q.sample(w)
		tok, _ = q.ctl.Admit(tok, w.Vocab.Piece(tok), tok == w.End, now)
	}
	q.ctl.tok, q.ctl.piece, q.ctl.eog = tok, w.Vocab.Piece(tok), tok == w.End
	n := len(q.core.Tokens)
	r.ids = q.identity.AppendTokens(r.ids[:0], n, n+1)
	ev := r.c.Token(core.Instant(now), &q.core, r.ids[0], nil, tok == w.End, nil, nil).Event
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
		r.end(q, now, true)
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
	evicted := r.c.Ledger().Evictions()
	rep.OutputCriticalEvictions = int64(evicted.Interruptions)
	rep.AvoidableEvictions = int64(r.c.Avoidable())
	for _, tier := range blocks.EvictionOrder {
		rep.EvictedBlocks[tier.String()] = int64(evicted.Blocks[tier][blocks.Pressure])
		rep.PreemptedBlocks[tier.String()] = int64(evicted.Blocks[tier][blocks.Preempted])
	}
	if r.tiers != nil {
		for i, tokens := range r.tiers.Restored() {
			rep.RestoredTokens[sim.TierNames[i]] = tokens
		}
	}
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
