package daemon

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// web is an HTTP client of r's socket.
func (r *running) web() *http.Client {
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", r.cfg.Socket)
	}}
	r.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: waitfor.Limit}
}

// choice has the fields of chunks and of whole answers.
type choice struct {
	Index   int
	Text    string
	Delta   openAIMessage
	Message openAIMessage
	Finish  *string `json:"finish_reason"`
	Probs   *struct {
		Content []struct {
			Token   string
			Logprob float64
			Bytes   []int
			Top     []struct{ Token string } `json:"top_logprobs"`
		}
		Tokens  []string
		Probs   []float64            `json:"token_logprobs"`
		Top     []map[string]float64 `json:"top_logprobs"`
		Offsets []int                `json:"text_offset"`
	} `json:"logprobs"`
}

type openAIMessage struct {
	Role, Content string
	Reasoning     string `json:"reasoning_content"`
}

type completed struct {
	ID, Object, Model string
	Created           int64
	Choices           []choice
	Usage             *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Total      int `json:"total_tokens"`
		Output     struct {
			Reasoning int `json:"reasoning_tokens"`
		} `json:"completion_tokens_details"`
	}
	Timings *struct {
		Predicted int `json:"predicted_n"`
	}
	Error *struct {
		Code    int
		Type    string
		Message string
	}
}

