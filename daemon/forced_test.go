package daemon

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// forcedCall is a call as an API gave it: parts is the number of texts in which its arguments came.
type forcedCall struct {
	id, name, arguments, reason string
	parts                       int
}

// sseData returns the objects of a body of server-sent events, or the body's only object.
func sseData(body []byte) (list []map[string]any, err error) {
	for line := range strings.Lines(string(body)) {
		data, sse := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if data == "[DONE]" || !sse && !strings.HasPrefix(data, "{") {
			continue
		}
		var v map[string]any
		if err := json.Unmarshal([]byte(data), &v); err != nil {
			return nil, fmt.Errorf("%s: %w", data, err)
		}
		list = append(list, v)
	}
	return list, nil
}

// dig returns the value at a path of member names and indices; nil if there is none.
func dig(v any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[p]
		case int:
			list, _ := v.([]any)
			if p >= len(list) {
				return nil
			}
			v = list[p]
		}
	}
	return v
}

func digText(v any, path ...any) string {
	s, _ := dig(v, path...).(string)
	return s
}

func (c *forcedCall) add(arguments string) {
	if arguments != "" {
		c.arguments += arguments
		c.parts++
	}
}

// begin notes a call's id and name, where v has them at a path.
func (c *forcedCall) begin(id, name string) {
	if id != "" {
		c.id, c.name = id, name
	}
}

func (c *forcedCall) chat(v map[string]any) {
	for _, of := range []string{"message", "delta"} {
		call := dig(v, "choices", 0, of, "tool_calls", 0)
		c.begin(digText(call, "id"), digText(call, "function", "name"))
		c.add(digText(call, "function", "arguments"))
	}
	c.reason += digText(v, "choices", 0, "finish_reason")
}

func (c *forcedCall) messages(v map[string]any) {
	if content := dig(v, "content", 0); content != nil {
		c.begin(digText(content, "id"), digText(content, "name"))
		text, _ := json.Marshal(dig(content, "input"))
		c.add(string(text))
		c.reason = digText(v, "stop_reason")
	}
	c.begin(digText(v, "content_block", "id"), digText(v, "content_block", "name"))
	c.add(digText(v, "delta", "partial_json"))
	c.reason += digText(v, "delta", "stop_reason")
}

func (c *forcedCall) responses(v map[string]any) {
	switch v["type"] {
	case "response.output_item.added":
		c.begin(digText(v, "item", "call_id"), digText(v, "item", "name"))
	case "response.function_call_arguments.delta":
		c.add(digText(v, "delta"))
	case "response.completed":
		c.reason = digText(v, "response", "status")
	case nil:
		item := dig(v, "output", 0)
		c.begin(digText(item, "call_id"), digText(item, "name"))
		c.add(digText(item, "arguments"))
		c.reason = digText(v, "status")
	}
}

