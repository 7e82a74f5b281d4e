package daemon

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// lines reads a stream of ollama's: one object a line, the last of which is done.
func lines(t *testing.T, web *http.Client, path, body string) (list []object) {
	t.Helper()
	status, head, answer := post(t, web, path, body)
	if status != 200 || head.Get("Content-Type") != "application/x-ndjson" {
		t.Fatalf("%s: %d %v %s", body, status, head, answer)
	}
	for line := range strings.Lines(string(answer)) {
		o := decode[object](t, []byte(line))
		if len(list) > 0 && list[len(list)-1]["done"] != false || o["model"] == "" || o["created_at"] == "" {
			t.Fatalf("%s", answer)
		}
		list = append(list, o)
	}
	last := list[len(list)-1]
	if last["done"] != true || number(t, last, "total_duration") <= 0 || number(t, last, "prompt_eval_count") <= 0 ||
		number(t, last, "eval_count") <= 0 {
		t.Fatalf("%v", last)
	}
	return list
}

func TestOllamaChat(t *testing.T) {
	r := serve(t, fake.Config{Scripts: []fake.Script{{Emit: "<think>let me see</think>It is\n42."}}})
	web := r.web()
	const question = `"model":"qwen3","messages":[{"role":"user","content":"question"}],"options":{"temperature":0,` +
		`"num_ctx":8192`
	think, text := "", ""
	list := lines(t, web, "/api/chat", `{`+question+`}}`)
	for _, o := range list {
		m := o["message"].(object)
		text += m["content"].(string)
		if s, ok := m["thinking"].(string); ok {
			think += s
		}
		if m["role"] != "assistant" || o["model"] != "qwen3" {
			t.Errorf("%v", o)
		}
	}
	if think != "let me see" || text != "It is\n42." || list[len(list)-1]["done_reason"] != "stop" {
		t.Errorf("%q %q %v", think, text, list[len(list)-1])
	}
	a := complete(t, web, "/api/chat", `{`+question+`,"num_predict":20},"stream":false}`)
	if m := a["message"].(object); a["done"] != true || a["done_reason"] != "length" || m["thinking"] != think ||
		!strings.HasPrefix(text, m["content"].(string)) || number(t, a, "eval_count") != 20 {
		t.Errorf("%v", a)
	}
	for _, path := range []string{"/api/chat", "/api/generate"} {
		if a := complete(t, web, path, `{"model":"qwen3"}`); a["done"] != true || a["done_reason"] != "load" {
			t.Errorf("%v", a)
		}
	}
	status, _, body := post(t, web, "/api/chat", `{`+question+`,"top_k":"many"}}`)
	e, ok := decode[object](t, body)["error"].(string)
	if status != 400 || !ok || !strings.Contains(e, `"options.top_k"`) {
		t.Errorf("%d %s", status, body)
	}
	r.nothingLeft()
}

// TestOllamaGenerate: a prompt, its continuation by context, a raw prompt.
func TestOllamaGenerate(t *testing.T) {
	r := serve(t, fake.Config{Scripts: []fake.Script{
		{After: "first<|im_end|>\n<|im_start|>assistant\n", Emit: "one"},
		{After: "one<|im_start|>user\nsecond<|im_end|>\n<|im_start|>assistant\n", Emit: "two"},
		{After: "<|im_start|>raw", Emit: "three"},
	}})
	web := r.web()
	const options = `,"options":{"temperature":0}`
	list := lines(t, web, "/api/generate", `{"model":"m","prompt":"first","system":"s"`+options+`}`)
	text := ""
	for _, o := range list {
		text += o["response"].(string)
	}
	context, err := json.Marshal(list[len(list)-1]["context"])
	if err != nil || text != "one" {
		t.Fatalf("%q %v", text, err)
	}
	a := complete(t, web, "/api/generate", `{"prompt":"second","stream":false,"context":`+string(context)+options+`}`)
	if a["response"] != "two" || len(a["context"].([]any)) <= len(list[len(list)-1]["context"].([]any)) ||
		a["model"] != r.model.Load().Info.Name {
		t.Errorf("%v", a)
	}
	if a = complete(t, web, "/api/generate", `{"prompt":"<|im_start|>raw","raw":true,"stream":false`+options+
		`}`); a["response"] != "three" || a["context"] != nil {
		t.Errorf("%v", a)
	}
	status, _, body := post(t, web, "/api/generate", `{"prompt":"a","suffix":"b"}`)
	if e, ok := decode[object](t, body)["error"].(string); status != 400 || !ok ||
		!strings.Contains(e, "filling in the middle") {
		t.Errorf("%d %s", status, body)
	}
	r.nothingLeft()
}

