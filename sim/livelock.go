package sim

import "fmt"

// Stuck is a livelock: the simulation makes no more progress. BLIS then runs for ever without a message.
type Stuck struct {
	Request string
	ClockUs int64
	Step    int

	Input, Progress       int // tokens
	NeedBlocks, AllBlocks int
	Waiting               int
}

func (s *Stuck) Error() string {
	if s.NeedBlocks > s.AllBlocks {
		return fmt.Sprintf("livelock at %d us (step %d): %s with %d prompt tokens needs %d KV blocks to get on and "+
			"the cache has %d, "+
			"so it preempts itself again and again; %d requests wait behind it. Give the cache more blocks "+
			"(total_kv_blocks) or bound requests (max_model_len)",
			s.ClockUs, s.Step, s.Request, s.Input, s.NeedBlocks, s.AllBlocks, s.Waiting)
	}
	return fmt.Sprintf("livelock at %d us (step %d): nothing has moved since %s, with %d prompt tokens and %d tokens "+
		"computed, was last tried; "+
		"the cache has %d blocks, %d requests wait", s.ClockUs, s.Step, s.Request, s.Input, s.Progress, s.AllBlocks,
		s.Waiting)
}

// noteStall is called when a preemption leaves no request running, so that everything must be computed again.
// Engine.advances counts, over the whole server, the steps in which any request got further than ever before, and
// completions and timeouts. When that happens to the same request a third time with no advance in between, the server
// has repeated its whole cycle twice without progress. It is deterministic, so it will repeat it again.
//
// To watch every preemption would be wrong: in a storm, the request at the head of the batch recomputes for many steps
// what it had lost, while those behind it are admitted and preempted.
func (e *Engine) noteStall(r *request) {
	if r.stallMark == e.advances+1 {
		if e.stalls++; e.stalls >= 2 {
			e.report(r)
		}
	} else {
		e.stalls = 0
	}
	r.stallMark = e.advances + 1 // 0 = never
}

// noProgress is called after a step without an advance. That alone is normal after a preemption. A step in which
// nothing runs and nothing can be admitted is a livelock unless a later event changes it.
func (e *Engine) noProgress() {
	if len(e.formation.Running()) > 0 || e.formation.Waiting() == 0 || len(e.events.ev) > 1 {
		return
	}
	if b, ok := e.formation.(batched); ok && b.Used() > 0 {
		return
	}
	r := e.live.entry(e.formation.Waiter(0))
	if r.stallMark == e.advances+1 {
		return // noteStall watches it
	}
	if r.idleMark == e.advances+1 {
		e.report(r)
	}
	r.idleMark = e.advances + 1
}

func (e *Engine) report(r *request) {
	if e.stuck != nil {
		return
	}
	size := e.cfg.BlockTokens
	e.stuck = &Stuck{Request: r.Spec.ID(), ClockUs: e.clock, Step: e.steps, Input: r.Spec.Input, Progress: r.Progress,
		NeedBlocks: (max(r.HighWater, r.Spec.Input) + 1 + size - 1) / size, AllBlocks: e.cfg.KVBlocks,
		Waiting: e.formation.Waiting() - 1}
}

// halts reports whether a livelock ends the simulation.
func (e *Engine) halts() bool {
	return e.stuck != nil && (e.cfg.Livelock == LivelockStop || e.cfg.Livelock == LivelockAuto && e.cfg.HorizonUs == 0)
}
