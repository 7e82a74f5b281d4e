// The vectors of the kernels in AVX2. VNNI is 1 where AVX-VNNI multiplies four bytes and adds them
// up in one instruction. Without it there are two: products of pairs add up to 16 bits, which are added to others while they
// cannot overflow, and then widened.

#include <immintrin.h>

#define INLINE __attribute__((always_inline)) inline
#define INLINE_LAMBDA __attribute__((always_inline))

namespace {

constexpr int  LANES = 8, ROWS = 4, FLOAT_COLUMNS = 3;
constexpr bool UNSIGNED = VNNI;
constexpr bool PAIRS    = false;
constexpr bool ROUNDS   = true; // floats are rounded here, not by ggml

typedef uint32_t vi __attribute__((vector_size(32)));
typedef int32_t  vs __attribute__((vector_size(32)));
typedef float    vf __attribute__((vector_size(32)));

INLINE vs splat(int32_t x) {
    return (vs) _mm256_set1_epi32(x);
}

INLINE vf splat(float x) {
    return (vf) _mm256_set1_ps(x);
}

INLINE vf fma(vf a, vf b, vf c) {
    return (vf) _mm256_fmadd_ps((__m256) a, (__m256) b, (__m256) c);
}

// fma_all is a · *b + c.
INLINE vf fma_all(vf a, const float * b, vf c) {
    return fma(a, splat(*b), c);
}

// half is the half-precision number in each lane.
INLINE vf half(vi v) {
    const __m256i packed = _mm256_packus_epi32((__m256i) v, (__m256i) v);
    return (vf) _mm256_cvtph_ps(_mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08)));
}

INLINE vf wide(const uint16_t * h) {
    return (vf) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *) h));
}

INLINE vf widest(const uint16_t * h) {
    return (vf) _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *) h)), 16);
}

INLINE float wide1(uint16_t h) {
    return _cvtsh_ss(h);
}

INLINE vi lookup(const int8_t * table, vi at) {
    return (vi) _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_load_si128((const __m128i *) table)), (__m256i) at);
}

// gather is an entry of a table for each lane.
INLINE vi gather(const uint32_t * table, vi at) {
    return (vi) _mm256_i32gather_epi32((const int *) table, (__m256i) at, 4);
}

// gather2 is an entry of eight bytes for each lane: its first four and its last.
INLINE void gather2(const uint64_t * table, vi at, vi * q) {
    const __m256i order = _mm256_permute4x64_epi64((__m256i) at, 0xd8); // lanes 0, 1, 4, 5; then the others
    const __m256  a     = (__m256) _mm256_i32gather_epi64((const long long *) table, _mm256_castsi256_si128(order), 8);
    const __m256  b     = (__m256) _mm256_i32gather_epi64((const long long *) table, _mm256_extracti128_si256(order, 1), 8);
    q[0]                = (vi) _mm256_shuffle_ps(a, b, 0x88);
    q[1]                = (vi) _mm256_shuffle_ps(a, b, 0xdd);
}

// fifth_bits is bits 4i … 4i+3 of each lane, each as bit 4 of a byte.
INLINE vi fifth_bits(vi bits, int i) {
    const __m256i bytes = _mm256_shuffle_epi8((__m256i) bits, _mm256_add_epi32(_mm256_set1_epi32(i / 2 * 0x01010101),
                                              _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c, 0, 0x04040404, 0x08080808, 0x0c0c0c0c)));
    const __m256i one = _mm256_and_si256(bytes, _mm256_set1_epi32((int) (0x08040201u << (i % 2 * 4))));
    return (vi) _mm256_andnot_si256(_mm256_cmpeq_epi8(one, _mm256_setzero_si256()), _mm256_set1_epi8(0x10));
}

