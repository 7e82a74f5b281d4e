// Attention in float32: scores with lanes along the cells, values with lanes along a head's width.

namespace {

constexpr int BLOCK = 16; // cells

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

template <int D> struct alignas(64) float_tile {
    float k[D][BLOCK], v[BLOCK][D];

    // fill takes n cells of the rest of a list. The cells of a conversation lie scattered among those of others, where no
    // processor foresees the next: those of the block after the next are fetched, one by one because bursts are dropped.
    void fill(const uma_attention_job & j, const int32_t * at, int n, int64_t rest) {
        constexpr int AHEAD = 2 * BLOCK;
        alignas(64) float row[BLOCK][D];
        for (int c = 0; c < n; c++) {
            if (c + AHEAD < rest) {
                for (int l = 0; l < j.k_bytes; l += 64) {
                    __builtin_prefetch(j.k + at[c + AHEAD] * j.k_cell + l, 0, 2);
                }
                for (int l = 0; l < j.v_bytes; l += 64) {
                    __builtin_prefetch(j.v + at[c + AHEAD] * j.v_cell + l, 0, 2);
                }
            }
            wide_row(j.k_type, j.k + at[c] * j.k_cell, row[c], D);
            wide_row(j.v_type, j.v + at[c] * j.v_cell, v[c], D);
        }
        for (int c = n; c < BLOCK; c++) {
            memset(row[c], 0, sizeof(row[c]));
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
};

// state is a row's head: its softmax as far as the blocks of a part have been seen.
template <int D> struct alignas(64) state {
    using tile = float_tile<D>;
    static constexpr int WIDE = BLOCK / LANES;

    float q[D], out[D];
    vf    mass; // Σ e^(score - max), by lanes
    float max;

    void ask(const float * from, float scale) {
        for (int i = 0; i < D; i++) {
            q[i] = from[i] * scale;
        }
    }

    void begin() {
        memset(out, 0, sizeof(out));
        mass = vf{};
        max  = NONE;
    }

    void scale_down(float by) {
        for (int i = 0; i < D; i++) {
            out[i] *= by;
        }
        mass *= by;
    }

    void end(float * record) const {
        record[0] = max;
        record[1] = sum_of(mass);
        memcpy(record + 2, out, sizeof(out));
    }

    template <int N> static void attend(state ** qs, const tile & t, const float * bias, int n) {
        vf s[N * WIDE];
#pragma GCC unroll 8
        for (int i = 0; i < N * WIDE; i++) {
            s[i] = vf{};
        }
        // Sums of 8 products are added up: one long sum would lose three times as much as ggml's, whose lanes lie along D.
        for (int from = 0; from < D; from += 8) {
            vf part[N * WIDE];
#pragma GCC unroll 8
            for (int i = 0; i < N * WIDE; i++) {
                part[i] = vf{};
            }
            for (int d = from; d < from + 8; d++) {
#pragma GCC unroll 4
                for (int i = 0; i < N; i++) {
                    const vf q = splat(qs[i]->q[d]);
#pragma GCC unroll 4
                    for (int p = 0; p < WIDE; p++) {
                        vf k;
                        memcpy(&k, &t.k[d][p * LANES], sizeof(k));
                        part[i * WIDE + p] = fma(k, q, part[i * WIDE + p]);
                    }
                }
            }
#pragma GCC unroll 8
            for (int i = 0; i < N * WIDE; i++) {
                s[i] += part[i];
            }
        }
        for (int i = 0; i < N; i++) {
            for (int p = 0; p < WIDE; p++) {
                vf b;
                memcpy(&b, bias + p * LANES, sizeof(b));
                s[i * WIDE + p] += b;
            }
        }
        weigh<state, N>(qs, s, n);
        const float * w = (const float *) s;
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
