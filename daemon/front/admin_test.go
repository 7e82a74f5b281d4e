package front

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/daemon/devices"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/internal/wireclient"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// TestQuestionsCoverAllModels asks health, info, metrics, kv and why over HTTP and over frames.
func TestQuestionsCoverAllModels(t *testing.T) {
	r := start(t, Options{}, []string{"one", "two", "three"}, nil)
	c := r.dial()
	for _, n := range []string{"one", "two"} {
		if got, err := wholeOf(c, n); err != nil || got != "I am "+n {
			t.Fatalf("%q, %v", got, err)
		}
	}
	get := func(path string, headers ...string) string {
		t.Helper()
		status, text := r.http().do("GET", path, "", headers...)
		if status != http.StatusOK {
			t.Fatalf("%s: %d %s", path, status, text)
		}
		return text
	}
	var h reports.Health
	if err := json.Unmarshal([]byte(get("/health")), &h); err != nil || h.Status != "ok" ||
		h.Models["one"] != "ready" || h.Models["three"] != "unloaded" {
		t.Errorf("%+v, %v", h, err)
	}
	// The connection is at an engine process: a question brings it back to the front.
	ctx := context.Background()
	in, err := c.Info(ctx)
	if err != nil || len(in.Models) != 3 || in.Models[0].Info == nil || in.Models[1].Info == nil ||
		in.Models[2].Info != nil || in.Model == nil {
		t.Errorf("%+v, %v", in, err)
	}
	if hh, err := c.Health(ctx); err != nil || hh.Models["two"] != "ready" {
		t.Errorf("%+v, %v", hh, err)
	}
	why, err := c.Why(ctx, wire.WhyQuestion{Last: 10})
	if err != nil || len(why.Requests) != 2 || why.Requests[0].Model != "two" || why.Requests[1].Model != "one" {
		t.Errorf("%+v, %v", why, err)
	}
	kv, err := c.KV(ctx, false)
	if err != nil || len(kv.Models) != 2 || kv.Models["two"].Cells.Total == 0 || kv.Cells.Total == 0 {
		t.Errorf("%+v, %v", kv, err)
	}
	var doc struct {
		PromptsTotal int `json:"prompts_total"`
		Models       map[string]struct {
			PromptsTotal int `json:"prompts_total"`
		}
		Served []reports.InfoServed
		Front  json.RawMessage
	}
	if err := json.Unmarshal([]byte(get("/metrics", "Accept: application/json")), &doc); err != nil ||
		doc.Models["two"].PromptsTotal != 1 || doc.PromptsTotal != 1 || len(doc.Served) != 3 || doc.Front == nil {
		t.Errorf("%+v, %v", doc, err)
	}
	text := get("/metrics")
	for _, want := range []string{`uma_prompts_total{model="one"} 1`, `uma_prompts_total{model="two"} 1`,
		"\numa_prompts_total 0\n",
		`uma_front_model_loaded{model="two"} 1`, `uma_front_model_loaded{model="three"} 0`,
		"uma_front_memory_used_bytes 200", `uma_front_model_loads_total{model="one"} 1`} {
		if !strings.Contains(text, want) {
			t.Errorf("the scrape lacks %q", want)
		}
	}
	if n := strings.Count(text, "# TYPE uma_prompts_total "); n != 1 {
		t.Errorf("the family is there %d times", n)
	}
	if text := get("/why?last=1"); strings.Count(text, `"model"`) != 1 {
		t.Errorf("%s", text)
	}
	if text := get("/kv"); !strings.Contains(text, `"models":{`) {
		t.Errorf("%s", text)
	}
	for path, want := range map[string]string{"/api/tags": `"name":"three:latest"`, "/api/ps": `"name":"two:latest"`,
		"/v1/models/two": `"id":"two"`, "/api/version": "uma_version"} {
		if text := get(path); !strings.Contains(text, want) {
			t.Errorf("%s: %s", path, text)
		}
	}
	if status, text := r.http().do("GET", "/v1/models/tow", ""); status != http.StatusNotFound ||
		!strings.Contains(text, "two") {
		t.Errorf("%d %s", status, text)
	}
	if status, text := r.http().do("DELETE", "/kv", ""); status != http.StatusMethodNotAllowed {
		t.Errorf("%d %s", status, text)
	}
	if status, text := r.http().post("/kv", `{"op":"drop","target":"all"}`); status != http.StatusOK ||
		!strings.Contains(text, "one:") || !strings.Contains(text, "two:") {
		t.Errorf("%d %s", status, text)
	}
}

