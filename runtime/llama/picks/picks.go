// Package picks chooses the guesses of a block among candidates.
//
// A DFlash2 head leaves candidates for each guess of a block, and scores of each behind each candidate of the guess
// before. The first guess's are behind the newest token, the same in all columns. The guesses are the best ones behind
// one another.
package picks

import (
	"math"

	"github.com/uma-serve/uma-serve/runtime"
)

// Picks chooses among the candidates of a batch's rows.
type Picks struct {
	Most   int             // candidates of a guess; 0: the rows of logits have the guesses
	ids    []runtime.Token // by row of the batch
	scores []float32       // of ids, behind the candidate that was chosen for the row before
	row    []float32       // scratch of candidates
}

// Open makes room for so many rows, and for a row of logits.
func (p *Picks) Open(rows, vocabulary int) {
	p.ids, p.scores = make([]runtime.Token, p.Most*rows), make([]float32, p.Most*rows)
	p.row = make([]float32, vocabulary)
}

// Pick reads what a row of the graph has for row i of the batch, and returns the best candidate behind the one chosen
// for the row before.
func (p *Picks) Pick(i int, of []float32, before int) (best int) {
	n := p.Most
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

// Candidates returns row i's logits: the scores of its candidates.
func (p *Picks) Candidates(i int) []float32 {
	for t := range p.row {
		p.row[t] = float32(math.Inf(-1))
	}
	for k, id := range p.ids[i*p.Most : (i+1)*p.Most] {
		p.row[id] = p.scores[i*p.Most+k]
	}
	return p.row
}
