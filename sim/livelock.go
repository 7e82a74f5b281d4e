package sim

import "fmt"

// Stuck is a simulation that makes no more progress: the original's most reported defect is that it then runs for
// ever without a word.
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
		return fmt.Sprintf("livelock at %d us (step %d): %s with %d prompt tokens needs %d KV blocks to get on and the cache has %d, "+
			"so it preempts itself again and again; %d requests wait behind it. Give the cache more blocks (--total-kv-blocks) or bound requests (--max-model-len)",
			s.ClockUs, s.Step, s.Request, s.Input, s.NeedBlocks, s.AllBlocks, s.Waiting)
	}
	return fmt.Sprintf("livelock at %d us (step %d): nothing has moved since %s, with %d prompt tokens and %d tokens computed, was last tried; "+
		"the cache has %d blocks, %d requests wait", s.ClockUs, s.Step, s.Request, s.Input, s.Progress, s.AllBlocks, s.Waiting)
}

// noteStall is called when a preemption leaves nothing running: all that was computed has to be computed again.
// Engine.advances counts, over the whole server, the steps in which any request got further than it ever was, and
// completions and timeouts. When the same request ends up like that a third time with no advance in between, the
// server went through its whole cycle twice for nothing, and it is deterministic: it will again.
//
// Watching any preemption would be wrong: in a storm, the request at the head of the batch catches up with what it had
// lost for many steps, while those behind it come and go.
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

// noProgress is called after a step without an advance. That alone is normal after a preemption; a step in which
// nothing runs and nothing could be admitted is not, unless an event to come changes it.
func (e *Engine) noProgress(now int64) {
	if len(e.running) > 0 || e.queue.n == 0 || len(e.events.ev) > 1 || e.kv.Used() > 0 {
		return
	}
	r := e.queue.first()
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
	e.stuck = &Stuck{Request: r.spec.ID(), ClockUs: e.clock, Step: e.steps, Input: r.spec.Input, Progress: r.progress,
		NeedBlocks: (max(r.highWater, r.spec.Input) + 1 + size - 1) / size, AllBlocks: e.cfg.KVBlocks, Waiting: e.queue.n - 1}
}

// halts reports whether a livelock ends the simulation.
func (e *Engine) halts() bool {
	return e.stuck != nil && (e.cfg.Livelock == LivelockStop || e.cfg.Livelock == LivelockAuto && e.cfg.HorizonUs == 0)
}
