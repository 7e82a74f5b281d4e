// Products of whole groups of rows by AMX: for prompts, beside the AVX-512 of everything else. A block of a kept strip, eight
// vectors of four bytes from each of 16 rows of weights, is a tile without any rearrangement, and so is the same block of eight
// rows of activations. One instruction multiplies the two: 64 of AVX-512's dot products. Sums of integers are exact, so that
// the results are the same, bit for bit.
//
// With UMA_EMULATE_AMX the tiles are those of a C++ program (scripts/amx.sh): no emulator that we know of has them.

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

INLINE void tiles_shape(const tile_shapes & s) {
    asm volatile("ldtilecfg %0" ::"m"(s));
}

// tiles_release returns to the state in which the system has no tiles to save for this thread.
INLINE void tiles_release() {
    asm volatile("tilerelease");
}

template <int T> INLINE void tile_zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(T));
}

template <int T> INLINE void tile_load(const void * p, int64_t row) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(p), "r"(row), "i"(T) : "memory");
}

template <int T> INLINE void tile_store(void * p, int64_t row) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(p), "r"(row), "i"(T) : "memory");
}

// tile_dots adds to S the products of A's signed bytes with B's unsigned ones.
template <int S, int A, int B> INLINE void tile_dots() {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(S), "i"(A), "i"(B));
}

// tiles_allowed reports whether the processor has tiles of int8 and the system lets this process use them: since Linux 5.16 a
// process asks, because a thread that uses them has 8 KiB more to save.
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

    static void begin() {
        tile_shapes s = {};
        s.palette     = 1;
        for (int t = 0; t < 8; t++) {
            s.row_bytes[t] = t == 4 || t == 5 ? 32 / F::HALVES : 64;
            s.rows[t]      = t >= 6 ? 8 / F::HALVES : ROWS;
        }
        tiles_shape(s);
    }

    static void end() { tiles_release(); }

    static void more(const uma_job & j, int64_t s, int rows, int64_t row) {
        const kept<F> *           u      = (const kept<F> *) j.strip;
        const activations<ROWS> * x      = (const activations<ROWS> *) (j.rows + row * (j.k / 32) * ACTIVATIONS);
        const int64_t             blocks = j.k / 32;
        tally<F, ROWS>            t;
        t.clear();
        int64_t b = 0;
        for (; b + AT_ONCE <= blocks; b += AT_ONCE) {
            add<AT_ONCE>(t, u, x, b);
            if constexpr (BLOCKS > 1) {
                if ((b + AT_ONCE) % BLOCKS == 0) {
                    t.close(u[b / BLOCKS].whole, x + b / BLOCKS * BLOCKS);
                }
            }
        }
        if constexpr (BLOCKS == 1) {
            for (; b < blocks; b++) {
                add<1>(t, u, x, b);
            }
        }
        t.write(j.c + s * LANES + row * j.c_row, j.c_row, rows);
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
            t.weigh(dot, i % F::HALVES ? w.other : w.scale, x[at]);
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

// trial is a product of pseudo-random weights and activations: what the tiles are tried with before they are used.
template <int TYPE, int VALUES, int BYTES, int HEAD> struct trial {
    static constexpr int M = 40, N = 48, K = 512;

    alignas(64) char strip[K / 32 * sizeof(unpacked) + K / 256 * sizeof(super)];
    alignas(64) char rows[N * (K / 32) * ACTIVATIONS];
    char    w[M * (K / VALUES) * BYTES], x[N * (VALUES == 32 ? K / 32 * Q8_0_BYTES : K / 256 * Q8_K_BYTES)];
    float   c[2][N * M];
    uma_job job = {TYPE, M, N, K, w, sizeof(w) / M, x, sizeof(x) / N, nullptr, M, rows, strip};

    trial() {
        constexpr uint16_t HALF  = 0x2c00; // 1/16
        constexpr float    SMALL = 0.01f;
        uint32_t           r     = 1;
        for (char & b : w) {
            b = (char) ((r = r * 1664525 + 1013904223) >> 24);
        }
        for (char & b : x) {
            b = (char) ((int) ((r = r * 1664525 + 1013904223) >> 24) % 127);
        }
        for (size_t i = HEAD; i < sizeof(w); i += BYTES) {
            memcpy(w + i, &HALF, sizeof(HALF));
        }
        for (size_t i = 0; i < sizeof(x); i += VALUES == 32 ? Q8_0_BYTES : Q8_K_BYTES) {
            VALUES == 32 ? memcpy(x + i, &HALF, sizeof(HALF)) : memcpy(x + i, &SMALL, sizeof(SMALL));
        }
        prepare(job);
    }

    // cycles is how long a product takes, at best of some.
    template <template <class> class Whole> uint64_t cycles(int i) {
        uint64_t best = UINT64_MAX;
        job.c         = c[i];
        for (int n = 0; n < 5; n++) {
            const uint64_t from = __builtin_ia32_rdtsc();
            compute<Whole>(job, {0, (M + LANES - 1) / LANES, -1});
            const uint64_t took = __builtin_ia32_rdtsc() - from;
            best                = took < best ? took : best;
        }
        return best;
    }

    bool same() {
        cycles<lanes>(0);
        cycles<tiles>(1);
        return memcmp(c[0], c[1], sizeof(c[0])) == 0;
    }
};
struct verdict {
    bool right, faster;
};

// try_tiles compares AMX with AVX-512 on this processor: whether the results are the same, for both shapes of tiles, and whether
// it is the faster one.
verdict try_tiles() {
    if (!tiles_allowed()) {
        return {false, false};
    }
    trial<GGML_TYPE_Q8_0, 32, 34, 0> whole;
    trial<GGML_TYPE_Q6_K, 256, 210, 208> halves;
    const bool right = whole.same() && halves.same();
    return {right, right && whole.template cycles<tiles>(1) < whole.template cycles<lanes>(0)};
}

const verdict & tiles_tried() {
    static const verdict v = try_tiles();
    return v;
}

} // namespace
