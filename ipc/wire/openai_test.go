package wire

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestParseOpenAI(t *testing.T) {
	for _, c := range []struct {
		body string
		chat bool
		want string // the payload, or the beginning of the error
		w    OpenAIWants
	}{
		{`{"messages":[{"role":"user","content":"hi\u00e9\u2028"}],"model":"m","temperature":0.5}`, true,
			`{"stream":true,"id":"chatcmpl-7","messages":[{"role":"user","content":"hi\u00e9\u2028"}],"model":"m","temperature":0.5,"return_progress":false}`, OpenAIWants{}},
		{` { "prompt" : [ "x" ] , "stream":true, "stream_options":{"include_usage":true}, "id":7, "echo":false, "suffix":"", "best_of":1 } `, false,
			`{"stream":true,"id":"chatcmpl-7","prompt":"x","echo":false,"suffix":"","best_of":1,"return_progress":false}`, OpenAIWants{Stream: true, Usage: true}},
		{`{"prompt":"x","stream":null,"stream_options":null,"messages":null}`, false, `{"stream":true,"id":"chatcmpl-7","prompt":"x","return_progress":false}`, OpenAIWants{}},
		{`{"prompt":"x","stream_options":{"include_usage":null}}`, false, `{"stream":true,"id":"chatcmpl-7","prompt":"x","return_progress":false}`, OpenAIWants{}},
		{`{"prompt":"x","return_progress":true}`, false, `{"stream":true,"id":"chatcmpl-7","prompt":"x","return_progress":true}`, OpenAIWants{}},
		{`{"prompt":"x","stream_options":true}`, false, `error: field "stream_options" is`, OpenAIWants{}},
		{`{"prompt":"x","stream_options":{"include_usage":"yes"}}`, false, `error: field "stream_options.include_usage" is`, OpenAIWants{}},
		{`{"prompt":[1,2]}`, false, `error: field "prompt" is an array`, OpenAIWants{}},
		{`{"messages":[]}`, false, `error: field "messages" belongs to`, OpenAIWants{}},
		{`{"type":"metrics","prompt":"x"}`, false, `error: field "type" belongs to`, OpenAIWants{}},
		{`{"prompt":"x","metadata":{"a":1},"stream":false,"stream":true}`, false, `error: field "stream" is given twice`, OpenAIWants{}},
		{`{"prompt":"x","metadata":{"a":1}}`, false, `{"stream":true,"id":"chatcmpl-7","prompt":"x","return_progress":false}`, OpenAIWants{}},
		{`"prompt"`, false, `error: the body is a string`, OpenAIWants{}},
		{`{"prompt":"` + "\x01" + `"}`, false, `error: `, OpenAIWants{}},
		{``, false, `error: `, OpenAIWants{}},
	} {
		var p Parser
		got, w, err := ParseOpenAI(&p, "chatcmpl-7", []byte(c.body), c.chat)
		said := string(got)
		if err != nil {
			var bad *RequestError
			if !errors.As(err, &bad) || bad.ID != "" {
				t.Errorf("%s: %#v is no RequestError of nobody", c.body, err)
			}
			said = "error: " + strings.TrimPrefix(err.Error(), string(bad.Code)+": ")
		}
		if said != c.want && !(strings.HasPrefix(c.want, "error:") && strings.HasPrefix(said, c.want)) || err == nil && w != c.w {
			t.Errorf("%s\n got %s %+v\nwant %s %+v", c.body, said, w, c.want, c.w)
		}
	}
}

