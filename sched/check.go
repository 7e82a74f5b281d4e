package sched

import (
	"errors"
	"fmt"

	"github.com/uma-serve/uma-serve/sched/queue"
	"github.com/uma-serve/uma-serve/sched/reason"
)

// check verifies every invariant that is stated at a field, from scratch. It costs O(requests); tests call it
// after each Step, and so does Step itself in builds with the tag `invariants`.
func (s *Scheduler) check() error {
	if s.pool.lost < 0 || s.room() < 0 {
		return fmt.Errorf("%d cells can be had, %d seem to be lost", s.pool.cells+s.pool.freed, s.pool.lost)
	}
	if owned := s.owned(); !s.cfg.Prefix && owned+s.pool.cells+s.pool.freed != s.cfg.Cells {
		return fmt.Errorf("requests own %d cells and can have %d more, the pool has %d", owned,
			s.pool.cells+s.pool.freed, s.cfg.Cells)
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
		seq := r.place.seq
		if o, taken := seqs[seq]; taken || seq < 0 || int(seq) >= s.cfg.MaxRunning || !s.seqs[seq] {
			return fmt.Errorf("request %d has sequence %d, taken by %d", r.id, seq, o)
		}
		seqs[seq] = r.id
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
		case running != (r.place.seq >= 0):
			return fmt.Errorf("request %d is in state %d with sequence %d", id, r.state, r.place.seq)
		case s.records[r.entry.Slot] != r || r.entry.Running != running:
			return fmt.Errorf("request %d in state %d is at slot %d of the queue's entries, running %v", id, r.state,
				r.entry.Slot, r.entry.Running)
		case r.entry.Promise != never && (r.generated > 0 || !r.spec.Strict):
			return fmt.Errorf("request %d with %d tokens is promised by %d", id, r.generated, r.entry.Promise)
		case r.entry.Queued != (r.state == Queued && !r.paused && r.place.deferred == reason.None):
			return fmt.Errorf("request %d is in state %d, paused %v, deferred %v, in queue %v", id, r.state, r.paused,
				r.place.deferred, r.entry.Queued)
		case r.shared < 0 || r.shared > r.computed || r.place.deferred != reason.None && r.state != Queued ||
			r.place.starting && (r.state != Prefill || r.computed > 0):
			return fmt.Errorf("request %d in state %d shares %d of %d cells, deferred %v, starting %v", id, r.state,
				r.shared, r.computed, r.place.deferred, r.place.starting)
		case s.cfg.Prefix && r.entry.Started && !r.place.ran && !r.place.starting:
			return fmt.Errorf("request %d started and did not", id)
		case r.computed < 0 || r.computed > r.history() || !running && r.computed != 0:
			return fmt.Errorf("request %d holds %d cells of %d tokens", id, r.computed, r.history())
		case r.prompt+r.growth()+r.generated > s.cfg.Cells || r.generated >= r.max:
			return fmt.Errorf("request %d has %d + %d of %d tokens in %d cells", id, r.prompt, r.generated, r.max,
				s.cfg.Cells)
		case r.thought && r.phase != Output || r.decoding() && r.state != r.phase:
			return fmt.Errorf("request %d is in state %d, phase %d, thought %v", id, r.state, r.phase, r.thought)
		case r.place.awaiting:
			return fmt.Errorf("request %d awaits a token across steps", id)
		}
	}
	return nil
}

// checkCounts verifies the queue, the counts of requests, and the limits on them.
func (s *Scheduler) checkCounts() error {
	paused, deferred, starting := 0, 0, 0
	for _, r := range s.requests {
		if r.paused {
			paused++
		}
		if r.place.deferred != reason.None {
			deferred++
		}
		if r.place.starting {
			starting++
		}
	}
	total := 0
	for class := range NumClasses {
		running, limit := s.queue.Counts(class).Running, s.cfg.Limits[class].MaxRunning
		if limit > 0 && running > limit {
			return fmt.Errorf("class %v runs %d, limit %d", class, running, limit)
		}
		total += running
	}
	switch {
	case total != len(s.running):
		return fmt.Errorf("%d requests have sequences, %d are listed as running", total, len(s.running))
	case deferred != s.deferred || starting != s.starting:
		return fmt.Errorf("%d requests are deferred, counted %d; %d start, counted %d", deferred, s.deferred, starting,
			s.starting)
	case paused != s.paused:
		return fmt.Errorf("%d requests are paused, counted %d", paused, s.paused)
	}
	return s.queue.Check(func(yield func(*queue.Entry) bool) {
		for _, r := range s.requests {
			if !yield(&r.entry) {
				return
			}
		}
	})
}

// checkPlan verifies that the plan can be carried out: batch and cells suffice and every row is exact.
func (s *Scheduler) checkPlan() error {
	p := &s.plan
	if len(p.Batch) != len(s.out.batch) || s.out.owedStep != (len(p.Batch) > 0) {
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
		sl, r := &p.Batch[i], s.out.batch[i]
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
		case sl.Req != r.id || sl.Seq != r.place.seq || sl.Start != r.computed || sl.N < 1 ||
			sl.N-sl.Guessed > r.left() || sl.Guessed < 0 ||
			sl.Guessed > 0 && (!sl.Drafted && sl.Guessed > r.guess.Offer || sl.Row < 0) ||
			sl.Guessed > 0 && s.cfg.Rereads && (len(p.Batch) > 1 || sl.N-sl.Guessed > 1) ||
			sl.Feed < 0 || sl.Feed > r.guess.Lag ||
			sl.Drafted && (sl.Feed != r.guess.Lag || sl.Feed == 0 || sl.Guessed == 0 || sl.Guessed > r.guess.Draft):
			return fmt.Errorf("slice %+v does not fit request %d: sequence %d, %d computed, %d left", *sl, r.id,
				r.place.seq, r.computed, r.left())
		case (sl.Kind == SliceDecode) != r.decoding():
			return fmt.Errorf("slice %+v has the wrong kind for state %d", *sl, r.state)
		case r.paused:
			return fmt.Errorf("slice %+v computes for a paused request", *sl)
		case sl.Reason == reason.None:
			return fmt.Errorf("slice %+v has no reason", *sl)
		}
		for _, o := range s.out.batch[:i] {
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
				prompts[r.entry.Class] += sl.N
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
