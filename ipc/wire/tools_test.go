package wire_test

import (
	"reflect"
	"strings"
	"testing"

	. "github.com/uma-serve/uma-serve/ipc/wire"
)

// TestTools: what a request says about tools, in each form, and what is refused.
func TestTools(t *testing.T) {
	const tool = `{"type":"function","function":{"name":"f","description":"d","parameters":{"b":1.0,` +
		`"a":"\u00e9\u0001"},"strict":true}}`
	want := Tool{Name: "f", Description: "d", Parameters: []byte(`{"b":1.0,"a":"é\u0001"}`), Strict: true}
	for _, c := range []struct {
		fields string
		tools  []Tool
		choice ToolChoice
		single bool
	}{
		{`"tools":[` + tool + `]`, []Tool{want}, ToolChoice{}, false},
		{`"tools":[` + tool + `,{"function":{"name":"g","strict":null}}],"tool_choice":"required",` +
			`"parallel_tool_calls":false`, []Tool{want, {Name: "g"}}, ToolChoice{Mode: ToolRequired}, true},
		{`"tools":[` + tool + `],"tool_choice":"any"`, []Tool{want}, ToolChoice{Mode: ToolRequired}, false},
		{`"tools":[` + tool + `],"tool_choice":{"type":"function","function":{"name":"f"}}`, []Tool{want},
			ToolChoice{ToolNamed, "f"}, false},
		{`"tools":[` + tool + `],"tool_choice":{"type":"function","name":"f"}`, []Tool{want},
			ToolChoice{ToolNamed, "f"}, false},
		{`"tool_choice":"none","tools":[` + tool + `]`, []Tool{want}, ToolChoice{Mode: ToolNone}, false},
		{`"tools":[` + tool + `,{"function":{"name":"g"}}],"tool_choice":{"type":"allowed_tools",` +
			`"allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"g"}}]}}`,
			[]Tool{{Name: "g"}}, ToolChoice{Mode: ToolRequired}, false},
		{`"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"function":{"name":"f"}}]}},` +
			`"tools":[` + tool + `]`, []Tool{want}, ToolChoice{}, false},
		{`"tools":[],"tool_choice":"auto"`, nil, ToolChoice{}, false},
	} {
		f, err := parse(t, `{"id":"a","messages":[{"role":"user","content":"x"}],`+c.fields+`}`)
		if err != nil {
			t.Errorf("%s: %v", c.fields, err)
			continue
		}
		if r := f.Request; !reflect.DeepEqual(r.Tools, c.tools) || r.ToolChoice != c.choice ||
			r.ParallelToolCalls == c.single {
			t.Errorf("%s: %+v %+v %v", c.fields, r.Tools, r.ToolChoice, r.ParallelToolCalls)
		}
	}
	for fields, want := range map[string]string{
		`"tools":{}`:   `field "tools" is an object; it must be an array of tools`,
		`"tools":[7]`:  `field "tools[0]" is a number`,
		`"tools":[{}]`: `field "tools[0].function" is missing`,
		`"tools":[{"type":"function","function":{}}]`: `field "tools[0].function.name" is missing`,

		`"tools":[{"function":{"name":"a b"}}]`: `field "tools[0].function.name" is "a b"; it must be 1…128 letters`,
		`"tools":[{"function":{"name":""}}]`:    `it must be 1…128 letters`,

		`"tools":[{"function":{"name":"f","parameters":"{}"}}]`: `field "tools[0].function.parameters" is a string`,
		`"tools":[{"function":{"name":"f","strict":1}}]`:        `field "tools[0].function.strict" is a number`,

		`"tools":[{"function":{"name":"f"}},{"function":{"name":"f"}}]`: `two tools of the name "f"`,

		`"tool_choice":"required"`:                                       `asks for a call, but there are no "tools"`,
		`"tool_choice":"maybe"`:                                          `field "tool_choice" is "maybe"`,
		`"tool_choice":{"type":"function"}`:                              `names no function`,
		`"tools":[` + tool + `],"tool_choice":{"function":{"name":"h"}}`: `names "h", which is none of the "tools"`,
		`"tool_choice":{"type":"allowed_tools"}`: `field "tool_choice.allowed_tools" is ` +
			`missing`,

		`"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"maybe"}}`: `"tool_choice.allowed_tools.mode"`,

		`"tool_choice":{"type":"allowed_tools","allowed_tools":{"tools":[]}}`: `must be an array of 1…512 tools`,
		`"tools":[` + tool + `],"tool_choice":{"type":"allowed_tools",` +
			`"allowed_tools":{"tools":[{"function":{"name":"h"}}]}}`: `allows none of the "tools"`,
		`"parallel_tool_calls":"no"`: `field "parallel_tool_calls" is a string`,
		`"tools":[` + strings.Repeat(`{"function":{"name":"f"}},`, MaxTools) + tool + `]`: `has 513 entries`,
	} {
		if _, err := parse(t, `{"id":"a","messages":[{"role":"user","content":"x"}],`+fields+`}`); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v", fields, err)
		}
	}
	if _, err := parse(t, `{"id":"a","prompt":"x","tools":[`+tool+`]}`); err == nil ||
		!strings.Contains(err.Error(), `needs "messages"`) {
		t.Errorf("tools beside a prompt: %v", err)
	}
}

