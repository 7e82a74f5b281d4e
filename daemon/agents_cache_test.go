package daemon

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/runtime/fake"
)

// cachedOf are a prompt's tokens and those of them that were cached, as an answer of any API tells them.
func cachedOf(t *testing.T, body []byte) (prompt, cached int) {
	t.Helper()
	type details struct {
		Cached int `json:"cached_tokens"`
	}
	var a struct {
		Usage struct {
			Prompt  int      `json:"prompt_tokens"`
			Input   int      `json:"input_tokens"`
			Read    *int     `json:"cache_read_input_tokens"`
			Details *details `json:"prompt_tokens_details"`
			Inputs  *details `json:"input_tokens_details"`
		}
	}
	if err := json.Unmarshal(body, &a); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	switch u := a.Usage; {
	case u.Read != nil:
		return u.Input + *u.Read, *u.Read
	case u.Inputs != nil:
		return u.Input, u.Inputs.Cached
	case u.Details != nil:
		return u.Prompt, u.Details.Cached
	}
	t.Fatalf("no usage: %s", body)
	return 0, 0
}

// Claude Code's shape: a header that changes with each request, a long system prompt, many tools, facts of the folder
// in the first message. A later turn computes what is new; so does a new conversation in the same folder.
func TestChangingHeaderKeepsThePrefix(t *testing.T) {
	const reply = "Fine."
	r := serve(t, fake.Config{Template: publishedTemplate(t, "Qwen3-Coder"),
		Scripts: []fake.Script{{After: "<|im_start|>assistant\n", Emit: reply}}}, "--ctx-size", "65536")
	web := r.web()
	var tools []string
	for i := range 20 {
		tools = append(tools, fmt.Sprintf(`{"name":"tool_%d","description":%q,"input_schema":{"type":"object",`+
			`"properties":{"path":{"type":"string"}},"required":["path"]}}`, i, strings.Repeat("does something ", 20)))
	}
	ask := func(suffix, cch string, messages ...string) (prompt, cached int) {
		t.Helper()
		header := fmt.Sprintf("x-anthropic-billing-header: cc_version=2.1.332.%s; cc_entrypoint=cli; cch=%s;", suffix,
			cch)
		status, _, out := post(t, web, "/v1/messages", `{"max_tokens":20,"temperature":0,"system":[{"type":"text",`+
			`"text":"`+header+`"},{"type":"text","text":"`+strings.Repeat("You are an agent. ", 200)+`",`+
			`"cache_control":{"type":"ephemeral"}}],"tools":[`+strings.Join(tools, ",")+`],"messages":[`+
			strings.Join(messages, ",")+`]}`)
		if status != http.StatusOK {
			t.Fatalf("%d %s", status, out)
		}
		return cachedOf(t, out)
	}
	user := func(text string) string {
		return `{"role":"user","content":[{"type":"text","text":"<system-reminder>The folder is /src.` +
			strings.Repeat(" It has files.", 50) + `</system-reminder>"},{"type":"text","text":"` + text + `"}]}`
	}
	first, _ := ask("a1b", "11111", user("rename the function"))
	turn := []string{user("rename the function"), `{"role":"assistant","content":"` + reply + `"}`,
		`{"role":"user","content":"and its test"}`}
	prompt, cached := ask("a1b", "22222", turn...)
	t.Logf("a later turn: %d of %d tokens cached", cached, prompt)
	if cached < first-1 {
		t.Errorf("a later turn: %d of %d tokens cached; the first turn had %d", cached, prompt, first)
	}
	prompt, cached = ask("c2d", "33333", user("explain the build"))
	t.Logf("a new conversation: %d of %d tokens cached, %.1f %%", cached, prompt, 100*float64(cached)/float64(prompt))
	if float64(cached) < 0.8*float64(prompt) {
		t.Errorf("a new conversation: %d of %d tokens cached", cached, prompt)
	}
}