// post returns the status and the body.
func post(t *testing.T, c *http.Client, path, body string) (int, http.Header, []byte) {
	t.Helper()
	resp, err := c.Post("http://uma"+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, b
}

// chunks reads server-sent events up to [DONE].
func chunks(t *testing.T, body []byte) (out []completed, done bool) {
	t.Helper()
	for _, block := range strings.Split(strings.TrimSuffix(string(body), "\n\n"), "\n\n") {
		data, ok := strings.CutPrefix(block, "data: ")
		if !ok || done {
			t.Fatalf("not an event, or one after the end: %q", block)
		}
		if data == "[DONE]" {
			done = true
			continue
		}
		var c completed
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		out = append(out, c)
	}
	return out, done
}

const openAIQuestion = `"messages":[{"role":"user","content":"question"}],"temperature":0,"model":"whatever"`

func TestOpenAIChat(t *testing.T) {
	r := serve(t, fake.Config{Scripts: []fake.Script{{Emit: "<think>let me \"see\" — ok</think>It is\n42."}}})
	web := r.web()
	status, head, body := post(t, web, "/v1/chat/completions", "{"+openAIQuestion+"}")
	var whole completed
	if err := json.Unmarshal(body, &whole); err != nil || status != 200 ||
		head.Get("Content-Type") != "application/json" {
		t.Fatalf("%d %v %s: %v", status, head, body, err)
	}
	if m := whole.Choices[0].Message; m.Role != "assistant" || m.Content != "It is\n42." ||
		m.Reasoning != `let me "see" — ok` || *whole.Choices[0].Finish != "stop" ||
		whole.Object != "chat.completion" || whole.Model != r.model.Load().Info.Name ||
		!strings.HasPrefix(whole.ID, "chatcmpl-") {
		t.Errorf("%s", body)
	}
	if u := whole.Usage; u.Prompt == 0 || u.Total != u.Prompt+u.Completion || u.Output.Reasoning == 0 ||
		whole.Timings.Predicted != u.Completion {
		t.Errorf("%s", body)
	}

	status, head, body = post(t, web, "/v1/chat/completions", `{"stream":true,"stream_options":{"include_usage":true},`+
		openAIQuestion+`}`)
	events, done := chunks(t, body)
	if status != 200 || head.Get("Content-Type") != "text/event-stream" || !done {
		t.Fatalf("%d %v %s", status, head, body)
	}
	var text, think, reason string
	for i, e := range events {
		if e.Object != "chat.completion.chunk" || e.ID != events[0].ID {
			t.Fatalf("event %d: %+v", i, e)
		}
		if i == len(events)-1 {
			if len(e.Choices) != 0 || e.Usage == nil || *e.Usage != *whole.Usage {
				t.Errorf("the last event is not the usage: %+v", e)
			}
			break
		}
		if role := e.Choices[0].Delta.Role; (role == "assistant") != (i == 0) {
			t.Errorf("event %d has role %q", i, role)
		}
		text, think = text+e.Choices[0].Delta.Content, think+e.Choices[0].Delta.Reasoning
		if e.Choices[0].Finish != nil {
			reason += *e.Choices[0].Finish
		}
	}
	if text != whole.Choices[0].Message.Content || think != whole.Choices[0].Message.Reasoning || reason != "stop" {
		t.Errorf("streamed %q after %q, %q", text, think, reason)
	}
	r.nothingLeft()
}

func TestOpenAICompletions(t *testing.T) {
	r := serve(t, fake.Config{Scripts: []fake.Script{{Emit: "one \"two\"\tthree"}}})
	web := r.web()
	_, _, plain := post(t, web, "/v1/completions", `{"prompt":["a"],"max_tokens":5,"temperature":0}`)
	var a completed
	if json.Unmarshal(plain, &a); a.Object != "text_completion" || len(a.Choices[0].Text) == 0 ||
		*a.Choices[0].Finish != "length" || a.Usage.Completion != 5 || a.Choices[0].Probs != nil {
		t.Fatalf("%s", plain)
	}
	_, _, body := post(t, web, "/v1/completions", `{"prompt":"a","max_tokens":5,"temperature":0,"logprobs":2}`)
	var b completed
	if err := json.Unmarshal(body, &b); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	p := b.Choices[0].Probs
	if p == nil || strings.Join(p.Tokens, "") != a.Choices[0].Text || len(p.Probs) != len(p.Tokens) ||
		len(p.Top) != len(p.Tokens) || p.Offsets[1] != len(p.Tokens[0]) || len(p.Top[0]) == 0 {
		t.Errorf("%s", body)
	}
	_, _, body = post(t, web, "/v1/completions", `{"prompt":"a","max_tokens":5,"temperature":0,"logprobs":2,`+
		`"stream":true}`)
	events, done := chunks(t, body)
	text := ""
	for _, e := range events {
		text += e.Choices[0].Text
	}
	if !done || text != a.Choices[0].Text || events[1].Choices[0].Probs.Offsets[0] != len(p.Tokens[0]) {
		t.Errorf("%s", body)
	}
	_, _, body = post(t, web, "/v1/chat/completions", `{"logprobs":true,"top_logprobs":3,"max_tokens":4,`+
		openAIQuestion+`}`)
	var c completed
	if err := json.Unmarshal(body, &c); err != nil || len(c.Choices[0].Probs.Content) == 0 ||
		len(c.Choices[0].Probs.Content[0].Top) != 3 {
		t.Errorf("%s: %v", body, err)
	}
	r.nothingLeft()
}

func TestOpenAIErrors(t *testing.T) {
	r := serve(t, fake.Config{}, "-c", "64", "--max-frame-bytes", "4096")
	web := r.web()
	for _, c := range []struct {
		path, body, kind, says string
		status                 int
	}{
		{"/v1/chat/completions", `{`, "invalid_request_error", "JSON", 400},
		{"/v1/chat/completions", `[]`, "invalid_request_error", "an array", 400},
		{"/v1/chat/completions", `{}`, "invalid_request_error", `"messages" is missing`, 400},
		{"/v1/chat/completions", `{"messages":[{"role":"assistant","content":"a"},{"role":"assistant","content":"b"}]}`,
			"invalid_request_error", "two messages of the assistant", 400},
		{"/v1/chat/completions", `{"stream_options":{"include_usage":1},` + openAIQuestion + `}`,
			"invalid_request_error", `"stream_options.include_usage"`, 400},
		{"/v1/chat/completions", `{"prompt":"x"}`, "invalid_request_error", "/v1/completions", 400},
		{"/v1/completions", `{"messages":[]}`, "invalid_request_error", "/v1/chat/completions", 400},
		{"/v1/completions", `{"prompt":["a",7.5]}`, "invalid_request_error", "token id", 400},
		{"/v1/completions", `{"prompt":[1,99999999]}`, "invalid_request_error", "the vocabulary has", 400},
		{"/v1/completions", `{"prompt":"x","n":129}`, "invalid_request_error", `"n" must be`, 400},
		{"/v1/completions", `{"prompt":"x","best_of":2}`, "invalid_request_error", `"best_of"`, 400},
		{"/v1/completions", `{"prompt":"x","suffix":"y"}`, "invalid_request_error", `filling in the middle`, 400},
		{"/v1/completions", `{"prompt":["a","b"],"n":65}`, "invalid_request_error", "128 answers", 400},
		{"/v1/completions", `{"prompt":"x","stream":1}`, "invalid_request_error", `"stream"`, 400},
		{"/v1/completions", `{"prompt":"x","stream":false,"stream":true}`, "invalid_request_error", "twice", 400},
		{"/v1/completions", `{"prompt":"x","temperature":"hot"}`, "invalid_request_error", `"temperature"`, 400},
		{"/v1/chat/completions", `{"tool_choice":"required",` + openAIQuestion + `}`, "invalid_request_error",
			"tool_choice", 400},
		{"/v1/completions", `{"prompt":"x","guided_regex":"a(+"}`, "invalid_request_error", "guided_regex", 400},
		{"/v1/completions", `{"prompt":"` + strings.Repeat("x", 5000) + `"}`, "invalid_request_error",
			"--max-frame-bytes", 413},
		{"/v1/nothing", `{}`, "not_found_error", "POST /v1/nothing: there is no such path", 404},
	} {
		status, _, body := post(t, web, c.path, c.body)
		var got completed
		if err := json.Unmarshal(body, &got); err != nil || got.Error == nil || status != c.status ||
			got.Error.Code != c.status || got.Error.Type != c.kind || !strings.Contains(got.Error.Message, c.says) {
			t.Errorf("%s %.80s: %d %s; want %d, %s, %q", c.path, c.body, status, body, c.status, c.kind, c.says)
		}
	}
	resp, err := web.Get("http://uma/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var list struct{ Data []struct{ ID, Object string } }
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil || len(list.Data) != 1 ||
		list.Data[0].ID != r.model.Load().Info.Name || list.Data[0].Object != "model" {
		t.Errorf("%+v %v", list, err)
	}
	r.nothingLeft()
}

// A client that disconnects during its answer cancels it; one that does not read pauses its requests and no others.
func TestOpenAIClientGoesOrDoesNotRead(t *testing.T) {
	r := serve(t, fake.Config{}, "-c", "262144")
	web := r.web()
	long := `{"stream":true,"max_tokens":200000,` + openAIQuestion + `}`
	ctx, cancel := context.WithCancel(context.Background())
	req, _ := http.NewRequestWithContext(ctx, "POST", "http://uma/v1/chat/completions", strings.NewReader(long))
	resp, err := web.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	cancel()
	resp.Body.Close()
	r.nothingLeft()

	conn, err := net.Dial("unix", r.cfg.Socket)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: uma\r\nContent-Length: %d\r\n\r\n%s", len(long),
		long)
	eventually(t, "the request is paused", func() bool { return r.poller.Stats().Stalled.Load() == 1 })
	if a := r.ask(r.dial(), func(q *wire.Request) { q.MaxTokens = 8 }); a.err != nil {
		t.Errorf("another client: %v", a.err)
	}
	conn.Close()
	r.nothingLeft()
}

// Many at once: each gets its own answer.
func TestOpenAIManyAtOnce(t *testing.T) {
	var scripts []fake.Script
	for i := range 8 {
		scripts = append(scripts, fake.Script{After: fmt.Sprintf("question %d.<|im_end|>\n<|im_start|>assistant\n", i),
			Emit: fmt.Sprintf("answer %d", i)})
	}
	r := serve(t, fake.Config{Scripts: scripts}, "--parallel", "4")
	web := r.web()
	errs := make(chan error, 32)
	for i := range 32 {
		go func() {
			resp, err := web.Post("http://uma/v1/chat/completions", "",
				strings.NewReader(fmt.Sprintf(`{"messages":[{"role":"user","content":"question %d."}],"temperature":0}`,
					i%8)))
			if err != nil {
				errs <- err
				return
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err == nil && !bytes.Contains(body, fmt.Appendf(nil, `"content":"answer %d"`, i%8)) {
				err = fmt.Errorf("question %d: %s", i%8, body)
			}
			errs <- err
		}()
	}
	for range 32 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	r.nothingLeft()
}

// An answer that a shutdown cuts off says so.
func TestOpenAIShutdown(t *testing.T) {
	r := serve(t, fake.Config{}, "-c", "262144", "--shutdown-timeout", "0s")
	resp, err := r.web().Post("http://uma/v1/chat/completions", "",
		strings.NewReader(`{"stream":true,"max_tokens":200000,`+openAIQuestion+`}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	if _, err := in.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	go r.stop()
	eventually(t, "it ends", r.draining.Load) // what is not read pauses the request before its last token
	rest, err := io.ReadAll(in)
	if err != nil || !bytes.Contains(rest[max(0, len(rest)-400):], []byte("unavailable_error")) {
		t.Errorf("%v: …%s", err, rest[max(0, len(rest)-400):])
	}
}

// TestCompletionsReadControlTokens: a prompt of /v1/completions is read with its control tokens, as one of /completion.
func TestCompletionsReadControlTokens(t *testing.T) {
	r := serve(t, fake.Config{}, "-c", "4096")
	web := r.web()
	for prompt, want := range map[string]int{`"<|im_start|>user"`: 5, `["<|im_start|>",7]`: 2, `"plain"`: 5} {
		for _, path := range []string{"/v1/completions", "/completion"} {
			_, _, body := post(t, web, path, `{"max_tokens":1,"prompt":`+prompt+`}`)
			got := decode[struct {
				Usage struct {
					Prompt int `json:"prompt_tokens"`
				}
				Evaluated int `json:"tokens_evaluated"`
			}](t, body)
			if got.Usage.Prompt+got.Evaluated != want {
				t.Errorf("%s %s: %s; want %d tokens", path, prompt, body, want)
			}
		}
	}
	r.nothingLeft()
}

// TestUsageIsNullBeforeTheLastChunk: with include_usage each chunk has usage, and but for the last one it is null.
func TestUsageIsNullBeforeTheLastChunk(t *testing.T) {
	r := serve(t, fake.Config{Scripts: []fake.Script{{Emit: "some words"}}})
	web := r.web()
	for path, body := range map[string]string{"/v1/chat/completions": openAIQuestion,
		"/v1/completions": `"prompt":"x","max_tokens":5`} {
		for _, asked := range []bool{true, false} {
			options := map[bool]string{true: `,"stream_options":{"include_usage":true}`}[asked]
			_, _, answer := post(t, web, path, `{`+body+`,"stream":true`+options+`}`)
			var usages []string
			for line := range strings.Lines(string(answer)) {
				if data, ok := strings.CutPrefix(line, "data: {"); ok {
					chunk := decode[struct{ Usage json.RawMessage }](t, []byte("{"+data))
					usages = append(usages, string(chunk.Usage))
				}
			}
			for i, u := range usages {
				last := i == len(usages)-1
				if asked && (u == "null") == last || !asked && u != "" ||
					asked && last && !strings.Contains(u, "prompt") {
					t.Errorf("%s, asked %v: chunk %d of %d has usage %q", path, asked, i+1, len(usages), u)
				}
			}
		}
	}
	r.nothingLeft()
}
