package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/daemon/live"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/meridian/blocks"
	"github.com/uma-serve/uma-serve/runtime/fake"
	"github.com/uma-serve/uma-serve/sched"
)

// eventsOf reads a live view until ok is true of an event.
func (r *running) eventsOf(web *http.Client, ok func(reports.Live) bool) (hello reports.LiveHello) {
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
		var ev reports.Live
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
	if r.live.Ring() != nil {
		t.Error("steps are recorded although no view is open")
	}
	var steps, think float64
	tiers := map[string]bool{}
	hello := r.eventsOf(web, func(ev reports.Live) bool {
		more(25)
		for _, s := range ev.Steps {
			steps, think = steps+s[reports.StepCount], think+s[reports.StepThink]
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
	r.eventsOf(web, func(ev reports.Live) bool {
		return ev.State != nil && len(ev.State.Streams) == 0 && len(ev.State.Pool.Parts) == 1 &&
			ev.State.Pool.Parts[0].Use == "cached" && ev.State.Status == "ok"
	})
	eventually(t, "the sampler ends with the last view", func() bool { return r.live.Ring() == nil })
	if n := r.counter("live_views"); n != 0 {
		t.Errorf("%v views are open", n)
	}
}

// TestServingAllocatesNothingWhileWatched: the loop's part of a live view allocates nothing per token either.
func TestServingAllocatesNothingWhileWatched(t *testing.T) {
	r := serve(t, fake.Config{})
	w, _ := r.live.Open(0, true)
	defer r.live.Close(w)
	l := &loop{journal: journal{live: r.live}, epoch: time.Now()}
	plan := &sched.Plan{PrefillTokens: 3, DecodeTokens: 4}
	now := time.Now()
	var g live.Gaps
	if n := testing.AllocsPerRun(1000, func() {
		l.recordStep(plan, time.Millisecond, now)
		g.Add(time.Millisecond, true)
	}); n != 0 {
		t.Errorf("%v allocations a step", n)
	}
}

// TestNoPage: programs use a server without a page as one with it.
func TestNoPage(t *testing.T) {
	web := serve(t, fake.Config{}, "--no-page").web()
	for path, status := range map[string]int{"/": 404, "/page/main.js": 404, "/health": 200} {
		resp, err := web.Get("http://uma" + path)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != status {
			t.Errorf("%s: %d, want %d", path, resp.StatusCode, status)
		}
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
		a, err := tree.Acquire(kvsnap.Instant(i), &kvsnap.Prompt{Req: uint64(i + 1), NS: uint64(i % 5), Tokens: tokens,
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
