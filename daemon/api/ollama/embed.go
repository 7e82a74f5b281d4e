package ollama

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Fields of both endpoints that change nothing: the model is loaded, and none of its options is about embeddings.
var embedIgnored = api.Of(api.Ignored, "options", "keep_alive", "id", "metadata")

var (
	embedTable = slices.Concat(api.Of(api.Taken, "model", "input", "truncate", "dimensions"), embedIgnored,
		api.Table{{Name: "prompt", Use: api.Refused, Why: `it belongs to /api/embeddings; here it is "input"`}})
	embeddingsTable = slices.Concat(api.Of(api.Taken, "model", "prompt"), embedIgnored,
		api.Table{{Name: "input", Use: api.Refused, Why: `it belongs to /api/embed; here it is "prompt"`}})
)

// embedded answers POST /api/embed.
type embedded struct {
	Model      string      `json:"model"`
	Embeddings [][]float32 `json:"embeddings"`
	Total      int64       `json:"total_duration,omitempty"` // ns
	Load       int64       `json:"load_duration,omitempty"`
	Prompt     int         `json:"prompt_eval_count,omitempty"`
}

// readAlone reads a body that has no fields but those of its table.
func readAlone(r *http.Request, table api.Table, dst any) error {
	body, err := read(r, table, dst)
	if err == nil {
		err = body.Alone()
	}
	return err
}

// serveEmbed answers POST /api/embed.
func serveEmbed(s *api.Server, w http.ResponseWriter, r *http.Request) {
	out, begun := s.NewWriter(w), s.Now()
	id := api.NewID("embd-")
	w.Header().Set("X-Request-Id", id)
	var in struct {
		Model      string  `json:"model"`
		Input      rawJSON `json:"input"`
		Truncate   *bool   `json:"truncate"` // absent: true
		Dimensions int     `json:"dimensions"`
	}
	err := readAlone(r, embedTable, &in)
	var texts []wire.EmbedInput
	if err == nil {
		texts, err = embedTexts(in.Input)
	}
	if err != nil {
		Fail(out, api.AsError(err))
		return
	}
	answer := embedded{Model: in.Model, Embeddings: make([][]float32, len(texts))}
	if len(texts) == 0 { // loads the model, which is loaded
		out.JSON(http.StatusOK, &answer)
		return
	}
	e := wire.DefaultEmbed()
	e.ID, e.Inputs, e.Truncate = id, texts, in.Truncate == nil || *in.Truncate
	if e.Dimensions, err = shorter(r.Context(), s, in.Dimensions); err != nil {
		Fail(out, api.AsError(err))
		return
	}
	e.AnyDimension = true // here the field cuts every model's embeddings
	got, err := vectorsOf(s, r, &e)
	if err != nil {
		Fail(out, api.AsError(err))
		return
	}
	for i := range got.Of {
		answer.Embeddings[i] = got.Of[i][0]
	}
	answer.Total, answer.Prompt = s.Now().Sub(begun).Nanoseconds(), got.Tokens
	out.JSON(http.StatusOK, &answer)
}

// serveEmbeddings answers POST /api/embeddings, the older form: one text, whose embedding is not normalised.
func serveEmbeddings(s *api.Server, w http.ResponseWriter, r *http.Request) {
	out := s.NewWriter(w)
	id := api.NewID("embd-")
	w.Header().Set("X-Request-Id", id)
	var in struct {
		Model  string `json:"model"`
		Prompt string `json:"prompt"`
	}
	if err := readAlone(r, embeddingsTable, &in); err != nil {
		Fail(out, api.AsError(err))
		return
	}
	answer := struct {
		Embedding []float32 `json:"embedding"`
	}{[]float32{}}
	if in.Prompt == "" {
		out.JSON(http.StatusOK, &answer)
		return
	}
	e := wire.DefaultEmbed()
	e.ID, e.Inputs, e.Normalize = id, []wire.EmbedInput{{Text: in.Prompt}}, wire.NormalizeNone
	got, err := vectorsOf(s, r, &e)
	if err != nil {
		Fail(out, api.AsError(err))
		return
	}
	answer.Embedding = got.Of[0][0]
	out.JSON(http.StatusOK, &answer)
}

// vectorsOf asks for embeddings, one of each text.
func vectorsOf(s *api.Server, r *http.Request, e *wire.Embed) (*api.Vectors, error) {
	if bad := s.CanEmbed(true); bad != nil {
		return nil, bad
	}
	got, err := s.Embeddings(r.Context(), e)
	if err != nil {
		return nil, err
	}
	for i := range got.Of {
		if _, err := got.One(i); err != nil {
			return nil, err
		}
	}
	return got, nil
}

// embedTexts reads "input": a text, or texts. Nothing, and an empty text, is none.
func embedTexts(raw rawJSON) (texts []wire.EmbedInput, err error) {
	var one string
	var list []string
	switch {
	case raw == nil:
	case json.Unmarshal(raw, &one) == nil:
		if one != "" {
			texts = []wire.EmbedInput{{Text: one}}
		}
	case json.Unmarshal(raw, &list) != nil:
		return nil, api.Refuse(`field "input" must be a string or an array of strings`)
	case len(list) > wire.MaxEmbedInputs:
		return nil, api.Refusef(`field "input" has %d texts; it must have at most %d`, len(list), wire.MaxEmbedInputs)
	}
	for _, s := range list {
		texts = append(texts, wire.EmbedInput{Text: s})
	}
	return texts, nil
}

// shorter returns the size to cut embeddings to, 0 = not at all: ollama takes any number and keeps what there is.
func shorter(ctx context.Context, s *api.Server, n int) (int, error) {
	if n <= 0 {
		return 0, nil
	}
	facts, err := s.Loaded(ctx)
	switch {
	case err != nil:
		return 0, err
	case facts.Model.Embeddings == nil || n >= facts.Model.Embeddings.Values:
		return 0, nil
	}
	return n, nil
}
