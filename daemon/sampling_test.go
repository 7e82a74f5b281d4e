package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// tokensOf are a text's tokens in the fake vocabulary.
func (r *running) tokensOf(text string) []runtime.Token {
	r.t.Helper()
	tokens, err := r.model.Load().Vocab.Tokenize(nil, text, false, false)
	if err != nil {
		r.t.Fatal(err)
	}
	return tokens
}

// TestSamplingFieldsReachTheModel: each of the fields that constrain what is sampled, from the request to the answer.
func TestSamplingFieldsReachTheModel(t *testing.T) {
	r := serve(t, fake.Config{Scripts: []fake.Script{{Emit: "<think>a, b</think>one, two, three"}}})
	c := r.dial()
	for _, k := range []struct {
		name string
		edit func(*wire.Request)
		ok   func(answer) bool
	}{
		{"stop_token_ids", func(q *wire.Request) { q.Sampling.StopTokens = r.tokensOf(",") }, func(a answer) bool {
			return a.text == "one" && a.think == "a, b" && a.eos.Reason == wire.Stop && a.eos.StopText == ""
		}},
		{"min_tokens", func(q *wire.Request) { q.Sampling.MinTokens = 40 }, func(a answer) bool {
			return strings.HasPrefix(a.text, "one, two, three") && a.eos.Usage.CompletionTokens >= 40
		}},
		{"min_tokens and stop_token_ids", func(q *wire.Request) {
			q.Sampling.MinTokens, q.Sampling.StopTokens = 12, r.tokensOf(",")
		}, func(a answer) bool { return !strings.HasPrefix(a.text, "one,") && a.eos.Usage.CompletionTokens >= 12 }},
		{"bad_words", func(q *wire.Request) { q.BadWords = []string{"two", "x y"} }, func(a answer) bool {
			return strings.HasPrefix(a.text, "one, tw") && !strings.Contains(a.text, "two")
		}},
		{"allowed_token_ids", func(q *wire.Request) {
			q.Sampling.AllowedTokens, q.MaxTokens = r.tokensOf("xy"), 9
		}, func(a answer) bool {
			return strings.Trim(a.text, "xy") == "" && len(a.text) == 9 && a.eos.Reason == wire.Length
		}},
		{"logit_bias by text", func(q *wire.Request) {
			q.TextBias, q.MaxTokens = []wire.TextBias{{Text: "one", Bias: float32(math.Inf(-1))}}, 30
		}, func(a answer) bool { return !strings.ContainsAny(a.text+a.think, "one") }},
		{"dry and its breakers", func(q *wire.Request) {
			q.Sampling.DryMultiplier, q.DryBreaks = 1, []string{"<|im_end|>", ", t"}
		}, func(a answer) bool { return a.text == "one, two, three" }},
		{"mirostat, xtc, typical_p, top_n_sigma, dynatemp", func(q *wire.Request) {
			s := &q.Sampling
			s.Temperature, s.XTCProbability, s.TypicalP, s.TopNSigma, s.DynatempRange, s.Mirostat = 0.5, 0.5, 0.9, 1,
				0.25, 2
		}, func(a answer) bool { return a.text == "one, two, three" }},
	} {
		if a := r.ask(c, func(q *wire.Request) { q.MaxTokens = 60; k.edit(q) }); a.err != nil || !k.ok(a) {
			t.Errorf("%s: think %q, text %q, %+v, %v", k.name, a.think, a.text, a.eos, a.err)
		}
	}
	r.nothingLeft()
}

// TestForbiddingEveryTokenIsABadRequest: it names the fields, however they do it; the decode loop never sees it. Where
// the last token goes only while the answer is made, the request fails by the same fields.
func TestForbiddingEveryTokenIsABadRequest(t *testing.T) {
	r := serve(t, fake.Config{})
	web := r.web()
	all := r.model.Load().Vocab.Size()
	var every []string
	for i := range all {
		every = append(every, fmt.Sprintf(`"%d":false`, i))
	}
	for _, c := range []struct{ fields, says string }{
		{`"logit_bias":{` + strings.Join(every, ",") + `}`, "logit_bias forbids every token"},
		{`"logit_bias":{` + strings.Join(every[3:], ",") + `},"ignore_eos":true,"allowed_token_ids":[0,2]`,
			"logit_bias, ignore_eos, allowed_token_ids together forbid every token"},
		{`"allowed_token_ids":[70],"bad_words":["A"]`, "bad_words, allowed_token_ids together"},
		{`"allowed_token_ids":[70],"logit_bias":{"A":false}`, "logit_bias, allowed_token_ids together"},
		{`"allowed_token_ids":[0,2],"min_tokens":1`, "min_tokens, allowed_token_ids together"},
		{`"allowed_token_ids":[70],"bad_words":["AA"]`, "leave no token after 1 of the answer"},
		{`"allowed_token_ids":[]`, `allowed_token_ids\" is empty`},
		{`"allowed_token_ids":[261]`, "allowed_token_ids[0]: token 261 is not in the vocabulary"},
		{`"stop_token_ids":[300]`, "stop_token_ids[0]: token 300 is not in the vocabulary"},
	} {
		status, _, body := post(t, web, "/v1/completions", `{"prompt":"x","max_tokens":4,`+c.fields+`}`)
		if status != 400 || !strings.Contains(string(body), c.says) {
			t.Errorf("%.60s: %d %s; want %q", c.fields, status, body, c.says)
		}
	}
	r.nothingLeft()
}

