package prepare

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime"
)

// Ranking: a request for embeddings with a query. Its texts are pairs of the query and a document, and the embedding of
// a pair is one value, the score that the model's classifier makes of it.

// maxTokenBytes is the longest token that a document is expected to have, when it is cut.
const maxTokenBytes = 64

// readRanking sets how eng ranks, or why it does not.
func (e *Embedder) readRanking(eng runtime.Engine) {
	if _, can := eng.(runtime.Embedder); !can || eng.Capabilities().MaxEmbeddingRows == 0 {
		e.noRank = "this engine returns no hidden states"
	} else if r, can := eng.(runtime.Ranker); !can {
		e.noRank = "this engine ranks no documents"
	} else if ranking, err := r.Ranking(); err != nil {
		e.noRank = err.Error()
	} else {
		e.rank = ranking
	}
}

// pair returns the tokens of a query and a document. In a template they are plain text whatever markers they hold.
func (m *Model) pair(query, document string) (tokens []runtime.Token, err error) {
	r := m.Embedder.rank
	if r.Template == "" {
		tokens = slices.Clone(r.Begin)
		if tokens, err = m.Vocab.Tokenize(tokens, query, false, false); err != nil {
			return nil, err
		}
		tokens = append(tokens, r.Between...)
		if tokens, err = m.Vocab.Tokenize(tokens, document, false, false); err != nil {
			return nil, err
		}
		return append(tokens, r.End...), nil
	}
	text := strings.NewReplacer("{query}", m.markers.hide(query), "{document}", m.markers.hide(document)).
		Replace(r.Template)
	for part, marker := range m.markers.split(m.markers.restore(text)) {
		if tokens, err = m.Vocab.Tokenize(tokens, part, false, !marker); err != nil {
			return nil, err
		}
	}
	return tokens, nil
}

// readPairs tokenizes the query with each document. It calls between now and then, and ends when that returns false.
func (m *Model) readPairs(w *wire.Embed, between func() (goOn bool)) (pairs []Input, bad *wire.Error) {
	longest, pace := m.Embedder.longest, pacer(between)
	for i := range w.Inputs {
		if !pace(len(*w.Query) + len(w.Inputs[i].Text)) {
			return nil, cancelledEarly()
		}
		document := w.Inputs[i].Text
		tokens, err := m.pair(*w.Query, document)
		if err != nil {
			return nil, wire.Errorf(wire.BadRequest, "document %d: %v", i, err)
		}
		n, cut := len(tokens), false
		if n > longest && w.Truncate {
			tokens, cut = m.cutPair(*w.Query, document), true
		}
		switch {
		case len(tokens) == 0 && !cut:
			return nil, &wire.Error{Code: wire.BadRequest,
				Message: fmt.Sprintf("document %d is empty, and so is the query", i)}
		case n > longest && len(tokens) == 0:
			return nil, &wire.Error{Code: wire.ContextLength, NPrompt: n, NCtx: longest, Message: fmt.Sprintf(
				"the query leaves no room for document %d: a pair has at most %d tokens (n_ctx)", i, longest)}
		case n > longest && !cut:
			return nil, &wire.Error{Code: wire.ContextLength, NPrompt: n, NCtx: longest, Message: fmt.Sprintf(
				"document %d is too large: with the query it has %d tokens (n_prompt), and this model reads at most "+
					"%d (n_ctx); shorten it, or send \"truncate\": true", i, n, longest)}
		}
		pairs = append(pairs, Input{tokens, cut})
	}
	return pairs, nil
}

// cutPair returns the pair with the longest beginning of the document that fits; nil where none does.
func (m *Model) cutPair(query, document string) (tokens []runtime.Token) {
	most := min(len(document), m.Embedder.longest*maxTokenBytes)
	sort.Search(most+1, func(n int) bool {
		for n > 0 && n < len(document) && !utf8.RuneStart(document[n]) {
			n--
		}
		pair, err := m.pair(query, document[:n])
		if fits := err == nil && len(pair) <= m.Embedder.longest; fits && len(pair) >= len(tokens) {
			tokens = pair
		} else if !fits {
			return true
		}
		return false
	})
	return tokens
}
