// The formats whose fours or eights of values are entries of a table (IQ2 and IQ3): a magnitude for each value, and a sign.
// As in matmul_formats.h; the tables are those of ggml-common.h.

#define GGML_COMMON_DECL_CPP
#define GGML_COMMON_IMPL_CPP
#include "../src/ggml-common.h"

namespace {

// signed_four is four magnitudes of each row added to SHIFT, or subtracted from it where bit 4i … 4i+3 of signs is set.
template <int SHIFT> INLINE vi signed_four(vi magnitudes, vi signs, int i) {
    typedef int8_t bytes __attribute__((vector_size(sizeof(vi))));
    const bytes    minus = (bytes) all_bits(signs, i);
    return (vi) (((bytes) magnitudes ^ minus) + ((int8_t) SHIFT - minus));
}

// Bit 7 where the number of a half byte's bits is odd.
alignas(16) constexpr int8_t odd_bits[16] = {0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0};

// evened is bytes of seven signs with an eighth that makes their number even.
INLINE vi evened(vi v) {
    return v | lookup(odd_bits, (v ^ v >> 4) & NIBBLES);
}

// signs_of_sevens is the signs of a block, of which each word has four times seven bits.
INLINE vi signs_of_sevens(vi v) {
    v = (v & 0x3fff) | (v << 2 & 0x3fff0000);
    return evened((v & 0x007f007f) | (v << 1 & 0x7f007f00));
}

// eight is the entries of a table of eights, with the lth eight of signs: quads 2l and 2l+1 of a block.
template <int SHIFT> INLINE void eight(const uint64_t * table, vi index, vi signs, int l, vi * q) {
    gather2(table, index, q + 2 * l);
    q[2 * l]     = signed_four<SHIFT>(q[2 * l], signs, 2 * l);
    q[2 * l + 1] = signed_four<SHIFT>(q[2 * l + 1], signs, 2 * l + 1);
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
                const vi at = t[2 * i], signs = signs_of_sevens(t[2 * i + 1]);
                for (int l = 0; l < 4; l++) {
                    eight<SHIFT>(iq2xxs_grid, at >> (8 * l) & 0xff, signs, l, q);
                }
                sink(b + i, q, odd(t[2 * i + 1] >> 28), vf{});
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
                const vi signs = evened((t[2 * i] >> 9 & 0x7f) | (t[2 * i] >> 17 & 0x7f00) | (t[2 * i + 1] << 7 & 0x7f0000) | (t[2 * i + 1] >> 1 & 0x7f000000));
                for (int l = 0; l < 4; l++) {
                    eight<SHIFT>(iq2xs_grid, t[2 * i + l / 2] >> (16 * (l % 2)) & 511, signs, l, q);
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
                eight<SHIFT>(iq2s_grid, (at[b] >> (8 * l) & 0xff) | (high >> (2 * l) & 3) << 8, signs[b], l, q);
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
                const vi sign = signs_of_sevens(signs[b + i]);
                for (int l = 0; l < 8; l++) {
                    q[l] = signed_four<SHIFT>(gather(iq3xxs_grid, t[2 * i + l / 4] >> (8 * (l % 4)) & 0xff), sign, l);
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
