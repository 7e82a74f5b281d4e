//go:build cgo && (!linux || (!amd64 && !arm64) || llama_system)

package llama

// Attention is ggml's here, which sums in the order of cells.
func (e *engine) knowPositions()   {}
func (e *engine) forgetPositions() {}
