package sim

import (
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sched/slo"
	"github.com/uma-serve/uma-serve/sim/workload"
)

func (u *uma) join(e *Engine, r *request, now int64) {
	u.waiting = append(u.waiting, &r.Request)
	q := &served{}
	if n := len(u.spare); n > 0 {
		q = u.spare[n-1]
		u.spare = u.spare[:n-1]
	}
	prompt := max(1, r.Spec.Input)
	r.limit = u.cells - prompt
	if r.Spec.Budget > 0 {
		r.limit = min(r.limit, r.Spec.Budget)
	}
	*q = served{
		r: r,
		spec: core.Spec{
			Spec: sched.Spec{
				Owner: owner(r.Spec.Tenant), Prompt: prompt, MaxTokens: max(1, r.limit),
				Targets: slo.Targets{
					TargetTTFT: time.Duration(r.Spec.TargetTTFT) * time.Microsecond,
					TargetITL:  time.Duration(r.Spec.TargetITL) * time.Microsecond,
					TargetTTOT: time.Duration(r.Spec.TargetTTOT) * time.Microsecond, Strict: r.Spec.Strict,
				},
			},
			Resident: r.Spec.Resident, Speculate: u.speculate,
		},
		Request: core.Request{ID: core.ID(r.Spec.Index) + 1, Arrived: instant(r.Spec.Arrival), Tokens: q.Tokens[:0]},
	}
	q.Spec, q.Data = &q.spec, q
	if q.repeat = r.Spec.Repeat; q.repeat == 0 {
		q.repeat = u.repeat
	}
	if c := r.Spec.Class; c == "batch" || c == "background" {
		q.Class = sched.Background
	}
	q.t = thought{model: u.think, spec: &r.Spec, most: u.probeRows}
	q.t.start()
	q.Control = &q.t
	if u.hands {
		q.MaxTokens = 1
	}
	if r.Spec.Prefilled {
		u.received(q, now)
	}
	if r.Spec.Embed {
		q.Kind, q.EveryRow, q.Whole, q.MaxTokens = core.Embed, r.Spec.EveryRow, r.Spec.Whole, 1
	}
	u.byID[q.ID] = q
	u.c.Handle(instant(now), core.Input{Kind: core.Arrive, Request: &q.Request})
}

// received makes q the request of a prompt that another server has computed: its cells are there, and its first token,
// which this server computes the cells of, is out.
func (u *uma) received(q *served, now int64) {
	r := q.r
	r.tokens, r.lastEmit = 1, r.Spec.FirstToken
	r.ttft, r.ttftSet, r.hasTTFT = r.Spec.FirstToken-r.Spec.Origin, true, true
	q.given = 1
	q.Resident, q.Prompt, q.MaxTokens = q.Prompt, q.Prompt+1, max(1, r.limit-1)
	q.TargetTTFT, q.Strict = 0, false // its first server answered for these
	q.t.draw(int64(instant(now)))
	q.t.OnToken(0, nil, false, int64(instant(now)))
}

// owner returns the peer uid of a tenant: the key of fairness and of the prefix tree's namespaces.
func owner(tenant string) uint32 {
	if uid, ok := workload.UID(tenant); ok {
		return uid
	}
	h := uint32(2166136261)
	for i := range len(tenant) {
		h = (h ^ uint32(tenant[i])) * 16777619
	}
	return h
}

func (u *uma) leave(_ *Engine, r *request, now int64) {
	u.remove(r)
	q := u.byID[core.ID(r.Spec.Index)+1]
	u.forget(q)
	u.c.Handle(instant(now), core.Input{Kind: core.Cancel, Req: q.ID})
}

// forget removes a request from u. Core keeps it until its sequence is released.
func (u *uma) forget(q *served) {
	u.stores.endThought(q.ID)
	delete(u.byID, q.ID)
	u.runs.End(uint64(q.ID))
	u.pause(q, false)
	q.r = nil
	u.ended = append(u.ended, q)
}

// reuse collects the structs of requests that core has released.
func (u *uma) reuse() {
	rest := u.ended[:0]
	for _, q := range u.ended {
		if q.Ended() && q.Seq() == core.NoSeq {
			u.spare = append(u.spare, q)
		} else {
			rest = append(rest, q)
		}
	}
	clear(u.ended[len(rest):])
	u.ended = rest
}
