package daemon

import (
	"bufio"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	httpd "github.com/uma-serve/uma-serve/daemon/http"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// TestResumedStream: a streamed answer with an X-Conversation-Id goes on when its client has gone, and is read again;
// DELETE ends it.
func TestResumedStream(t *testing.T) {
	said := strings.Repeat("on and on.\n", 100) + "The end."
	for _, stop := range []bool{false, true} {
		steps := make(chan struct{}, 16)
		for range cap(steps) {
			steps <- struct{}{}
		}
		r := serve(t, fake.Config{Advance: func(time.Duration) { <-steps },
			Scripts: []fake.Script{{Emit: said}}}, "--ctx-size", "16384")
		web := r.web()
		req, err := http.NewRequest("POST", "http://uma/v1/chat/completions", strings.NewReader(
			`{`+openAIQuestion+`,"stream":true}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Conversation-Id", "talk")
		resp, err := web.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		first, err := bufio.NewReader(resp.Body).ReadString('\n')
		resp.Body.Close() // which ends the connection
		if err != nil || !strings.HasPrefix(first, "data: ") {
			t.Fatalf("%q %v", first, err)
		}
		if stop {
			req, err := http.NewRequest("DELETE", "http://uma/v1/stream?conv_id=talk", nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := web.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			close(steps)
			if status, body := get(t, web, "/v1/stream?conv_id=talk"); resp.StatusCode != 204 || status != 404 {
				t.Errorf("stopped: %d, then %d %s", resp.StatusCode, status, body)
			}
			r.nothingLeft()
			continue
		}
		replay, err := web.Get("http://uma/v1/stream?conv_id=talk&from=0")
		if err != nil {
			t.Fatal(err)
		}
		close(steps)
		all, err := io.ReadAll(replay.Body)
		replay.Body.Close()
		text := ""
		for line := range strings.Lines(string(all)) {
			if data, ok := strings.CutPrefix(line, "data: {"); ok {
				chunk := decode[struct {
					Choices []struct{ Delta struct{ Content string } }
				}](t, []byte("{"+data))
				text += chunk.Choices[0].Delta.Content
			}
		}
		if err != nil || replay.StatusCode != 200 || !strings.HasPrefix(string(all), first) || text != said ||
			!strings.HasSuffix(string(all), "data: [DONE]\n\n") {
			t.Errorf("%d %v: %.200s … %s", replay.StatusCode, err, all, all[max(0, len(all)-300):])
		}
		status, body := get(t, web, "/v1/stream?conv_id=talk&from=6")
		if status != 200 || string(body) != string(all[6:]) {
			t.Errorf("after its end: %d %.100s", status, body)
		}
		r.nothingLeft()
	}
}

// TestStreamsModel: a front finds the process of a stream by the model's name in its id.
func TestStreamsModel(t *testing.T) {
	for query, want := range map[string]string{
		"conv_id=" + url.QueryEscape("talk::org/model:Q8_0") + "&from=0": "org/model:Q8_0",
		"conv_id=a::b&model=c": "c", "conv_id=talk": "", "from=0": "",
	} {
		name, found, _ := httpd.ModelOf(&url.URL{Path: "/v1/stream", RawQuery: query}, nil)
		if name != want || found != (want != "") {
			t.Errorf("%s: %q, %v", query, name, found)
		}
	}
}