// gpt-oss shows a thought before a call until the next answer: the history that a client sends with the result equals
// the generated tokens, so only the result is computed. (The template writes a call's recipient before its channel. A
// call that the model writes the other way round is computed again, some 15 tokens; its thought is not.)
func TestThoughtsBeforeCallsStayCached(t *testing.T) {
	const call = " to=functions.now<|channel|>commentary json<|message|>{\"zone\": \"utc\"}"
	thought := "<|channel|>analysis<|message|>" + strings.TrimSpace(strings.Repeat("I need the time. ", 20))
	r := serve(t, fake.Config{Template: publishedTemplate(t, "openai-gpt-oss-120b"), Markers: harmonyMarkers,
		Scripts: []fake.Script{{After: "what time?<|end|><|start|>assistant", Emit: thought + another + call},
			{After: "<|start|>assistant", Emit: inWords}}}, "--ctx-size", "32768")
	web := r.web()
	const parameters = `{"type":"object","properties":{"zone":{"type":"string"}},"required":["zone"]}`
	ask := func(path, body string) []byte {
		t.Helper()
		status, _, out := post(t, web, path, body)
		if status != http.StatusOK {
			t.Fatalf("%s: %d %s", path, status, out)
		}
		return out
	}
	into := func(body []byte, v any) {
		t.Helper()
		if err := json.Unmarshal(body, v); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
	}
	check := func(path string, first, second []byte, generated int) {
		t.Helper()
		before, _ := cachedOf(t, first)
		prompt, cached := cachedOf(t, second)
		t.Logf("%s: %d of %d tokens cached; the first prompt had %d, its answer %d", path, cached, prompt, before,
			generated)
		if cached < before+generated-3 { // but for the marker that ends it
			t.Errorf("%s: %d of %d tokens cached; the first prompt had %d, its answer %d", path, cached, prompt, before,
				generated)
		}
	}
	t.Run("chat completions", func(t *testing.T) {
		rest := `"max_tokens":900,"temperature":0,"tools":[{"type":"function","function":{"name":"now","parameters":` +
			parameters + `}}]}`
		const user = `{"role":"user","content":"what time?"}`
		first := ask("/v1/chat/completions", `{"messages":[`+user+`],`+rest)
		var a struct {
			Choices []struct{ Message json.RawMessage }
			Usage   struct {
				Completion int `json:"completion_tokens"`
			}
		}
		into(first, &a)
		var m struct {
			Calls []struct{ ID string } `json:"tool_calls"`
		}
		into(a.Choices[0].Message, &m)
		if len(m.Calls) != 1 {
			t.Fatalf("%s", first)
		}
		second := ask("/v1/chat/completions", `{"messages":[`+user+`,`+string(a.Choices[0].Message)+
			`,{"role":"tool","tool_call_id":"`+m.Calls[0].ID+`","content":"noon"}],`+rest)
		check("/v1/chat/completions", first, second, a.Usage.Completion)
	})
	messages := func(t *testing.T, thinking string, types ...string) {
		rest := `"max_tokens":900,"temperature":0,` + thinking + `"tools":[{"name":"now","input_schema":` + parameters +
			`}]}`
		const user = `{"role":"user","content":"what time?"}`
		first := ask("/v1/messages", `{"messages":[`+user+`],`+rest)
		var a struct {
			Content json.RawMessage
			Usage   struct {
				Output int `json:"output_tokens"`
			}
		}
		into(first, &a)
		var blocks []struct{ Type, ID string }
		into(a.Content, &blocks)
		var got []string
		for _, b := range blocks {
			got = append(got, b.Type)
		}
		if !slices.Equal(got, types) {
			t.Fatalf("%s", first)
		}
		second := ask("/v1/messages", `{"messages":[`+user+`,{"role":"assistant","content":`+string(a.Content)+
			`},{"role":"user","content":[{"type":"tool_result","tool_use_id":"`+
			blocks[len(blocks)-1].ID+`","content":"noon"}]}],`+rest)
		check("/v1/messages", first, second, a.Usage.Output)
	}
	t.Run("messages", func(t *testing.T) { messages(t, "", "tool_use") })
	t.Run("messages, thinking", func(t *testing.T) {
		messages(t, `"thinking":{"type":"adaptive"},`, "thinking", "tool_use")
	})
	t.Run("responses", func(t *testing.T) {
		rest := `"max_output_tokens":900,"temperature":0,"tools":[{"type":"function","name":"now","parameters":` +
			parameters + `}]}`
		const user = `{"role":"user","content":"what time?"}`
		first := ask("/v1/responses", `{"input":[`+user+`],`+rest)
		var a struct {
			ID     string
			Output []struct {
				Type string
				Call string `json:"call_id"`
			}
			Usage struct {
				Output int `json:"output_tokens"`
			}
		}
		into(first, &a)
		if len(a.Output) != 2 || a.Output[1].Type != "function_call" {
			t.Fatalf("%s", first)
		}
		second := ask("/v1/responses", `{"previous_response_id":"`+a.ID+`","input":[{"type":"function_call_output",`+
			`"call_id":"`+a.Output[1].Call+`","output":"noon"}],`+rest)
		check("/v1/responses", first, second, a.Usage.Output)
	})
}
