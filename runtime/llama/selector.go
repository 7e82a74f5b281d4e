//go:build cgo && llama_engine && !llama_no_heads

package llama

import "github.com/uma-serve/uma-serve/runtime"

// Logits implements runtime.Engine.
func (h *head) Logits(i int) []float32 {
	if h.file == nil || h.file.Most == 0 || !h.hasRow(i, runtime.RowLogits) {
		return h.engine.Logits(i)
	}
	return h.file.Candidates(i)
}

// Argmax implements runtime.RowScanner.
func (h *head) Argmax(i int) (runtime.Token, float32) {
	if h.file == nil || h.file.Most == 0 || !h.hasRow(i, runtime.RowLogits) {
		return h.engine.Argmax(i)
	}
	return ArgMax(h.file.Candidates(i))
}
