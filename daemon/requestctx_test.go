package daemon

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/runtime/fake"
)

// TestRequestContext: with --request-ctx-size a request has a part of the context, which its clients are told, and the
// oldest half of that part is dropped where the context shifts.
func TestRequestContext(t *testing.T) {
	for size, args := range map[int][]string{
		64:  {"--request-ctx-size", "share"},
		100: {"--request-ctx-size", "100"},
		256: {"--request-ctx-size", "0"},
	} {
		r := serve(t, fake.Config{}, append(args, "--ctx-size", "256", "--parallel", "4")...)
		web := r.web()
		props := complete(t, web, "/completion", `{"prompt":"x","n_predict":-1,"ignore_eos":true}`)
		if n := number(t, props, "tokens_predicted"); n != size-1 || props["truncated"] != true {
			t.Errorf("%v: %d tokens, truncated %v", args, n, props["truncated"])
		}
		var shown struct {
			Default struct {
				Context int `json:"n_ctx"`
			} `json:"default_generation_settings"`
			Error struct {
				Context int `json:"n_ctx"`
			}
		}
		_, body := get(t, web, "/props")
		if err := json.Unmarshal(body, &shown); err != nil || shown.Default.Context != size {
			t.Errorf("%v: %v, n_ctx of /props is %d", args, err, shown.Default.Context)
		}
		status, _, body := post(t, web, "/completion", `{"prompt":"`+strings.Repeat("x", 256)+`","n_predict":1}`)
		if err := json.Unmarshal(body, &shown); err != nil || status != 400 || shown.Error.Context != size {
			t.Errorf("%v: %v, %d %s", args, err, status, body)
		}
		r.nothingLeft()
	}
	r := serve(t, fake.Config{}, "--ctx-size", "256", "--parallel", "4", "--request-ctx-size", "share",
		"--context-shift", "--no-slots")
	a := complete(t, r.web(), "/completion", `{"prompt":"x","n_predict":200,"ignore_eos":true}`)
	if n := number(t, a, "tokens_predicted"); n != 200 || r.metrics.ContextShift.Value() < 3 {
		t.Errorf("%d tokens, %d shifts", n, r.metrics.ContextShift.Value())
	}
	if status, body := get(t, r.web(), "/slots"); status != 501 || !strings.Contains(string(body), "--no-slots") {
		t.Errorf("%d %s", status, body)
	}
	r.nothingLeft()
}