// With the built-in chat template, which shows no tools, each API forces a call, streamed in parts and whole.
func TestForcedCallsOverEachAPI(t *testing.T) {
	r := serve(t, fake.Config{Scripts: []fake.Script{{Emit: "In words."}}}, "-c", "16384")
	if name := r.model.Load().Calls.Syntax().Name; name != "json" {
		t.Fatalf("form %q", name)
	}
	web := r.web()
	const days = `{"type":"object","properties":{"days":{"type":"integer","minimum":1,"maximum":3}},` +
		`"required":["days"],"additionalProperties":false}`
	const place = `{"type":"object","properties":{"place":{"enum":["Bern","Rome"]}},"required":["place"],` +
		`"additionalProperties":false}`
	chat := `"messages":[{"role":"user","content":"q"}],"temperature":0,"tools":[{"type":"function",` +
		`"function":{"name":"plan","parameters":` + days +
		`}},{"type":"function","function":{"name":"go","strict":true,"parameters":` + place + `}}],`
	messages := `"max_tokens":500,"messages":[{"role":"user","content":"q"}],"temperature":0,"tools":[{"name":"plan",` +
		`"input_schema":` + days +
		`},{"name":"go","input_schema":` + place + `}],`
	responses := `"store":false,"input":"q","temperature":0,"tools":[{"type":"function","name":"plan","parameters":` +
		days +
		`},{"type":"function","name":"go","strict":true,"parameters":` + place + `}],`
	for _, c := range []struct {
		path, body string
		read       func(*forcedCall, map[string]any)
		name       string // "": any of the two
		reason     string
	}{
		{"/v1/chat/completions", chat + `"parallel_tool_calls":false,"tool_choice":"required"`, (*forcedCall).chat, "",
			"tool_calls"},
		{"/v1/chat/completions", chat + `"parallel_tool_calls":false,"tool_choice":{"type":"function",` +
			`"function":{"name":"go"}}`, (*forcedCall).chat, "go", "tool_calls"},
		{"/v1/chat/completions", chat + `"response_format":{"type":"json_object"},"tool_choice":{"type":"function",` +
			`"function":{"name":"go"}}`, (*forcedCall).chat, "go", "tool_calls"},
		{"/v1/responses", responses + `"text":{"format":{"type":"json_schema","name":"n","schema":{}}},` +
			`"parallel_tool_calls":false,"tool_choice":"required"`, (*forcedCall).responses, "", "completed"},
		{"/v1/messages", messages + `"output_config":{"format":{"type":"json_schema","schema":{"type":"object"}}},` +
			`"tool_choice":{"type":"tool","name":"go"}`, (*forcedCall).messages, "go", "tool_use"},
		{"/v1/messages", messages + `"tool_choice":{"type":"any","disable_parallel_tool_use":true}`,
			(*forcedCall).messages, "", "tool_use"},
		{"/v1/messages", messages + `"tool_choice":{"type":"tool","name":"go","disable_parallel_tool_use":true}`,
			(*forcedCall).messages, "go", "tool_use"},
		{"/v1/responses", responses + `"parallel_tool_calls":false,"tool_choice":"required"`, (*forcedCall).responses,
			"", "completed"},
		{"/v1/responses", responses + `"parallel_tool_calls":false,"tool_choice":{"type":"function","name":"go"}`,
			(*forcedCall).responses, "go", "completed"},
	} {
		for _, stream := range []bool{true, false} {
			status, _, body := post(t, web, c.path, fmt.Sprintf(`{"stream":%v,%s}`, stream, c.body))
			list, err := sseData(body)
			if status != 200 || err != nil {
				t.Fatalf("%s %s: %d %s: %v", c.path, c.body, status, body, err)
			}
			var got forcedCall
			for _, v := range list {
				c.read(&got, v)
			}
			var args struct {
				Days  *int
				Place *string
			}
			d := json.NewDecoder(strings.NewReader(got.arguments))
			d.DisallowUnknownFields()
			err = d.Decode(&args)
			fits := got.name == "plan" && args.Place == nil && args.Days != nil && *args.Days >= 1 && *args.Days <= 3 ||
				got.name == "go" && args.Days == nil && args.Place != nil &&
					(*args.Place == "Bern" || *args.Place == "Rome")
			if err != nil || !fits || got.id == "" || got.reason != c.reason || c.name != "" && got.name != c.name ||
				stream && got.parts < 3 || !stream && got.parts != 1 {
				t.Errorf("%s stream %v: %+v: %v\n%s", c.path, stream, got, err, body)
			}
			if strings.Contains(string(body), "words") {
				t.Errorf("%s: text beside the call: %s", c.path, body)
			}
		}
	}
	r.nothingLeft()
}

// A call that max_tokens cuts short is no text: its parts were sent, or it is left out of a whole answer.
func TestForcedCallCutShort(t *testing.T) {
	r := serve(t, fake.Config{Template: callTemplate, Scripts: []fake.Script{
		{Emit: `<tool_call>{"name": "get_weather", "arguments": {"location": "Berlin, Paris, Rome and all the other ` +
			`towns"}}</tool_call>`},
	}}, "-c", "16384")
	for _, choice := range []wire.ToolMode{wire.ToolAuto, wire.ToolRequired} {
		for _, stream := range []bool{true, false} {
			q := wire.DefaultRequest()
			q.Sampling.Temperature, q.Messages, q.Stream, q.MaxTokens = 0,
				[]wire.Message{{Role: "user", Content: "question"}}, stream, 80
			q.Tools, q.ToolChoice.Mode = weatherTools, choice
			a := r.called(&q)
			if a.reason != string(wire.Length) ||
				stream && (a.text != "" || len(a.calls) != 1 || !strings.HasPrefix(a.calls[0].Arguments,
					`{"location": "Ber`)) ||
				!stream && (len(a.calls) != 0 || a.text != "") {
				t.Errorf("choice %d, stream %v: %v", choice, stream, a)
			}
		}
	}
	r.nothingLeft()
}

