// The formats of weights that matmul_kernel.h multiplies: how a strip of LANES rows becomes vectors whose lane r holds four
// bytes of row r. The layouts are ggml's (ggml-common.h); each is checked against ggml's own decoding by the tests.
//
// unpack hands blocks of 32 values to sink(i, q, scale, other), in the order of i, of which block(i) is the number in the
// row: q[l] has bytes 4l … 4l+3 of the block of each row, and a weight is scale · (byte - SHIFT). other is the scale of the
// second half of the block where a half has one (HALVES = 2). Where eight blocks are a super-block (VALUES = 256), scale and
// other are whole numbers and whole.scale is what they are multiplied by; with MIN, whole.min · (the minimum of the block, or
// of the half) is added to each weight, and whole.mins[l] has the minima of blocks 2l and 2l+1, or of the halves of block l, 16
// bits each. With MIN and without super-blocks other is added to each weight.
//
// AGAIN is how many groups of rows, the first included, each unpack the weights before keeping them pays (measured, Zen 4).
//
// TOP is the largest byte, 0 for signed bytes: where the instruction wants unsigned ones (UNSIGNED) they are shifted by 128.

namespace {

constexpr uint32_t NIBBLES = 0x0f0f0f0f;

INLINE vf float_of(vi v) {
    return __builtin_convertvector((vs) v, vf);
}

// byte is byte j of each lane, as a number.
INLINE vf byte(vi v, int j) {
    return float_of((v >> (8 * j)) & 0xff);
}

INLINE vf signed_byte(vi v, int j) {
    return __builtin_convertvector((vs) (v << (24 - 8 * j)) >> 24, vf);
}

constexpr int SIGNED_SHIFT = UNSIGNED ? 128 : 0;

// The sixteen values of IQ4_NL and IQ4_XS: kvalues_iq4nl of ggml-common.h.
alignas(16) constexpr int8_t levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

INLINE vi level(vi nibbles) {
    const vi v = lookup(levels, nibbles);
    return UNSIGNED ? v ^ 0x80808080 : v;
}

// at is where a strip's rows lie: rows of them, the last one again for those that are missing.
template <bool WHOLE> struct at;

template <> struct at<false> {
    const char * p;
    int64_t      row;
    int          rows;

    INLINE const char * operator[](int r) const { return p + (r < rows ? r : rows - 1) * row; }
    INLINE at operator+(int64_t bytes) const { return {p + bytes, row, rows}; }
};

// Of a whole strip only every fourth row's address is kept, and the instructions add up to three rows to it: gcc would keep
// sixteen, most of them in memory.
template <> struct at<true> {
    const char * fourth[LANES / 4];
    int64_t      row, three;

    INLINE at(const char * p, int64_t row, int) : row(row), three(3 * row) {
        asm("" : "+r"(three));
        for (int i = 0; i < LANES / 4; i++) {
            fourth[i] = p + 4 * i * row;
            asm("" : "+r"(fourth[i]));
        }
    }

    INLINE const char * operator[](int r) const {
        const char * p = fourth[r / 4];
        return r % 4 == 0 ? p : r % 4 == 1 ? p + row : r % 4 == 2 ? p + 2 * row : p + three;
    }

    INLINE at operator+(int64_t bytes) const {
        at a = *this;
        for (int i = 0; i < LANES / 4; i++) {
            a.fourth[i] += bytes;
        }
        return a;
    }
};

// words is a dword of each row.
template <class At> INLINE vi words(At a) {
    alignas(64) uint32_t w[LANES];
    for (int r = 0; r < LANES; r++) {
        memcpy(w + r, a[r], sizeof(*w));
    }
    vi v;
    memcpy(&v, w, sizeof(v));
    return v;
}

// heads is a half-precision number of each row.
template <class At> INLINE vf heads(At a) {
    alignas(64) uint16_t h[LANES];
    for (int r = 0; r < LANES; r++) {
        memcpy(h + r, a[r], sizeof(*h));
    }
    return wide(h);
}

struct q8_0 {
    static constexpr int VALUES = 32, BYTES = 34, HALVES = 1, SHIFT = SIGNED_SHIFT, TOP = UNSIGNED ? 255 : 0;
    static constexpr int  AGAIN = 2;
    static constexpr bool MIN = false;

    static int64_t block(int64_t i) { return i; }

