// Attention in float32: scores with lanes along the cells, values with lanes along a head's width (attention_state.h).
// attention_short.h has faster scores for AVX-512.

namespace {

constexpr int BLOCK = LANES == 16 ? 32 : 16; // cells
constexpr int WIDE  = BLOCK / LANES;

// at_once is the largest divisor of all that is at most limit.
constexpr int at_once(int all, int limit) {
    int n = all < limit ? all : limit;
    while (all % n != 0) {
        n--;
    }
    return n;
}

} // namespace

// KEEP has a vector stay in its register. gcc would read it again for each of its uses, and reading is what those wait for.
#if defined(__x86_64__)
#define KEEP(v) asm("" : "+v"(v))
#else
#define KEEP(v) asm("" : "+w"(v))
#endif

#include "attention_parts.h"

namespace {

// lines brings memory into the second level of the cache.
INLINE void lines(const char * from, int bytes) {
    for (const char * l = from - (uintptr_t) from % 64; l < from + bytes; l += 64) {
        __builtin_prefetch(l, 0, 2);
    }
}

// fetch brings in a cell. The cells of a conversation lie scattered among those of others, where no processor foresees the next.
INLINE void fetch(const uma_attention_job & j, int64_t cell) {
    lines(j.k + cell * j.k_cell, j.k_bytes);
    lines(j.v + cell * j.v_cell, j.v_bytes);
}

// fetching is cells to fetch one by one: the processor drops bursts.
struct fetching {
    const uma_attention_job & j;
    const int32_t *           next, *end;

    INLINE void operator()() {
        if (next < end) {
            fetch(j, *next++);
        }
    }
};

// float_keys are the keys of a block's cells in float32, transposed.
template <int D> struct alignas(64) float_keys {
    float k[D][BLOCK];

    // query is what a row's head looks for.
    struct alignas(64) query {
        float q[D];

        // ask takes n values.
        void ask(const float * from, float scale, int n) {
            for (int i = 0; i < D; i++) {
                q[i] = i < n ? from[i] * scale : 0;
            }
        }
    };

    static constexpr bool rounded = false;

    void fill(int type, int width, const char * const * cell, bool, fetching ahead) {
        alignas(64) float row[BLOCK][D];
        for (int c = 0; c < BLOCK; c++) {
            ahead();
            head_row<D>(type, cell[c], row[c], width);
        }
        for (int g = 0; g < BLOCK; g += LANES) {
            for (int i = 0; i < D; i += 4) {
                vi four[4];
                load4(rows{(const char *) (row[g] + i)}, four);
                for (int l = 0; l < 4; l++) {
                    memcpy(&k[i + l][g], four + l, sizeof(*four));
                }
            }
        }
    }

    struct rows {
        const char * p;
        INLINE const char * operator[](int r) const { return p + r * sizeof(float) * D; }
    };

    // scores writes WIDE vectors for each of N queries.
    template <int N> INLINE void scores(const query * const * q, vf * s) const {
#pragma GCC unroll 16
        for (int i = 0; i < N * WIDE; i++) {
            s[i] = vf{};
        }
        // Sums of 8 products are added up: one long sum would lose three times as much as ggml's, whose lanes lie along D.
        for (int from = 0; from < D; from += 8) {
            vf part[N * WIDE];
#pragma GCC unroll 16
            for (int i = 0; i < N * WIDE; i++) {
                part[i] = vf{};
            }
#pragma GCC unroll 8
            for (int d = 0; d < 8; d++) {
                vf at[WIDE];
#pragma GCC unroll 4
                for (int p = 0; p < WIDE; p++) {
                    memcpy(&at[p], &k[from + d][p * LANES], sizeof(vf));
                    KEEP(at[p]);
                }
#pragma GCC unroll 4
                for (int i = 0; i < N; i++) {
#pragma GCC unroll 4
                    for (int p = 0; p < WIDE; p++) {
                        part[i * WIDE + p] = fma_all(at[p], q[i]->q + from + d, part[i * WIDE + p]);
                    }
                }
            }
#pragma GCC unroll 16
            for (int i = 0; i < N * WIDE; i++) {
                s[i] += part[i];
            }
        }
    }
};

} // namespace
