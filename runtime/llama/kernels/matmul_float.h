// Products with weights in F32, F16 and BF16, for any instruction set. Lanes run along the rows here, because the weights need no
// unpacking: a sum has LANES parts, which are added at the end. Which rows share a step changes nothing in a part.

namespace {

constexpr int FLOAT_ROWS = 4; // of weights in a strip

INLINE const char * x_of(const uma_job & j, int64_t i) {
    return j.x + (j.x_at ? j.x_at[i] : i) * j.x_row;
}

INLINE float * c_of(const uma_job & j, int64_t i) {
    return j.c + (j.c_at ? j.c_at[i] : i) * j.c_row;
}

// BYTES is the size of a number, LONE says that a row alone is multiplied as fast as memory brings it.
struct f32 {
    static constexpr int  STEP = LANES, BYTES = 4;
    static constexpr bool LONE = LANES == 16;
    using vector               = vf;
    INLINE static vf load(const char * p) {
        vf v;
        memcpy(&v, p, sizeof(v));
        return v;
    }
    INLINE static vf add(vf w, vf x, vf sum) { return fma(w, x, sum); }
};

struct f16 {
    static constexpr int  STEP = LANES, BYTES = 2;
    static constexpr bool LONE = LANES == 16;
    using vector               = vf;
    INLINE static vf load(const char * p) { return wide((const uint16_t *) p); }
    INLINE static vf add(vf w, vf x, vf sum) { return fma(w, x, sum); }
};

struct bf16 {
    static constexpr int  STEP = LANES, BYTES = 2;
    static constexpr bool LONE = LANES == 16;
    using vector               = vf;
    INLINE static vf load(const char * p) { return widest((const uint16_t *) p); }
    INLINE static vf add(vf w, vf x, vf sum) { return fma(w, x, sum); }
};

// ahead is the weights that the thread reads at least so many bytes after strip s of piece p, a strip being rows of them;
// null where that is not known. Rows side by side are more streams than the processor follows by itself, and memory takes as
// long to answer as a thread needs for a few KiB. A piece shorter than that brings in the first strips of the next one.
INLINE const char * ahead(const uma_job & j, const uma_piece & p, int64_t s, int rows, int64_t bytes) {
    const int64_t one = rows * j.w_row, strips = one >= bytes ? 1 : bytes / one + 1;
    if (s + strips < p.to) {
        return j.w + (s + strips) * one;
    }
    const int64_t last = p.to - strips > p.from ? p.to - strips : p.from; // the first strip of p that brings in what follows
    return p.then ? p.then + (s - last) * one : nullptr;
}

// tile multiplies a strip, FLOAT_ROWS rows of weights at w[…], with N rows. next is brought in meanwhile; it may be null.
template <class F, int N> void tile(const uma_job & j, int64_t s, int64_t row, const char * next) {
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
        x[i] = x_of(j, row + i);
#pragma GCC unroll 4
        for (int r = 0; r < FLOAT_ROWS; r++) {
            sum[i][r] = vf{};
        }
    }
    for (int64_t b = 0; b < F::BYTES * j.k; b += F::BYTES * F::STEP) {
        if (next) {
            for (int i = 0; i < F::BYTES * F::STEP * FLOAT_ROWS; i += 64) {
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
        memcpy(c_of(j, row + i) + s * FLOAT_ROWS, four, rows * sizeof(float));
    }
}

// LONE_AHEAD is how many bytes ahead a lone row that is multiplied 32 bytes at a time asks for its weights. It waits for
// sums, so that the processor looks less far ahead by itself: 6 KiB made F16 5 % faster, 4, 8 and 12 KiB 1 % (Zen 4).
// Pairs of BF16, 64 bytes at a time, became 3 % slower with it.
constexpr int64_t LONE_AHEAD = 6 << 10;

// lone multiplies a strip with one row, row after row of the strip, where that takes no longer than memory needs: the
// processor follows a single stream of weights better than several. The sums are those of tile.
template <class F> void lone(const uma_job & j, int64_t s) {
    const int    rows = j.m - s * FLOAT_ROWS < FLOAT_ROWS ? (int) (j.m - s * FLOAT_ROWS) : FLOAT_ROWS;
    const char * x    = x_of(j, 0);
    vf           sum[FLOAT_ROWS];
    for (int r = 0; r < FLOAT_ROWS; r++) {
        const char * w = j.w + (s * FLOAT_ROWS + (r < rows ? r : rows - 1)) * j.w_row;
        sum[r]         = vf{};
        for (int64_t b = 0; b < F::BYTES * j.k; b += F::BYTES * F::STEP) {
            if (F::STEP == LANES && b % 64 == 0) {
                __builtin_prefetch(w + b + LONE_AHEAD, 0, 2);
            }
            sum[r] = F::add(F::load(w + b), F::load(x + b), sum[r]);
        }
    }
    float four[FLOAT_ROWS];
    fold4(sum, four);
    memcpy(c_of(j, 0) + s * FLOAT_ROWS, four, rows * sizeof(float));
}

template <class F> void floats(const uma_job & j, const uma_piece & p) {
    using fn = void (*)(const uma_job &, int64_t, int64_t, const char *);
#define UMA_TILE(n) tile<F, n <= FLOAT_COLUMNS ? n : FLOAT_COLUMNS>
    static constexpr fn tile_of[] = {nullptr, UMA_TILE(1), UMA_TILE(2), UMA_TILE(3), UMA_TILE(4), UMA_TILE(5), UMA_TILE(6)};
#undef UMA_TILE
    if (F::LONE && j.n == 1) {
        for (int64_t s = p.from; s < p.to; s++) {
            lone<F>(j, s);
        }
        return;
    }
    for (int64_t s = p.from; s < p.to; s++) {
        const char * next = ahead(j, p, s, FLOAT_ROWS, 8 << 10);
        for (int64_t i = 0; i < j.n; i += FLOAT_COLUMNS, next = nullptr) {
            tile_of[j.n - i < FLOAT_COLUMNS ? j.n - i : FLOAT_COLUMNS](j, s, i, next);
        }
    }
}

} // namespace
