package daemon

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/internal/wireclient"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// rankers returns models that rank: an encoder of the first row with a head of two layers, and a decoder with a
// template, of the last row with two labels.
func rankers() map[string]fake.Config {
	weights := func(n int) (w []float32) {
		for i := range n {
			w = append(w, float32(math.Sin(float64(i*i+n))))
		}
		return w
	}
	return map[string]fake.Config{
		"encoder": {Encoder: true, Pooling: runtime.PoolRank, Ranking: &runtime.Ranking{
			Begin: []runtime.Token{1}, Between: []runtime.Token{2, 3}, End: []runtime.Token{2},
			Classifier: runtime.Classifier{Dense: weights(256), DenseBias: weights(16), Out: weights(16),
				OutBias: []float32{0.5}}}},
		"decoder": {Pooling: runtime.PoolRank, Ranking: &runtime.Ranking{
			Template: "<|im_start|>Query: {query} Document: {document}<|im_end|>", Last: true,
			Classifier: runtime.Classifier{Out: weights(32), Softmax: true}}},
	}
}

// pairOf returns the pair's tokens, assembled by hand.
func pairOf(t *testing.T, cfg fake.Config, query, document string) (tokens []runtime.Token) {
	t.Helper()
	v := fake.New(cfg).Vocab()
	add := func(text string, markers bool) {
		var err error
		if tokens, err = v.Tokenize(tokens, text, false, markers); err != nil {
			t.Fatal(err)
		}
	}
	r := cfg.Ranking
	if r.Template != "" {
		add("<|im_start|>", true)
		add("Query: "+query+" Document: "+document, false)
		add("<|im_end|>", true)
		return tokens
	}
	tokens = append(tokens, r.Begin...)
	add(query, false)
	tokens = append(tokens, r.Between...)
	add(document, false)
	return append(tokens, r.End...)
}

// scoreOf returns the score of a pair, computed here from the hidden states of an engine that computes nothing else.
func scoreOf(t *testing.T, cfg fake.Config, tokens []runtime.Token) float64 {
	t.Helper()
	rows := hiddenOf(t, cfg, tokens)
	product := func(m, bias []float32, v []float64) (out []float64) {
		for i := range len(m) / len(v) {
			sum := 0.0
			if bias != nil {
				sum = float64(bias[i])
			}
			for j := range v {
				sum += float64(m[i*len(v)+j]) * v[j]
			}
			out = append(out, sum)
		}
		return out
	}
	c := &cfg.Ranking.Classifier
	if cfg.Ranking.Last {
		v := product(c.Out, nil, rows[len(rows)-1])
		return math.Exp(v[0]) / (math.Exp(v[0]) + math.Exp(v[1]))
	}
	v := product(c.Dense, c.DenseBias, rows[0])
	for i := range v {
		v[i] = math.Tanh(v[i])
	}
	return product(c.Out, c.OutBias, v)[0]
}

// TestRank: each document's score is that of the pair alone, over frames and over HTTP in both forms.
func TestRank(t *testing.T) {
	for name, cfg := range rankers() {
		t.Run(name, func(t *testing.T) {
			args := []string{"-c", "4096", "-b", "64"}
			if cfg.Encoder {
				args = []string{"-c", "2048"}
			}
			r := serve(t, cfg, args...)
			query := "which <|im_end|> one {document}?"
			documents := []string{"", "one", "two {query}", "<|im_start|>system", text(1, 300), "one"}
			var want []float64
			for _, d := range documents {
				want = append(want, scoreOf(t, cfg, pairOf(t, cfg, query, d)))
			}
			e := wireclient.EmbedTexts(documents...)
			e.Query = &query
			vectors, err := r.embed(e).Vectors()
			if err != nil {
				t.Fatal(err)
			}
			for i, v := range vectors {
				closeTo(t, fmt.Sprint("document ", i), v, want[i:i+1])
			}
			order := []int{0, 1, 2, 3, 4, 5}
			slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(want[b], want[a]) })
			body := func(more map[string]any) string {
				more["query"] = query
				b, err := json.Marshal(more)
				if err != nil {
					t.Fatal(err)
				}
				return string(b)
			}
			var jina struct {
				Model, Object string
				Usage         struct {
					Prompt int `json:"prompt_tokens"`
					Total  int `json:"total_tokens"`
				}
				Results []struct {
					Index    int
					Score    *float64 `json:"relevance_score"`
					Document *struct{ Text string }
				}
			}
			tokens := 0
			for _, d := range documents {
				tokens += len(pairOf(t, cfg, query, d))
			}
			for _, path := range []string{"/rerank", "/reranking", "/v1/rerank", "/v1/reranking"} {
				jina.Results = nil
				status, _, answer := post(t, r.web(), path, body(map[string]any{"documents": documents, "model": "x"}))
				if err := json.Unmarshal(answer, &jina); err != nil || status != 200 || jina.Object != "list" ||
					jina.Usage.Prompt != tokens || jina.Usage.Total != tokens || len(jina.Results) != len(documents) {
					t.Fatalf("%s: %d %s %v", path, status, answer, err)
				}
				for i, d := range jina.Results {
					if d.Index != order[i] || math.Abs(*d.Score-want[order[i]]) > 1e-6 || d.Document != nil {
						t.Errorf("%s: place %d is %+v, want document %d with %g", path, i, d, order[i], want[order[i]])
					}
				}
			}
			jina.Results = nil
			_, _, answer := post(t, r.web(), "/v1/rerank", body(map[string]any{"documents": documents, "top_n": 2,
				"return_documents": true}))
			if err := json.Unmarshal(answer, &jina); err != nil || len(jina.Results) != 2 ||
				jina.Results[1].Document == nil || jina.Results[1].Document.Text != documents[order[1]] {
				t.Errorf("the best two: %s %v", answer, err)
			}
			var tei []struct {
				Index int
				Score float64
				Text  *string
			}
			_, _, answer = post(t, r.web(), "/rerank", body(map[string]any{"texts": documents, "return_text": true,
				"raw_scores": true, "top_n": 100}))
			if err := json.Unmarshal(answer, &tei); err != nil || len(tei) != len(documents) {
				t.Fatalf("%s %v", answer, err)
			}
			for i, d := range tei {
				if d.Index != order[i] || math.Abs(d.Score-want[order[i]]) > 1e-6 || *d.Text != documents[order[i]] {
					t.Errorf("place %d is %+v, want document %d", i, d, order[i])
				}
			}
			if !cfg.Encoder { // which has no cells
				r.settled()
			}
			// It makes no embeddings, and info describes its ranking.
			status, _, answer := post(t, r.web(), "/v1/embeddings", `{"input":"x"}`)
			if status != 501 || !strings.Contains(string(answer), "POST /rerank") {
				t.Errorf("an embedding: %d %s", status, answer)
			}
			if in := r.model.Load().Describe(); in.Ranking == nil || in.Ranking.Longest < 64 || in.Embeddings != nil {
				t.Errorf("info: %+v", in)
			}
		})
	}
}

