package llamaserver

import (
	"net/http"
	"slices"

	"github.com/uma-serve/uma-serve/daemon/api"
)

// rerankTable lists the fields of /rerank, in the forms of Jina and of Hugging Face's TEI ("texts").
var rerankTable = slices.Concat(api.Of(api.Taken, "query", "documents", "texts", "top_n"),
	api.Of(api.Ignored, "model", "return_text", "raw_scores", "truncate", "id", "metadata"))

// serveRerank answers POST /rerank: no model of this server ranks documents, which is said of valid requests alone.
func serveRerank(s *api.Server, w http.ResponseWriter, r *http.Request) {
	var in struct {
		Query     *string  `json:"query"`
		Documents []string `json:"documents"`
		Texts     []string `json:"texts"`
		TopN      *int     `json:"top_n"`
	}
	_, err := readTable(r, rerankTable, &in, false)
	switch {
	case err != nil:
	case in.Query == nil:
		err = api.Refuse(`field "query" is missing; it must be a string`)
	case len(in.Documents)+len(in.Texts) == 0:
		err = api.Refuse(`field "documents" is missing or empty; it must be an array of strings`)
	}
	if err != nil {
		fail(s.NewWriter(w), err)
		return
	}
	refuse("this model ranks no documents")(s, w, r)
}
