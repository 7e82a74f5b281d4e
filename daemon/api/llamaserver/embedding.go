package llamaserver

import (
	"net/http"
	"slices"

	"github.com/uma-serve/uma-serve/daemon/api"
)

// embeddingTable is all fields of the body.
var embeddingTable = slices.Concat(
	api.Of(api.Taken, "content", "input", "dimensions", "truncate", "embd_normalize", "priority"),
	api.Of(api.Ignored, "encoding_format", "model", "user", "id", "metadata"),
	api.Table{{Name: "prompt", Use: api.Refused, Why: `here it is "content"`}},
)

// rows are the embeddings of one input: one, or with pooling "none" one for each token.
type rows struct {
	Index     int         `json:"index"`
	Embedding [][]float32 `json:"embedding"`
}

// serveEmbedding answers POST /embedding.
func serveEmbedding(s *api.Server, w http.ResponseWriter, r *http.Request) {
	out := s.NewWriter(w)
	id := api.NewID("embd-")
	w.Header().Set("X-Request-Id", id)
	answer, err := embedding(s, r, id)
	if err != nil {
		fail(out, err)
		return
	}
	out.JSON(http.StatusOK, answer)
}

func embedding(s *api.Server, r *http.Request, id string) ([]rows, error) {
	var in struct {
		Content rawJSON `json:"content"`
		Input   rawJSON `json:"input"`
		api.EmbedOptions
	}
	if bad := s.CanEmbed(false); bad != nil {
		return nil, bad
	}
	if _, err := readTable(r, embeddingTable, &in, false); err != nil {
		return nil, err
	}
	name, text := "content", in.Content
	switch {
	case in.Content != nil && in.Input != nil:
		return nil, api.Refuse(`fields "content" and "input" are both given; send one of them`)
	case in.Input != nil:
		name, text = "input", in.Input
	}
	list, err := api.ReadInputs(name, text)
	if err != nil {
		return nil, err
	}
	e, err := in.Embed()
	if err != nil {
		return nil, err
	}
	if e.Inputs, err = s.EmbedInputs(r.Context(), list, true); err != nil {
		return nil, err
	}
	e.ID, e.ParseSpecial = id, true // markers are read as tokens, as in /completion
	got, err := s.Embeddings(r.Context(), e)
	if err != nil {
		return nil, err
	}
	answer := make([]rows, len(got.Of))
	for i := range answer {
		answer[i] = rows{i, got.Of[i]}
	}
	return answer, nil
}
