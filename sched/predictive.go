package sched

import (
	"slices"
	"time"
)

// predictive is what the policies that keep a promise in milliseconds have in common: who promises what, how much of
// a prompt fits into what is left of a step, and which prompt goes first.
type predictive struct {
	s               *Scheduler
	cfg             *Config
	out, think, pre []*request // scratch: the running requests of this step, by phase
	held            int        // steps in a row in which prompts were held back
	turn            int        // steps with several prompts since the one served longest ago went first
	hurried         int        // steps that made way for young answers, less those since that did not
	tight           bool       // the newest target was out of reach
	shared, solo    int        // tokens of the newest steps with prompts, beside answers and alone
}

func newPredictive(s *Scheduler) predictive {
	n := s.cfg.MaxRunning
	return predictive{s: s, cfg: &s.cfg, out: make([]*request, 0, n), think: make([]*request, 0, n), pre: make([]*request, 0, n), shared: s.cfg.StartBudget, solo: s.cfg.StartBudget}
}

const (
	// infeasibleSlack is how much longer than answers alone a step may take when even these miss the target: holding
	// prompts then would stop them and smooth nothing.
	infeasibleSlack = 1.5
	// infeasibleClear is the share of the target that answers alone have to come back under.
	infeasibleClear = 0.9
	// A step takes at most enoughSteps times what answers alone take, or enoughShare of the target if that is more: a longer
	// one would win prompts little, and whoever asks meanwhile waits for its end. Where it ends a prompt's wait it may.
	enoughSteps = 6
	enoughShare = 0.7
	// youngTokens is the length up to which an answer is young: its first words are waited for, and prompts make way for them,
	// as long as no more than maxHurried steps did so without as many others since. A prompt whose own first token is at
	// most urgentSteps away does not.
	youngTokens = 5
	maxHurried  = 12
	urgentSteps = 2
	// restSlack is how many times Config.SoloBudget a step may take that computes all that is left of all prompts: a few
	// tokens that stay behind would wait beside answers.
	restSlack = 1.25
	// fairSlack is the tokens an owner may be ahead of the others before its prompts go behind theirs.
	fairSlack = 2048
)

func (p *predictive) lane(c Class, owner uint32) (Class, uint32) { return c, owner }

func (p *predictive) observe(*Plan, time.Duration) {}

func (p *predictive) targets() (shared, solo int) { return p.shared, p.solo }

// split sorts the running requests by phase.
func (p *predictive) split() {
	p.out, p.think, p.pre = p.out[:0], p.think[:0], p.pre[:0]
	for _, r := range p.s.running {
		switch {
		case r.paused:
		case r.state == Output:
			p.out = append(p.out, r)
		case r.state == Think:
			p.think = append(p.think, r)
		default:
			p.pre = append(p.pre, r)
		}
	}
}

// wish is the time between tokens that was promised to r, 0 = none was.
func (p *predictive) wish(r *request) time.Duration {
	switch {
	case r.tbt > 0:
		return time.Duration(r.tbt)
	case r.flow.class == Interactive:
		return p.cfg.ITLTarget
	}
	return 0
}

// room is how many ms a step may take.
type room struct {
	ms      float64       // so that no answer's next token comes too late
	most    float64       // ≥ ms: up to this it may take to give a prompt its first token
	young   bool          // an answer is young
	target  time.Duration // the tightest that was promised
	bounded bool          // false: nothing was promised to anybody, ms is Config.SoloBudget
}

// room says how long this step may take for these answers, whose rows are what the batch consists of.
func (p *predictive) room(b *builder, answers []*request) room {
	const far = time.Duration(1<<63 - 1)
	target, left, young := far, far, false
	for _, r := range answers {
		w := p.wish(r)
		if w == 0 {
			continue
		}
		target = min(target, w)
		since := time.Duration(0)
		if r.emitted {
			since = p.s.now.Sub(r.lastEmit)
		}
		left = min(left, w-since)
		young = young || r.generated < youngTokens && r.flow.class == Interactive
	}
	if target == far {
		ms := float64(p.cfg.SoloBudget) / 1e6
		return room{ms: ms, most: ms}
	}
	over := p.s.overhead.value / 1e6
	ms := float64(left)/1e6 - over
	plain := p.s.cost.predict(b.load)
	switch t := float64(target)/1e6 - over; {
	case p.s.cost.steps == 0:
	case plain > t:
		p.tight = true
	case plain < infeasibleClear*t:
		p.tight = false
	}
	// The ratio is in the bound that chunks are held against.
	plain *= p.s.cost.ratio
	if p.tight {
		ms = max(ms, infeasibleSlack*plain)
	}
	most := ms
	if !p.tight && p.s.cost.steps > 0 {
		ms = min(ms, max(enoughSteps*plain, enoughShare*float64(target)/1e6))
	}
	p.s.promise = promise{guard: GuardTrim, target: target, infeasible: p.tight}
	return room{ms: ms, most: most, young: young, target: target, bounded: true}
}

