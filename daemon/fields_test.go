package daemon

import (
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// TestUnknownFields: they are left out and told in a header, streamed or not, in why and in the metrics.
func TestUnknownFields(t *testing.T) {
	r := serve(t, fake.Config{Scripts: []fake.Script{{Emit: "hello"}}})
	web := r.web()
	counted := uint64(0)
	for _, c := range []struct{ path, body string }{
		{"/v1/chat/completions", `{` + openAIQuestion},
		{"/v1/responses", `{"input":"question","temperature":0`},
		{"/v1/messages", `{"max_tokens":50,` + openAIQuestion},
		{"/api/chat", `{` + openAIQuestion},
	} {
		for _, stream := range []string{"false", "true"} {
			status, h, body, why := r.asked(web, c.path, c.body+`,"flux_mode":1,"top_kk":2,"stream":`+stream+`}`)
			const told = "flux_mode, top_kk (did you mean top_k?)"
			counted += 2
			n := r.metrics.FieldsIgnored.Value()
			if status != 200 || h.Get(api.HeaderIgnored) != told || h.Get("Warning") != "" ||
				!strings.Contains(why, "does not know were left out: "+told) || n != counted {
				t.Errorf("%s, stream %s: %d %q %s\nwhy: %s\n%d counted", c.path, stream, status,
					h.Get(api.HeaderIgnored), body, why, n)
			}
		}
	}
	r.nothingLeft()
}

// TestUnknownFieldsOfLlamaServer: likewise at its endpoints, by models that can do what these are for.
func TestUnknownFieldsOfLlamaServer(t *testing.T) {
	for _, c := range []struct {
		path, body string
		model      fake.Config
	}{
		{"/apply-template", openAIQuestion, fake.Config{}},
		{"/infill", `"input_prefix":"x","input_suffix":"y","n_predict":2`,
			fake.Config{Markers: []string{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"}}},
		{"/rerank", `"query":"x","documents":["y","z"]`, rankers()["encoder"]},
	} {
		r := serve(t, c.model)
		status, h, body := post(t, r.web(), c.path, `{`+c.body+`,"flux_mode":1}`)
		if status != 200 || h.Get(api.HeaderIgnored) != "flux_mode" {
			t.Errorf("%s: %d %q %s", c.path, status, h.Get(api.HeaderIgnored), body)
		}
		r.nothingLeft()
	}
}

// TestStrictFields: --strict-fields refuses them.
func TestStrictFields(t *testing.T) {
	r := serve(t, fake.Config{Scripts: []fake.Script{{Emit: "hello"}}}, "--strict-fields")
	web := r.web()
	for body, want := range map[string]string{
		`"event":"cancel"`: `belongs to the framed protocol`,
		`"flux_mode":1`:    `field \"flux_mode\" is not known`, `"top_kk":2`: `did you mean \"top_k\"?`,
	} {
		status, h, answer, _ := r.asked(web, "/v1/chat/completions", `{`+openAIQuestion+`,`+body+`}`)
		if status != 400 || !strings.Contains(answer, want) || h.Get(api.HeaderIgnored) != "" {
			t.Errorf("%s: %d %s", body, status, answer)
		}
	}
	r.nothingLeft()
}

// TestTemplateOfAText: a text as --chat-template is the prompt of every conversation.
func TestTemplateOfAText(t *testing.T) {
	r := serve(t, fake.Config{Scripts: []fake.Script{{After: "Say something.", Emit: "hello"}}}, "--chat-template",
		"Say something.")
	for _, more := range []string{``, `,"tools":[{"type":"function","function":{"name":"f"}}]`} {
		status, _, body := post(t, r.web(), "/v1/chat/completions", `{`+openAIQuestion+more+`}`)
		if status != 200 || !strings.Contains(string(body), "hello") {
			t.Errorf("%s: %d %s", more, status, body)
		}
	}
	r.nothingLeft()
}
