//go:build linux && amd64 && llama_engine && !llama_no_products

// Activations in blocks of 256 bytes (ggml's Q8_K) and of 32 (Q8_0, Q8_1). ggml rounds the former one by one on x86, which took
// a tenth of a product with Q4_K weights, and finds scale and sum of each of the latter by itself, a fourteenth with Q4_1. The
// linker puts these functions in the place of ggml's (--wrap, see matmul.go). The numbers are ggml's, but for their sign where a
// Q8_K block's largest element is positive: ggml's scale is negative there, and so are its bytes. No product differs in a bit.

#if __has_include("ggml.h")

#include <cstdint>
#include <cstring>

#include "ggml.h"
#include "kernels/matmul.h"

extern "C" {
void __real_quantize_row_q8_K(const float * x, void * y, int64_t k);
void __wrap_quantize_row_q8_K(const float * x, void * y, int64_t k);
void __real_quantize_row_q8_0(const float * x, void * y, int64_t k);
void __wrap_quantize_row_q8_0(const float * x, void * y, int64_t k);
void __real_quantize_row_q8_1(const float * x, void * y, int64_t k);
void __wrap_quantize_row_q8_1(const float * x, void * y, int64_t k);
}

#include <immintrin.h>

#define AVX2   __attribute__((target("avx2,fma,f16c")))
#define AVX512 __attribute__((target("avx2,fma,f16c,avx512f,avx512dq")))

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

#define BOTH(a, b) (SUM ? _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b))) : _mm256_max_ps(a, b))

// of_four puts the sums of whole numbers, or else the largest element, of four vectors side by side.
template <bool SUM> AVX2 inline __m128 of_four(const __m256 * v) {
    const __m256 a = BOTH(_mm256_unpacklo_ps(v[0], v[1]), _mm256_unpackhi_ps(v[0], v[1])), b = BOTH(_mm256_unpacklo_ps(v[2], v[3]), _mm256_unpackhi_ps(v[2], v[3]));
    const __m256 c = BOTH(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xee));
    return _mm256_castps256_ps128(BOTH(c, _mm256_permute2f128_ps(c, c, 1)));
}

// A block's scale in half precision and, with SUM, the sum times the scale lie before its numbers.
template <bool SUM> constexpr int head = SUM ? 4 : 2;

// by is what four blocks' elements are multiplied with: 127 / the largest, 0 for zeros.
AVX2 inline __m128 by(__m128 top) {
    return _mm_and_ps(_mm_div_ps(_mm_set1_ps(127.f), top), _mm_cmpneq_ps(top, _mm_setzero_ps()));
}

// heads writes what lies before the numbers of four blocks; sums are of whole numbers, eight to a block.
template <bool SUM> AVX2 inline void heads(char * y, __m128 scale, const __m256 * sums) {
    constexpr int SIZE = head<SUM> + 32;
    uint16_t      half[8];
    _mm_storel_epi64((__m128i *) half, _mm_cvtps_ph(scale, 0));
    if (SUM) {
        const __m128 sum = of_four<true>(sums);
        _mm_storel_epi64((__m128i *) (half + 4), _mm_cvtps_ph(_mm_mul_ps(scale, _mm_cvtepi32_ps(_mm_castps_si128(sum))), 0));
    }
    for (int b = 0; b < 4; b++) {
        memcpy(y + b * SIZE, half + b, 2);
        if (SUM) {
            memcpy(y + b * SIZE + 2, half + 4 + b, 2);
        }
    }
}