    template <class At, class Whole, class Sink> INLINE static void unpack(At a, Whole &, Sink && sink) {
        vi q[8];
        load8(a + 2, q);
        if (UNSIGNED) {
            for (int i = 0; i < 8; i++) {
                q[i] ^= 0x80808080;
            }
        }
        sink(0, q, heads(a), vf{});
    }
};

struct q4_0 {
    static constexpr int VALUES = 32, BYTES = 18, HALVES = 1, SHIFT = 8, TOP = 15;
    static constexpr int  AGAIN = 2;
    static constexpr bool MIN = false;

    static int64_t block(int64_t i) { return i; }

    template <class At, class Whole, class Sink> INLINE static void unpack(At a, Whole &, Sink && sink) {
        vi q[8];
        load4(a + 2, q);
        for (int i = 0; i < 4; i++) {
            q[i + 4] = (q[i] >> 4) & NIBBLES;
            q[i] &= NIBBLES;
        }
        sink(0, q, heads(a), vf{});
    }
};

struct q5_0 {
    static constexpr int VALUES = 32, BYTES = 22, HALVES = 1, SHIFT = 16, TOP = 31;
    static constexpr int  AGAIN = 1;
    static constexpr bool MIN = false;

    static int64_t block(int64_t i) { return i; }

    template <class At, class Whole, class Sink> INLINE static void unpack(At a, Whole &, Sink && sink) {
        vi h[4], q[8];
        load4(a, h); // the scale, and the upper bits
        load4(a + 6, q);
        const vi high = h[0] >> 16 | h[1] << 16;
        for (int i = 0; i < 4; i++) {
            q[i + 4] = (q[i] >> 4) & NIBBLES;
            q[i] &= NIBBLES;
        }
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            q[i] |= fifth_bits(high, i);
        }
        sink(0, q, half(h[0] & 0xffff), vf{});
    }
};

struct q4_1 {
    static constexpr int VALUES = 32, BYTES = 20, HALVES = 1, SHIFT = 0, TOP = 15;
    static constexpr int  AGAIN = 2;
    static constexpr bool MIN = true;

    static int64_t block(int64_t i) { return i; }

    template <class At, class Whole, class Sink> INLINE static void unpack(At a, Whole &, Sink && sink) {
        vi       q[8];
        const vi h = words(a);
        load4(a + 4, q);
        for (int i = 0; i < 4; i++) {
            q[i + 4] = (q[i] >> 4) & NIBBLES;
            q[i] &= NIBBLES;
        }
        sink(0, q, half(h & 0xffff), half(h >> 16));
    }
};

struct q5_1 {
    static constexpr int VALUES = 32, BYTES = 24, HALVES = 1, SHIFT = 0, TOP = 31;
    static constexpr int  AGAIN = 1;
    static constexpr bool MIN = true;

    static int64_t block(int64_t i) { return i; }

    template <class At, class Whole, class Sink> INLINE static void unpack(At a, Whole &, Sink && sink) {
        vi h[4], q[8];
        load4(a, h); // the scale and the minimum, and the upper bits
        load4(a + 8, q);
        for (int i = 0; i < 4; i++) {
            q[i + 4] = (q[i] >> 4) & NIBBLES;
            q[i] &= NIBBLES;
        }
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            q[i] |= fifth_bits(h[1], i);
        }
        sink(0, q, half(h[0] & 0xffff), half(h[0] >> 16));
    }
};

