//go:build cgo && (llama_engine || llama_system) && linux

package smoke

import (
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/internal/testutil/usertest"
)

var listening = regexp.MustCompile(`msg=listening url=(http://127\.0\.0\.1:[1-9][0-9]*)`)

// TestListen: the built daemon prints the real port of --listen 127.0.0.1:0, answers HTTP there, tells users apart by
// the kernel's word, and refuses strangers.
func TestListen(t *testing.T) {
	s := start(t, "--listen", "127.0.0.1:0")
	found := listening.FindStringSubmatch(s.Log())
	if found == nil {
		t.Fatalf("the log does not name the port:\n%s", s.Log())
	}
	url := found[1]
	ask := func(c *http.Client, path, body string, headers ...string) (int, string) {
		t.Helper()
		method := http.MethodGet
		if body != "" {
			method = http.MethodPost
		}
		req, err := http.NewRequest(method, url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range headers {
			name, value, _ := strings.Cut(h, ": ")
			if req.Header.Set(name, value); name == "Host" {
				req.Host = value
			}
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	const prompt = `{"prompt":"a","max_tokens":2}`
	own := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	if status, body := ask(own, "/health", ""); status != 200 || !strings.Contains(body, url) {
		t.Errorf("health: %d %s", status, body)
	}
	if status, body := ask(own, "/v1/completions", prompt); status != 200 || !strings.Contains(body, `"choices"`) {
		t.Errorf("completion: %d %s", status, body)
	}
	if status, body := ask(own, "/metrics", ""); status != 200 ||
		!strings.Contains(body, "uma_connections_accepted_by_listener_total{listener=\""+
			strings.TrimPrefix(url, "http://")) {
		t.Errorf("metrics: %d %s", status, body)
	}
	if status, _ := ask(own, "/health", "", "Host: evil.example"); status != 403 {
		t.Errorf("a foreign Host header: %d", status)
	}
	if status, _ := ask(own, "/v1/completions", prompt, "Origin: http://evil.example"); status != 403 {
		t.Errorf("a foreign origin: %d", status)
	}
	cli := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(filepath.Join(bin, "uma-cli"), append([]string{"--socket", s.Socket}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("uma-cli %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	if out := cli("info"); !strings.Contains(out, url+", clients by uid") {
		t.Errorf("uma-cli info:\n%s", out)
	}
	if out := cli("health"); !strings.Contains(out, url) {
		t.Errorf("uma-cli health: %s", out)
	}
	if curl, err := exec.LookPath("curl"); err == nil {
		if out := cli("proxy", "--", "sh", "-c", curl+" -sf $OPENAI_BASE_URL/models"); !strings.Contains(out,
			`"object":"list"`) {
			t.Errorf("curl through the proxy: %s", out)
		}
	}
	t.Run("users", func(t *testing.T) {
		other := usertest.Client(t, usertest.B)
		if status, body := ask(other, "/v1/models", ""); status != 403 || !strings.Contains(body, "54322") {
			t.Errorf("another user: %d %s", status, body)
		}
		other.CloseIdleConnections()
	})
	s.nothingLeft()
}
