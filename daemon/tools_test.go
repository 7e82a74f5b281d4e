package daemon

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/daemon/said"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/model/template"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// publishedTemplate is a chat template as published with a model.
func publishedTemplate(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile("../model/template/jinja/testdata/published/templates.tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err != nil {
			t.Fatal(name, err)
		}
		if strings.HasSuffix(h.Name, name+".jinja") {
			src, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			return string(src)
		}
	}
}

var weatherTools = []wire.Tool{
	{Name: "get_weather", Description: "The weather",
		Parameters: []byte(`{"type":"object","properties":{"location":{"type":"string","description":"where"},` +
			`"days":{"type":"integer","description":"n"}},"required":["location"]}`)},
	{Name: "now", Description: "The time",
		Parameters: []byte(`{"type":"object","properties":{},"additionalProperties":false}`)},
}

// unconstrained is a format of the answer beside which calls are not constrained: a call may be malformed.
var unconstrained = wire.Format{Kind: wire.FormatRegex, Payload: `[\s\S]*`}

// unconstrainedTools are tools with a schema that no grammar can enforce.
func unconstrainedTools() []wire.Tool {
	return append(slices.Clone(weatherTools),
		wire.Tool{Name: "odd", Description: "Odd",
			Parameters: []byte(`{"type":"object","properties":{"x":{"type":"odd"}}}`)})
}

// called is an answer with calls.
type called struct {
	think, text, reason string
	calls               []wire.ToolCall
	parts               int // number of events in which the text came
}

func (c called) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "think %q text %q reason %q", c.think, c.text, c.reason)
	for _, call := range c.calls {
		fmt.Fprintf(&b, " call %s%s", call.Name, call.Arguments)
	}
	return b.String()
}

// called asks for an answer over frames.
func (r *running) called(q *wire.Request) called {
	r.t.Helper()
	st, err := r.dial().Stream(r.t.Context(), q)
	if err != nil {
		r.t.Fatal(err)
	}
	var got called
	for got.reason == "" {
		ev, err := st.Next()
		if err != nil {
			r.t.Fatal(err)
		}
		switch ev.Kind {
		case wire.EventToken:
			if ev.Token.Phase == wire.Thinking {
				got.think += string(ev.Token.Text)
			} else {
				got.text += string(ev.Token.Text)
				got.parts++
			}
		case wire.EventToolCall:
			if ev.ToolCall.Name != "" {
				got.calls = append(got.calls, wire.ToolCall{ID: ev.ToolCall.CallID, Name: ev.ToolCall.Name})
			}
			got.calls[ev.ToolCall.Index].Arguments += string(ev.ToolCall.Arguments)
		case wire.EventEOS:
			if got.reason = string(ev.EOS.Reason); !q.Stream {
				got.think, got.text, got.calls = string(ev.EOS.Think), string(ev.EOS.Text),
					slices.Clone(ev.EOS.ToolCalls)
			}
		}
	}
	return got
}

