// Package slo holds the targets of a request, its service level objectives, from the wire to the scheduler: the field
// "slo" of a request is Targets, and so is the part of sched.Spec that the scheduler reads them from.
//
// A target comes from the request's "slo" or, for TTFT, from the header X-Uma-Deadline, which routers hand on
// (daemon/http). Without one, interactive requests have the server's ITL target (--itl-target-ms,
// sched.Config.ITLTarget) and no other; background requests have none. Next returns the target of a token. What the
// scheduler does for a target depends on its policy: meridian sizes steps by it, uma holds prompts behind a late token
// (sched.Config.Guard where no target is given), stock ignores it.
package slo

import "time"

// Targets are the latencies that a client asks for; 0 = none. A target is added here and in Times; both recordings have
// it by its tags (see sched.Spec). Package sched has what they do.
type Targets struct {
	// TargetTTFT is the time to the first token; it orders the prompts of one owner.
	TargetTTFT time.Duration `json:"ttft,omitempty" words:"ttft"`
	// TargetITL is the time between two tokens; 0 = the server's.
	TargetITL time.Duration `json:"itl,omitempty" words:"itl"`
	// TargetTTOT is the time from the end of the thought to the first token of the answer.
	TargetTTOT time.Duration `json:"ttot,omitempty" words:"ttot"`
	// Strict: reject the request at once unless all its targets will be met (sched/promise.go).
	Strict bool `json:"strict,omitempty" words:"strict"`
}

// Next returns the target of a request's next token after its newest one; 0 = none. server is the ITL target of
// interactive requests without their own. closing: the next token is the first of the answer behind a thought, whose
// target may be tighter.
func (t *Targets) Next(server time.Duration, interactive, closing bool) time.Duration {
	target := t.TargetITL
	if target == 0 && interactive {
		target = server
	}
	if closing && t.TargetTTOT > 0 && (target == 0 || t.TargetTTOT < target) {
		target = t.TargetTTOT
	}
	return target
}

// Time is a target's name in "slo", where it is a number of milliseconds, and its place.
type Time struct {
	Name  string
	Of    func(*Targets) *time.Duration
	Plain bool // written even if it is 0
}

// Times are the targets, in the order in which they are written.
var Times = [...]Time{
	{"target_ttft_ms", func(t *Targets) *time.Duration { return &t.TargetTTFT }, true},
	{"target_tbt_ms", func(t *Targets) *time.Duration { return &t.TargetITL }, true},
	{"target_ttot_ms", func(t *Targets) *time.Duration { return &t.TargetTTOT }, false},
}

// Any reports whether t has a target.
func (t *Targets) Any() bool {
	for i := range Times {
		if *Times[i].Of(t) > 0 {
			return true
		}
	}
	return false
}
