package blis

import (
	"github.com/uma-serve/uma-serve/sim/blis/kv"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// Request is one request in a Server.
//
// With n prompt and m output tokens: prefill while Progress < n, decode after. The first output token comes with the
// last prompt token, so there are max(m-1, 0) decode steps and the request is complete at Progress = n + max(m,1) - 1.
type Request struct {
	Spec workload.Request
	Slot int32 // the caller's
	Seq  kv.Seq

	Progress  int  // prompt tokens computed + decode tokens produced
	NewTokens int  // granted in this step
	Computed  int  // tokens with room in the cache
	HighWater int  // most Progress it ever had: preemption resets Progress, not this
	LostKV    bool // it was preempted: a moved request has to compute its prompt after all
}

// Prefilling reports whether part of the prompt is still to be computed.
func (r *Request) Prefilling() bool { return r.Progress < r.Spec.Input }

// Moved reports whether another server computed its prompt and its cache came along (prefill-decode disaggregation).
func (r *Request) Moved() bool { return r.Spec.Prefilled && !r.LostKV }

// done reports whether the last token is out.
func (r *Request) done() bool { return r.Progress >= r.Spec.Input+max(r.Spec.Output, 1)-1 }

// Compute gives the request the tokens that Form granted. decoded: one of them is a decode step's; further: it never
// got this far before.
func (r *Request) Compute() (decoded, further bool) {
	if r.Prefilling() {
		r.Progress = r.Computed
	} else if r.NewTokens > 0 {
		r.Progress++
		decoded = true
	}
	if r.Progress > r.HighWater {
		r.HighWater = r.Progress
		further = true
	}
	return decoded, further
}

// forget puts a preempted request back to the start of its prompt.
func (r *Request) forget() {
	r.Progress, r.Computed, r.NewTokens = 0, 0, 0
	r.LostKV = true
}