// leaveOut notes that nothing is computed for r in this step.
func (p *predictive) leaveOut(b *builder, r *request, why Reason) {
	b.unserved--
	r.reason = why
	r.log.add(p.s.now, why, 0)
	p.s.count[why]++
}

// prompts fills what is left of a step with this much room. It sets the plan's reason when a limit of its own is why the
// batch is not larger.
func (p *predictive) prompts(b *builder, room room) {
	plan, bounded := &b.s.plan, room.bounded
	if len(p.pre) == 0 {
		p.held = 0
		return
	}
	p.sort()
	// The model is not asked about chunks far larger than those it has seen.
	least, why := min(p.cfg.MinPrefill, max(1, p.cfg.MaxBatch/2)), ReasonPrefillTarget
	trust := max(least, int(2*p.s.cost.largest))
	if !bounded {
		least, why = max(least, 1), ReasonPrefillTick
		trust = p.s.loneTrust()
		room.ms = p.s.soloMs(b.load, p.pre[0].computed)
		all := b.load
		for _, r := range p.pre {
			all.slice(SlicePrefill, r.computed, r.left())
		}
		if ms := p.s.cost.likely(all); ms <= restSlack*room.ms {
			room.ms = max(room.ms, ms)
		}
		room.most = room.ms
	}
	fits := p.s.cost.fits
	if !bounded {
		fits = p.s.cost.fitsLikely
	}
	hurry := room.young && p.hurried < maxHurried
	total, capped := 0, ReasonNone
	for _, r := range p.pre {
		most := min(r.left(), b.left)
		if most == 0 {
			break
		}
		waited := r.generated == 0 && r.flow.class == Interactive // for its first token
		n, reason := fits(room.ms, b.load, r.computed, most), why
		if waited && n < most && most == r.left() && fits(room.most, b.load, r.computed, most) == most {
			n = most
		}
		if hurry && !(waited && r.left() <= urgentSteps*n) {
			n = 0
		}
		if n == most {
			reason = ReasonPrefillBatch
		}
		if total == 0 {
			switch {
			case !bounded:
				n = max(n, min(least, most))
			case p.held >= p.cfg.MaxHeld && n < least:
				n, reason = min(least, most), ReasonPrefillFloor
			case n == 0, p.held > 0 && n < min(least, most):
				// Once prompts are held, they go on with a chunk that is worth it.
				n = 0
			}
		}
		if n > trust-total {
			n, reason = trust-total, ReasonPrefillTrust
		}
		if !bounded && n < most {
			n = wholeTiles(plan.Tokens, n)
		}
		if n <= 0 {
			capped = reason
			break
		}
		got := b.prefill(r, n, reason)
		total += got
		if got < most && got == n {
			capped = reason
			break
		}
		if reason == ReasonPrefillFloor {
			capped = reason
			break
		}
		if bounded && waited && got == r.left() {
			// The step ends with its first token rather than being filled.
			hurry = true
		}
	}
	if hurry {
		p.hurried++
	} else {
		p.hurried = max(0, p.hurried-1)
	}
	switch {
	case bounded && total == 0 && capped != ReasonNone:
		p.held++
		for _, r := range p.pre {
			p.leaveOut(b, r, ReasonPrefillHeld)
		}
		plan.PrefillHeld = true
		plan.Reason, b.s.promise.guard = ReasonGuard, GuardHold
	case capped == ReasonPrefillFloor:
		p.held = 0
		plan.Reason, b.s.promise.guard = ReasonGuard, GuardHold
	default:
		p.held = 0
		switch capped {
		case ReasonPrefillTarget:
			plan.Reason = ReasonTarget
		case ReasonPrefillTick, ReasonPrefillTrust:
			plan.Reason = ReasonBudget
		}
	}
	if total > 0 {
		if bounded {
			p.shared = total
		} else {
			p.solo = total
		}
	}
}

// loneTrust is the most prompt tokens of a step that no answer waits for, whatever the cost model says. The first step
// with prompt tokens ever is a small one: what the machine is like is known after it.
func (s *Scheduler) loneTrust() int {
	if s.cost.prompts == 0 {
		return max(1, s.cfg.FirstPrefill, s.cfg.MinPrefill)
	}
	return max(s.cfg.StartBudget, s.cfg.MinPrefill, int(2*s.cost.largest))
}

