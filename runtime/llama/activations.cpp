//go:build linux && amd64 && llama_engine && !llama_no_products

// Activations in blocks of 256 bytes (ggml's Q8_K). ggml rounds them one by one on x86, which took a tenth of a
// product with Q4_K weights. The linker puts this function in the place of ggml's (--wrap, see matmul.go). The numbers are
// ggml's, but for their sign where a block's largest element is positive: ggml's scale is negative there, and so are its
// bytes. No product differs in a bit.

#if __has_include("ggml.h")

#include <cstdint>
#include <cstring>

#include "ggml.h"
#include "kernels/matmul.h"

extern "C" {
void __real_quantize_row_q8_K(const float * x, void * y, int64_t k);
void __wrap_quantize_row_q8_K(const float * x, void * y, int64_t k);
}

#include <immintrin.h>

#define AVX2 __attribute__((target("avx2,fma")))

namespace {

struct block {
    float   scale;
    int8_t  q[256];
    int16_t sum[16]; // of 16 each
};

static_assert(sizeof(block) == 292, "ggml's block_q8_K");

AVX2 void quantise(const float * x, block * y, int64_t blocks) {
    for (int64_t b = 0; b < blocks; b++, x += 256, y++) {
        const __m256 sign = _mm256_set1_ps(-0.f);
        __m256       m[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
        for (int i = 0; i < 256; i += 32) {
            for (int l = 0; l < 4; l++) {
                m[l] = _mm256_max_ps(m[l], _mm256_andnot_ps(sign, _mm256_loadu_ps(x + i + 8 * l)));
            }
        }
        m[0]     = _mm256_max_ps(_mm256_max_ps(m[0], m[1]), _mm256_max_ps(m[2], m[3]));
        __m128 t = _mm_max_ps(_mm256_castps256_ps128(m[0]), _mm256_extractf128_ps(m[0], 1));
        t        = _mm_max_ps(t, _mm_movehl_ps(t, t));
        t        = _mm_max_ss(t, _mm_movehdup_ps(t));
        const float top = _mm_cvtss_f32(t);
        if (top == 0) {
            memset(y, 0, sizeof(*y));
            continue;
        }
        const float by = 127.f / top;
        y->scale       = 1 / by;
        for (int i = 0; i < 256; i += 32) {
            __m256i v[4];
            for (int l = 0; l < 4; l++) {
                v[l] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i + 8 * l), _mm256_set1_ps(by)));
            }
            // Packing works on halves of a vector: the order is put right at the end.
            const __m256i q = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3])),
                                                          _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
            _mm256_storeu_si256((__m256i *) (y->q + i), q);
            const __m256i fours = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), q), _mm256_set1_epi16(1));
            __m128i       lo    = _mm256_castsi256_si128(fours), hi = _mm256_extracti128_si256(fours, 1);
            lo                  = _mm_hadd_epi32(lo, hi);
            lo                  = _mm_hadd_epi32(lo, lo);
            y->sum[i / 16]      = (int16_t) _mm_extract_epi32(lo, 0);
            y->sum[i / 16 + 1]  = (int16_t) _mm_extract_epi32(lo, 1);
        }
    }
}

} // namespace

#include "../src/ggml-cpu/quants.h"

#include <cstddef>
#include <type_traits>
static_assert(std::is_same<decltype(quantize_row_q8_K), decltype(__wrap_quantize_row_q8_K)>::value, "quantize_row_q8_K");
static_assert(sizeof(block) == sizeof(block_q8_K) && offsetof(block, q) == offsetof(block_q8_K, qs) && offsetof(block, sum) == offsetof(block_q8_K, bsums), "block_q8_K");

extern "C" void __wrap_quantize_row_q8_K(const float * x, void * y, int64_t k) {
    if (uma_matmul_takes(GGML_TYPE_Q4_K)) { // so there is AVX2
        quantise(x, (block *) y, k / 256);
    } else {
        __real_quantize_row_q8_K(x, y, k);
    }
}

#endif
