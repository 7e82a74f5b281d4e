//go:build linux && arm64 && llama_engine && !llama_no_products

// The products of matmul_kernel.h and matmul_float.h in NEON with dot products, and the attention. As in
// matmul_avx512.cpp, the whole file is compiled for these instructions: no header with inline functions may be included below
// the pragma.

#if __has_include("ggml.h")

#include <sys/auxv.h>

#include <cstdint>
#include <cstring>

#include "attention.h"
#include "ggml.h"
#include "matmul.h"

#pragma GCC target("arch=armv8.2-a+dotprod+fp16")
#define I8MM 0
#include "matmul_neon.h"

namespace {

bool here() {
    constexpr unsigned long ASIMDDP = 1 << 20; // HWCAP_ASIMDDP of asm/hwcap.h
    return getauxval(AT_HWCAP) & ASIMDDP;
}

} // namespace

const uma_kernels uma_kernels_neon = {"neon", here, strip, rows_bytes, strip_bytes, prepare, prepare_part, round_part, compute<lanes>, uma_attention_neon};

#endif
