package blis

import (
	"fmt"
	"slices"

	"github.com/uma-serve/uma-serve/internal/invariants"
	"github.com/uma-serve/uma-serve/sim"
	"github.com/uma-serve/uma-serve/sim/blis/kv"
)

// rules bound a server. They must have been validated.
type rules struct {
	maxRunning  int // requests that run at once
	maxTokens   int // of one step
	longPrefill int // most prompt tokens of one request in a step; 0 = no limit
	maxModelLen int // tokens of a request; 0 = no limit
	scheduler   string
	priority    string
	cache       kv.Config
}

// server is the scheduling state of one BLIS server: its queue, its batch and its KV cache. It is the sim.Batcher of
// batch formation vllm, and not safe for concurrent use.
type server struct {
	queue   queue
	running []*request // in the order of admission
	kv      *kv.Cache
	seqs    []*kv.Seq // by Request.Slot

	admitted, preempted func(*request) // see sim.NewBatcher

	cfg  rules
	left []sim.Left
}

func newServer(cfg rules, admitted, preempted func(*request)) *server {
	return &server{cfg: cfg, kv: kv.New(cfg.cache), queue: queue{order: order(cfg.scheduler, cfg.priority)},
		admitted: admitted, preempted: preempted}
}

// Join adds a request that passed the guards.
func (s *server) Join(r *request) {
	s.own(r)
	s.queue.join(r)
}

func (s *server) Waiting() int          { return s.queue.n }
func (s *server) Waiter(i int) *request { return s.queue.at(i) }
func (s *server) Running() []*request   { return s.running }
func (s *server) Used() int             { return s.kv.Used() }
func (s *server) Transfer() int64       { return s.kv.TakeTransfer() }

// Stats returns the cache's counters.
func (s *server) Stats() (stats sim.CacheStats, hitRate, thrashRate float64) {
	return s.kv.Stats(), s.kv.HitRate(), s.kv.ThrashRate()
}

// Check verifies the order of the queue, and INV-4 by a walk over all blocks.
func (s *server) Check() error {
	if err := s.kv.Check(s.seqs); err != nil {
		return err
	}
	return s.queue.check()
}

// Stepped writes the running requests' full blocks through to a host tier that mirrors them.
func (s *server) Stepped() {
	for _, r := range s.running {
		s.kv.MirrorBlocks(s.seq(r))
	}
}

// Form grants the running requests their next chunk or token, then admits requests from the queue while the token
// budget lasts.
//
// What it optimises: throughput with a bounded number of tokens a step. What it gives up: a long prompt still fills
// every step up to the budget, and the request that was admitted last pays for a full cache.
func (s *server) Form(now int64) {
	s.kv.SetClock(now)
	for _, r := range s.running {
		r.NewTokens = 0
	}
	if budget, preempted := s.grant(s.cfg.maxTokens); !preempted {
		s.admit(budget)
	}
}

// grant serves the running requests, in order of admission, and returns the rest of the budget. The length is read anew
// each time: a preemption takes requests from the tail.
func (s *server) grant(budget int) (left int, preempted bool) {
	limit := s.cfg.maxModelLen
	for i := 0; i < len(s.running) && budget > 0; i++ {
		r := s.running[i]
		n := r.Spec.Input
		k := 1
		if r.Progress < n {
			k = s.chunk(n-r.Progress, r.Progress, budget)
		} else if r.Spec.Output == 0 || limit > 0 && r.Progress+1 > limit-1 {
			continue
		} else if s.seq(r).Room(s.cfg.cache.BlockTokens) {
			r.NewTokens, budget = 1, budget-1
			r.Computed++
			continue
		}
		ok, evicted := s.makeRoom(r, k)
		preempted = preempted || evicted
		if !ok {
			break
		}
		r.NewTokens = k
		r.Computed += k
		budget -= k
	}
	if invariants.Enabled {
		s.checkGranted(budget)
	}
	return budget, preempted
}

