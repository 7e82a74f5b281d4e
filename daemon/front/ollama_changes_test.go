package front

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/client"
	"github.com/uma-serve/uma-serve/models/store"
)

// TestOllamaChanges: /api/pull streams its progress, the model can be copied, made into another one, shown and deleted;
// what is made survives a restart.
func TestOllamaChanges(t *testing.T) {
	h := startHub(t, []string{"one"}, nil)
	web := h.http()
	ok := func(method, path, body string, want ...string) {
		t.Helper()
		status, text := web.do(method, path, body)
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s %s %s: no %s in %s", method, path, body, w, text)
			}
		}
		if status != 200 && status != 201 {
			t.Fatalf("%s %s %s: %d %s", method, path, body, status, text)
		}
	}
	sum := fmt.Sprintf("sha256:%x", sha256.Sum256(h.data))
	ok("POST", "/api/pull", `{"model":"hf.co/owner/name"}`, `{"status":"pulling manifest"}`+"\n",
		`{"status":"pulling `+sum[7:19]+`","digest":"`+sum+`","total":`,
		fmt.Sprintf(`"completed":%d}`, len(h.data)), `{"status":"success"}`+"\n")
	ok("POST", "/api/pull", `{"name":"`+h.host+`/library/image:8b","stream":false,"insecure":false}`,
		`{"status":"success"}`)
	ok("GET", "/api/tags", "", `"name":"owner/name:Q8_0"`, "image:8b")
	ok("POST", "/api/copy", `{"source":"owner/name","destination":"mine:latest"}`)
	if got, err := wholeOf(h.dial(), "mine"); err != nil || got != "I am name-Q8_0.gguf" {
		t.Errorf("%q, %v", got, err)
	}
	ok("POST", "/api/create", `{"model":"mario","from":"mine","system":"You are Mario.","license":"free",`+
		`"parameters":{"temperature":0.25,"num_ctx":640,"stop":["###"],"num_predict":7,"num_keep":3}}`,
		`"status":"writing manifest"`, `"status":"success"`)
	ok("GET", "/api/tags", "", `"name":"mario:latest"`, `"name":"mine:latest"`)
	ok("GET", "/v1/models", "", `"id":"mario"`)
	ok("POST", "/api/show", `{"model":"mario"}`, `"system":"You are Mario."`, `"license":"free"`, "temperature 0.25",
		"PARAMETER temperature 0.25", "SYSTEM")
	ok("POST", "/api/chat", `{"model":"mario","stream":false,"messages":[{"role":"user","content":"whoami"}]}`,
		`"content":"I am na"`, `"done_reason":"length"`) // num_predict is 7
	ok("POST", "/apply-template", `{"model":"mario","messages":[{"role":"user","content":"x"}]}`, "You are Mario.")
	ok("GET", "/props?model=mario", "", `"temperature":0.25`, `"n_ctx":640`)
	// What was made of a model outlives it: the file stays under another name, and goes with the last of them.
	ok("DELETE", "/api/delete", `{"model":"owner/name"}`)
	if status, text := web.do("POST", "/api/show", `{"model":"owner/name"}`); status != 404 {
		t.Errorf("after the model was deleted: %d %s", status, text)
	}
	if got, err := wholeOf(h.dial(), "mine"); err != nil || !strings.HasPrefix(got, "I am sha256-") {
		t.Errorf("the copy of a deleted model: %q, %v", got, err)
	}
	// A second recipe of the name replaces the first one; the daemon answers by it at once.
	ok("POST", "/api/create", `{"model":"mario","from":"mario","system":"You are Luigi.","stream":false}`, "success")
	ok("POST", "/apply-template", `{"model":"mario","messages":[{"role":"user","content":"x"}]}`, "You are Luigi.")
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}

	h = &hub{running: start(t, Options{}, []string{"one"}, nil, "--models-dir", h.dir), dir: h.dir, data: h.data}
	web = h.http()
	ok("POST", "/apply-template", `{"model":"mario:latest","messages":[{"role":"user","content":"x"}]}`,
		"You are Luigi.")
	ok("GET", "/props?model=mario", "", `"temperature":0.25`)
	for _, name := range []string{"mario", "mine"} {
		ok("DELETE", "/api/delete", `{"model":"`+name+`"}`)
	}
	if status, text := web.do("DELETE", "/api/delete", `{"model":"mario"}`); status != 404 ||
		!strings.Contains(text, `{"error":"model 'mario' not found`) {
		t.Errorf("%d %s", status, text)
	}
	for _, name := range h.files() {
		if !strings.Contains(name, "image") {
			t.Errorf("%s is left", name)
		}
	}
}

