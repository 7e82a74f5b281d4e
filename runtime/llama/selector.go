//go:build cgo && llama_engine && !llama_no_heads

package llama

import (
	"math"

	"github.com/uma-serve/uma-serve/runtime"
)

// A DFlash2 head leaves candidates for each guess of a block, and scores of each behind each candidate of the guess
// before. The first guess's are behind the newest token, the same in all columns. The guesses are the best ones behind
// one another.

// picks is the part of a headFile that chooses among candidates.
type picks struct {
	most   int             // candidates of a guess; 0: the rows of logits have the guesses
	ids    []runtime.Token // by row of the batch
	scores []float32       // of ids, behind the candidate that was chosen for the row before
	row    []float32       // scratch of candidates
}

func (p *picks) openPicks(rows, vocabulary int) {
	p.ids, p.scores = make([]runtime.Token, p.most*rows), make([]float32, p.most*rows)
	p.row = make([]float32, vocabulary)
}

// pick reads what a row of the graph has for row i of the batch, and returns the best candidate behind the one chosen
// for the row before.
func (p *picks) pick(i int, of []float32, before int) (best int) {
	n := p.most
	scores := p.scores[i*n : (i+1)*n]
	copy(scores, of[n+before*n:])
	for k, id := range of[:n] {
		if p.ids[i*n+k] = 0; id >= 0 && id < float32(len(p.row)) {
			p.ids[i*n+k] = runtime.Token(id)
		}
		if scores[k] > scores[best] || scores[best] != scores[best] { // NaN never wins
			best = k
		}
	}
	return best
}

// candidates returns row i's logits: the scores of its candidates.
func (p *picks) candidates(i int) []float32 {
	for t := range p.row {
		p.row[t] = float32(math.Inf(-1))
	}
	for k, id := range p.ids[i*p.most : (i+1)*p.most] {
		p.row[id] = p.scores[i*p.most+k]
	}
	return p.row
}

// Logits implements runtime.Engine.
func (h *head) Logits(i int) []float32 {
	if h.file == nil || h.file.most == 0 || !h.hasRow(i, runtime.RowLogits) {
		return h.engine.Logits(i)
	}
	return h.file.candidates(i)
}

// Argmax implements runtime.RowScanner.
func (h *head) Argmax(i int) (runtime.Token, float32) {
	if h.file == nil || h.file.most == 0 || !h.hasRow(i, runtime.RowLogits) {
		return h.engine.Argmax(i)
	}
	return ArgMax(h.file.candidates(i))
}
