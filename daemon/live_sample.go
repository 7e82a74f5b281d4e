package daemon

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/meridian/blocks"
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/sched"
)

// sampling is the state of the sampler goroutine.
type sampling struct {
	s    *Server
	ring *stepRing

	shot  *liveSnapshot // the newest; nil: none yet
	next  *liveSnapshot // the next one, owned by the loop while asked and not ready
	asked bool          // the loop was asked to fill next

	at      float64 // ms since the loop began
	steps   []wire.LiveStep
	missed  uint64
	dropped uint64 // by the ring, in all
	common  wire.LiveState
	brief   []byte               // the event of this sample without a state
	states  map[viewer]viewState // of this sample
}

// viewer identifies what a view may see. uid is 0 for an operator.
type viewer struct {
	uid      uint32
	operator bool
}

// viewState is a sample as one viewer sees it.
type viewState struct {
	state []byte // JSON
	full  []byte // the event with the state
}

// requestSnapshot has the decode loop fill a snapshot between two steps, unless an earlier one is outstanding. The
// sampler checks at its next sample whether it is ready: no wake-up falls into a decode.
func (sm *sampling) requestSnapshot() {
	l := sm.s.loop.Load()
	if l == nil || sm.asked {
		return
	}
	if sm.next == nil {
		sm.next = new(liveSnapshot)
	}
	shot := sm.next
	sm.asked = l.mail.put(command{kind: cmdAsk, ask: func(l *loop, now time.Time) { l.fillSnapshot(shot, now) }})
}

// collect gathers the part of a sample that all views share.
func (sm *sampling) collect() {
	sm.states = map[viewer]viewState{}
	sm.takeSteps()
	l := sm.s.loop.Load()
	sm.common.Status, sm.common.Progress = "loading", round(sm.s.loadProgress())
	if l != nil {
		now := time.Now()
		sm.at = wire.Ms(now.Sub(l.epoch))
		sm.common.Status, sm.common.Progress = "ok", 1
		if _, stalled := l.state.stalled(now, stallAfter); stalled {
			sm.common.Status = "stalled"
		}
		st := sm.s.metrics.Scheduler()
		sm.common.Guard, sm.common.ITLTargetMs = metrics.GuardName(st.Guard), wire.Ms(l.itlTarget)
		sm.common.Cost = wire.CostModel{A: round(st.Cost.A), B: round(st.Cost.B), C: round(st.Cost.C), D: st.Cost.D,
			E: st.Cost.E, Error: round(st.Cost.Error), Samples: st.Cost.Steps}
		sm.common.Load.Sessions = int(sm.s.poller.Stats().Sessions.Load())
		sm.common.Tiers = sm.common.Tiers[:0]
		for _, t := range l.stores.tiers() {
			sm.common.Tiers = append(sm.common.Tiers, wire.LiveTier{Tier: t.Tier, Off: t.Off, Bytes: t.Bytes,
				CapBytes: t.CapBytes, Entries: t.Entries})
		}
	}
	if sm.s.draining.Load() {
		sm.common.Status = "draining"
	}
	switch {
	case sm.asked && sm.next.ready.Load():
		sm.next.ready.Store(false)
		sm.asked, sm.shot, sm.next = false, sm.next, sm.shot
		sm.count()
	case sm.shot != nil: // the loop is in a long step: there are no new inter-token times
		for i := range sm.shot.streams {
			sm.shot.streams[i].gaps = gapSum{}
		}
	}
	sm.brief = appendEvent(nil, "live", wire.Live{AtMs: sm.at, Steps: sm.steps, Missed: sm.missed})
}

// round rounds to three decimals, so that noise does not change the state.
func round(x float64) float64 { return math.Round(x*1000) / 1000 }

// takeSteps empties the ring. It merges consecutive steps that take less than wire.LiveMergeMs together.
func (sm *sampling) takeSteps() {
	sm.steps = sm.steps[:0]
	sm.ring.take(func(r *stepRecord) {
		end, took := wire.Ms(r.end), wire.Ms(r.took)
		if n := len(sm.steps); n > 0 {
			last := &sm.steps[n-1]
			begin := last[wire.StepEnd] - last[wire.StepTook]
			if end-begin <= wire.LiveMergeMs {
				last[wire.StepEnd], last[wire.StepTook] = end, round(end-begin)
				last[wire.StepCount]++
				last[wire.StepPrompt] += float64(r.prompt)
				last[wire.StepThink] += float64(r.think)
				last[wire.StepAnswer] += float64(r.answer)
				last[wire.StepProbe] += float64(r.probe)
				return
			}
		}
		sm.steps = append(sm.steps, wire.LiveStep{end, took, 1, float64(r.prompt), float64(r.think), float64(r.answer),
			float64(r.probe)})
	})
	dropped := sm.ring.dropped.Load()
	sm.missed, sm.dropped = dropped-sm.dropped, dropped
}

