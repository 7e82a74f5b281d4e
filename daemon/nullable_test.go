package daemon

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/daemon/prepare"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/model/template"
	"github.com/uma-serve/uma-serve/model/toolcall"
	"github.com/uma-serve/uma-serve/runtime/fake"
	"github.com/uma-serve/uma-serve/sampler"
)

// nullableUnits are schemas of a parameter that may be the string "celsius" and something else.
var nullableUnits = []string{
	`{"anyOf":[{"type":"string"},{"type":"null"}]}`,
	`{"anyOf":[{"type":"string","enum":["celsius","fahrenheit"]},{"type":"null"}],"default":null}`,
	`{"oneOf":[{"type":"string"},{"type":"integer"}]}`,
	`{"oneOf":[{"const":"celsius"},{"const":"kelvin"},{"type":"null"}]}`,
	`{"type":["string","null"]}`,
	`{"type":["string","null"],"enum":["celsius","fahrenheit",null]}`,
	`{"type":["string","number","boolean"]}`,
	`{"type":["string","array"],"items":{"type":"string"}}`,
	`{"type":["object","string"]}`,
	`{"type":"string","nullable":true}`,
	`{"type":"string","nullable":true,"enum":["celsius","fahrenheit"],"x-order":1,"deprecated":true,"readOnly":true}`,
	`{"enum":["celsius",1,null,true]}`,
	`{"$ref":"#/$defs/unit"}`,
	`{"$ref":"#/definitions/maybe"}`,
	`{"$ref":"#/properties/other"}`,
	`{"allOf":[{"$ref":"#/$defs/unit"}],"default":"celsius"}`,
	`{"allOf":[{"type":["string","null"]},{"minLength":3}]}`,
	`{"anyOf":[{"$ref":"#/$defs/unit"},{"type":"null"}]}`,
	`{"oneOf":[{"$ref":"#/definitions/maybe"},{"type":"integer"}]}`,
	`{}`,
}

// nullableForms are templates, by form, whose models write the parameters of a call one by one.
var nullableForms = map[string]string{
	"qwen3-coder": "Qwen3-Coder", "glm-4.5": "GLM-4.6", "minimax-m2": "MiniMax-M2", "minimax-m3": "MiniMax-M3",
	"seed-oss": "ByteDance-Seed-OSS", "hy3": "tencent-Hy3", "minicpm-5": "openbmb-MiniCPM5-1B",
	"deepseek-v3.2": "deepseek-ai-DeepSeek-V3.2", "deepseek-v4": "deepseek-ai-DeepSeek-V4", "kimi-k3": "Kimi-K3",
	"gemma-4": "google-gemma-4-31B-it", "lfm2": "LFM2.5-8B-A1B",
}

// nullableAPIs are the requests of each API over HTTP, for a tool with a schema, and what reads their calls.
var nullableAPIs = []struct {
	path, body string
	read       func(*forcedCall, map[string]any)
}{
	{"/v1/chat/completions", `{"max_tokens":400,"temperature":0,"tool_choice":"required",` +
		`"messages":[{"role":"user","content":"asked"}],` +
		`"tools":[{"type":"function","function":{"name":"weather","parameters":%s}}]}`,
		(*forcedCall).chat},
	{"/v1/messages", `{"max_tokens":400,"temperature":0,"tool_choice":{"type":"any"},` +
		`"messages":[{"role":"user","content":"asked"}],` +
		`"tools":[{"name":"weather","input_schema":%s}]}`, (*forcedCall).messages},
	{"/v1/responses", `{"max_output_tokens":400,"temperature":0,"store":false,"input":"asked",` +
		`"tool_choice":"required","tools":[{"type":"function","name":"weather","parameters":%s}]}`,
		(*forcedCall).responses},
	{"/api/chat", `{"stream":false,"options":{"num_predict":400,"temperature":0},` +
		`"messages":[{"role":"user","content":"asked"}],` +
		`"tools":[{"type":"function","function":{"name":"weather","parameters":%s}}]}`,
		func(c *forcedCall, v map[string]any) {
			if object := dig(v, "message", "tool_calls", 0, "function", "arguments"); object != nil {
				text, _ := json.Marshal(object)
				c.add(string(text))
			}
		}},
}

