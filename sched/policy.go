package sched

import (
	"fmt"
	"slices"
	"time"
)

// policy decides what a step computes and in which order requests come. Everything else (states, sequences,
// cells, rows, who may be preempted) is the scheduler's and the same for all policies.
type policy interface {
	// lane is where a request of this class and owner queues: requests of one lane go first come first
	// served, lanes of one class share by computed tokens, and Interactive goes before Background. A policy
	// that ignores a distinction maps it away.
	lane(Class, uint32) (Class, uint32)
	// fill adds slices to the batch. It is called when at least one request can run and must then add a slice.
	fill(*builder)
	// observe learns from a step whose batch was computed.
	observe(p *Plan, took time.Duration)
	// targets are the token budgets of a step with prompt work, beside running answers and alone.
	targets() (shared, solo int)
}

func newPolicy(s *Scheduler) policy {
	switch s.cfg.Policy {
	case "stock":
		return newStock(&s.cfg)
	case "meridian":
		return newMeridian(s)
	case "pascal":
		return newPascal(s)
	case "meridian_static":
		return newMeridianStatic(s)
	}
	return newUMA(s)
}

// builder is a batch under construction. Its methods keep what no policy may break: the sum of the slices stays
// within Config.MaxBatch, every slice has its cells, and each Row is exact.
type builder struct {
	s        *Scheduler
	left     int // tokens the batch has room for
	cells    int // cells not spoken for
	runnable int // running requests that are not paused
	unserved int // of these, those without a slice so far: a cell each is kept for them
	keep     int // rows that forks leave to prompts
	load     load
}

// maxForced is the longest slice of forced tokens: the others' tokens wait for it.
const maxForced = 16

// decode adds the next token of r, which must be decoding and not paused. The batch must have room; the cell is
// there, because the scheduler made sure of one for every request that can run and prefill leaves it.
func (b *builder) decode(r *request, why Reason) {
	if b.left == 0 || b.cells == 0 {
		panic(fmt.Sprintf("sched: no room to decode request %d", r.id))
	}
	n := 1
	if left := r.left(); left > 1 { // forced tokens: as many as leave the others their rows and cells
		n = min(left, maxForced, 1+max(0, min(b.left-b.keep, b.cells)-b.unserved))
	}
	b.add(r, n, SliceDecode, why)
	if r.probe > 0 {
		b.fork(r)
	}
}

// chooseForks leaves of the forks that are asked for those that a step can have: first who was refused one longest
// ago. Thoughts in step ask at the same tokens, and in the order of the batch the last ones would never get any.
func (b *builder) chooseForks() {
	s, room := b.s, min(b.left, b.cells)-b.runnable
	s.due = s.due[:0]
	for _, r := range s.running {
		if r.probe > 0 && r.decoding() && !r.paused {
			s.due = append(s.due, r)
		}
	}
	if len(s.due) > 1 {
		slices.SortFunc(s.due, func(a, b *request) int {
			if a.refused != b.refused {
				return cmp(a.refused-1, b.refused-1) // 0 was not: behind all
			}
			return cmp(a.rank, b.rank)
		})
	}
	left := s.cfg.Forks
	if left == 0 {
		left = len(s.due)
	}
	for _, r := range s.due {
		if left == 0 || r.probe > room {
			s.skipFork(r)
			continue
		}
		room -= r.probe
		left--
	}
}

// skipFork leaves out the fork that r asked for.
func (s *Scheduler) skipFork(r *request) {
	s.count[ReasonProbeSkipped]++
	r.log.add(s.now, ReasonProbeSkipped, r.probe)
	r.probe = 0
	if r.refused == 0 {
		r.refused = s.step
	}
}

// fork adds the rows of r's probe behind its decode slice, or forgets it when others would have to make way.
func (b *builder) fork(r *request) {
	s, n, why := b.s, r.probe, ReasonProbe
	if n > min(b.left-b.keep, b.cells)-b.unserved {
		s.skipFork(r)
		return
	}
	r.probe, r.refused = 0, 0
	s.count[why]++
	r.log.add(s.now, why, n)
	p := &s.plan
	p.Tokens += n
	p.ProbeTokens += n
	p.Batch = append(p.Batch, Slice{Req: r.id, Seq: -1, Start: r.computed, N: n, Row: p.Tokens - 1, Kind: SliceProbe, Reason: why})
	s.batch = append(s.batch, nil)
	b.load.slice(SliceProbe, r.computed, n)
	b.left -= n
	b.cells -= n
}

// prefill adds up to n tokens of r's history, which must be in Prefill and not paused, and returns how many.
// why says what n stands for; the builder puts its own reason where it had to cut deeper.
func (b *builder) prefill(r *request, n int, why Reason) int {
	if left := r.left(); n >= left {
		n, why = left, ReasonPrefillRest
	}
	if n > b.left {
		n, why = b.left, ReasonPrefillBatch
	}
	if spare := b.cells - (b.unserved - 1); n > spare {
		n, why = spare, ReasonPrefillCells
	}
	if n <= 0 {
		return 0
	}
	b.add(r, n, SlicePrefill, why)
	return n
}

func (b *builder) add(r *request, n int, kind SliceKind, why Reason) {
	s := b.s
	p := &s.plan
	sl := Slice{Req: r.id, Seq: r.seq, Start: r.computed, N: n, Row: -1, Kind: kind, Reason: why}
	p.Tokens += n
	if n == r.left() {
		sl.Row = p.Tokens - 1
	}
	if kind == SliceDecode {
		p.DecodeTokens += n
	} else {
		p.PrefillTokens += n
	}
	p.Batch = append(p.Batch, sl)
	s.batch = append(s.batch, r)
	b.load.slice(kind, r.computed, n)
	s.count[why]++
	r.reason = why
	r.log.add(s.now, why, n)
	r.lastStep = s.step
	s.turn++
	r.lastTurn = s.turn
	b.left -= n
	b.cells -= n
	b.unserved--
}

// decodeAll adds one token of each decoding request, in the order they were let in. When there are more than
// limit, those whose turn was longest ago go first: each waits at most ⌈decoding/limit⌉ steps between tokens. It
// returns those who got none.
func (b *builder) decodeAll(order []*request, limit int, why Reason) (rest []*request) {
	if len(order) > limit {
		slices.SortFunc(order, func(a, b *request) int {
			switch {
			case a.lastTurn != b.lastTurn:
				return cmp(a.lastTurn, b.lastTurn)
			default:
				return cmp(a.rank, b.rank)
			}
		})
		order, rest, why = order[:limit], order[limit:], ReasonDecodeTurn
	}
	for _, r := range order {
		b.decode(r, why)
	}
	return rest
}

// split appends the running requests that can run to dec and pre, in the order they were let in.
func (b *builder) split(dec, pre []*request) (d, p []*request) {
	for _, r := range b.s.running {
		switch {
		case r.paused:
		case r.decoding():
			dec = append(dec, r)
		default:
			pre = append(pre, r)
		}
	}
	return dec, pre
}

// whyNotMore is the plan's reason when the policy itself set no limit.
func (b *builder) whyNotMore() Reason {
	switch {
	case b.unserved == 0 && b.cut() == ReasonNone:
		return ReasonServed
	case b.left == 0:
		return ReasonBatch
	}
	return ReasonCells
}

// cut is why a prompt got less than all, or ReasonNone.
func (b *builder) cut() Reason {
	for i := range b.s.plan.Batch {
		if sl := &b.s.plan.Batch[i]; sl.Row < 0 {
			return sl.Reason
		}
	}
	return ReasonNone
}

func cmp[T uint64 | int64 | Instant](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
