// The vectors of the kernels in AVX-512 with VNNI.

#include <immintrin.h>

#define INLINE __attribute__((always_inline)) inline
#define INLINE_LAMBDA __attribute__((always_inline))

namespace {

constexpr int  LANES = 16, ROWS = 8, FLOAT_COLUMNS = 6;
constexpr bool UNSIGNED = true;
constexpr bool PAIRS    = false;
constexpr bool ROUNDS   = true; // floats are rounded here, not by ggml

typedef uint32_t vi __attribute__((vector_size(64)));
typedef int32_t  vs __attribute__((vector_size(64)));
typedef float    vf __attribute__((vector_size(64)));

INLINE vs splat(int32_t x) {
    return (vs) _mm512_set1_epi32(x);
}

INLINE vf splat(float x) {
    return (vf) _mm512_set1_ps(x);
}

INLINE vf fma(vf a, vf b, vf c) {
    return (vf) _mm512_fmadd_ps((__m512) a, (__m512) b, (__m512) c);
}

// fma_all is a · *b + c: the instruction itself reads b for all lanes, which is faster here than a vector of copies.
INLINE vf fma_all(vf a, const float * b, vf c) {
    asm("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(c) : "v"(a), "m"(*b));
    return c;
}

// half is the half-precision number in each lane.
INLINE vf half(vi v) {
    return (vf) _mm512_cvtph_ps(_mm512_cvtepi32_epi16((__m512i) v));
}

INLINE vf wide(const uint16_t * h) {
    return (vf) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *) h));
}

INLINE vf widest(const uint16_t * h) {
    return (vf) _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *) h)), 16);
}

INLINE float wide1(uint16_t h) {
    return _cvtsh_ss(h);
}

INLINE vi lookup(const int8_t * table, vi at) {
    return (vi) _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_load_si128((const __m128i *) table)), (__m512i) at);
}

// gather is an entry of a table for each lane.
INLINE vi gather(const uint32_t * table, vi at) {
    return (vi) _mm512_i32gather_epi32((__m512i) at, table, 4);
}

// gather2 is an entry of eight bytes for each lane: its first four and its last.
INLINE void gather2(const uint64_t * table, vi at, vi * q) {
    const __m512i a    = _mm512_i32gather_epi64(_mm512_castsi512_si256((__m512i) at), table, 8);
    const __m512i b    = _mm512_i32gather_epi64(_mm512_extracti64x4_epi64((__m512i) at, 1), table, 8);
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    q[0]               = (vi) _mm512_permutex2var_epi32(a, even, b);
    q[1]               = (vi) _mm512_permutex2var_epi32(a, _mm512_add_epi32(even, _mm512_set1_epi32(1)), b);
}

// fifth_bits is bits 4i … 4i+3 of each lane, each as bit 4 of a byte.
INLINE vi fifth_bits(vi bits, int i) {
    const __m512i of = _mm512_setr_epi32(0, 0x10, 0x1000, 0x1010, 0x100000, 0x100010, 0x101000, 0x101010, 0x10000000, 0x10000010, 0x10001000, 0x10001010, 0x10100000,
                                         0x10100010, 0x10101000, 0x10101010);
    return (vi) _mm512_permutexvar_epi32((__m512i) (bits >> (4 * i)), of);
}

// all_bits is bits 4i … 4i+3 of each lane, each as all bits of a byte.
INLINE vi all_bits(vi bits, int i) {
    const __m512i v = (__m512i) fifth_bits(bits, i);
    return (vi) _mm512_movm_epi8(_mm512_test_epi8_mask(v, v));
}

// larger is the larger in each lane; b where a is no number.
INLINE vf larger(vf a, vf b) {
    return (vf) _mm512_max_ps((__m512) a, (__m512) b);
}

// largest is the largest of the lanes.
INLINE float largest(vf v) {
    return _mm512_reduce_max_ps((__m512) v);
}

// total is the sum of 32 numbers.
INLINE int32_t total(const int8_t * q) {
    const __m256i v = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), _mm256_loadu_si256((const __m256i *) q));
    __m128i       s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s               = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