// callAnswers asks a question with tools over frames and HTTP, streamed and whole.
func (r *running) callAnswers(edit func(*wire.Request)) map[string]called {
	r.t.Helper()
	out := map[string]called{}
	q := wire.DefaultRequest()
	q.Messages, q.Tools = []wire.Message{{Role: "user", Content: "question"}}, weatherTools
	q.Sampling.Temperature = 0
	if edit != nil {
		edit(&q)
	}
	for _, stream := range []bool{true, false} {
		q.Stream = stream
		out[fmt.Sprint("framed, stream ", stream)] = r.called(&q)
	}
	type toolCall struct {
		Index    int
		ID       string
		Function struct{ Name, Arguments string }
	}
	type message struct {
		Content   string
		Reasoning string     `json:"reasoning_content"`
		Calls     []toolCall `json:"tool_calls"`
	}
	type answer struct {
		Choices []struct {
			Message, Delta message
			Finish         string `json:"finish_reason"`
		}
	}
	tools := []map[string]any{}
	for _, t := range q.Tools {
		tools = append(tools,
			map[string]any{"type": "function", "function": map[string]any{"name": t.Name, "description": t.Description,
				"parameters": json.RawMessage(t.Parameters)}})
	}
	messages := []map[string]any{}
	for _, m := range q.Messages {
		messages = append(messages, map[string]any{"role": m.Role, "content": m.Content})
	}
	for _, stream := range []bool{true, false} {
		members := map[string]any{"stream": stream, "temperature": 0, "messages": messages,
			"tools": tools, "parallel_tool_calls": q.ParallelToolCalls}
		if q.Format.Kind == wire.FormatRegex {
			members["guided_regex"] = q.Format.Payload
		}
		body, err := json.Marshal(members)
		if err != nil {
			r.t.Fatal(err)
		}
		status, _, reply := post(r.t, r.web(), "/v1/chat/completions", string(body))
		if status != 200 {
			r.t.Fatalf("%d %s", status, reply)
		}
		parts := []string{string(reply)}
		if stream {
			parts = strings.Split(strings.TrimSpace(string(reply)), "\n\n")
		}
		var got called
		for _, p := range parts {
			if p = strings.TrimPrefix(p, "data: "); p == "[DONE]" {
				break
			}
			var a answer
			if err := json.Unmarshal([]byte(p), &a); err != nil {
				r.t.Fatalf("%s: %v", p, err)
			}
			for _, c := range a.Choices {
				m := c.Message
				if stream {
					m = c.Delta
				}
				got.think, got.text, got.reason = got.think+m.Reasoning, got.text+m.Content, got.reason+c.Finish
				for _, call := range m.Calls {
					if call.ID != "" {
						got.calls = append(got.calls, wire.ToolCall{ID: call.ID, Name: call.Function.Name})
					}
					got.calls[len(got.calls)-1].Arguments += call.Function.Arguments
				}
			}
		}
		out[fmt.Sprint("HTTP, stream ", stream)] = got
	}
	return out
}

