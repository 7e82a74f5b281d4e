// Products of whole groups of rows by AMX: for prompts, beside the AVX-512 of everything else. A block of a kept strip, eight
// vectors of four bytes from each of 16 rows of weights, is a tile without any rearrangement, and so is the same block of eight
// rows of activations. One instruction multiplies the two: 64 of AVX-512's dot products. Sums of integers are exact, so that
// the results are the same, bit for bit.
//
// With UMA_EMULATE_AMX the tiles are C++ (scripts/amx.sh).

namespace {

// tile_shapes is what LDTILECFG loads: for each tile the bytes in a row, and the rows (Intel SDM, volume 1, 18.3).
struct alignas(64) tile_shapes {
    uint8_t  palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t  rows[16];
};

static_assert(sizeof(tile_shapes) == 64, "tile_shapes");

#ifdef UMA_EMULATE_AMX
#include "testdata/cross/tiles.h"
#else

// The instructions are spelled in bytes (Intel SDM, volume 2): assemblers older than binutils 2.36 do not know them. Memory is at
// rax, and its rows are rcx bytes apart.
#define UMA_VEX(pp, opcode, modrm) ".byte 0xc4, 0xe2, 0x78 + " pp ", " opcode ", " modrm

INLINE void tiles_shape(const tile_shapes & s) {
    asm volatile(UMA_VEX("0", "0x49", "0x00") ::"a"(&s), "m"(s)); // ldtilecfg (rax)
}

// tiles_shaped stores the shapes in use; palette is 0 where there are none.
INLINE void tiles_shaped(tile_shapes & s) {
    asm volatile(UMA_VEX("1", "0x49", "0x00") : "=m"(s) : "a"(&s)); // sttilecfg (rax)
}

// tiles_release returns to the state in which the system has no tiles to save for this thread.
INLINE void tiles_release() {
    asm volatile(UMA_VEX("0", "0x49", "0xc0")); // tilerelease
}

template <int T> INLINE void tile_zero() {
    asm volatile(UMA_VEX("3", "0x49", "0xc0 + 8 * %c0") ::"i"(T)); // tilezero tmmT
}

template <int T> INLINE void tile_load(const void * p, int64_t row) {
    asm volatile(UMA_VEX("3", "0x4b", "0x04 + 8 * %c2, 0x08") ::"a"(p), "c"(row), "i"(T) : "memory"); // tileloadd tmmT, (rax + rcx)
}

template <int T> INLINE void tile_store(void * p, int64_t row) {
    asm volatile(UMA_VEX("2", "0x4b", "0x04 + 8 * %c2, 0x08") ::"a"(p), "c"(row), "i"(T) : "memory"); // tilestored (rax + rcx), tmmT
}

// tile_dots adds to S the products of A's signed bytes with B's unsigned ones.
template <int S, int A, int B> INLINE void tile_dots() {
    asm volatile(UMA_VEX("2 - 8 * %c2", "0x5e", "0xc0 + 8 * %c0 + %c1") ::"i"(S), "i"(A), "i"(B)); // tdpbsud tmmS, tmmA, tmmB
}

#undef UMA_VEX

// tiles_allowed reports whether the processor has tiles of int8 and the system lets this process use them: since Linux 5.16 a
// process asks, because a thread that uses them has 8 KiB more to save. The system then refuses signal stacks without room
// for those; Go's have 32 KiB.
bool tiles_allowed() {
    constexpr unsigned TILE = 1u << 24, INT8 = 1u << 25; // of EDX
    constexpr unsigned STATE = 1u << 17 | 1u << 18;      // of XCR0: the shapes and the tiles
    constexpr int      REQUEST = 0x1023, TILES = 18;     // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    unsigned           a, b, c, d, low, high;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & TILE) == 0 || (d & INT8) == 0) {
        return false;
    }
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0)); // the processor has AVX-512, so the system has set OSXSAVE
    return (low & STATE) == STATE && syscall(SYS_arch_prctl, REQUEST, TILES) == 0;
}

