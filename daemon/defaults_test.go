package daemon

import (
	"net/http"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/runtime/fake"
)

// TestDefaults: values of --defaults hold for requests that leave a field out, of every API.
func TestDefaults(t *testing.T) {
	r := serve(t, fake.Config{}, "--defaults", `{"max_tokens":3,"temperature":0,"ignore_eos":true}`)
	web := r.web()
	for path, c := range map[string]struct{ body, want string }{
		"/v1/completions":      {`{"prompt":"x"}`, `"completion_tokens":3`},
		"/v1/chat/completions": {`{"messages":[{"role":"user","content":"x"}]}`, `"completion_tokens":3`},
		"/completion":          {`{"prompt":"x"}`, `"tokens_predicted":3`},
		"/api/generate":        {`{"prompt":"x","stream":false}`, `"eval_count":3`},
	} {
		for range 2 {
			status, _, body := post(t, web, path, c.body)
			if status != http.StatusOK || !strings.Contains(string(body), c.want) {
				t.Errorf("%s: %d %s", path, status, body)
			}
		}
	}
	status, _, body := post(t, web, "/v1/completions", `{"prompt":"x","max_tokens":5}`)
	if status != http.StatusOK || !strings.Contains(string(body), `"completion_tokens":5`) {
		t.Errorf("a request's own value: %d %s", status, body)
	}
}
