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

// CONNECT and unknown paths are answered as every refusal, without the path.
func TestConnectAndUnknownPaths(t *testing.T) {
	r := serve(t, fake.Config{}, "--listen", "127.0.0.1:0")
	for _, c := range []struct{ request, status, says string }{
		{"CONNECT 127.0.0.1:9 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "405", "no proxy"},
		{"GET /v1/evil-marker HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "404", "there is no such path"},
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
			!strings.Contains(string(body), c.says) || strings.Contains(string(body), "evil") {
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
