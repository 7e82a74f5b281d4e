// Attention in float32: scores with lanes along the cells, values with lanes along a head's width. attention_short.h has faster
// scores for AVX-512.

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

        void ask(const float * from, float scale) {
            for (int i = 0; i < D; i++) {
                q[i] = from[i] * scale;
            }
        }
    };

    void fill(int type, const char * const * cell, fetching ahead) {
        alignas(64) float row[BLOCK][D];
        for (int c = 0; c < BLOCK; c++) {
            ahead();
            wide_row(type, cell[c], row[c], D);
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

// tile is a block's cells.
template <int D, class K> struct alignas(64) tile {
    K     keys;
    float v[BLOCK][D];

    // fill takes n cells of a list, and fetches as many of those that come `ahead` of them. Behind the keys it repeats the last.
    void fill(const uma_attention_job & j, const int32_t * at, int n, const int32_t * ahead, int64_t fetched) {
        const char * cell[BLOCK];
        for (int c = 0; c < BLOCK; c++) {
            cell[c] = j.k + at[c < n ? c : n - 1] * j.k_cell;
        }
        keys.fill(j.k_type, cell, {j, ahead, ahead + fetched});
        for (int c = 0; c < n; c++) {
            wide_row(j.v_type, j.v + at[c] * j.v_cell, v[c], D);
        }
    }
};

// state is a row's head: its softmax as far as the blocks of a part have been seen.
template <int D, class K> struct alignas(64) state {
    typename K::query q;
    float             out[D];
    vf                mass; // Σ e^(score - base), by lanes
    float             base;

    void begin() {
        memset(out, 0, sizeof(out));
        mass = vf{};
        base = NONE;
    }

    void scale_down(float by) {
        for (int i = 0; i < D; i++) {
            out[i] *= by;
        }
        mass *= by;
    }

    void end(float * record) const {
        record[0] = base;
        record[1] = sum_of(mass);
        memcpy(record + 2, out, sizeof(out));
    }

    // attend has N queries see n cells in a tile. bias has a whole block: OUT behind the cells.
    template <int N> static void attend(state ** qs, const tile<D, K> & t, const float * bias, int n) {
        vf                        s[N * WIDE];
        const typename K::query * q[N];
#pragma GCC unroll 4
        for (int i = 0; i < N; i++) {
            q[i] = &qs[i]->q;
        }
        t.keys.template scores<N>(q, s);
        vf above[N * WIDE], top; // how far the scores lie above the bases
#pragma GCC unroll 4
        for (int p = 0; p < WIDE; p++) {
            vf b;
            memcpy(&b, bias + p * LANES, sizeof(b));
#pragma GCC unroll 4
            for (int i = 0; i < N; i++) {
                s[i * WIDE + p] += b;
                above[i * WIDE + p] = s[i * WIDE + p] - qs[i]->base;
                top                 = i + p == 0 ? above[0] : larger(top, above[i * WIDE + p]);
            }
        }
        if (__builtin_expect(largest(top) > SLACK, 0)) {
            vf copy[N * WIDE]; // else the scores themselves would lie in memory
#pragma GCC unroll 16
            for (int i = 0; i < N * WIDE; i++) {
                copy[i] = s[i];
            }
            for (int i = 0; i < N; i++) {
                qs[i]->rise(copy + i * WIDE);
            }
#pragma GCC unroll 4
            for (int i = 0; i < N; i++) {
#pragma GCC unroll 4
                for (int p = 0; p < WIDE; p++) {
                    above[i * WIDE + p] = copy[i * WIDE + p] - qs[i]->base;
                }
            }
        }
        exp_of<N * WIDE>(above);
#pragma GCC unroll 4
        for (int i = 0; i < N; i++) {
            vf sum = above[i * WIDE];
#pragma GCC unroll 4
            for (int p = 1; p < WIDE; p++) {
                sum += above[i * WIDE + p];
            }
            qs[i]->mass += sum;
        }
        alignas(64) float w[N * BLOCK];
#pragma GCC unroll 16
        for (int i = 0; i < N * WIDE; i++) {
            memcpy(w + i * LANES, above + i, sizeof(vf));
        }
        // Nearly all blocks are whole; a loop of known length is faster.
        if (n == BLOCK) {
            gather<N>(qs, t, w, BLOCK);
        } else {
            gather<N>(qs, t, w, n);
        }
    }

    // rise makes the largest of a block's scores the base, if it lies too far above it.
    __attribute__((noinline)) void rise(const vf * s) {
        vf m = s[0];
        for (int p = 1; p < WIDE; p++) {
            m = larger(m, s[p]);
        }
        const float most = largest(m);
        if (most - base > SLACK) {
            if (base != NONE) {
                scale_down(uma_attention_exp(base - most));
            }
            base = most;
        }
    }

    // gather adds the values of n cells to N queries' sums, with the weights w.
    template <int N> static INLINE void gather(state ** qs, const tile<D, K> & t, const float * w, int n) {
        constexpr int W = at_once(D / LANES, (LANES == 16 ? 16 : 8) / N); // vectors of each query: what the registers hold
        for (int l = 0; l < D; l += W * LANES) {
            vf o[N][W];
            // Vector by vector: an array that is copied whole stays in memory, and each step of the sums stores it.
#pragma GCC unroll 4
            for (int i = 0; i < N; i++) {
#pragma GCC unroll 16
                for (int x = 0; x < W; x++) {
                    memcpy(&o[i][x], qs[i]->out + l + x * LANES, sizeof(vf));
                }
            }
            for (int c = 0; c < n; c++) {
#pragma GCC unroll 16
                for (int x = 0; x < W; x++) {
                    vf v;
                    memcpy(&v, &t.v[c][l + x * LANES], sizeof(v));
                    KEEP(v);
#pragma GCC unroll 4
                    for (int i = 0; i < N; i++) {
                        o[i][x] = fma(v, splat(w[i * BLOCK + c]), o[i][x]);
                    }
                }
            }
#pragma GCC unroll 4
            for (int i = 0; i < N; i++) {
#pragma GCC unroll 16
                for (int x = 0; x < W; x++) {
                    memcpy(qs[i]->out + l + x * LANES, &o[i][x], sizeof(vf));
                }
            }
        }
    }
};

} // namespace
