package live

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/meridian/blocks"
)

// Source is the daemon as the sampler reads it, besides the ring.
type Source interface {
	// Fill has the decode loop fill s between two steps. It returns false if there is no loop.
	Fill(s *Snapshot) bool
	// Observe writes to state what can be read without waiting for the loop: status, load of the model, guard, cost
	// model, sessions and tiers. It returns the time since the loop began, in ms; 0 without a loop.
	Observe(state *reports.LiveState) (atMs float64)
}

// Snapshot is a copy of the decode loop's state between two steps. The sampler owns it, except from Source.Fill until
// Ready; its slices are reused.
type Snapshot struct {
	Ready   atomic.Bool // the loop has filled it
	At      time.Duration
	Total   int // cells of the pool
	Free    int
	Waiting string // why the head of the queue waits; "" = it does not
	Streams []Stream
	Spans   []kvsnap.Span
}

// Stream is one live request.
type Stream struct {
	Number                                     uint64
	WireID                                     string
	Owner                                      uint32
	Class, State, Reason                       string
	Arrived, TTFT, Target                      time.Duration
	Prompt, Computed, Cached, Generated, Think int // tokens
	Gaps                                       Gaps
	Paused                                     bool
}

// sampler is the state of the sampler goroutine.
type sampler struct {
	src  Source
	ring *Ring

	shot  *Snapshot // the newest; nil: none yet
	next  *Snapshot // the next one, owned by the loop while asked and not ready
	asked bool      // the loop was asked to fill next

	at      float64 // ms since the loop began
	steps   []reports.LiveStep
	missed  uint64
	dropped uint64 // by the ring, in all
	common  reports.LiveState
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
func (sm *sampler) requestSnapshot() {
	if sm.asked {
		return
	}
	if sm.next == nil {
		sm.next = new(Snapshot)
	}
	sm.asked = sm.src.Fill(sm.next)
}

// collect gathers the part of a sample that all views share.
func (sm *sampler) collect() {
	sm.states = map[viewer]viewState{}
	sm.takeSteps()
	sm.at = max(sm.at, sm.src.Observe(&sm.common))
	switch {
	case sm.asked && sm.next.Ready.Load():
		sm.next.Ready.Store(false)
		sm.asked, sm.shot, sm.next = false, sm.next, sm.shot
		sm.count()
	case sm.shot != nil: // the loop is in a long step: there are no new inter-token times
		for i := range sm.shot.Streams {
			sm.shot.Streams[i].Gaps = Gaps{}
		}
	}
	sm.brief = AppendEvent(nil, "live", reports.Live{AtMs: sm.at, Steps: sm.steps, Missed: sm.missed})
}

// Round rounds to three decimals, so that noise does not change the state.
func Round(x float64) float64 { return math.Round(x*1000) / 1000 }

// takeSteps empties the ring. It merges consecutive steps that take less than reports.LiveMergeMs together.
func (sm *sampler) takeSteps() {
	sm.steps = sm.steps[:0]
	sm.ring.take(func(r *Step) {
		end, took := wire.Ms(r.End), wire.Ms(r.Took)
		if n := len(sm.steps); n > 0 {
			last := &sm.steps[n-1]
			begin := last[reports.StepEnd] - last[reports.StepTook]
			if end-begin <= reports.LiveMergeMs {
				last[reports.StepEnd], last[reports.StepTook] = end, Round(end-begin)
				last[reports.StepCount]++
				last[reports.StepPrompt] += float64(r.Prompt)
				last[reports.StepThink] += float64(r.Think)
				last[reports.StepAnswer] += float64(r.Answer)
				last[reports.StepProbe] += float64(r.Probe)
				return
			}
		}
		sm.steps = append(sm.steps, reports.LiveStep{end, took, 1, float64(r.Prompt), float64(r.Think),
			float64(r.Answer), float64(r.Probe)})
	})
	dropped := sm.ring.dropped.Load()
	sm.missed, sm.dropped = dropped-sm.dropped, dropped
}

// count sums up the load of all users and sorts the streams.
func (sm *sampler) count() {
	load := reports.LiveLoad{Sessions: sm.common.Load.Sessions, Waiting: sm.shot.Waiting}
	users := map[uint32]struct{}{}
	for i := range sm.shot.Streams {
		st := &sm.shot.Streams[i]
		users[st.Owner] = struct{}{}
		switch st.State {
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
		if st.Paused {
			load.Paused++
		}
	}
	load.Users = len(users)
	sm.common.Load = load
	slices.SortFunc(sm.shot.Streams, func(a, b Stream) int { return cmp.Compare(a.Number, b.Number) })
}

// stateFor returns this sample as a user sees it: its requests and cells by name, those of other users only as numbers.
func (sm *sampler) stateFor(uid uint32, operator bool) viewState {
	who := viewer{uid, operator}
	if operator {
		who.uid = 0
	}
	if t, ok := sm.states[who]; ok {
		return t
	}
	state := sm.common
	state.Streams, state.Pool = []reports.LiveStream{}, reports.LivePool{Parts: []reports.LivePart{}}
	if sm.shot != nil {
		sm.addStreams(&state, who)
		state.Pool.Total, state.Pool.Free = sm.shot.Total, sm.shot.Free
		sm.addParts(&state.Pool, who)
	}
	b, err := json.Marshal(&state)
	if err != nil {
		panic("live: " + err.Error()) // finite numbers and strings
	}
	const end = "}\n\n"
	full := append(slices.Clone(sm.brief[:len(sm.brief)-len(end)]), `,"state":`...)
	t := viewState{b, append(append(full, b...), end...)}
	sm.states[who] = t
	return t
}

// addStreams lists the requests that a viewer may see.
func (sm *sampler) addStreams(state *reports.LiveState, who viewer) {
	for i := range sm.shot.Streams {
		r := &sm.shot.Streams[i]
		switch {
		case !who.operator && r.Owner != who.uid:
			continue
		case len(state.Streams) == reports.MaxLiveStreams:
			state.More++
			continue
		}
		st := reports.LiveStream{
			Number: r.Number, Request: r.WireID, UID: r.Owner, Class: r.Class, State: r.State, Reason: r.Reason,
			ArrivedMs: wire.Ms(r.Arrived), TTFTMs: wire.Ms(r.TTFT), Prompt: r.Prompt, Computed: r.Computed,
			Cached: r.Cached, Tokens: r.Generated, Think: r.Think, TargetMs: wire.Ms(r.Target), Gaps: r.Gaps.N,
			MaxMs: wire.Ms(r.Gaps.Max), Late: r.Gaps.Late,
		}
		if r.Gaps.N > 0 {
			st.MeanMs = wire.Ms(r.Gaps.Sum / time.Duration(r.Gaps.N))
		}
		state.Streams = append(state.Streams, st)
	}
}

// addParts sums up the cells by owner, request, tier and use. All other users count as one owner, without request
// numbers.
func (sm *sampler) addParts(pool *reports.LivePool, who viewer) {
	type key struct {
		uid     int64
		request uint64
		tier    blocks.Tier
		state   blocks.State
	}
	index := map[key]int{}
	for i := range sm.shot.Spans {
		span := &sm.shot.Spans[i]
		k := key{uid: -1, tier: span.Tier, state: span.State}
		if who.operator || span.NS == uint64(who.uid) {
			k.uid = int64(span.NS & reports.ShownUID)
			if span.Running {
				k.request = span.Req
			}
		}
		at, ok := index[k]
		if !ok {
			at = len(pool.Parts)
			index[k] = at
			pool.Parts = append(pool.Parts, reports.LivePart{UID: k.uid, Request: k.request, Tier: k.tier.String(),
				Use: k.state.String()})
		}
		part := &pool.Parts[at]
		part.Cells += span.Cells
		part.Holders = max(part.Holders, span.Holders.All)
	}
	slices.SortFunc(pool.Parts, func(a, b reports.LivePart) int {
		return cmp.Or(cmp.Compare(a.UID, b.UID), -cmp.Compare(a.Request, b.Request), cmp.Compare(a.Use, b.Use),
			cmp.Compare(a.Tier, b.Tier))
	})
}