// Calls of every kind of form come as calls, with the thought and the text before them, in every protocol.
func TestToolCallsOfFamilies(t *testing.T) {
	for _, c := range []struct {
		template string
		markers  []string // control tokens
		emit     string
		want     string
	}{
		{"Qwen-Qwen3-0.6B", nil, "<think>\nHm.\n</think>\n\nLet me look.\n<tool_call>\n{\"name\": \"get_weather\", " +
			"\"arguments\": {\"location\": \"Paris\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", " +
			"\"arguments\": {}}\n</tool_call>",
			`think "\nHm.\n" text "Let me look." reason "tool_calls" call get_weather{"location": "Paris"} call now{}`},
		{"Qwen-Qwen3-0.6B", []string{"<tool_call>", "</tool_call>"},
			"<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
			`think "" text "" reason "tool_calls" call now{}`},
		{"Qwen3-Coder", nil, "Ok.\n<tool_call>\n<function=get_weather>\n<parameter=location>\nParis <think> x\n" +
			"</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
			`think "" text "Ok." reason "tool_calls" call get_weather{"location":"Paris <think> x","days":3}`},
		{"openai-gpt-oss-120b", []string{"<|start|>", "<|end|>", "<|channel|>", "<|message|>", "<|constrain|>",
			"<|call|>", "<|return|>"},
			"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>I " +
				"look.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather " +
				"<|constrain|>json<|message|>{\"location\":\"Paris\"}<|call|>",
			`think "Hm." text "I look." reason "tool_calls" call get_weather{"location":"Paris"}`},
		{"openai-gpt-oss-120b", []string{"<|start|>", "<|end|>", "<|channel|>", "<|message|>"},
			" to=functions.now<|channel|>commentary json<|message|>{}<|call|>",
			`think "" text "" reason "tool_calls" call now{}`},
		{"Kimi-K3", []string{"<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"},
			`Hm.<|close|>think<|sep|><|open|>response<|sep|>Ok.<|close|>response<|sep|><|open|>tools<|sep|><|open|>` +
				`call tool="get_weather" index="1"<|sep|><|open|>argument key="location" type="string"<|sep|>` +
				`Paris<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|>`,
			`think "Hm." text "Ok." reason "tool_calls" call get_weather{"location":"Paris"}`},
		{"Kimi-K2-Instruct", []string{"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>",
			"<|tool_call_begin|>", "<|tool_call_end|>", "<|tool_call_argument_begin|>"},
			`Ok.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>` +
				`{"location": "Paris"}<|tool_call_end|><|tool_calls_section_end|>`,
			`think "" text "Ok." reason "tool_calls" call get_weather{"location": "Paris"}`},
		{"deepseek-ai-DeepSeek-V3.2", nil, "Ok.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n" +
			"<｜DSML｜parameter name=\"location\" string=\"true\">Paris</｜DSML｜parameter>\n</｜DSML｜invoke>\n" +
			"</｜DSML｜function_calls>",
			`think "" text "Ok." reason "tool_calls" call get_weather{"location":"Paris"}`},
		{"Mistral-Small-3.2-24B-Instruct-2506", nil, `[TOOL_CALLS]get_weather[CALL_ID]a1b2c3d4e[ARGS]{"location": ` +
			`"Paris"}[TOOL_CALLS]now[ARGS]{}`,
			`think "" text "" reason "tool_calls" call get_weather{"location": "Paris"} call now{}`},
		{"meta-llama-Llama-3.1-8B-Instruct", nil, `{"name": "get_weather", "parameters": {"location": "Paris"}}`,
			`think "" text "" reason "tool_calls" call get_weather{"location": "Paris"}`},
		{"meta-llama-Llama-3.1-8B-Instruct", nil, `{"name": "Anna", "age": 3}`, `think "" text "{\"name\": \"Anna\", ` +
			`\"age\": 3}" reason "stop"`},
		{"google-gemma-4-31B-it", []string{"<|tool_call>", "<tool_call|>", `<|"|>`, "<|channel>", "<channel|>",
			"<|turn>", "<turn|>"},
			`<|channel>thought` + "\n" + `Hm.<channel|>Ok. <|tool_call>call:get_weather{location:<|"|>Paris<|"|>,` +
				`days:2}<tool_call|>`,
			`think "\nHm." text "Ok." reason "tool_calls" call get_weather{"location":"Paris","days":2}`},
		{"LFM2.5-8B-A1B", []string{"<|tool_call_start|>", "<|tool_call_end|>"},
			"<|tool_call_start|>[get_weather(location='Paris')]<|tool_call_end|>Looking.",
			`think "" text "Looking." reason "tool_calls" call get_weather{"location":"Paris"}`},
		{"CohereForAI-c4ai-command-r7b-12-2024-tool_use", []string{"<|START_THINKING|>", "<|END_THINKING|>",
			"<|START_ACTION|>", "<|END_ACTION|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>"},
			"<|START_THINKING|>Hm.<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": " +
				"\"now\", \"parameters\": {}}\n]<|END_ACTION|>",
			`think "Hm." text "" reason "tool_calls" call now{}`},
		{"MiniMax-M2", nil, "Hm.\n</think>\n\n<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter " +
			"name=\"location\">Paris</parameter>\n</invoke>\n</minimax:tool_call>",
			`think "Hm.\n" text "" reason "tool_calls" call get_weather{"location":"Paris"}`},
		{"meetkai-functionary-medium-v3.2", nil, "all\nOk.\n>>>get_weather\n{\"location\": \"Paris\"}",
			`think "" text "Ok." reason "tool_calls" call get_weather{"location": "Paris"}`},
		{"muse-glimmer", []string{"<|start|>", "<|message|>", "<|eom|>", "<|eot|>"},
			" to=self<|message|>Hm.<|eom|><|start|>assistant to=now<|message|><atem:function_calls>\n<atem:invoke " +
				"name=\"now\">\n</atem:invoke>\n</atem:function_calls>",
			`think "Hm." text "" reason "tool_calls" call now{}`},
		{"microsoft-Phi-3.5-mini-instruct", nil, "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
			`think "" text "" reason "tool_calls" call now{}`},
		// A malformed call is text, and the answer one of words.
		{"Qwen-Qwen3-0.6B", nil, "Well.\n<tool_call>\n{\"name\": \"nothing\", \"arguments\": {}}\n</tool_call>",
			`think "" text "Well.\n<tool_call>\n{\"name\": \"nothing\", \"arguments\": {}}\n</tool_call>" reason ` +
				`"stop"`},
	} {
		t.Run(c.template, func(t *testing.T) {
			src := publishedTemplate(t, c.template)
			tmpl, err := template.Compile(src)
			if err != nil {
				t.Fatal(err)
			}
			prompt, err := tmpl.Render(template.Input{Messages: []template.Message{{Role: "user", Content: "question"}},
				AddGenerationPrompt: true, Now: time.Unix(0, 0), Extra: tmpl.Switch("", "").Vars(template.Thinking{})})
			if err != nil {
				t.Fatal(err)
			}
			cfg := fake.Config{Template: src, Markers: c.markers,
				SpelledTags: strings.Contains(c.emit, "Paris <think>"),
				Scripts:     []fake.Script{{After: prompt[strings.LastIndex(prompt, "question"):], Emit: c.emit}}}
			r := serve(t, cfg, "--ctx-size", "16384")
			for protocol, got := range r.callAnswers(func(q *wire.Request) {
				if strings.Contains(c.emit, `"nothing"`) {
					q.Format = unconstrained
				}
			}) {
				if got.String() != c.want {
					t.Errorf("%s:\n got %.400s\nwant %s", protocol, got, c.want)
				}
				for i, call := range got.calls {
					if len(call.ID) < said.CallIDBytes || i > 0 && call.ID == got.calls[i-1].ID {
						t.Errorf("%s: call %d has the id %q", protocol, i, call.ID)
					}
				}
			}
			r.nothingLeft()
		})
	}
}

