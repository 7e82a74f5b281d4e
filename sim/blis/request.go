package blis

import (
	"github.com/uma-serve/uma-serve/sim"
	"github.com/uma-serve/uma-serve/sim/blis/kv"
)

// request is one request in a server. Slot is its place in server.seqs.
type request = sim.Request

// done reports whether the last token is out.
func done(r *request) bool { return r.Progress >= r.Spec.Input+max(r.Spec.Output, 1)-1 }

// forget puts a preempted request back to the start of its prompt.
func forget(r *request) {
	r.Progress, r.Computed, r.NewTokens = 0, 0, 0
	r.LostKV = true
}

// seq returns the blocks of r.
func (s *server) seq(r *request) *kv.Seq { return s.seqs[r.Slot] }

// own makes an empty list of blocks for r, which joins.
func (s *server) own(r *request) {
	for int(r.Slot) >= len(s.seqs) {
		s.seqs = append(s.seqs, &kv.Seq{})
	}
	s.seqs[r.Slot].Reset()
	s.seqs[r.Slot].ID = r.Identity
}