// loneFits is the most tokens of prompts, the farthest of which is at position start, that a step without answers has
// time for: the bound for policies that do not predict.
func (s *Scheduler) loneFits(start, most int) int {
	if s.cost.prompts == 0 {
		return min(most, s.loneTrust())
	}
	ms := max(restSlack*float64(s.cfg.SoloBudget)/1e6, s.soloMs(load{}, start))
	n := max(s.cost.fitsLikely(ms, load{}, start, most), min(most, s.cfg.MinPrefill))
	if n < most {
		n = wholeTiles(0, n)
	}
	return n
}

// soloTokens is the chunk from which on larger ones gain nothing, one micro-batch of llama.cpp. Measured, 2 threads, medians,
// ms a token: 135 M parameters in Q8_0: 64 tokens 1.34, 128 1.26, 192 1.20, 512 1.14; 1.1 B in Q4_K_M: 16 11.9, 128 11.1,
// 512 10.6.
const soloTokens = 512

// soloMs is how long a step may take that no answer waits for: Config.SoloBudget, and where soloTokens take longer, up
// to Config.SoloLimit. base is in the batch already; the first prompt is at position start.
func (s *Scheduler) soloMs(base load, start int) float64 {
	ms := float64(s.cfg.SoloBudget) / 1e6
	if limit := float64(s.cfg.SoloLimit) / 1e6; limit > ms {
		base.slice(SlicePrefill, start, soloTokens)
		ms = max(ms, min(s.cost.likely(base), limit))
	}
	return ms
}

// Matrix kernels compute rows in tiles. Measured on ggml's repacked Q4_K (1.1 B parameters, 2 threads, AVX-512), ms per
// token of a step: 16 rows 10.7, 32 rows 10.7, 512 rows 10.4; but 24 rows 12.0, 13 rows 14.4, 8 rows 14.6, 4 rows 17.4.
// So a step of 16 rows is as good as one of 512, and one of 13 costs more than one of 16.
const (
	tileRows     = 16
	halfTileRows = 4 // the step below: of rows beyond the last whole tile these are computed together
)

// wholeTiles is the largest chunk of at most n tokens with which a batch of rows rows ends with a whole tile.
func wholeTiles(rows, n int) int {
	switch all := rows + n; {
	case all >= tileRows:
		n -= all % tileRows
	case all > halfTileRows:
		n -= all % halfTileRows
	}
	return n
}

// finish says how the step came out, after everything was added.
func (p *predictive) finish(b *builder) {
	plan := &b.s.plan
	if plan.Reason == ReasonNone {
		plan.Reason = b.whyNotMore()
	}
	if plan.Budget = plan.Tokens; plan.Reason == ReasonServed {
		plan.Budget = p.cfg.MaxBatch
	}
}

// reserved is how many rows of this step are kept from answers, because prompts will take them.
func (p *predictive) reserved() int {
	most, n := min(p.cfg.MinPrefill, max(1, p.cfg.MaxBatch/2)), 0
	for _, r := range p.pre {
		if n += r.left(); n >= most {
			return most
		}
	}
	return n
}

// sort orders the prompts of this step: interactive ones first; those before their first token first; owners that are
// far ahead of others last; then the earliest wished first token; then the shortest rest, which is what makes the mean
// wait short. In every turnEvery'th step the one that was served longest ago goes before all.
func (p *predictive) sort() {
	if len(p.pre) < 2 {
		return
	}
	least := p.pre[0].flow.vt
	for _, r := range p.pre {
		least = min(least, r.flow.vt)
	}
	slices.SortFunc(p.pre, func(a, b *request) int {
		af, bf := a.flow, b.flow
		flag := func(a, b bool) int {
			if a {
				return 1
			}
			return -1
		}
		switch aAhead, bAhead := af.vt-least > fairSlack, bf.vt-least > fairSlack; {
		case af.class != bf.class:
			return int(af.class) - int(bf.class)
		case (a.generated > 0) != (b.generated > 0):
			return flag(a.generated > 0, b.generated > 0)
		case aAhead != bAhead:
			return flag(aAhead, bAhead)
		case aAhead && af.vt != bf.vt:
			return cmp(af.vt, bf.vt)
		case a.deadline != b.deadline:
			return cmp(a.deadline, b.deadline)
		case a.left() != b.left():
			return a.left() - b.left()
		}
		return cmp(a.rank, b.rank)
	})
	if p.turn++; p.turn >= turnEvery {
		p.turn = 0
		oldestFirst(p.pre)
	}
}

// oldestFirst moves the prompt that was served longest ago to the front.
func oldestFirst(pre []*request) {
	first := 0
	for i, r := range pre {
		if o := pre[first]; r.lastStep < o.lastStep || r.lastStep == o.lastStep && r.rank < o.rank {
			first = i
		}
	}
	r := pre[first]
	copy(pre[1:first+1], pre[:first])
	pre[0] = r
}
