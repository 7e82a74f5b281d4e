package front

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/daemon/front/modelnews"
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
		ask := func(method, path, body string) (resp *http.Response, text []byte) {
			req, err := http.NewRequest(method, url+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer key-of-alice-0123456789")
			if resp, err = http.DefaultClient.Do(req); err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			text, _ = io.ReadAll(resp.Body)
			return resp, text
		}
		resp, text := ask("GET", "/models?reload=1", "")
		if told := resp.Header.Get("X-Uma-Ignored") == "reload"; resp.StatusCode != 200 || told != (x.status == 403) {
			t.Errorf("%v, reload: %d %v %s", x.args, resp.StatusCode, resp.Header, text)
		}
		for _, path := range []string{"/models/load", "/models/unload"} {
			resp, text := ask("POST", path, `{"model":"one"}`)
			if resp.StatusCode != x.status || !strings.Contains(string(text), x.want) {
				t.Errorf("%v, %s: %d %s", x.args, path, resp.StatusCode, text)
			}
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	}
}

// TestKeepAliveOfOllama: a request of ollama's API says for how long its model stays; the next one may say otherwise,
// over the same connection too.
func TestKeepAliveOfOllama(t *testing.T) {
	r := start(t, Options{Tick: 10 * time.Millisecond}, []string{"one", "two"}, nil)
	h := r.http()
	ask := func(keep string) {
		t.Helper()
		body := `{"model":"two","stream":false,"messages":[{"role":"user","content":"whoami"}]` + keep + `}`
		if status, text := h.post("/api/chat", body); status != 200 || !strings.Contains(text, "I am two") {
			t.Fatalf("%d %s", status, text)
		}
	}
	keeps := func(what string, set bool, during time.Duration) {
		t.Helper()
		waitfor.True(t, what, func() (ok bool) {
			r.call(func() { k := r.find("two").keep; ok = k.set == set && k.during == during })
			return ok
		})
	}
	gone := func(what string) {
		t.Helper()
		waitfor.True(t, what, func() (ok bool) {
			r.call(func() { ok = r.find("two").state == unloaded })
			return ok
		})
	}
	ask(`,"keep_alive":"1h"`)
	keeps("an hour", true, time.Hour)
	r.awaitReady("two") // it may answer just before the front hears that it is loaded
	if _, text := h.do("GET", "/api/ps", ""); !strings.Contains(text, `"name":"two`) {
		t.Errorf("%s", text)
	}
	ask(`,"keep_alive":-1`)
	keeps("for ever", true, -1)
	ask(``)
	keeps("as configured", false, 0)
	ask(`,"keep_alive":0`)
	gone("at once")
	ask(`,"keep_alive":0.2`)
	gone("after a fifth of a second")
	if status, _ := h.post("/api/generate", `{"model":"two","keep_alive":"10m"}`); status != 200 {
		t.Error(status)
	}
	keeps("ten minutes", true, 10*time.Minute)
	if status, text := h.post("/api/generate", `{"model":"two","keep_alive":0}`); status != 200 ||
		!strings.Contains(text, "unload") {
		t.Errorf("%d %s", status, text)
	}
	gone("by a request without a prompt")
}

// TestModelEvents: a client of /models/sse hears of each load and unload, and of a model that cannot be loaded.
func TestModelEvents(t *testing.T) {
	r := start(t, Options{Demand: func(c *config.Config) (config.Demand, error) {
		if strings.HasSuffix(c.Model, "broken") {
			return config.Demand{}, errors.New("it is broken")
		}
		return takes(100), nil
	}}, []string{"one", "two", "broken"}, nil)
	r.awaitReady("one")
	conn, err := net.Dial("unix", r.socket())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("GET /models/sse HTTP/1.1\r\nHost: localhost\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	events := make(chan modelnews.Event, 100)
	go func() {
		defer close(events)
		in := bufio.NewScanner(conn)
		for in.Scan() {
			var e modelnews.Event
			if body, ok := strings.CutPrefix(in.Text(), "data: "); ok && json.Unmarshal([]byte(body), &e) == nil {
				events <- e
			} else if strings.HasPrefix(in.Text(), ": the models") {
				events <- modelnews.Event{Event: "begun"}
			}
		}
	}()
	until := func(what string, is func(e modelnews.Event) bool) {
		t.Helper()
		for {
			e := waitfor.Recv(t, what, events)
			if e.Event == "" {
				t.Fatalf("the stream ended before %s", what)
			}
			if is(e) {
				return
			}
		}
	}
	status := func(name, want string, failed bool) func(e modelnews.Event) bool {
		return func(e modelnews.Event) bool {
			return e.Event == "model_status" && e.Model == name && e.Data.Status == want && e.Data.Failed == failed
		}
	}
	until("the begin", func(e modelnews.Event) bool { return e.Event == "begun" })
	h := r.http()
	h.post("/models/load", `{"model":"two"}`)
	until("two is loaded", status("two", "loaded", false))
	h.post("/models/unload", `{"model":"two"}`)
	until("two is unloaded", status("two", "unloaded", false))
	h.post("/models/load", `{"model":"broken"}`)
	until("broken has failed", status("broken", "unloaded", true))
	if err := r.stop(); err != nil {
		t.Error(err)
	}
}
