// The formats whose fours or eights of values are entries of a table (IQ2 and IQ3): a magnitude for each value, and a sign.
// As in matmul_formats.h; the tables are those of ggml-common.h.

#define GGML_COMMON_DECL_CPP
#define GGML_COMMON_IMPL_CPP
#include "../src/ggml-common.h"

namespace {

// signed_four is four magnitudes of each row added to SHIFT, or subtracted from it where bit 4i … 4i+3 of signs is set.
template <int SHIFT> INLINE vi signed_four(vi magnitudes, vi signs, int i) {
    constexpr uint32_t SHIFTS = SHIFT * 0x01010101u;
    const vi           ones = fifth_bits(signs, i) >> 4, minus = (ones << 8) - ones;
    return ((SHIFTS + magnitudes) & ~minus) | ((SHIFTS - magnitudes) & minus);
}

// signs_of_seven is eight signs of seven bits: the last one makes their number even.
INLINE vi signs_of_seven(vi v) {
    v &= 127;
    vi odd = v ^ v >> 4;
    odd ^= odd >> 2;
    odd ^= odd >> 1;
    return v | (odd & 1) << 7;
}

// eight is the entries of a table of eights, with signs: quads 2l and 2l+1 of a block.
template <int SHIFT> INLINE void eight(const uint64_t * table, vi index, vi signs, vi * q) {
    gather2(table, index, q);
    q[0] = signed_four<SHIFT>(q[0], signs, 0);
    q[1] = signed_four<SHIFT>(q[1], signs, 1);
}

// odd is the scale 2v + 1.
INLINE vf odd(vi v) {
    return float_of(2 * v + 1);
}

struct iq2_xxs {
    static constexpr int VALUES = 256, BYTES = 66, HALVES = 1, SHIFT = 44, TOP = 87;
    static constexpr int  AGAIN = 1;
    static constexpr bool MIN = false;

    static int64_t block(int64_t i) { return i; }

    template <class At, class Whole, class Sink> INLINE static void unpack(At a, Whole & whole, Sink && sink) {
        whole.scale = heads(a) * 0.125f;
        for (int b = 0; b < 8; b += 4) {
            vi t[8], q[8]; // of each block four numbers of entries; seven bits of signs for each, and the scale
            load8(a + 2 + 8 * b, t);
            for (int i = 0; i < 4; i++) {
                const vi at = t[2 * i], signs = t[2 * i + 1];
                for (int l = 0; l < 4; l++) {
                    eight<SHIFT>(iq2xxs_grid, at >> (8 * l) & 0xff, signs_of_seven(signs >> (7 * l)), q + 2 * l);
                }
                sink(b + i, q, odd(signs >> 28), vf{});
            }
        }
    }
};

struct iq2_xs {
    static constexpr int VALUES = 256, BYTES = 74, HALVES = 2, SHIFT = 44, TOP = 87;
    static constexpr int  AGAIN = 1;
    static constexpr bool MIN = false;

    static int64_t block(int64_t i) { return i; }

    template <class At, class Whole, class Sink> INLINE static void unpack(At a, Whole & whole, Sink && sink) {
        whole.scale      = heads(a) * 0.125f;
        const vi scale[] = {words(a + 66), words(a + 70)};
        for (int b = 0; b < 8; b += 4) {
            vi t[8], q[8]; // nine bits are an entry's number, seven its signs
            load8(a + 2 + 8 * b, t);
            for (int i = 0; i < 4; i++) {
                for (int l = 0; l < 4; l++) {
                    const vi v = t[2 * i + l / 2] >> (16 * (l % 2));
                    eight<SHIFT>(iq2xs_grid, v & 511, signs_of_seven(v >> 9), q + 2 * l);
                }
                const vi s = scale[b / 4] >> (8 * i);
                sink(b + i, q, odd(s & 15), odd(s >> 4 & 15));
            }
        }
    }
};

struct iq2_s {
    static constexpr int VALUES = 256, BYTES = 82, HALVES = 2, SHIFT = 44, TOP = 87;
    static constexpr int  AGAIN = 1;
    static constexpr bool MIN = false;

    static int64_t block(int64_t i) { return i; }

    template <class At, class Whole, class Sink> INLINE static void unpack(At a, Whole & whole, Sink && sink) {
        whole.scale      = heads(a) * 0.125f;
        const vi upper[] = {words(a + 66), words(a + 70)}, scale[] = {words(a + 74), words(a + 78)};
        vi       at[8], signs[8], q[8];
        load8(a + 2, at);
        load8(a + 34, signs);
#pragma GCC unroll 8
        for (int b = 0; b < 8; b++) {
            const vi high = upper[b / 4] >> (8 * (b % 4)), s = scale[b / 4] >> (8 * (b % 4));
            for (int l = 0; l < 4; l++) {
                eight<SHIFT>(iq2s_grid, (at[b] >> (8 * l) & 0xff) | (high >> (2 * l) & 3) << 8, signs[b] >> (8 * l), q + 2 * l);
            }
            sink(b, q, odd(s & 15), odd(s >> 4 & 15));
        }
    }
};

struct iq3_xxs {
    static constexpr int VALUES = 256, BYTES = 98, HALVES = 1, SHIFT = 64, TOP = 126;
    static constexpr int  AGAIN = 1;
    static constexpr bool MIN = false;

    static int64_t block(int64_t i) { return i; }

    template <class At, class Whole, class Sink> INLINE static void unpack(At a, Whole & whole, Sink && sink) {
        whole.scale = heads(a) * 0.25f;
        vi signs[8];
        load8(a + 66, signs);
        for (int b = 0; b < 8; b += 4) {
            vi t[8], q[8];
            load8(a + 2 + 8 * b, t);
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                for (int l = 0; l < 8; l++) {
                    q[l] = signed_four<SHIFT>(gather(iq3xxs_grid, t[2 * i + l / 4] >> (8 * (l % 4)) & 0xff), signs_of_seven(signs[b + i] >> (7 * (l / 2))), l % 2);
                }
                sink(b + i, q, odd(signs[b + i] >> 28), vf{});
            }
        }
    }
};

struct iq3_s {
    static constexpr int VALUES = 256, BYTES = 110, HALVES = 1, SHIFT = 16, TOP = 31;
    static constexpr int  AGAIN = 1;
    static constexpr bool MIN = false;

    static int64_t block(int64_t i) { return i; }

    template <class At, class Whole, class Sink> INLINE static void unpack(At a, Whole & whole, Sink && sink) {
        whole.scale      = heads(a);
        const vi upper[] = {words(a + 66), words(a + 70)}, scale = words(a + 106);
        vi       signs[8];
        load8(a + 74, signs);
        for (int b = 0; b < 8; b += 4) {
            vi t[8], q[8];
            load8(a + 2 + 8 * b, t);
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                for (int l = 0; l < 8; l++) {
                    const vi high = upper[b / 4] >> (8 * i + l) & 1;
                    q[l]          = signed_four<SHIFT>(gather(iq3s_grid, (t[2 * i + l / 4] >> (8 * (l % 4)) & 0xff) | high << 8), signs[b + i], l);
                }
                sink(b + i, q, odd(scale >> (4 * (b + i)) & 15), vf{});
            }
        }
    }
};

} // namespace
