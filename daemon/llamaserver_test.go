package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// What llama-server's own tests (tools/server/tests/unit of llama.cpp) assert of its endpoints, asked of this daemon.
// Texts aside: the model is another.

// object is a JSON answer.
type object = map[string]any

func decode[T any](t *testing.T, body []byte) (v T) {
	t.Helper()
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return v
}

// complete asks for a completion that must succeed.
func complete(t *testing.T, web *http.Client, path, body string) object {
	t.Helper()
	status, _, answer := post(t, web, path, body)
	if status != 200 {
		t.Fatalf("%s: %d %s", body, status, answer)
	}
	return decode[object](t, answer)
}

// streamed are the chunks of a stream without [DONE], which llama-server's own form does not have.
func streamed(t *testing.T, web *http.Client, path, body string) (list []object) {
	t.Helper()
	status, head, answer := post(t, web, path, body)
	if status != 200 || head.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s: %d %v %s", body, status, head, answer)
	}
	for _, block := range strings.Split(strings.TrimSuffix(string(answer), "\n\n"), "\n\n") {
		data, ok := strings.CutPrefix(block, "data: ")
		if !ok {
			t.Fatalf("not an event: %q", block)
		}
		list = append(list, decode[object](t, []byte(data)))
	}
	return list
}

func number(t *testing.T, o object, path ...string) int {
	t.Helper()
	var v any = o
	for _, name := range path {
		v = v.(object)[name]
	}
	n, ok := v.(float64)
	if !ok {
		t.Fatalf("%v of %v is no number", path, o)
	}
	return int(n)
}

const meaning = `"prompt":"I believe the meaning of life is"` // 32 bytes, each a token

func TestLlamaServerCompletion(t *testing.T) {
	r := serve(t, fake.Config{}, "--seed", "7")
	web := r.web()
	for _, returned := range []bool{false, true} {
		a := complete(t, web, "/completion", fmt.Sprintf(`{%s,"n_predict":8,"return_tokens":%v}`, meaning, returned))
		if number(t, a, "timings", "prompt_n")+number(t, a, "timings", "cache_n") != 32 ||
			number(t, a, "timings", "predicted_n") != 8 ||
			number(t, a, "tokens_evaluated") != 32 || number(t, a, "tokens_predicted") != 8 ||
			a["truncated"] != false || a["stop_type"] != "limit" || a["stop"] != true || a["content"] == "" ||
			a["model"] != r.model.Load().Info.Name {
			t.Errorf("%v", a)
		}
		if _, ok := a["has_new_line"].(bool); !ok {
			t.Errorf("has_new_line is %v", a["has_new_line"])
		}
		if tokens := a["tokens"].([]any); returned != (len(tokens) == 8) || !returned && len(tokens) != 0 {
			t.Errorf("return_tokens %v: %v", returned, tokens)
		}
	}

	text := ""
	for _, chunk := range streamed(t, web, "/completion", `{`+meaning+`,"n_predict":8,"stream":true,"temperature":0}`) {
		text += chunk["content"].(string)
		if chunk["stop"] == false {
			if len(chunk["tokens"].([]any)) == 0 {
				t.Errorf("no tokens: %v", chunk)
			}
			continue
		}
		s := chunk["generation_settings"].(object)
		if number(t, chunk, "timings", "predicted_n") != 8 || chunk["truncated"] != false ||
			chunk["stop_type"] != "limit" ||
			number(t, s, "n_predict") != 8 || number(t, s, "seed") != 7 || s["adaptive_target"] == nil ||
			s["adaptive_decay"] == nil {
			t.Errorf("%v", chunk)
		}
	}
	if whole := complete(t, web, "/completion",
		`{`+meaning+`,"n_predict":8,"temperature":0}`); whole["content"] != text {
		t.Errorf("streamed %q, whole %q", text, whole["content"])
	}

	same, seeds := map[any]bool{}, map[any]bool{}
	for i := range 4 {
		same[complete(t, web, "/completions", `{`+meaning+`,"seed":42,"temperature":0.0,"n_predict":16,`+
			`"cache_prompt":false}`)["content"]] = true
		seeds[complete(t, web, "/completion",
			fmt.Sprintf(`{%s,"seed":%d,"temperature":1.0,"n_predict":16,"cache_prompt":false}`, meaning,
				i))["content"]] = true
	}
	if len(same) != 1 || len(seeds) != 4 {
		t.Errorf("one seed gave %d answers, four gave %d", len(same), len(seeds))
	}
	r.nothingLeft()
}

