package sched

import (
	"errors"
	"fmt"

	"github.com/uma-serve/uma-serve/sched/reason"
)

// check verifies every invariant that is stated at a field, from scratch. It costs O(requests); tests call it
// after each Step, and so does Step itself in builds with the tag `invariants`.
func (s *Scheduler) check() error {
	if s.lost < 0 || s.room() < 0 {
		return fmt.Errorf("%d cells can be had, %d seem to be lost", s.cells+s.freed, s.lost)
	}
	if owned := s.owned(); !s.cfg.Prefix && owned+s.cells+s.freed != s.cfg.Cells {
		return fmt.Errorf("requests own %d cells and can have %d more, the pool has %d", owned, s.cells+s.freed,
			s.cfg.Cells)
	}
	for _, check := range []func() error{s.checkRunning, s.checkRequests, s.checkCounts, s.checkPlan} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// checkRunning verifies the running requests: each has a sequence that no other has, and something to compute.
func (s *Scheduler) checkRunning() error {
	seqs := make(map[int32]ReqID)
	for _, r := range s.running {
		if s.requests[r.id] != r {
			return fmt.Errorf("running request %d is not live", r.id)
		}
		if o, taken := seqs[r.seq]; taken || r.seq < 0 || int(r.seq) >= s.cfg.MaxRunning || !s.seqs[r.seq] {
			return fmt.Errorf("request %d has sequence %d, taken by %d", r.id, r.seq, o)
		}
		seqs[r.seq] = r.id
		if r.left() < 1 {
			return fmt.Errorf("request %d runs with nothing left to compute", r.id)
		}
	}
	return nil
}

// checkRequests verifies the fields of each request against each other.
func (s *Scheduler) checkRequests() error {
	for id, r := range s.requests {
		running := r.state == Prefill || r.decoding()
		switch {
		case r.id != id:
			return fmt.Errorf("record of request %d says %d", id, r.id)
		case running != (r.seq >= 0):
			return fmt.Errorf("request %d is in state %d with sequence %d", id, r.state, r.seq)
		case r.queued != (r.state == Queued && !r.paused && r.deferred == reason.None):
			return fmt.Errorf("request %d is in state %d, paused %v, deferred %v, in queue %v", id, r.state, r.paused,
				r.deferred, r.queued)
		case r.shared < 0 || r.shared > r.computed || r.deferred != reason.None && r.state != Queued ||
			r.starting && (r.state != Prefill || r.computed > 0):
			return fmt.Errorf("request %d in state %d shares %d of %d cells, deferred %v, starting %v", id, r.state,
				r.shared, r.computed, r.deferred, r.starting)
		case s.cfg.Prefix && r.started && !r.ran && !r.starting:
			return fmt.Errorf("request %d started and did not", id)
		case r.computed < 0 || r.computed > r.history() || !running && r.computed != 0:
			return fmt.Errorf("request %d holds %d cells of %d tokens", id, r.computed, r.history())
		case r.prompt+r.growth()+r.generated > s.cfg.Cells || r.generated >= r.max:
			return fmt.Errorf("request %d has %d + %d of %d tokens in %d cells", id, r.prompt, r.generated, r.max,
				s.cfg.Cells)
		case r.thought && r.phase != Output || r.decoding() && r.state != r.phase:
			return fmt.Errorf("request %d is in state %d, phase %d, thought %v", id, r.state, r.phase, r.thought)
		case r.awaiting:
			return fmt.Errorf("request %d awaits a token across steps", id)
		}
	}
	return nil
}

// checkCounts verifies the counts of requests, classes and flows, and the limits on them.
func (s *Scheduler) checkCounts() error {
	byClass := [NumClasses]classState{}
	paused, deferred, starting := 0, 0, 0
	pending := map[*flow]int64{}
	members := map[*flow]int{}
	for _, r := range s.requests {
		c := &byClass[r.flow.class]
		c.members++
		members[r.flow]++
		if r.state == Prefill || r.decoding() {
			c.running++
			pending[r.flow] += r.owed()
		}
		if r.queued {
			c.queued++
		}
		if !r.started {
			c.fresh++
		}
		if r.paused {
			paused++
		}
		if r.deferred != reason.None {
			deferred++
		}
		if r.starting {
			starting++
		}
	}
	total := 0
	for class := range NumClasses {
		if err := s.checkClass(class, byClass[class]); err != nil {
			return err
		}
		total += s.byClass[class].running
	}
	switch fresh := byClass[Interactive].fresh + byClass[Background].fresh; {
	case total != len(s.running):
		return fmt.Errorf("%d requests have sequences, %d are listed as running", total, len(s.running))
	case fresh > s.cfg.MaxQueue:
		return fmt.Errorf("%d requests wait, limit %d", fresh, s.cfg.MaxQueue)
	case deferred != s.deferred || starting != s.starting:
		return fmt.Errorf("%d requests are deferred, counted %d; %d start, counted %d", deferred, s.deferred, starting,
			s.starting)
	case paused != s.paused:
		return fmt.Errorf("%d requests are paused, counted %d", paused, s.paused)
	}
	for k, f := range s.flowOf {
		if f.flowKey != k || f.members != members[f] || f.pending != pending[f] {
			return fmt.Errorf("flow %+v: %d members, %d pending; requests say %d, %d", k, f.members, f.pending,
				members[f], pending[f])
		}
	}
	return nil
}

// checkClass verifies a class's counts against those of the requests, its limits, and its queue.
func (s *Scheduler) checkClass(class Class, want classState) error {
	got, limits := s.byClass[class], s.cfg.Limits[class]
	switch {
	case got.queued != want.queued || got.fresh != want.fresh || got.running != want.running ||
		got.members != want.members:
		return fmt.Errorf("class %d counts %+v, requests say %+v", class, got, want)
	case limits.MaxRunning > 0 && got.running > limits.MaxRunning:
		return fmt.Errorf("class %d runs %d, limit %d", class, got.running, limits.MaxRunning)
	case limits.MaxQueue > 0 && got.fresh > limits.MaxQueue:
		return fmt.Errorf("class %d queues %d, limit %d", class, got.fresh, limits.MaxQueue)
	}
	return s.checkHeap(class)
}

// checkHeap verifies the order of a class's waiting flows and their queues.
func (s *Scheduler) checkHeap(class Class) error {
	h, n := s.flows[class], 0
	for i, f := range h {
		if f.pos != i || f.head == nil {
			return fmt.Errorf("flow %+v lies at %d of its heap and says %d", f.flowKey, i, f.pos)
		}
		if p := (i - 1) / 2; i > 0 && h.less(f, h[p]) {
			return fmt.Errorf("flow %+v lies below one that goes after it", f.flowKey)
		}
		fresh := false
		for r, prev := f.head, (*request)(nil); r != nil; prev, r = r, r.next {
			n++
			if !r.queued || r.flow != f || r.prev != prev || r.next == nil && f.tail != r {
				return fmt.Errorf("queue of flow %+v is broken at request %d", f.flowKey, r.id)
			}
			if fresh && r.started {
				return fmt.Errorf("preempted request %d waits behind a new one", r.id)
			}
			if prev != nil && goesBefore(r, prev) {
				return fmt.Errorf("request %d waits behind %d, which came or is due later", r.id, prev.id)
			}
			fresh = fresh || !r.started
		}
	}
	if n != s.byClass[class].queued {
		return fmt.Errorf("class %d: %d requests in queues, counted %d", class, n, s.byClass[class].queued)
	}
	return nil
}

// checkPlan verifies that the plan can be carried out: batch and cells suffice and every row is exact.
func (s *Scheduler) checkPlan() error {
	p := &s.plan
	if len(p.Batch) != len(s.batch) || s.owedStep != (len(p.Batch) > 0) {
		return errors.New("batch and its requests differ")
	}
	if p.WakeAt != 0 && (p.WakeAt <= s.now || len(p.Batch) > 0) {
		return fmt.Errorf("wake at %d, it is %d and %d slices are planned: the caller would turn in place", p.WakeAt,
			s.now, len(p.Batch))
	}
	tokens, prefill, decode := 0, 0, 0
	if p.Again && len(p.Batch) > 0 || !p.Again && len(p.Start) > 0 || len(p.Start) != s.starting {
		return fmt.Errorf("%d starts, %d are known, again %v, %d slices", len(p.Start), s.starting, p.Again,
			len(p.Batch))
	}
	probe, forks, guessed := 0, 0, 0
	var prompts [NumClasses]int
	for i := range p.Batch {
		sl, r := &p.Batch[i], s.batch[i]
		if sl.Kind == SliceProbe {
			tokens += sl.N
			probe += sl.N
			forks++
			if i == 0 || r != nil || sl.Seq != -1 || sl.N < 1 || sl.Row != tokens-1 || p.Batch[i-1].Req != sl.Req ||
				p.Batch[i-1].Kind != SliceDecode || p.Batch[i-1].Start != sl.Start {
				return fmt.Errorf("fork %+v does not fit", *sl)
			}
			continue
		}
		switch {
		case sl.Req != r.id || sl.Seq != r.seq || sl.Start != r.computed || sl.N < 1 || sl.N-sl.Guessed > r.left() ||
			sl.Guessed < 0 || sl.Guessed > 0 && (!sl.Drafted && sl.Guessed > r.guess.Offer || sl.Row < 0) ||
			sl.Guessed > 0 && s.cfg.Rereads && (len(p.Batch) > 1 || sl.N-sl.Guessed > 1) ||
			sl.Feed < 0 || sl.Feed > r.guess.Lag ||
			sl.Drafted && (sl.Feed != r.guess.Lag || sl.Feed == 0 || sl.Guessed == 0 || sl.Guessed > r.guess.Draft):
			return fmt.Errorf("slice %+v does not fit request %d: sequence %d, %d computed, %d left", *sl, r.id, r.seq,
				r.computed, r.left())
		case (sl.Kind == SliceDecode) != r.decoding():
			return fmt.Errorf("slice %+v has the wrong kind for state %d", *sl, r.state)
		case r.paused:
			return fmt.Errorf("slice %+v computes for a paused request", *sl)
		case sl.Reason == reason.None:
			return fmt.Errorf("slice %+v has no reason", *sl)
		}
		for _, o := range s.batch[:i] {
			if o == r {
				return fmt.Errorf("request %d has two slices", r.id)
			}
		}
		tokens += sl.N
		guessed += sl.Guessed
		row := -1
		if sl.N-sl.Guessed == r.left() {
			row = tokens - 1 - sl.Guessed
		}
		if sl.Row != row {
			return fmt.Errorf("slice %+v: its row is %d", *sl, row)
		}
		if sl.Kind == SliceDecode {
			decode += sl.N - sl.Guessed
		} else {
			prefill += sl.N
			if sl.Reason != reason.PrefillWhole && sl.Reason != reason.PrefillImage {
				prompts[r.flow.class] += sl.N
			}
		}
	}
	for class, n := range prompts {
		if limit := s.cfg.Limits[class].StepTokens; limit > 0 && n > limit {
			return fmt.Errorf("class %d has %d prompt tokens in a step, limit %d", class, n, limit)
		}
	}
	switch {
	case tokens != p.Tokens || prefill != p.PrefillTokens || decode != p.DecodeTokens || probe != p.ProbeTokens ||
		guessed != p.GuessedTokens:
		return fmt.Errorf("plan counts %d = %d + %d tokens, slices have %d = %d + %d", p.Tokens, p.PrefillTokens,
			p.DecodeTokens, tokens, prefill, decode)
	case forks > s.cfg.Forks && s.cfg.Forks > 0:
		return fmt.Errorf("%d forks, %d are allowed", forks, s.cfg.Forks)
	case tokens > p.Budget || p.Budget > s.cfg.MaxBatch:
		return fmt.Errorf("%d tokens, budget %d, batch limit %d", tokens, p.Budget, s.cfg.MaxBatch)
	case tokens > s.room():
		return fmt.Errorf("%d tokens for %d free cells", tokens, s.room())
	case p.Reason == reason.None:
		return errors.New("plan has no reason")
	}
	return nil
}
