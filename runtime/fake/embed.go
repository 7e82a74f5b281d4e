package fake

import "github.com/uma-serve/uma-serve/runtime"

// has reports whether row i of the last Decode was computed for what the bit says.
func (e *Engine) has(i int, bit int8) bool {
	return i >= 0 && i < len(e.rows) && e.rows[i] >= 0 && e.want[e.rows[i]].bits&bit != 0
}

// encode computes the first n rows of the batch as an encoder does: a row's content is that of its whole text, and no
// cell remains.
func (e *Engine) encode(n int) {
	sums := map[runtime.Seq]uint64{}
	for i := range n {
		sums[e.batch.Seq[i]] += hash(e.batch.Pos[i], e.batch.Token[i])
	}
	for i := range n {
		own := hash(e.batch.Pos[i], e.batch.Token[i])
		e.output(i, wanted{sum: mix(sums[e.batch.Seq[i]]) ^ own})
	}
}

// Embedding implements runtime.Embedder. The values are in [-1, 1), a function of the seed and of what the row's logits
// depend on.
func (e *Engine) Embedding(i int) []float32 {
	if !e.has(i, runtime.RowEmbedding) {
		return nil
	}
	n, k := e.info.Embedding, int(e.rows[i])
	if need := len(e.want) * n; cap(e.hidden) < need {
		e.hidden = make([]float32, need) // slices returned earlier keep the old array
		for j := range e.want {
			e.want[j].made = false
		}
	}
	e.hidden = e.hidden[:cap(e.hidden)]
	row := e.hidden[k*n : (k+1)*n : (k+1)*n]
	if w := &e.want[k]; !w.made {
		w.made = true
		h := mix(w.sum ^ mix(^e.cfg.Seed))
		for j := range row {
			row[j] = float32(mix(h+uint64(j))>>40)/(1<<23) - 1
		}
	}
	return row
}