const callTemplate = `{%- for t in tools or [] %}{{ t.function.name }} {% endfor %}{% for m in messages %}{{ ` +
	`'<|im_start|>' + m.role + '\n' + m.content }}` +
	`{% for c in m.tool_calls or [] %}{{ '<tool_call>{"name": "' + c.function.name + '", "arguments": ' + ` +
	`c.function.arguments + '}</tool_call>' }}{% endfor %}` +
	`{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`

// A conversation goes on with the results of calls: the prompt has them, and what was computed of the call is used
// again.
func TestToolResults(t *testing.T) {
	const call = `<tool_call>{"name": "get_weather", "arguments": {"location": "Paris"}}</tool_call>`
	r := serve(t, fake.Config{Template: callTemplate, Scripts: []fake.Script{
		{After: "sunny<|im_end|>\n<|im_start|>assistant\n", Emit: "It is sunny."},
		{Emit: "Ok." + call},
	}})
	c := r.dial()
	q := wire.DefaultRequest()
	q.Sampling.Temperature, q.Tools, q.Messages = 0, weatherTools, []wire.Message{{Role: "user", Content: "question"}}
	first, err := c.Chat(t.Context(), &q)
	if err != nil || string(first.Text) != "Ok." || len(first.ToolCalls) != 1 || first.Reason != wire.Calls {
		t.Fatalf("%+v, %v", first, err)
	}
	r.settled()
	made := first.ToolCalls[0]
	q.Messages = append(q.Messages, wire.Message{Role: "assistant", Content: "Ok.", ToolCalls: first.ToolCalls},
		wire.Message{Role: "tool", Name: made.Name, ToolCallID: made.ID, Content: "sunny"})
	second, err := c.Chat(t.Context(), &q)
	if err != nil || string(second.Text) != "It is sunny." || len(second.ToolCalls) != 0 || second.Reason != wire.Stop {
		t.Fatalf("%+v, %v", second, err)
	}
	if u := second.Usage; u.CachedTokens < first.Usage.PromptTokens+len("Ok."+call) {
		t.Errorf("%d of %d prompt tokens were cached; the first turn has %d and %d", u.CachedTokens, u.PromptTokens,
			first.Usage.PromptTokens, len("Ok."+call))
	}
	r.nothingLeft()
}

// parallel_tool_calls false ends the answer after its first call; tool_choice "none" offers no tools.
func TestToolWishes(t *testing.T) {
	r := serve(t, fake.Config{Template: callTemplate, Scripts: []fake.Script{
		{After: "now <|im_start|>user\nquestion<|im_end|>\n<|im_start|>assistant\n",
			Emit: `<tool_call>{"name": "now", "arguments": {}}</tool_call>` + `<tool_call>{"name": "now", ` +
				`"arguments": {}}</tool_call> and more`},
		{Emit: `In words <tool_call>.`},
	}})
	for protocol, got := range r.callAnswers(func(q *wire.Request) { q.ParallelToolCalls = false }) {
		if want := `think "" text "" reason "tool_calls" call now{}`; got.String() != want {
			t.Errorf("%s: %s", protocol, got)
		}
	}
	q := wire.DefaultRequest()
	q.Sampling.Temperature, q.Tools, q.Messages, q.ToolChoice.Mode = 0, weatherTools,
		[]wire.Message{{Role: "user", Content: "question"}}, wire.ToolNone
	if a, err := r.dial().Chat(t.Context(), &q); err != nil || string(a.Text) != "In words <tool_call>." ||
		a.Reason != wire.Stop {
		t.Errorf("none: %+v, %v", a, err)
	}
	r.nothingLeft()
}