// FuzzParseOpenAI: whatever comes, the payload is one that Parse reads as a request or refuses, and says what the body
// said.
func FuzzParseOpenAI(f *testing.F) {
	f.Add([]byte(`{"messages":[{"role":"user","content":"hi"}],"stream":true}`), true)
	f.Add([]byte(`{"prompt":["x"],"logprobs":3,"stream_options":{"include_usage":false}}`), false)
	f.Add([]byte(`{"\u0069d":"1","prompt":"\ud83d\ude00","n":1e0}`), false)
	f.Add([]byte(`{"a":{"b":[1,2,{"c":null}]},"prompt":"x"}`), false)
	f.Fuzz(func(t *testing.T, body []byte, chat bool) {
		var p Parser
		payload, _, err := ParseOpenAI(&p, "chatcmpl-7", body, chat)
		if err != nil {
			return
		}
		if !json.Valid(payload) {
			t.Fatalf("%q became %q, which is not JSON", body, payload)
		}
		def := DefaultRequest()
		frame, err := Parse(&p, payload, &def)
		if err != nil {
			return
		}
		if frame.Kind != KindRequest || frame.ID != "chatcmpl-7" || !frame.Request.Stream {
			t.Fatalf("%q became %+v", body, frame)
		}
		var said struct {
			Prompt any
		}
		if json.Unmarshal(body, &said) == nil {
			if s, ok := said.Prompt.(string); ok && !chat && s != frame.Request.Prompt {
				t.Fatalf("prompt %q became %q", s, frame.Request.Prompt)
			}
		}
	})
}

func TestOpenAIAnswer(t *testing.T) {
	eos := &EOS{Reason: Length, Usage: Usage{PromptTokens: 10, CachedTokens: 4, CompletionTokens: 3, ThinkTokens: 1},
		Timings: Timings{Queue: time.Millisecond, TTFT: 4 * time.Millisecond, Prefill: 3 * time.Millisecond, Decode: 8 * time.Millisecond}}
	minus := float32(math.Inf(-1))
	tokens := []*Token{
		{Text: []byte("hm"), Phase: Thinking},
		{Text: []byte("\tü\n"), Phase: Output, HasLogprob: true, Logprob: -0.5, Top: []TokenLogprob{{Text: []byte("\tü\n"), Logprob: -0.5}, {Text: []byte{0xc3}, Logprob: minus}, {Text: []byte{0xc3}, Logprob: minus}}},
		{Phase: Output}, // the beginning of a character
		{Text: []byte("x"), Phase: Output, HasLogprob: true, Logprob: -1},
	}
	for _, chat := range []bool{true, false} {
		a := OpenAIAnswer{ID: "i", Model: "m\"", Created: time.Unix(5, 0), Chat: chat}
		whole := a
		var chunks []string
		add := func(b []byte) {
			if len(b) == 0 {
				return
			}
			if !json.Valid(b) {
				t.Fatalf("not JSON: %s", b)
			}
			chunks = append(chunks, string(b))
		}
		for _, tok := range tokens {
			add(a.AppendToken(nil, tok))
			whole.Keep(tok)
		}
		add(a.AppendProgress(nil, &Progress{Processed: 1, Total: 2, Elapsed: time.Second}))
		add(a.AppendLast(nil, eos))
		add(a.AppendUsage(nil, eos))
		add(whole.AppendWhole(nil, eos))
		const timings = `"timings":{"cache_n":4,"prompt_n":6,"prompt_ms":3,"prompt_per_second":2000,"predicted_n":3,"predicted_ms":8,"predicted_per_second":250,"queue_ms":1,"ttft_ms":4}`
		const usage = `"usage":{"prompt_tokens":10,"completion_tokens":3,"total_tokens":13,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":1}}`
		want := []string{
			`{"id":"i","object":"text_completion","created":5,"model":"m\"","choices":[{"index":0,"text":"\tü\n","logprobs":{"tokens":["\tü\n"],"token_logprobs":[-0.5],"top_logprobs":[{"\tü\n":-0.5,"�":-9999}],"text_offset":[0]},"finish_reason":null}]}`,
			`{"id":"i","object":"text_completion","created":5,"model":"m\"","choices":[{"index":0,"text":"x","logprobs":{"tokens":["x"],"token_logprobs":[-1],"top_logprobs":[{}],"text_offset":[3]},"finish_reason":null}]}`,
			`{"id":"i","object":"text_completion","created":5,"model":"m\"","choices":[],"prompt_progress":{"total":2,"processed":1,"time_ms":1000}}`,
			`{"id":"i","object":"text_completion","created":5,"model":"m\"","choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"length"}],` + timings + `}`,
			`{"id":"i","object":"text_completion","created":5,"model":"m\"","choices":[],` + usage + `}`,
			`{"id":"i","object":"text_completion","created":5,"model":"m\"","choices":[{"index":0,"text":"\tü\nx","logprobs":{"tokens":["\tü\n","x"],"token_logprobs":[-0.5,-1],"top_logprobs":[{"\tü\n":-0.5,"�":-9999},{}],"text_offset":[0,3]},"finish_reason":"length"}],` + usage + `,` + timings + `}`,
		}
		if chat {
			const first = `{"token":"\tü\n","logprob":-0.5,"bytes":[9,195,188,10],"top_logprobs":[{"token":"\tü\n","logprob":-0.5,"bytes":[9,195,188,10]},{"token":"\ufffd","logprob":-9999,"bytes":[195]},{"token":"\ufffd","logprob":-9999,"bytes":[195]}]}`
			const second = `{"token":"x","logprob":-1,"bytes":[120],"top_logprobs":[]}`
			want = []string{
				`{"id":"i","object":"chat.completion.chunk","created":5,"model":"m\"","choices":[{"index":0,"delta":{"role":"assistant","reasoning_content":"hm"},"logprobs":null,"finish_reason":null}]}`,
				`{"id":"i","object":"chat.completion.chunk","created":5,"model":"m\"","choices":[{"index":0,"delta":{"content":"\tü\n"},"logprobs":{"content":[` + first + `]},"finish_reason":null}]}`,
				`{"id":"i","object":"chat.completion.chunk","created":5,"model":"m\"","choices":[{"index":0,"delta":{"content":"x"},"logprobs":{"content":[` + second + `]},"finish_reason":null}]}`,
				`{"id":"i","object":"chat.completion.chunk","created":5,"model":"m\"","choices":[],"prompt_progress":{"total":2,"processed":1,"time_ms":1000}}`,
				`{"id":"i","object":"chat.completion.chunk","created":5,"model":"m\"","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}],` + timings + `}`,
				`{"id":"i","object":"chat.completion.chunk","created":5,"model":"m\"","choices":[],` + usage + `}`,
				`{"id":"i","object":"chat.completion","created":5,"model":"m\"","choices":[{"index":0,"message":{"role":"assistant","content":"\tü\nx","reasoning_content":"hm"},"logprobs":{"content":[` + first + `,` + second + `]},"finish_reason":"length"}],` + usage + `,` + timings + `}`,
			}
		}
		if !reflect.DeepEqual(chunks, want) {
			t.Errorf("chat %v:\n got %s\nwant %s", chat, strings.Join(chunks, "\n     "), strings.Join(want, "\n     "))
		}
	}
}