// TestOllamaBlobs: a file that a client sends becomes a model; one whose hash or kind is wrong is refused, and nothing
// of it is kept.
func TestOllamaBlobs(t *testing.T) {
	h := startHub(t, []string{"one"}, nil)
	web := h.http()
	digest := func(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }
	big := append(append([]byte{}, h.data...), make([]byte, 2<<20)...) // above --max-frame-bytes
	sum := digest(big)
	for _, x := range []struct {
		method, path, body, want string
		status                   int
	}{
		{"HEAD", "/api/blobs/" + sum, "", "", 404},
		{"POST", "/api/blobs/" + sum, string(h.data), "its SHA-256 is", 400},
		{"POST", "/api/blobs/" + digest([]byte("no model")), "no model", "it is not GGUF", 400},
		{"POST", "/api/blobs/sha256:12", "x", "64 hexadecimal digits", 400},
		{"POST", "/api/blobs/..%2fx", "x", "64 hexadecimal digits", 400},
		{"POST", "/api/create", `{"model":"sent","files":{"a.gguf":"` + sum + `"}}`, "is not here; send it", 400},
		{"POST", "/api/blobs/" + sum, string(big), "", 201},
		{"HEAD", "/api/blobs/" + sum, "", "", 200},
		{"POST", "/api/create", `{"model":"sent","files":{"a.gguf":"` + sum + `"}}`, `"status":"success"`, 200},
	} {
		do := web.do
		if x.method == http.MethodHead {
			do = h.head
		}
		if status, text := do(x.method, x.path, x.body); status != x.status || !strings.Contains(text, x.want) {
			t.Errorf("%s %.40s: %d %.300s", x.method, x.path, status, text)
		}
	}
	if got, err := wholeOf(h.dial(), "sent"); err != nil || !strings.HasPrefix(got, "I am sha256-") {
		t.Errorf("%q, %v", got, err)
	}
	if files := h.files(); len(files) != 2 {
		t.Errorf("%v", files)
	}
	if status, text := web.do("DELETE", "/api/delete", `{"name":"sent"}`); status != 200 {
		t.Errorf("%d %s", status, text)
	}
	if files := h.files(); len(files) != 0 {
		t.Errorf("%v are left", files)
	}
}