func TestLlamaServerPrompts(t *testing.T) {
	r := serve(t, fake.Config{}, "--parallel", "4", "--ctx-size", "128")
	web := r.web()
	status, _, body := post(t, web, "/tokenize", `{"content":"I believe the meaning of life is","add_special":true}`)
	tokens := string(decode[map[string]json.RawMessage](t, body)["tokens"])
	if status != 200 || len(decode[[]int](t, []byte(tokens))) != 32 {
		t.Fatalf("%d %s", status, body)
	}
	rest := `,"temperature":0,"n_predict":8}`
	if a := complete(t, web, "/completion", `{"prompt":`+tokens+rest); a["content"] == "" {
		t.Errorf("%v", a)
	}
	const text = `"I believe the meaning of life is"`
	for _, second := range []string{tokens, text, `{"prompt_string":` + text + `}`} {
		_, _, body := post(t, web, "/completion", `{"prompt":[`+tokens+`,`+second+`]`+rest)
		two := decode[[]object](t, body)
		if len(two) != 2 || two[0]["content"] != two[1]["content"] || number(t, two[1], "index") != 1 {
			t.Errorf("%s: %v", second, two)
		}
	}
	if a := complete(t, web, "/completion", `{"prompt":[10,12,13,`+text+`,17,`+text+`]`+rest); number(t, a,
		"tokens_evaluated") != 68 {
		t.Errorf("%v", a)
	}
	if a := complete(t, web, "/completion", `{"prompt":{"prompt_string":`+text+`}`+rest); number(t, a,
		"tokens_evaluated") != 32 {
		t.Errorf("%v", a)
	}
	for _, bad := range []string{
		`{"prompt":{"prompt_string":"x <__media__>","multimodal_data":["AA=="]}}`, `{"prompt":[99999]}`,
		`{"prompt":[]}`, `{"n_predict":4}`, `{"prompt":"` + strings.Repeat("x", 200) + `"}`,
	} {
		status, _, body := post(t, web, "/completion", bad)
		e := decode[struct {
			Error struct {
				Code    int
				Type    string
				Message string
				Prompt  int `json:"n_prompt_tokens"`
				Context int `json:"n_ctx"`
			}
		}](t, body).Error
		if status != 400 || e.Code != 400 || e.Type == "" || e.Message == "" ||
			(len(bad) > 200 && (e.Type != "exceed_context_size_error" || e.Prompt != 200 || e.Context != 128)) {
			t.Errorf("%.80s: %d %s", bad, status, body)
		}
	}
	r.nothingLeft()
}

// TestLlamaServerContext: an answer that fills the context is truncated, one that ends before is not.
func TestLlamaServerContext(t *testing.T) {
	r := serve(t, fake.Config{}, "--ctx-size", "128")
	web := r.web()
	for _, c := range []struct {
		n, predicted int
		truncated    bool
	}{{64, 64, false}, {-1, 114, true}, {200, 114, true}} {
		a := complete(t, web, "/completion", fmt.Sprintf(`{"prompt":"Hi how are you","n_predict":%d}`, c.n))
		if number(t, a, "timings", "predicted_n") != c.predicted || a["truncated"] != c.truncated ||
			a["stop_type"] != "limit" {
			t.Errorf("n_predict %d: %v", c.n, a)
		}
	}
	// Coding agents recognise a prompt that is too long by these words.
	if status, _, body := post(t, web, "/completion", `{"prompt":"`+strings.Repeat("x", 200)+`"}`); status != 400 ||
		!strings.Contains(string(body), "exceeds the available context size") {
		t.Errorf("a prompt that is too long: %d %s", status, body)
	}
	r.nothingLeft()
}

