package llamaserver_test

import (
	"testing"

	"github.com/uma-serve/uma-serve/daemon/api/apitest"
	"github.com/uma-serve/uma-serve/daemon/api/llamaserver"
)

func FuzzCompletion(f *testing.F) {
	apitest.Fuzz(f, llamaserver.Routes, "/completion",
		`{"prompt":"x","n_predict":8,"stream":true,"return_progress":true,"n_probs":2}`,
		`{"prompt":[[1,2,"a"],"b",{"prompt_string":"c"}],"n_cmpl":2,"return_tokens":true,"seed":7}`,
		`{"prompt":"x","response_fields":["content","generation_settings/n_predict","timings/","a/b/c"],`+
			`"logit_bias":[[1,false],["a",2]],"samplers":["top_k"]}`,
		`{"prompt":"x","grammar":"root ::= \"a\"","id_slot":-1,"cache_prompt":false,"t_max_predict_ms":0}`)
}

func FuzzInfill(f *testing.F) {
	apitest.Fuzz(f, llamaserver.Routes, "/infill",
		`{"input_prefix":"a","input_suffix":"b","prompt":"c","input_extra":[{"filename":"f","text":"t"},{"text":""}],`+
			`"n_predict":3}`,
		`{"input_prefix":"","input_suffix":"","input_extra":[{}],"stream":true}`)
}

func FuzzTokenize(f *testing.F) {
	apitest.Fuzz(f, llamaserver.Routes, "/tokenize",
		`{"content":"x \u00e9","add_special":true,"parse_special":false,"with_pieces":true}`, `{"content":["a",1,"b"]}`,
		`{}`, `{"content":{}}`)
}

func FuzzDetokenize(f *testing.F) {
	apitest.Fuzz(f, llamaserver.Routes, "/detokenize", `{"tokens":[104,105]}`, `{}`, `{"tokens":[-1]}`,
		`{"tokens":["a"]}`)
}

func FuzzTemplate(f *testing.F) {
	apitest.Fuzz(f, llamaserver.Routes, "/apply-template",
		`{"messages":[{"role":"user","content":"x"}],"add_generation_prompt":false,"tools":[{"type":"function",`+
			`"function":{"name":"f"}}]}`)
}

func FuzzControl(f *testing.F) {
	apitest.Fuzz(f, llamaserver.Routes, "/v1/chat/completions/control",
		`{"id":"x","action":"reasoning_end","model":"m"}`, `{"id":"x","action":"cancel"}`)
}

func FuzzEmbedding(f *testing.F) {
	apitest.Fuzz(f, llamaserver.Routes, "/embedding",
		`{"content":"x","embd_normalize":-1}`, `{"input":["a",[1,"b"],{"prompt_string":"c"}]}`,
		`{"content":{"content":[{"type":"text","text":"x"}]}}`, `{"content":[{}]}`)
}
