//go:build linux && amd64 && llama_engine && !llama_no_products

// Attention in AVX-512. As in matmul_avx512.cpp, the whole file is compiled for these instructions: no header with
// inline functions may be included below the pragma.

#if __has_include("ggml.h")

#include <cstdint>
#include <cstring>

#include "attention.h"
#include "ggml.h"
#include "matmul.h"

#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")
#include "vectors_avx512.h"

#include "attention_float.h"

#include "attention_short.h"

template <int D> using cached_keys = short_keys<D>;

#include "attention_state.h"

#include "attention_kernel.h"

uma_attention_width uma_attention_avx512(int d) {
    return width(d);
}

#endif