func TestLlamaServerFields(t *testing.T) {
	r := serve(t, fake.Config{})
	web := r.web()
	a := complete(t, web, "/completion", `{"prompt":"Write","n_predict":8,"response_fields":["content",`+
		`"generation_settings/n_predict","prompt"]}`)
	if len(a) != 3 || number(t, a, "generation_settings/n_predict") != 8 || a["prompt"] != "Write" ||
		a["content"] == "" {
		t.Errorf("%v", a)
	}
	if a = complete(t, web, "/completion",
		`{"prompt":"Write","n_predict":8,"response_fields":[]}`); a["generation_settings"] == nil {
		t.Errorf("%v", a)
	}
	probs := func(a object) []any { list, _ := a["completion_probabilities"].([]any); return list }
	check := func(tok any) {
		o := tok.(object)
		if number(t, o, "id") <= 0 || o["logprob"].(float64) > 0 ||
			reflect.TypeOf(o["token"]).Kind() != reflect.String || o["bytes"].([]any) == nil ||
			len(o["top_logprobs"].([]any)) != 10 {
			t.Errorf("%v", o)
		}
		for _, top := range o["top_logprobs"].([]any) {
			if o := top.(object); o["logprob"].(float64) > 0 || o["bytes"].([]any) == nil || o["token"] == nil ||
				o["id"] == nil {
				t.Errorf("%v", o)
			}
		}
	}
	a = complete(t, web, "/completion", `{`+meaning+`,"n_probs":10,"temperature":0.0,"n_predict":5}`)
	if len(probs(a)) != 5 {
		t.Errorf("%v", a)
	}
	for _, tok := range probs(a) {
		check(tok)
	}
	n := 0
	for _, chunk := range streamed(t, web, "/completion", `{`+meaning+`,"n_probs":10,"temperature":0.0,"n_predict":5,`+
		`"stream":true}`) {
		if chunk["stop"] == false {
			if n++; len(probs(chunk)) != 1 {
				t.Fatalf("%v", chunk)
			}
			check(probs(chunk)[0])
		}
	}
	if n != 5 {
		t.Errorf("%d chunks", n)
	}
	for _, bias := range []string{`[[105,false],["e",-100]]`, `{"105":-100,"e":-100}`} { // 105-5: the byte "d"
		a := complete(t, web, "/completion", `{"prompt":"What","n_predict":64,"temperature":0,"logit_bias":`+bias+`}`)
		if strings.ContainsAny(a["content"].(string), "de") {
			t.Errorf("%s: %v", bias, a["content"])
		}
	}
	r.nothingLeft()
}

func TestLlamaServerSlots(t *testing.T) {
	r := serve(t, fake.Config{}, "--parallel", "2")
	web := r.web()
	slots := func() []object {
		_, body := get(t, web, "/slots")
		return decode[[]object](t, body)
	}
	if s := slots(); len(s) != 2 || number(t, s[0], "n_ctx") != r.model.Load().Caps.ContextTokens ||
		s[0]["params"] != nil {
		t.Errorf("%v", s)
	}
	var wait sync.WaitGroup
	for i := range 6 {
		wait.Go(func() {
			status, _, body := post(t, web, "/completion",
				fmt.Sprintf(`{"prompt":"Write %d","seed":42,"temperature":1.0,"n_predict":32}`, i))
			if a := decode[object](t, body); status != 200 || a["content"] == "" {
				t.Errorf("%d %s", status, body)
			}
		})
	}
	wait.Wait()
	// A client that goes frees the slot.
	ctx, leave := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, "POST", "http://uma/completion", strings.NewReader(`{`+meaning+`}`))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if resp, err := web.Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	eventually(t, "the request runs, or has ended", func() bool {
		select {
		case <-done:
			return true
		default:
			return slots()[0]["is_processing"] == true
		}
	})
	leave()
	<-done
	eventually(t, "the slot is free", func() bool { return slots()[0]["is_processing"] == false })
	r.nothingLeft()
}