// TestToolMessages: calls and their results in a conversation.
func TestToolMessages(t *testing.T) {
	f, err := parse(t, `{"id":"a","messages":[{"role":"user","content":"x"},
		{"role":"assistant","tool_calls":[
			{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\": 1}"}},
			{"function":{"name":"g","arguments":{"b":[1.50]}}}]},
		{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"h"}}],"name":null},
		{"role":"tool","content":[{"type":"text","text":"ok"}],"tool_call_id":"c1","name":"f"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	want := []Message{{Role: "user", Content: "x"},
		{Role: "assistant", ToolCalls: []ToolCall{{"c1", "f", `{"a": 1}`}, {"", "g", `{"b":[1.50]}`}}},
		{Role: "assistant", ToolCalls: []ToolCall{{Name: "h"}}},
		{Role: "tool", Content: "ok", Name: "f", ToolCallID: "c1"}}
	if !reflect.DeepEqual(f.Request.Messages, want) {
		t.Errorf("%+v", f.Request.Messages)
	}
	for message, want := range map[string]string{
		`{"role":"user","content":"x","tool_calls":[{"function":{"name":"f"}}]}`: `belongs to a message of ` +
			`the assistant`,
		`{"role":"assistant","tool_calls":[]}`: `field "messages[0].content" is missing`,
		`{"role":"assistant","tool_calls":{}}`: `field "messages[0].tool_calls" is an object`,
		`{"role":"assistant","tool_calls":[{"function":{}}]}`: `field "messages[0].tool_calls[0].function.name" is ` +
			`missing`,
		`{"role":"assistant","tool_calls":[{"type":"custom","function":{"name":"f"}}]}`: `it must be "function"`,

		`{"role":"tool","content":"x","tool_call_id":7}`: `field "messages[0].tool_call_id" is a number`,
	} {
		if _, err := parse(t, `{"id":"a","messages":[`+message+`]}`); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", message, err)
		}
	}
}

// TestFormat: every spelling of an answer's format.
func TestFormat(t *testing.T) {
	schema := Format{Kind: FormatSchema, Payload: `{"type":"object","x":[true]}`}
	named := schema
	named.Name, named.Strict = "thing", true
	const text = `{"type":"object","x":[true]}`
	for fields, want := range map[string]Format{
		`"response_format":{"type":"text"},"format":"","grammar":""`:     {},
		`"response_format":{"type":"json_object"}`:                       {Kind: FormatJSON},
		`"response_format":{"type":"json_object","schema":` + text + `}`: schema,

		`"response_format":{"type":"json_schema","json_schema":{"name":"thing","strict":true,"schema":` + text +
			`}}`: named,
		`"response_format":{"type":"json_schema","name":"thing","strict":true,"schema":` + text + `}`: named,

		`"json_schema":` + text:                                        schema,
		`"guided_json":"{\"type\": \"object\", \"x\": [true]}"`:        schema,
		`"guided_json":` + text + `,"json_schema":` + text:             schema,
		`"format":"json"`:                                              {Kind: FormatJSON},
		`"format":` + text:                                             schema,
		`"structured_outputs":{"json":` + text + `}`:                   schema,
		`"structured_outputs":{"regex":"a+","disable_fallback":false}`: {Kind: FormatRegex, Payload: "a+"},

		`"structured_outputs":{"choice":["a","b"]}`:         {Kind: FormatChoice, Choices: []string{"a", "b"}},
		`"structured_outputs":{"grammar":"root ::= \"a\""}`: {Kind: FormatGrammar, Payload: `root ::= "a"`},
		`"structured_outputs":{"json_object":true}`:         {Kind: FormatJSON},
		`"guided_json_object":true`:                         {Kind: FormatJSON},
		`"guided_regex":"a+","regex":"a+"`:                  {Kind: FormatRegex, Payload: "a+"},
		`"guided_choice":["a"]`:                             {Kind: FormatChoice, Choices: []string{"a"}},
		`"grammar":"root ::= \"a\""`:                        {Kind: FormatGrammar, Payload: `root ::= "a"`},
		`"ebnf":"root ::= \"a\""`:                           {Kind: FormatGrammar, Payload: `root ::= "a"`},
		`"json_schema":false`:                               {Kind: FormatSchema, Payload: "false"},
	} {
		f, err := parse(t, `{"id":"a","prompt":"x",`+fields+`}`)
		if err != nil || !reflect.DeepEqual(f.Request.Format, want) {
			t.Errorf("%s: %+v, %v", fields, f.Request, err)
		}
	}
	for fields, want := range map[string]string{
		`"response_format":"json"`:                 `field "response_format" is a string`,
		`"response_format":{}`:                     `field "response_format.type" is ""`,
		`"response_format":{"type":"sound"}`:       `field "response_format.type" is "sound"`,
		`"response_format":{"type":"json_schema"}`: `field "response_format.json_schema.schema" is missing`,

		`"response_format":{"type":"json_object","schema":123}`: `field "response_format.schema" is a number`,

		`"response_format":{"type":"json_schema","json_schema":{"schema":[]}}`: `field ` +
			`"response_format.json_schema.schema" is an array`,
		`"json_schema":"{"`:                             `is a string that is not JSON`,
		`"json_schema":"\"x\""`:                         `field "json_schema" is a string`,
		`"format":"yaml"`:                               `field "format" is "yaml"`,
		`"guided_regex":""`:                             `field "guided_regex" is empty`,
		`"guided_choice":[]`:                            `field "guided_choice" has 0 entries`,
		`"guided_choice":["a",""]`:                      `field "guided_choice[1]" is empty`,
		`"structured_outputs":{"yaml":1}`:               `field "structured_outputs.yaml" is not known`,
		`"structured_outputs":{"structural_tag":"x"}`:   `field "structured_outputs.structural_tag" is not supported`,
		`"guided_regex":"a","grammar":"root ::= \"a\""`: `fields "guided_regex" and "grammar" ask for different`,
		`"grammar":7`:                                   `field "grammar" is a number`,
	} {
		if _, err := parse(t, `{"id":"a","prompt":"x",`+fields+`}`); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", fields, err)
		}
	}
}

// TestPromptTokens: a prompt of token ids, and one with a hole.
func TestPromptTokens(t *testing.T) {
	f, err := parse(t, `{"id":"a","prompt":[1,2.0,3]}`)
	if err != nil || !reflect.DeepEqual(f.Request.PromptTokens, []int32{1, 2, 3}) {
		t.Errorf("%+v %v", f.Request, err)
	}
	f, err = parse(t, `{"id":"a","prompt":"x","suffix":"y"}`)
	if err != nil || f.Request.Suffix != "y" {
		t.Errorf("%+v %v", f.Request, err)
	}
	for body, want := range map[string]string{
		`"prompt":[]`:                       `field "prompt" is empty`,
		`"prompt":[-1]`:                     `field "prompt[0]" is -1`,
		`"prompt":["a"]`:                    `field "prompt[0]" is a string`,
		`"prompt":[1],"parse_special":true`: `field "parse_special" belongs to a "prompt" that is text`,
		`"prompt":"x","suffix":"y","parse_special":true`:                  `without "suffix"`,
		`"messages":[{"role":"user","content":"x"}],"parse_special":true`: `field "parse_special" belongs`,
		`"prompt":[1],"suffix":"y"`:                                       `belongs to a "prompt" that is text`,
		`"messages":[{"role":"user","content":"x"}],"suffix":"y"`:         `belongs to a "prompt" that is text`,
	} {
		if _, err := parse(t, `{"id":"a",`+body+`}`); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// TestLongPromptOfTokens: as many ids as a long context has, one of them written with a fraction.
func TestLongPromptOfTokens(t *testing.T) {
	f, err := parse(t, `{"id":"a","prompt":[`+strings.Repeat("128000,", 100_000)+`7.0]}`)
	if err != nil || len(f.Request.PromptTokens) != 100_001 || f.Request.PromptTokens[99_999] != 128000 ||
		f.Request.PromptTokens[100_000] != 7 {
		t.Fatalf("%d ids, %v", len(f.Request.PromptTokens), err)
	}
	if _, err := parse(t, `{"id":"a","prompt":[1,2147483648]}`); err == nil ||
		!strings.Contains(err.Error(), `"prompt[1]" is 2147483648`) {
		t.Errorf("%v", err)
	}
}
