package daemon

import (
	"fmt"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/runtime/fake"
)

// TestOverflowInEachAPIsWords: a prompt that is longer than the context is refused in the words that each API's clients
// look for, in a stream, too.
func TestOverflowInEachAPIsWords(t *testing.T) {
	r := serve(t, fake.Config{}, "--ctx-size", "128")
	web := r.web()
	long := strings.Repeat("x", 300)
	messages := `"messages":[{"role":"user","content":"` + long + `"}]`
	const openai = `"code":"context_length_exceeded"`
	for _, c := range []struct {
		path, body string
		says       []string
	}{
		{"/v1/chat/completions", `{` + messages, []string{openai, `"param":"messages"`, `"n_ctx":128`,
			"This model's maximum context length is 128 tokens. However, your messages resulted in 3"}},
		{"/v1/completions", `{"prompt":"` + long + `"`, []string{openai, `"param":"prompt"`,
			"maximum context length is 128 tokens. However, your prompt resulted in 300 tokens"}},
		{"/v1/responses", `{"input":"` + long + `"`, []string{openai, "maximum context length is 128 tokens. However"}},
		{"/v1/messages", `{"max_tokens":5,` + messages, []string{`"type":"invalid_request_error"`,
			"prompt is too long: 3", " tokens \\u003e 128 maximum"}},
		{"/completion", `{"prompt":"` + long + `"`, []string{`"type":"exceed_context_size_error"`,
			`"n_prompt_tokens":300,"n_ctx":128`,
			"request (300 tokens) exceeds the available context size (128 tokens), try increasing it"}},
		{"/api/chat", `{` + messages, []string{`{"error":"the input length exceeds the context length`}},
		{"/api/generate", `{"prompt":"` + long + `"`,
			[]string{`{"error":"the input length exceeds the context length`}},
	} {
		for _, stream := range []string{"false", "true"} {
			status, _, body := post(t, web, c.path, c.body+`,"stream":`+stream+`}`)
			for _, want := range c.says {
				got := strings.ReplaceAll(string(body), ">", "\\u003e")
				if status != 400 || !strings.Contains(got, want) {
					t.Errorf("%s, stream %s: %d %s; want %s", c.path, stream, status, body, want)
				}
			}
		}
	}
	r.nothingLeft()
}

// TestPromptThatFillsTheContext: with n_predict 0 a prompt of n_ctx tokens is computed, beside others, too, and one of
// a token more is refused.
func TestPromptThatFillsTheContext(t *testing.T) {
	for _, args := range [][]string{nil, {"--context-shift"}, {"--no-prefix-cache"}} {
		r := serve(t, fake.Config{}, append([]string{"--ctx-size", "128"}, args...)...)
		web := r.web()
		for range 2 {
			a := complete(t, web, "/completion", fmt.Sprintf(`{"prompt":"%s","n_predict":0}`, strings.Repeat("x", 128)))
			if number(t, a, "tokens_evaluated") != 128 || number(t, a, "tokens_predicted") != 0 {
				t.Errorf("%v: %v", args, a)
			}
			complete(t, web, "/completion", `{"prompt":"other","n_predict":20}`)
		}
		for n, body := range map[int]string{128: `"n_predict":1`, 129: `"n_predict":0`} {
			if status, _, answer := post(t, web, "/completion", fmt.Sprintf(`{"prompt":"%s",%s}`,
				strings.Repeat("x", n), body)); status != 400 {
				t.Errorf("%v: %d tokens, %s: %d %s", args, n, body, status, answer)
			}
		}
		r.nothingLeft()
	}
}

// TestTruncatedPrompt: truncate_prompt_tokens keeps the end of a prompt, -1 as much as fits beside max_tokens, and
// return_token_ids shows which tokens were computed and sampled.
func TestTruncatedPrompt(t *testing.T) {
	r := serve(t, fake.Config{}, "--ctx-size", "128")
	web := r.web()
	long := strings.Repeat("x", 200) + "yz"
	for _, c := range []struct {
		path, prompt string
		keep, tokens int
	}{
		{"/v1/completions", `"prompt":"` + long + `"`, 5, 5},
		{"/v1/completions", `"prompt":"` + long + `"`, -1, 120},
		{"/v1/completions", `"prompt":"short"`, 100, 5},
		{"/v1/chat/completions", `"messages":[{"role":"user","content":"` + long + `"}]`, -1, 120},
		{"/v1/chat/completions", `"messages":[{"role":"user","content":"` + long + `"}]`, 9, 9},
	} {
		a := complete(t, web, c.path, fmt.Sprintf(`{%s,"max_tokens":8,"truncate_prompt_tokens":%d,`+
			`"return_token_ids":true,"ignore_eos":true}`, c.prompt, c.keep))
		choice := a["choices"].([]any)[0].(map[string]any)
		prompt, ok := a["prompt_token_ids"].([]any)
		if !ok {
			prompt, _ = choice["prompt_token_ids"].([]any)
		}
		answer, _ := choice["token_ids"].([]any)
		used := a["usage"].(map[string]any)["prompt_tokens"].(float64)
		if len(prompt) != c.tokens || int(used) != c.tokens || len(answer) != 8 {
			t.Errorf("%s, keep %d: %d prompt tokens (usage %v), %d of the answer; want %d and 8", c.path, c.keep,
				len(prompt), used, len(answer), c.tokens)
		}
	}
	r.nothingLeft()
}