func TestOpenAIStatusOfEveryCode(t *testing.T) {
	for _, c := range Codes {
		status, kind := OpenAIStatus(c)
		if status < 400 || kind == "" || (status == 500) != (c == RuntimeDecode || c == InternalFailure) {
			t.Errorf("%s: %d %s", c, status, kind)
		}
		var got struct{ Error struct{ Code int } }
		if b := AppendOpenAIError(nil, &Error{Code: c, Message: "m\""}); json.Unmarshal(b, &got) != nil || got.Error.Code != status {
			t.Errorf("%s", b)
		}
	}
}

// TestDocumentedStatuses holds docs/protocol.md's table of HTTP statuses against the code.
func TestDocumentedStatuses(t *testing.T) {
	rows := 0
	for _, line := range strings.Split(section(t, "## HTTP: OpenAI's API"), "\n") {
		cols := strings.Split(strings.Trim(line, "|"), "|")
		status, err := strconv.Atoi(strings.TrimSpace(cols[0]))
		if err != nil || len(cols) != 3 {
			continue
		}
		rows++
		for _, c := range Codes {
			if !strings.Contains(cols[2], "`"+string(c)+"`") {
				continue
			}
			if s, kind := OpenAIStatus(c); s != status || "`"+kind+"`" != strings.TrimSpace(cols[1]) {
				t.Errorf("%s: documented as %d %s, is %d %s", c, status, cols[1], s, kind)
			}
		}
	}
	if rows != 7 {
		t.Errorf("%d rows found", rows)
	}
}
