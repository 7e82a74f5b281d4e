package anthropic

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// Speaks reports whether a request comes from a client of Anthropic's API, which sends the version of that with each.
// Paths that OpenAI's API has too are answered in Anthropic's form then.
func Speaks(r *http.Request) bool { return r.Header.Get("Anthropic-Version") != "" }

// model is an entry of GET /v1/models.
type model struct {
	Type         string     `json:"type"` // "model"
	ID           string     `json:"id"`
	DisplayName  string     `json:"display_name"`
	CreatedAt    string     `json:"created_at"` // RFC 3339
	Lifecycle    string     `json:"lifecycle"`  // "active"
	MaxInput     int        `json:"max_input_tokens,omitempty"`
	DeprecatedAt *time.Time `json:"deprecated_at"`
	RetiresAt    *time.Time `json:"retires_at"`
}

func modelOf(m *reports.ServedModel) *model {
	context := m.Meta.Context
	if context == 0 { // not loaded
		context = m.Meta.TrainContext
	}
	return &model{Type: "model", ID: m.ID, DisplayName: m.ID, Lifecycle: "active", MaxInput: context,
		CreatedAt: time.Unix(m.Created, 0).UTC().Format(time.RFC3339)}
}

// modelList answers GET /v1/models.
type modelList struct {
	Data    []*model `json:"data"`
	HasMore bool     `json:"has_more"`
	First   *string  `json:"first_id"`
	Last    *string  `json:"last_id"`
}

const (
	pageOfModels  = 20   // without "limit"
	mostOfModels  = 1000 // "limit"
	unknownCursor = "there is no such model"
)

// page returns the part of list that a query asks for, with limit, after_id and before_id.
func page(list []reports.ServedModel, r *http.Request) (*modelList, string) {
	q := r.URL.Query()
	limit, err := pageOfModels, error(nil)
	if q.Has("limit") {
		if limit, err = strconv.Atoi(q.Get("limit")); err != nil || limit < 1 || limit > mostOfModels {
			return nil, fmt.Sprintf(`"limit" is %.40q; it must be an integer of 1…%d`, q.Get("limit"), mostOfModels)
		}
	}
	from, to := 0, len(list)
	for _, name := range []string{"after_id", "before_id"} {
		if !q.Has(name) {
			continue
		}
		i := slices.IndexFunc(list, func(m reports.ServedModel) bool { return m.ID == q.Get(name) })
		switch {
		case i < 0:
			return nil, fmt.Sprintf(`%q is %.100q: %s`, name, q.Get(name), unknownCursor)
		case name == "after_id":
			from = i + 1
		default:
			to = i
		}
	}
	to = max(from, to)
	out := &modelList{Data: []*model{}, HasMore: to-from > limit}
	switch {
	case out.HasMore && q.Has("before_id") && !q.Has("after_id"):
		from = to - limit
	case out.HasMore:
		to = from + limit
	}
	for i := from; i < to; i++ {
		out.Data = append(out.Data, modelOf(&list[i]))
	}
	if n := len(out.Data); n > 0 {
		out.First, out.Last = &out.Data[0].ID, &out.Data[n-1].ID
	}
	return out, ""
}

// OrModels returns the handler of GET /v1/models and /v1/models/{id...} that answers Anthropic's clients in their form,
// and others by next. A model that list does not have is next's too.
func OrModels(next http.HandlerFunc, list func(context.Context) []reports.ServedModel) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !Speaks(r) {
			next(w, r)
			return
		}
		models := list(r.Context())
		if id := r.PathValue("id"); id != "" {
			i := slices.IndexFunc(models, func(m reports.ServedModel) bool {
				return m.ID == id || slices.Contains(m.Aliases, id)
			})
			if i < 0 {
				api.AnswerJSON(w, http.StatusNotFound, refusal("not_found_error", fmt.Sprintf(
					"model %.100q is not served here; GET /v1/models lists the served models", id)))
				return
			}
			api.AnswerJSON(w, http.StatusOK, modelOf(&models[i]))
			return
		}
		found, bad := page(models, r)
		if bad != "" {
			api.AnswerJSON(w, http.StatusBadRequest, refusal("invalid_request_error", bad))
			return
		}
		api.AnswerJSON(w, http.StatusOK, found)
	}
}

func refusal(kind, message string) *Failure {
	return &Failure{Type: "error", Error: FailureDetails{Type: kind, Message: message}}
}
