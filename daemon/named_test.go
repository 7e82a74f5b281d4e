package daemon

import (
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/runtime/fake"
)

// TestErrorsNameTheFieldThatWasSent: an error has the field's name in the body, not in what the body is translated to.
func TestErrorsNameTheFieldThatWasSent(t *testing.T) {
	r := serve(t, fake.Config{}, "-c", "4096")
	web := r.web()
	const messages = `"messages":[{"role":"user","content":"x"}]`
	for _, c := range []struct{ path, body, field string }{
		{"/v1/chat/completions", `{` + messages + `,"max_completion_tokens":-7}`, "max_completion_tokens"},
		{"/v1/chat/completions", `{` + messages + `,"max_tokens":-7}`, "max_tokens"},
		{"/v1/completions", `{"prompt":"x","n_predict":-7}`, "n_predict"},
		{"/completion", `{"prompt":"x","n_predict":-7}`, "n_predict"},
		{"/completion", `{"prompt":"x","repetition_penalty":-7}`, "repetition_penalty"},
		{"/v1/responses", `{"input":"x","max_output_tokens":-7}`, "max_output_tokens"},
		{"/v1/responses", `{"input":"x","reasoning":{"effort":"vast"}}`, "reasoning.effort"},
		{"/v1/messages", `{"max_tokens":9,` + messages + `,"stop_sequences":["` + strings.Repeat("x", 300) + `"]}`,
			"stop_sequences[0]"},
		{"/v1/messages", `{"max_tokens":9,` + messages + `,"tools":[{"name":"f","input_schema":7}]}`,
			"tools[0].input_schema"},
		{"/v1/messages", `{"max_tokens":9,` + messages + `,"tools":[{"name":"a b","input_schema":{}}]}`,
			"tools[0].name"},
		{"/v1/responses", `{"input":"x","tools":[{"type":"function","name":"f","parameters":7}]}`,
			"tools[0].parameters"},
		{"/v1/messages", `{"max_tokens":-7,` + messages + `}`, "max_tokens"},
		{"/api/chat", `{` + messages + `,"options":{"temperature":1000}}`, "options.temperature"},
		{"/api/generate", `{"prompt":"x","options":{"top_p":7}}`, "options.top_p"},
	} {
		status, _, body := post(t, web, c.path, c.body)
		if want := `field \"` + c.field + `\"`; status != 400 || !strings.Contains(string(body), want) {
			t.Errorf("%s %.120s: %d %s; want %s", c.path, c.body, status, body, want)
		}
	}
	r.nothingLeft()
}
