//go:build linux && (amd64 || arm64) && llama_engine && !llama_no_heads

// A head that guesses some tokens of the vocabulary fills a row of logits with -Inf for the others. The row is a column to ggml,
// which calls a function for each of its 49,152 elements, and that is a third of the head's time. The linker puts this function
// in the place of ggml's (--wrap, see fill.go).

#if __has_include("ggml.h")

#include <algorithm>
#include <atomic>
#include <cstring>
#include <type_traits>

#include "../src/ggml-cpu/ops.h"
#include "ggml.h"
#include "ggml_op.h"

extern "C" {
void __real_ggml_compute_forward_fill(const struct ggml_compute_params * p, struct ggml_tensor * dst);
void __wrap_ggml_compute_forward_fill(const struct ggml_compute_params * p, struct ggml_tensor * dst);
bool uma_filled(void);
}

static_assert(std::is_same_v<decltype(ggml_compute_forward_fill), decltype(__real_ggml_compute_forward_fill)>, "what --wrap replaces");

static std::atomic<bool> filled;

void __wrap_ggml_compute_forward_fill(const struct ggml_compute_params * p, struct ggml_tensor * dst) {
    if (dst->type != GGML_TYPE_F32 || !ggml_is_contiguous(dst)) {
        __real_ggml_compute_forward_fill(p, dst);
        return;
    }
    const int64_t n  = ggml_nelements(dst);
    float *       to = (float *) dst->data;
    float         value;
    memcpy(&value, dst->op_params, sizeof(value));
    std::fill(to + n * p->ith / p->nth, to + n * (p->ith + 1) / p->nth, value);
    filled.store(true, std::memory_order_relaxed);
}

// uma_filled reports whether it has filled anything since the last call.
bool uma_filled(void) { return filled.exchange(false); }

#endif
