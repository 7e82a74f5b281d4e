//go:build cgo && (!linux || (!amd64 && !arm64) || llama_system)

package llama

// #include "bridge.h"
import "C"

import "fmt"

func newPool(threads int) (*C.struct_ggml_threadpool, error) {
	p := C.uma_threadpool_new(C.int32_t(threads), pollLevel)
	if p == nil {
		return nil, fmt.Errorf("create %d compute threads: failed", threads)
	}
	return p, nil
}

// ComputeThreads implements runtime.ThreadSetter: ggml does not say which its threads are.
func (e *engine) ComputeThreads(dst []int) []int { return dst }

// BarrierSleeps implements runtime.ThreadSetter: ggml's barrier spins.
func (e *engine) BarrierSleeps() uint64 { return 0 }
