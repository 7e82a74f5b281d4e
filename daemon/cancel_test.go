package daemon

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// ids are those of the requests in flight.
func (r *running) ids() (list []string) {
	r.sessions.Each(func(q *request) { list = append(list, q.wireID) })
	return list
}

// endless are bodies, without their last brace, whose answers do not end by themselves, and what each API says of one
// that a client has stopped.
var endless = []struct{ path, body, whole, last string }{
	{"/v1/chat/completions", `{` + openAIQuestion + `,"max_tokens":100000`, `"finish_reason":"stop"`,
		"data: [DONE]\n\n"},
	{"/v1/completions", `{"prompt":"x","max_tokens":100000`, `"finish_reason":"stop"`, "data: [DONE]\n\n"},
	{"/completion", `{"prompt":"x","n_predict":100000`, `"stop_type":"none"`, ""},
	{"/v1/messages", `{` + openAIQuestion + `,"max_tokens":100000`, `"stop_reason":"end_turn"`,
		"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"},
	{"/v1/responses", `{"input":"x","max_output_tokens":100000`, `"status":"cancelled"`, ""},
	{"/api/chat", `{` + openAIQuestion + `,"options":{"num_predict":100000}`, `"done_reason":"stop"`, ""},
	{"/api/generate", `{"prompt":"x","options":{"num_predict":100000}`, `"done_reason":"stop"`, ""},
}

// TestCancelledAnswersHaveStopped: POST /cancel ends an answer of each API with what is written of it, and without an
// error after which a client would ask again.
func TestCancelledAnswersHaveStopped(t *testing.T) {
	r := serve(t, fake.Config{}, "-c", "262144")
	web := r.web()
	for _, c := range endless {
		for _, stream := range []string{"false", "true"} {
			type got struct {
				status int
				body   string
			}
			before := r.metrics.TokensGenerated.Value()
			answered := make(chan got)
			go func() {
				status, _, body := post(t, web, c.path, c.body+`,"stream":`+stream+`}`)
				answered <- got{status, string(body)}
			}()
			waitfor.True(t, "tokens of the answer", func() bool { return r.metrics.TokensGenerated.Value() > before })
			ids := r.ids()
			if len(ids) != 1 {
				t.Fatalf("%s: requests %q", c.path, ids)
			}
			post(t, web, "/cancel", `{"id":"`+ids[0]+`"}`)
			a := waitfor.Recv(t, c.path, answered)
			if a.status != http.StatusOK || !strings.Contains(a.body, c.whole) || strings.Contains(a.body, "E_SHUT") ||
				stream == "true" && !strings.HasSuffix(a.body, c.last) {
				t.Errorf("%s, stream %s: %d %.300s … %s", c.path, stream, a.status, a.body,
					a.body[max(0, len(a.body)-300):])
			}
		}
	}
	r.nothingLeft()
}

// TestStoppedStreamsEnd: DELETE /v1/stream ends a stream with its last event, for its first reader and for later ones.
func TestStoppedStreamsEnd(t *testing.T) {
	r := serve(t, fake.Config{}, "-c", "262144")
	web := r.web()
	for _, c := range endless {
		if strings.HasPrefix(c.path, "/api/") {
			continue // ollama's streams end with their clients
		}
		req, err := http.NewRequest("POST", "http://uma"+c.path, strings.NewReader(c.body+`,"stream":true}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Conversation-Id", "talk")
		resp, err := web.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(resp.Body)
		first, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		replay, err := web.Get("http://uma/v1/stream?conv_id=talk&from=0")
		if err != nil {
			t.Fatal(err)
		}
		if req, err = http.NewRequest("DELETE", "http://uma/v1/stream?conv_id=talk", nil); err != nil {
			t.Fatal(err)
		}
		done, err := web.Do(req)
		if err != nil || done.StatusCode != http.StatusNoContent {
			t.Fatalf("%+v, %v", done, err)
		}
		done.Body.Close()
		rest, err := io.ReadAll(in)
		resp.Body.Close()
		again, err2 := io.ReadAll(replay.Body)
		replay.Body.Close()
		all := first + string(rest)
		if err != nil || err2 != nil || !strings.Contains(all, c.whole) || !strings.HasSuffix(all, c.last) ||
			strings.Contains(all, "E_SHUT") || string(again) != all {
			t.Errorf("%s: %v, %v: … %s\nreplayed: … %s", c.path, err, err2, all[max(0, len(all)-300):],
				again[max(0, len(again)-300):])
		}
	}
	r.nothingLeft()
}
