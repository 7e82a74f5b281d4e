//go:build linux && (amd64 || arm64) && cgo && llama_engine && !llama_no_barrier

package llama

// #cgo LDFLAGS: ${SRCDIR}/barrier.so
// #include "barrier.h"
// #include "bridge.h"
import "C"

import (
	"fmt"

	"github.com/uma-serve/uma-serve/runtime/llama/known"
)

// checkPool refuses a pool that barrier.cpp would misread, and frees it.
func checkPool(p *C.struct_ggml_threadpool, threads int) (*C.struct_ggml_threadpool, error) {
	if !C.uma_barrier_fits(p, C.int32_t(threads), pollLevel) {
		C.ggml_threadpool_free(p)
		return nil, fmt.Errorf("create %d compute threads: ggml's thread pool has another layout than this build knows",
			threads)
	}
	return p, nil
}

// ComputeThreads implements runtime.ThreadSetter.
func (e *engine) ComputeThreads(dst []int) []int {
	var ids [known.MaxThreads]C.int32_t
	n := C.uma_compute_threads(&ids[0], known.MaxThreads)
	for _, id := range ids[:n] {
		dst = append(dst, int(id))
	}
	return dst
}

// BarrierSleeps implements runtime.ThreadSetter.
func (e *engine) BarrierSleeps() uint64 { return uint64(C.uma_barrier_sleeps()) }

// tryBarrier computes a graph on two new threads, which wait for each other.
func tryBarrier() (ours, missed []string) {
	start()
	C.uma_barrier_passed()
	C.uma_barrier_try()
	if !C.uma_barrier_passed() {
		missed = []string{"threads"}
	}
	return nil, missed
}

const builtBarrier = true
