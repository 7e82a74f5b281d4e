//go:build cgo && (llama_engine || llama_system) && (!linux || (!amd64 && !arm64) || llama_system || llama_no_barrier)

package llama

// #include "bridge.h"
import "C"

// checkPool takes any pool: its barrier is ggml's.
func checkPool(p *C.struct_ggml_threadpool, _ int) (*C.struct_ggml_threadpool, error) { return p, nil }

// ComputeThreads implements runtime.ThreadSetter: ggml does not say which its threads are.
func (e *engine) ComputeThreads(dst []int) []int { return dst }

// BarrierSleeps implements runtime.ThreadSetter: ggml's barrier spins.
func (e *engine) BarrierSleeps() uint64 { return 0 }

func tryBarrier() (ours, missed []string) { return nil, nil }

const builtBarrier = false
