package front

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// real gives the models of the tables files that have a header.
func real(t *testing.T) func(*config.Config) {
	b, err := os.ReadFile(ggufgen.Cached(t, ggufgen.TinyWide()))
	if err != nil {
		t.Fatal(err)
	}
	return func(c *config.Config) {
		for i := range c.Models {
			// Another size for each: they are other models.
			if err := os.WriteFile(c.Models[i].Model, append(b, make([]byte, i)...), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// loads returns the number of loads of all models so far.
func (r *running) loads() (n int) {
	r.call(func() {
		for _, m := range r.models {
			n += m.loads
		}
	})
	return n
}

// TestQuestionsLoadNothing: requests of ollama list, Zed and Open WebUI about eight models, of which memory has room
// for two, and paths that need no model load none but the default one, which stays loaded.
func TestQuestionsLoadNothing(t *testing.T) {
	names := []string{"slow", "two", "three", "four", "five", "six", "seven", "eight"}
	r := start(t, Options{}, names, real(t), "--memory", "200b", "-c", "512")
	r.awaitReady("slow")
	h := r.http()
	get := func(path string) string {
		t.Helper()
		status, text := h.do("GET", path, "")
		if status != http.StatusOK {
			t.Fatalf("%s: %d %s", path, status, text)
		}
		return text
	}
	digests := map[string]bool{}
	for range 3 {
		var tags struct {
			Models []struct {
				Name, Model, Digest, Modified_at string
				Size                             int64
				Details                          struct {
					Format, Family, Parameter_size, Quantization_level string
					Families                                           []string
				}
			}
		}
		if err := json.Unmarshal([]byte(get("/api/tags")), &tags); err != nil || len(tags.Models) != len(names) {
			t.Fatalf("%+v, %v", tags, err)
		}
		for i, m := range tags.Models {
			st, err := os.Stat(r.cfg.Models[i].Model)
			if err != nil {
				t.Fatal(err)
			}
			digests[m.Digest] = true
			d := m.Details
			if m.Name != names[i]+":latest" || m.Model != m.Name || len(m.Digest) < 12 || m.Size != st.Size() ||
				m.Modified_at != st.ModTime().UTC().Format("2006-01-02T15:04:05Z07:00") || d.Format != "gguf" ||
				d.Family != "llama" || len(d.Families) != 1 || d.Parameter_size != "4.99M" ||
				d.Quantization_level != "Q8_0" {
				t.Errorf("/api/tags: %+v", m)
			}
		}
		var ps struct {
			Models []struct {
				Name, Digest, Expires_at string
				Size                     int64
				Context_length           int
				Details                  struct{ Family string }
			}
		}
		if err := json.Unmarshal([]byte(get("/api/ps")), &ps); err != nil || len(ps.Models) != 1 ||
			ps.Models[0].Name != "slow:latest" || len(ps.Models[0].Digest) < 12 ||
			ps.Models[0].Details.Family != "llama" ||
			ps.Models[0].Size == 0 || ps.Models[0].Context_length == 0 || ps.Models[0].Expires_at == "" {
			t.Errorf("/api/ps: %+v, %v", ps, err)
		}
		var list struct {
			Data []struct {
				ID   string
				Meta map[string]int64
			}
		}
		if err := json.Unmarshal([]byte(get("/v1/models")), &list); err != nil || len(list.Data) != len(names) {
			t.Fatalf("%+v, %v", list, err)
		}
		for i, m := range list.Data {
			if m.ID != names[i] || m.Meta["n_ctx_train"] != 4096 || m.Meta["n_params"] != 4985088 ||
				m.Meta["size"] != 5309440 || m.Meta["n_vocab"] != 512 || m.Meta["n_embd"] != 256 ||
				m.Meta["n_ctx"] < 256 {
				t.Errorf("/v1/models: %+v", m)
			}
		}
		for _, n := range names {
			status, text := h.post("/api/show", fmt.Sprintf(`{"model":%q}`, n))
			var show struct {
				Details      struct{ Family string }
				Model_info   map[string]any
				Capabilities []string
				Template     string
			}
			if err := json.Unmarshal([]byte(text), &show); status != http.StatusOK || err != nil ||
				show.Details.Family != "llama" || show.Model_info["llama.context_length"] != 4096.0 ||
				show.Template == "" || len(show.Capabilities) < 2 {
				t.Errorf("/api/show of %s: %d %s", n, status, text)
			}
			asleep := fmt.Sprintf(`"is_sleeping":%v`, n != "slow")
			if text := get("/props?model=" + n); !strings.Contains(text, asleep) ||
				!strings.Contains(text, `"model_alias":"`+n+`"`) || !strings.Contains(text, `"n_ctx":512`) {
				t.Errorf("/props of %s: %s", n, text)
			}
			if text := get("/slots?model=" + n); !strings.HasPrefix(text, `[{"id":0,"n_ctx":512`) ||
				strings.Contains(text, `"is_processing":true`) {
				t.Errorf("/slots of %s: %s", n, text)
			}
		}
	}
	if len(digests) != len(names) {
		t.Errorf("%d digests of %d models", len(digests), len(names))
	}
	for _, x := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/v1/models/two", "", 200, `"n_params":4985088`},
		{"GET", "/api/version", "", 200, `"version":"`},
		{"GET", "/favicon.ico", "", 404, "there is no such path"},
		{"GET", "/v1/chat/completions?model=two", "", 405, "the method must be POST"},
		{"POST", "/api/push", `{"model":"two"}`, 501, "not supported"},
		{"POST", "/props?model=two", `{}`, 501, "not supported"},
		{"GET", "/lora-adapters?model=two", "", 200, "[]"},
		{"GET", "/props?model=missing", "", 404, `there is no model \"missing\"`},
		{"POST", "/api/show", `{"model":"missing"}`, 404, `{"error":"there is no model`},
		{"POST", "/api/show", `{"name":"two:latest"}`, 200, `"family":"llama"`},
		{"POST", "/api/show", `{"name":"TWO-alias"}`, 200, `"family":"llama"`},
	} {
		status, text := r.http().do(x.method, x.path, x.body)
		if status != x.status || !strings.Contains(text, x.want) {
			t.Errorf("%s %s: %d %s", x.method, x.path, status, text)
		}
	}
	if n := r.loads(); n != 1 {
		t.Errorf("%d loads", n)
	}
	// A request that needs the model loads it and waits.
	if status, text := h.post("/tokenize", `{"model":"two","content":"x"}`); status != http.StatusOK || r.loads() != 2 {
		t.Errorf("tokenize: %d %s, %d loads", status, text, r.loads())
	}
}

// TestUnreadableHeader: a file whose header cannot be read is listed, and is not loaded to be described.
func TestUnreadableHeader(t *testing.T) {
	r := start(t, Options{}, []string{"one", "two"}, nil)
	r.awaitReady("one")
	h := r.http()
	_, text := h.do("GET", "/api/tags", "")
	if n := strings.Count(text, `"digest":"`); n != 2 || strings.Count(text, `"family":""`) != 2 {
		t.Errorf("tags: %s", text)
	}
	status, text := h.do("GET", "/props?model=two", "")
	if status != http.StatusInternalServerError || !strings.Contains(text, "model two is not loaded, and the header") {
		t.Errorf("props: %d %s", status, text)
	}
	if n := r.loads(); n != 1 {
		t.Errorf("%d loads", n)
	}
}

// TestListedNameOfTheDefaultModel: with --models-dir the only model has the name of its file's header in lists, and
// every endpoint takes that name.
func TestListedNameOfTheDefaultModel(t *testing.T) {
	b, err := os.ReadFile(ggufgen.Cached(t, ggufgen.TinyWide()))
	if err != nil {
		t.Fatal(err)
	}
	dir, models := t.TempDir(), t.TempDir()
	path := filepath.Join(dir, "gated.gguf")
	for _, p := range []string{path, filepath.Join(models, "other.gguf")} {
		if err := os.WriteFile(p, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := start(t, Options{}, nil, func(c *config.Config) { c.Model = path }, "--models-dir", models)
	const name = "ggufgen-tiny-wide" // general.name
	check := func(when string) {
		t.Helper()
		_, list := r.http().do("GET", "/v1/models", "")
		if strings.Count(list, `"id":"`+name+`"`) != 1 || strings.Contains(list, `"id":"gated"`) ||
			!strings.Contains(list, `"id":"other"`) {
			t.Fatalf("%s: %s", when, list)
		}
	}
	check("while it loads")
	if status, text := r.http().post("/api/show", `{"model":"`+name+`"}`); status != http.StatusOK {
		t.Errorf("show while it loads: %d %s", status, text)
	}
	if err := os.WriteFile(path+".open", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	waitfor.True(t, "it is ready", func() bool {
		ok := false
		r.call(func() { ok = r.def.state == ready })
		return ok
	})
	r.call(func() { r.def.entitle(name) }) // the fake engine does not read the header
	check("when it is loaded")
	for path, body := range map[string]string{
		"/v1/chat/completions": `"messages":[{"role":"user","content":"x"}],"max_tokens":1`,
		"/v1/completions":      `"prompt":"x","max_tokens":1`, "/completion": `"prompt":"x","n_predict":1`,
		"/v1/messages":  `"messages":[{"role":"user","content":"x"}],"max_tokens":1`,
		"/v1/responses": `"input":"x","max_output_tokens":16`, "/api/chat": `"messages":[],"stream":false`,
		"/api/generate": `"prompt":"x","stream":false,"options":{"num_predict":1}`, "/tokenize": `"content":"x"`,
		"/detokenize": `"tokens":[40]`, "/apply-template": `"messages":[{"role":"user","content":"x"}]`,
		"/api/show": ``,
	} {
		for _, n := range []string{name, strings.ToUpper(name) + ":latest", "gated"} {
			body := strings.TrimSuffix(`{"model":"`+n+`",`+body, ",") + "}"
			if status, text := r.http().post(path, body); status != http.StatusOK {
				t.Errorf("%s of %s: %d %s", path, n, status, text)
			}
		}
	}
	for _, path := range []string{"/v1/models/" + name, "/props?model=" + name, "/slots?model=" + name} {
		if status, text := r.http().do("GET", path, ""); status != http.StatusOK {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
}

// TestRefusedResponseIsNoRedirect: POST /v1/responses that no process gets is answered in OpenAI's form.
func TestRefusedResponseIsNoRedirect(t *testing.T) {
	r := start(t, Options{}, []string{"one"}, nil)
	for _, path := range []string{"/v1/responses", "/responses"} {
		status, text := r.http().post(path, `{"model":"missing","input":"x"}`)
		if status != http.StatusNotFound || !strings.HasPrefix(text, `{"error":{"code":404,"type":"not_found_error"`) {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
}

// TestStreamsReachEveryModel: a stream is read again, looked up and ended by its id alone, wherever its model is.
func TestStreamsReachEveryModel(t *testing.T) {
	r := start(t, Options{}, []string{"one", "slow", "gated"}, nil)
	r.awaitReady("one")
	begin := func(model, id string) *httpClient {
		h := r.http()
		h.send("POST", "/v1/completions", `{"model":"`+model+`","prompt":"tell on","ignore_eos":true,"stream":true}`,
			"X-Conversation-Id: "+id)
		return h
	}
	lookedUp := func(want string) bool {
		status, text := r.http().post("/v1/streams/lookup", `{"conversation_ids":["a","b","c"]}`)
		return status == http.StatusOK && strings.Contains(text, want)
	}
	if status, text := r.http().post("/v1/streams/lookup", `{"conversation_ids":["a"]}`); status != http.StatusOK ||
		strings.TrimSpace(text) != "[]" {
		t.Errorf("no streams: %d %s", status, text)
	}
	first := begin("slow", "a")
	if resp := first.receive(); resp.StatusCode != http.StatusOK {
		t.Fatalf("the stream: %d", resp.StatusCode)
	}
	waitfor.True(t, "the stream is found", func() bool { return lookedUp(`"conversation_id":"a","is_done":false`) })
	again := r.http()
	if status, text := again.do("GET", "/v1/models", ""); status != http.StatusOK { // the front answers it
		t.Fatalf("%d %s", status, text)
	}
	again.send("GET", "/v1/stream?conv_id=a", "")
	resp := again.receive()
	line, err := make([]byte, 5), error(nil)
	_, err = io.ReadFull(resp.Body, line)
	if resp.StatusCode != http.StatusOK || string(line) != "data:" || err != nil {
		t.Errorf("the stream again: %d %q, %v", resp.StatusCode, line, err)
	}
	if status, text := r.http().do("GET", "/v1/stream?conv_id=none", ""); status != http.StatusNotFound ||
		!strings.Contains(text, "there is no stream of the id") {
		t.Errorf("an unknown stream: %d %s", status, text)
	}
	if status, text := r.http().do("GET", "/v1/stream", ""); status != http.StatusBadRequest {
		t.Errorf("no id: %d %s", status, text)
	}
	if status, text := r.http().do("DELETE", "/v1/stream?conv_id=a", ""); status != http.StatusNoContent {
		t.Errorf("delete: %d %s", status, text)
	}
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Errorf("the end of the stream: %v", err)
	}
	waitfor.True(t, "the answer has ended", func() bool { return r.inFlight("slow") == 0 && !lookedUp(`"a"`) })

	loading := begin("gated", "b")
	waitfor.True(t, "its process has the request", func() bool { return r.inFlight("gated") > 0 && lookedUp(`"b"`) })
	if status, text := r.http().do("DELETE", "/v1/stream?conv_id=b", ""); status != http.StatusNoContent {
		t.Errorf("delete while it loads: %d %s", status, text)
	}
	io.ReadAll(loading.receive().Body)
	waitfor.True(t, "nothing waits for the model", func() bool { return r.inFlight("gated") == 0 })
	status, text := r.http().post("/v1/chat/completions/control", `{"id":"none","action":"cancel"}`)
	if status != http.StatusOK || !strings.Contains(text, `"success":false`) {
		t.Errorf("control: %d %s", status, text)
	}
}

// TestStoppedBeforeItsModelHasRoom: DELETE /v1/stream ends a request that waits in the front.
func TestStoppedBeforeItsModelHasRoom(t *testing.T) {
	r := startFull(t)
	h := r.http()
	h.send("POST", "/v1/completions", `{"model":"three","prompt":"x","stream":true}`, "X-Conversation-Id: a")
	waiting := func() (n int) {
		r.call(func() { n = len(r.find("three").waiting) })
		return n
	}
	waitfor.True(t, "the request waits", func() bool { return waiting() == 1 })
	status, text := r.http().do("GET", "/v1/stream?conv_id=a", "")
	if status != http.StatusServiceUnavailable || !strings.Contains(text, "a model is loading") {
		t.Errorf("its stream: %d %s", status, text)
	}
	if status, text := r.http().do("DELETE", "/v1/stream?conv_id=b", ""); status != http.StatusNoContent ||
		waiting() != 1 {
		t.Errorf("delete of another: %d %s", status, text)
	}
	if status, text := r.http().do("DELETE", "/v1/stream?conv_id=a", ""); status != http.StatusNoContent {
		t.Errorf("delete: %d %s", status, text)
	}
	resp := h.receive()
	b, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(b), "cancelled before") {
		t.Errorf("%d %s", resp.StatusCode, b)
	}
	waitfor.True(t, "nothing waits", func() bool { return waiting() == 0 })
}
