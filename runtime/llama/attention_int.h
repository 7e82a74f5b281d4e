// Attention in integers of 13 bits, for processors that multiply and add pairs of them in one instruction: twice the products
// of float32. A query, and each cell's key and value, has a scale that makes its largest element 4095; so has the product of
// a block's weights with the scales of its values. That is finer than the halves that queries are rounded to in ggml's
// attention for all but elements 16 times smaller than the largest.

namespace {

constexpr int BLOCK = 32; // cells

} // namespace

#include "attention_parts.h"

namespace {

// whole_pairs is a width in whole pairs of vectors.
constexpr int whole_pairs(int d) {
    return (d + 31) / 32 * 32;
}

// The sum of a head's products fits in 31 bits: 4095² · 128, 2895² · 256.
constexpr float unit(int d) {
    return d <= 128 ? 4095.f : 2895.f;
}

// rounded makes integers of x and returns their scale.
template <int D> INLINE float rounded(const float * x, int16_t * to) {
    vf top = vf{};
    for (int i = 0; i < D; i += LANES) {
        vf v;
        memcpy(&v, x + i, sizeof(v));
        top = larger(top, (vf) _mm512_abs_ps((__m512) v));
    }
    const float most = largest(top), by = most > 1e-30f ? unit(D) / most : 0.f;
    for (int i = 0; i < D; i += LANES) {
        const __m512i v = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + i), _mm512_set1_ps(by)));
        _mm256_storeu_si256((__m256i *) (to + i), _mm512_cvtepi32_epi16(v));
    }
    return most / unit(D);
}

template <int D> struct alignas(64) int_tile {
    static constexpr int WIDTH = whole_pairs(D);

    vi    k[WIDTH / 2][2];          // two elements of 16 cells, twice
    vi    v[BLOCK / 2][WIDTH / 16]; // 16 elements of two cells, see state::end for their order
    vf    k_scale[2], v_scale[2];

    void fill(const uma_attention_job & j, const int32_t * at, int n) {
        alignas(64) float   row[WIDTH] = {};
        alignas(64) int16_t whole[BLOCK][WIDTH];
        float *             scale = (float *) k_scale;
        for (int c = 0; c < n; c++) {
            wide_row(j.k_type, j.k + at[c] * j.k_cell, row, D);
            scale[c] = rounded<WIDTH>(row, whole[c]);
        }
        for (int c = n; c < BLOCK; c++) {
            memset(whole[c], 0, sizeof(whole[c]));
            scale[c] = 0;
        }
        for (int g = 0; g < 2; g++) {
            for (int i = 0; i < WIDTH / 2; i += 4) {
                vi four[4];
                load4(at_rows{(const char *) (whole[16 * g] + 2 * i), sizeof(whole[0])}, four);
                k[i][g] = four[0], k[i + 1][g] = four[1], k[i + 2][g] = four[2], k[i + 3][g] = four[3];
            }
        }
        scale = (float *) v_scale;
        for (int c = 0; c < n; c++) {
            wide_row(j.v_type, j.v + at[c] * j.v_cell, row, D);
            scale[c] = rounded<WIDTH>(row, whole[c]);
        }
        for (int c = n; c < BLOCK; c++) {
            memset(whole[c], 0, sizeof(whole[c]));
            scale[c] = 0;
        }
        for (int c = 0; c < BLOCK; c += 2) {
            for (int i = 0; i < WIDTH; i += 32) {
                const __m512i a = _mm512_load_si512(whole[c] + i), b = _mm512_load_si512(whole[c + 1] + i);
                v[c / 2][i / 16]     = (vi) _mm512_unpacklo_epi16(a, b);
                v[c / 2][i / 16 + 1] = (vi) _mm512_unpackhi_epi16(a, b);
            }
        }
    }

    // at_rows is where the rows of a square lie.
    struct at_rows {
        const char * p;
        int64_t      row;
        INLINE const char * operator[](int r) const { return p + r * row; }
    };
};

INLINE vs add_pairs(vs sum, vi a, int32_t b) {
    return (vs) _mm512_dpwssd_epi32((__m512i) sum, (__m512i) a, _mm512_set1_epi32(b));
}

