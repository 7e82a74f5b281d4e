//go:build linux

package daemon

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/runtime/fake"
)

// Every HTTP request that is answered with an error counts once in requests_rejected_total, wherever it is refused.
func TestRefusedHTTPRequestsCount(t *testing.T) {
	r := serve(t, fake.Config{}, "--listen", "127.0.0.1:0", "--max-frame-bytes", "65536")
	count := func() map[string]float64 {
		var m struct {
			Rejected map[string]float64 `json:"requests_rejected_total"`
		}
		resp, err := http.DefaultClient.Do(httpRequest(t, "GET", r.url(0)+"/metrics", ""))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if err := json.NewDecoder(resp.Body).Decode(&m); err != nil {
			t.Fatal(err)
		}
		return m.Rejected
	}
	const user = `"messages": [{"role": "user", "content": "hi"}]`
	for _, c := range []struct{ method, path, body, code string }{
		{"POST", "/v1/chat/completions", `{"messages": 5}`, "E_PROTO_BAD_REQUEST"},
		{"POST", "/v1/chat/completions", `{`, "E_PROTO_INVALID_JSON"},
		{"POST", "/v1/messages", `{"max_tokens": -4, ` + user + `}`, "E_PROTO_BAD_REQUEST"},
		{"POST", "/api/chat", `{` + user + `, "images": ["x"]}`, "E_PROTO_BAD_REQUEST"},
		{"POST", "/tokenize", `{"content": 5}`, "E_PROTO_BAD_REQUEST"},
		{"POST", "/v1/completions", `{"prompt": "` + strings.Repeat("x", 64<<10) + `"}`, "E_PROTO_FRAME_TOO_LARGE"},
		{"POST", "/v1/completions", `{"prompt": "` + strings.Repeat("x ", 20<<10) + `"}`, "E_CONTEXT_LENGTH_EXCEEDED"},
		{"POST", "/v1/completions", `{"prompt": "a", "stream": true, "max_tokens": -7}`, "E_PROTO_BAD_REQUEST"},
		{"GET", "/no/such/path", "", "E_PROTO_BAD_REQUEST"},
		{"DELETE", "/health", "", ""},
		{"DELETE", "/info", "", "E_PROTO_BAD_REQUEST"},
		{"POST", "/api/show", `{}`, "E_PROTO_BAD_REQUEST"},
		{"GET", "/health", "", ""},
		{"POST", "/v1/completions", `{"prompt": "a", "max_tokens": 1}`, ""},
	} {
		before := count()
		resp, err := http.DefaultClient.Do(httpRequest(t, c.method, r.url(0)+c.path, c.body))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if c.code != "" {
			before[c.code]++
		}
		if after := count(); !maps.Equal(before, after) {
			t.Errorf("%s %s %.60s: HTTP %d, counted as %v, want %v", c.method, c.path, c.body, resp.StatusCode, after,
				before)
		}
	}
}

func httpRequest(t *testing.T, method, url, body string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/json")
	return req
}
