package resume

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/api/apitest"
	"github.com/uma-serve/uma-serve/daemon/api/openai"
)

// rig serves POST /answer, whose streams the test writes.
type rig struct {
	t   *testing.T
	url string
	k   *Streams
	ran chan *running // each stream that has begun
}

// running is a stream of the test.
type running struct {
	say   chan string     // each is an event; closing it ends the stream
	ended <-chan struct{} // the request was stopped, or its client has gone
}

func newRig(t *testing.T) *rig {
	g := &rig{t: t, ran: make(chan *running, 64)}
	g.url = apitest.Serve(t, &apitest.Backend{}, func(s *api.Server) []api.Route {
		g.k = New(s)
		return append(g.k.Routes(), api.Route{Method: "POST", Path: "/answer",
			Handle: g.k.Keep(func(w http.ResponseWriter, r *http.Request) { g.answer(s, w, r) })})
	})
	t.Cleanup(func() { // streams do not end with their clients
		for _, s := range g.kept() {
			s.stop()
		}
	})
	return g
}

func (g *rig) kept() []*session {
	g.k.mu.Lock()
	defer g.k.mu.Unlock()
	return slices.Clone(g.k.sessions)
}

func (g *rig) answer(s *api.Server, w http.ResponseWriter, r *http.Request) {
	out := s.NewWriter(w)
	body, _ := io.ReadAll(r.Body)
	switch {
	case strings.Contains(string(body), "wrong"):
		openai.Fail(out, api.Refuse("wrong"))
		return
	case !strings.Contains(string(body), `"stream":true`):
		out.JSON(http.StatusOK, "whole")
		return
	}
	ctx, end := context.WithCancel(r.Context())
	defer end()
	defer api.OnStop(r.Context(), end)()
	run := &running{make(chan string), ctx.Done()}
	g.ran <- run
	for {
		select {
		case text, more := <-run.say:
			if !more {
				return
			}
			out.Text(text)
			if out.Flush() != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// ask begins a stream of an id and returns it when its first event, "a", has come, with what ends the client.
func (g *rig) ask(owner, id string) (*running, func()) {
	g.t.Helper()
	ctx, leave := context.WithCancel(g.t.Context())
	req, err := http.NewRequestWithContext(ctx, "POST", g.url+"/answer", strings.NewReader(`{"stream":true}`))
	if err != nil {
		g.t.Fatal(err)
	}
	req.Header.Set("X-Owner", owner)
	req.Header.Set(Header, id)
	begun := make(chan *running)
	go func() {
		run := <-g.ran
		run.say <- "a"
		begun <- run
	}()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		g.t.Fatal(err)
	}
	run := <-begun
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); line != "data: a\n" {
		g.t.Fatalf("%q, %v", line, err)
	}
	return run, func() { leave(); resp.Body.Close() }
}

func (g *rig) do(method, path, body string, owner int) (int, string) {
	g.t.Helper()
	status, _, answer := apitest.Do(g.t, method, g.url+path, body, owner)
	return status, answer
}

// TestResume: an answer outlives its client, and is read again from any byte, while it runs and after.
func TestResume(t *testing.T) {
	g := newRig(t)
	run, leave := g.ask("1", "chat::org/model:Q8_0")
	leave()
	run.say <- "b" // the request goes on
	const query = "/v1/stream?conv_id=chat%3A%3Aorg%2Fmodel%3AQ8_0"
	live := make(chan string)
	go func() { // not through g.do, which must not fail on another goroutine
		req, _ := http.NewRequest("GET", g.url+query+"&from=0", nil)
		req.Header.Set("X-Owner", "1")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			live <- err.Error()
			return
		}
		defer resp.Body.Close()
		all, err := io.ReadAll(resp.Body)
		live <- fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("Content-Type"), " ", string(all), err)
	}()
	run.say <- "c"
	run.say <- "[DONE]"
	close(run.say)
	const whole = "data: a\n\ndata: b\n\ndata: c\n\ndata: [DONE]\n\n"
	if got := <-live; got != "200 text/event-stream "+whole+"<nil>" {
		t.Errorf("while it runs: %q", got)
	}
	for from, want := range map[string]string{"": whole, "&from=0": whole, "&from=9": whole[9:],
		fmt.Sprintf("&from=%d", len(whole)): ""} {
		if status, got := g.do("GET", query+from, "", 1); status != 200 || got != want {
			t.Errorf("%s: %d %q", from, status, got)
		}
	}
	for _, c := range []struct {
		method, path, body string
		owner, status      int
		says               string
	}{
		{"GET", query + "&from=-1", "", 1, 400, "number of bytes"},
		{"GET", query + "&from=x", "", 1, 400, "number of bytes"},
		{"GET", query + "&from=9999", "", 1, 400, "are kept"}, {"GET", "/v1/stream", "", 1, 400, "conv_id"},
		{"GET", "/v1/stream?conv_id=" + strings.Repeat("x", maxIDBytes+1), "", 1, 400, "conv_id"},
		{"GET", "/v1/stream?conv_id=other", "", 1, 404, "not_found_error"},
		{"GET", query, "", 2, 404, "not_found_error"}, // another owner's
		{"DELETE", query, "", 2, 204, ""}, {"DELETE", "/v1/stream", "", 1, 400, "conv_id"},
		{"POST", "/v1/streams/lookup", `{"conversation_ids":["chat","chat","none",""]}`, 2, 200, "[]\n"},
		{"POST", "/v1/streams/lookup", `{"conversation_ids":["chat","none"]}`, 1, 200,
			fmt.Sprintf(`"conversation_id":"chat::org/model:Q8_0","is_done":true,"total_bytes":%d,"started_at":`,
				len(whole))},
		{"POST", "/v1/streams/lookup", `{"conversation_ids":"chat"}`, 1, 400, "conversation_ids"},
		{"POST", "/v1/streams/lookup", `{"conversation_ids":[` + strings.Repeat(`"",`, maxLookup) + `""]}`, 1, 400,
			"at most"},
		{"DELETE", query, "", 1, 204, ""}, {"DELETE", query, "", 1, 204, ""},
		{"GET", query, "", 1, 404, "not_found_error"},
	} {
		status, got := g.do(c.method, c.path, c.body, c.owner)
		if status != c.status || !strings.Contains(got, c.says) {
			t.Errorf("%s %.60s of %d: %d %s", c.method, c.path, c.owner, status, got)
		}
	}
}