// all_bits is bits 4i … 4i+3 of each lane, each as all bits of a byte.
INLINE vi all_bits(vi bits, int i) {
    const __m256i bytes = _mm256_shuffle_epi8((__m256i) bits, _mm256_add_epi32(_mm256_set1_epi32(i / 2 * 0x01010101),
                                              _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c, 0, 0x04040404, 0x08080808, 0x0c0c0c0c)));
    const __m256i of    = _mm256_set1_epi32((int) (0x08040201u << (i % 2 * 4)));
    return (vi) _mm256_cmpeq_epi8(_mm256_and_si256(bytes, of), of);
}

// larger is the larger in each lane; b where a is no number.
INLINE vf larger(vf a, vf b) {
    return (vf) _mm256_max_ps((__m256) a, (__m256) b);
}

// largest is the largest of the lanes.
INLINE float largest(vf v) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128((__m256) v), _mm256_extractf128_ps((__m256) v, 1));
    m        = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

// total is the sum of 32 numbers.
INLINE int32_t total(const int8_t * q) {
    const __m256i v = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), _mm256_loadu_si256((const __m256i *) q)), _mm256_set1_epi16(1));
    __m128i       s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s               = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

// total16 is the sum of 16 numbers.
INLINE int32_t total16(const int8_t * q) {
    __m128i s = _mm_madd_epi16(_mm_maddubs_epi16(_mm_set1_epi8(1), _mm_loadu_si128((const __m128i *) q)), _mm_set1_epi16(1));
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

// round_to_bytes rounds B blocks of 32 floats, at most four, as ggml does: their bytes, which lie step apart, their scales as half
// precision keeps them, and the sums of their bytes.
template <int B> INLINE void round_to_bytes(const float * x, int8_t * q, int64_t step, float * scale, int32_t * sum) {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7); // packing works on halves
    const __m256  sign  = _mm256_set1_ps(-0.f);
    __m256        part[4] = {};
    for (int b = 0; b < B; b++) {
        for (int l = 0; l < 4; l++) {
            part[b] = _mm256_max_ps(part[b], _mm256_andnot_ps(sign, _mm256_loadu_ps(x + 32 * b + 8 * l)));
        }
    }
    const __m128 top = of_four<false>(part), by = _mm_and_ps(_mm_div_ps(_mm_set1_ps(127.f), top), _mm_cmpneq_ps(top, _mm_setzero_ps()));
    _mm_storeu_ps(scale, _mm_cvtph_ps(_mm_cvtps_ph(_mm_div_ps(top, _mm_set1_ps(127.f)), 0)));
    float times[4];
    _mm_storeu_ps(times, by);
    for (int b = 0; b < B; b++) {
        __m256i v[4];
        for (int l = 0; l < 4; l++) {
            v[l] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 32 * b + 8 * l), _mm256_set1_ps(times[b])));
        }
        const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
        _mm256_storeu_si256((__m256i *) (q + b * step), _mm256_permutevar8x32_epi32(bytes, order));
        part[b] = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_add_epi32(v[0], v[1]), _mm256_add_epi32(v[2], v[3])));
    }
    _mm_storeu_si128((__m128i *) sum, _mm_castps_si128(of_four<true>(part)));
}

// load4 reads 16 bytes of each row: t[i] has the i-th four.
template <class At> INLINE void load4(At a, vi * t) {
    __m256i z[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        z[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *) a[i])), _mm_loadu_si128((const __m128i *) a[4 + i]), 1);
    }
    const __m256i a0 = _mm256_unpacklo_epi32(z[0], z[1]), a1 = _mm256_unpackhi_epi32(z[0], z[1]);
    const __m256i a2 = _mm256_unpacklo_epi32(z[2], z[3]), a3 = _mm256_unpackhi_epi32(z[2], z[3]);
    t[0] = (vi) _mm256_unpacklo_epi64(a0, a2);
    t[1] = (vi) _mm256_unpackhi_epi64(a0, a2);
    t[2] = (vi) _mm256_unpacklo_epi64(a1, a3);
    t[3] = (vi) _mm256_unpackhi_epi64(a1, a3);
}

// load8 reads 32 bytes of each row.
template <class At> INLINE void load8(At a, vi * t) {
    load4(a, t);
    load4(a + 16, t + 4);
}