// count sums up the load of all users and sorts the streams.
func (sm *sampling) count() {
	load := wire.LiveLoad{Sessions: sm.common.Load.Sessions}
	if sm.shot.waiting != sched.ReasonNone {
		load.Waiting = sm.shot.waiting.String()
	}
	users := map[uint32]struct{}{}
	for i := range sm.shot.streams {
		st := &sm.shot.streams[i]
		users[st.owner] = struct{}{}
		switch st.state {
		case "queued":
			load.Queued++
		case "parked":
			load.Queued++
			load.Parked++
		case "prefill":
			load.Prefill++
		case "think":
			load.Think++
		default:
			load.Output++
		}
		if st.paused {
			load.Paused++
		}
	}
	load.Users = len(users)
	sm.common.Load = load
	slices.SortFunc(sm.shot.streams, func(a, b liveStream) int { return cmp.Compare(a.number, b.number) })
}

// stateFor returns this sample as a user sees it: its requests and cells by name, those of other users only as numbers.
func (sm *sampling) stateFor(uid uint32, operator bool) viewState {
	who := viewer{uid, operator}
	if operator {
		who.uid = 0
	}
	if t, ok := sm.states[who]; ok {
		return t
	}
	state := sm.common
	state.Streams, state.Pool = []wire.LiveStream{}, wire.LivePool{Parts: []wire.LivePart{}}
	if sm.shot != nil {
		sm.addStreams(&state, who)
		state.Pool.Total, state.Pool.Free = sm.shot.total, sm.shot.free
		sm.addParts(&state.Pool, who)
	}
	b, err := json.Marshal(&state)
	if err != nil {
		panic("daemon: live: " + err.Error()) // finite numbers and strings
	}
	const end = "}\n\n"
	full := append(slices.Clone(sm.brief[:len(sm.brief)-len(end)]), `,"state":`...)
	t := viewState{b, append(append(full, b...), end...)}
	sm.states[who] = t
	return t
}

// addStreams lists the requests that a viewer may see.
func (sm *sampling) addStreams(state *wire.LiveState, who viewer) {
	for i := range sm.shot.streams {
		r := &sm.shot.streams[i]
		switch {
		case !who.operator && r.owner != who.uid:
			continue
		case len(state.Streams) == wire.MaxLiveStreams:
			state.More++
			continue
		}
		st := wire.LiveStream{
			Number: r.number, Request: r.wireID, UID: r.owner, Class: r.class.String(), State: r.state,
			Reason:    r.reason.String(),
			ArrivedMs: wire.Ms(r.arrived), TTFTMs: wire.Ms(r.ttft), Prompt: r.prompt, Computed: r.computed,
			Cached: r.cached,
			Tokens: r.generated, Think: r.think, TargetMs: wire.Ms(r.target), Gaps: r.gaps.n,
			MaxMs: wire.Ms(r.gaps.max), Late: r.gaps.late,
		}
		if r.gaps.n > 0 {
			st.MeanMs = wire.Ms(r.gaps.sum / time.Duration(r.gaps.n))
		}
		state.Streams = append(state.Streams, st)
	}
}

// addParts sums up the cells by owner, request, tier and use. All other users count as one owner, without request
// numbers.
func (sm *sampling) addParts(pool *wire.LivePool, who viewer) {
	type key struct {
		uid     int64
		request uint64
		tier    blocks.Tier
		state   blocks.State
	}
	index := map[key]int{}
	for i := range sm.shot.spans {
		span := &sm.shot.spans[i]
		k := key{uid: -1, tier: span.Tier, state: span.State}
		if who.operator || span.NS == who.uid {
			k.uid = int64(span.NS)
			if span.Running {
				k.request = span.Req
			}
		}
		at, ok := index[k]
		if !ok {
			at = len(pool.Parts)
			index[k] = at
			pool.Parts = append(pool.Parts, wire.LivePart{UID: k.uid, Request: k.request, Tier: k.tier.String(),
				Use: k.state.String()})
		}
		part := &pool.Parts[at]
		part.Cells += span.Cells
		part.Holders = max(part.Holders, span.Holders.All)
	}
	slices.SortFunc(pool.Parts, func(a, b wire.LivePart) int {
		return cmp.Or(cmp.Compare(a.UID, b.UID), -cmp.Compare(a.Request, b.Request), cmp.Compare(a.Use, b.Use),
			cmp.Compare(a.Tier, b.Tier))
	})
}