// cancels ends the request with an id over HTTP and reads its stream to the end.
func (r *running) cancels(id string, st *wireclient.Stream) {
	r.t.Helper()
	if status, text := r.http().post("/cancel", `{"id":"`+id+`"}`); status != http.StatusOK ||
		!strings.Contains(text, `"found":true`) {
		r.t.Fatalf("%d %s", status, text)
	}
	for {
		ev, err := st.Next()
		if err != nil {
			r.t.Fatal(err)
		}
		if ev.Kind == wire.EventEOS {
			if ev.EOS.Reason != wire.Cancelled {
				r.t.Errorf("%v", ev.EOS.Reason)
			}
			return
		}
	}
}

// TestCancelByIDReachesItsProcess: the front does not know whose request an id is.
func TestCancelByIDReachesItsProcess(t *testing.T) {
	r := start(t, Options{}, []string{"one", "slow"}, nil)
	q := endless("slow")
	q.ID = "mine"
	st, err := r.dial().Stream(context.Background(), q)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Next(); err != nil {
		t.Fatal(err)
	}
	r.cancels("mine", st)
	if status, text := r.http().post("/cancel", `{"id":"missing"}`); status != http.StatusOK ||
		!strings.Contains(text, `"found":false`) {
		t.Errorf("%d %s", status, text)
	}
}

// TestLoadingModelIsAsked: a request that waits for its model can be cancelled by its id; the front asks for the stored
// responses, metrics and requests of a model that loads as well.
func TestLoadingModelIsAsked(t *testing.T) {
	r := start(t, Options{}, []string{"gated", "one"}, nil)
	q := endless("gated")
	q.ID = "mine"
	st, err := r.dial().Stream(context.Background(), q)
	if err != nil {
		t.Fatal(err)
	}
	if ev, err := st.Next(); err != nil || ev.Kind != wire.EventProgress {
		t.Fatalf("%+v, %v", ev, err)
	}
	if text, err := wholeOf(r.dial(), "one"); err != nil {
		t.Fatal(text, err)
	}
	if status, text := r.http().do("GET", "/v1/responses/none", ""); status != http.StatusNotFound {
		t.Errorf("%d %s", status, text)
	}
	if status, text := r.http().do("GET", "/metrics", ""); status != http.StatusOK ||
		!strings.Contains(text, `model="gated"`) || !strings.Contains(text, `model="one"`) {
		t.Errorf("%d %s", status, text)
	}
	r.cancels("mine", st)
}

