//go:build cgo && (llama_engine || llama_system) && (!linux || (!amd64 && !arm64) || llama_system || llama_no_positions)

package llama

// Attention sums in the order of cells here.
func (e *engine) knowPositions() bool { return false }
func (e *engine) forgetPositions()    {}

// shifts: what llama.cpp says is all that is known.
func (e *engine) shifts() bool { return true }

const builtPositions = false
