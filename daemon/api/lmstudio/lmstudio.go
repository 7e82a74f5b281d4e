// Package lmstudio is the part of LM Studio's REST API (/api/v1/models, of LM Studio 0.4) that lists, loads, unloads
// and downloads models. Its other endpoints are those of OpenAI and Anthropic.
package lmstudio

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/api/changes"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/models/download"
)

// Routes returns the endpoints.
func Routes(s *api.Server, h changes.Host) (routes []api.Route) {
	l := &server{s, h}
	add := func(method, path string, changes bool, handle func(w *api.Writer, r *http.Request) error) {
		routes = append(routes, api.Route{Method: method, Path: path,
			Handle: s.Telling(func(rw http.ResponseWriter, r *http.Request) {
				w := s.NewWriter(rw)
				if changes {
					if status, why := h.May(r); status != 0 {
						w.JSON(status, failureOf("permission_error", why))
						return
					}
				}
				if err := handle(w, r); err != nil {
					fail(w, api.AsError(err))
				}
			})})
	}
	add(http.MethodGet, "/api/v1/models", false, l.list)
	add(http.MethodPost, "/api/v1/models/load", true, l.load)
	add(http.MethodPost, "/api/v1/models/unload", true, l.unload)
	add(http.MethodPost, "/api/v1/models/download", true, l.download)
	add(http.MethodGet, "/api/v1/models/download/status", false, l.statuses)
	add(http.MethodGet, "/api/v1/models/download/status/{job}", false, l.status)
	return routes
}

// Tables returns the table of each endpoint's fields, by its path.
func Tables() map[string]api.Table {
	return map[string]api.Table{"/api/v1/models/load": loadTable, "/api/v1/models/unload": unloadTable,
		"/api/v1/models/download": downloadTable}
}

type server struct {
	*api.Server
	host changes.Host
}

// failure is the body of an error.
type failure struct {
	Error failureDetails `json:"error"`
}

type failureDetails struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

func failureOf(kind, message string) failure { return failure{failureDetails{kind, message}} }

func fail(w *api.Writer, e *api.Error) {
	w.Refuse(e)
	status, kind := wire.HTTPStatus(e.Code)
	w.JSON(status, failureOf(kind, e.Message))
}

// Types of models.
const (
	llm       = "llm"
	embedding = "embedding"
)

// listed is a model of GET /api/v1/models.
type listed struct {
	Type         string        `json:"type"`
	Publisher    string        `json:"publisher"`
	Key          string        `json:"key"`
	DisplayName  string        `json:"display_name"`
	Architecture string        `json:"architecture,omitempty"` // not of embedding models
	Quantization *quantization `json:"quantization"`
	Bytes        int64         `json:"size_bytes"`
	Parameters   *string       `json:"params_string"`
	Instances    []instance    `json:"loaded_instances"`
	MaxContext   int           `json:"max_context_length"`
	Format       string        `json:"format"`
	Capabilities *capabilities `json:"capabilities,omitempty"` // not of embedding models
}

type quantization struct {
	Name string   `json:"name"`
	Bits *float64 `json:"bits_per_weight"`
}

type instance struct {
	ID     string         `json:"id"`
	Config instanceConfig `json:"config"`
}

type instanceConfig struct {
	Context  int `json:"context_length"`
	Parallel int `json:"parallel,omitempty"`
}

type capabilities struct {
	Vision bool `json:"vision"`
	Tools  bool `json:"trained_for_tool_use"`
}

// listedOf converts a model.
func listedOf(m *changes.Model) listed {
	path := strings.TrimPrefix(m.Name, "hf.co/")
	publisher, _, ok := strings.Cut(path, "/")
	if !ok {
		publisher = "local"
	}
	l := listed{Type: typeOf(m), Publisher: publisher, Key: m.Name,
		DisplayName: path[strings.LastIndexByte(path, '/')+1:],
		Bytes:       m.Bytes, Instances: []instance{}, MaxContext: m.TrainContext, Format: "gguf"}
	if m.Type != "" {
		l.Quantization = &quantization{Name: m.Type}
	}
	if m.Parameters > 0 {
		text := count(m.Parameters)
		l.Parameters = &text
		if l.Quantization != nil {
			bits := math.Round(float64(m.Bytes)*8/float64(m.Parameters)*100) / 100
			l.Quantization.Bits = &bits
		}
	}
	if m.Loaded {
		l.Instances = append(l.Instances, instance{m.Name, instanceConfig{m.Context, m.Parallel}})
	}
	if !m.Encoder {
		l.Architecture, l.Capabilities = m.Architecture, &capabilities{Tools: m.Tools}
	}
	return l
}