#endif

// tiles multiplies a whole group of rows with the strip that is kept: Whole of quantised.
template <class F> struct tiles {
    // Four sums, each of a block or of half a block that has its own scale: one's instructions need not wait for another's. Tiles
    // 4 and 5 are activations, 6 and 7 weights, in turns.
    static constexpr int SUMS = 4, AT_ONCE = SUMS / F::HALVES, BLOCKS = F::VALUES / 32;

    static constexpr tile_shapes shapes() {
        tile_shapes s = {};
        s.palette     = 1;
        for (int t = 0; t < 8; t++) {
            s.row_bytes[t] = t == 4 || t == 5 ? 32 / F::HALVES : 64;
            s.rows[t]      = t >= 6 ? 8 / F::HALVES : ROWS;
        }
        return s;
    }

    // ggml shapes the tiles of a thread once, for products that are not ours: they must be as they were afterwards.
    static inline thread_local tile_shapes before;

    static void begin() {
        static constexpr tile_shapes s = shapes();
        tiles_shaped(before);
        tiles_shape(s);
    }

    static void end() {
        if (before.palette != 0) {
            tiles_shape(before);
        } else {
            tiles_release();
        }
    }

    static void more(const uma_job & j, int64_t s, int rows, int64_t row) {
        const kept<F> *           u      = (const kept<F> *) j.strip;
        const activations<ROWS> * x      = (const activations<ROWS> *) (j.rows + row * (j.k / 32) * ACTIVATIONS);
        const int64_t             blocks = j.k / 32;
        tally<F, ROWS>            t;
        t.clear();
        int64_t b = 0;
        for (; b + AT_ONCE <= blocks; b += AT_ONCE) {
            add<AT_ONCE>(t, u, x, b);
            if constexpr (K<F>) {
                if ((b + AT_ONCE) % BLOCKS == 0) {
                    t.close(u[b / BLOCKS].whole, x + b / BLOCKS * BLOCKS);
                }
            }
        }
        if constexpr (!K<F>) {
            for (; b < blocks; b++) {
                add<1>(t, u, x, b);
            }
        }
        t.write(j, s, row, rows);
    }

    // add computes N blocks, those from b on.
    template <int N> INLINE static void add(tally<F, ROWS> & t, const kept<F> * u, const activations<ROWS> * x, int64_t b) {
        alignas(64) int32_t out[SUMS][ROWS][LANES];
        multiply<0, N>(u, x, b);
        multiply<1, N>(u, x, b);
        multiply<2, N>(u, x, b);
        multiply<3, N>(u, x, b);
        store<0, N>(out);
        store<1, N>(out);
        store<2, N>(out);
        store<3, N>(out);
#pragma GCC unroll 4
        for (int i = 0; i < N * F::HALVES; i++) {
            const int64_t    at = b + i / F::HALVES;
            const unpacked & w  = u[at / BLOCKS].block[at % BLOCKS];
            vs               dot[ROWS];
#pragma GCC unroll 8
            for (int r = 0; r < ROWS; r++) {
                memcpy(dot + r, out[i][r], sizeof(vs));
                if (F::SHIFT) {
                    dot[r] += splat(x[at].begin[i % F::HALVES][r]);
                }
            }
            t.weigh(dot, i % F::HALVES ? w.other : w.scale, w.other, x[at]);
        }
    }

    template <int I, int N> INLINE static void multiply(const kept<F> * u, const activations<ROWS> * x, int64_t b) {
        if constexpr (I < N * F::HALVES) {
            constexpr int HALF = I % F::HALVES;
            const int64_t at   = b + I / F::HALVES;
            tile_zero<I>();
            tile_load<4 + I % 2>(x[at].q[0] + 16 * HALF, sizeof(x->q[0]));
            tile_load<6 + I % 2>(u[at / BLOCKS].block[at % BLOCKS].q + 4 * HALF, sizeof(vi));
            tile_dots<I, 4 + I % 2, 6 + I % 2>();
        }
    }

    template <int I, int N> INLINE static void store(int32_t (&out)[SUMS][ROWS][LANES]) {
        if constexpr (I < N * F::HALVES) {
            tile_store<I>(out[I], sizeof(out[I][0]));
        }
    }
};