// TestStop: DELETE, a stream of the same id, and too many streams cancel one that runs.
func TestStop(t *testing.T) {
	g := newRig(t)
	run, leave := g.ask("1", "x")
	defer leave()
	if status, body := g.do("DELETE", "/v1/stream?conv_id=x", "", 1); status != 204 || body != "" {
		t.Errorf("%d %q", status, body)
	}
	<-run.ended
	first, leave1 := g.ask("1", "x")
	defer leave1()
	second, leave2 := g.ask("1", "x")
	defer leave2()
	<-first.ended
	other, leave3 := g.ask("2", "x") // another owner's id
	defer leave3()
	for i := range maxSessions {
		_, leave := g.ask("1", fmt.Sprint(i))
		defer leave()
	}
	<-second.ended
	select {
	case <-other.ended:
		t.Error("another owner's stream was cancelled")
	default:
	}
	for owner := 3; len(g.kept()) < maxAll; owner++ {
		_, leave := g.ask(fmt.Sprint(owner), "y")
		defer leave()
	}
	_, leave4 := g.ask("1000", "y")
	defer leave4()
	if n := len(g.kept()); n != maxAll {
		t.Errorf("%d streams, want %d", n, maxAll)
	}
}

// TestNotKept: answers that are no streams, and streams without the header, are not kept; those end with their client.
func TestNotKept(t *testing.T) {
	g := newRig(t)
	post := func(id, body string) (int, string) {
		req, err := http.NewRequest("POST", g.url+"/answer", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(Header, id)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	for body, want := range map[string]int{`{"wrong":1,"stream":true}`: 400, `{"stream":false}`: 200, `{`: 200} {
		if status, answer := post("x", body); status != want {
			t.Errorf("%s: %d %s", body, status, answer)
		}
		if status, _ := g.do("GET", "/v1/stream?conv_id=x", "", 0); status != 404 {
			t.Errorf("%s: a stream is kept: %d", body, status)
		}
	}
	if status, answer := post(strings.Repeat("x", maxIDBytes+1), `{"stream":true}`); status != 400 {
		t.Errorf("a long id: %d %s", status, answer)
	}
	run, leave := g.ask("1", "")
	leave()
	<-run.ended
}

// TestSessionIsBounded: a stream keeps its newest bytes, and a reader that has fallen behind ends.
func TestSessionIsBounded(t *testing.T) {
	s := newSession(1, "x", time.Unix(0, 0), func() {})
	chunk := make([]byte, 1<<20)
	for i := range 9 {
		for j := range chunk {
			chunk[j] = byte(i)
		}
		s.append(chunk)
	}
	total, kept, ended := s.state()
	if total != 9<<20 || total-kept > maxSessionBytes || total-kept < maxSessionBytes*3/4 || !ended.IsZero() ||
		len(s.tail) != int(total-kept) {
		t.Fatalf("%d bytes, from %d on kept, %d of them", total, kept, len(s.tail))
	}
	if _, err := s.read(t.Context(), kept-1); err != errLost {
		t.Errorf("lost bytes: %v", err)
	}
	if b, err := s.read(t.Context(), total-1); err != nil || len(b) != 1 || b[0] != 8 {
		t.Errorf("the newest byte: %v %v", b, err)
	}
	s.end(time.Unix(5, 0))
	s.end(time.Unix(6, 0))
	if b, err := s.read(t.Context(), total); b != nil || err != nil {
		t.Errorf("after the end: %v %v", b, err)
	}
	if _, _, ended = s.state(); ended != time.Unix(5, 0) {
		t.Errorf("ended %v", ended)
	}
}

// TestExpiry: a stream is kept for some time after its end, and as long as it runs.
func TestExpiry(t *testing.T) {
	now := time.Unix(1e9, 0)
	k := New(&api.Server{Now: func() time.Time { return now }})
	done, runs := newSession(1, "done", now, func() {}), newSession(1, "runs", now, func() {})
	k.add(done)
	k.add(runs)
	done.end(now)
	now = now.Add(keptFor - 1)
	if k.find(1, "done") != done {
		t.Error("the stream is gone too early")
	}
	now = now.Add(1)
	if k.find(1, "done") != nil || k.find(1, "runs") != runs {
		t.Error("the stream that ended is kept, or the one that runs is not")
	}
}
