package sched

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/uma-serve/uma-serve/sched/cost"
	"github.com/uma-serve/uma-serve/sched/reason"
)

// policy decides what a step computes and in which order requests start. Everything else (states, sequences, cells,
// rows, preemptions) is the scheduler's and the same for all policies.
type policy interface {
	// lane returns the queue of a request of this class and owner: requests of one lane are served first come first
	// served, lanes of one class share by computed tokens, and Interactive goes before Background. A policy that
	// ignores classes or owners maps them to one.
	lane(Class, uint32) (Class, uint32)
	// fill adds slices to the batch, at least one. It is called when at least one request can run.
	fill(*batcher)
	// observe learns from a step whose batch was computed.
	observe(p *Plan, took time.Duration)
	// targets returns the token budgets of a step with prompt work, beside running answers and alone.
	targets() (shared, solo int)
}

func newPolicy(s *Scheduler) policy {
	switch s.cfg.Policy {
	case "stock":
		return newStock(&s.cfg)
	case "meridian":
		return newMeridian(s)
	case "meridian_static":
		return newMeridianStatic(s)
	}
	return newUMA(s)
}

// batcher builds a batch. Its methods keep what no policy may break: the sum of the slices is at most Config.MaxBatch,
// every slice has its cells, and each Row is exact.
type batcher struct {
	s        *Scheduler
	left     int             // tokens the batch has room for
	cells    int             // cells that requests can still have
	runnable int             // running requests that are not paused
	unserved int             // of them: requests without a slice so far; a cell is kept for each
	keep     int             // rows that forks leave to prompts
	rows     int             // logits rows of prompt tokens so far
	outputs  int             // rows of prompts whose every row has an output that the batch has room for
	prompts  [NumClasses]int // prompt tokens of each class so far
	load     cost.Load
	due      deadline // of the answers and thoughts in the batch
	waits    bool     // a prompt waits for a step with more room than this one has for its kind
}

// decode adds the next token of r, which must be decoding and not paused. The batch must have room. A cell is free,
// because preemptForCells keeps one for every request that can run and prefill leaves it.
func (b *batcher) decode(r *request, why Reason) {
	if b.left == 0 || b.cells == 0 {
		panic(fmt.Sprintf("sched: no room to decode request %d", r.id))
	}
	n := 1
	if left := r.left(); left > 1 { // forced tokens: as many as leave the others their rows and cells
		n = min(left, maxForced, 1+max(0, min(b.left-b.keep, b.cells)-b.unserved))
	}
	b.add(r, n, SliceDecode, why)
	b.due.add(b.s, r)
	if r.turns.probe > 0 {
		b.fork(r)
	}
}

// chooseForks keeps as many of the requested forks as the step can carry, and skips the others: the fork that was first
// skipped longest ago goes first. Thoughts that progress in step request forks at the same tokens; in the order of the
// batch the last ones would never get any.
func (b *batcher) chooseForks() {
	// Each running request keeps a row and a cell for its next token.
	s, room := b.s, min(b.left, b.cells)-b.runnable
	s.due = s.due[:0]
	for _, r := range s.running {
		if r.turns.probe > 0 && r.decoding() && !r.paused {
			s.due = append(s.due, r)
		}
	}
	if len(s.due) > 1 {
		slices.SortFunc(s.due, func(a, b *request) int {
			if a.turns.forkSkipped != b.turns.forkSkipped {
				return cmp.Compare(a.turns.forkSkipped-1, b.turns.forkSkipped-1) // 0, never skipped, comes last
			}
			return cmp.Compare(a.entry.Rank, b.entry.Rank)
		})
	}
	left := s.cfg.Forks
	if left == 0 {
		left = len(s.due)
	}
	for _, r := range s.due {
		if left == 0 || r.turns.probe > room {
			s.skipFork(r)
			continue
		}
		room -= r.turns.probe
		left--
	}
}

// skipFork drops the fork that r requested.
func (s *Scheduler) skipFork(r *request) {
	s.totals.count[reason.ProbeSkipped]++
	r.log.add(s.now, reason.ProbeSkipped, r.turns.probe)
	r.turns.probe = 0
	if r.turns.forkSkipped == 0 {
		r.turns.forkSkipped = s.step
	}
}

// fork adds the rows of r's probe behind its decode slice, or skips it when other requests need the room.
func (b *batcher) fork(r *request) {
	s, n, why := b.s, r.turns.probe, reason.Probe
	if n > min(b.left-b.keep, b.cells)-b.unserved {
		s.skipFork(r)
		return
	}
	r.turns.probe, r.turns.forkSkipped = 0, 0
	s.totals.count[why]++
	r.log.add(s.now, why, n)
	p := &s.plan
	p.Tokens += n
	p.ProbeTokens += n
	p.Batch = append(p.Batch, Slice{Req: r.id, Seq: -1, Start: r.computed, N: n, Row: p.Tokens - 1, Kind: SliceProbe,
		Reason: why})
	s.out.batch = append(s.out.batch, nil)
	b.load.AddRows(r.computed, n)
	b.left -= n
	b.cells -= n
}

