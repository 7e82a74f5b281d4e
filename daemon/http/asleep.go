package httpd

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/api/gemini"
	"github.com/uma-serve/uma-serve/internal/cli/buildinfo"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// NeedsModel reports whether the answer to an HTTP request needs the model loaded. What is not here is a fact about a
// model, which its file tells, or is refused whatever the model is. The path is not one that a front answers
// (FrontServes).
func NeedsModel(method, path string) bool {
	if gemini.Generates(path) {
		return method == http.MethodPost
	}
	path = strings.TrimPrefix(path, "/v1")
	if strings.HasPrefix(path, "/responses/") || path == LivePath {
		return true
	}
	if method != http.MethodPost { // the method is refused
		return false
	}
	switch path {
	case "/chat/completions", "/chat/completions/input_tokens", "/chat/completions/render", "/completions",
		"/completion", "/infill", "/responses",
		"/messages", "/messages/count_tokens", "/tokenize", "/detokenize", "/apply-template", "/embedding",
		"/embeddings", "/rerank", "/reranking", "/predict":
		return true
	case "/api/chat", "/api/generate", "/api/embed", "/api/embeddings":
		return true
	}
	return strings.HasPrefix(path, "/slots/")
}

// Asleep is a model that is not loaded.
type Asleep struct {
	Name  string
	Facts *api.Facts
	Since time.Time // start of the daemon

	StrictFields  bool   // --strict-fields
	NoSlots       bool   // --no-slots
	KVEvents      string // --kv-events
	NoPrefixCache bool   // --no-prefix-cache
	Adapters      []reports.InfoAdapter
}

// Serve answers a request that does not need the model loaded, as an engine process would.
func (a *Asleep) Serve(w http.ResponseWriter, r *http.Request, log *slog.Logger) {
	serve := &api.Server{Backend: sleeping{a}, Version: buildinfo.Version, StrictFields: a.StrictFields,
		NoSlots: a.NoSlots, KVEvents: a.KVEvents, NoPrefixCache: a.NoPrefixCache,
		Log: log, Now: time.Now}
	none := func(context.Context) *wire.Request { return nil }
	Handler(apiRoutes(serve, none)).ServeHTTP(w, r)
}

// Apart returns the server for APIs that concern no model in particular.
func (s *Server) Apart() *api.Server {
	return &api.Server{Backend: sleeping{&Asleep{Facts: &api.Facts{Asleep: true}}}, StallTimeout: s.Config.StallTimeout,
		Version: buildinfo.Version, StrictFields: s.Config.StrictFields, Log: s.Log, Now: time.Now,
		CountIgnored: func(fields int) { s.Metrics.FieldsIgnored.Add(uint64(fields)) }}
}

// sleeping is the api.Backend of a model that is not loaded.
type sleeping struct{ *Asleep }

// asleep returns the error of requests that need the model. None leads to it: the front loads the model for those.
func asleep() *api.Error {
	return &api.Error{Code: wire.ModelUnready, RetryAfter: time.Second, Message: "the model is not loaded; send the " +
		"request again"}
}

func (s sleeping) Start(context.Context, ...*wire.Request) (api.Stream, error) { return nil, asleep() }
func (s sleeping) Embed(context.Context, *wire.Embed) (api.Stream, error)      { return nil, asleep() }

func (s sleeping) Render(context.Context, *wire.Request) (*api.Prompt, error) { return nil, asleep() }
func (s sleeping) Detokenize([]int32) ([]byte, error)                         { return nil, asleep() }
func (s sleeping) Tokenize(context.Context, string, bool, bool) ([]int32, error) {
	return nil, asleep()
}

func (s sleeping) Model() string               { return s.Name }
func (s sleeping) Facts() *api.Facts           { return s.Asleep.Facts }
func (s sleeping) Await(context.Context) error { return asleep() }

func (s sleeping) Models() []reports.ServedModel {
	return []reports.ServedModel{{ID: s.Name, Object: "model", Created: s.Since.Unix(), OwnedBy: "uma-serve",
		Meta: s.Asleep.Facts.Meta()}}
}

func (s sleeping) Adapters() []reports.InfoAdapter { return s.Asleep.Adapters }
func (s sleeping) SetScales([]wire.LoRA) error     { return asleep() }
func (s sleeping) LoadAdapter(context.Context, *wire.LoadAdapter) ([]reports.InfoAdapter, error) {
	return nil, asleep()
}

func (s sleeping) UnloadAdapter(context.Context, string, string) ([]reports.InfoAdapter, error) {
	return nil, asleep()
}

func (s sleeping) Administers(*http.Request) bool { return false }

func (s sleeping) Info() reports.Info     { return reports.Info{} }
func (s sleeping) Health() reports.Health { return reports.Health{Status: "loading"} }

func (s sleeping) Why(context.Context, wire.WhyQuestion) (json.RawMessage, error) {
	return nil, asleep()
}
func (s sleeping) KV(context.Context, wire.KVQuestion) (json.RawMessage, error) { return nil, asleep() }

func (s sleeping) Cancel(context.Context, string) bool   { return false }
func (s sleeping) EndThink(context.Context, string) bool { return false }

func (s sleeping) Owner(ctx context.Context) uint32 {
	peer, _ := ipc.PeerOf(ctx)
	return peer.UID
}
