//go:build linux && arm64 && llama_engine && !llama_no_products

// Attention in NEON, in float32. As in matmul_avx512.cpp, the whole file is compiled for its instructions: no header with
// inline functions may be included below the pragma.

#if __has_include("ggml.h")

#include <cstdint>
#include <cstring>

#include "attention.h"
#include "ggml.h"
#include "matmul.h"

#pragma GCC target("arch=armv8.2-a+dotprod+fp16")
#define I8MM 0
#include "vectors_neon.h"

#include "attention_float.h"

template <int D> using cached_keys = float_keys<D>;

#include "attention_state.h"

#include "attention_kernel.h"

uma_attention_width uma_attention_neon(int d) {
    return width(d);
}

#endif