// TestMaxTokensZeroFillsTheCache: the prompt is computed, no token comes, and the next request finds it.
func TestMaxTokensZeroFillsTheCache(t *testing.T) {
	r := serve(t, fake.Config{Scripts: []fake.Script{{Emit: "<think>hm</think>yes"}}})
	c := r.dial()
	a := r.ask(c, func(q *wire.Request) { q.FillOnly = true })
	if a.err != nil || a.tokens != 0 || a.text != "" || a.eos.Reason != wire.Length ||
		a.eos.Usage.CompletionTokens != 0 || a.eos.Usage.PromptTokens == 0 || a.eos.Usage.CachedTokens != 0 {
		t.Errorf("%+v", a)
	}
	b := r.ask(c, nil)
	if b.text != "yes" || b.eos.Usage.CachedTokens < a.eos.Usage.PromptTokens-1 {
		t.Errorf("%+v", b)
	}
	status, _, body := post(t, r.web(), "/v1/chat/completions", `{"max_tokens":0,`+openAIQuestion+`}`)
	var whole completed
	if json.Unmarshal(body, &whole); status != 200 || whole.Choices[0].Message.Content != "" ||
		*whole.Choices[0].Finish != "length" || whole.Usage.Completion != 0 {
		t.Errorf("%d %s", status, body)
	}
	r.nothingLeft()
}

// TestTrailingAssistantMessageIsContinued: the answer goes on where the message ends, with the template's own beginning
// of it; continue_final_message and add_generation_prompt say otherwise.
func TestTrailingAssistantMessageIsContinued(t *testing.T) {
	const template = `{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' }}{%- if m.reasoning_content %}{{- ` +
		`'<think>' + m.reasoning_content + '</think>' }}{%- endif %}` +
		`{{- m.content | trim + '<|im_end|>\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- ` +
		`'<|im_start|>assistant\n' }}{%- endif %}`
	r := serve(t, fake.Config{Template: template, Scripts: []fake.Script{
		{After: "<|im_start|>assistant\nOne, two, ", Emit: "three."},
		{After: "<|im_start|>assistant\n<think>So far", Emit: " so good</think>Fine."},
		{After: "<|im_end|>\n<|im_start|>assistant\n", Emit: "A new turn."},
		{After: "<|im_end|>\n", Emit: "Nothing opened."},
	}})
	c := r.dial()
	ask := func(edit func(*wire.Request)) answer {
		return r.ask(c, func(q *wire.Request) {
			q.Messages = append(q.Messages, wire.Message{Role: "assistant", Content: "One, two, "})
			if edit != nil {
				edit(q)
			}
		})
	}
	for name, k := range map[string]struct {
		edit        func(*wire.Request)
		text, think string
	}{
		"by default":              {nil, "three.", ""},
		"with thinking asked for": {func(q *wire.Request) { q.Think.Mode = wire.ThinkOn }, "three.", ""},
		"by continue_final_message": {func(q *wire.Request) { q.Continue, q.NoOpening = wire.ContinueOn, true },
			"three.", ""},
		"a new turn": {func(q *wire.Request) { q.Continue = wire.ContinueOff }, "A new turn.", ""},
		"without an opening": {func(q *wire.Request) { q.Continue, q.NoOpening = wire.ContinueOff, true },
			"Nothing opened.", ""},
		"without an opening, of a user": {func(q *wire.Request) { q.Messages, q.NoOpening = q.Messages[:1], true },
			"Nothing opened.", ""},
		"a thought": {func(q *wire.Request) {
			q.Messages[1] = wire.Message{Role: "assistant", ReasoningContent: "So far"}
		}, "Fine.", " so good"},
	} {
		if a := ask(k.edit); a.err != nil || a.text != k.text || a.think != k.think {
			t.Errorf("%s: %q after %q, %v", name, a.text, a.think, a.err)
		}
	}
	// The next turn begins with all of the message.
	r.nothingLeft()
	next := r.ask(c, func(q *wire.Request) {
		q.Messages = append(q.Messages, wire.Message{Role: "assistant", Content: "One, two, three."},
			wire.Message{Role: "user", Content: "go on"})
	})
	if want := len("user\nquestion\nassistant\nOne, two, three.") + 3; next.eos.Usage.CachedTokens < want {
		t.Errorf("the next turn found %d tokens, want %d: %+v", next.eos.Usage.CachedTokens, want, next.eos.Usage)
	}
	status, _, body := post(t, r.web(), "/v1/chat/completions",
		`{"temperature":0,"messages":[{"role":"user","content":"question"},{"role":"assistant","content":"One, two, `+
			`"}]}`)
	if status != 200 || !strings.Contains(string(body), `"content":"three."`) {
		t.Errorf("%d %s", status, body)
	}
	r.nothingLeft()
}