// TestTCPClientsAreIdentifiedByTheFront: an engine process has neither the user database nor the file of keys.
func TestTCPClientsAreIdentifiedByTheFront(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte("key-of-alice-0123456789 alice\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, Options{}, []string{"one", "two"}, nil, "--listen", "127.0.0.1:0", "--api-keys", keys,
		"--listen-mode", "0000")
	url := ""
	r.call(func() {
		for _, l := range r.health().Listen {
			if strings.HasPrefix(l, "http://") {
				url = l
			}
		}
	})
	ask := func(model, key string) (int, string) {
		t.Helper()
		req, err := http.NewRequest("POST", url+"/v1/chat/completions", strings.NewReader(chat(model, "")))
		if err != nil {
			t.Fatal(err)
		}
		if key != "" {
			req.Header.Set("Authorization", "Bearer "+key)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b := make([]byte, 4096)
		n, _ := resp.Body.Read(b)
		return resp.StatusCode, string(b[:n])
	}
	for range 2 {
		if status, text := ask("one", "key-of-alice-0123456789"); status != 200 || !strings.Contains(text, "I am one") {
			t.Fatalf("%d %s", status, text)
		}
	}
	if status, text := ask("one", "another"); status != http.StatusUnauthorized {
		t.Errorf("%d %s", status, text)
	}
	if status, _ := ask("two", ""); status != http.StatusUnauthorized {
		t.Errorf("without a key: %d", status)
	}
	r.awaitReady("one") // it may answer just before the front hears that it is loaded
	resp, err := http.Get(url + "/health")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); resp.StatusCode != 200 || strings.TrimSpace(string(b)) != `{"status":"ok"}` {
		t.Errorf("health without a key: %d %s %v", resp.StatusCode, b, err)
	}
	r.call(func() {
		if r.find("two").loads != 0 {
			t.Error("a client that may not ask has made a model load")
		}
	})
	// The owner of the key is the requests' namespace, in the engine process too.
	status, text := r.http().do("GET", "/why?last=5", "")
	if status != 200 || !strings.Contains(text, `"owner":"alice"`) {
		t.Errorf("%d %s", status, text)
	}
}

// TestOneModelAnswersEveryName: with one model and no table, a request's name does not matter, as without a front.
func TestOneModelAnswersEveryName(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "only.gguf")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, Options{}, nil, func(c *config.Config) { c.Model = path })
	for _, name := range []string{"", "gpt-4o", "only"} {
		if got, err := wholeOf(r.dial(), name); err != nil || got != "I am only.gguf" {
			t.Errorf("%q: %q, %v", name, got, err)
		}
	}
	waitfor.True(t, "the list has the name that answers have", func() bool {
		_, list := r.http().do("GET", "/v1/models", "")
		_, answer := r.http().post("/v1/chat/completions", chat("", ""))
		var in struct{ Model string }
		var models reports.ServedModels
		return json.Unmarshal([]byte(answer), &in) == nil && json.Unmarshal([]byte(list), &models) == nil &&
			len(models.Data) == 1 && models.Data[0].ID == in.Model
	})
}

// TestStopFinishesAnswers: what runs at SIGTERM is finished, and what comes later is refused.
func TestStopFinishesAnswers(t *testing.T) {
	r := start(t, Options{}, []string{"slow"}, nil)
	q := endless("slow")
	q.MaxTokens = 500 // they last until the late request has come
	st, err := r.dial().Stream(context.Background(), q)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Next(); err != nil {
		t.Fatal(err)
	}
	late := r.dial()
	stopped := make(chan error, 1)
	go func() { stopped <- r.stop() }()
	waitfor.True(t, "it drains", func() bool { return strings.Contains(r.log.String(), "stopp") || drains(r) })
	if _, err := wholeOf(late, "slow"); code(err) != wire.ShuttingDown {
		t.Errorf("a late request: %v", err)
	}
	for {
		ev, err := st.Next()
		if err != nil {
			t.Fatalf("the answer was cut: %v", err)
		}
		if ev.Kind == wire.EventEOS {
			if ev.EOS.Reason != wire.Length {
				t.Errorf("%v", ev.EOS.Reason)
			}
			break
		}
	}
	if err := waitfor.Recv(t, "it stops", stopped); err != nil {
		t.Error(err)
	}
}

func drains(r *running) (yes bool) {
	r.call(func() { yes = r.draining })
	return yes
}

// TestClientThatLeavesWhileItsModelWaits is forgotten.
func TestClientThatLeavesWhileItsModelWaits(t *testing.T) {
	r := startFull(t)
	waiting := func() (n int) {
		r.call(func() { n = len(r.find("three").waiting) })
		return n
	}
	c := r.dial()
	go wholeOf(c, "three")
	waitfor.True(t, "it waits", func() bool { return waiting() == 1 })
	c.Close()
	waitfor.True(t, "it is forgotten", func() bool { return waiting() == 0 })
}