// Twelve more than twice the sixteen values of a four-bit float (E2M1): kvalues_mxfp4 of ggml-common.h.
alignas(16) constexpr int8_t e2m1[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

struct mxfp4 {
    static constexpr int VALUES = 32, BYTES = 17, HALVES = 1, SHIFT = 12, TOP = 24;
    static constexpr int  AGAIN = 2;
    static constexpr bool MIN = false;

    static int64_t block(int64_t i) { return i; }

    template <class At, class Whole, class Sink> INLINE static void unpack(At a, Whole &, Sink && sink) {
        vi       q[8];
        const vi e = words(a) & 0xff; // 2^(e - 128): an exponent, and for the two smallest a denormal number
        load4(a + 1, q);
        for (int i = 0; i < 4; i++) {
            q[i + 4] = lookup(e2m1, (q[i] >> 4) & NIBBLES);
            q[i]     = lookup(e2m1, q[i] & NIBBLES);
        }
        const vi small = 0x00200000u << (e & 1), scale = e < 2 ? small : (e - 1) << 23;
        sink(0, q, (vf) scale, vf{});
    }
};

struct nvfp4 {
    static constexpr int VALUES = 64, BYTES = 36, HALVES = 2, SHIFT = 12, TOP = 24;
    static constexpr int  AGAIN = 2;
    static constexpr bool MIN = false;

    static int64_t block(int64_t i) { return i; }

    // scale is byte j of v, four bits of exponent and three of mantissa, halved.
    INLINE static vf scale(vi v, int j) {
        v              = (v >> (8 * j)) & 0xff;
        const vi e     = (v >> 3) & 15;
        const vf small = float_of(v & 7) * 0x1p-10f;
        const vi large = ((e + (127 - 8)) << 23) | (v & 7) << 20, none = 0u * v;
        return (vf) (v == 0x7f ? none : e == 0 ? (vi) small : large);
    }

    template <class At, class Whole, class Sink> INLINE static void unpack(At a, Whole &, Sink && sink) {
        const vi d = words(a);
#pragma GCC unroll 2
        for (int b = 0; b < 2; b++) {
            vi t[4], q[8];
            load4(a + 4 + 16 * b, t);
            // The lower bits of eight bytes are the first eight values of half a block, the upper ones the others.
            for (int i = 0; i < 4; i++) {
                const int at = i / 2 * 4 + i % 2;
                q[at]        = lookup(e2m1, t[i] & NIBBLES);
                q[at + 2]    = lookup(e2m1, (t[i] >> 4) & NIBBLES);
            }
            sink(b, q, scale(d, 2 * b), scale(d, 2 * b + 1));
        }
    }
};

struct iq4_nl {
    static constexpr int VALUES = 32, BYTES = 18, HALVES = 1, SHIFT = SIGNED_SHIFT, TOP = UNSIGNED ? 255 : 0;
    static constexpr int  AGAIN = 2;
    static constexpr bool MIN = false;

    static int64_t block(int64_t i) { return i; }

    template <class At, class Whole, class Sink> INLINE static void unpack(At a, Whole &, Sink && sink) {
        vi q[8];
        load4(a + 2, q);
        for (int i = 0; i < 4; i++) {
            q[i + 4] = level((q[i] >> 4) & NIBBLES);
            q[i]     = level(q[i] & NIBBLES);
        }
        sink(0, q, heads(a), vf{});
    }
};

struct iq4_xs {
    static constexpr int VALUES = 256, BYTES = 136, HALVES = 1, SHIFT = SIGNED_SHIFT, TOP = UNSIGNED ? 255 : 0;
    static constexpr int  AGAIN = 2;
    static constexpr bool MIN = false;

    static int64_t block(int64_t i) { return i; }

    template <class At, class Whole, class Sink> INLINE static void unpack(At a, Whole & whole, Sink && sink) {
        vi h[4];
        load4(a, h); // the scale, the upper bits of the blocks' scales, and their lower bits
        whole.scale    = half(h[0] & 0xffff);
        const vi upper = h[0] >> 16, lower = h[1];
        for (int b = 0; b < 8; b++) {
            vi q[8];
            load4(a + 8 + 16 * b, q);
            for (int i = 0; i < 4; i++) {
                q[i + 4] = level((q[i] >> 4) & NIBBLES);
                q[i]     = level(q[i] & NIBBLES);
            }
            const vi s = ((lower >> (4 * b)) & 15) | (((upper >> (2 * b)) & 3) << 4);
            sink(b, q, float_of(s - 32), vf{});
        }
    }
};

// pair_of is bytes j and j + 1 of each lane, 16 bits each.
INLINE vi pair_of(vi v, int j) {
    v >>= 8 * j;
    return (v & 0xff) | ((v & 0xff00) << 8);
}

// The scales and minima of the eight blocks of Q4_K and Q5_K, 6 bits each in 12 bytes.
struct scales_k {
    vi scale[2];

    template <class At, class Whole> INLINE scales_k(At a, Whole & whole) {
        vi h[4];
        load4(a, h);
        whole.scale = half(h[0] & 0xffff);
        whole.min   = -half(h[0] >> 16);
        scale[0]    = h[1] & 0x3f3f3f3f;
        scale[1]    = (h[3] & NIBBLES) | ((h[1] >> 2) & 0x30303030);
        const vi min[2] = {h[2] & 0x3f3f3f3f, ((h[3] >> 4) & NIBBLES) | ((h[2] >> 2) & 0x30303030)};
        for (int l = 0; l < 4; l++) {
            whole.mins[l] = pair_of(min[l / 2], l % 2 * 2);
        }
    }

    INLINE vf of(int b) const { return byte(scale[b / 4], b % 4); }
};

struct q4_k {
    static constexpr int VALUES = 256, BYTES = 144, HALVES = 1, SHIFT = 0, TOP = 15;
    static constexpr int  AGAIN = 3;
    static constexpr bool MIN = true;

    static int64_t block(int64_t i) { return i; }

    template <class At, class Whole, class Sink> INLINE static void unpack(At a, Whole & whole, Sink && sink) {
        const scales_k s(a, whole);
        for (int b = 0; b < 8; b += 2) {
            vi t[8], q[8];
            load8(a + 16 + 16 * b, t);
            for (int i = 0; i < 8; i++) {
                q[i] = t[i] & NIBBLES;
            }
            sink(b, q, s.of(b), vf{});
            for (int i = 0; i < 8; i++) {
                q[i] = (t[i] >> 4) & NIBBLES;
            }
            sink(b + 1, q, s.of(b + 1), vf{});
        }
    }
};

struct q5_k {
    static constexpr int VALUES = 256, BYTES = 176, HALVES = 1, SHIFT = 0, TOP = 31;
    static constexpr int  AGAIN = 1;
    static constexpr bool MIN = true;

    static int64_t block(int64_t i) { return i; }

    template <class At, class Whole, class Sink> INLINE static void unpack(At a, Whole & whole, Sink && sink) {
        const scales_k s(a, whole);
        vi             high[8];
        load8(a + 16, high);
        for (int b = 0; b < 8; b += 2) {
            vi t[8], q[8];
            load8(a + 48 + 16 * b, t);
            for (int i = 0; i < 8; i++) {
                q[i] = (t[i] & NIBBLES) | (((high[i] >> b) & 0x01010101) << 4);
            }
            sink(b, q, s.of(b), vf{});
            for (int i = 0; i < 8; i++) {
                q[i] = ((t[i] >> 4) & NIBBLES) | (((high[i] >> (b + 1)) & 0x01010101) << 4);
            }
            sink(b + 1, q, s.of(b + 1), vf{});
        }
    }
};

constexpr uint32_t PAIRS_OF_BITS = 0x03030303;

struct q2_k {
    static constexpr int VALUES = 256, BYTES = 84, HALVES = 2, SHIFT = 0, TOP = 3;
    static constexpr int  AGAIN = 2;
    static constexpr bool MIN = true;

    static int64_t block(int64_t i) { return i; }

    template <class At, class Whole, class Sink> INLINE static void unpack(At a, Whole & whole, Sink && sink) {
        const vi h  = words(a + 80);
        whole.scale = half(h & 0xffff);
        whole.min   = -half(h >> 16);
        vi s[4];
        load4(a, s); // of each half of a block: its scale, and in the upper bits its minimum
        for (int b = 0; b < 8; b++) {
            whole.mins[b] = pair_of((s[b / 2] >> 4) & NIBBLES, b % 2 * 2);
        }
#pragma GCC unroll 2
        for (int l = 0; l < 2; l++) {
            vi t[8], q[8];
            load8(a + 16 + 32 * l, t);
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                const int b     = 4 * l + i;
                const vi  scale = s[b / 2] & NIBBLES;
                for (int e = 0; e < 8; e++) {
                    q[e] = (t[e] >> (2 * i)) & PAIRS_OF_BITS;
                }
                sink(b, q, byte(scale, b % 2 * 2), byte(scale, b % 2 * 2 + 1));
            }
        }
    }
};