// why and the metrics tell of calls, and of what is none.
func TestWhyTellsOfCalls(t *testing.T) {
	r := serve(t, fake.Config{Template: callTemplate,
		Scripts: []fake.Script{
			{Emit: `<tool_call>{"name": "now"}</tool_call><tool_call>{"name": "never"}</tool_call>`}}})
	q := wire.DefaultRequest()
	q.ID, q.Sampling.Temperature, q.Tools, q.Format, q.Messages = "mine", 0, weatherTools, unconstrained,
		[]wire.Message{{Role: "user", Content: "question"}}
	a, err := r.dial().Chat(t.Context(), &q)
	if err != nil || len(a.ToolCalls) != 1 || string(a.Text) != `<tool_call>{"name": "never"}</tool_call>` {
		t.Fatalf("%+v, %v", a, err)
	}
	rep, err := r.dial().Why(t.Context(), wire.WhyQuestion{Request: "mine"})
	if err != nil || len(rep.Requests) != 1 {
		t.Fatalf("%+v, %v", rep, err)
	}
	d := rep.Requests[0].Decisions
	if i := slices.IndexFunc(d, func(d reports.Decision) bool { return d.Reason == "call_unknown_tool" }); i < 0 ||
		d[i].Text != "A tool call was malformed and stayed text of the answer: it names a tool that the request does "+
			"not offer." {
		t.Errorf("%+v", d)
	}
	resp, err := r.web().Get("http://uma/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`uma_tool_calls_total{form="hermes"} 1`,
		`uma_tool_calls_malformed_total{reason="unknown_tool"} 1`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s", want)
		}
	}
}

// With tool_choice, a call comes whatever the model would rather write, after its thought; its arguments fit the
// schema.
func TestForcedCalls(t *testing.T) {
	for _, c := range []struct {
		template string
		markers  []string
		emit     string
	}{
		{"Qwen-Qwen3-0.6B", nil, "<think>\nHm.\n</think>\n\nIn words."},
		{"Qwen-Qwen3-0.6B", []string{"<tool_call>", "</tool_call>"}, "In words."},
		{"Qwen3-Coder", nil, "In words."},
		{"deepseek-ai-DeepSeek-V3.1", []string{"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>",
			"<｜tool▁call▁end｜>", "<｜tool▁sep｜>"}, "In words."},
		{"mistralai-Mistral-Nemo-Instruct-2407", nil, "In words."},
		{"google-gemma-4-31B-it", []string{"<|tool_call>", "<tool_call|>", `<|"|>`, "<|channel>", "<channel|>",
			"<|turn>", "<turn|>"}, "In words."},
		{"meta-llama-Llama-3.1-8B-Instruct", nil, "In words."},
		{"Kimi-K2-Instruct", []string{"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>",
			"<|tool_call_begin|>", "<|tool_call_end|>", "<|tool_call_argument_begin|>"}, "In words."},
		{"deepseek-ai-DeepSeek-V3.2", nil, "In words."},
		{"Mistral-Small-3.2-24B-Instruct-2506", nil, "In words."},
		{"LFM2.5-8B-A1B", []string{"<|tool_call_start|>", "<|tool_call_end|>"}, "In words."},
		{"CohereForAI-c4ai-command-r7b-12-2024-tool_use", []string{"<|START_THINKING|>", "<|END_THINKING|>",
			"<|START_ACTION|>", "<|END_ACTION|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>"},
			"<|START_THINKING|>Hm.<|END_THINKING|>In words."},
		{"MiniMax-M2", nil, "Hm.\n</think>\n\nIn words."},
		{"meetkai-functionary-medium-v3.2", nil, "all\nIn words."},
		{"muse-glimmer", []string{"<|start|>", "<|message|>", "<|eom|>", "<|eot|>"},
			" to=self<|message|>Hm.<|eom|><|start|>assistant to=user<|message|>In words."},
		{"openai-gpt-oss-120b", harmonyMarkers, hm + another + inWords},
		{"Kimi-K3", []string{"<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"},
			"Hm.<|close|>think<|sep|><|open|>response<|sep|>In words."},
		{"GLM-4.7-Flash", nil, "Hm.</think>In words."},
		{"microsoft-Phi-3.5-mini-instruct", nil, "In words."}, // shows no tools: the form json
	} {
		for _, choice := range []wire.ToolChoice{{Mode: wire.ToolRequired}, {Mode: wire.ToolNamed, Name: "now"}} {
			t.Run(fmt.Sprint(c.template, choice.Name), func(t *testing.T) {
				src := publishedTemplate(t, c.template)
				tmpl, err := template.Compile(src)
				if err != nil {
					t.Fatal(err)
				}
				prompt, err := tmpl.Render(
					template.Input{Messages: []template.Message{{Role: "user", Content: "question"}},
						AddGenerationPrompt: true, Now: time.Unix(0, 0),
						Extra: tmpl.Switch("", "").Vars(template.Thinking{})})
				if err != nil {
					t.Fatal(err)
				}
				r := serve(t, fake.Config{Template: src, Markers: c.markers,
					Scripts: []fake.Script{{After: prompt[strings.LastIndex(prompt, "question"):], Emit: c.emit}}},
					"--ctx-size", "16384")
				tools := []wire.Tool{
					{Name: "get_weather",
						Parameters: []byte(`{"type":"object","properties":{"location":{"type":"string",` +
							`"enum":["Bern","Rome"]},"days":{"type":"integer","minimum":1,"maximum":3}},` +
							`"required":["location"],"additionalProperties":false}`)},
					{Name: "now", Parameters: []byte(`{"type":"object","properties":{},"additionalProperties":false}`)},
				}
				for _, stream := range []bool{true, false} {
					q := wire.DefaultRequest()
					q.Sampling.Temperature, q.Tools, q.ToolChoice, q.ParallelToolCalls = 0, tools, choice, false
					q.Messages, q.Stream = []wire.Message{{Role: "user", Content: "question"}}, stream
					q.Think.BudgetTokens = 60 // with headers, noise may think again
					a := r.called(&q)
					if len(a.calls) != 1 || a.text != "" || a.reason != string(wire.Calls) {
						t.Fatalf("stream %v: %v", stream, a)
					}
					var args struct {
						Location *string
						Days     *int
					}
					d := json.NewDecoder(strings.NewReader(a.calls[0].Arguments))
					d.DisallowUnknownFields()
					if err := d.Decode(&args); err != nil || a.calls[0].Name == "get_weather" && args.Location == nil ||
						choice.Mode == wire.ToolNamed && a.calls[0].Name != "now" {
						t.Errorf("%v: %v", a, err)
					}
					if strings.Contains(c.emit, "Hm.") && !strings.Contains(a.think, "Hm.") {
						t.Errorf("thinking %q", a.think)
					}
				}
				r.nothingLeft()
			})
		}
	}
}

