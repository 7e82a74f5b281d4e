//go:build linux && amd64 && llama_engine && !llama_no_products

// The products of matmul_kernel.h and matmul_float.h in AVX-512 with VNNI, and BF16 where the processor has it (only
// bf16_pairs uses those instructions: no compiler forms them of anything else). The whole file is compiled for these
// instructions, whatever the build is for: nothing of it may run before here() is asked, and no header with inline functions
// may be included below the pragma, because the linker keeps one copy of those for all.

#if __has_include("ggml.h")

#include <cpuid.h>
#include <cstdint>
#include <cstring>
#include <sys/syscall.h>
#include <unistd.h>

#include "attention.h"
#include "ggml.h"
#include "matmul.h"

#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16")
#include "vectors_avx512.h"

#include "matmul_formats.h"
#include "matmul_grids.h"

#include "matmul_float.h"

namespace {

// bf16_pairs multiplies two numbers at once, and rounds once for both.
struct bf16_pairs {
    static constexpr int  STEP = 2 * LANES, BYTES = 2;
    static constexpr bool LONE = true;
    using vector               = __m512i;
    INLINE static __m512i load(const char * p) { return _mm512_loadu_si512(p); }
    INLINE static vf      add(__m512i w, __m512i x, vf sum) { return (vf) _mm512_dpbf16_ps((__m512) sum, (__m512bh) w, (__m512bh) x); }
};

void bf16_products(const uma_job & j, const uma_piece & p) {
    floats<bf16_pairs>(j, p);
}

} // namespace

namespace {
struct format;
format bf16_format();
} // namespace

#include "matmul_kernel.h"

#include "matmul_amx.h"

namespace {

format bf16_format() {
    static const bool pairs = __builtin_cpu_supports("avx512bf16");
    return {FLOAT_ROWS, nullptr, pairs ? bf16_products : floats<bf16>};
}

bool here() {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

bool here_amx() {
    return here() && tiles_tried().right;
}

bool fast_amx() {
    return tiles_tried().faster;
}

} // namespace

const uma_kernels uma_kernels_avx512 = {"avx512", here, strip, rows_bytes, strip_bytes, prepare, prepare_part, round_part, compute<lanes>, uma_attention_avx512};
const uma_kernels uma_kernels_amx    = {"amx", here_amx, strip, rows_bytes, strip_bytes, prepare, prepare_part, round_part, compute<tiles>, uma_attention_avx512, fast_amx};

#endif
