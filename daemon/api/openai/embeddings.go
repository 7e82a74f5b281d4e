package openai

import (
	"net/http"
	"slices"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// embeddingsTable is all fields of the body.
var embeddingsTable = slices.Concat(
	api.Of(api.Taken, "input", "encoding_format", "dimensions", "truncate", "embd_normalize", "priority",
		"truncate_prompt_tokens"),
	api.Of(api.Ignored, "model", "user", "id", "metadata"),
	api.Table{
		{Name: "messages", Use: api.Refused, Why: `they belong to /v1/chat/completions; here it is "input"`},
		{Name: "prompt", Use: api.Refused, Why: `here it is "input"`},
	},
)

// vector is an entry of the answer's data.
type vector struct {
	Object    string `json:"object"` // "embedding"
	Index     int    `json:"index"`
	Embedding any    `json:"embedding"` // numbers, or base64 of little-endian float32
}

type vectors struct {
	Object string   `json:"object"` // "list"
	Data   []vector `json:"data"`
	Model  string   `json:"model"`
	Usage  struct {
		Prompt int `json:"prompt_tokens"`
		Total  int `json:"total_tokens"`
	} `json:"usage"`
}

// serveEmbeddings answers POST /v1/embeddings.
func serveEmbeddings(s *api.Server, w http.ResponseWriter, r *http.Request) {
	out := s.NewWriter(w)
	id := api.NewID("embd-")
	w.Header().Set("X-Request-Id", id)
	answer, err := embeddings(s, r, id)
	if err != nil {
		e := api.AsError(err)
		e.ID = ""
		ofEmbeddings.fail(out, e)
		return
	}
	out.JSON(http.StatusOK, answer)
}

func embeddings(s *api.Server, r *http.Request, id string) (*vectors, error) {
	if bad := s.CanEmbed(true); bad != nil {
		return nil, bad
	}
	e, format, err := readEmbeddings(s, r)
	if err != nil {
		return nil, err
	}
	e.ID = id
	got, err := s.Embeddings(r.Context(), e)
	if err != nil {
		return nil, err
	}
	answer := &vectors{Object: "list", Model: s.Model(), Data: make([]vector, len(got.Of))}
	answer.Usage.Prompt, answer.Usage.Total = got.Tokens, got.Tokens
	for i := range got.Of {
		v, err := got.One(i)
		if err != nil {
			return nil, err
		}
		answer.Data[i] = vector{"embedding", i, v}
		if format == "base64" {
			answer.Data[i].Embedding = string(wire.AppendBase64(nil, v))
		}
	}
	return answer, nil
}

func readEmbeddings(s *api.Server, r *http.Request) (e *wire.Embed, format string, err error) {
	body, err := embeddingsTable.Body(r)
	if err != nil {
		return nil, "", err
	}
	if err := body.Alone(); err != nil {
		return nil, "", err
	}
	var in struct {
		Input rawJSON `json:"input"`
		// vLLM's: -1 is "truncate".
		TruncateTo *int `json:"truncate_prompt_tokens"`
		api.EmbedOptions
	}
	if err := body.Into(&in); err != nil {
		return nil, "", err
	}
	list, err := api.ReadInputs("input", in.Input)
	if err != nil {
		return nil, "", err
	}
	if e, err = in.Embed(); err != nil {
		return nil, "", err
	}
	if in.TruncateTo != nil {
		if *in.TruncateTo != -1 {
			return nil, "", api.Refuse(`field "truncate_prompt_tokens" must be -1: an input that is too long is ` +
				`cut at its end to what the model reads ("truncate": true)`)
		}
		e.Truncate = true
	}
	e.Inputs, err = s.EmbedInputs(r.Context(), list, false)
	return e, in.Format, err
}
