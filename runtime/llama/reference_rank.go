//go:build cgo && (llama_engine || llama_system)

package llama

// #include <stdlib.h>
// #include "bridge.h"
import "C"

import (
	"errors"
	"unsafe"

	"github.com/uma-serve/uma-serve/runtime"
)

// referenceScore returns the score of a pair in a context whose pooling is "rank": llama.cpp's own classifier, against
// which Ranking is tested; serving does not use it.
func (e *engine) referenceScore(pair []runtime.Token) (float32, error) {
	n := C.uint32_t(len(pair))
	c := (*C.uma_context_options)(C.calloc(1, C.sizeof_uma_context_options))
	defer C.free(unsafe.Pointer(c))
	c.n_ctx, c.n_batch, c.n_ubatch, c.n_seq_max = n, n, n, 1
	c.n_threads, c.n_threads_batch = 1, 1
	c.flash_attn, c.type_k, c.type_v = C.LLAMA_FLASH_ATTN_TYPE_DISABLED, C.GGML_TYPE_F16, C.GGML_TYPE_F16
	c.embeddings, c.pooling = true, C.LLAMA_POOLING_TYPE_RANK
	c.stop = e.stop
	ctx := C.uma_context_new(e.model, c)
	if ctx == nil {
		return 0, errors.New("no context")
	}
	defer C.llama_free(ctx)
	b := C.llama_batch_init(C.int32_t(n), 0, 1)
	defer C.llama_batch_free(b)
	for i, t := range pair {
		unsafe.Slice(b.token, n)[i] = C.llama_token(t)
		unsafe.Slice(b.pos, n)[i] = C.llama_pos(i)
		unsafe.Slice(b.n_seq_id, n)[i] = 1
		*unsafe.Slice(b.seq_id, n)[i] = 0
		unsafe.Slice(b.logits, n)[i] = 1
	}
	b.n_tokens = C.int32_t(n)
	if C.llama_encode(ctx, b) != 0 {
		return 0, errors.New("llama_encode failed")
	}
	return float32(*C.llama_get_embeddings_seq(ctx, 0)), nil
}
