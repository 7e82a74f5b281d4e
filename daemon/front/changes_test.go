package front

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
)

// TestModelsLoadedByRequest: POST /models/load and /models/unload change what is loaded, and only that; wrong names and
// bodies, and models that must stay, are refused with the reason.
func TestModelsLoadedByRequest(t *testing.T) {
	r := start(t, Options{}, []string{"one", "two"}, func(c *config.Config) { c.Models[0].Pinned = true })
	r.awaitReady("one")
	h := r.http()
	is := func(name string, want state) func() bool {
		return func() (ok bool) {
			r.call(func() { ok = r.find(name).state == want })
			return ok
		}
	}
	ok := func(path, name, want string) {
		t.Helper()
		if status, text := h.post(path, `{"model":"`+name+`"}`); status != 200 ||
			!strings.Contains(text, `"success":true`) || !strings.Contains(text, `"value":"`+want+`"`) {
			t.Errorf("%s of %s: %d %s", path, name, status, text)
		}
	}
	ok("/models/load", "two", "loading")
	waitfor.True(t, "it is loaded", is("two", ready))
	ok("/v1/models/load", "two-alias", "loaded")
	ok("/models/unload", "two", "unloaded")
	waitfor.True(t, "it is unloaded", is("two", unloaded))
	ok("/models/unload", "two", "unloaded")
	if got, err := wholeOf(r.dial(), "two"); err != nil || got != "I am two" {
		t.Errorf("after that: %q, %v", got, err)
	}
	for _, x := range []struct {
		path, body, want string
		status           int
	}{
		{"/models/unload", `{"model":"one"}`, "pinned", 400},
		{"/models/load", `{"model":"three"}`, "three", 404},
		{"/models/load", `{}`, `the body must be {\"model\": \"NAME\"}`, 400},
		{"/models/load", `{"model":5}`, "the body must be", 400},
		{"/models/load", `[`, "the body must be", 400},
		{"/models/load", `{"model":"` + strings.Repeat("x", maxChangeBody) + `"}`, "has more than", 400},
	} {
		if status, text := h.post(x.path, x.body); status != x.status || !strings.Contains(text, x.want) {
			t.Errorf("%s %.60s: %d %s", x.path, x.body, status, text)
		}
	}
}

// TestModelsChangedByOthers: another user's client may neither load nor unload, unless the operator allows it.
func TestModelsChangedByOthers(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte("key-of-alice-0123456789 alice\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		args   []string
		status int
		want   string
	}{{nil, 403, "--allow-model-changes"}, {[]string{"--allow-model-changes"}, 200, `"success":true`}} {
		r := start(t, Options{}, []string{"one", "two"}, nil,
			append([]string{"--listen", "127.0.0.1:0", "--api-keys", keys, "--listen-mode", "0000"}, x.args...)...)
		r.awaitReady("one")
		url := ""
		r.call(func() {
			for _, l := range r.health().Listen {
				if strings.HasPrefix(l, "http://") {
					url = l
				}
			}
		})
		for _, path := range []string{"/models/load", "/models/unload"} {
			req, err := http.NewRequest("POST", url+path, strings.NewReader(`{"model":"one"}`))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer key-of-alice-0123456789")
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != x.status || !strings.Contains(string(text), x.want) {
				t.Errorf("%v, %s: %d %s", x.args, path, resp.StatusCode, text)
			}
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	}
}
