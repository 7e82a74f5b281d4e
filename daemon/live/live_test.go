package live

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/meridian/blocks"
	"github.com/uma-serve/uma-serve/metrics"
)

// nothing is a daemon without a loop.
type nothing struct{}

func (nothing) Fill(*Snapshot) bool                { return false }
func (nothing) Observe(*reports.LiveState) float64 { return 0 }

// TestStepRing: records come out once and in order while both ends work, and records that find no room are counted.
func TestStepRing(t *testing.T) {
	const n = 100_000
	r := new(Ring)
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() {
		defer close(done)
		for i := range n {
			r.Put(Step{End: time.Duration(i), Took: time.Duration(2 * i), Prompt: int32(i)})
		}
	})
	next, taken := time.Duration(0), uint64(0)
	look := func() {
		r.take(func(s *Step) {
			if s.End < next || s.Took != 2*s.End || s.Prompt != int32(s.End) {
				t.Errorf("%+v after %d", *s, next)
			}
			next = s.End + 1
			taken++
		})
	}
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
		}
		look()
	}
	wg.Wait()
	look()
	if taken+r.dropped.Load() != n {
		t.Errorf("%d taken and %d dropped of %d", taken, r.dropped.Load(), n)
	}
	full := new(Ring)
	for range ringSize + 3 {
		full.Put(Step{})
	}
	if full.dropped.Load() != 3 {
		t.Errorf("%d dropped, want 3", full.dropped.Load())
	}
	if a := testing.AllocsPerRun(100, func() { full.Put(Step{}); full.take(func(*Step) {}) }); a != 0 {
		t.Errorf("%v allocations a step", a)
	}
}

// TestShortStepsMerge: as many steps as take LiveMergeMs are sent as one, with the sums of their rows.
func TestShortStepsMerge(t *testing.T) {
	sm := sampler{ring: new(Ring)}
	for i := range 9 {
		at := time.Duration(i+1) * 2 * time.Millisecond
		sm.ring.Put(Step{End: at, Took: time.Millisecond, Prompt: 3, Think: 1, Answer: 2})
	}
	sm.ring.Put(Step{End: time.Second, Took: 40 * time.Millisecond, Prompt: 100})
	sm.takeSteps()
	var n, prompt, answer float64
	for _, s := range sm.steps {
		n, prompt, answer = n+s[reports.StepCount], prompt+s[reports.StepPrompt], answer+s[reports.StepAnswer]
		if s[reports.StepCount] > 1 && s[reports.StepTook] > reports.LiveMergeMs {
			t.Errorf("merged over %v ms", s[reports.StepTook])
		}
	}
	if len(sm.steps) != 4 || n != 10 || prompt != 127 || answer != 18 ||
		sm.steps[3] != (reports.LiveStep{1000, 40, 1, 100, 0, 0, 0}) {
		t.Errorf("%v", sm.steps)
	}
	sm.takeSteps()
	if len(sm.steps) != 0 {
		t.Errorf("sent twice: %v", sm.steps)
	}
}

// TestLiveNamespaces: a user sees its own requests and cells by name, and of others their numbers alone; the operator
// sees all.
func TestLiveNamespaces(t *testing.T) {
	span := func(ns uint64, req uint64, cells, holders, runs int) kvsnap.Span {
		state := blocks.Cached
		switch {
		case runs > 0 && holders == 1:
			state = blocks.Own
		case runs > 0:
			state = blocks.Shared
		}
		return kvsnap.Span{NS: ns, Req: req, Running: runs > 0, Cells: cells, Tier: blocks.Prefix, State: state,
			Holders: blocks.Holders{All: holders, Running: runs}}
	}
	sm := sampler{ring: new(Ring), states: map[viewer]viewState{}, shot: &Snapshot{
		Total: 1000, Free: 400, Waiting: "wait_cells",
		Streams: []Stream{
			{Number: 9, WireID: "secret", Owner: 7, State: "think", Class: "interactive"},
			{Number: 8, WireID: "mine", Owner: 1000, State: "output",
				Gaps:   Gaps{N: 2, Sum: 30 * time.Millisecond, Max: 20 * time.Millisecond, Late: 1},
				Target: 25 * time.Millisecond},
			{Number: 10, WireID: "secret too", Owner: 7, State: "parked", Paused: true},
		},
		Spans: []kvsnap.Span{span(7, 9, 300, 1, 1), span(1000, 8, 100, 1, 1), span(7, 3, 150, 1, 0),
			span(1000, 8, 50, 3, 2)},
	}}
	sm.count()
	sm.brief = AppendEvent(nil, "live", reports.Live{AtMs: 1})
	read := func(uid uint32, operator bool) (s reports.LiveState, text string) {
		told := sm.stateFor(uid, operator)
		var ev reports.Live
		data, ok := strings.CutPrefix(string(told.full), "event: live\ndata: ")
		if err := json.Unmarshal([]byte(data), &ev); err != nil || !ok || ev.State == nil || ev.AtMs != 1 ||
			!strings.HasSuffix(data, "}\n\n") {
			t.Fatalf("%q: %v", told.full, err)
		}
		return *ev.State, string(told.state)
	}
	mine, text := read(1000, false)
	if strings.Contains(text, "secret") || strings.Contains(text, `"uid":7`) || strings.Contains(text, `"number":9`) ||
		strings.Contains(text, `"number":3`) {
		t.Errorf("another user's request is named: %s", text)
	}
	if len(mine.Streams) != 1 || mine.Streams[0].Request != "mine" || mine.Streams[0].MeanMs != 15 ||
		mine.Streams[0].MaxMs != 20 || mine.Streams[0].Late != 1 {
		t.Errorf("streams: %+v", mine.Streams)
	}
	load := reports.LiveLoad{Queued: 1, Think: 1, Output: 1, Parked: 1, Paused: 1, Users: 2, Waiting: "wait_cells"}
	if mine.Load.Sessions = 0; mine.Load != load {
		t.Errorf("load: %+v", mine.Load)
	}
	sum := mine.Pool.Free
	for _, p := range mine.Pool.Parts {
		if sum += p.Cells; p.UID != -1 && p.UID != 1000 {
			t.Errorf("%+v", p)
		}
	}
	if sum != mine.Pool.Total || len(mine.Pool.Parts) != 4 {
		t.Errorf("the map has %d cells of %d: %+v", sum, mine.Pool.Total, mine.Pool.Parts)
	}
	all, text := read(0, true)
	if len(all.Streams) != 3 || all.Streams[0].Number != 8 || !strings.Contains(text, "secret too") ||
		strings.Contains(text, `"uid":-1`) {
		t.Errorf("the operator sees %s", text)
	}
	if other, _ := read(5, false); len(other.Streams) != 0 || other.Load.Think != 1 {
		t.Errorf("%+v", other)
	}
}

