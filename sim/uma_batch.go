package sim

import (
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sim/latency"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// load fills b with the work of the plan's batch, as the daemon's cost model counts it.
func (u *uma) load(_ *Engine, b *latency.Batch, items bool) {
	b.Requests, b.PrefillTokens, b.DecodeTokens = len(u.step.Plan.Batch), u.step.Plan.PrefillTokens,
		u.step.Plan.DecodeTokens+u.step.Plan.ProbeTokens+u.step.Plan.GuessedTokens
	continues := u.runs.Step(workload.Only(&u.step.Plan))
	b.Resident = u.c.Resident()
	for i := range u.step.Plan.Batch {
		sl := &u.step.Plan.Batch[i]
		b.Attended += sched.Attended(sl.Start, sl.N)
		b.Read += float64(sl.Start + sl.N)
		b.Runs += u.runs.Of(uint64(sl.Req), continues)
		if sl.Row >= 0 {
			b.Rows += 1 + sl.Guessed
		}
		if items {
			b.Items = append(b.Items, latency.Item{Context: sl.Start, New: sl.N,
				Prefill: sl.Kind == sched.SlicePrefill})
		}
	}
}

// compute carries the batch out and answers each of its rows with a token.
func (u *uma) compute(e *Engine, now, decoded, took int64) {
	u.result.Took = time.Duration(decoded) * time.Microsecond
	at := instant(now + took)
	u.c.Done(at, &u.result)
	u.cpu.stepped(u.c, now+took, u.result.Took, u.step.Plan.Predicted)
	seen := now + took + e.overhead
	u.done = u.done[:0]
	for i := range u.step.Plan.Batch {
		sl := &u.step.Plan.Batch[i]
		q := u.byID[sl.Req]
		if sl.Kind == sched.SliceProbe {
			if q != nil {
				e.m.Forks++
				u.c.Probed(&q.Request, q.t.entropy(), true)
			}
			continue
		}
		r := q.r
		r.Progress = r.Computed
		if r.Progress > r.HighWater {
			r.HighWater = r.Progress
			e.advances++
			r.moved = now + took
		}
		if sl.Row < 0 {
			continue
		}
		for more := true; more; more = q.r != nil && q.NextRow() > 0 {
			u.token(e, q, now, seen, took)
		}
		if sl.Guessed > 0 {
			r.Computed = q.Computed()
			r.Progress = r.Computed
			r.HighWater = max(r.HighWater, r.Progress)
		}
	}
}

// token answers a row of q.
func (u *uma) token(e *Engine, q *served, now, seen, took int64) {
	r := q.r
	r.moved = seen
	r.tokens++
	if r.tokens == 1 {
		r.ttft = seen - r.Spec.Arrival
		r.ttftSet, r.hasTTFT = true, true
	} else {
		gap := seen - r.lastEmit
		r.itl = append(r.itl, gap)
		r.itlSum += gap
	}
	r.lastEmit = seen
	at := instant(now + took)
	if q.Kind == core.Embed {
		u.c.Embedded(&q.Request)
		u.forget(q)
		u.done = append(u.done, r)
		return
	}
	tok := u.says(q)
	q.t.draw(int64(at))
	eog := r.tokens >= q.t.output()
	said := u.c.Token(at, &q.Request, tok, nil, eog, nil, nil)
	if said.Event.Has(meridian.ExitThink) {
		e.m.Thoughts[q.t.ended]++
	}
	switch {
	case u.hands && !eog:
		r.handed = true
	case said.End == core.NotEnded:
		if k := r.stalls; k < len(r.Spec.Stalls) && r.tokens >= r.Spec.Stalls[k].After {
			r.stalls++
			u.pause(q, true)
			r.paused = true
			u.c.Handle(at, core.Input{Kind: core.Pause, Req: q.ID})
			e.events.push(now+took+max(1, r.Spec.Stalls[k].Us), resumed, r.Slot, r.gen)
		}
		return
	case said.End == core.Length && r.tokens < q.t.output():
		r.capped = true
		e.m.LengthCapped++
	}
	u.forget(q)
	u.done = append(u.done, r)
}

// says returns q's next token: that of its identity, or where q repeats its text the one that followed earlier.
func (u *uma) says(q *served) core.Token {
	r := q.r
	u.ids = r.Identity.AppendTokens(u.ids[:0], q.Prompt-q.given+r.tokens-1, q.Prompt-q.given+r.tokens)
	if q.repeat == 0 {
		return u.ids[0]
	}
	// The draws are of the position, so that speculation does not change the text.
	draw := workload.Mix64(r.Identity.Own + uint64(r.tokens))
	if float64(draw>>11)/(1<<53) >= q.repeat {
		q.source = 1 + int(workload.Mix64(draw)%uint64(max(1, len(q.Tokens)-1)))
		return u.ids[0]
	}
	if q.source == 0 || q.source >= len(q.Tokens) {
		q.source = 1 + int(workload.Mix64(draw)%uint64(max(1, len(q.Tokens)-1)))
	}
	q.source++
	return q.Tokens[q.source-1]
}

// pause notes that the client of a live request does not read, or reads again.
func (u *uma) pause(q *served, paused bool) {
	if paused != q.paused {
		q.paused = paused
		if paused {
			u.paused++
		} else {
			u.paused--
		}
	}
}

// resume continues a request whose client reads again.
func (u *uma) resume(r *request, now int64) {
	u.pause(u.byID[core.ID(r.Spec.Index)+1], false)
	r.paused, r.moved = false, now
	u.c.Handle(instant(now), core.Input{Kind: core.Resume, Req: core.ID(r.Spec.Index) + 1})
}

func (u *uma) complete(e *Engine, _, end int64) {
	for _, r := range u.done {
		u.remove(r)
		if r.handed && e.sink.Prefilled(&r.Spec, end, r.Spec.Arrival+r.ttft) {
			e.handed(r, end)
			continue
		}
		e.completed(r, end)
	}
}
