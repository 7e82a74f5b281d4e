// The vectors of the kernels in NEON with the dot product instructions of ARMv8.2. They multiply signed bytes, which all
// weights are here: those of the unsigned formats are below 64. I8MM is 1 where ARMv8.6's products of two rows with two rows
// are used as well, which do twice as many multiplications each.

#include <arm_neon.h>

#define INLINE __attribute__((always_inline)) inline
#define INLINE_LAMBDA __attribute__((always_inline))

namespace {

constexpr int  LANES = 4, ROWS = 8, FLOAT_COLUMNS = 4;
constexpr bool UNSIGNED = false;
constexpr bool PAIRS    = I8MM;
constexpr bool ROUNDS   = false; // ggml rounds floats

typedef uint32_t vi __attribute__((vector_size(16)));
typedef int32_t  vs __attribute__((vector_size(16)));
typedef float    vf __attribute__((vector_size(16)));

INLINE vs splat(int32_t x) {
    return (vs) vdupq_n_s32(x);
}

INLINE vf splat(float x) {
    return (vf) vdupq_n_f32(x);
}

INLINE vf fma(vf a, vf b, vf c) {
    return (vf) vfmaq_f32((float32x4_t) c, (float32x4_t) a, (float32x4_t) b);
}

// fma_all is a · *b + c.
INLINE vf fma_all(vf a, const float * b, vf c) {
    return fma(a, splat(*b), c);
}

// half is the half-precision number in each lane.
INLINE vf half(vi v) {
    return (vf) vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32((uint32x4_t) v)));
}

INLINE vf wide(const uint16_t * h) {
    return (vf) vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(h)));
}

INLINE vf widest(const uint16_t * h) {
    return (vf) vshll_n_u16(vld1_u16(h), 16);
}

INLINE float wide1(uint16_t h) {
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h))), 0);
}

INLINE vi lookup(const int8_t * table, vi at) {
    return (vi) vqtbl1q_s8(vld1q_s8(table), (uint8x16_t) at);
}

// gather is an entry of a table for each lane.
INLINE vi gather(const uint32_t * table, vi at) {
    return vi{table[at[0]], table[at[1]], table[at[2]], table[at[3]]};
}

// gather2 is an entry of eight bytes for each lane: its first four and its last.
INLINE void gather2(const uint64_t * table, vi at, vi * q) {
    const uint32x4_t a = (uint32x4_t) vcombine_u64(vcreate_u64(table[at[0]]), vcreate_u64(table[at[1]]));
    const uint32x4_t b = (uint32x4_t) vcombine_u64(vcreate_u64(table[at[2]]), vcreate_u64(table[at[3]]));
    q[0]               = (vi) vuzp1q_u32(a, b);
    q[1]               = (vi) vuzp2q_u32(a, b);
}

// fifth_bits is bits 4i … 4i+3 of each lane, each as bit 4 of a byte: the multiplication moves copies of them 7 apart.
INLINE vi fifth_bits(vi bits, int i) {
    return ((((bits >> (4 * i)) & 15) * 0x00204081) & 0x01010101) << 4;
}

// all_bits is bits 4i … 4i+3 of each lane, each as all bits of a byte.
INLINE vi all_bits(vi bits, int i) {
    const vi ones = fifth_bits(bits, i) >> 4;
    return (ones << 8) - ones;
}

// larger is the larger in each lane; b where a is no number.
INLINE vf larger(vf a, vf b) {
    return (vf) vmaxnmq_f32((float32x4_t) a, (float32x4_t) b);
}

// largest is the largest of the lanes.
INLINE float largest(vf v) {
    return vmaxvq_f32((float32x4_t) v);
}

// total is the sum of 32 numbers.
INLINE int32_t total(const int8_t * q) {
    return vaddlvq_s8(vld1q_s8(q)) + vaddlvq_s8(vld1q_s8(q + 16));
}

// total16 is the sum of 16 numbers.
INLINE int32_t total16(const int8_t * q) {
    return vaddlvq_s8(vld1q_s8(q));
}

