package daemon

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// Several answers of one prompt, several prompts, and prompts of token ids: each gets a separate answer.
func TestOpenAISeveralAnswers(t *testing.T) {
	r := serve(t, fake.Config{Scripts: []fake.Script{{Emit: "It is 42."}, {After: "one", Emit: " fish"},
		{After: "two", Emit: " cats"}}})
	web := r.web()
	_, _, body := post(t, web, "/v1/chat/completions", `{"n":3,`+openAIQuestion+`}`)
	var whole completed
	if err := json.Unmarshal(body, &whole); err != nil || len(whole.Choices) != 3 {
		t.Fatalf("%s: %v", body, err)
	}
	for i, c := range whole.Choices {
		if c.Index != i || c.Message.Content != "It is 42." || *c.Finish != "stop" {
			t.Errorf("choice %d: %+v", i, c)
		}
	}
	if u := whole.Usage; u.Completion != 3*len("It is 42.")+3 && u.Completion != 3*len("It is 42.") ||
		u.Total != u.Prompt+u.Completion {
		t.Errorf("%+v", u)
	}
	h := r.hold() // until both are there: the answers are short
	streamed := make(chan []byte, 1)
	go func() {
		_, _, body := post(t, web, "/v1/chat/completions", `{"n":2,"stream":true,`+openAIQuestion+`}`)
		streamed <- body
	}()
	h.arrived(2)
	h.release()
	body = waitfor.Recv(t, "the two answers", streamed)
	events, done := chunks(t, body)
	texts, finished, mixed := [2]string{}, 0, false
	for i, e := range events {
		for _, c := range e.Choices {
			texts[c.Index] += c.Delta.Content
			if c.Finish != nil {
				finished++
			}
			mixed = mixed || i > 0 && len(events[i-1].Choices) > 0 && events[i-1].Choices[0].Index > c.Index
		}
	}
	if !done || texts != [2]string{"It is 42.", "It is 42."} || finished != 2 || !mixed {
		t.Errorf("%q, %d finished, interleaved %v: %s", texts, finished, mixed, body)
	}

	_, _, body = post(t, web, "/v1/completions", `{"prompt":["one","two"],"max_tokens":5,"temperature":0,"echo":true}`)
	var texted completed
	if err := json.Unmarshal(body, &texted); err != nil || len(texted.Choices) != 2 ||
		texted.Choices[0].Text != "one fish" || texted.Choices[1].Text != "two cats" {
		t.Errorf("%s: %v", body, err)
	}
	m := r.model.Load()
	ids, err := m.Vocab.Tokenize(nil, "one", true, false)
	if err != nil {
		t.Fatal(err)
	}
	list, err := json.Marshal(ids)
	if err != nil {
		t.Fatal(err)
	}
	_, _, body = post(t, web, "/v1/completions", fmt.Sprintf(`{"prompt":[%s,"two"],"max_tokens":5,"temperature":0}`,
		list))
	texted = completed{}
	if err := json.Unmarshal(body, &texted); err != nil || len(texted.Choices) != 2 ||
		texted.Choices[0].Text != " fish" || texted.Choices[1].Text != " cats" {
		t.Errorf("%s: %v", body, err)
	}
	r.nothingLeft()
}

// A prompt with a hole, where the vocabulary has the markers for it.
func TestOpenAIInfill(t *testing.T) {
	fim := []string{"<fim_prefix>", "<fim_suffix>", "<fim_middle>"}
	r := serve(t, fake.Config{Markers: fim,
		Scripts: []fake.Script{{After: "<fim_prefix>def f():<fim_suffix>return x<fim_middle>", Emit: " x = 1; "}}})
	_, _, body := post(t, r.web(), "/v1/completions", `{"prompt":"def f():","suffix":"return x","temperature":0,`+
		`"max_tokens":8}`)
	var got completed
	if err := json.Unmarshal(body, &got); err != nil || len(got.Choices) != 1 || got.Choices[0].Text != " x = 1; " {
		t.Errorf("%s: %v", body, err)
	}
	r.nothingLeft()
}

