//go:build cgo && (llama_engine || llama_system)

package llama

// #include "bridge.h"
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/uma-serve/uma-serve/internal/host/cpus"
)

// threads is the engine's compute threads.
type threads struct {
	most, mostBatch int                       // as opened: for answers, for prompts
	pool            *C.struct_ggml_threadpool // of most threads
	poolBatch       *C.struct_ggml_threadpool // of mostBatch threads; nil when prompts use pool
	// one is a pool without workers. A graph on one thread of pool would wake the others for nothing.
	one *C.struct_ggml_threadpool
}

// newPool makes a pool of compute threads. On a processor with cores of several kinds they run on the fast ones, where
// there are enough: each node of the graph waits for its slowest thread.
func newPool(threads int) (*C.struct_ggml_threadpool, error) {
	var bound []C.int32_t
	if t := cpus.ReadTopology(); t.Hybrid() && threads <= t.FastCores {
		for _, c := range t.Fast {
			bound = append(bound, C.int32_t(c))
		}
	}
	p := C.uma_threadpool_new(C.int32_t(threads), pollLevel, unsafe.SliceData(bound), C.int32_t(len(bound)))
	if p == nil {
		return nil, fmt.Errorf("create %d compute threads: failed", threads)
	}
	return checkPool(p, threads)
}

// makeThreads creates the pools and gives them to the context. A partial success is freed by freeThreads.
func (e *engine) makeThreads(most, mostBatch int) (err error) {
	t := &e.threads
	t.most, t.mostBatch = most, mostBatch
	if t.pool, err = newPool(most); err != nil {
		return err
	}
	if mostBatch != most {
		if t.poolBatch, err = newPool(mostBatch); err != nil {
			return err
		}
	}
	if t.one, err = newPool(1); err != nil {
		return err
	}
	e.SetThreads(most)
	return nil
}

// SetThreads implements runtime.ThreadSetter.
func (e *engine) SetThreads(n int) {
	t := &e.threads
	n = min(max(n, 1), t.most)
	batch := min(n, t.mostBatch)
	if n == t.most {
		batch = t.mostBatch
	}
	pool, poolBatch := t.pool, t.poolBatch
	if poolBatch == nil {
		poolBatch = pool
	}
	if n == 1 {
		pool = t.one
	}
	if batch == 1 {
		poolBatch = t.one
	}
	C.llama_attach_threadpool(e.ctx, pool, poolBatch)
	C.llama_set_n_threads(e.ctx, C.int32_t(n), C.int32_t(batch))
}

// freeThreads must be called when the context is detached.
func (e *engine) freeThreads() {
	for _, p := range []*C.struct_ggml_threadpool{e.threads.pool, e.threads.poolBatch, e.threads.one} {
		if p != nil {
			C.ggml_threadpool_free(p)
		}
	}
	e.threads = threads{}
}
