//go:build linux

package daemon

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// A page of another origin opens no live view; the server's own page, other programs and a typed address do.
func TestLiveIsNotForOtherOrigins(t *testing.T) {
	r := serve(t, fake.Config{}, "--listen", "127.0.0.1:0")
	for _, c := range []struct {
		header string
		status int
	}{
		{"Sec-Fetch-Site: cross-site", 403}, {"Sec-Fetch-Site: same-site", 403}, {"Origin: http://evil.example", 403},
		{"Sec-Fetch-Site: same-origin", 200}, {"Sec-Fetch-Site: none", 200}, {"Accept: */*", 200},
	} {
		req, err := http.NewRequestWithContext(t.Context(), "HEAD", r.url(0)+"/live", nil)
		if err != nil {
			t.Fatal(err)
		}
		name, value, _ := strings.Cut(c.header, ": ")
		req.Header.Set(name, value)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != c.status {
			t.Errorf("%s: %s", c.header, resp.Status)
		}
	}
}

// CONNECT and unknown paths are answered as every refusal. An unknown path is named, escaped and cut.
func TestConnectAndUnknownPaths(t *testing.T) {
	r := serve(t, fake.Config{}, "--listen", "127.0.0.1:0")
	for _, c := range []struct{ request, status, says string }{
		{"CONNECT 127.0.0.1:9 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "405", "no proxy"},
		{"GET /v1/evil-marker HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "404",
			"GET /v1/evil-marker: there is no such path"},
		{"GET /<script>" + strings.Repeat("x", 5000) + " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "404",
			`GET /\u003cscript\u003e` + strings.Repeat("x", 91) + ": there is no such path"},
	} {
		conn, err := net.Dial("tcp", r.addr(0).String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, c.request)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		conn.Close()
		if err != nil || !strings.HasPrefix(resp.Status, c.status) || !strings.HasPrefix(string(body), `{"error":{`) ||
			!strings.Contains(string(body), c.says) {
			t.Errorf("%q: %s %s %v", c.request, resp.Status, body, err)
		}
	}
}

// A token that ends the thinking and begins the answer has its id in one event.
func TestOneIDForEachToken(t *testing.T) {
	r := serve(t, fake.Config{Scripts: []fake.Script{{Emit: "<think>hm</think>yes and no"}}})
	for _, logprobs := range []int{0, 2} {
		ids := 0
		st := r.begin(r.dial(), func(q *wire.Request) { q.Sampling.Logprobs = logprobs })
		for {
			ev, err := st.Next()
			if err != nil {
				t.Fatal(err)
			}
			if ev.Kind == wire.EventToken && ev.Token.TokenID >= 0 {
				ids++
			}
			if ev.Kind == wire.EventToken && ev.Token.TokenID < 0 && ev.Token.HasLogprob {
				t.Error("an event without an id has a log-probability")
			}
			if ev.Kind == wire.EventEOS {
				if n := ev.EOS.Usage.CompletionTokens; ids > n {
					t.Errorf("%d ids of %d tokens", ids, n)
				}
				break
			}
		}
	}
}

// Clients that send Anthropic's version read lists and errors in its form, whatever path they ask for. What a retry
// cannot change tells the SDKs not to try.
func TestAnthropicFormByHeader(t *testing.T) {
	r := serve(t, fake.Config{Encoder: true, Pooling: runtime.PoolMean})
	name := r.model.Load().Info.Name
	for _, c := range []struct {
		method, path, body string
		status             int
		says, retry        string
	}{
		{"GET", "/v1/models", "", 200, `"has_more":false,"first_id":"` + name + `","last_id":"` + name + `"`, ""},
		{"GET", "/v1/models?limit=1", "", 200, `{"data":[{"type":"model","id":"` + name + `","display_name":"`, ""},
		{"GET", "/v1/models?after_id=" + name, "", 200, `{"data":[],"has_more":false,"first_id":null`, ""},
		{"GET", "/v1/models?limit=0", "", 400, `{"type":"error","error":{"type":"invalid_request_error"`, "false"},
		{"GET", "/v1/models?after_id=x", "", 400, "there is no such model", "false"},
		{"GET", "/v1/models/" + name, "", 200, `"lifecycle":"active"`, ""},
		{"GET", "/v1/models/other", "", 404, `{"type":"error","error":{"type":"not_found_error"`, "false"},
		{"GET", "/v1/skills", "", 404, `{"type":"error","error":{"type":"not_found_error","message":"GET /v1/skills: `,
			"false"},
		{"DELETE", "/v1/messages", "", 405, `{"type":"error","error":{"type":"invalid_request_error"`, "false"},
		{"POST", "/v1/messages", `{"max_tokens":2,"messages":[{"role":"user","content":"x"}]}`, 501,
			`{"type":"error","error":{"type":"api_error"`, "false"},
		{"POST", "/v1/messages", `{"max_tokens":2,"messages":[],"thread":{"type":"create"}}`, 400,
			`"details":{"error_code":"thread_unsupported_request","unsupported":["thread"]}`, "false"},
	} {
		req := httpRequest(t, c.method, "http://uma"+c.path, c.body)
		req.Header.Set("anthropic-version", "2023-06-01")
		resp, err := r.web().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != c.status || !strings.Contains(string(body), c.says) ||
			resp.Header.Get("X-Should-Retry") != c.retry {
			t.Errorf("%s %s: %s, retry %q, %s %v", c.method, c.path, resp.Status, resp.Header.Get("X-Should-Retry"),
				body, err)
		}
	}
}
