//go:build linux && (amd64 || arm64) && llama_engine && !llama_no_heads

// A head that guesses some tokens of the vocabulary fills a row of logits with -Inf for the others. The row is a column to ggml,
// which calls a function for each of its 49,152 elements, and that is a third of the head's time. The linker puts this function
// in the place of ggml's (--wrap, see fill.go).

#if __has_include("ggml.h")

#include <algorithm>
#include <atomic>

#include "ggml.h"
#include "ggml_op.h"

extern "C" {
void __real_ggml_compute_forward_fill(const struct ggml_compute_params * p, struct ggml_tensor * dst);
void __wrap_ggml_compute_forward_fill(const struct ggml_compute_params * p, struct ggml_tensor * dst);
bool uma_filled(void);
}

static std::atomic<bool> filled;

void __wrap_ggml_compute_forward_fill(const struct ggml_compute_params * p, struct ggml_tensor * dst) {
    if (dst->type != GGML_TYPE_F32 || !ggml_is_contiguous(dst)) {
        __real_ggml_compute_forward_fill(p, dst);
        return;
    }
    const int64_t n = ggml_nelements(dst);
    float         value;
    static_assert(sizeof(value) == sizeof(dst->op_params[0]), "the value is the first parameter");
    std::copy_n((const char *) dst->op_params, sizeof(value), (char *) &value);
    std::fill((float *) dst->data + n * p->ith / p->nth, (float *) dst->data + n * (p->ith + 1) / p->nth, value);
    filled.store(true, std::memory_order_relaxed);
}

// uma_filled reports whether it has filled anything since the last call.
bool uma_filled(void) { return filled.exchange(false); }

#endif
