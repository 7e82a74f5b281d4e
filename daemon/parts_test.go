package daemon

import (
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/runtime/fake"
)

// unreadableItems are items of Responses that this server does not have: what other servers' tools did, and what they
// keep of a conversation.
var unreadableItems = []string{
	`{"type":"web_search_call","id":"ws","status":"completed","action":{"type":"search","query":"x"}}`,
	`{"type":"file_search_call","id":"fs","status":"completed","queries":["x"],"results":null}`,
	`{"type":"computer_call","id":"cu","call_id":"c","action":{"type":"screenshot"},"pending_safety_checks":[],` +
		`"status":"completed"}`,
	`{"type":"computer_call_output","call_id":"c","output":{"type":"computer_screenshot","image_url":"data:x"}}`,
	`{"type":"code_interpreter_call","id":"ci","code":"1","container_id":"c","outputs":null,"status":"completed"}`,
	`{"type":"image_generation_call","id":"ig","result":"AA==","status":"completed"}`,
	`{"type":"local_shell_call","id":"ls","call_id":"c","action":{"type":"exec","command":["ls"],"env":{}},` +
		`"status":"completed"}`,
	`{"type":"local_shell_call_output","id":"lso","call_id":"c","output":"x"}`,
	`{"type":"shell_call","call_id":"c","action":{"commands":["ls"]}}`,
	`{"type":"shell_call_output","call_id":"c","output":[{"stdout":"x","stderr":"","outcome":{"type":"exit"}}]}`,
	`{"type":"apply_patch_call","call_id":"c","operation":{"type":"delete_file","path":"a"},"status":"completed"}`,
	`{"type":"apply_patch_call_output","call_id":"c","status":"completed","output":"x"}`,
	`{"type":"mcp_list_tools","id":"m","server_label":"s","tools":[]}`,
	`{"type":"mcp_approval_request","id":"m","name":"n","arguments":"{}","server_label":"s"}`,
	`{"type":"mcp_approval_response","approval_request_id":"m","approve":true}`,
	`{"type":"mcp_call","id":"m","name":"n","arguments":"{}","server_label":"s","output":"x"}`,
	`{"type":"compaction","encrypted_content":"AAAA"}`,
	`{"type":"compaction_summary","encrypted_content":"AAAA"}`,
	`{"type":"item_of_2027","data":{"a":[1]}}`,
}

// readItems are items that are read whole.
var readItems = []string{
	`{"type":"function_call","call_id":"c","name":"f","arguments":"{\"a\":\"kept\"}"}`,
	`{"type":"function_call_output","call_id":"c","output":"kept"}`,
	`{"type":"function_call_output","call_id":"c","output":{"a":"kept"}}`,
	`{"type":"function_call_output","call_id":"c","output":["kept",{"a":null}]}`,
	`{"type":"function_call_output","call_id":"c","output":[{"a":"kept"}]}`,
	`{"type":"function_call_output","call_id":"c","output":[{"type":"user","name":"kept"}]}`,
	`{"type":"function_call_output","call_id":"c","output":12}`,
	`{"type":"function_call_output","call_id":"c","output":null}`,
	`{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"kept"}]}`,
	`{"type":"custom_tool_call","call_id":"c","name":"f","input":"kept"}`,
	`{"type":"custom_tool_call_output","call_id":"c","output":"kept"}`,
	`{"role":"assistant","content":[{"type":"refusal","refusal":"kept"}]}`,
	`{"role":"assistant","content":[{"type":"output_text","text":"kept","annotations":[]}]}`,
	`{"role":"developer","content":"kept"}`,
}