struct q3_k {
    static constexpr int VALUES = 256, BYTES = 110, HALVES = 2, SHIFT = 4, TOP = 7;
    static constexpr int  AGAIN = 2;
    static constexpr bool MIN = false;

    static int64_t block(int64_t i) { return i; }

    template <class At, class Whole, class Sink> INLINE static void unpack(At a, Whole & whole, Sink && sink) {
        whole.scale    = heads(a + 108);
        const vi low[] = {words(a + 96), words(a + 100)}, upper = words(a + 104);
        vi       s[4], high[8];
        for (int i = 0; i < 4; i++) {
            s[i] = ((low[i % 2] >> (i / 2 * 4)) & NIBBLES) | (((upper >> (2 * i)) & PAIRS_OF_BITS) << 4);
        }
        load8(a, high);
#pragma GCC unroll 2
        for (int l = 0; l < 2; l++) {
            vi t[8], q[8];
            load8(a + 32 + 32 * l, t);
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                const int b = 4 * l + i;
                for (int e = 0; e < 8; e++) {
                    q[e] = ((t[e] >> (2 * i)) & PAIRS_OF_BITS) | (((high[e] >> b) & 0x01010101) << 2);
                }
                sink(b, q, byte(s[b / 2], b % 2 * 2) - 32, byte(s[b / 2], b % 2 * 2 + 1) - 32);
            }
        }
    }
};