func typeOf(m *changes.Model) string {
	if m.Encoder {
		return embedding
	}
	return llm
}

// count formats a number of parameters: "7B", "1.5B", "270M".
func count(n uint64) string {
	for _, u := range []struct {
		size uint64
		name string
	}{{1e9, "B"}, {1e6, "M"}, {1e3, "K"}} {
		if n >= u.size {
			text := fmt.Sprintf("%.1f", float64(n)/float64(u.size))
			return strings.TrimSuffix(text, ".0") + u.name
		}
	}
	return fmt.Sprint(n)
}

// list answers GET /api/v1/models.
func (l *server) list(w *api.Writer, r *http.Request) error {
	models := []listed{}
	for _, m := range l.host.Models(r.Context()) {
		models = append(models, listedOf(&m))
	}
	w.JSON(http.StatusOK, struct {
		Models []listed `json:"models"`
	}{models})
	return nil
}

var loadTable = append(api.Of(api.Taken, "model", "echo_load_config"), api.Of(api.Ignored, "context_length",
	"eval_batch_size", "flash_attention", "num_experts", "offload_kv_cache_to_gpu", "parallel", "ttl")...)

// load answers POST /api/v1/models/load.
func (l *server) load(w *api.Writer, r *http.Request) error {
	var in struct {
		Model string `json:"model"`
		Echo  bool   `json:"echo_load_config"`
	}
	if err := read(r, loadTable, &in); err != nil {
		return err
	}
	if in.Model == "" {
		return api.Refuse(`"model" is required`)
	}
	began := l.Now()
	m, e := l.host.Load(r.Context(), in.Model)
	if e != nil {
		return (*api.Error)(e)
	}
	out := struct {
		Type    string          `json:"type"`
		ID      string          `json:"instance_id"`
		Seconds float64         `json:"load_time_seconds"`
		Status  string          `json:"status"`
		Config  *instanceConfig `json:"load_config,omitempty"`
	}{typeOf(m), m.Name, math.Round(l.Now().Sub(began).Seconds()*1000) / 1000, "loaded", nil}
	if in.Echo {
		out.Config = &instanceConfig{m.Context, m.Parallel}
	}
	w.JSON(http.StatusOK, out)
	return nil
}

var unloadTable = api.Of(api.Taken, "instance_id")

// unload answers POST /api/v1/models/unload.
func (l *server) unload(w *api.Writer, r *http.Request) error {
	var in struct {
		ID string `json:"instance_id"`
	}
	if err := read(r, unloadTable, &in); err != nil {
		return err
	}
	if in.ID == "" {
		return api.Refuse(`"instance_id" is required`)
	}
	if e := l.host.Unload(r.Context(), in.ID); e != nil {
		return (*api.Error)(e)
	}
	w.JSON(http.StatusOK, map[string]string{"instance_id": in.ID})
	return nil
}

var downloadTable = api.Of(api.Taken, "model", "quantization")