// head sends a request whose answer has no body.
func (h *hub) head(method, path, _ string, _ ...string) (int, string) {
	req, err := http.NewRequestWithContext(h.t.Context(), method, "http://uma"+path, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	c := client.HTTP(h.socket())
	defer c.CloseIdleConnections()
	resp, err := c.Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode, ""
}

// TestOllamaChangesRefused: wrong bodies and what cannot be honoured is refused by name.
func TestOllamaChangesRefused(t *testing.T) {
	h := startHub(t, []string{"one"}, nil)
	web := h.http()
	if err := os.MkdirAll(h.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(h.dir, "base.gguf"), h.data, 0o600); err != nil {
		t.Fatal(err)
	}
	create := func(rest string) string { return `{"model":"new","from":"base",` + rest + `}` }
	for _, x := range []struct {
		path, body, want string
		status           int
	}{
		{"/api/pull", `{}`, `{"error":"model is required"}`, 400},
		{"/api/pull", `{"model":"../x"}`, "no name of a model", 400},
		{"/api/pull", `{"model":"hf.co/owner/none","stream":false}`, "owner/none", 404},
		{"/api/pull", `{"model":"hf.co/owner/none"}`, `{"error":"`, 200},
		{"/api/pull", `{"model":"x","insecure":true}`, "insecure", 400},
		{"/api/push", `{"model":"base"}`, "is not supported", 501},
		{"/api/copy", `{"source":"base"}`, "are required", 400},
		{"/api/copy", `{"source":"none","destination":"x"}`, "model 'none' not found", 404},
		{"/api/copy", `{"source":"base","destination":"base"}`, "is a model of this machine", 400},
		{"/api/copy", `{"source":"base","destination":"one"}`, "the configuration has a model one", 400},
		{"/api/copy", `{"source":"base","destination":"../x"}`, "not a model name", 400},
		{"/api/copy", `{"source":"base","destination":"hf.co/a/b"}`, "it has a host", 400},
		{"/api/create", `{"from":"base"}`, "model is required", 400},
		{"/api/create", `{"model":"../x","from":"base"}`, "invalid model name", 400},
		{"/api/create", `{"model":"x"}`, "neither 'from' or 'files' was specified", 400},
		{"/api/create", create(`"adapters":{"a":"sha256:1"}`), "adapters", 400},
		{"/api/create", create(`"messages":[{"role":"user"}]`), "messages", 400},
		{"/api/create", create(`"quantize":"q4_K_M"`), "quantize", 400},
		{"/api/create", create(`"template":"{{ .Prompt }}"`), "Go's template language", 400},
		{"/api/create", create(`"template":"{% if %}","stream":false`), "its template", 400},
		{"/api/create", create(`"parameters":{"top_p":"much"}`), "parameters: ", 400},
		{"/api/create", create(`"parameters":{"num_ctx":"many"}`), "must be an integer", 400},
		{"/api/create", create(`"parameters":{"messages":[]}`), `parameter \"messages\" is not supported`, 400},
		{"/api/create", create(`"parameters":{"num_ctx":999999999999}`), `{"error":"`, 200},
		{"/api/create", create(`"license":5`), "license", 400},
		{"/api/create", create(`"template":"{{ messages[0].content }}"`), "success", 200},
	} {
		if status, text := web.do("POST", x.path, x.body); status != x.status || !strings.Contains(text, x.want) {
			t.Errorf("%s %s: %d %.300s", x.path, x.body, status, text)
		}
	}
	status, text := web.do("POST", "/apply-template",
		`{"model":"new","messages":[{"role":"user","content":"just this"}]}`)
	if status != http.StatusOK || !strings.Contains(text, `"prompt":"just this"`) {
		t.Errorf("%d %s", status, text)
	}
	if s := store.New(h.dir, nil); s != nil {
		c, err := s.Scan(t.Context())
		if err != nil || len(c.Problems) > 0 {
			t.Errorf("%v, %+v", err, c.Problems)
		}
	}
}

// TestLMStudioChanges: models are downloaded, listed, loaded and unloaded in LM Studio's way.
func TestLMStudioChanges(t *testing.T) {
	h := startHub(t, []string{"one"}, nil)
	web := h.http()
	events := h.events(t)
	post := func(path, body string, want ...string) string {
		t.Helper()
		status, text := web.post("/api/v1/models"+path, body)
		for _, w := range append(want, "{") {
			if status != 200 || !strings.Contains(text, w) {
				t.Errorf("%s %s: no %s: %d %s", path, body, w, status, text)
			}
		}
		return text
	}
	text := post("/download", `{"model":"https://huggingface.co/owner/name","quantization":"Q8_0"}`, `"job_id":"job_`,
		`"status":"downloading"`, `"started_at":"`, `"bytes_per_second":`)
	_, id, _ := strings.Cut(text, `"job_id":"`)
	id, _, _ = strings.Cut(id, `"`)
	until(t, events, `"event":"download_finished"`)
	_, text = web.do("GET", "/api/v1/models/download/status/"+id, "")
	if !strings.Contains(text, `"status":"completed"`) || !strings.Contains(text, `"completed_at":"`) ||
		!strings.Contains(text, fmt.Sprintf(`"downloaded_bytes":%d`, len(h.data))) {
		t.Error(text)
	}
	if _, text = web.do("GET", "/api/v1/models/download/status", ""); !strings.Contains(text, `"completed":[{`) ||
		!strings.Contains(text, `"downloading":[]`) {
		t.Error(text)
	}
	if status, text := web.do("GET", "/api/v1/models/download/status/none", ""); status != 404 {
		t.Errorf("%d %s", status, text)
	}
	post("/download", `{"model":"owner/name","quantization":"Q8_0"}`, `{"status":"already_downloaded"}`)
	post("/load", `{"model":"owner/name:Q8_0","context_length":4096,"echo_load_config":true}`, `"type":"llm"`,
		`"instance_id":"owner/name:Q8_0"`, `"status":"loaded"`, `"load_config":{"context_length":`)
	_, text = web.do("GET", "/api/v1/models", "")
	for _, w := range []string{`"key":"owner/name:Q8_0"`, `"publisher":"owner"`,
		`"loaded_instances":[{"id":"owner/name`, `"quantization":{"name":"Q8_0","bits_per_weight":`,
		`"format":"gguf"`} {
		if !strings.Contains(text, w) {
			t.Errorf("no %s in %s", w, text)
		}
	}
	post("/unload", `{"instance_id":"owner/name:Q8_0"}`, `{"instance_id":"owner/name:Q8_0"}`)
	for path, body := range map[string]string{"/load": `{}`, "/unload": `{}`, "/download": `{}`} {
		if status, text := web.post("/api/v1/models"+path, body); status != 400 || !strings.Contains(text, "required") {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	if status, text := web.post("/api/v1/models/load", `{"model":"none"}`); status != 404 ||
		!strings.Contains(text, `{"error":{"type":"not_found_error","message":"`) {
		t.Errorf("%d %s", status, text)
	}
}
