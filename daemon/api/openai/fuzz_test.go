package openai_test

import (
	"testing"

	"github.com/uma-serve/uma-serve/daemon/api/apitest"
	"github.com/uma-serve/uma-serve/daemon/api/openai"
)

func FuzzChat(f *testing.F) {
	apitest.Fuzz(f, openai.Routes, "/v1/chat/completions",
		`{"messages":[{"role":"user","content":"hi"}],"stream":true,"n":2,"stream_options":{"include_usage":true}}`,
		`{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function",`+
			`"function":{"name":"f","arguments":"{}"}}]},{"role":"tool","content":"x","tool_call_id":"c"}],`+
			`"tools":[{"type":"function","function":{"name":"f","parameters":{"a":[1,null]}}}],`+
			`"tool_choice":"required"}`,
		`{"\u006dessages":[{"role":"user","content":"\ud800"}],"logprobs":true,"top_logprobs":2,`+
			`"return_progress":true}`,
		`{"messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_schema",`+
			`"json_schema":{"schema":{}}},"chat_template_kwargs":{"x":[1]},"metadata":7}`)
}

func FuzzText(f *testing.F) {
	apitest.Fuzz(f, openai.Routes, "/v1/completions",
		`{"prompt":["x","y"],"n":2,"echo":true}`, `{"prompt":[1,"a",[2]],"suffix":"z"}`,
		`{"prompt":[[1],["a",2]],"stream":true,"echo":true}`, `{"prompt":"x","suffix":"y","logprobs":3,"best_of":1}`,
		`{"prompt":[1e0,-0.0]}`)
}

func FuzzResponses(f *testing.F) {
	apitest.Fuzz(f, openai.Routes, "/v1/responses",
		`{"input":"x","stream":true,"store":false,"instructions":"i","metadata":{"a":"b"},`+
			`"reasoning":{"effort":"low","summary":"auto"}}`,
		`{"input":[{"role":"developer","content":"d"},{"type":"message","role":"user",`+
			`"content":[{"type":"input_text","text":"x"}]},{"type":"reasoning","summary":[{"type":"summary_text",`+
			`"text":"t"}],"encrypted_content":"uma1:aG0="},{"type":"function_call","call_id":"c","name":"f",`+
			`"arguments":{}},{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"o"}`+
			`]},{"type":"custom_tool_call","call_id":"d","name":"p","input":"i"},{"type":"item_reference","id":"x"}]}`,
		`{"input":"x","tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"f"}]},`+
			`{"type":"custom","name":"p","format":{"type":"grammar","syntax":"lark","definition":"d"}},`+
			`{"type":"web_search"}],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"name":"p"}]}}`,
		`{"input":[{"id":"a"},{"content":null,"role":"user"}],"text":{"format":{"type":"json_schema","schema":{},`+
			`"name":"n"}},"include":["message.output_text.logprobs"],"top_logprobs":20}`)
}

func FuzzEmbeddings(f *testing.F) {
	apitest.Fuzz(f, openai.Routes, "/v1/embeddings",
		`{"input":"x","model":"m","encoding_format":"base64","dimensions":2,"user":"u"}`, `{"input":["a","\ud800",""]}`,
		`{"input":[1,"a",2]}`, `{"input":[[1],[2,3]],"truncate":true,"embd_normalize":0,"priority":"background"}`,
		`{"input":{"prompt_string":"x"}}`, `{"input":[]}`)
}
