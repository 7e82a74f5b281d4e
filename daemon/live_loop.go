package daemon

import (
	"time"

	"github.com/uma-serve/uma-serve/daemon/live"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sched/reason"
)

// The decode loop's side of live views: a record of each step, and twice a second a snapshot of the loop's state.
// Without an open view it does neither.

// recordStep adds a step to the ring, if a view is open.
func (l *loop) recordStep(plan *sched.Plan, took time.Duration, done time.Time) {
	ring := l.journal.live.Ring()
	if ring == nil {
		return
	}
	think := min(l.reused.tick.ThinkRows, plan.DecodeTokens)
	ring.Put(live.Step{
		End: done.Sub(l.epoch), Took: took, Prompt: int32(plan.PrefillTokens), Think: int32(think),
		Answer: int32(plan.DecodeTokens - think), Probe: int32(plan.ProbeTokens),
	})
}

// fillSnapshot fills s. It allocates only when s has fewer entries than there are requests and prefixes.
func (l *loop) fillSnapshot(s *live.Snapshot, now time.Time) {
	s.At, s.Total, s.Free = now.Sub(l.epoch), l.model.cells, l.core.Tree().Cells().Free
	waiting := reason.None
	s.Streams = s.Streams[:0]
	for _, r := range l.requests {
		if r.life.Over() || r.embed != nil { // its texts are there
			continue
		}
		state, why, _ := l.core.Scheduler().Why(r.ID)
		if state == sched.Queued &&
			(waiting == reason.None || why != reason.WaitTurn && r.Class == sched.Interactive) {
			waiting = why
		}
		s.Streams = append(s.Streams, live.Stream{
			Number: uint64(r.ID), WireID: r.wireID, Owner: r.Owner, Class: r.Class.String(),
			State: r.stateName(state), Reason: why.String(),
			Arrived: r.arrived.Sub(l.epoch), TTFT: r.at.Timings(r.arrived).TTFT,
			Target: r.Next(l.model.itlTarget, r.Class == sched.Interactive, false), Prompt: r.Prompt,
			Computed: r.Computed(), Cached: r.cached, Generated: r.Generated(), Think: r.Phases.ThinkTokens(),
			Gaps: r.at.Gaps, Paused: r.paused,
		})
		r.at.Gaps = live.Gaps{}
	}
	s.Waiting = ""
	if waiting != reason.None {
		s.Waiting = waiting.String()
	}
	s.Spans = l.core.Tree().Spans(s.Spans[:0])
	s.Ready.Store(true)
}

// liveSource is the Server as live views read it.
type liveSource struct{ *Server }

// Fill asks the decode loop for a snapshot.
func (s liveSource) Fill(shot *live.Snapshot) bool {
	l := s.loop.Load()
	return l != nil && l.mail.Put(command{kind: cmdTask, task: snapshotTask{shot}})
}

// snapshotTask fills a snapshot.
type snapshotTask struct{ shot *live.Snapshot }

func (t snapshotTask) run(l *loop, now time.Time) { l.fillSnapshot(t.shot, now) }

// Observe reads atomics.
func (s liveSource) Observe(state *reports.LiveState) (atMs float64) {
	state.Status, state.Progress = "loading", live.Round(s.about.LoadProgress())
	if l := s.loop.Load(); l != nil {
		now := time.Now()
		atMs = wire.Ms(now.Sub(l.epoch))
		state.Status, state.Progress = "ok", 1
		if _, stalled := l.state.stalled(now, stallAfter); stalled {
			state.Status = "stalled"
		}
		st := s.metrics.Scheduler()
		state.Guard, state.ITLTargetMs = metrics.GuardName(st.Guard), wire.Ms(l.model.itlTarget)
		state.Cost = reports.CostModel{A: live.Round(st.Cost.A), B: live.Round(st.Cost.B), C: live.Round(st.Cost.C),
			D: st.Cost.D, E: st.Cost.E, Error: live.Round(st.Cost.Error), Samples: st.Cost.Steps}
		state.Load.Sessions = int(s.poller.Stats().Sessions.Load())
		state.Tiers = state.Tiers[:0]
		for _, t := range l.stores.Tiers() {
			state.Tiers = append(state.Tiers, reports.LiveTier{Tier: t.Tier, Off: t.Off, Bytes: t.Bytes,
				CapBytes: t.CapBytes, Entries: t.Entries})
		}
	}
	if s.draining.Load() {
		state.Status = "draining"
	}
	return atMs
}

// stateName returns a request's state in why and live views.
func (r *request) stateName(state sched.State) string {
	if state == sched.Queued && !r.at.Started.IsZero() {
		return "parked"
	}
	return [...]string{"queued", "prefill", "think", "output", "done", "done"}[state]
}