// renderedCall is a call as a template renders it: a required one is held to that.
func renderedCall(t *testing.T, source, arguments string) string {
	t.Helper()
	tmpl, err := template.Compile(source)
	if err != nil {
		t.Fatal(err)
	}
	text, err := tmpl.Render(template.Input{Tools: []toolcall.Tool{{Name: "weather"}}, Messages: []template.Message{
		{Role: "user", Content: "asked"},
		{Role: "assistant", Calls: []toolcall.Call{{ID: "weather1", Name: "weather", Arguments: arguments}}}}})
	if err != nil {
		t.Fatal(err)
	}
	f := tmpl.Tools().Syntax
	if f.Notation == toolcall.Keywords { // required strings have double quotes
		return f.Write([]toolcall.Call{{Name: "weather", Arguments: arguments}})
	}
	begin, end := slices.Concat(f.Open, f.Before)[0], slices.Concat(f.Close, f.After)[0]
	return text[strings.LastIndex(text, begin) : strings.LastIndex(text, end)+len(end)]
}

// TestNullableStringsOverEachAPI: a string parameter that may be something else has no quotation marks in its value, in
// any form and over each API: frames and four over HTTP. But for ollama's, which has no such field, the call is
// required, so that the grammar of its schema holds it too.
func TestNullableStringsOverEachAPI(t *testing.T) {
	_, sources := publishedOutputs(t)
	values, wrong := 0, 0
	for form, name := range nullableForms {
		cfg := fake.Config{Template: sources[name], SpelledTags: true}
		if cfg.Template == "" {
			cfg.Template = publishedTemplate(t, name)
		}
		q := wire.DefaultRequest()
		q.Messages, q.MaxTokens, q.Sampling.Temperature = []wire.Message{{Role: "user", Content: "asked"}}, 400, 0
		q.ToolChoice.Mode = wire.ToolRequired
		q.Tools = []wire.Tool{{Name: "weather", Parameters: []byte(`{"type":"object"}`)}}
		probe := serve(t, cfg, "-c", "32768")
		m := probe.model.Load()
		p := prepare.NewPrepared(0)
		if bad := m.Answer(&p, &q, prepare.Constrained{}, &sampler.Scratch{}); bad != nil ||
			m.Calls.Syntax().Name != form {
			t.Fatalf("%s: form %s, %v", name, m.Calls.Syntax().Name, bad)
		}
		answer := renderedCall(t, cfg.Template, `{"unit": "celsius"}`)
		if p.Begin.Thinking {
			answer = m.Tags.Markers().Close[0] + answer
		}
		prompt, _, bad := m.Render(0, &q, nil)
		if bad != nil {
			t.Fatal(name, bad)
		}
		probe.stop()
		cfg.Scripts = []fake.Script{{After: prompt[strings.LastIndex(prompt, "asked"):], Emit: answer}}
		r := serve(t, cfg, "-c", "32768")
		web := r.web()
		check := func(api, schema, arguments string) {
			t.Helper()
			var got struct{ Unit any }
			err := json.Unmarshal([]byte(arguments), &got)
			if values++; err != nil || got.Unit != "celsius" {
				wrong++
				t.Errorf("%s, %s, %s: arguments %s, %v", form, api, schema, arguments, err)
			}
		}
		for _, unit := range nullableUnits {
			schema := fmt.Sprintf(`{"type":"object","properties":{"unit":%s,"other":{"type":["string","null"]}},`+
				`"required":["unit"],"$defs":{"unit":{"type":"string","enum":["celsius","fahrenheit"]}},`+
				`"definitions":{"maybe":{"type":["string","null"]}}}`, unit)
			for _, api := range nullableAPIs {
				status, _, body := post(t, web, api.path, fmt.Sprintf(api.body, schema))
				list, err := sseData(body)
				if status != http.StatusOK || err != nil {
					t.Fatalf("%s, %s, %s: %d %s", form, api.path, unit, status, body)
				}
				var got forcedCall
				for _, v := range list {
					api.read(&got, v)
				}
				check(api.path, unit, got.arguments)
			}
			q.Tools[0].Parameters = []byte(schema)
			got := r.called(&q)
			if len(got.calls) != 1 {
				t.Fatalf("%s, frames, %s: %s; the model says %q", form, unit, got, answer)
			}
			check("frames", unit, got.calls[0].Arguments)
		}
		r.stop()
	}
	t.Logf("%d schemas in %d forms over 5 APIs: %d values, %d are not the string", len(nullableUnits),
		len(nullableForms), values, wrong)
}