// state is a row's head: its softmax as far as the blocks of a part have been seen.
template <int D> struct alignas(64) state {
    using tile                 = int_tile<D>;
    static constexpr int WIDTH = tile::WIDTH, VECTORS = WIDTH / LANES;

    vf      out[VECTORS];
    vf      mass; // Σ e^(score - max), by lanes
    int32_t q[WIDTH / 2];
    float   q_scale, max;

    void ask(const float * from, float scale) {
        alignas(64) float   row[WIDTH] = {};
        alignas(64) int16_t whole[WIDTH];
        memcpy(row, from, D * sizeof(float));
        q_scale = rounded<WIDTH>(row, whole) * scale;
        memcpy(q, whole, sizeof(q));
    }

    void begin() {
        for (int i = 0; i < VECTORS; i++) {
            out[i] = vf{};
        }
        mass = vf{};
        max  = NONE;
    }

    void scale_down(float by) {
        for (int i = 0; i < VECTORS; i++) {
            out[i] *= by;
        }
        mass *= by;
    }

    // end writes the part: unpacking two rows of 32 elements left fours of them in turns in two vectors.
    void end(float * record) const {
        record[0] = max;
        record[1] = sum_of(mass);
        for (int i = 0; i < D; i++) {
            record[2 + i] = out[i / 32 * 2 + i / 4 % 2][i / 8 % 4 * 4 + i % 4];
        }
    }

    template <int N> static void attend(state ** qs, const tile & t, const float * bias, int n) {
        vs dot[N][2];
#pragma GCC unroll 4
        for (int i = 0; i < N; i++) {
            dot[i][0] = dot[i][1] = vs{};
        }
        for (int d = 0; d < WIDTH / 2; d++) {
            const vi k0 = t.k[d][0], k1 = t.k[d][1];
#pragma GCC unroll 4
            for (int i = 0; i < N; i++) {
                dot[i][0] = add_pairs(dot[i][0], k0, qs[i]->q[d]);
                dot[i][1] = add_pairs(dot[i][1], k1, qs[i]->q[d]);
            }
        }
        vf s[N * 2];
        for (int i = 0; i < N; i++) {
            for (int p = 0; p < 2; p++) {
                vf b;
                memcpy(&b, bias + p * LANES, sizeof(b));
                s[i * 2 + p] = fma(__builtin_convertvector(dot[i][p], vf), t.k_scale[p] * qs[i]->q_scale, b);
            }
        }
        weigh<state, N>(qs, s, n);
        alignas(64) int32_t w[N][BLOCK / 2];
        float               back[N];
        for (int i = 0; i < N; i++) {
            const vf    a = s[2 * i] * t.v_scale[0], b = s[2 * i + 1] * t.v_scale[1];
            const float most = largest(larger(a, b)), by = most > 1e-30f ? 4095.f / most : 0.f;
            back[i] = most / 4095.f;
            _mm256_store_si256((__m256i *) w[i], _mm512_cvtepi32_epi16(_mm512_cvtps_epi32((__m512) (a * by))));
            _mm256_store_si256((__m256i *) w[i] + 1, _mm512_cvtepi32_epi16(_mm512_cvtps_epi32((__m512) (b * by))));
        }
        constexpr int W = VECTORS % 4 == 0 ? 4 : 2; // vectors at once
        for (int l = 0; l < VECTORS; l += W) {
            vs o[N][W];
#pragma GCC unroll 4
            for (int i = 0; i < N; i++) {
#pragma GCC unroll 4
                for (int x = 0; x < W; x++) {
                    o[i][x] = vs{};
                }
            }
            for (int c = 0; c < (n + 1) / 2; c++) {
#pragma GCC unroll 4
                for (int x = 0; x < W; x++) {
                    const vi v = t.v[c][l + x];
#pragma GCC unroll 4
                    for (int i = 0; i < N; i++) {
                        o[i][x] = add_pairs(o[i][x], v, w[i][c]);
                    }
                }
            }
#pragma GCC unroll 4
            for (int i = 0; i < N; i++) {
#pragma GCC unroll 4
                for (int x = 0; x < W; x++) {
                    qs[i]->out[l + x] = fma(__builtin_convertvector(o[i][x], vf), splat(back[i]), qs[i]->out[l + x]);
                }
            }
        }
    }
};

} // namespace