struct q6_k {
    static constexpr int VALUES = 256, BYTES = 210, HALVES = 2, SHIFT = 32, TOP = 63;
    static constexpr int  AGAIN = 2;
    static constexpr bool MIN = false;

    // The blocks of a half are 0, 2, 1, 3: two share their bytes.
    static int64_t block(int64_t i) { return (i & ~3) | (i & 1) << 1 | (i >> 1 & 1); }

    template <class At, class Whole, class Sink> INLINE static void unpack(At a, Whole & whole, Sink && sink) {
        whole.scale = heads(a + 208);
        vi s[4];
        load4(a + 192, s);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            vi low[8], high[8], upper[8], q[8];
            load8(a + 128 + 32 * h, high);
#pragma GCC unroll 2
            for (int l = 0; l < 2; l++) {
                // Bytes 32l … 32l+31 of a half are blocks l and l + 2 of it, with bits 2l and 2l + 4 of the upper ones.
                load8(a + 64 * h + 32 * l, low);
                for (int i = 0; i < 8; i++) {
                    upper[i] = high[i] >> (2 * l);
                }
                const vi s0 = s[2 * h], s1 = s[2 * h + 1];
                for (int i = 0; i < 8; i++) {
                    q[i] = (low[i] & NIBBLES) | ((upper[i] << 4) & 0x30303030);
                }
                sink(4 * h + 2 * l, q, signed_byte(s0, 2 * l), signed_byte(s0, 2 * l + 1));
                for (int i = 0; i < 8; i++) {
                    q[i] = ((low[i] >> 4) & NIBBLES) | (upper[i] & 0x30303030);
                }
                sink(4 * h + 2 * l + 1, q, signed_byte(s1, 2 * l), signed_byte(s1, 2 * l + 1));
            }
        }
    }
};

struct tq2_0 {
    static constexpr int VALUES = 256, BYTES = 66, HALVES = 1, SHIFT = 1, TOP = 2;
    static constexpr int  AGAIN = 2;
    static constexpr bool MIN = false;

    static int64_t block(int64_t i) { return i; }

    template <class At, class Whole, class Sink> INLINE static void unpack(At a, Whole & whole, Sink && sink) {
        whole.scale = heads(a + 64);
#pragma GCC unroll 2
        for (int l = 0; l < 2; l++) {
            vi t[8], q[8];
            load8(a + 32 * l, t);
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                for (int e = 0; e < 8; e++) {
                    q[e] = (t[e] >> (2 * i)) & PAIRS_OF_BITS;
                }
                sink(4 * l + i, q, splat(1.0f), vf{});
            }
        }
    }
};

struct tq1_0 {
    static constexpr int VALUES = 256, BYTES = 54, HALVES = 1, SHIFT = 1, TOP = 2;
    static constexpr int  AGAIN = 1;
    static constexpr bool MIN = false;

    static int64_t block(int64_t i) { return i; }

    // A byte is a fraction of 256 in base 3. They are kept less 128, as signed ones: times three they remain so.
    typedef int8_t bytes __attribute__((vector_size(sizeof(vi))));

    // digit is the first digit of each byte of v, of which the next ones remain.
    INLINE static vi digit(vi & v) {
        const bytes b = (bytes) v, less = (b > -43) + (b > 42);
        v             = (vi) (b + b + b);
        return (vi) -less;
    }

    template <class At, class Whole, class Sink> INLINE static void unpack(At a, Whole & whole, Sink && sink) {
        whole.scale = heads(a + 52);
        vi t[8], q[8];
        load8(a, t); // five blocks, a digit of each byte
        for (int e = 0; e < 8; e++) {
            t[e] ^= 0x80808080;
        }
        for (int n = 0; n < 5; n++) {
            for (int e = 0; e < 8; e++) {
                q[e] = digit(t[e]);
            }
            sink(n, q, splat(1.0f), vf{});
        }
        load4(a + 32, t); // five halves of blocks
        vi last = words(a + 48) ^ 0x80808080; // and four fours
        for (int e = 0; e < 4; e++) {
            t[e] ^= 0x80808080;
        }
        for (int b = 5; b < 8; b++) {
            for (int e = 0; e < 4; e++) {
                q[e] = digit(t[e]);
            }
            for (int e = 0; e < 4; e++) {
                q[e + 4] = digit(b < 7 ? t[e] : last);
            }
            sink(b, q, splat(1.0f), vf{});
        }
    }
};

} // namespace