// TestTooManyViews: views are bounded, and one that ends makes room.
func TestTooManyViews(t *testing.T) {
	v := New(nothing{}, metrics.New(metrics.Build{}))
	v.stop = make(chan struct{}) // no sampler
	var views []*View
	for uid := range uint32(MaxViews) {
		w, ok := v.Open(uid/MaxUserViews, false)
		if !ok {
			t.Fatalf("view %d is refused", uid)
		}
		views = append(views, w)
	}
	if _, ok := v.Open(99, true); ok {
		t.Error("one more than there may be")
	}
	v.Close(views[0])
	v.Close(views[0])
	if _, ok := v.Open(1, false); ok {
		t.Errorf("user 1 has %d views and gets another", MaxUserViews)
	}
	if _, ok := v.Open(99, false); !ok {
		t.Error("there is room")
	}
	v.End()
	if _, ok := v.Open(99, false); ok {
		t.Error("a view after the end")
	}
	for i, w := range views {
		select {
		case <-w.Gone:
		default:
			t.Errorf("view %d is not ended", i)
		}
	}
}

// TestUnreadView: a view that does not read is closed, and the others go on.
func TestUnreadView(t *testing.T) {
	v := New(nothing{}, metrics.New(metrics.Build{}))
	slow, _ := v.Open(1, true)
	read, _ := v.Open(1, true)
	sm := sampler{ring: v.Ring(), states: map[viewer]viewState{}}
	for i := range viewBacklog + 1 {
		sm.states = map[viewer]viewState{}
		sm.common.Progress = float64(i) + 1.5 // another state each time
		sm.brief = AppendEvent(nil, "live", reports.Live{AtMs: float64(i)})
		v.mu.Lock()
		v.send(slow, &sm)
		v.send(read, &sm)
		v.mu.Unlock()
		for len(read.Out) > 0 {
			<-read.Out
		}
	}
	select {
	case <-slow.Gone:
	default:
		t.Error("the view that does not read is still open")
	}
	select {
	case <-read.Gone:
		t.Error("the view that reads was closed")
	default:
	}
	v.Close(read)
}

// BenchmarkLiveSample measures one sample on the sampler's goroutine: 64 requests, 300 runs of cells, one operator's
// view. There are two samples in a second.
func BenchmarkLiveSample(b *testing.B) {
	ring, shot := new(Ring), &Snapshot{Total: 1 << 17, Free: 1000}
	for i := range 64 {
		shot.Streams = append(shot.Streams, Stream{Number: uint64(i), WireID: fmt.Sprint("chatcmpl-", i),
			State: "output", Gaps: Gaps{N: 9, Sum: 1e9, Max: 1e8}})
	}
	for i := range 300 {
		shot.Spans = append(shot.Spans, kvsnap.Span{NS: uint64(i % 7), Req: uint64(i % 64), Running: true, Cells: 400,
			Tier: blocks.Tier(i % 4), Holders: blocks.Holders{All: 1, Running: 1}})
	}
	sm := sampler{ring: ring, shot: shot}
	b.ReportAllocs()
	for b.Loop() {
		for i := range 60 {
			ring.Put(Step{End: time.Duration(i) * 8 * time.Millisecond, Took: 8 * time.Millisecond, Think: 8,
				Answer: 8})
		}
		sm.states = map[viewer]viewState{}
		sm.takeSteps()
		sm.count()
		sm.brief = AppendEvent(nil, "live", reports.Live{AtMs: 1, Steps: sm.steps})
		b.SetBytes(int64(len(sm.stateFor(0, true).full)))
	}
}