// TestOllamaTools is a turn with a tool.
func TestOllamaTools(t *testing.T) {
	r := serve(t, fake.Config{Template: callTemplate, Scripts: []fake.Script{
		{After: "sunny<|im_end|>\n<|im_start|>assistant\n", Emit: "It is sunny."},
		{Emit: `Ok.<tool_call>{"name": "get_weather", "arguments": {"location": "Paris"}}</tool_call>`},
	}})
	web := r.web()
	const tools = `"tools":[{"type":"function","function":{"name":"get_weather","description":"The ` +
		`weather","parameters":{"type":"object","properties":{"location":{"type":"string"}},"required":["location"]}}` +
		`}],"options":{"temperature":0}`
	const ask = `{"role":"user","content":"question"}`
	var said []any
	for _, o := range lines(t, web, "/api/chat", `{"messages":[`+ask+`],`+tools+`}`) {
		if calls, ok := o["message"].(object)["tool_calls"]; ok {
			said = append(said, calls.([]any)...)
		}
	}
	if len(said) != 1 {
		t.Fatalf("%v", said)
	}
	f := said[0].(object)["function"].(object)
	if f["name"] != "get_weather" || f["arguments"].(object)["location"] != "Paris" {
		t.Errorf("%v", f)
	}
	call, err := json.Marshal(said)
	if err != nil {
		t.Fatal(err)
	}
	a := complete(t, web, "/api/chat", `{"stream":false,"messages":[`+ask+`,{"role":"assistant","content":"Ok.",`+
		`"tool_calls":`+string(call)+`},{"role":"tool","content":"sunny","tool_name":"get_weather"}],`+tools+`}`)
	if m := a["message"].(object); m["content"] != "It is sunny." || a["done_reason"] != "stop" {
		t.Errorf("%v", a)
	}
	r.nothingLeft()
}

func TestOllamaModels(t *testing.T) {
	r := serve(t, fake.Config{Pooling: runtime.PoolRank})
	web := r.web()
	name := r.model.Load().Info.Name + ":latest" // as ollama's lists have it; requests may leave the tag out
	for _, path := range []string{"/api/tags", "/api/ps"} {
		_, body := get(t, web, path)
		models := decode[map[string][]struct {
			Name, Model, Digest string
			Size                int
			Details             struct{ Format, Family string }
		}](t, body)["models"]
		if len(models) != 1 || models[0].Name != name || models[0].Model != name || len(models[0].Digest) != 64 ||
			models[0].Details.Format != "gguf" {
			t.Errorf("%s: %s", path, body)
		}
	}
	status, _, body := post(t, web, "/api/show", `{"model":"`+name+`"}`)
	if a := decode[object](t, body); status != 200 || a["template"] != fake.ChatML ||
		a["details"].(object)["format"] != "gguf" || a["capabilities"].([]any)[0] != "completion" {
		t.Errorf("%d %s", status, body)
	}
	if status, body := get(t, web, "/api/version"); status != 200 ||
		decode[map[string]string](t, body)["version"] == "" {
		t.Errorf("%d %s", status, body)
	}
	for path, want := range map[string]int{"/api/pull": 501, "/api/embed": 501, "/api/embeddings": 501,
		"/api/tags": 405, "/api/nothing": 404} {
		field := map[string]string{"/api/embed": "input", "/api/embeddings": "prompt"}[path]
		status, _, body := post(t, web, path, `{"`+field+`":"x"}`)
		if e, ok := decode[object](t, body)["error"].(string); status != want || !ok || e == "" {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	// GET / is the page, and ollama's word to its clients.
	for agent, want := range map[string]string{"ollama/0.17.4": "Ollama is running", "Mozilla/5.0": "<!doctype html>"} {
		req, err := http.NewRequest("GET", "http://uma/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("User-Agent", agent)
		resp, err := web.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != 200 || !strings.HasPrefix(strings.ToLower(string(body)),
			strings.ToLower(want)) {
			t.Errorf("%s: %d %.80s %v", agent, resp.StatusCode, body, err)
		}
		if head, err := web.Head("http://uma/"); err != nil || head.StatusCode != 200 {
			t.Errorf("HEAD /: %v %v", head, err)
		}
	}
}

// TestFormsOfTheOtherAPIs: a grammar and a schema bind the answers of llama-server's API and of ollama's.
func TestFormsOfTheOtherAPIs(t *testing.T) {
	r := serve(t, fake.Config{})
	web := r.web()
	a := complete(t, web, "/completion", `{"prompt":"x","n_predict":20,"grammar":"root ::= \"ab\"{3}"}`)
	if a["content"] != "ababab" || a["stop_type"] != "eos" ||
		a["generation_settings"].(object)["grammar"] != `root ::= "ab"{3}` {
		t.Errorf("%v", a)
	}
	const schema = `{"enum":["yes","no"]}`
	said := map[string]any{
		"/completion": complete(t, web, "/completion", `{"prompt":"x","json_schema":`+schema+`}`)["content"],
		"/api/generate": complete(t, web, "/api/generate", `{"prompt":"x","stream":false,"format":`+schema+
			`}`)["response"],
		"/api/chat": complete(t, web, "/api/chat", `{"messages":[{"role":"user","content":"x"}],"stream":false,`+
			`"format":`+schema+`}`)["message"].(object)["content"],
	}
	for path, text := range said {
		if text != `"yes"` && text != `"no"` {
			t.Errorf("%s: %q", path, text)
		}
	}
	status, _, body := post(t, web, "/completion", `{"prompt":"x","grammar":"root ::= nothing"}`)
	if status != 400 || !strings.Contains(string(body), "nothing") {
		t.Errorf("%d %s", status, body)
	}
	r.nothingLeft()
}
