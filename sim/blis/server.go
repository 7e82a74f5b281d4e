package blis

import (
	"fmt"
	"slices"

	"github.com/uma-serve/uma-serve/internal/invariants"
	"github.com/uma-serve/uma-serve/sim/blis/kv"
)

// Config bounds a Server. It must have been validated.
type Config struct {
	MaxRunning  int // requests that run at once
	MaxTokens   int // of one step
	LongPrefill int // most prompt tokens of one request in a step; 0 = no limit
	MaxModelLen int // tokens of a request; 0 = no limit
	Scheduler   string
	Priority    string
	Cache       kv.Config
}

// Server is the scheduling state of one BLIS server: its queue, its batch and its KV cache. It is not safe for
// concurrent use.
type Server struct {
	Queue   Queue
	Running []*Request // in the order of admission
	KV      *kv.Cache

	// Admitted is called when a request leaves the queue for the batch. Preempted is called when a running request
	// loses its cache, after it has left Running and before it forgets its Progress and rejoins the queue.
	Admitted, Preempted func(*Request)

	cfg  Config
	left []Left
}

// New makes an idle server.
func New(cfg Config) *Server {
	return &Server{cfg: cfg, KV: kv.New(cfg.Cache), Queue: Queue{order: order(cfg.Scheduler, cfg.Priority)}}
}

// Form grants the running requests their next chunk or token, then admits requests from the queue while the token
// budget lasts.
//
// What it optimises: throughput with a bounded number of tokens a step. What it gives up: a long prompt still fills
// every step up to the budget, and the request that was admitted last pays for a full cache.
func (s *Server) Form() {
	for _, r := range s.Running {
		r.NewTokens = 0
	}
	if budget, preempted := s.grant(s.cfg.MaxTokens); !preempted {
		s.admit(budget)
	}
}

// grant serves the running requests, in order of admission, and returns what is left of the budget. The length is read
// anew each time: a preemption takes requests from the tail.
func (s *Server) grant(budget int) (left int, preempted bool) {
	limit := s.cfg.MaxModelLen
	for i := 0; i < len(s.Running) && budget > 0; i++ {
		r := s.Running[i]
		n := r.Spec.Input
		k := 1
		if r.Progress < n {
			k = s.chunk(n-r.Progress, r.Progress, budget)
		} else if r.Spec.Output == 0 || limit > 0 && r.Progress+1 > limit-1 {
			continue
		} else if r.Seq.Room(s.cfg.Cache.BlockTokens) {
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
func (s *Server) admit(budget int) {
	for len(s.Running) < s.cfg.MaxRunning && s.Queue.Len() > 0 && budget > 0 {
		r := s.Queue.First()
		n := r.Spec.Input
		cached := s.KV.Lookup(&r.Seq.ID, n)
		start := len(cached) * s.cfg.Cache.BlockTokens
		if r.Moved() {
			if !s.place(r, start, cached) {
				return
			}
			budget--
		} else {
			k := s.chunk(n-start, start, budget)
			if !s.KV.Allocate(&r.Seq, n, r.Prefilling(), start, start+k, cached) {
				return
			}
			r.NewTokens, r.Computed = k, start+k
			budget -= k
		}
		s.Queue.popFirst()
		s.Running = append(s.Running, r)
		s.Admitted(r)
	}
}

// place makes room for a request whose prompt came computed; it decodes at once. The first start tokens are cached.
func (s *Server) place(r *Request, start int, cached []int32) bool {
	n := r.Spec.Input
	if !s.KV.Allocate(&r.Seq, n, true, start, n, cached) {
		return false
	}
	if !s.KV.Allocate(&r.Seq, n, false, n, n+1, nil) {
		s.KV.Release(&r.Seq)
		return false
	}
	r.Progress, r.Computed, r.NewTokens = n, n+1, 1
	return true
}

// chunk returns the number of prompt tokens that a step takes, of the left ones from position from on.
func (s *Server) chunk(left, from, budget int) int {
	k := left
	if t := s.cfg.LongPrefill; t > 0 && k > t {
		k = t
	}
	k = min(k, budget)
	if limit := s.cfg.MaxModelLen; limit > 0 {
		k = min(k, max(limit-1-from, 0))
	}
	return k
}

// makeRoom allocates the next k tokens of a running request, preempting from the batch's tail until they fit. It fails
// when the request had to preempt itself.
func (s *Server) makeRoom(r *Request, k int) (ok, evicted bool) {
	for !s.KV.Allocate(&r.Seq, r.Spec.Input, r.Prefilling(), r.Progress, r.Progress+k, nil) {
		last := len(s.Running) - 1
		if last < 0 {
			return false, evicted
		}
		v := s.Running[last]
		s.Running[last] = nil
		s.Running = s.Running[:last]
		evicted = true
		s.preempt(v)
		if v == r {
			return false, evicted
		}
	}
	return true, evicted
}

// preempt puts a request back into the queue with nothing computed. It keeps the hashes of its blocks findable.
func (s *Server) preempt(v *Request) {
	s.Preempted(v)
	v.forget()
	s.KV.Preempt(&v.Seq, v.Spec.Input)
	s.Queue.Rejoin(v)
}

// Left is a request that left the batch in Finish and owns nothing any more.
type Left struct {
	*Request
	Capped   bool // MaxModelLen ended it
	Handed   bool // another server continues it
	Unplaced bool // there was no block for its last token
}

// Finish takes the requests that are done out of the batch, in its order. handOver is asked about each request whose
// prompt has just been computed and which is not done; true takes the request away. The result is valid until the next
// call.
func (s *Server) Finish(handOver func(*Request) bool) []Left {
	limit := s.cfg.MaxModelLen
	s.left = s.left[:0]
	keep := s.Running[:0]
	for _, r := range s.Running {
		l := Left{Request: r}
		switch n := r.Spec.Input; {
		case r.done():
			l.Unplaced = r.Spec.Output > 0 && r.Progress < n+r.Spec.Output &&
				!s.KV.Allocate(&r.Seq, n, false, r.Progress, r.Progress+1, nil)
		case limit > 0 && r.Progress >= limit-1:
			l.Capped = true
		case handOver != nil && r.Progress == n && handOver(r):
			l.Handed = true
		default:
			keep = append(keep, r)
			continue
		}
		s.KV.Release(&r.Seq)
		s.left = append(s.left, l)
	}
	clear(s.Running[len(keep):])
	s.Running = keep
	return s.left
}

// Remove takes a request out, wherever it is.
func (s *Server) Remove(r *Request) {
	s.KV.Release(&r.Seq)
	if i := slices.Index(s.Running, r); i >= 0 {
		s.Running = slices.Delete(s.Running, i, i+1)
	} else {
		s.Queue.Remove(r)
	}
}

// checkGranted verifies INV-12: a running request that decodes has got a token, unless the budget or the length limit
// stopped it.
func (s *Server) checkGranted(budget int) {
	for _, r := range s.Running {
		capped := s.cfg.MaxModelLen > 0 && r.Progress+1 > s.cfg.MaxModelLen-1
		if !r.Prefilling() && r.NewTokens == 0 && budget > 0 && !capped && r.Spec.Output > 0 {
			panic(fmt.Sprintf("blis: INV-12: %s decodes, got no token, and %d tokens of the budget are left",
				r.Spec.ID(), budget))
		}
	}
}