// return_progress: one event before the first step, one after each, the last of the whole prompt; what was cached is
// said.
func TestOpenAIProgress(t *testing.T) {
	r := serve(t, fake.Config{}, "--batch-size", "32", "-c", "4096")
	web := r.web()
	body := `{"prompt":"` + strings.Repeat("x", 200) + `","stream":true,"return_progress":true,"max_tokens":2}`
	for turn := range 2 {
		_, _, out := post(t, web, "/v1/completions", body)
		type progress struct{ Total, Cache, Processed int }
		var all []progress
		for line := range strings.Lines(string(out)) {
			var c struct {
				Progress *progress `json:"prompt_progress"`
			}
			if data, ok := strings.CutPrefix(line, "data: "); ok && json.Unmarshal([]byte(data), &c) == nil &&
				c.Progress != nil {
				all = append(all, *c.Progress)
			}
		}
		if len(all) < 2 {
			t.Fatalf("turn %d: %+v in %s", turn, all, out)
		}
		first, last := all[0], all[len(all)-1]
		if first.Processed != first.Cache || (first.Cache > 0) != (turn > 0) || last.Processed != last.Total ||
			last.Total != 200 ||
			!slices.IsSortedFunc(all, func(a, b progress) int { return a.Processed - b.Processed }) {
			t.Errorf("turn %d: %+v", turn, all)
		}
	}
	r.nothingLeft()
}

// Anthropic's API on the daemon: thinking that is asked for is a block, and the first event counts the prompt.
func TestAnthropicMessages(t *testing.T) {
	r := serve(t, fake.Config{Scripts: []fake.Script{{Emit: "<think>let me see</think>It is 42."}}})
	web := r.web()
	const question = `"max_tokens":100,"messages":[{"role":"user","content":"question"}],"temperature":0`
	status, _, body := post(t, web, "/v1/messages", `{"thinking":{"type":"adaptive"},`+question+"}")
	var m struct {
		Type, Role, Model string
		Content           []struct{ Type, Text, Thinking, Signature string }
		StopReason        string `json:"stop_reason"`
		Usage             struct {
			Input  int `json:"input_tokens"`
			Output int `json:"output_tokens"`
		}
	}
	if err := json.Unmarshal(body, &m); err != nil || status != http.StatusOK || len(m.Content) != 2 ||
		m.Content[0].Thinking != "let me see" || m.Content[1].Text != "It is 42." || m.StopReason != "end_turn" ||
		m.Usage.Output == 0 {
		t.Fatalf("%d %s: %v", status, body, err)
	}
	_, _, body = post(t, web, "/v1/messages", "{"+question+"}")
	if !strings.Contains(string(body), `"content":[{"type":"text","text":"It is 42."}]`) {
		t.Errorf("the text is not the first block: %s", body)
	}
	_, _, body = post(t, web, "/v1/messages/count_tokens", `{"messages":[{"role":"user","content":"question"}]}`)
	var count struct {
		Input int `json:"input_tokens"`
	}
	if err := json.Unmarshal(body, &count); err != nil || count.Input == 0 {
		t.Fatalf("%s: %v", body, err)
	}
	_, _, body = post(t, web, "/v1/messages", `{"stream":true,`+question+`}`)
	if want := fmt.Sprintf(`"usage":{"input_tokens":%d,`, count.Input); !strings.Contains(string(body),
		`"type":"message_start"`) ||
		!strings.Contains(string(body), want) && !strings.Contains(string(body), `"cache_read_input_tokens":`) ||
		!strings.HasSuffix(string(body), "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n") {
		t.Errorf("%s", body)
	}
	_, _, body = post(t, web, "/v1/messages", `{"thinking":{"type":"disabled"},`+question+`}`)
	if strings.Contains(string(body), "let me see") {
		t.Errorf("it thinks: %s", body)
	}
	status, _, body = post(t, web, "/v1/messages", `{"max_tokens":5,"messages":[{"role":"user","content":"`+
		strings.Repeat("x", 2<<20)+`"}]}`)
	if status != http.StatusRequestEntityTooLarge ||
		!strings.HasPrefix(string(body), `{"type":"error","error":{"type":"request_too_large"`) {
		t.Errorf("%d %s", status, body)
	}
	r.nothingLeft()
}