func TestLlamaServerTokens(t *testing.T) {
	r := serve(t, fake.Config{})
	web := r.web()
	content := "What is the capital of France ?"
	_, _, body := post(t, web, "/tokenize", `{"content":"`+content+`"}`)
	tokens := decode[map[string][]int](t, body)["tokens"]
	if len(tokens) != len(content) {
		t.Errorf("%s", body)
	}
	list, _ := json.Marshal(tokens)
	if _, _, body = post(t, web, "/detokenize", `{"tokens":`+string(list)+`}`); decode[map[string]string](t,
		body)["content"] != content {
		t.Errorf("%s", body)
	}
	_, _, body = post(t, web, "/tokenize", `{"content":"unicode 媽 and <|im_end|>","with_pieces":true}`)
	pieces := decode[struct {
		Tokens []struct {
			ID    int
			Piece any
		}
	}](t, body).Tokens
	for _, p := range pieces {
		if text, ok := p.Piece.(string); p.ID < 0 || (ok && text == "") || (!ok && len(p.Piece.([]any)) == 0) {
			t.Errorf("%v", p)
		}
	}
	if last := pieces[len(pieces)-1]; last.Piece != "<|im_end|>" {
		t.Errorf("parse_special is not the default: %v", last)
	}
	if _, _, body = post(t, web, "/tokenize",
		`{"content":"<|im_end|>","parse_special":false}`); len(decode[map[string][]int](t, body)["tokens"]) != 10 {
		t.Errorf("%s", body)
	}
}

// TestLlamaServerTemplate: what /apply-template returns is a prompt for /completion, with its markers.
func TestLlamaServerTemplate(t *testing.T) {
	r := serve(t, fake.Config{Scripts: []fake.Script{{Emit: "It is 42."}}})
	web := r.web()
	render := func(more string) string {
		status, _, body := post(t, web, "/apply-template", `{"messages":[{"role":"user","content":"What is today?"}]`+
			more+`}`)
		if status != 200 {
			t.Fatalf("%d %s", status, body)
		}
		return decode[map[string]string](t, body)["prompt"]
	}
	opening := "<|im_start|>assistant\n"
	if p := render(`,"add_generation_prompt":false`); strings.Contains(p, opening) {
		t.Errorf("%q", p)
	}
	p := render(`,"add_generation_prompt":true,"max_tokens":3,"stream":true`)
	if !strings.HasSuffix(p, opening) {
		t.Errorf("%q", p)
	}
	prompt, _ := json.Marshal(p)
	if a := complete(t, web, "/completion", `{"temperature":0,"prompt":`+string(prompt)+
		`}`); a["content"] != "It is 42." || a["stop_type"] != "eos" || a["prompt"] != p {
		t.Errorf("%v", a)
	}
	if a := complete(t, web, "/completion", `{"temperature":0,"stop":["s 4"],"prompt":`+string(prompt)+
		`}`); a["content"] != "It i" || a["stop_type"] != "word" || a["stopping_word"] != "s 4" {
		t.Errorf("%v", a)
	}
	// The same text as a prompt of OpenAI's form is text.
	if a := complete(t, web, "/v1/completions", `{"temperature":0,"max_tokens":4,"prompt":`+string(prompt)+
		`}`); strings.Contains(fmt.Sprint(a["choices"]), "It is") {
		t.Errorf("%v", a)
	}
	status, _, body := post(t, web, "/v1/chat/completions/input_tokens",
		`{"messages":[{"role":"user","content":"What is today?"}]}`)
	if n := number(t, decode[object](t, body), "input_tokens"); status != 200 || n < 20 {
		t.Errorf("%d %s", status, body)
	}
	r.nothingLeft()
}

