package ollama_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/uma-serve/uma-serve/daemon/api/apitest"
	"github.com/uma-serve/uma-serve/daemon/api/ollama"
)

func FuzzChat(f *testing.F) {
	apitest.Fuzz(f, ollama.Routes, "/api/chat",
		`{"model":"m","messages":[{"role":"user","content":"x"}],"options":{"num_predict":-2,"seed":1,"num_ctx":4096,`+
			`"stop":["a"]},"keep_alive":"5m","think":"high"}`,
		`{"messages":[{"role":"assistant","content":"","thinking":"t","tool_calls":[{"function":{"name":"f",`+
			`"arguments":{"a":[1]}}}]},{"role":"tool","content":"r","tool_name":"f"}],"tools":[{"type":"function",`+
			`"function":{"name":"f","parameters":{}}}],"stream":false}`,
		`{"messages":[],"keep_alive":0}`, `{"messages":[{"role":"user","content":"x","images":["AA=="]}],`+
			`"format":{"type":"object"},"logprobs":true,"top_logprobs":2}`)
}

func FuzzGenerate(f *testing.F) {
	apitest.Fuzz(f, ollama.Routes, "/api/generate",
		`{"model":"m","prompt":"x","system":"s","format":"json","options":{"temperature":0}}`,
		`{"prompt":"x","raw":true,"stream":false}`, `{"prompt":"x","suffix":"y"}`,
		`{"prompt":"x","context":[1,2,3],"think":false}`, `{"prompt":""}`,
		`{"prompt":"x","options":{"num_predict":1e9}}`)
}

func FuzzShow(f *testing.F) {
	apitest.Fuzz(f, ollama.Routes, "/api/show", `{"model":"tiny","verbose":true}`, `{"name":"tiny:latest"}`, `{}`)
}

func FuzzEmbed(f *testing.F) {
	apitest.Fuzz(f, ollama.Routes, "/api/embed", `{"model":"m","input":["a","b"],"truncate":false,"dimensions":2,`+
		`"options":{},"keep_alive":0}`, `{"input":"x","dimensions":-1}`, `{}`)
}

func FuzzEmbeddings(f *testing.F) {
	apitest.Fuzz(f, ollama.Routes, "/api/embeddings", `{"model":"m","prompt":"x","options":{"a":1}}`, `{"prompt":""}`)
}

// TestLoading: lists are empty while the model loads, questions about it are refused.
func TestLoading(t *testing.T) {
	url := apitest.Serve(t, &apitest.Backend{Loading: true}, ollama.Routes)
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/api/tags", "", 200, `{"models":[]}` + "\n"},
		{"GET", "/api/ps", "", 200, `{"models":[]}` + "\n"},
		{"POST", "/api/show", `{"model":"tiny"}`, 503, `{"error":"the model is loading"}` + "\n"},
		{"POST", "/api/generate", `{"model":"tiny"}`, 503, `{"error":"the model is loading"}` + "\n"},
	} {
		if status, _, body := apitest.Do(t, c.method, url+c.path, c.body, 0); status != c.status || body != c.want {
			t.Errorf("%s: %d %s", c.path, status, body)
		}
	}
}

// TestGreet: ollama's clients learn that a server runs, browsers get the page.
func TestGreet(t *testing.T) {
	greet := ollama.Greet(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("page")) })
	for agent, want := range map[string]string{"ollama/0.17.4 (amd64 linux) Go/go1.25": "Ollama is running",
		"ollama-python/0.6.0": "Ollama is running", "Mozilla/5.0": "page", "": "page"} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("User-Agent", agent)
		w := httptest.NewRecorder()
		if greet(w, r); w.Body.String() != want {
			t.Errorf("%q: %q", agent, w.Body)
		}
	}
}