// TestRankLimits: a pair that does not fit is refused, or its document is cut where that is asked for.
func TestRankLimits(t *testing.T) {
	for name, cfg := range rankers() {
		t.Run(name, func(t *testing.T) {
			r := serve(t, cfg, "-c", "64", "--max-prompt-bytes", "4000")
			longest := r.model.Load().Describe().Ranking.Longest
			long := strings.Repeat("ä b", 60)
			ask := func(body string) (int, string) {
				status, _, answer := post(t, r.web(), "/v1/rerank", body)
				return status, string(answer)
			}
			if status, answer := ask(`{"query":"q","documents":["x","` + long + `"]}`); status != 400 ||
				!strings.Contains(answer, "document 1 is too large: with the query it has") {
				t.Errorf("%d %s", status, answer)
			}
			status, answer := ask(`{"query":"q","documents":["` + long + `"],"truncate":true}`)
			var got struct {
				Usage struct {
					Prompt int `json:"prompt_tokens"`
				}
				Results []struct {
					Score float64 `json:"relevance_score"`
				}
			}
			if err := json.Unmarshal([]byte(answer), &got); err != nil || status != 200 || len(got.Results) != 1 {
				t.Fatalf("%d %s %v", status, answer, err)
			}
			if got.Usage.Prompt > longest || got.Usage.Prompt < longest-2 {
				t.Errorf("cut to %d tokens, the longest pair has %d", got.Usage.Prompt, longest)
			}
			best := 0
			for n := range long { // at the beginnings of characters
				if len(pairOf(t, cfg, "q", long[:n])) <= longest {
					best = n
				}
			}
			if want := scoreOf(t, cfg, pairOf(t, cfg, "q", long[:best])); math.Abs(got.Results[0].Score-want) > 1e-6 {
				t.Errorf("the score is %g, want %g", got.Results[0].Score, want)
			}
			if status, answer := ask(`{"query":"` + long + `","documents":["x"],"truncate":true}`); status != 400 ||
				!strings.Contains(answer, "the query leaves no room for document 0") {
				t.Errorf("%d %s", status, answer)
			}
			// The query counts once for each document.
			many := `{"query":"` + long + `","documents":[` + strings.Repeat(`"",`, 30) + `""]}`
			if status, answer := ask(many); status != 413 ||
				!strings.Contains(answer, "the query once for each document") {
				t.Errorf("%d %s", status, answer)
			}
			for body, says := range map[string]string{
				`{"query":"q","documents":["a"],"texts":["a"]}`:                                    "both given",
				`{"query":"q","documents":["a"],"top_n":-1}`:                                       "top_n",
				`{"query":"q","documents":["a"],"priority":7}`:                                     "priority",
				`{"query":"q","documents":[` + strings.Repeat(`"",`, wire.MaxEmbedInputs) + `""]}`: "at most 2048",
			} {
				if status, answer := ask(body); status != 400 || !strings.Contains(answer, says) {
					t.Errorf("%.60s: %d %s, want %q", body, status, answer, says)
				}
			}
			if !cfg.Encoder { // which has no cells
				r.settled()
			}
		})
	}
}

// TestRankOfOtherModels: a request that is wrong is told so; one that is right, why this model ranks nothing.
func TestRankOfOtherModels(t *testing.T) {
	r := serve(t, fake.Config{Pooling: runtime.PoolMean})
	for body, want := range map[string]int{
		`{"query":"q","documents":["a","b"]}`: 501, `{"query":"q","texts":["a"],"top_n":1}`: 501,
		`{"query":"q","documents":[]}`: 400, `{"query":"q","documents":null}`: 400, `{"query":"q"}`: 400,
		`{"query":"q","documents":123}`: 400, `{"query":"q","documents":[1,2,3]}`: 400, `{"documents":["a"]}`: 400,
		`{"query":7,"documents":["a"]}`: 400, `{"query":"q","documents":["a"],"x":1}`: 501,
	} {
		for _, path := range []string{"/rerank", "/v1/reranking"} {
			status, _, answer := post(t, r.web(), path, body)
			if status != want || want == 501 && !strings.Contains(string(answer), "no ranking: the fake model") {
				t.Errorf("%s: %d %s", body, status, answer)
			}
		}
	}
}
