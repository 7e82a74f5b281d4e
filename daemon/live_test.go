package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/meridian/blocks"
	"github.com/uma-serve/uma-serve/runtime/fake"
	"github.com/uma-serve/uma-serve/sched"
)

// TestStepRing: records come out once and in order while both ends work, and records that find no room are counted.
func TestStepRing(t *testing.T) {
	const n = 100_000
	r := new(stepRing)
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() {
		defer close(done)
		for i := range n {
			r.put(stepRecord{end: time.Duration(i), took: time.Duration(2 * i), prompt: int32(i)})
		}
	})
	next, taken := time.Duration(0), uint64(0)
	look := func() {
		r.take(func(s *stepRecord) {
			if s.end < next || s.took != 2*s.end || s.prompt != int32(s.end) {
				t.Errorf("%+v after %d", *s, next)
			}
			next = s.end + 1
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
	full := new(stepRing)
	for range stepRingSize + 3 {
		full.put(stepRecord{})
	}
	if full.dropped.Load() != 3 {
		t.Errorf("%d dropped, want 3", full.dropped.Load())
	}
	if a := testing.AllocsPerRun(100, func() { full.put(stepRecord{}); full.take(func(*stepRecord) {}) }); a != 0 {
		t.Errorf("%v allocations a step", a)
	}
}

// TestShortStepsMerge: as many steps as take LiveMergeMs are sent as one, with the sums of their rows.
func TestShortStepsMerge(t *testing.T) {
	sm := sampling{ring: new(stepRing)}
	for i := range 9 {
		at := time.Duration(i+1) * 2 * time.Millisecond
		sm.ring.put(stepRecord{end: at, took: time.Millisecond, prompt: 3, think: 1, answer: 2})
	}
	sm.ring.put(stepRecord{end: time.Second, took: 40 * time.Millisecond, prompt: 100})
	sm.takeSteps()
	var n, prompt, answer float64
	for _, s := range sm.steps {
		n, prompt, answer = n+s[wire.StepCount], prompt+s[wire.StepPrompt], answer+s[wire.StepAnswer]
		if s[wire.StepCount] > 1 && s[wire.StepTook] > wire.LiveMergeMs {
			t.Errorf("merged over %v ms", s[wire.StepTook])
		}
	}
	if len(sm.steps) != 4 || n != 10 || prompt != 127 || answer != 18 ||
		sm.steps[3] != (wire.LiveStep{1000, 40, 1, 100, 0, 0, 0}) {
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
	r := serve(t, fake.Config{})
	span := func(ns uint32, req uint64, cells, holders, runs int) kvsnap.Span {
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
	sm := sampling{s: r.Server, ring: new(stepRing), states: map[viewer]viewState{}, shot: &liveSnapshot{
		total: 1000, free: 400, waiting: sched.ReasonWaitCells,
		streams: []liveStream{
			{number: 9, wireID: "secret", owner: 7, state: "think", class: sched.Interactive},
			{number: 8, wireID: "mine", owner: 1000, state: "output",
				gaps:   gapSum{n: 2, sum: 30 * time.Millisecond, max: 20 * time.Millisecond, late: 1},
				target: 25 * time.Millisecond},
			{number: 10, wireID: "secret too", owner: 7, state: "parked", paused: true},
		},
		spans: []kvsnap.Span{span(7, 9, 300, 1, 1), span(1000, 8, 100, 1, 1), span(7, 3, 150, 1, 0),
			span(1000, 8, 50, 3, 2)},
	}}
	sm.count()
	sm.brief = appendEvent(nil, "live", wire.Live{AtMs: 1})
	read := func(uid uint32, operator bool) (s wire.LiveState, text string) {
		told := sm.stateFor(uid, operator)
		var ev wire.Live
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
	load := wire.LiveLoad{Queued: 1, Think: 1, Output: 1, Parked: 1, Paused: 1, Users: 2, Waiting: "wait_cells"}
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

// eventsOf reads a live view until ok is true of an event.
func (r *running) eventsOf(web *http.Client, ok func(wire.Live) bool) (hello wire.LiveHello) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitfor.Limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://uma/live", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := web.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	if kind := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || kind != "text/event-stream" {
		r.t.Fatalf("%d %s", resp.StatusCode, kind)
	}
	name := ""
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		line := lines.Text()
		if n, found := strings.CutPrefix(line, "event: "); found {
			name = n
		}
		data, found := strings.CutPrefix(line, "data: ")
		if !found {
			continue
		}
		var ev wire.Live
		into := any(&ev)
		if name == "hello" {
			into = &hello
		}
		if err := json.Unmarshal([]byte(data), into); err != nil {
			r.t.Fatalf("%s: %v", line, err)
		}
		if name == "live" && ok(ev) {
			return hello
		}
	}
	r.t.Fatal("the events ended")
	return hello
}

// paced returns an engine's Advance that lets n steps end, then as many as more allows, and all of them after release,
// which the end of the test calls too.
func paced(t *testing.T, n int) (advance func(time.Duration), more func(n int), release func()) {
	steps := make(chan struct{}, 1<<16)
	more = func(n int) {
		for range n {
			steps <- struct{}{}
		}
	}
	more(n)
	open := make(chan struct{})
	release = sync.OnceFunc(func() { close(open) })
	return func(time.Duration) {
		select {
		case <-steps:
		case <-open:
		}
	}, more, release
}

// TestLiveView: a request that runs is seen with its steps, its times and its cells; afterwards the map shows the
// prefix that it left. Without a view the loop records nothing.
func TestLiveView(t *testing.T) {
	advance, more, release := paced(t, 30)
	r := serve(t, fake.Config{Scripts: []fake.Script{{Emit: "<think>" + thoughts(3000) + "</think>" +
		strings.Repeat("word ", 80)}}, Advance: advance}, "-c", "8192")
	t.Cleanup(release)
	web := r.web()
	st := r.begin(r.dial(), nil)
	got := make(chan answer, 1)
	go func() { got <- collect(st) }()
	if r.live.ring.Load() != nil {
		t.Error("steps are recorded although no view is open")
	}
	var steps, think float64
	tiers := map[string]bool{}
	hello := r.eventsOf(web, func(ev wire.Live) bool {
		more(25)
		for _, s := range ev.Steps {
			steps, think = steps+s[wire.StepCount], think+s[wire.StepThink]
		}
		if ev.State == nil {
			return false
		}
		sum := ev.State.Pool.Free
		for _, p := range ev.State.Pool.Parts {
			sum += p.Cells
			tiers[p.Tier] = true
		}
		if sum != ev.State.Pool.Total {
			t.Errorf("%d cells of %d are on the map", sum, ev.State.Pool.Total)
		}
		for _, s := range ev.State.Streams {
			if s.Number != 1 || s.TargetMs == 0 || s.Prompt == 0 {
				t.Errorf("%+v", s)
			}
		}
		return steps > 0 && think > 0 && tiers["think_active"] && len(ev.State.Streams) == 1 &&
			ev.State.Streams[0].Gaps > 0
	})
	if !hello.Operator || hello.EveryMs != 500 {
		t.Errorf("%+v", hello)
	}
	release()
	if a := waitfor.Recv(t, "the answer", got); a.err != nil {
		t.Fatal(a.err)
	}
	r.eventsOf(web, func(ev wire.Live) bool {
		return ev.State != nil && len(ev.State.Streams) == 0 && len(ev.State.Pool.Parts) == 1 &&
			ev.State.Pool.Parts[0].Use == "cached" && ev.State.Status == "ok"
	})
	eventually(t, "the sampler ends with the last view", func() bool { return r.live.ring.Load() == nil })
	if n := r.counter("live_views"); n != 0 {
		t.Errorf("%v views are open", n)
	}
}

// TestTooManyViews: views are bounded, and one that ends makes room.
func TestTooManyViews(t *testing.T) {
	var v live
	s := &Server{metrics: serve(t, fake.Config{}).metrics}
	v.stop = make(chan struct{}) // no sampler
	var views []*view
	for uid := range uint32(maxViews) {
		w, ok := v.add(s, uid/maxUserViews, false)
		if !ok {
			t.Fatalf("view %d is refused", uid)
		}
		views = append(views, w)
	}
	if _, ok := v.add(s, 99, true); ok {
		t.Error("one more than there may be")
	}
	v.remove(s, views[0])
	v.remove(s, views[0])
	if _, ok := v.add(s, 1, false); ok {
		t.Errorf("user 1 has %d views and gets another", maxUserViews)
	}
	if _, ok := v.add(s, 99, false); !ok {
		t.Error("there is room")
	}
	v.end(s)
	if _, ok := v.add(s, 99, false); ok {
		t.Error("a view after the end")
	}
	for i, w := range views {
		select {
		case <-w.gone:
		default:
			t.Errorf("view %d is not ended", i)
		}
	}
}

// TestUnreadView: a view that does not read is closed, and the others go on.
func TestUnreadView(t *testing.T) {
	r := serve(t, fake.Config{})
	v := &r.live
	slow, _ := v.add(r.Server, 1, true)
	read, _ := v.add(r.Server, 1, true)
	sm := sampling{s: r.Server, ring: v.ring.Load(), states: map[viewer]viewState{}}
	for i := range viewBacklog + 1 {
		sm.states = map[viewer]viewState{}
		sm.common.Progress = float64(i) + 1.5 // another state each time
		sm.brief = appendEvent(nil, "live", wire.Live{AtMs: float64(i)})
		v.mu.Lock()
		sm.send(slow)
		sm.send(read)
		v.mu.Unlock()
		for len(read.out) > 0 {
			<-read.out
		}
	}
	select {
	case <-slow.gone:
	default:
		t.Error("the view that does not read is still open")
	}
	select {
	case <-read.gone:
		t.Error("the view that reads was closed")
	default:
	}
	v.remove(r.Server, read)
}

// TestServingAllocatesNothingWhileWatched: the loop's part of a live view allocates nothing per token either.
func TestServingAllocatesNothingWhileWatched(t *testing.T) {
	ring := new(stepRing)
	l := &loop{live: new(live), epoch: time.Now()}
	l.live.ring.Store(ring)
	plan := &sched.Plan{PrefillTokens: 3, DecodeTokens: 4}
	now := time.Now()
	var g gapSum
	if n := testing.AllocsPerRun(1000, func() {
		l.recordStep(plan, time.Millisecond, now)
		g.add(time.Millisecond, true)
		ring.take(func(*stepRecord) {})
	}); n != 0 {
		t.Errorf("%v allocations a step", n)
	}
}

// TestPageIsServed on the socket, with HEAD, and with the ETag of a cached copy.
func TestPageIsServed(t *testing.T) {
	r := serve(t, fake.Config{})
	web := r.web()
	resp, err := web.Get("http://uma/")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || resp.StatusCode != 200 || !strings.Contains(string(body), "<title>uma-serve</title>") ||
		resp.Header.Get("Content-Security-Policy") == "" {
		t.Errorf("%d %v %.200s", resp.StatusCode, resp.Header, body)
	}
	req, _ := http.NewRequest(http.MethodGet, "http://uma/page/main.js", nil)
	first, err := web.Do(req)
	if err != nil || first.StatusCode != 200 || !strings.HasPrefix(first.Header.Get("Content-Type"),
		"text/javascript") {
		t.Fatalf("%v %v", first, err)
	}
	first.Body.Close()
	req.Header.Set("If-None-Match", first.Header.Get("ETag"))
	again, err := web.Do(req)
	if err != nil || again.StatusCode != http.StatusNotModified {
		t.Errorf("%v %v", again, err)
	}
	again.Body.Close()
	for path, status := range map[string]int{"/page/nothing.js": 404, "/page/index.html": 404,
		"/page/..%2fpage.go": 404, "/page/": 404} {
		resp, err := web.Get("http://uma" + path)
		if err != nil || resp.StatusCode != status {
			t.Errorf("%s: %v %v", path, resp, err)
			continue
		}
		resp.Body.Close()
	}
	if resp, err := web.Post("http://uma/", "text/plain", strings.NewReader("x")); err != nil ||
		resp.StatusCode != 405 {
		t.Errorf("POST /: %v %v", resp, err)
	} else {
		resp.Body.Close()
	}
}

// BenchmarkLiveSample measures one sample on the sampler's goroutine: 64 requests, 300 runs of cells, one operator's
// view. There are two samples in a second.
func BenchmarkLiveSample(b *testing.B) {
	ring, shot := new(stepRing), &liveSnapshot{total: 1 << 17, free: 1000}
	for i := range 64 {
		shot.streams = append(shot.streams, liveStream{number: uint64(i), wireID: fmt.Sprint("chatcmpl-", i),
			state: "output", gaps: gapSum{n: 9, sum: 1e9, max: 1e8}})
	}
	for i := range 300 {
		shot.spans = append(shot.spans, kvsnap.Span{NS: uint32(i % 7), Req: uint64(i % 64), Running: true, Cells: 400,
			Tier: blocks.Tier(i % 4), Holders: blocks.Holders{All: 1, Running: 1}})
	}
	sm := sampling{ring: ring, shot: shot}
	b.ReportAllocs()
	for b.Loop() {
		for i := range 60 {
			ring.put(stepRecord{end: time.Duration(i) * 8 * time.Millisecond, took: 8 * time.Millisecond, think: 8,
				answer: 8})
		}
		sm.states = map[viewer]viewState{}
		sm.takeSteps()
		sm.count()
		sm.brief = appendEvent(nil, "live", wire.Live{AtMs: 1, Steps: sm.steps})
		b.SetBytes(int64(len(sm.stateFor(0, true).full)))
	}
}

// BenchmarkLiveShot measures the decode loop's part of a sample, with cached prefixes in the pool.
func BenchmarkLiveShot(b *testing.B) {
	tree, err := kvsnap.New(kvsnap.Config{Cells: 1 << 16, Sequences: 200})
	if err != nil {
		b.Fatal(err)
	}
	for i := range 150 {
		tokens := make([]kvsnap.Token, 300)
		for j := range tokens {
			tokens[j] = kvsnap.Token(i*j%97 + j)
		}
		a, err := tree.Acquire(kvsnap.Instant(i), &kvsnap.Prompt{Req: uint64(i + 1), NS: uint32(i % 5), Tokens: tokens,
			NoWait: true})
		if err != nil {
			b.Fatal(err)
		}
		tree.Progress(a.Seq, tokens, len(tokens), blocks.Prefix)
	}
	var spans []kvsnap.Span
	b.ReportAllocs()
	for b.Loop() {
		spans = tree.Spans(spans[:0])
	}
	b.ReportMetric(float64(len(spans)), "spans")
}