// What cannot be forced is refused, and the message says why.
func TestForcedCallsRefused(t *testing.T) {
	ask := func(r *running, edit func(*wire.Request)) error {
		q := wire.DefaultRequest()
		q.Messages, q.Tools, q.ToolChoice = []wire.Message{{Role: "user", Content: "question"}}, weatherTools,
			wire.ToolChoice{Mode: wire.ToolRequired}
		edit(&q)
		_, err := r.dial().Chat(t.Context(), &q)
		return err
	}
	r := serve(t, fake.Config{Template: callTemplate}, "-c", "16384")
	harmony := serve(t, fake.Config{Template: publishedTemplate(t, "openai-gpt-oss-120b"),
		Markers: []string{"<|start|>", "<|end|>", "<|channel|>", "<|message|>"}}, "-c", "16384")
	coder := serve(t, fake.Config{Template: publishedTemplate(t, "Qwen3-Coder"), Scripts: []fake.Script{
		{Emit: "<tool_call>\n<function=set>\n<parameter=a>\nb\n</parameter>\n</function>\n</tool_call>"},
	}}, "-c", "16384")
	set := []wire.Tool{{Name: "set", Parameters: []byte(`{"type":"object","additionalProperties":{"type":"string"}}`)}}
	for _, c := range []struct {
		r    *running
		edit func(*wire.Request)
		says string
	}{
		{coder, func(q *wire.Request) {
			q.Tools = []wire.Tool{{Name: "set", Strict: true, Parameters: []byte(
				`{"type":"object","properties":{"a":{"type":"string","pattern":"\\bx"}}}`)}}
		}, `tools: tool "set": schema: pattern at #/properties/a: `},
		{harmony, func(*wire.Request) {}, "tool_choice: "},
		{r, func(q *wire.Request) {
			q.Tools, q.ToolChoice = unconstrainedTools(), wire.ToolChoice{}
			q.Tools[2].Strict = true
		}, `tool "odd": schema: type at #/properties/x: `},
		{r, func(q *wire.Request) { q.Format = wire.Format{Kind: wire.FormatChoice, Choices: []string{"a"}} },
			"tool_choice"},
		{r, func(q *wire.Request) { q.Think.AnswerCue = "So" }, "think.answer_cue"},
	} {
		if err := ask(c.r, c.edit); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v; want %q", err, c.says)
		}
	}
	q := wire.DefaultRequest()
	q.Sampling.Temperature, q.Messages, q.Tools, q.Stream = 0, []wire.Message{{Role: "user", Content: "question"}}, set,
		true
	if a := coder.called(&q); len(a.calls) != 1 || a.calls[0].Arguments != `{"a":"b"}` {
		t.Errorf("a call with arguments that have no names: %v", a)
	}
	for _, r := range []*running{r, harmony, coder} {
		r.nothingLeft()
	}
}

// TestUnenforceableToolIsHeldAlone: one tool whose schema cannot be enforced is held by any object; the others keep
// their schemas, and a required call of either is written.
func TestUnenforceableToolIsHeldAlone(t *testing.T) {
	odd := wire.Tool{Name: "grep", Parameters: []byte(`{"type":"object","properties":{"pattern":{"type":"string",` +
		`"pattern":"\\bx"}},"required":["pattern"]}`)}
	for _, template := range []string{"Qwen3-Coder", "Qwen-Qwen3-0.6B"} {
		r := serve(t, fake.Config{Template: publishedTemplate(t, template),
			Scripts: []fake.Script{{Emit: "In words."}}}, "-c", "16384")
		for _, name := range []string{"grep", "get_weather"} {
			q := wire.DefaultRequest()
			q.Sampling.Temperature, q.MaxTokens = 0, 400
			q.Messages = []wire.Message{{Role: "user", Content: "question"}}
			q.Tools = append([]wire.Tool{odd}, weatherTools...)
			q.ToolChoice = wire.ToolChoice{Mode: wire.ToolNamed, Name: name}
			q.Think.Mode = wire.ThinkOff
			a, err := r.dial().Chat(t.Context(), &q)
			if err != nil {
				t.Errorf("%s, %s: %v", template, name, err)
			} else if len(a.ToolCalls) == 1 {
				var arguments struct{ Location *string }
				if err := json.Unmarshal([]byte(a.ToolCalls[0].Arguments), &arguments); err != nil ||
					name == "get_weather" && arguments.Location == nil {
					t.Errorf("%s, %s: %s", template, name, a.ToolCalls[0].Arguments)
				}
			}
		}
		rep, err := r.dial().Why(t.Context(), wire.WhyQuestion{Last: 2})
		told := 0
		for _, q := range rep.Requests {
			for _, d := range q.Decisions {
				if d.Reason == "tool_not_held" && strings.Contains(d.Text, `"grep"`) &&
					strings.Contains(d.Text, "/properties/pattern") {
					told++
				}
			}
		}
		if err != nil || told != 1 { // the other request names a tool whose schema is enforced
			t.Errorf("%s: why tells of the tool %d times: %v %+v", template, told, err, rep)
		}
		r.nothingLeft()
	}
}