// Once the model has written the opening of a call, its arguments fit their schema, and come while they are written.
func TestCallsAreHeld(t *testing.T) {
	r := serve(t, fake.Config{Template: callTemplate, Scripts: []fake.Script{
		{Emit: `Well. <tool_call>{"name": "get_weather", "arguments": {"location": "Bern", "days": "many", "x": ` +
			`1}}</tool_call>`},
	}})
	q := wire.DefaultRequest()
	q.Sampling.Temperature, q.Messages, q.Stream, q.ParallelToolCalls = 0,
		[]wire.Message{{Role: "user", Content: "question"}}, true, false
	q.Tools = []wire.Tool{{Name: "get_weather",
		Parameters: []byte(`{"type":"object","properties":{"location":{"type":"string"},"days":{"type":"integer",` +
			`"minimum":1,"maximum":3}},"required":["location","days"],"additionalProperties":false}`)}}
	st, err := r.dial().Stream(t.Context(), &q)
	if err != nil {
		t.Fatal(err)
	}
	text, arguments, parts := "", "", 0
	for {
		ev, err := st.Next()
		if err != nil {
			t.Fatal(err)
		}
		switch ev.Kind {
		case wire.EventToken:
			text += string(ev.Token.Text)
		case wire.EventToolCall:
			arguments += string(ev.ToolCall.Arguments)
			parts++
		}
		if ev.Kind == wire.EventEOS {
			if ev.EOS.Reason != wire.Calls {
				t.Errorf("reason %s", ev.EOS.Reason)
			}
			break
		}
	}
	var args struct {
		Location string
		Days     int
	}
	d := json.NewDecoder(strings.NewReader(arguments))
	d.DisallowUnknownFields()
	if err := d.Decode(&args); err != nil || args.Location != "Bern" || args.Days < 1 || args.Days > 3 ||
		!strings.HasPrefix(text, "Well.") || parts < 5 {
		t.Errorf("text %q, arguments %q in %d parts: %v", text, arguments, parts, err)
	}
	r.nothingLeft()
}
