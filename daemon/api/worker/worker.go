// Package worker answers what routers ask of their workers: version, model, load, and where KV events are published.
// The names and formats are those of vLLM 0.33 and SGLang 0.5.23, as sglang-router, smg and vllm-router read them;
// fields that describe what this server does not have are left out. No answer waits for a decode step.
package worker

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"strings"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/api/openai"
	"github.com/uma-serve/uma-serve/daemon/kvevents"
)

// Routes returns the endpoints.
func Routes(s *api.Server) (routes []api.Route) {
	get := func(answer func(*api.Server) any, paths ...string) {
		for _, path := range paths {
			routes = append(routes, api.Route{Method: http.MethodGet, Path: path,
				Handle: func(w http.ResponseWriter, _ *http.Request) { s.NewWriter(w).JSON(http.StatusOK, answer(s)) }})
		}
	}
	get(version, "/version")
	get(serverInfo, "/server_info", "/get_server_info")
	get(modelInfo, "/model_info", "/get_model_info")
	get(loads, "/v1/loads")
	get(oldLoads, "/get_loads", "/get_load", "/loads")
	get(func(s *api.Server) any {
		return struct {
			Load int64 `json:"server_load"`
		}{s.Health().Requests}
	}, "/load")
	get(eventSources, "/kv_event_sources")
	for _, base := range []string{"/v1", ""} {
		routes = append(routes, api.Route{Method: http.MethodPost, Path: base + "/chat/completions/render",
			Handle: func(w http.ResponseWriter, r *http.Request) { serveRender(s, w, r) }})
	}
	return routes
}

func version(s *api.Server) any {
	return struct {
		Version string `json:"version"`
		Server  string `json:"server"`
	}{s.Version, "uma-serve"}
}

// state has the numbers of requests and cells at the moment.
type state struct {
	Running int64 `json:"num_running_reqs"`
	Waiting int64 `json:"num_waiting_reqs"`
	Used    int   `json:"num_used_tokens"` // cells of running requests
	Free    int   `json:"num_free_tokens"` // cells that a request can get: free, or of cached prefixes
	Total   int   `json:"max_total_num_tokens"`
	Most    int   `json:"max_running_requests"`
}

func stateOf(s *api.Server) (st state) {
	live := s.Info().Live
	st.Running = min(int64(live.Sequences), live.Requests)
	st.Waiting = max(live.Requests-st.Running, 0)
	st.Used, st.Free = live.LiveCells, live.FreeCells
	if f := s.Facts(); f != nil {
		st.Total, st.Most = f.Cells, f.Parallel
	}
	return st
}

// usage returns the share of the cells that running requests have.
func (st *state) usage() float64 {
	if st.Total == 0 {
		return 0
	}
	return float64(st.Used) / float64(st.Total)
}

type info struct {
	Version   string    `json:"version"`
	Server    string    `json:"server"`
	Status    string    `json:"status"`
	Model     string    `json:"served_model_name"`
	ModelPath string    `json:"model_path"`
	Context   int       `json:"context_length"`
	TP        int       `json:"tp_size"`
	DP        int       `json:"dp_size"`
	Prefixes  bool      `json:"enable_prefix_caching"`
	Block     int       `json:"block_size"`
	KVEvents  *kvConfig `json:"kv_events_config,omitempty"`
	state
	Internal []state `json:"internal_states"`
}

type kvConfig struct {
	Enabled   bool   `json:"enable_kv_cache_events"`
	Publisher string `json:"publisher"`
	source
}

func serverInfo(s *api.Server) any {
	st := stateOf(s)
	in := info{Version: s.Version, Server: "uma-serve", Status: s.Health().Status, Model: s.Model(), TP: 1, DP: 1,
		Prefixes: !s.NoPrefixCache, Block: kvevents.BlockTokens, state: st, Internal: []state{st}}
	if f := s.Facts(); f != nil {
		in.ModelPath, in.Context = f.Model.Path, f.Context
	}
	if src, ok := sourceOf(s); ok {
		in.KVEvents = &kvConfig{Enabled: true, Publisher: "zmq", source: src}
	}
	return &in
}

func modelInfo(s *api.Server) any {
	var in struct {
		Name       string `json:"served_model_name"`
		Path       string `json:"model_path"`
		Tokenizer  string `json:"tokenizer_path"`
		Generation bool   `json:"is_generation"`
		Vision     bool   `json:"has_image_understanding"`
		Audio      bool   `json:"has_audio_understanding"`
		Type       string `json:"model_type,omitempty"`
		Context    int    `json:"max_model_len"`
		Vocabulary int    `json:"vocab_size"`
		EOS        []int  `json:"eos_token_ids,omitempty"`
	}
	in.Name = s.Model()
	if f := s.Facts(); f != nil {
		in.Path, in.Tokenizer, in.Context, in.Vocabulary = f.Model.Path, f.Model.Path, f.Context, f.Model.VocabSize
		in.Vision, in.Audio = f.Model.Images.See(), f.Model.Images.Hear()
		in.Type = f.Model.Architecture
		in.Generation = f.Model.Ranking == nil && (f.Template != "" || f.Model.Embeddings == nil)
		for _, t := range f.EOG {
			in.EOS = append(in.EOS, int(t))
		}
	}
	return &in
}