// admit takes requests from the head of the queue; the first that does not fit stops it.
func (s *server) admit(budget int) {
	for len(s.running) < s.cfg.maxRunning && s.queue.n > 0 && budget > 0 {
		r := s.queue.at(0)
		n := r.Spec.Input
		cached := s.kv.Lookup(&s.seq(r).ID, n)
		start := len(cached) * s.cfg.cache.BlockTokens
		if r.Moved() {
			if !s.place(r, start, cached) {
				return
			}
			budget--
		} else {
			k := s.chunk(n-start, start, budget)
			if !s.kv.Allocate(s.seq(r), n, r.Prefilling(), start, start+k, cached) {
				return
			}
			r.NewTokens, r.Computed = k, start+k
			budget -= k
		}
		s.queue.popFirst()
		s.running = append(s.running, r)
		s.admitted(r)
	}
}

// place makes room for a request whose prompt came computed; it decodes at once. The first start tokens are cached.
func (s *server) place(r *request, start int, cached []int32) bool {
	n := r.Spec.Input
	if !s.kv.Allocate(s.seq(r), n, true, start, n, cached) {
		return false
	}
	if !s.kv.Allocate(s.seq(r), n, false, n, n+1, nil) {
		s.kv.Release(s.seq(r))
		return false
	}
	r.Progress, r.Computed, r.NewTokens = n, n+1, 1
	return true
}

// chunk returns the number of prompt tokens that a step takes, of the left ones from position from on.
func (s *server) chunk(left, from, budget int) int {
	k := left
	if t := s.cfg.longPrefill; t > 0 && k > t {
		k = t
	}
	k = min(k, budget)
	if limit := s.cfg.maxModelLen; limit > 0 {
		k = min(k, max(limit-1-from, 0))
	}
	return k
}

// makeRoom allocates the next k tokens of a running request, preempting from the batch's tail until they fit. It fails
// when the request had to preempt itself.
func (s *server) makeRoom(r *request, k int) (ok, evicted bool) {
	for !s.kv.Allocate(s.seq(r), r.Spec.Input, r.Prefilling(), r.Progress, r.Progress+k, nil) {
		last := len(s.running) - 1
		if last < 0 {
			return false, evicted
		}
		v := s.running[last]
		s.running[last] = nil
		s.running = s.running[:last]
		evicted = true
		s.preempt(v)
		if v == r {
			return false, evicted
		}
	}
	return true, evicted
}

// preempt puts a request back into the queue with nothing computed. It keeps the hashes of its blocks findable.
func (s *server) preempt(v *request) {
	s.preempted(v)
	forget(v)
	s.kv.Preempt(s.seq(v), v.Spec.Input)
	s.queue.rejoin(v)
}

// Finish takes the requests that are done out of the batch, in its order. handOver is asked about each request whose
// prompt has just been computed and which is not done; true takes the request away. The result is valid until the next
// call.
func (s *server) Finish(handOver func(*request) bool) []sim.Left {
	limit := s.cfg.maxModelLen
	s.left = s.left[:0]
	keep := s.running[:0]
	for _, r := range s.running {
		l := sim.Left{Request: r}
		switch n := r.Spec.Input; {
		case done(r):
			l.Unplaced = r.Spec.Output > 0 && r.Progress < n+r.Spec.Output &&
				!s.kv.Allocate(s.seq(r), n, false, r.Progress, r.Progress+1, nil)
		case limit > 0 && r.Progress >= limit-1:
			l.Capped = true
		case handOver != nil && r.Progress == n && handOver(r):
			l.Handed = true
		default:
			keep = append(keep, r)
			continue
		}
		s.kv.Release(s.seq(r))
		s.left = append(s.left, l)
	}
	clear(s.running[len(keep):])
	s.running = keep
	return s.left
}

// Remove takes a request out, wherever it is.
func (s *server) Remove(r *request) {
	s.kv.Release(s.seq(r))
	if i := slices.Index(s.running, r); i >= 0 {
		s.running = slices.Delete(s.running, i, i+1)
	} else {
		s.queue.remove(r)
	}
}

// checkGranted verifies INV-12: a running request that decodes has got a token, unless the budget or the length limit
// stopped it.
func (s *server) checkGranted(budget int) {
	for _, r := range s.running {
		capped := s.cfg.maxModelLen > 0 && r.Progress+1 > s.cfg.maxModelLen-1
		if !r.Prefilling() && r.NewTokens == 0 && budget > 0 && !capped && r.Spec.Output > 0 {
			panic(fmt.Sprintf("blis: INV-12: %s decodes, got no token, and %d tokens of the budget are left",
				r.Spec.ID(), budget))
		}
	}
}