// total16 is the sum of 16 numbers.
INLINE int32_t total16(const int8_t * q) {
    __m128i s = _mm_dpbusd_epi32(_mm_setzero_si128(), _mm_set1_epi8(1), _mm_loadu_si128((const __m128i *) q));
    s         = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

// of_four puts the largest number, or with SUM the sum of whole numbers, of each of four vectors side by side.
template <bool SUM> INLINE __m128 of_four(const __m256 * v) {
    const auto both = [](__m256 a, __m256 b) INLINE_LAMBDA {
        return SUM ? _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b))) : _mm256_max_ps(a, b);
    };
    const __m256 a = both(_mm256_unpacklo_ps(v[0], v[1]), _mm256_unpackhi_ps(v[0], v[1])), b = both(_mm256_unpacklo_ps(v[2], v[3]), _mm256_unpackhi_ps(v[2], v[3]));
    const __m256 c = both(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xee));
    return _mm256_castps256_ps128(both(c, _mm256_permute2f128_ps(c, c, 1)));
}

// round_to_bytes rounds B blocks of 32 floats, at most four, as ggml does: their bytes, which lie step apart, their scales as half precision
// keeps them, and the sums of their bytes.
template <int B> INLINE void round_to_bytes(const float * x, int8_t * q, int64_t step, float * scale, int32_t * sum) {
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15); // packing works on parts of 16 bytes
    __m512        v[8];
    __m256        part[4] = {};
#pragma GCC unroll 4
    for (int b = 0; b < B; b++) {
        v[2 * b] = _mm512_loadu_ps(x + 32 * b), v[2 * b + 1] = _mm512_loadu_ps(x + 32 * b + 16);
        const __m512 top = _mm512_max_ps(_mm512_abs_ps(v[2 * b]), _mm512_abs_ps(v[2 * b + 1]));
        part[b]          = _mm256_max_ps(_mm512_castps512_ps256(top), _mm512_extractf32x8_ps(top, 1));
    }
    const __m128 top = of_four<false>(part), by = _mm_and_ps(_mm_div_ps(_mm_set1_ps(127.f), top), _mm_cmpneq_ps(top, _mm_setzero_ps()));
    _mm_storeu_ps(scale, _mm_cvtph_ps(_mm_cvtps_ph(_mm_div_ps(top, _mm_set1_ps(127.f)), 0)));
    float times[4];
    _mm_storeu_ps(times, by);
    __m512i whole[8] = {};
#pragma GCC unroll 4
    for (int b = 0; b < B; b++) {
        whole[2 * b]     = _mm512_cvtps_epi32(_mm512_mul_ps(v[2 * b], _mm512_set1_ps(times[b])));
        whole[2 * b + 1] = _mm512_cvtps_epi32(_mm512_mul_ps(v[2 * b + 1], _mm512_set1_ps(times[b])));
    }
#pragma GCC unroll 2
    for (int b = 0; b < B; b += 2) {
        const __m512i two =
            _mm512_permutexvar_epi32(order, _mm512_packs_epi16(_mm512_packs_epi32(whole[2 * b], whole[2 * b + 1]), _mm512_packs_epi32(whole[2 * b + 2], whole[2 * b + 3])));
        const __m512i fours = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), two);
        _mm256_storeu_si256((__m256i *) (q + b * step), _mm512_castsi512_si256(two));
        part[b] = _mm256_castsi256_ps(_mm512_castsi512_si256(fours));
        if (b + 1 < B) {
            _mm256_storeu_si256((__m256i *) (q + (b + 1) * step), _mm512_extracti64x4_epi64(two, 1));
            part[b + 1] = _mm256_castsi256_ps(_mm512_extracti64x4_epi64(fours, 1));
        }
    }
    _mm_storeu_si128((__m128i *) sum, _mm_castps_si128(of_four<true>(part)));
}

