package llamaserver

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// rerankTable lists the fields of /rerank, in the forms of Jina and of Hugging Face's TEI ("texts").
var rerankTable = slices.Concat(
	api.Of(api.Taken, "query", "documents", "texts", "top_n", "return_documents", "return_text", "truncate",
		"priority"),
	api.Of(api.Ignored, "model", "raw_scores", "truncation_direction", "user", "id", "metadata"))

// ranked is a document of the answer in Jina's form, rankedText in TEI's.
type ranked struct {
	Index    int       `json:"index"`
	Score    float32   `json:"relevance_score"`
	Document *document `json:"document,omitempty"`
}

type document struct {
	Text string `json:"text"`
}

type rankedText struct {
	Index int     `json:"index"`
	Score float32 `json:"score"`
	Text  *string `json:"text,omitempty"`
}

// ranking is the answer in Jina's form. TEI's is the list alone.
type ranking struct {
	Model  string `json:"model"`
	Object string `json:"object"`
	Usage  struct {
		Prompt int `json:"prompt_tokens"`
		Total  int `json:"total_tokens"`
	} `json:"usage"`
	Results []ranked `json:"results"`
}

// serveRerank answers POST /rerank.
func serveRerank(s *api.Server, w http.ResponseWriter, r *http.Request) {
	out := s.NewWriter(w)
	id := api.NewID("rank-")
	w.Header().Set("X-Request-Id", id)
	answer, err := rerank(s, r, id)
	if err != nil {
		fail(out, err)
		return
	}
	out.JSON(http.StatusOK, answer)
}

func rerank(s *api.Server, r *http.Request, id string) (any, error) {
	var in struct {
		Query     *string  `json:"query"`
		Documents []string `json:"documents"`
		Texts     []string `json:"texts"`
		TopN      *int     `json:"top_n"`
		Return    bool     `json:"return_documents"`
		Text      bool     `json:"return_text"`
		Truncate  bool     `json:"truncate"`
		Priority  string   `json:"priority"`
	}
	if _, err := readTable(r, rerankTable, &in, false); err != nil {
		return nil, err
	}
	texts, tei := in.Documents, in.Texts != nil
	if tei {
		texts = in.Texts
	}
	switch {
	case in.Query == nil:
		return nil, api.Refuse(`field "query" is missing; it must be a string`)
	case tei && in.Documents != nil:
		return nil, api.Refuse(`fields "documents" and "texts" are both given; send one of them`)
	case len(texts) == 0:
		return nil, api.Refuse(`field "documents" is missing or empty; it must be an array of strings`)
	case len(texts) > wire.MaxEmbedInputs:
		return nil, api.Refusef("there are %d documents; a request has at most %d", len(texts), wire.MaxEmbedInputs)
	case in.TopN != nil && *in.TopN < 0:
		return nil, api.Refusef(`field "top_n" is %d; it must be 0 or more`, *in.TopN)
	}
	e, err := (&api.EmbedOptions{Truncate: in.Truncate, Priority: in.Priority}).Embed()
	if err != nil {
		return nil, err
	}
	e.ID, e.Query = id, in.Query
	for _, text := range texts {
		e.Inputs = append(e.Inputs, wire.EmbedInput{Text: text})
	}
	got, err := s.Embeddings(r.Context(), e)
	if err != nil {
		return nil, err
	}
	list := make([]ranked, len(got.Of))
	for i := range list {
		score, err := got.One(i)
		if err != nil {
			return nil, err
		}
		list[i] = ranked{Index: i, Score: score[0]}
	}
	slices.SortStableFunc(list, func(a, b ranked) int { return cmp.Compare(b.Score, a.Score) })
	if in.TopN != nil {
		list = list[:min(*in.TopN, len(list))]
	}
	if tei {
		answer := make([]rankedText, len(list))
		for i, d := range list {
			if answer[i] = (rankedText{Index: d.Index, Score: d.Score}); in.Text {
				answer[i].Text = &texts[d.Index]
			}
		}
		return answer, nil
	}
	if in.Return {
		for i := range list {
			list[i].Document = &document{texts[list[i].Index]}
		}
	}
	answer := &ranking{Model: s.Model(), Object: "list", Results: list}
	answer.Usage.Prompt, answer.Usage.Total = got.Tokens, got.Tokens
	return answer, nil
}
