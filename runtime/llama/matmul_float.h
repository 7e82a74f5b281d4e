// Products with weights in F16 and BF16, for any instruction set. Lanes run along the rows here, because the weights need no
// unpacking: a sum has LANES parts, which are added at the end. Which rows share a step changes nothing in a part.

namespace {

constexpr int FLOAT_ROWS = 4; // of weights in a strip

struct f16 {
    static constexpr int STEP = LANES;
    using vector              = vf;
    INLINE static vf load(const char * p) { return wide((const uint16_t *) p); }
    INLINE static vf add(vf w, vf x, vf sum) { return fma(w, x, sum); }
};

struct bf16 {
    static constexpr int STEP = LANES;
    using vector              = vf;
    INLINE static vf load(const char * p) { return widest((const uint16_t *) p); }
    INLINE static vf add(vf w, vf x, vf sum) { return fma(w, x, sum); }
};

// tile multiplies a strip, FLOAT_ROWS rows of weights at w[…], with N rows.
template <class F, int N> void tile(const uma_job & j, int64_t s, int64_t row) {
    const int    rows = j.m - s * FLOAT_ROWS < FLOAT_ROWS ? (int) (j.m - s * FLOAT_ROWS) : FLOAT_ROWS;
    const char * w[FLOAT_ROWS];
    const char * x[N];
    vf           sum[N][FLOAT_ROWS];
#pragma GCC unroll 4
    for (int r = 0; r < FLOAT_ROWS; r++) {
        w[r] = j.w + (s * FLOAT_ROWS + (r < rows ? r : rows - 1)) * j.w_row;
    }
#pragma GCC unroll 8
    for (int i = 0; i < N; i++) {
        x[i] = j.x + (row + i) * j.x_row;
#pragma GCC unroll 4
        for (int r = 0; r < FLOAT_ROWS; r++) {
            sum[i][r] = vf{};
        }
    }
    // Memory takes as long to answer as a thread needs for a few KiB: see ahead in matmul_kernel.h.
    const int64_t one  = FLOAT_ROWS * j.w_row;
    const char *  next = row == 0 ? j.w + s * one + (one >= 24 << 10 ? one : (24 << 10) / one * one + one) : nullptr;
    for (int64_t b = 0; b < 2 * j.k; b += 2 * F::STEP) {
        if (next) {
            for (int i = 0; i < 2 * F::STEP * FLOAT_ROWS; i += 64) {
                __builtin_prefetch(next + b * FLOAT_ROWS + i, 0, 2);
            }
        }
        typename F::vector y[N];
#pragma GCC unroll 8
        for (int i = 0; i < N; i++) {
            y[i] = F::load(x[i] + b);
        }
#pragma GCC unroll 4
        for (int r = 0; r < FLOAT_ROWS; r++) {
            const typename F::vector v = F::load(w[r] + b);
#pragma GCC unroll 8
            for (int i = 0; i < N; i++) {
                sum[i][r] = F::add(v, y[i], sum[i][r]);
            }
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < N; i++) {
        float four[FLOAT_ROWS];
        fold4(sum[i], four);
        memcpy(j.c + (row + i) * j.c_row + s * FLOAT_ROWS, four, rows * sizeof(float));
    }
}

template <class F> void floats(const uma_job & j, int64_t from, int64_t to) {
    using fn = void (*)(const uma_job &, int64_t, int64_t);
#define UMA_TILE(n) tile<F, n <= FLOAT_COLUMNS ? n : FLOAT_COLUMNS>
    static constexpr fn tile_of[] = {nullptr, UMA_TILE(1), UMA_TILE(2), UMA_TILE(3), UMA_TILE(4), UMA_TILE(5), UMA_TILE(6)};
#undef UMA_TILE
    for (int64_t s = from; s < to; s++) {
        for (int64_t i = 0; i < j.n; i += FLOAT_COLUMNS) {
            tile_of[j.n - i < FLOAT_COLUMNS ? j.n - i : FLOAT_COLUMNS](j, s, i);
        }
    }
}

} // namespace