// load4 reads 16 bytes of each row: t[i] has the i-th four.
template <class At> INLINE void load4(At a, vi * t) {
    const uint32x4x2_t x = vtrnq_u32(vld1q_u32((const uint32_t *) a[0]), vld1q_u32((const uint32_t *) a[1]));
    const uint32x4x2_t y = vtrnq_u32(vld1q_u32((const uint32_t *) a[2]), vld1q_u32((const uint32_t *) a[3]));
    t[0] = (vi) vcombine_u32(vget_low_u32(x.val[0]), vget_low_u32(y.val[0]));
    t[1] = (vi) vcombine_u32(vget_low_u32(x.val[1]), vget_low_u32(y.val[1]));
    t[2] = (vi) vcombine_u32(vget_high_u32(x.val[0]), vget_high_u32(y.val[0]));
    t[3] = (vi) vcombine_u32(vget_high_u32(x.val[1]), vget_high_u32(y.val[1]));
}

// load8 reads 32 bytes of each row.
template <class At> INLINE void load8(At a, vi * t) {
    load4(a, t);
    load4(a + 16, t + 4);
}

INLINE int32x4_t dot16(int32x4_t s, const vi * q, int8x16_t y) {
    s = vdotq_laneq_s32(s, (int8x16_t) q[0], y, 0);
    s = vdotq_laneq_s32(s, (int8x16_t) q[1], y, 1);
    s = vdotq_laneq_s32(s, (int8x16_t) q[2], y, 2);
    return vdotq_laneq_s32(s, (int8x16_t) q[3], y, 3);
}

constexpr int32_t ORIGIN = 0;

// number is what a sum has added to ORIGIN.
INLINE vf number(vs sum) {
    return __builtin_convertvector(sum, vf);
}

// dots adds to each sum the products of quads FIRST … FIRST+COUNT-1.
template <int TOP, int N, int FIRST, int COUNT> INLINE void dots(vs (&sum)[N], const vi * q, const int8_t (*x)[32]) {
    constexpr int PAIRED = PAIRS ? N & ~1 : 0; // rows that prepare_rows has brought beside another one
#if I8MM
    // The products of weights' rows 0 and 1, and 2 and 3, with two rows of activations.
    int32x4_t low[N / 2 + 1], high[N / 2 + 1];
#pragma GCC unroll 4
    for (int i = 0; i < PAIRED / 2; i++) {
        low[i] = high[i] = vdupq_n_s32(0);
    }
#pragma GCC unroll 4
    for (int f = FIRST; f < FIRST + COUNT; f += 2) {
        const int8x16_t w01 = (int8x16_t) vzip1q_u32((uint32x4_t) q[f], (uint32x4_t) q[f + 1]);
        const int8x16_t w23 = (int8x16_t) vzip2q_u32((uint32x4_t) q[f], (uint32x4_t) q[f + 1]);
#pragma GCC unroll 4
        for (int i = 0; i < PAIRED / 2; i++) {
            const int8x16_t y = vld1q_s8((const int8_t *) x + 64 * i + 8 * f);
            low[i]            = vmmlaq_s32(low[i], w01, y);
            high[i]           = vmmlaq_s32(high[i], w23, y);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < PAIRED / 2; i++) {
        sum[2 * i] += (vs) vuzp1q_s32(low[i], high[i]);
        sum[2 * i + 1] += (vs) vuzp2q_s32(low[i], high[i]);
    }
#endif
#pragma GCC unroll 2
    for (int f = FIRST; f < FIRST + COUNT; f += 4) {
#pragma GCC unroll 8
        for (int i = PAIRED; i < N; i++) {
            sum[i] = (vs) dot16((int32x4_t) sum[i], q + f, vld1q_s8(x[i] + 4 * f));
        }
    }
}

// add_pairs is the sum of a's two numbers of 16 bits in each lane, times the two at b, plus c.
INLINE vs add_pairs(vi a, const int32_t * b, vs c) {
    const int16x8_t x = (int16x8_t) a, y = (int16x8_t) splat(*b);
    return c + (vs) vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)), vmull_high_s16(x, y));
}

// fold4 is the sums of four vectors.
INLINE void fold4(const vf * a, float * four) {
    const float32x4_t x = vpaddq_f32((float32x4_t) a[0], (float32x4_t) a[1]), y = vpaddq_f32((float32x4_t) a[2], (float32x4_t) a[3]);
    vst1q_f32(four, vpaddq_f32(x, y));
}

template <int B> void round_to_bytes(const float * x, int8_t * q, int64_t step, float * scale, int32_t * sum); // not with ROUNDS false

} // namespace