func TestLlamaServerBasics(t *testing.T) {
	r := serve(t, fake.Config{Pooling: runtime.PoolRank}, "--parallel", "3", "--seed", "42")
	web := r.web()
	_, body := get(t, web, "/props")
	p := decode[object](t, body)
	def := p["default_generation_settings"].(object)
	if p["model_path"] != "fake" || number(t, p, "total_slots") != 3 ||
		number(t, def, "n_ctx") != r.model.Load().Caps.ContextTokens || number(t, def, "params", "seed") != 42 ||
		p["chat_template"] != fake.ChatML {
		t.Errorf("%s", body)
	}
	for path, want := range map[string]int{"/health": 200, "/v1/health": 200, "/models": 200, "/lora-adapters": 200,
		"/slots?fail_on_no_slot=1": 200} {
		if status, body := get(t, web, path); status != want || strings.Contains(string(body), `"error"`) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	for _, path := range []string{"/props", "/slots/0?action=save",
		"/embedding", "/embeddings", "/infill"} {
		status, _, body := post(t, web, path, "{}")
		if e := decode[map[string]struct {
			Code int
			Type string
		}](t, body)["error"]; status != 501 || e.Code != 501 || e.Type != "not_supported_error" {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}

func TestLlamaServerInfill(t *testing.T) {
	r := serve(t, fake.Config{Markers: []string{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
		Scripts: []fake.Script{
			{After: "<|fim_prefix|>int m = <|fim_suffix|>;<|fim_middle|>", Emit: "42"},
			{After: "<|fim_prefix|>x<|fim_suffix|><|fim_middle|>", Emit: "y"}}})
	web := r.web()
	a := complete(t, web, "/infill", `{"input_prefix":"int m","prompt":" = ","input_suffix":";","temperature":0}`)
	if a["content"] != "42" || a["prompt"] != "<|fim_prefix|>int m = <|fim_suffix|>;<|fim_middle|>" {
		t.Errorf("%v", a)
	}
	a = complete(t, web, "/infill", `{"input_extra":[{"filename":"llama.h","text":"int n();"}],"input_prefix":"int `+
		`m","prompt":" = ","input_suffix":";","temperature":0}`)
	if a["content"] != "42" || !strings.Contains(a["prompt"].(string), "int n();<|fim_prefix|>") {
		t.Errorf("%v", a)
	}
	if a = complete(t, web, "/infill", `{"input_prefix":"x","input_suffix":"","temperature":0}`); a["content"] != "y" {
		t.Errorf("%v", a)
	}
	// What llama.vim sends, and its warm-up.
	a = complete(t, web, "/infill", `{"id_slot":0,"input_prefix":"x","input_suffix":"","input_extra":[{"text":"a",`+
		`"time":1,"filename":"b"}],"prompt":"","n_predict":64,"stop":[],"n_indent":4,"top_k":40,"top_p":0.9,`+
		`"stream":false,"samplers":["top_k","top_p","infill"],"cache_prompt":true,"t_max_prompt_ms":500,`+
		`"t_max_predict_ms":1000,"response_fields":["content","timings/prompt_n","truncated","tokens_cached"]}`)
	if a["content"] != "y" || len(a) != 4 {
		t.Errorf("%v", a)
	}
	a = complete(t, web, "/infill", `{"input_prefix":"","input_suffix":"","input_extra":[{"text":"a","time":1,`+
		`"filename":"b"}],"prompt":"","n_predict":0,"temperature":0.0,"stream":false,"samplers":[],`+
		`"cache_prompt":true,"t_max_prompt_ms":1,"t_max_predict_ms":1,"response_fields":[""]}`)
	if len(a) != 0 {
		t.Errorf("%v", a)
	}
	for _, extra := range []string{`{}`, `{"filename":"ok"}`, `{"filename":123}`, `{"filename":123,"text":"abc"}`,
		`{"filename":123,"text":456}`} {
		if status, _, body := post(t, web, "/infill", `{"input_prefix":"a","input_suffix":"b","input_extra":[`+extra+
			`]}`); status != 400 || !strings.Contains(string(body), `"error"`) {
			t.Errorf("%s: %d %s", extra, status, body)
		}
	}
	r.nothingLeft()
}

// TestLinesEndAnAnswer: n_indent and t_max_predict_ms end an answer at a line.
func TestLinesEndAnAnswer(t *testing.T) {
	const step = 2 * time.Millisecond
	slow := func(time.Duration) {
		ctx, cancel := context.WithTimeout(context.Background(), step)
		defer cancel()
		<-ctx.Done()
	}
	r := serve(t, fake.Config{Advance: slow, Scripts: []fake.Script{{After: "f():",
		Emit: "x\n    a\n    b\nc\n    d"}}})
	web := r.web()
	for more, want := range map[string]string{
		"": "x\n    a\n    b\nc\n    d", `,"n_indent":4`: "x\n    a\n    b\n", `,"t_max_predict_ms":1`: "x\n",
		`,"n_indent":4,"t_max_predict_ms":60000`: "x\n    a\n    b\n",
		`,"t_max_predict_ms":-1,"n_predict":9`:   "x\n    a\n ",
	} {
		a := complete(t, web, "/completion", `{"prompt":"f():","temperature":0`+more+`}`)
		if a["content"] != want || (a["stop_type"] == "limit") != (more != "") {
			t.Errorf("%s: %q, %v", more, a["content"], a["stop_type"])
		}
		text := ""
		body := `{"stream":true,"prompt":"f():","temperature":0` + more + `}`
		for _, part := range streamed(t, web, "/completion", body) {
			text += part["content"].(string)
		}
		if text != want {
			t.Errorf("%s, streamed: %q", more, text)
		}
	}
	r.nothingLeft()
}

// TestLlamaServerControl ends the thinking of an answer, and an answer, from another connection.
func TestLlamaServerControl(t *testing.T) {
	for action, want := range map[string]string{"reasoning_end": `"content":"4"`, "cancel": `"finish_reason":"stop"`} {
		steps := make(chan struct{}, 64)
		for range cap(steps) {
			steps <- struct{}{}
		}
		r := serve(t, fake.Config{Advance: func(time.Duration) { <-steps }, Scripts: []fake.Script{
			{Emit: "<think>" + strings.Repeat("on and on.\n", 3000) + "</think>No."}, {After: "</think>", Emit: "42"}}},
			"--ctx-size", "65536")
		web := r.web()
		resp, err := web.Post("http://uma/v1/chat/completions", "application/json",
			strings.NewReader(`{`+openAIQuestion+`,"reasoning_control":true,"stream":true}`))
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(resp.Body)
		first, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		id := decode[object](t, []byte(strings.TrimPrefix(first, "data: ")))["id"]
		status, _, body := post(t, web, "/v1/chat/completions/control",
			fmt.Sprintf(`{"id":%q,"action":%q}`, id, action))
		if done := decode[object](t, body); status != 200 || done["success"] != true {
			t.Errorf("%s: %d %s", action, status, body)
		}
		close(steps)
		rest, err := io.ReadAll(lines)
		resp.Body.Close()
		if err != nil || !strings.Contains(string(rest), want) {
			t.Errorf("%s: %v, ends with %.600s", action, err, rest[max(0, len(rest)-600):])
		}
		if _, _, body := post(t, web, "/v1/chat/completions/control",
			`{"id":"chatcmpl-none","action":"reasoning_end"}`); decode[object](t, body)["success"] != false {
			t.Errorf("%s", body)
		}
		r.nothingLeft()
	}
}

// get returns the status and the body.
func get(t *testing.T, c *http.Client, path string) (int, []byte) {
	t.Helper()
	resp, err := c.Get("http://uma" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, body
}
