package anthropic_test

import (
	"testing"

	"github.com/uma-serve/uma-serve/daemon/api/anthropic"
	"github.com/uma-serve/uma-serve/daemon/api/apitest"
)

func FuzzMessages(f *testing.F) {
	apitest.Fuzz(f, anthropic.Routes, "/v1/messages",
		`{"max_tokens":5,"messages":[{"role":"user","content":"x"}],"stream":true,"system":"s",`+
			`"thinking":{"type":"enabled","budget_tokens":9}}`,
		`{"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},`+
			`{"type":"tool_use","id":"c","name":"f","input":{"a":[1]}}]},{"role":"user",`+
			`"content":[{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"x"}],`+
			`"is_error":true},{"type":"text","text":"y"}]}],"tools":[{"name":"f","input_schema":{}}],`+
			`"tool_choice":{"type":"tool","name":"f","disable_parallel_tool_use":true}}`,
		`{"messages":[],"system":[{"type":"text","text":"a"}],"output_config":{"effort":"low",`+
			`"format":{"type":"json_schema","schema":{}}},"stop_sequences":["a"],"min_p":0.5}`,
		`{"messages":[{"role":"user","content":[{"type":"image"}]}],"max_tokens":null}`)
}
