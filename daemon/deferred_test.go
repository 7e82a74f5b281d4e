package daemon

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/runtime/fake"
)

// Deferred tools are no part of the prompt's head: a client that has found one of them sends its definition behind what
// is cached, and the model's call of it is recognised and held to its schema.
func TestDeferredToolsKeepThePrefix(t *testing.T) {
	const search = `<tool_call>{"name": "ToolSearch", "arguments": {"query": "weather"}}</tool_call>`
	const found = `<tool_call>{"name": "tool_7", "arguments": {"days": "many"}}</tool_call>`
	const afterDefinition = "sunny<|im_end|>\n<|im_start|>assistant\n"
	r := serve(t, fake.Config{Template: callTemplate, Scripts: []fake.Script{
		{After: afterDefinition, Emit: found}, {Emit: search}}}, "--ctx-size", "16384")
	web := r.web()
	ask := func(path, body string) []byte {
		t.Helper()
		status, _, out := post(t, web, path, body)
		if status != http.StatusOK {
			t.Fatalf("%s: %d %s", path, status, out)
		}
		return out
	}
	const schema = `{"type":"object","properties":{"days":{"type":"integer","minimum":1,"maximum":3}},` +
		`"required":["days"],"additionalProperties":false}`
	const find = `{"type":"object","properties":{"query":{"type":"string"}},"required":["query"]}`

	t.Run("messages", func(t *testing.T) {
		tools := `{"name":"ToolSearch","input_schema":` + find + `}`
		for i := range 20 {
			tools += fmt.Sprintf(`,{"name":"tool_%d","description":%q,"input_schema":%s,"defer_loading":true}`, i,
				strings.Repeat("weather ", 30), schema)
		}
		tools = `"max_tokens":200,"temperature":0,"tools":[` + tools + `]`
		type answer struct {
			Content []struct {
				Type, ID, Name string
				Input          json.RawMessage
			}
			Usage struct {
				Input  int `json:"input_tokens"`
				Cached int `json:"cache_read_input_tokens"`
			}
		}
		var first, second answer
		const user = `{"role":"user","content":"weather?"}`
		if err := json.Unmarshal(ask("/v1/messages", `{"messages":[`+user+`],`+tools+`}`), &first); err != nil {
			t.Fatal(err)
		}
		if len(first.Content) != 1 || first.Content[0].Name != "ToolSearch" {
			t.Fatalf("%+v", first)
		}
		whole := first.Usage.Input + first.Usage.Cached
		if whole > 2000 {
			t.Errorf("the prompt has %d tokens: deferred tools are in it", whole)
		}
		body := `{"messages":[` + user + `,{"role":"assistant","content":[{"type":"tool_use","id":"` +
			first.Content[0].ID + `","name":"ToolSearch","input":{"query":"weather"}}]},{"role":"user","content":[` +
			`{"type":"tool_result","tool_use_id":"` + first.Content[0].ID + `","content":[{"type":"tool_reference",` +
			`"tool_name":"tool_7"},{"type":"image","source":{}}]},{"type":"text","text":"sunny"}]}],` + tools + `}`
		if err := json.Unmarshal(ask("/v1/messages", body), &second); err != nil {
			t.Fatal(err)
		}
		if second.Usage.Cached < whole-2 { // but for the opening of the answer
			t.Errorf("%d tokens cached of %d", second.Usage.Cached, whole)
		}
		days := struct{ Days int }{}
		if len(second.Content) == 0 || second.Content[0].Name != "tool_7" ||
			json.Unmarshal(second.Content[0].Input, &days) != nil || days.Days < 1 || days.Days > 3 {
			t.Errorf("%+v", second)
		}
	})

	t.Run("responses", func(t *testing.T) {
		tools := `"max_output_tokens":200,"temperature":0,"tools":[{"type":"tool_search","execution":"client",` +
			`"description":"finds tools","parameters":` + find + `}]`
		type answer struct {
			Output []struct {
				Type, Name, Execution, Namespace string
				Call                             string `json:"call_id"`
				Arguments                        json.RawMessage
			}
			Usage struct {
				Input   int `json:"input_tokens"`
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"input_tokens_details"`
			}
		}
		// The template's script calls ToolSearch; a client's search is called tool_search.
		r := serve(t, fake.Config{Template: callTemplate, Scripts: []fake.Script{
			{After: afterDefinition, Emit: strings.Replace(found, "tool_7", "mcp.tool_7", 1)},
			{Emit: strings.Replace(search, "ToolSearch", "tool_search", 1)}}}, "--ctx-size", "16384")
		web = r.web()
		var first, second answer
		const user = `{"role":"user","content":"weather?"}`
		if err := json.Unmarshal(ask("/v1/responses", `{"input":[`+user+`],`+tools+`}`), &first); err != nil {
			t.Fatal(err)
		}
		if len(first.Output) != 1 || first.Output[0].Type != "tool_search_call" ||
			first.Output[0].Execution != "client" || first.Output[0].Arguments[0] != '{' {
			t.Fatalf("%+v", first)
		}
		id := first.Output[0].Call
		body := `{"input":[` + user + `,{"type":"tool_search_call","execution":"client","call_id":"` + id +
			`","arguments":` + string(first.Output[0].Arguments) + `},{"type":"tool_search_output","execution":` +
			`"client","call_id":"` + id + `","tools":[{"type":"namespace","name":"mcp","tools":[{"type":"function",` +
			`"name":"tool_7","defer_loading":true,"parameters":` + schema + `}]}]},` +
			`{"role":"user","content":"sunny"}],` + tools + `}`
		if err := json.Unmarshal(ask("/v1/responses", body), &second); err != nil {
			t.Fatal(err)
		}
		if second.Usage.Details.Cached < first.Usage.Input-2 {
			t.Errorf("%d tokens cached of %d", second.Usage.Details.Cached, first.Usage.Input)
		}
		if len(second.Output) == 0 || second.Output[0].Type != "function_call" || second.Output[0].Name != "tool_7" ||
			second.Output[0].Namespace != "mcp" {
			t.Errorf("%+v", second)
		}
	})
}

// Deferred tools that only another server's search would find are offered from the start.
func TestDeferredToolsOfAHostedSearch(t *testing.T) {
	r := serve(t, fake.Config{Template: callTemplate, Scripts: []fake.Script{
		{Emit: `<tool_call>{"name": "far", "arguments": {}}</tool_call>`}}}, "--ctx-size", "16384")
	web := r.web()
	for path, body := range map[string]string{
		"/v1/messages": `"max_tokens":100,"messages":[{"role":"user","content":"q"}],"tools":[` +
			`{"type":"tool_search_tool_regex_20251119","name":"search"},{"name":"near","input_schema":` +
			`{"type":"object"}},{"name":"far","defer_loading":true,"input_schema":{"type":"object"}}]}`,
		"/v1/responses": `"max_output_tokens":100,"input":"q","tools":[{"type":"tool_search"},{"type":"function",` +
			`"name":"near","parameters":{"type":"object"}},{"type":"function","name":"far","defer_loading":true,` +
			`"parameters":{"type":"object"}}]}`,
	} {
		status, _, out := post(t, web, path, `{"temperature":0,`+body)
		if status != http.StatusOK || !strings.Contains(string(out), `"name":"far"`) {
			t.Errorf("%s: %d %s", path, status, out)
		}
	}
}