// Responses on the daemon: a second turn continues the first, and finds its prompt in the cache.
func TestResponses(t *testing.T) {
	r := serve(t, fake.Config{Scripts: []fake.Script{{Emit: "<think>hm</think>It is 42."}}})
	web := r.web()
	type response struct {
		ID, Status string
		Output     []struct {
			Type    string
			Content []struct{ Text string }
		}
		Usage struct {
			Input     int `json:"input_tokens"`
			InputWith struct {
				Cached int `json:"cached_tokens"`
			} `json:"input_tokens_details"`
		}
	}
	ask := func(body string) (got response) {
		t.Helper()
		status, _, out := post(t, web, "/v1/responses", body)
		if err := json.Unmarshal(out, &got); err != nil || status != http.StatusOK {
			t.Fatalf("%s: %d %s: %v", body, status, out, err)
		}
		return got
	}
	first := ask(`{"input":"question","instructions":"Be brief.","temperature":0}`)
	if first.Status != "completed" || len(first.Output) != 2 || first.Output[0].Type != "reasoning" ||
		first.Output[1].Content[0].Text != "It is 42." {
		t.Fatalf("%+v", first)
	}
	second := ask(`{"previous_response_id":"` + first.ID + `","input":"again","instructions":"Be ` +
		`brief.","temperature":0}`)
	if second.Usage.Input <= first.Usage.Input || second.Usage.InputWith.Cached < first.Usage.Input/2 {
		t.Errorf("%+v after %+v", second, first)
	}
	r.nothingLeft()
}

// A request is found by its id from another connection of the same user, with its further answers.
func TestCancelByID(t *testing.T) {
	r := serve(t, fake.Config{}, "-c", "262144")
	c := r.dial()
	for _, id := range []string{"chatcmpl-1", "chatcmpl-1-1", "chatcmpl-12"} {
		q := wire.DefaultRequest()
		q.ID, q.Prompt, q.MaxTokens = id, "x", 100000
		s, err := c.Stream(t.Context(), &q)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Next(); err != nil {
			t.Fatal(err)
		}
	}
	uid := r.anyone()
	if n := len(r.named(uid+1, "chatcmpl-1")); n != 0 {
		t.Errorf("another user finds %d", n)
	}
	found := r.named(uid, "chatcmpl-1")
	var ids []string
	for _, q := range found {
		ids = append(ids, q.wireID)
	}
	slices.Sort(ids)
	if !slices.Equal(ids, []string{"chatcmpl-1", "chatcmpl-1-1"}) {
		t.Errorf("found %q", ids)
	}
	c.Close()
	r.nothingLeft()
}

// anyone is the user of one of the connections with requests in flight.
func (r *running) anyone() (uid uint32) {
	r.sessions.Each(func(q *request) { uid = q.conn.UID() })
	return uid
}

// Answers to one question share their prompt: it is computed once.
func TestSeveralAnswersShareTheirPrompt(t *testing.T) {
	r := serve(t, fake.Config{Scripts: []fake.Script{{Emit: "ok"}}})
	web := r.web()
	_, _, body := post(t, web, "/v1/chat/completions", `{"n":4,"messages":[{"role":"user","content":"`+
		strings.Repeat("question ", 100)+`"}]}`)
	var whole completed
	if err := json.Unmarshal(body, &whole); err != nil || len(whole.Choices) != 4 {
		t.Fatalf("%s: %v", body, err)
	}
	resp, err := web.Get("http://uma/why?last=4")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var why reports.WhyReport
	if err := json.NewDecoder(resp.Body).Decode(&why); err != nil || len(why.Requests) != 4 {
		t.Fatalf("%+v: %v", why, err)
	}
	computed := 0
	for _, q := range why.Requests {
		if !strings.HasPrefix(q.Request, whole.ID) {
			t.Errorf("request %q of answer %q", q.Request, whole.ID)
		}
		computed += q.Usage.PromptTokens - q.Usage.CachedTokens
	}
	if most := whole.Usage.Prompt + 4*16; computed > most { // the last block of a prompt is not shared
		t.Errorf("%d prompt tokens were computed for four answers to %d", computed, whole.Usage.Prompt)
	}
	r.nothingLeft()
}

