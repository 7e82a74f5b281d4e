package daemon

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/runtime/fake"
)

// TestLlamaServerPostSampling: with post_sampling_probs the probabilities are those of the draw.
func TestLlamaServerPostSampling(t *testing.T) {
	r := serve(t, fake.Config{})
	web := r.web()
	for _, c := range []struct {
		body string
		sure bool // only one token can be drawn
	}{
		{`"temperature":1,"top_k":0,"top_p":1,"min_p":0`, false},
		{`"temperature":1.5,"top_k":3,"top_p":1,"min_p":0`, false},
		{`"temperature":0`, true}, {`"top_k":1`, true}, {`"temperature":1,"allowed_token_ids":[65]`, true},
	} {
		body := fmt.Sprintf(`{%s,"n_predict":5,"n_probs":10,"post_sampling_probs":true,"seed":3,%s}`, meaning, c.body)
		probs := complete(t, web, "/completion", body)["completion_probabilities"].([]any)
		if len(probs) != 5 {
			t.Fatalf("%s: %d tokens", c.body, len(probs))
		}
		for _, p := range probs {
			p := p.(object)
			top, sum, own := p["top_probs"].([]any), 0.0, false
			for i, q := range top {
				prob := q.(object)["prob"].(float64)
				if sum += prob; prob <= 0 || prob > 1 || i > 0 && prob > top[i-1].(object)["prob"].(float64) {
					t.Errorf("%s: %v", c.body, top)
				}
				own = own || q.(object)["id"] == p["id"] && prob == p["prob"]
			}
			if p["logprob"] != nil || p["top_logprobs"] != nil || len(top) < 10 && math.Abs(sum-1) > 1e-6 ||
				len(top) < 10 && !own || c.sure && (len(top) != 1 || p["prob"] != 1.0) {
				t.Errorf("%s: %v", c.body, p)
			}
		}
	}
	raw := complete(t, web, "/completion", `{`+meaning+`,"n_predict":1,"n_probs":2,"temperature":0}`)
	if p := raw["completion_probabilities"].([]any)[0].(object); p["prob"] != nil || p["logprob"].(float64) >= 0 ||
		len(p["top_logprobs"].([]any)) != 2 {
		t.Errorf("the model's own: %v", p)
	}
}

// TestLlamaServerIgnoreEOS: the tokens that ignore_eos forbids are among the biases of generation_settings.
func TestLlamaServerIgnoreEOS(t *testing.T) {
	r := serve(t, fake.Config{})
	for _, on := range []bool{true, false} {
		a := complete(t, r.web(), "/completion", fmt.Sprintf(`{%s,"n_predict":2,"ignore_eos":%v}`, meaning, on))
		list := a["generation_settings"].(object)["logit_bias"].([]any)
		if on != (len(list) > 0) {
			t.Errorf("ignore_eos %v: %v", on, list)
		}
		for _, b := range list {
			if v, there := b.(object)["bias"]; v != nil || !there {
				t.Errorf("ignore_eos %v: %v", on, list)
			}
		}
	}
}

// TestFormOfNoAnswer: a request that only fills the cache is refused for its form as any other.
func TestFormOfNoAnswer(t *testing.T) {
	r := serve(t, fake.Config{})
	for format, want := range map[string]int{
		`{"type":"json_object"}`: 200, `{"type":"json_schema","json_schema":{"schema":{"const":"x"}}}`: 200,
		`{"type":"sound"}`: 400, `{"type":"json_object","schema":123}`: 400,
		`{"type":"json_object","schema":{"type":123}}`: 400, `{"type":"json_object","schema":{"type":"hiccup"}}`: 400,
	} {
		status, _, body := post(t, r.web(), "/v1/chat/completions",
			`{"messages":[{"role":"user","content":"x"}],"max_tokens":0,"response_format":`+format+`}`)
		if status != want || want == 200 && !strings.Contains(string(body), `"completion_tokens":0`) {
			t.Errorf("%s: %d %s", format, status, body)
		}
	}
	r.nothingLeft()
}