INLINE __m256i four(const int8_t * x) {
    int32_t v;
    memcpy(&v, x, sizeof(v));
    return _mm256_set1_epi32(v);
}

// number is what a sum has added to ORIGIN. Without VNNI products and conversions wait for each other, on Intel's processors:
// the float whose bits are ORIGIN + n is 3 · 2^22 + n, for any sum of a block.
#if VNNI
constexpr int32_t ORIGIN = 0;

INLINE vf number(vs sum) {
    return __builtin_convertvector(sum, vf);
}
#else
constexpr int32_t ORIGIN = 0x4b400000;

INLINE vf number(vs sum) {
    return (vf) sum - 0x3p22f;
}
#endif

// in_turn has v computed here: gcc would form many products first and keep them in memory, until it adds them up in another
// order.
template <class V> INLINE void in_turn(V & v) {
    asm("" : "+x"(v));
}

// dots adds to each sum the products of quads FIRST … FIRST+COUNT-1.
template <int TOP, int N, int FIRST, int COUNT> INLINE void dots(vs (&sum)[N], const vi * q, const int8_t (*x)[32]) {
#if VNNI
#pragma GCC unroll 8
    for (int j = FIRST; j < FIRST + COUNT; j++) {
#pragma GCC unroll 8
        for (int i = 0; i < N; i++) {
            sum[i] = (vs) _mm256_dpbusd_avx_epi32((__m256i) sum[i], (__m256i) q[j], four(x[i] + 4 * j));
        }
    }
#else
    // DEPTH pairs of products of at most TOP · 127 fit in 16 bits. Signed weights (TOP = 0) hand their sign to the activations.
    constexpr int ROOM  = TOP ? 32767 / (2 * 127 * TOP) : 1;
    constexpr int DEPTH = ROOM >= COUNT ? COUNT : ROOM >= 4 ? 4 : ROOM >= 2 ? 2 : 1;
#pragma GCC unroll 8
    for (int first = FIRST; first < FIRST + COUNT; first += DEPTH) {
        __m256i pairs[N];
#pragma GCC unroll 8
        for (int j = first; j < first + DEPTH; j++) {
            const __m256i w = TOP ? (__m256i) q[j] : _mm256_abs_epi8((__m256i) q[j]);
#pragma GCC unroll 8
            for (int i = 0; i < N; i++) {
                const __m256i y = TOP ? four(x[i] + 4 * j) : _mm256_sign_epi8(four(x[i] + 4 * j), (__m256i) q[j]);
                const __m256i p = _mm256_maddubs_epi16(w, y);
                pairs[i]        = j == first ? p : _mm256_add_epi16(pairs[i], p);
                in_turn(pairs[i]);
            }
        }
#pragma GCC unroll 8
        for (int i = 0; i < N; i++) {
            sum[i] += (vs) _mm256_madd_epi16(pairs[i], _mm256_set1_epi16(1));
            in_turn(sum[i]);
        }
    }
#endif
}

// add_pairs is the sum of a's two numbers of 16 bits in each lane, times the two at b, plus c.
INLINE vs add_pairs(vi a, const int32_t * b, vs c) {
    return c + (vs) _mm256_madd_epi16((__m256i) a, (__m256i) splat(*b));
}

// fold4 is the sums of four vectors.
INLINE void fold4(const vf * a, float * four) {
    const __m256 x = _mm256_add_ps(_mm256_unpacklo_ps((__m256) a[0], (__m256) a[1]), _mm256_unpackhi_ps((__m256) a[0], (__m256) a[1]));
    const __m256 y = _mm256_add_ps(_mm256_unpacklo_ps((__m256) a[2], (__m256) a[3]), _mm256_unpackhi_ps((__m256) a[2], (__m256) a[3]));
    const __m256 z = _mm256_add_ps(_mm256_shuffle_ps(x, y, 0x44), _mm256_shuffle_ps(x, y, 0xee));
    _mm_storeu_ps(four, _mm_add_ps(_mm256_castps256_ps128(z), _mm256_extractf128_ps(z, 1)));
}

} // namespace