// trial is a product of pseudo-random weights and activations: what the tiles are tried with before they are used. A row has
// 129 blocks, as many as the tiles take at once and one more, where a format can have that.
template <int TYPE, int VALUES, int BYTES, int HEAD> struct trial {
    static constexpr int M = 40, N = 48, K = VALUES == 32 ? 4128 : 4096, X_ROW = VALUES == 32 ? K / 32 * Q8_0_BYTES : K / 256 * Q8_K_BYTES;

    alignas(64) char strip[K / 32 * sizeof(unpacked) + K / 256 * sizeof(super)];
    alignas(64) char rows[N * (K / 32) * ACTIVATIONS];
    char     w[M * (K / VALUES) * BYTES], x[N * X_ROW];
    float    c[2][N * M];
    uma_job  job = {TYPE, M, N, K, w, sizeof(w) / M, x, X_ROW, nullptr, M, nullptr, nullptr, rows, strip};
    uint32_t seed = 1;

    int byte() { return (int) ((seed = seed * 1664525 + 1013904223) >> 24); }

    trial() {
        constexpr uint16_t HALF  = 0x2c00; // 1/16
        constexpr float    SMALL = 0.01f;
        for (char & b : w) {
            b = (char) byte();
        }
        for (char & b : x) {
            b = (char) (byte() % 255 - 127);
        }
        for (size_t i = HEAD; i < sizeof(w); i += BYTES) {
            memcpy(w + i, &HALF, sizeof(HALF));
        }
        for (size_t i = 0; i < sizeof(x); i += VALUES == 32 ? Q8_0_BYTES : Q8_K_BYTES) {
            VALUES == 32 ? memcpy(x + i, &HALF, sizeof(HALF)) : memcpy(x + i, &SMALL, sizeof(SMALL));
        }
        prepare(job);
    }

    template <template <class> class Whole> uint64_t cycles(int i) {
        job.c               = c[i];
        const uint64_t from = __builtin_ia32_rdtsc();
        compute<Whole>(job, {0, (M + LANES - 1) / LANES, nullptr});
        return __builtin_ia32_rdtsc() - from;
    }

    bool same() {
        cycles<lanes>(0);
        cycles<tiles>(1);
        return memcmp(c[0], c[1], sizeof(c[0])) == 0;
    }

    // faster by a tenth, the best of some turns of each: near a tie the choice would change from start to start.
    bool faster() {
        uint64_t best[2] = {UINT64_MAX, UINT64_MAX};
        for (int n = 0; n < 20; n++) {
            const uint64_t took[2] = {cycles<lanes>(0), cycles<tiles>(1)};
            for (int i = 0; i < 2; i++) {
                best[i] = took[i] < best[i] ? took[i] : best[i];
            }
        }
        return best[1] < best[0] - best[0] / 10;
    }
};

struct verdict {
    bool right, faster;
};

// try_tiles compares AMX with AVX-512 on this processor, for both shapes of tiles: whether the results are the same, and whether
// it is the faster one.
verdict try_tiles() {
    if (!tiles_allowed()) {
        return {false, false};
    }
    static trial<GGML_TYPE_Q8_0, 32, 34, 0>     whole;
    static trial<GGML_TYPE_Q6_K, 256, 210, 208> halves;
    const bool right = whole.same() && halves.same();
    return {right, right && whole.faster() && halves.faster()};
}

const verdict & tiles_tried() {
    static const verdict v = try_tiles();
    return v;
}

} // namespace
