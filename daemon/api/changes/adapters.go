package changes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// AdapterHost loads and unloads the LoRA adapters of its models. Errors are *api.Error. Safe from any goroutine.
type AdapterHost interface {
	// Administers reports whether the client of r may change what every request gets.
	Administers(r *http.Request) bool
	// LoadAdapter loads an adapter and returns the model's adapters then. After an error they are what they were.
	LoadAdapter(ctx context.Context, a *wire.LoadAdapter) ([]reports.InfoAdapter, error)
	// UnloadAdapter has no further request get an adapter, and frees it when those that have it have ended. model is ""
	// where the name tells the model.
	UnloadAdapter(ctx context.Context, model, name string) ([]reports.InfoAdapter, error)
}

// maxAdapterBody bounds the body of a request that loads or unloads an adapter, in bytes.
const maxAdapterBody = 64 << 10

// AdapterPaths are the paths of AdapterRoutes: vLLM's have /v1.
var AdapterPaths = []string{"/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/load_lora_adapter",
	"/unload_lora_adapter"}

// AdapterRoutes returns the requests of vLLM and SGLang that load and unload adapters.
func AdapterRoutes(h AdapterHost) (routes []api.Route) {
	for i, path := range AdapterPaths {
		do := loadAdapter
		if i%2 == 1 {
			do = unloadAdapter
		}
		answer := answerSGLang
		if i < 2 {
			answer = answerVLLM
		}
		routes = append(routes, api.Route{Method: http.MethodPost, Path: path,
			Handle: func(w http.ResponseWriter, r *http.Request) {
				if !h.Administers(r) {
					answer(w, &outcome{status: http.StatusForbidden, kind: "permission_error", text: "only root and " +
						"the user of uma-serve may load and unload adapters; --allow-model-changes lets every client"})
					return
				}
				text, list, err := do(h, r)
				o := &outcome{status: http.StatusOK, text: text, list: list}
				if err != nil {
					e := api.AsError(err)
					o.text, o.code = e.Message, string(e.Code)
					o.status, o.kind = wire.HTTPStatus(e.Code)
				}
				answer(w, o)
			}})
	}
	return routes
}

// outcome is the content of an answer.
type outcome struct {
	status     int
	text       string // of an error too
	kind, code string // of an error
	list       []reports.InfoAdapter
}

// asked is the body of both requests.
type asked struct {
	Name    *string  `json:"lora_name"`
	Path    *string  `json:"lora_path"`
	Replace bool     `json:"load_inplace"` // vLLM's
	Model   string   `json:"model"`        // ours, as Scale is
	Scale   *float32 `json:"scale"`
}

func readAsked(r *http.Request) (*asked, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxAdapterBody+1))
	if err != nil || len(body) > maxAdapterBody {
		return nil, api.Refusef("the body did not come whole, or has more than %d bytes", maxAdapterBody)
	}
	q := new(asked)
	if err := json.Unmarshal(body, q); err != nil {
		if at, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && at.Field != "" {
			return nil, api.Refusef("field %q is of another type: it is a %s", at.Field, at.Value)
		}
		return nil, api.Refuse("the body must be a JSON object: " + err.Error())
	}
	if q.Name == nil {
		return nil, api.Refuse(`field "lora_name" is missing: the name of the adapter`)
	}
	return q, nil
}

func loadAdapter(h AdapterHost, r *http.Request) (string, []reports.InfoAdapter, error) {
	q, err := readAsked(r)
	if err != nil {
		return "", nil, err
	}
	a := &wire.LoadAdapter{Name: *q.Name, Scale: 1, Model: q.Model, Replace: q.Replace}
	if q.Path != nil {
		a.File = *q.Path
	}
	if q.Scale != nil {
		a.Scale = *q.Scale
	}
	if !filepath.IsAbs(a.File) {
		return "", nil, api.Refuse(`field "lora_path" must be the absolute path of a GGUF file on the server's machine`)
	}
	list, err := h.LoadAdapter(r.Context(), a)
	return fmt.Sprintf("Success: LoRA adapter '%s' added successfully.", a.Name), list, err
}

func unloadAdapter(h AdapterHost, r *http.Request) (string, []reports.InfoAdapter, error) {
	q, err := readAsked(r)
	if err != nil {
		return "", nil, err
	}
	list, err := h.UnloadAdapter(r.Context(), q.Model, *q.Name)
	return fmt.Sprintf("Success: LoRA adapter '%s' removed successfully.", *q.Name), list, err
}

// answerVLLM answers with a line of text, and an error as OpenAI's API does.
func answerVLLM(w http.ResponseWriter, o *outcome) {
	if o.kind == "" {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		io.WriteString(w, o.text)
		return
	}
	e := map[string]any{"code": o.status, "type": o.kind, "message": o.text}
	if o.code != "" {
		e["uma_code"] = o.code
	}
	api.AnswerJSON(w, o.status, map[string]any{"error": e})
}

// answerSGLang answers with the adapters that are loaded, by name.
func answerSGLang(w http.ResponseWriter, o *outcome) {
	if o.kind != "" {
		api.AnswerJSON(w, o.status, map[string]any{"success": false, "error_message": o.text})
		return
	}
	loaded := map[string]string{}
	for _, a := range o.list {
		loaded[a.Name] = a.Path
	}
	api.AnswerJSON(w, o.status, map[string]any{"success": true, "error_message": "", "loaded_adapters": loaded})
}
