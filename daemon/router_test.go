package daemon

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// askAs sends a completion with headers and returns the status, the cached tokens and the body.
func askAs(t *testing.T, web *http.Client, body string, headers ...string) (status, cached int, text string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, "http://uma/v1/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := web.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Usage struct {
			With struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	json.Unmarshal(b, &answer)
	return resp.StatusCode, answer.Usage.With.Cached, string(b)
}

// TestRouterUsers: a router's users have separate prefixes; a client that is no router cannot name one.
func TestRouterUsers(t *testing.T) {
	prompt := fmt.Sprintf(`{"max_tokens":1,"prompt":%q}`, strings.Repeat("a long prompt ", 20))
	r := serve(t, fake.Config{}, "-c", "4096")
	if status, _, body := askAs(t, r.web(), prompt, "X-Uma-User", "alice"); status != http.StatusForbidden ||
		!strings.Contains(body, "--router-user") {
		t.Errorf("%d %s", status, body)
	}
	if status, _, body := askAs(t, r.web(), prompt, "X-Uma-Deadline", "soon"); status != http.StatusBadRequest ||
		!strings.Contains(body, "X-Uma-Deadline") {
		t.Errorf("%d %s", status, body)
	}
	r = serve(t, fake.Config{}, "-c", "4096", "--router-user", fmt.Sprint(os.Getuid()))
	web := r.web()
	for i, c := range []struct {
		user   string
		cached bool
	}{{"alice", false}, {"alice", true}, {"bob", false}, {"", false}, {"", true}, {"bob", true}} {
		headers := []string{"X-Uma-Priority", "background"}
		if c.user != "" {
			headers = append(headers, "X-Uma-User", c.user)
		}
		status, cached, body := askAs(t, web, prompt, headers...)
		if status != http.StatusOK || cached > 0 != c.cached {
			t.Errorf("%d: %+v: %d, %d cached tokens, %s", i, c, status, cached, body)
		}
	}
	r.nothingLeft()
}

// TestCacheSalt: requests share prefixes with those of the same salt.
func TestCacheSalt(t *testing.T) {
	r := serve(t, fake.Config{}, "-c", "4096")
	web := r.web()
	for i, c := range []struct {
		salt   string
		cached bool
	}{
		{"", false}, {`,"cache_salt":"x"`, false}, {`,"cache_salt":"y"`, false}, {`,"cache_salt":["x"]`, true}, {"", true},
	} {
		body := fmt.Sprintf(`{"max_tokens":1,"prompt":%q%s}`, strings.Repeat("a long prompt ", 20), c.salt)
		if status, cached, answer := askAs(t, web, body); status != http.StatusOK || cached > 0 != c.cached {
			t.Errorf("%d: %+v: %d, %d cached tokens, %s", i, c, status, cached, answer)
		}
	}
	r.nothingLeft()
}

// TestKVEventsOfTheDaemon: what a request leaves in the pool is published, and told where.
func TestKVEventsOfTheDaemon(t *testing.T) {
	r := serve(t, fake.Config{}, "-c", "4096", "--kv-events", "tcp://127.0.0.1:0")
	web := r.web()
	if status, _, body := askAs(t, web,
		fmt.Sprintf(`{"max_tokens":1,"prompt":%q}`, strings.Repeat("a long prompt ", 20))); status != http.StatusOK {
		t.Fatal(status, body)
	}
	waitfor.True(t, "blocks to be published", func() bool { return r.counter("kv_events_stored_total") >= 2 })
	resp, err := web.Get("http://uma/kv_event_sources")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var sources map[string]struct{ Endpoint string }
	if err := json.NewDecoder(resp.Body).Decode(&sources); err != nil ||
		!strings.HasPrefix(sources["0"].Endpoint, "tcp://127.0.0.1:") ||
		strings.HasSuffix(sources["0"].Endpoint, ":0") {
		t.Errorf("%+v %v", sources, err)
	}
	r.nothingLeft()
}