// quantise_fours rounds four blocks of 32, which lie size bytes apart: a scale in half precision, with SUM also the sum times
// the scale, and the numbers.
template <bool SUM> AVX2 void quantise_fours(const float * x, char * y, int64_t fours) {
    constexpr int SIZE = head<SUM> + 32;
    const __m256  sign = _mm256_set1_ps(-0.f);
    for (; fours > 0; fours--, x += 128, y += 4 * SIZE) {
        __m256 m[4];
        for (int b = 0; b < 4; b++) {
            m[b] = _mm256_andnot_ps(sign, _mm256_loadu_ps(x + 32 * b));
            for (int l = 1; l < 4; l++) {
                m[b] = _mm256_max_ps(m[b], _mm256_andnot_ps(sign, _mm256_loadu_ps(x + 32 * b + 8 * l)));
            }
        }
        const __m128 top   = of_four<false>(m);
        const __m128 scale = _mm_div_ps(top, _mm_set1_ps(127.f));
        float        each[4];
        _mm_storeu_ps(each, by(top));
        for (int b = 0; b < 4; b++) {
            const __m256 times = _mm256_set1_ps(each[b]);
            __m256i      v[4];
            for (int l = 0; l < 4; l++) {
                v[l] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 32 * b + 8 * l), times));
            }
            const __m256i q = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3])),
                                                          _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
            _mm256_storeu_si256((__m256i *) (y + b * SIZE + head<SUM>), q);
            m[b] = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_add_epi32(v[0], v[1]), _mm256_add_epi32(v[2], v[3])));
        }
        heads<SUM>(y, scale, m);
    }
}

// quantise_fours_512 is quantise_fours with vectors of 512 bits: half of the instructions, the same numbers.
template <bool SUM> AVX512 void quantise_fours_512(const float * x, char * y, int64_t fours) {
    constexpr int SIZE = head<SUM> + 32;
    for (; fours > 0; fours--, x += 128, y += 4 * SIZE) {
        __m256 m[4];
        for (int b = 0; b < 4; b++) {
            const __m512 v = _mm512_max_ps(_mm512_abs_ps(_mm512_loadu_ps(x + 32 * b)), _mm512_abs_ps(_mm512_loadu_ps(x + 32 * b + 16)));
            m[b]           = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
        }
        const __m128 top = of_four<false>(m);
        float        each[4];
        _mm_storeu_ps(each, by(top));
        for (int b = 0; b < 4; b++) {
            const __m512  times = _mm512_set1_ps(each[b]);
            const __m512i v = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + 32 * b), times)), w = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + 32 * b + 16), times));
            _mm_storeu_si128((__m128i *) (y + b * SIZE + head<SUM>), _mm512_cvtsepi32_epi8(v));
            _mm_storeu_si128((__m128i *) (y + b * SIZE + head<SUM> + 16), _mm512_cvtsepi32_epi8(w));
            const __m512i sum = _mm512_add_epi32(v, w);
            m[b]              = _mm256_castsi256_ps(_mm256_add_epi32(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64(sum, 1)));
        }
        heads<SUM>(y, _mm_div_ps(top, _mm_set1_ps(127.f)), m);
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

// ours rounds fours of blocks, and returns how many values that are.
template <bool SUM> static int64_t ours(const float * x, void * y, int64_t k) {
    if (!uma_matmul_takes(GGML_TYPE_Q8_0)) {
        return 0;
    }
    static const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
    (wide ? quantise_fours_512<SUM> : quantise_fours<SUM>) (x, (char *) y, k / 128);
    return k / 128 * 128;
}

static_assert(sizeof(block_q8_0) == 34 && offsetof(block_q8_0, qs) == 2, "block_q8_0");
static_assert(sizeof(block_q8_1) == 36 && offsetof(block_q8_1, qs) == 4, "block_q8_1");

extern "C" void __wrap_quantize_row_q8_0(const float * x, void * y, int64_t k) {
    const int64_t done = ours<false>(x, y, k);
    __real_quantize_row_q8_0(x + done, (block_q8_0 *) y + done / 32, k - done);
}

extern "C" void __wrap_quantize_row_q8_1(const float * x, void * y, int64_t k) {
    const int64_t done = ours<true>(x, y, k);
    __real_quantize_row_q8_1(x + done, (block_q8_1 *) y + done / 32, k - done);
}

#endif