func loads(s *api.Server) any {
	st := stateOf(s)
	type rank struct {
		Rank int `json:"dp_rank"`
		state
		Usage float64 `json:"token_usage"`
		Total int64   `json:"num_total_reqs"`
	}
	type sum struct {
		Running int64   `json:"total_running_reqs"`
		Waiting int64   `json:"total_waiting_reqs"`
		Total   int64   `json:"total_reqs"`
		Usage   float64 `json:"avg_token_usage"`
	}
	return struct {
		At      string `json:"timestamp"`
		Version string `json:"version"`
		Ranks   int    `json:"dp_rank_count"`
		Loads   []rank `json:"loads"`
		Sum     sum    `json:"aggregate"`
	}{s.Now().UTC().Format("2006-01-02T15:04:05.000Z"), s.Version, 1,
		[]rank{{0, st, st.usage(), st.Running + st.Waiting}},
		sum{st.Running, st.Waiting, st.Running + st.Waiting, st.usage()}}
}

func oldLoads(s *api.Server) any {
	st := stateOf(s)
	type rank struct {
		Rank    int   `json:"dp_rank"`
		Total   int64 `json:"num_reqs"`
		Waiting int64 `json:"num_waiting_reqs"`
		Tokens  int   `json:"num_tokens"`
	}
	return []rank{{0, st.Running + st.Waiting, st.Waiting, st.Used}}
}

// source names the sockets of --kv-events.
type source struct {
	Endpoint string `json:"endpoint"`
	Replay   string `json:"replay_endpoint"`
	Topic    string `json:"topic"`
	Buffer   int    `json:"buffer_steps"`
	HWM      int    `json:"hwm"`
}

func sourceOf(s *api.Server) (source, bool) {
	at, err := netip.ParseAddrPort(strings.TrimPrefix(s.KVEvents, "tcp://"))
	if err != nil {
		return source{}, false
	}
	return source{Endpoint: s.KVEvents, Replay: "tcp://" + netip.AddrPortFrom(at.Addr(), at.Port()+1).String(),
		Buffer: kvevents.ReplayBatches, HWM: kvevents.QueueBatches}, true
}

// eventSources returns the sources by data-parallel rank: one, or none without --kv-events.
func eventSources(s *api.Server) any {
	type entry struct {
		source
		Publisher string `json:"publisher"`
		Encoding  string `json:"encoding"`
		Schema    int    `json:"schema_version"`
		Block     int    `json:"block_size"`
		Enabled   bool   `json:"enable_kv_cache_events"`
	}
	out := map[string]entry{}
	if src, ok := sourceOf(s); ok {
		out["0"] = entry{src, "zmq", "msgpack", 1, kvevents.BlockTokens, true}
	}
	return out
}

var renderTable = append(api.Of(api.Taken, "messages", "stream"),
	api.Of(api.Ignored, "id", "metadata", "stream_options", "n", "request_id")...)

// Tables returns the table of each endpoint's fields, by its path.
func Tables() map[string]api.Table {
	return map[string]api.Table{"/v1/chat/completions/render": renderTable}
}

// serveRender answers POST /v1/chat/completions/render: the tokens that a chat's answer would be computed from.
func serveRender(s *api.Server, w http.ResponseWriter, r *http.Request) {
	out := s.NewWriter(w)
	rendered, err := render(s, r)
	if err != nil {
		e := api.AsError(err)
		e.ID = ""
		openai.Fail(out, e)
		return
	}
	out.JSON(http.StatusOK, rendered)
}

func render(s *api.Server, r *http.Request) (any, error) {
	body, err := renderTable.Body(r)
	if err != nil {
		return nil, err
	}
	var in struct {
		Messages json.RawMessage `json:"messages"`
		Stream   bool            `json:"stream"`
	}
	if err := body.Into(&in); err != nil {
		return nil, err
	}
	if in.Messages == nil {
		return nil, api.Refuse(`field "messages" is missing; it must be an array of {"role":…,"content":…}`)
	}
	req, err := body.Request("render", struct {
		Messages json.RawMessage `json:"messages"`
	}{in.Messages})
	if err != nil {
		return nil, err
	}
	prompt, err := s.Render(r.Context(), req)
	if err != nil {
		return nil, err
	}
	type sampling struct {
		Temperature float64  `json:"temperature"`
		TopP        float64  `json:"top_p"`
		TopK        int      `json:"top_k"`
		MinP        float64  `json:"min_p"`
		MaxTokens   *int     `json:"max_tokens"` // null: as many as fit
		Stop        []string `json:"stop"`
	}
	p := &req.Sampling
	set := sampling{Temperature: round(p.Temperature), TopP: round(p.TopP), TopK: int(p.TopK), MinP: round(p.MinP),
		Stop: append([]string{}, req.Stop...)}
	if req.MaxTokens > 0 {
		set.MaxTokens = &req.MaxTokens
	}
	return struct {
		ID       string   `json:"request_id"`
		Tokens   []int32  `json:"token_ids"`
		Model    string   `json:"model"`
		Sampling sampling `json:"sampling_params"`
		Stream   bool     `json:"stream"`
	}{api.NewID("render-"), append([]int32{}, prompt.Tokens...), s.Model(), set, in.Stream}, nil
}

// round returns a float32 as the shortest number that has its value, for JSON.
func round(f float32) float64 {
	b, err := json.Marshal(f)
	var out float64
	if err != nil || json.Unmarshal(b, &out) != nil {
		return float64(f)
	}
	return out
}
