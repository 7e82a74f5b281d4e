package httpd

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"

	"github.com/uma-serve/uma-serve/daemon/api/anthropic"
	"github.com/uma-serve/uma-serve/daemon/api/gemini"
	"github.com/uma-serve/uma-serve/daemon/page"
	"github.com/uma-serve/uma-serve/daemon/shm/connstate"
	"github.com/uma-serve/uma-serve/ipc/wire/jsontext"
)

// FrontServes reports whether a front answers an HTTP request itself: one about all models or about the daemon, about
// facts from a model's file, or about a stored response, a stream or an answer without its model's name.
func FrontServes(method string, u *url.URL) bool {
	switch u.Path {
	case "/", "/health", "/v1/health", "/info", "/metrics", "/why", "/kv", "/cancel", "/end_think", "/models",
		"/v1/models", "/api/tags", "/api/ps", "/api/version", "/api/show", "/v1/stream", "/v1/streams/lookup",
		"/v1/chat/completions/control", "/chat/completions/control", "/models/load", "/models/unload",
		"/v1/models/load", "/v1/models/unload", "/api/pull", "/api/push", "/api/create", "/api/copy", "/api/delete",
		gemini.Path, ToolServersPath, "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/load_lora_adapter",
		"/unload_lora_adapter":
		return true
	}
	if at(u.Path, filesPath) || at(u.Path, batchesPath) || at(u.Path, messageBatches) {
		return true
	}
	if strings.HasPrefix(u.Path, "/api/v1/models") || strings.HasPrefix(u.Path, blobPath) {
		return true
	}
	id, ok := strings.CutPrefix(strings.TrimPrefix(u.Path, "/v1"), "/responses/")
	if ok && id != "" && !(method == http.MethodPost && (id == "input_tokens" || id == "compact")) {
		return !u.Query().Has("model")
	}
	if method != http.MethodGet && method != http.MethodHead {
		return false
	}
	return strings.HasPrefix(u.Path, "/v1/models/") || strings.HasPrefix(u.Path, "/models/") ||
		strings.HasPrefix(u.Path, gemini.Path+"/") || page.Has(u.Path)
}

// at reports whether a path is another one, or below it.
func at(path, base string) bool {
	rest, ok := strings.CutPrefix(path, base)
	return ok && (rest == "" || rest[0] == '/')
}

// blobPath begins the paths of files that clients send for /api/create. Their bodies are not read into memory.
const blobPath = "/api/blobs/"

// ModelOf returns the name of the model that an HTTP request selects, as far as its body has arrived: a member "model"
// of the body, or the query's, or behind "::" in a stream's id, or in the path of Gemini's API. found and ended are as
// jsontext.Member has them.
func ModelOf(u *url.URL, body []byte) (name string, found, ended bool) {
	if name, _, ok := gemini.ModelOf(u.Path); ok {
		return name, true, true
	}
	if u.RawQuery != "" {
		q := u.Query()
		if q.Get("model") != "" {
			return q.Get("model"), true, true
		}
		if _, model, ok := strings.Cut(q.Get("conv_id"), "::"); ok { // the id of a stream
			return model, true, true
		}
	}
	name, found, ended = jsontext.Member(body, "model")
	if !found && ended && u.Path == "/api/show" { // the member's former name in ollama's API
		name, found, _ = jsontext.Member(body, "name")
	}
	return name, found, ended
}

// apiOf returns the API that a request belongs to, whose errors its client expects: by its path, and where several APIs
// could have that, by its headers.
func apiOf(r *http.Request) connstate.API {
	of := APIOf(r.URL.Path)
	switch {
	case of == connstate.OpenAI && anthropic.Speaks(r):
		return connstate.Anthropic
	case of == connstate.OpenAI && gemini.Speaks(r) && strings.HasPrefix(r.URL.Path, gemini.PathV1):
		return connstate.Gemini
	}
	return of
}

// APIOf returns the API that a path belongs to.
func APIOf(path string) connstate.API {
	switch {
	case strings.HasPrefix(path, "/v1/messages"):
		return connstate.Anthropic
	case path == gemini.Path, gemini.Calls(path):
		return connstate.Gemini
	case strings.HasPrefix(path, "/api/"):
		return connstate.Ollama
	case strings.HasSuffix(path, "/responses"):
		return connstate.Responses
	}
	return connstate.OpenAI
}

// EndOfHead returns the offset behind the head of an HTTP request; -1: it is not complete. Lines may end with bare line
// feeds, as net/http allows.
func EndOfHead(message []byte) int {
	at := 0
	for {
		i := bytes.IndexByte(message[at:], '\n')
		if i < 0 {
			return -1
		}
		at += i + 1
		rest := message[at:]
		switch {
		case bytes.HasPrefix(rest, []byte("\r\n")):
			return at + 2
		case bytes.HasPrefix(rest, []byte("\n")):
			return at + 1
		}
	}
}