// load4 reads 16 bytes of each row: t[i] has the i-th four.
template <class At> INLINE void load4(At a, vi * t) {
    __m512i z[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        z[i] = _mm512_zextsi128_si512(_mm_loadu_si128((const __m128i *) a[i]));
        z[i] = _mm512_inserti32x4(z[i], _mm_loadu_si128((const __m128i *) a[4 + i]), 1);
        z[i] = _mm512_inserti32x4(z[i], _mm_loadu_si128((const __m128i *) a[8 + i]), 2);
        z[i] = _mm512_inserti32x4(z[i], _mm_loadu_si128((const __m128i *) a[12 + i]), 3);
    }
    const __m512i a0 = _mm512_unpacklo_epi32(z[0], z[1]), a1 = _mm512_unpackhi_epi32(z[0], z[1]);
    const __m512i a2 = _mm512_unpacklo_epi32(z[2], z[3]), a3 = _mm512_unpackhi_epi32(z[2], z[3]);
    t[0] = (vi) _mm512_unpacklo_epi64(a0, a2);
    t[1] = (vi) _mm512_unpackhi_epi64(a0, a2);
    t[2] = (vi) _mm512_unpacklo_epi64(a1, a3);
    t[3] = (vi) _mm512_unpackhi_epi64(a1, a3);
}

// pair is 32 bytes at lo and 32 at hi.
INLINE __m512i pair(const char * lo, const char * hi) {
    const __m256i low = _mm256_loadu_si256((const __m256i *) lo);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), _mm256_loadu_si256((const __m256i *) hi), 1);
}

// load8 reads 32 bytes of each row.
template <class At> INLINE void load8(At a, vi * t) {
    __m512i v[2][4];
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        __m512i z[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            z[i] = pair(a[8 * h + i], a[8 * h + 4 + i]);
        }
        const __m512i a0 = _mm512_unpacklo_epi32(z[0], z[1]), a1 = _mm512_unpackhi_epi32(z[0], z[1]);
        const __m512i a2 = _mm512_unpacklo_epi32(z[2], z[3]), a3 = _mm512_unpackhi_epi32(z[2], z[3]);
        v[h][0] = _mm512_unpacklo_epi64(a0, a2);
        v[h][1] = _mm512_unpackhi_epi64(a0, a2);
        v[h][2] = _mm512_unpacklo_epi64(a1, a3);
        v[h][3] = _mm512_unpackhi_epi64(a1, a3);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        t[i]     = (vi) _mm512_shuffle_i32x4(v[0][i], v[1][i], 0x88);
        t[4 + i] = (vi) _mm512_shuffle_i32x4(v[0][i], v[1][i], 0xdd);
    }
}

constexpr int32_t ORIGIN = 0;

// number is what a sum has added to ORIGIN.
INLINE vf number(vs sum) {
    return __builtin_convertvector(sum, vf);
}

// dots adds to each sum the products of quads FIRST … FIRST+COUNT-1.
template <int TOP, int N, int FIRST, int COUNT> INLINE void dots(vs (&sum)[N], const vi * q, const int8_t (*x)[32]) {
#pragma GCC unroll 8
    for (int j = FIRST; j < FIRST + COUNT; j++) {
#pragma GCC unroll 8
        for (int i = 0; i < N; i++) {
            asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum[i]) : "v"(q[j]), "m"(*(const int32_t *) (x[i] + 4 * j)));
        }
    }
}

// add_pairs is the sum of a's two numbers of 16 bits in each lane, times the two at b, plus c.
INLINE vs add_pairs(vi a, const int32_t * b, vs c) {
    asm("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(c) : "v"(a), "m"(*b));
    return c;
}

// fold4 is the sums of four vectors.
INLINE void fold4(const vf * a, float * four) {
    const __m512 x = _mm512_add_ps(_mm512_unpacklo_ps((__m512) a[0], (__m512) a[1]), _mm512_unpackhi_ps((__m512) a[0], (__m512) a[1]));
    const __m512 y = _mm512_add_ps(_mm512_unpacklo_ps((__m512) a[2], (__m512) a[3]), _mm512_unpackhi_ps((__m512) a[2], (__m512) a[3]));
    const __m512 z = _mm512_add_ps(_mm512_shuffle_ps(x, y, 0x44), _mm512_shuffle_ps(x, y, 0xee));
    const __m256 v = _mm256_add_ps(_mm512_castps512_ps256(z), _mm512_extractf32x8_ps(z, 1));
    _mm_storeu_ps(four, _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1)));
}

} // namespace
