package gemini

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// model is an entry of the list of models.
type model struct {
	Name        string   `json:"name"` // "models/" and the id
	BaseModel   string   `json:"baseModelId"`
	Version     string   `json:"version"`
	DisplayName string   `json:"displayName"`
	Description string   `json:"description"`
	Input       int      `json:"inputTokenLimit"`
	Output      int      `json:"outputTokenLimit"`
	Methods     []string `json:"supportedGenerationMethods"`
}

type modelList struct {
	Models []*model `json:"models"`
	Next   string   `json:"nextPageToken,omitempty"`
}

func modelOf(m *reports.ServedModel) *model {
	most := m.Meta.Context
	if most == 0 { // not loaded
		most = m.Meta.TrainContext
	}
	return &model{Name: "models/" + m.ID, BaseModel: m.ID, Version: "1", DisplayName: m.ID, Input: most, Output: most,
		Description: "A model on this machine, served by uma-serve.", Methods: []string{generate, stream, count}}
}

const (
	pageOfModels = 50   // without "pageSize"
	mostOfModels = 1000 // a larger one means this
)

// page returns the part of list that a query asks for, with pageSize and pageToken.
func page(list []reports.ServedModel, r *http.Request) (*modelList, error) {
	q := r.URL.Query()
	size, from := pageOfModels, 0
	if text := q.Get("pageSize"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return nil, fmt.Errorf(`"pageSize" is %.40q; it must be an integer of 0…%d`, text, mostOfModels)
		}
		if n > 0 {
			size = min(n, mostOfModels)
		}
	}
	if token := q.Get("pageToken"); token != "" { // the last model of the page before
		i := slices.IndexFunc(list, func(m reports.ServedModel) bool { return m.ID == token })
		if i < 0 {
			return nil, fmt.Errorf(`"pageToken" is %.100q: there is no such page`, token)
		}
		from = i + 1
	}
	out := &modelList{Models: []*model{}}
	for i := from; i < len(list); i++ {
		if len(out.Models) == size {
			out.Next = list[i-1].ID
			break
		}
		out.Models = append(out.Models, modelOf(&list[i]))
	}
	return out, nil
}

// Models returns the handler of the list of models.
func Models(list func(context.Context) []reports.ServedModel) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		found, err := page(list(r.Context()), r)
		if err != nil {
			api.AnswerJSON(w, http.StatusBadRequest, Refusal(http.StatusBadRequest, err.Error()))
			return
		}
		api.AnswerJSON(w, http.StatusOK, found)
	}
}

// Model returns the handler of one model, whose id is the rest of the path.
func Model(list func(context.Context) []reports.ServedModel) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id := r.PathValue("id")
		models := list(r.Context())
		i := slices.IndexFunc(models, func(m reports.ServedModel) bool {
			return m.ID == id || slices.Contains(m.Aliases, id)
		})
		if i < 0 {
			api.AnswerJSON(w, http.StatusNotFound, Refusal(http.StatusNotFound, fmt.Sprintf(
				"model %.100q is not served here; GET %s lists the served models", id, Path)))
			return
		}
		api.AnswerJSON(w, http.StatusOK, modelOf(&models[i]))
	}
}

// OrModels returns the handler of GET PathV1 and of its models that answers Google's SDKs in their form, and others by
// next.
func OrModels(next http.HandlerFunc, list func(context.Context) []reports.ServedModel) http.HandlerFunc {
	all, one := Models(list), Model(list)
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !Speaks(r):
			next(w, r)
		case r.PathValue("id") != "":
			one(w, r)
		default:
			all(w, r)
		}
	}
}
