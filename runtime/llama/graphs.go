//go:build cgo && (llama_engine || llama_system)

package llama

// #include "bridge.h"
import "C"

// GraphsReused implements runtime.GraphReuser.
func (e *engine) GraphsReused() uint64 {
	e.closed.AssertOpen()
	return uint64(C.llama_perf_context(e.ctx).n_reused)
}