// Blocks of Messages, and parts of chat completions, that this server cannot read.
var (
	assistantBlocks = []string{
		`{"type":"server_tool_use","id":"s","name":"web_search","input":{"query":"x"}}`,
		`{"type":"web_search_tool_result","tool_use_id":"s","content":[{"type":"web_search_result","url":"u",` +
			`"title":"t","encrypted_content":"AA=="}]}`,
		`{"type":"web_fetch_tool_result","tool_use_id":"s","content":{"type":"web_fetch_result","url":"u"}}`,
		`{"type":"code_execution_tool_result","tool_use_id":"s","content":{"type":"code_execution_result"}}`,
		`{"type":"bash_code_execution_tool_result","tool_use_id":"s","content":{"type":"x"}}`,
		`{"type":"mcp_tool_use","id":"m","name":"n","server_name":"s","input":{}}`,
		`{"type":"mcp_tool_result","tool_use_id":"m","is_error":false,"content":[{"type":"text","text":"x"}]}`,
		`{"type":"compaction","content":null}`,
		`{"type":"block_of_2027","data":{"a":[1]}}`,
	}
	userBlocks = []string{
		`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}}`,
		`{"type":"image","source":{"type":"url","url":"http://x/y.png"}}`,
		`{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"AA=="}}`,
		`{"type":"document","source":{"type":"file","file_id":"f"}}`,
		`{"type":"container_upload","file_id":"f"}`,
		`{"type":"block_of_2027","data":{"a":[1]}}`,
	}
	userParts = []string{
		`{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}`,
		`{"type":"file","file":{"file_id":"f"}}`,
		`{"type":"video_url","video_url":{"url":"x"}}`,
		`{"type":"part_of_2027","data":{"a":[1]}}`,
	}
)

// TestPartsOfOtherServersNeverEndAConversation: what this server cannot read leaves a placeholder and a line in why,
// over each API; the texts beside it are read. What a client sends back it cannot take back.
func TestPartsOfOtherServersNeverEndAConversation(t *testing.T) {
	r := serve(t, fake.Config{Template: callTemplate, Scripts: []fake.Script{{Emit: "hello"}}}, "-c", "16384")
	web := r.web()
	ask := func(path, body, part string, left bool) {
		t.Helper()
		for _, stream := range []string{"false", "true"} {
			status, _, out, why := r.asked(web, path, strings.Replace(body, "PART", part, 1)+`,"stream":`+stream+`}`)
			if status != 200 || stream == "false" && !strings.Contains(out, "hello") ||
				strings.Contains(why, "left out") != left {
				t.Errorf("%s, %s, stream %s: %d %s\nwhy: %s", path, part, stream, status, out, why)
			}
		}
	}
	const input = `{"temperature":0,"store":false,"input":[{"role":"user","content":"before"},PART,` +
		`{"role":"user","content":"after"}]`
	for _, item := range unreadableItems {
		ask("/v1/responses", input, item, true)
	}
	for _, item := range readItems {
		ask("/v1/responses", input, item, false)
	}
	for _, b := range assistantBlocks {
		ask("/v1/messages", `{"max_tokens":50,"temperature":0,"messages":[{"role":"user","content":"before"},`+
			`{"role":"assistant","content":[PART,{"type":"text","text":"beside"}]},`+
			`{"role":"user","content":"after"}]`, b, true)
	}
	for _, b := range userBlocks {
		ask("/v1/messages", `{"max_tokens":50,"temperature":0,"messages":[{"role":"user","content":[PART,`+
			`{"type":"text","text":"beside"}]}]`, b, true)
		ask("/v1/messages", `{"max_tokens":50,"temperature":0,"messages":[{"role":"user","content":"q"},`+
			`{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]},{"role":"user",`+
			`"content":[{"type":"tool_result","tool_use_id":"t","content":[PART]}]}]`, b, true)
	}
	for _, p := range userParts {
		ask("/v1/chat/completions", `{"temperature":0,"messages":[{"role":"user","content":[PART,`+
			`{"type":"text","text":"beside"}]}]`, p, true)
		ask("/v1/chat/completions", `{"temperature":0,"messages":[{"role":"user","content":"q"},{"role":"assistant",`+
			`"content":null,"tool_calls":[{"id":"t","type":"function","function":{"name":"f","arguments":"{"}}]},`+
			`{"role":"tool","tool_call_id":"t","content":[PART]}]`, p, true)
	}
	r.nothingLeft()
}