// download answers POST /api/v1/models/download.
func (l *server) download(w *api.Writer, r *http.Request) error {
	var in struct {
		Model        string `json:"model"`
		Quantization string `json:"quantization"`
	}
	if err := read(r, downloadTable, &in); err != nil {
		return err
	}
	name := in.Model
	switch {
	case name == "":
		return api.Refuse(`"model" is required`)
	case !strings.Contains(name, "://") && !strings.Contains(name, "/"):
		// A name of ollama's registry: LM Studio's catalog has none without a publisher.
	case !strings.Contains(name, "://") && strings.Count(name, "/") == 1:
		name = "hf.co/" + name // LM Studio's catalog has its models from there
	}
	if in.Quantization != "" {
		if strings.LastIndexByte(name, ':') > strings.LastIndexByte(name, '/') {
			return api.Refuse(`"model" names a quantization already; leave "quantization" out`)
		}
		if rest, ok := strings.CutPrefix(name, "https://huggingface.co/"); ok {
			name = "hf.co/" + rest
		}
		name += ":" + in.Quantization
	}
	for _, m := range l.host.Models(r.Context()) {
		if strings.EqualFold(m.Name, strings.TrimPrefix(name, "hf.co/")) || strings.EqualFold(m.Name, name) {
			w.JSON(http.StatusOK, job{Status: "already_downloaded"})
			return nil
		}
	}
	t, e := l.host.Download(name, in.Model, true)
	if e != nil {
		return (*api.Error)(e)
	}
	defer t.Release()
	st, _ := t.State()
	w.JSON(http.StatusOK, jobOf(&st, l.Now()))
	return nil
}

// job is the status of a download.
type job struct {
	ID        string   `json:"job_id,omitempty"`
	Status    string   `json:"status"` // downloading, completed, failed, already_downloaded
	Total     *int64   `json:"total_size_bytes,omitempty"`
	Done      *int64   `json:"downloaded_bytes,omitempty"`
	Speed     *float64 `json:"bytes_per_second,omitempty"`
	Estimated string   `json:"estimated_completion,omitempty"`
	Started   string   `json:"started_at,omitempty"`
	Completed string   `json:"completed_at,omitempty"`
	Error     string   `json:"error,omitempty"` // of a failed one; LM Studio has none
}

const timeForm = "2006-01-02T15:04:05.000Z"

// jobOf converts a download's state.
func jobOf(st *download.State, now time.Time) job {
	done, total := st.Done(), st.Total()
	j := job{ID: st.ID, Status: statusOf(st), Total: &total, Done: &done, Started: st.Started.UTC().Format(timeForm)}
	switch {
	case st.Status.Runs():
		speed := math.Round(st.Speed*100) / 100
		j.Speed = &speed
		// Years ahead, where nothing comes: clients read a time.
		left := time.Duration(math.MaxInt64 / 100)
		if total > 0 && speed >= 1 {
			// Bounded as a float: what does not fit into a duration has any value in one.
			left = time.Duration(min(float64(left), float64(max(total-done, 0))/speed*float64(time.Second)))
		}
		j.Estimated = now.Add(left).UTC().Format(timeForm)
	case st.Status == download.Finished:
		j.Completed = st.Ended.UTC().Format(timeForm)
	default:
		j.Error = st.Err.Text
	}
	return j
}

func statusOf(st *download.State) string {
	switch st.Status {
	case download.Finished:
		return "completed"
	case download.Failed, download.Canceled:
		return "failed"
	}
	return "downloading"
}

// statuses answers GET /api/v1/models/download/status.
func (l *server) statuses(w *api.Writer, _ *http.Request) error {
	out := map[string][]job{"downloading": {}, "completed": {}, "failed": {}, "paused": {}}
	for _, st := range l.host.Downloads() {
		j := jobOf(&st, l.Now())
		out[j.Status] = append(out[j.Status], j)
	}
	w.JSON(http.StatusOK, out)
	return nil
}

// status answers GET /api/v1/models/download/status/{job}.
func (l *server) status(w *api.Writer, r *http.Request) error {
	for _, st := range l.host.Downloads() {
		if st.ID == r.PathValue("job") {
			w.JSON(http.StatusOK, jobOf(&st, l.Now()))
			return nil
		}
	}
	return &api.Error{Code: wire.ModelNotFound, Message: fmt.Sprintf("there is no download %.60q; the last 64 that "+
		"have ended are known", r.PathValue("job"))}
}

// read parses a body.
func read(r *http.Request, table api.Table, dst any) error {
	body, err := table.Body(r)
	if err == nil {
		err = body.Alone()
	}
	if err != nil {
		return err
	}
	return body.Into(dst)
}