// prefill adds up to n tokens of r's history and returns how many. r must be in Prefill and not paused. why is the
// reason for n; the batcher gives its own where it adds fewer.
func (b *batcher) prefill(r *request, n int, why Reason) int {
	if left := r.left(); n >= left {
		n, why = left, reason.PrefillRest
	}
	if stop := r.toStop(); stop > 0 && n > stop && !r.spec.Whole {
		n, why = stop, reason.PrefillSeal
	}
	if limit := b.s.cfg.Limits[r.entry.Class].StepTokens; limit > 0 && n > limit-b.prompts[r.entry.Class] {
		n, why, b.waits = limit-b.prompts[r.entry.Class], reason.PrefillClass, true
		if n <= 0 {
			return 0
		}
	}
	if n > b.left {
		n, why = b.left, reason.PrefillBatch
	}
	// Every other request without a slice keeps a cell for its next token.
	spare := b.cells - (b.unserved - 1)
	if n > spare {
		n, why = spare, reason.PrefillCells
	}
	if spare := maxPromptRows - b.rows; r.spec.PromptRows && n > spare {
		n, why = spare, reason.PrefillRows
	}
	if r.spec.EveryRow && n > b.outputs {
		n, why, b.waits = b.outputs, reason.PrefillEmbed, true
	}
	if left := r.left(); r.spec.Whole && n < left {
		// It does not fit into what the policy allows. The first prompt of a step is computed nevertheless, so that
		// each gets its turn.
		if b.s.plan.PrefillTokens > 0 || left > min(b.left, spare) || r.spec.EveryRow && left > b.outputs {
			b.waits = b.waits || left <= spare
			return 0
		}
		n, why = left, reason.PrefillWhole
	}
	if block := r.spec.cutBlock(r.computed, n); block != n {
		n, why = block, reason.PrefillImage
		if n > min(b.left, spare) {
			b.waits = b.waits || n <= spare
			return 0
		}
	}
	if n <= 0 {
		return 0
	}
	if r.spec.PromptRows {
		b.rows += n
	}
	b.add(r, n, SlicePrefill, why)
	if r.spec.EveryRow {
		b.outputs -= n
	}
	return n
}

func (b *batcher) add(r *request, n int, kind SliceKind, why Reason) {
	s := b.s
	p := &s.plan
	sl := Slice{Req: r.id, Seq: r.place.seq, Start: r.computed, N: n, Row: -1, Kind: kind, Reason: why}
	p.Tokens += n
	if n == r.left() {
		sl.Row = p.Tokens - 1
	}
	if kind == SliceDecode {
		p.DecodeTokens += n
	} else {
		p.PrefillTokens += n
		b.prompts[r.entry.Class] += n
	}
	p.Batch = append(p.Batch, sl)
	s.out.batch = append(s.out.batch, r)
	addSlice(&b.load, kind, r.computed, n)
	s.totals.count[why]++
	r.turns.reason = why
	r.log.add(s.now, why, n)
	r.turns.lastStep = s.step
	s.turn++
	r.turns.lastTurn = s.turn
	b.left -= n
	b.cells -= n
	b.unserved--
}

// decodeAll adds one token of each decoding request, in the order in which they started. When there are more than
// limit, those whose turn was longest ago go first: each waits at most ⌈decoding/limit⌉ steps between tokens. It
// returns the requests that got none.
func (b *batcher) decodeAll(order []*request, limit int, why Reason) (rest []*request) {
	if len(order) > limit {
		slices.SortFunc(order, func(a, b *request) int {
			switch {
			case a.turns.lastTurn != b.turns.lastTurn:
				return cmp.Compare(a.turns.lastTurn, b.turns.lastTurn)
			default:
				return cmp.Compare(a.entry.Rank, b.entry.Rank)
			}
		})
		order, rest, why = order[:limit], order[limit:], reason.DecodeTurn
	}
	for _, r := range order {
		b.decode(r, why)
	}
	return rest
}

// split appends the running requests that are not paused to dec and pre, in the order in which they started.
func (b *batcher) split(dec, pre []*request) (d, p []*request) {
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

// reserve keeps rows of the step for the prompts in pre: no more than they can use.
func (b *batcher) reserve(pre []*request) {
	least := b.s.cfg.leastPrefill()
	for _, r := range pre {
		if b.keep += r.left(); b.keep >= least {
			b.keep = least
			return
		}
	}
}

// comparePrompts orders prompts by class, then those before their first token first, then promised ones by deadline.
func comparePrompts(a, b *request) int {
	switch {
	case a.entry.Class != b.entry.Class:
		return int(a.entry.Class) - int(b.entry.Class)
	case (a.generated > 0) != (b.generated > 0):
		if a.generated > 0 {
			return 1
		}
		return -1
	}
	return cmp.Compare(a.entry.Promise, b.entry.Promise)
}

// whyNotMore returns the plan's reason when the policy itself set no limit.
func (b *batcher) whyNotMore() Reason {
	switch {
	case b.unserved == 0 && b.cut() == reason.None:
		return reason.Served
	case b.left == 0:
		return reason.Batch
	case b.waits:
		return reason.Budget
	}
	return reason.Cells
}

// cut returns why a prompt got less than all, or reason.None.
func (b *batcher) cut() Reason {
	for i := range b.s.plan.Batch {
		if sl := &b.s.plan.Batch[i]; sl.Row < 0 {
			return sl.Reason
		}
	}
	return reason.None
}

// addSlice adds n tokens of a slice from position start on to l.
func addSlice(l *cost.Load, kind SliceKind, start, n int) {
	if kind == SlicePrefill {
		l.AddPrompt(start, n)
	} else {
		l.AddRows(start, n)
	}
}