// TestCutCallIsIncompleteOverEachAPI: a required call that the limit of tokens cuts off is incomplete in every API, and
// nothing of its notation is text.
func TestCutCallIsIncompleteOverEachAPI(t *testing.T) {
	const call = "<tool_call>\n<function=get_weather>\n<parameter=location>\nParis\n</parameter>\n</function>\n" +
		"</tool_call>"
	r := serve(t, fake.Config{Template: publishedTemplate(t, "Qwen3-Coder"),
		Scripts: []fake.Script{{Emit: call + call}}}, "-c", "16384")
	web := r.web()
	const schema = `{"type":"object","properties":{"location":{"type":"string"}},"required":["location"]}`
	const function = `{"type":"function","function":{"name":"get_weather","parameters":` + schema + `}}`
	const ask = `"messages":[{"role":"user","content":"q"}],`
	points := 0
	for n := 1; n < len(call)+30; n += 3 {
		for _, c := range []struct{ path, body, says string }{
			{"/v1/chat/completions", ask + `"temperature":0,"tools":[` + function + `],"tool_choice":"required",` +
				fmt.Sprintf(`"max_tokens":%d`, n), `"finish_reason":"length"`},
			{"/v1/messages", ask + `"temperature":0,"tools":[{"name":"get_weather","input_schema":` + schema +
				`}],"tool_choice":{"type":"any"},` + fmt.Sprintf(`"max_tokens":%d`, n), `"stop_reason":"max_tokens"`},
			{"/v1/responses", `"store":false,"input":"q","temperature":0,"tools":[{"type":"function",` +
				`"name":"get_weather","parameters":` + schema + `}],"tool_choice":"required",` +
				fmt.Sprintf(`"max_output_tokens":%d`, n), `"status":"incomplete"`},
			{"/api/chat", `"model":"x",` + ask + `"tools":[` + function +
				`],"options":{"temperature":0,` + fmt.Sprintf(`"num_predict":%d}`, n), `"done_reason":"length"`},
		} {
			for _, stream := range []bool{true, false} {
				status, _, body := post(t, web, c.path, fmt.Sprintf(`{"stream":%v,%s}`, stream, c.body))
				points++
				plain := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(string(body))
				for _, leak := range []string{"<tool", "<func", "<para", "</para", "</func", "<pa", "</"} {
					if strings.Contains(plain, leak) {
						t.Errorf("%s stream %v, %d tokens: %q in %s", c.path, stream, n, leak, body)
						break
					}
				}
				if status != 200 || !strings.Contains(plain, c.says) {
					t.Errorf("%s stream %v, %d tokens: %d %s", c.path, stream, n, status, body)
				}
			}
		}
	}
	t.Logf("%d cut points", points)
	r.nothingLeft()
}

// A named tool is called once, whatever parallel_tool_calls says, and a required call that repeats an earlier one of
// the answer ends it: streamed, nothing of the repeated call is sent.
func TestForcedCallsDoNotRepeat(t *testing.T) {
	const weather = `<tool_call>{"name": "get_weather", "arguments": {"location": "%s"}}</tool_call>`
	paris, rome := fmt.Sprintf(weather, "Paris"), fmt.Sprintf(weather, "Rome")
	r := serve(t, fake.Config{Template: callTemplate, Scripts: []fake.Script{
		{Emit: paris + rome + paris + rome + paris}}}, "-c", "16384")
	for _, c := range []struct {
		choice wire.ToolChoice
		towns  []string
	}{
		{wire.ToolChoice{Mode: wire.ToolNamed, Name: "get_weather"}, []string{"Paris"}},
		{wire.ToolChoice{Mode: wire.ToolRequired}, []string{"Paris", "Rome"}},
		{wire.ToolChoice{}, []string{"Paris", "Rome", "Paris", "Rome", "Paris"}},
	} {
		for _, stream := range []bool{true, false} {
			q := wire.DefaultRequest()
			q.Sampling.Temperature, q.Messages, q.Stream, q.Tools, q.ToolChoice = 0,
				[]wire.Message{{Role: "user", Content: "question"}}, stream, weatherTools, c.choice
			q.ID = fmt.Sprint(c.choice.Mode, stream)
			want := `think "" text "" reason "tool_calls"`
			for _, town := range c.towns {
				want += fmt.Sprintf(` call get_weather{"location": "%s"}`, town)
			}
			if a := r.called(&q); a.String() != want {
				t.Errorf("choice %v, stream %v: %v", c.choice, stream, a)
			}
			rep, err := r.dial().Why(t.Context(), wire.WhyQuestion{Request: q.ID})
			if err != nil || len(rep.Requests) != 1 {
				t.Fatalf("%+v, %v", rep, err)
			}
			told := slices.ContainsFunc(rep.Requests[0].Decisions, func(d reports.Decision) bool {
				return d.Reason == "call_repeated"
			})
			if told != (c.choice.Mode == wire.ToolRequired) {
				t.Errorf("choice %v: why says %+v", c.choice, rep.Requests[0].Decisions)
			}
		}
	}
	if n := r.metrics.RepeatedCalls.Value(); n != 2 {
		t.Errorf("%d answers ended at a repeated call", n)
	}
	r.nothingLeft()
}
