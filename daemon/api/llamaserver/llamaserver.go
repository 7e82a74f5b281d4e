// Package llamaserver is the API of llama.cpp's llama-server, apart from OpenAI's endpoints: /completion, /infill,
// tokens, templates, properties and slots. Names, formats and defaults are those of its README and tests, as of August
// 2026.
package llamaserver

import (
	"encoding/json"
	"net/http"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/api/openai"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

type rawJSON = json.RawMessage

// Routes returns the endpoints. /completions and /embeddings have llama-server's format, below /v1 OpenAI's.
func Routes(s *api.Server) (routes []api.Route) {
	get := func(path string, handle func(*api.Server, http.ResponseWriter, *http.Request)) {
		routes = append(routes,
			api.Route{Method: http.MethodGet, Path: path,
				Handle: func(w http.ResponseWriter, r *http.Request) { handle(s, w, r) }})
	}
	post := func(path string, handle func(*api.Server, http.ResponseWriter, *http.Request)) {
		routes = append(routes,
			api.Route{Method: http.MethodPost, Path: path,
				Handle: func(w http.ResponseWriter, r *http.Request) { handle(s, w, r) }})
	}
	kept := new(slots)
	post("/completion", kept.serveCompletion)
	post("/completions", kept.serveCompletion)
	post("/infill", kept.serveInfill)
	post("/tokenize", orVLLM)
	post("/detokenize", serveDetokenize)
	post("/apply-template", serveTemplate)
	for _, base := range []string{"/v1", ""} {
		post(base+"/chat/completions/control", serveControl)
		post(base+"/chat/completions/input_tokens", serveCount)
	}
	get("/v1/health", serveHealth)
	get("/props", serveProps)
	post("/props", refuse("properties are set by the options that uma-serve is started with"))
	get("/slots", serveSlots)
	post("/slots/{id}", kept.serveSlotAction)
	get("/lora-adapters", serveAdapters)
	post("/lora-adapters", serveScales)
	for _, base := range []string{"", "/v1"} {
		for _, path := range []string{"/models", "/models/load", "/models/unload"} {
			post(base+path, refuse(api.OneModel))
		}
		routes = append(routes, api.Route{Method: http.MethodDelete, Path: base + "/models",
			Handle: func(w http.ResponseWriter, r *http.Request) { refuse(api.OneModel)(s, w, r) }})
	}
	for _, path := range []string{"/rerank", "/reranking", "/v1/rerank", "/v1/reranking"} {
		post(path, serveRerank)
	}
	post("/embedding", serveEmbedding)
	post("/embeddings", serveEmbedding)
	return routes
}

// Tables returns the table of each endpoint's fields, by its path.
func Tables() map[string]api.Table {
	return map[string]api.Table{
		"/completion": completionTable, "/infill": infillTable, "/tokenize": tokenizeTable,
		"/tokenize of vLLM": tokenizeVLLMTable,
		"/detokenize":       detokenizeTable, "/slots/{id}": slotTable, "/rerank": rerankTable,
		"/apply-template": templateTable, "/v1/chat/completions/control": controlTable, "/embedding": embeddingTable,
	}
}

// fail answers with an error; llama-server's format is OpenAI's.
func fail(w *api.Writer, err error) {
	e := api.AsError(err)
	e.ID = ""
	openai.Fail(w, e)
}

// failure is the body of an error.
type failure struct {
	Error details `json:"error"`
}

type details struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Type    string `json:"type"`
}

// refuse returns a handler that answers an unsupported endpoint with the reason.
func refuse(why string) func(*api.Server, http.ResponseWriter, *http.Request) {
	return func(s *api.Server, w http.ResponseWriter, r *http.Request) {
		s.NewWriter(w).JSON(http.StatusNotImplemented,
			failure{details{http.StatusNotImplemented, r.URL.Path + " is not supported: " + why,
				"not_supported_error"}})
	}
}

// loading answers a request that needs the model while it loads.
func loading() *api.Error {
	return &api.Error{Code: wire.ModelUnready, Message: "Loading model"}
}

// factsOf waits for the model. Where requests do not wait, the error is llama-server's.
func factsOf(s *api.Server, r *http.Request) (*api.Facts, error) {
	f, err := s.Loaded(r.Context())
	if err != nil && api.AsError(err).Code == wire.ModelUnready {
		err = loading()
	}
	return f, err
}

// readTable parses a body. A field without a row in the table is one of a request, where the endpoint accepts those.
func readTable(r *http.Request, table api.Table, dst any, requests bool) (*api.Body, error) {
	body, err := table.Body(r)
	if err == nil && !requests {
		err = body.Alone()
	}
	if err != nil {
		return nil, err
	}
	return body, body.Into(dst)
}
