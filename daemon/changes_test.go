package daemon

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/model/template"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// TestWhyTellsOfChangedConversations: a conversation in a shape that the template refuses is answered, and why says
// what was changed.
func TestWhyTellsOfChangedConversations(t *testing.T) {
	source, _ := template.Builtin("mistral")
	r := serve(t, fake.Config{Template: source}, "-c", "4096")
	web := r.web()
	for path, body := range map[string]string{
		"/v1/chat/completions": `{"max_tokens":2,"messages":[{"role":"user","content":"a"},` +
			`{"role":"system","content":"c"}]}`,
		"/v1/responses": `{"max_output_tokens":2,"input":[{"role":"user","content":"a"},` +
			`{"role":"system","content":"c"}]}`,
		"/api/chat": `{"stream":false,"options":{"num_predict":2},"messages":[{"role":"user","content":"a"},` +
			`{"role":"system","content":"c"}]}`,
	} {
		status, _, out, why := r.asked(web, path, body)
		if status != http.StatusOK ||
			!strings.Contains(why, "A system message behind the first turn was put into the user message") {
			t.Errorf("%s: %d %s\nwhy: %s", path, status, out, why)
		}
	}
	r.nothingLeft()
}

// TestBillingHeaderOverEachAPI: two conversations that differ in the varying parts of Claude Code's first line alone
// are one prompt, in each API that Claude Code's proxies speak, and in count_tokens.
func TestBillingHeaderOverEachAPI(t *testing.T) {
	r := serve(t, fake.Config{}, "-c", "8192")
	web := r.web()
	header := func(suffix, cch string) string {
		return fmt.Sprintf("x-anthropic-billing-header: cc_version=2.1.332.%s; cc_entrypoint=cli; cch=%s;", suffix, cch)
	}
	for path, body := range map[string]string{
		"/v1/messages": `{"max_tokens":2,"system":[{"type":"text","text":"HEADER"},{"type":"text",` +
			`"text":"You help."}],"messages":[{"role":"user","content":"a question of messages"}]}`,
		"/v1/chat/completions": `{"max_tokens":2,"messages":[{"role":"system","content":"HEADER\nYou help."},` +
			`{"role":"user","content":"a question of chats"}]}`,
		"/v1/responses": `{"max_output_tokens":2,"instructions":"HEADER\nYou help.","input":"a question of responses"}`,
	} {
		var prompts [2]int
		for i, line := range []string{header("a1b", "5e6f7"), header("c2d", "0")} {
			status, _, out := post(t, web, path, strings.Replace(body, "HEADER", line, 1))
			if status != http.StatusOK {
				t.Fatalf("%s: %d %s", path, status, out)
			}
			prompt, cached := cachedOf(t, out)
			if prompts[i] = prompt; i == 1 && cached < prompt-1 {
				t.Errorf("%s: %d of %d tokens cached", path, cached, prompt)
			}
		}
		if prompts[0] != prompts[1] {
			t.Errorf("%s: prompts of %v tokens", path, prompts)
		}
		if path != "/v1/messages" {
			continue
		}
		_, _, out := post(t, web, "/v1/messages/count_tokens", strings.Replace(body, "HEADER", header("d3e", "123"), 1))
		if n := decode[struct {
			Input int `json:"input_tokens"`
		}](t, out).Input; n != prompts[0] {
			t.Errorf("count_tokens: %d, the prompt has %d", n, prompts[0])
		}
	}
	r.nothingLeft()
}