// A template that leaves out the last message's text is continued as it opens an answer.
func TestContinuedMessageThatTheTemplateHides(t *testing.T) {
	const template = `{%- for m in messages %}{%- if not (loop.last and m.role == 'assistant') %}{{- '<|im_start|>' ` +
		`+ m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endif %}{%- endfor %}` +
		`{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}`
	r := serve(t, fake.Config{Template: template,
		Scripts: []fake.Script{{After: "<|im_start|>assistant\nOne,", Emit: " two."}}})
	a := r.ask(r.dial(), func(q *wire.Request) {
		q.Messages = append(q.Messages, wire.Message{Role: "assistant", Content: "One,"})
	})
	if a.text != " two." {
		t.Errorf("%+v", a)
	}
	r.nothingLeft()
}

// written writes text as a JSON string in one of the many ways that are allowed: raw, short escapes, \u escapes.
func written(r *rand.Rand, text []rune) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range text {
		short := map[rune]string{'"': `\"`, '\\': `\\`, '/': `\/`, '\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`,
			'\t': `\t`}[c]
		switch {
		case short != "" && r.IntN(2) == 0:
			b.WriteString(short)
		case c >= 0x10000 && r.IntN(2) == 0:
			fmt.Fprintf(&b, `\u%04x\u%04X`, 0xd800+(c-0x10000)>>10, 0xdc00+(c-0x10000)&0x3ff)
		case c < 0x20 || c == '"' || c == '\\' || c >= 0xd800 && c < 0xe000 || c < 0x10000 && r.IntN(3) == 0:
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			b.WriteRune(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// anyText has control characters, NUL, halves of surrogate pairs, what is not printable, what is not in the first
// plane.
func anyText(r *rand.Rand) []rune {
	text := make([]rune, 1+r.IntN(12))
	for i := range text {
		switch r.IntN(6) {
		case 0:
			text[i] = rune(r.IntN(0x20))
		case 1:
			text[i] = []rune{'"', '\\', '/', 0x7f, 0x85, 0xad, 0x200b, 0x2028, 0x2029, 0xfeff, 0xfffd, 0xffff, 0xe0001,
				0x10ffff}[r.IntN(14)]
		case 2:
			text[i] = rune(0xd800 + r.IntN(0x800))
		case 3:
			text[i] = rune(0x10000 + r.IntN(0x100000))
		default:
			text[i] = rune(' ' + r.IntN(95))
		}
	}
	return text
}

// TestAnyStringOverHTTP: what JSON allows as a string passes as a prompt, as a message, in every field of text; and
// what the model says comes back as it is.
func TestAnyStringOverHTTP(t *testing.T) {
	r := serve(t, fake.Config{Scripts: []fake.Script{{Emit: "\x1b[31mred \x00\x7f\u200b\U000e0001 \"end\""}}})
	web := r.web()
	rnd := rand.New(rand.NewPCG(1, 1))
	texts := [][]rune{[]rune("\x1b[31mred"), {0}, {0xd83d}, {0xde00, 0xd83d}, {0xe0001}}
	for range 60 {
		texts = append(texts, anyText(rnd))
	}
	for _, text := range texts {
		s := written(rnd, text)
		var plain string
		if err := json.Unmarshal([]byte(s), &plain); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		status, _, body := post(t, web, "/v1/completions", `{"prompt":`+s+`,"max_tokens":1,"stop":[`+s+`],"user":`+s+
			`,"metadata":{"x":`+s+`},"bad_words":[`+s+`],"dry_multiplier":1,"dry_sequence_breakers":[`+
			written(rnd, text[:1])+`]}`)
		var got completed
		if json.Unmarshal(body, &got); status != 200 || got.Usage.Prompt != len(plain) {
			t.Errorf("prompt %s: %d %s", s, status, body)
		}
		status, _, body = post(t, web, "/v1/chat/completions",
			`{"temperature":0,"messages":[{"role":"system","content":[{"type":"text","text":`+s+
				`}]},{"role":"assistant","content":`+s+`,"reasoning_content":`+s+`},{"role":"user","content":`+s+
				`}],"think":{"answer_cue":`+s+`},"chat_template_kwargs":{"x":`+s+`}}`)
		got = completed{}
		if json.Unmarshal(body, &got); status != 200 || got.Choices[0].Message.Content != "\x1b[31mred "+
			"\x00\x7f\u200b\U000e0001 \"end\"" || !utf8.Valid(body) {
			t.Errorf("message %s: %d %s", s, status, body)
		}
	}
	r.nothingLeft()
}

// TestHTTPPaths: with and without /v1, one model, another method, another path.
func TestHTTPPaths(t *testing.T) {
	r := serve(t, fake.Config{Scripts: []fake.Script{{Emit: "ok"}}})
	web := r.web()
	name := r.model.Load().Info.Name
	for _, c := range []struct {
		method, path, body string
		status             int
		allow, says        string
	}{
		{"POST", "/chat/completions", "{" + openAIQuestion + "}", 200, "", `"content":"ok"`},
		{"POST", "/completions", `{"prompt":"x","max_tokens":1}`, 200, "", `"content":"`},
		{"POST", "/v1/completions", `{"prompt":"x","max_tokens":1}`, 200, "", `text_completion`},
		{"GET", "/models", "", 200, "", `"id":"` + name + `"`},
		{"GET", "/v1/models/" + name, "", 200, "", `"object":"model"`},
		{"GET", "/models/" + name, "", 200, "", `"id":"` + name + `"`},
		{"GET", "/v1/models/org/other", "", 404, "", `model \"org/other\" is not served here`},
		{"GET", "/v1/chat/completions", "", 405, "POST", `the method must be POST`},
		{"DELETE", "/completions", "", 405, "POST", `"code":405`},
		{"POST", "/v1/health", "{}", 405, "GET, HEAD", `the method must be GET, HEAD`},
		{"POST", "/v1/models", "{}", 501, "", `start uma-serve without --single to download`},
		{"DELETE", "/models?model=x", "", 501, "", `start uma-serve without --single to download`},
		{"PUT", "/metrics", "", 405, "GET, HEAD", `invalid_request_error`},
		{"OPTIONS", "/health", "", 405, "GET, HEAD", ``},
		{"GET", "/v1/nothing", "", 404, "", `GET /v1/nothing: there is no such path`},
		{"POST", "/v1/embeddings", "{}", 400, "", `field \"input\" is missing`},
	} {
		req, err := http.NewRequest(c.method, "http://uma"+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := web.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != c.status || resp.Header.Get("Allow") != c.allow ||
			!strings.Contains(string(body), c.says) || !json.Valid(body) {
			t.Errorf("%s %s: %d, Allow %q, %s, %v", c.method, c.path, resp.StatusCode, resp.Header.Get("Allow"), body,
				err)
		}
	}
	resp, err := web.Head("http://uma/health")
	if err != nil || resp.StatusCode != 200 {
		t.Errorf("HEAD /health: %v, %v", resp, err)
	}
	r.nothingLeft()
}

// TestWhyFindsAnHTTPRequest by the id that its client saw.
func TestWhyFindsAnHTTPRequest(t *testing.T) {
	r := serve(t, fake.Config{Scripts: []fake.Script{{Emit: "ok"}}})
	web := r.web()
	for path, body := range map[string]string{"/v1/chat/completions": "{" + openAIQuestion + "}",
		"/v1/completions": `{"prompt":"x","max_tokens":1}`} {
		_, _, answer := post(t, web, path, body)
		var got completed
		if err := json.Unmarshal(answer, &got); err != nil || got.ID == "" {
			t.Fatalf("%s %v", answer, err)
		}
		why, err := r.dial().Why(context.Background(), wire.WhyQuestion{Request: got.ID})
		if err != nil || len(why.Requests) != 1 || why.Requests[0].Request != got.ID ||
			why.Requests[0].Usage.CompletionTokens != got.Usage.Completion {
			t.Errorf("%s: %+v, %v", got.ID, why, err)
		}
	}
	r.nothingLeft()
}

// TestBodiesOfRealClients: what OpenAI's Python and JavaScript packages, LangChain, llama-server's web page and its
// tests send, as they send it.
func TestBodiesOfRealClients(t *testing.T) {
	r := serve(t, fake.Config{Scripts: []fake.Script{{Emit: "ok"}}})
	web := r.web()
	const user = `"messages":[{"role":"user","content":"question"}]`
	for _, c := range []struct{ path, body string }{
		{"chat/completions", `{` + user + `,"model":"gpt-4o","frequency_penalty":0,"max_completion_tokens":16,"n":1,` +
			`"parallel_tool_calls":false,"presence_penalty":0,"seed":7,"service_tier":"auto","stop":null,` +
			`"store":false,"stream":false,"temperature":0,"top_p":1,"user":"u","metadata":{"a":"b"},` +
			`"safety_identifier":"s","prompt_cache_key":"k","modalities":["text"],"response_format":{"type":"text"},` +
			`"tools":[],"tool_choice":"none","verbosity":"medium"}`},
		{"chat/completions", `{` + user + `,"model":"m","max_tokens":16,"max_completion_tokens":16,"stop":[],` +
			`"logit_bias":{"50":-100},"stream_options":{"include_usage":true,"include_obfuscation":false},` +
			`"prediction":{"type":"content","content":"x"}}`},
		{"chat/completions", `{` + user + `,"stream":false,"cache_prompt":true,"reasoning_format":"auto",` +
			`"samplers":"edskypmxt","temperature":0,"dynatemp_range":0,"dynatemp_exponent":1,"top_k":40,"top_p":0.95,` +
			`"min_p":0.05,"typical_p":1,"xtc_probability":0,"xtc_threshold":0.1,"repeat_last_n":64,` +
			`"repeat_penalty":1,"presence_penalty":0,"frequency_penalty":0,"dry_multiplier":0,"dry_base":1.75,` +
			`"dry_allowed_length":2,"dry_penalty_last_n":-1,"max_tokens":-1,"timings_per_token":true}`},
		{"completions", `{"prompt":"x","n_predict":4,"seed":-5,"id_slot":0,"n_probs":2,"stop":"",` +
			`"cache_prompt":false,"n_keep":0,"ignore_eos":false,"samplers":["top_k"],"top_k":1,"lora":[]}`},
		{"completions", `{"model":"m","prompt":["x"],"best_of":1,"echo":false,"logprobs":null,"suffix":null,` +
			`"max_tokens":1}`},
		{"chat/completions", `{"model":"m","messages":[{"role":"developer","content":"Be brief."},{"role":"user",` +
			`"name":"ann","content":[{"type":"text","text":"question"}]},{"role":"assistant","content":"a",` +
			`"refusal":null,"annotations":[],"audio":null,"function_call":null,"tool_calls":null},{"role":"user",` +
			`"content":"question"}],"min_tokens":0,"stop_token_ids":[],"skip_special_tokens":true,` +
			`"add_generation_prompt":true,"continue_final_message":false,` +
			`"chat_template_kwargs":{"enable_thinking":false}}`},
	} {
		if status, _, body := post(t, web, "/v1/"+c.path, c.body); status != 200 {
			t.Errorf("%s %s: %d %s", c.path, c.body, status, body)
		}
	}
	r.nothingLeft()
}

// verbosity is a variable of templates that know it, and ollama's options of loading a model are no error in any API.
func TestVerbosityAndLoadOptions(t *testing.T) {
	web := serve(t, fake.Config{Template: `{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}` +
		`[{{ verbosity }}]`}).web()
	for body, want := range map[string]string{
		`"verbosity":"low","num_ctx":4096,"use_mmap":true,"num_keep":4`: "[low]",
		`"verbosity":"low","chat_template_kwargs":{"verbosity":"high"}`: "[high]",
		`"verbosity":"loud"`: `field \"verbosity\" is \"loud\"; it must be one of`,
		`"num_gpu":99`:       "[]",
	} {
		_, _, got := post(t, web, "/apply-template", `{"messages":[{"role":"user","content":"x"}],`+body+`}`)
		if !strings.Contains(string(got), want) {
			t.Errorf("%s: %s", body, got)
		}
	}
}
