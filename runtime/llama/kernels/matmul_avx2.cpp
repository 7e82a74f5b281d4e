//go:build linux && amd64 && llama_engine && !llama_no_products

// The products of matmul_kernel.h and matmul_float.h in AVX2. As in matmul_avx512.cpp, the whole file is compiled for
// these instructions: no header with inline functions may be included below the pragma.

#if __has_include("ggml.h")

#include <cstdint>
#include <cstring>

#include "attention.h"
#include "ggml.h"
#include "matmul.h"

#pragma GCC target("avx2,fma,f16c,no-avx512f,no-avxvnni")
#define VNNI 0
#include "matmul_avx2.h"

namespace {

bool here() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

} // namespace

const uma_kernels uma_kernels_avx2 = {"avx2", here, strip, rows_bytes, strip_bytes, prepare, prepare_part, round_part, compute<lanes>, uma_attention_avx2};

#endif
