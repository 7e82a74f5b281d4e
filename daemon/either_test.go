package daemon

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// TestFormOrCalls: with response_format and tools that the model may call, an answer is a text of the form or a call,
// told while it is written, for forms of calls that begin like JSON too.
func TestFormOrCalls(t *testing.T) {
	person := wire.Format{Kind: wire.FormatSchema, Payload: personSchema}
	anyJSON := wire.Format{Kind: wire.FormatJSON}
	const bern = `{"location": "Bern"}`
	for _, c := range []struct {
		name, template, emit string
		format               wire.Format
		text, call           string // what comes of it; "": the other
	}{
		{"text", callTemplate, `{"name": "Bo", "age": 7}`, person, `{"name": "Bo", "age": 7}`, ""},
		{"a call", callTemplate, `<tool_call>{"name": "get_weather", "arguments": ` + bern + `}</tool_call>`, person,
			"", bern},
		{"neither", callTemplate, "in words", person, "", ""},
		{"any JSON", callTemplate, `{"a": [1, "<tool_call>x</tool_call>", 2]}`, anyJSON,
			`{"a": [1, "<tool_call>x</tool_call>", 2]}`, ""},
		{"text, where calls are JSON", "", `{"name": "Bo", "age": 7}`, person, `{"name": "Bo", "age": 7}`, ""},
		{"a call as JSON", "", `<tool_call>{"name": "get_weather", "arguments": ` + bern + `}</tool_call>`, anyJSON, "",
			bern},
		{"a bare call", publishedTemplate(t, "meta-llama-Llama-3.2-3B-Instruct"),
			`{"name": "get_weather", "parameters": ` + bern + `}`, anyJSON, "", bern},
		{"bare text", publishedTemplate(t, "meta-llama-Llama-3.2-3B-Instruct"), `{"name": "Bo", "age": 7}`, person,
			`{"name": "Bo", "age": 7}`, ""},
		{"a thought before", callTemplate, `<think>so</think>{"name": "Bo", "age": 7}`, person,
			`{"name": "Bo", "age": 7}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			script := fake.Script{Emit: c.emit}
			if strings.Contains(c.template, "<|end_header_id|>") {
				script.After = "assistant<|end_header_id|>\n\n"
			}
			r := serve(t, fake.Config{Template: c.template, Scripts: []fake.Script{script}}, "-c", "16384")
			for _, stream := range []bool{true, false} {
				q := wire.DefaultRequest()
				q.Sampling.Temperature, q.Messages, q.Stream, q.MaxTokens = 0,
					[]wire.Message{{Role: "user", Content: "question"}}, stream, 400
				q.Tools, q.Format = weatherTools, c.format
				a := r.called(&q)
				switch {
				case c.text != "":
					if a.text != c.text || len(a.calls) != 0 || a.reason != string(wire.Stop) {
						t.Errorf("stream %v: %v", stream, a)
					}
					if stream && a.parts < 5 {
						t.Errorf("the text came in %d parts", a.parts)
					}
				case c.call != "":
					if len(a.calls) == 0 || a.calls[0].Name != "get_weather" || a.calls[0].Arguments != c.call ||
						a.text != "" || a.reason != string(wire.Calls) {
						t.Errorf("stream %v: %v", stream, a)
					}
				case a.reason == string(wire.Length): // of what the model would rather not say, it does not see the end
				default:
					var v struct{ Name, Age any }
					if len(a.calls) == 0 && (json.Unmarshal([]byte(a.text), &v) != nil || v.Name == nil ||
						v.Age == nil) || len(a.calls) > 0 && a.text != "" {
						t.Errorf("stream %v: %v", stream, a)
					}
				}
			}
			r.nothingLeft()
		})
	}
}

// A form that is no JSON holds calls too: it may describe them.
func TestGrammarHoldsCalls(t *testing.T) {
	r := serve(t, fake.Config{Template: callTemplate, Scripts: []fake.Script{{Emit: "in words"}}}, "-c", "16384")
	q := wire.DefaultRequest()
	q.Sampling.Temperature, q.Messages, q.Stream, q.MaxTokens = 0, []wire.Message{{Role: "user", Content: "question"}},
		true, 200
	q.Tools, q.Format = weatherTools,
		wire.Format{Kind: wire.FormatRegex, Payload: `<tool_call>\{"name": "now", "arguments": \{\}\}</tool_call>`}
	if a := r.called(&q); len(a.calls) != 1 || a.calls[0].Name != "now" || strings.TrimSpace(a.text) != "" {
		t.Error(a)
	}
}
