//go:build linux && amd64 && llama_engine && !llama_no_products

// Attention in AVX2, in float32. As in matmul_avx512.cpp, the whole file is compiled for these instructions: no header with
// inline functions may be included below the pragma.

#if __has_include("ggml.h")

#include <cstdint>
#include <cstring>

#include "attention.h"
#include "ggml.h"
#include "matmul.h"

#pragma GCC target("avx2,fma,f16c,no-avx512f,no-avxvnni")
#define VNNI 0
#include "vectors_avx2.h"

#include "attention_float.h"

template <int D> using cached_keys = float_keys<D>;

#include "attention_state.h"

#include "attention_kernel.h"

uma_attention_width uma_attention_avx2(int d) {
    return width(d);
}

#endif