// Over HTTP, a request is ended and its thinking is closed by its id.
func TestCancelOverHTTP(t *testing.T) {
	r := serve(t, fake.Config{}, "-c", "262144")
	c := r.dial()
	q := wire.DefaultRequest()
	q.ID, q.Prompt, q.MaxTokens = "mine", "x", 100000
	s, err := c.Stream(t.Context(), &q)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Next(); err != nil {
		t.Fatal(err)
	}
	web := r.web()
	for _, path := range []string{"/end_think", "/cancel"} {
		if status, _, body := post(t, web, path, `{"id":"mine"}`); status != http.StatusOK ||
			strings.TrimSpace(string(body)) != `{"id":"mine","found":true}` {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if a := collect(s); a.err != nil || a.eos.Reason != wire.Cancelled {
		t.Errorf("%+v", a)
	}
	if status, _, body := post(t, web, "/cancel", `{"id":"other"}`); status != http.StatusOK ||
		!strings.Contains(string(body), `"found":false`) {
		t.Errorf("%d %s", status, body)
	}
	r.nothingLeft()
}

// A turn with a tool over each API: the call comes streamed, its result goes back, the answer follows.
func TestToolTurnOverEachAPI(t *testing.T) {
	r := serve(t, fake.Config{Template: callTemplate, Scripts: []fake.Script{
		{After: "sunny<|im_end|>\n<|im_start|>assistant\n", Emit: "It is sunny."},
		{Emit: `<think>hm</think>Ok.<tool_call>{"name": "get_weather", "arguments": {"city": "Bern"}}</tool_call>`},
	}}, "-c", "16384")
	web := r.web()
	call := func(body []byte, id string) string {
		t.Helper()
		_, rest, ok := strings.Cut(string(body), id)
		if !ok {
			t.Fatalf("no call in %s", body)
		}
		found, _, _ := strings.Cut(rest, `"`)
		return found
	}
	const schema = `{"type":"object","properties":{"city":{"type":"string"}}}`

	tools := `"store":false,"temperature":0,"tools":[{"type":"function","name":"get_weather","parameters":` + schema +
		`}]`
	_, _, body := post(t, web, "/v1/responses", `{"input":"weather?","stream":true,`+tools+`}`)
	id := call(body, `"call_id":"`)
	if !strings.Contains(string(body), `"arguments":"{\"city\": \"Bern\"}"`) {
		t.Errorf("responses: %s", body)
	}
	_, _, body = post(t, web, "/v1/responses",
		`{"input":[{"role":"user","content":"weather?"},{"type":"function_call","call_id":"`+id+
			`","name":"get_weather","arguments":"{\"city\": \"Bern\"}"},{"type":"function_call_output","call_id":"`+id+
			`","output":"sunny"}],`+tools+`}`)
	if !strings.Contains(string(body), `"text":"It is sunny."`) {
		t.Errorf("responses: %s", body)
	}

	tools = `"max_tokens":100,"temperature":0,"tools":[{"name":"get_weather","input_schema":` + schema + `}]`
	_, _, body = post(t, web, "/v1/messages", `{"stream":true,"messages":[{"role":"user","content":"weather?"}],`+tools+
		`}`)
	id = call(body, `{"type":"tool_use","id":"`)
	var made forcedCall
	list, err := sseData(body)
	for _, v := range list {
		made.messages(v)
	}
	if err != nil || made.arguments != `{"city": "Bern"}` || made.reason != "tool_use" {
		t.Errorf("messages: %+v, %v: %s", made, err, body)
	}
	_, _, body = post(t, web, "/v1/messages", `{"messages":[{"role":"user","content":"weather?"},{"role":"assistant",`+
		`"content":[{"type":"text","text":"Ok."},{"type":"tool_use","id":"`+id+
		`","name":"get_weather","input":{"city":"Bern"}}]},{"role":"user","content":[{"type":"tool_result",`+
		`"tool_use_id":"`+id+`","content":"sunny"}]}],`+tools+`}`)
	if !strings.Contains(string(body), `"text":"It is sunny."`) {
		t.Errorf("messages: %s", body)
	}
	status, _, body := post(t, web, "/v1/messages/count_tokens", `{"messages":[{"role":"user","content":"weather?"}],`+
		tools+`}`)
	if status != http.StatusOK {
		t.Errorf("count_tokens: %s", body)
	}
	r.nothingLeft()
}