func TestEnvironmentOfEngineProcesses(t *testing.T) {
	got := devices.EngineEnvironment([]string{"HOME=/h", "UMA_MODEL=x", "UMA_BACKEND_DIR=/b", "HF_TOKEN=s",
		"AWS_SECRET_ACCESS_KEY=s", "NOTIFY_SOCKET=/n", "LISTEN_FDS=1", "WATCHDOG_USEC=1", "OMP_NUM_THREADS=2",
		"OPENAI_API_KEY=s"})
	if want := "[HOME=/h UMA_BACKEND_DIR=/b OMP_NUM_THREADS=2]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}

// TestStoredResponseIsFoundWithoutItsModel: the front asks every engine process; one that has ended has none.
func TestStoredResponseIsFoundWithoutItsModel(t *testing.T) {
	r := start(t, Options{}, []string{"one", "two"}, nil)
	h := r.http()
	var made struct{ ID, Model string }
	status, text := h.post("/v1/responses", `{"model":"two","input":"whoami"}`)
	if err := json.Unmarshal([]byte(text), &made); status != http.StatusOK || err != nil || made.Model != "two" {
		t.Fatalf("%d %s", status, text)
	}
	if status, text := h.post("/v1/chat/completions", chat("one", "")); status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	for _, path := range []string{"/v1/responses/" + made.ID, "/responses/" + made.ID,
		"/v1/responses/" + made.ID + "?model=two", "/v1/responses/" + made.ID + "/input_items"} {
		if status, text := h.do("GET", path, ""); status != http.StatusOK ||
			!strings.Contains(text, "two") && !strings.Contains(text, "whoami") {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	for _, path := range []string{"/v1/responses/" + made.ID + "?model=one", "/v1/responses/none"} {
		if status, text := h.do("GET", path, ""); status != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	if status, text := h.do("DELETE", "/v1/responses/"+made.ID, ""); status != http.StatusOK ||
		!strings.Contains(text, `"deleted":true`) {
		t.Errorf("%d %s", status, text)
	}
	if status, _ := h.do("GET", "/v1/responses/"+made.ID, ""); status != http.StatusNotFound {
		t.Errorf("it is still there: %d", status)
	}
	if status, text := h.do("PUT", "/v1/responses/"+made.ID, ""); status != http.StatusMethodNotAllowed {
		t.Errorf("%d %s", status, text)
	}
}

// TestCountsOfUnloadedModels: what a model's processes have counted stays when they end, and the next one counts on.
func TestCountsOfUnloadedModels(t *testing.T) {
	r := start(t, Options{}, []string{"one"}, nil)
	counts := func() (ended, theirs string) {
		_, text := r.http().do("GET", "/metrics", "")
		for line := range strings.Lines(text) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
				switch name {
				case `uma_tokens_generated_total{model="one"}`:
					ended = value
				case "llamacpp:tokens_predicted_total":
					theirs = value
				}
			}
		}
		return ended, theirs
	}
	ask := func() {
		if _, err := wholeOf(r.dial(), "one"); err != nil {
			t.Fatal(err)
		}
	}
	ask()
	first, _ := counts()
	if status, text := r.http().post("/models/unload", `{"model":"one"}`); status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	waitfor.True(t, "it is unloaded", func() (ok bool) {
		r.call(func() { ok = r.find("one").state == unloaded })
		return ok
	})
	if own, theirs := counts(); own != first || theirs != first || first == "" || first == "0" {
		t.Errorf("unloaded: %q and %q, want %q", own, theirs, first)
	}
	ask()
	n, err := strconv.Atoi(first)
	if own, theirs := counts(); err != nil || own != strconv.Itoa(2*n) || theirs != own {
		t.Errorf("loaded again: %q and %q after %q", own, theirs, first)
	}
}
