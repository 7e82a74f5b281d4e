// What attention in float32 is made of; the vectors are those of the including file.

namespace {

constexpr float NONE = -__builtin_inff();

// wide_row makes float32 of n values, a multiple of 32 for the quantised types and of 16 for the others.
INLINE void wide_row(int type, const char * from, float * to, int n) {
    switch (type) {
    case GGML_TYPE_F32:
        memcpy(to, from, n * sizeof(float));
        return;
    case GGML_TYPE_BF16:
        for (int i = 0; i < n; i += LANES) {
            const vf v = widest((const uint16_t *) from + i);
            memcpy(to + i, &v, sizeof(v));
        }
        return;
    case GGML_TYPE_F16:
        for (int i = 0; i < n; i += LANES) {
            const vf v = wide((const uint16_t *) from + i);
            memcpy(to + i, &v, sizeof(v));
        }
        return;
    }
    for (int i = 0; i < n; i += 32) {
        uint16_t h;
        memcpy(&h, from, sizeof(h));
        const float scale = wide1(h);
        if (type == GGML_TYPE_Q8_0) {
            for (int l = 0; l < 32; l++) {
                to[i + l] = scale * (float) (int8_t) from[2 + l];
            }
            from += 34;
        } else {
            for (int l = 0; l < 16; l++) {
                const int q    = (uint8_t) from[2 + l];
                to[i + l]      = scale * (float) ((q & 15) - 8);
                to[i + l + 16] = scale * (float) ((q >> 4) - 8);
            }
            from += 18;
        }
    }
}

// head_row makes float32 of a head's n values, with zeros behind them where a row has more.
template <int D> INLINE void head_row(int type, const char * from, float * to, int n) {
    if (__builtin_expect(n == D, 1)) {
        wide_row(type, from, to, D);
        return;
    }
    const int whole = n - n % 16;
    wide_row(type, from, to, whole);
    memset(to + whole, 0, (D - whole) * sizeof(float));
    if (n > whole) { // of numbers: blocks are whole
        const int size     = type == GGML_TYPE_F32 ? 4 : 2;
        char      rest[64] = {};
        memcpy(rest, from + whole * size, (n - whole) * size);
        wide_row(type, rest, to + whole, 16);
    }
}

INLINE float sum_of(vf v) {
    float s = 0;
    for (int i = 0; i < LANES; i++) {
        s += v[i];
    }
    return s;
}

// exp_of turns each x into e^x, to about one unit in the last place where x is near 0; what is below -86 becomes e^-86, and
// nothing may be above 80. e^x = 2^n · 2^r with n + r = x · log2 e and n an integer; the polynomial for 2^r, |r| ≤ 1/2, has the
// least relative error of its degree, 1.9e-9 before rounding (found by iteratively reweighted least squares). N vectors go step
// by step together: each step waits for the one before.
template <int N> INLINE void exp_of(vf * x) {
    constexpr float rounder = 12582912.f; // 1.5 · 2^23: adding it leaves no bits below the point, and n in the lowest ones
    constexpr float terms[] = {1.3399931e-3f, 9.618489e-3f, 5.5503286e-2f, 2.4022646e-1f, 6.931472e-1f, 1.f};
    vf              n[N], r[N], p[N];
#pragma GCC unroll 16
    for (int i = 0; i < N; i++) {
        r[i] = larger(x[i], splat(-86.f)) * 1.44269504f;
        n[i] = r[i] + rounder;
        r[i] -= n[i] - rounder;
        p[i] = splat(1.5345811e-4f);
    }
    for (const float t : terms) {
#pragma GCC unroll 16
        for (int i = 0; i < N; i++) {
            p[i] = fma(p[i], r[i], splat(t));
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < N; i++) {
        x[i] = (vf) ((vs) p[i] + ((vs) n[i] << 23));
    }
}

// cap makes softcap · tanh(x) of each x. Near 0 tanh(x) is x + x³ · P(x²), P with the least relative error of its degree for
// |x| ≤ 0.625, 4.4e-9 before rounding (found as in exp_of); else 1 - 2 / (e^2|x| + 1), with the sign of x.
template <int N> INLINE void cap(vf * x, float softcap) {
    constexpr float NEAR = 0.625f, FAR = 10; // tanh(10) is 1
    constexpr float terms[] = {2.06390861e-2f, -5.37397154e-2f, 1.33314416e-1f, -3.33332807e-1f};
    vf              e[N];
#pragma GCC unroll 16
    for (int i = 0; i < N; i++) {
        e[i] = -2 * larger(-(vf) ((vi) x[i] & 0x7fffffffu), splat(-FAR));
    }
    exp_of<N>(e);
#pragma GCC unroll 16
    for (int i = 0; i < N; i++) {
        const vf z = x[i] * x[i];
        vf       p = splat(-5.7049864e-3f);
        for (const float t : terms) {
            p = fma(p, z, splat(t));
        }
        const vf size = (vf) ((vi) x[i] & 0x7fffffffu), near = fma(x[i] * z, p, x[i]);
        const vf far  = (vf) ((vi) (1 - 2 / (e[i] + 1)) | ((vi) x[i] & 0x80000000u));
        x[i]          = (size < NEAR ? near : far) * softcap;
    }
}

// SLACK is how far a score may lie above its query's base before it becomes the base. Adjusting what was gathered to each new
// maximum took a tenth of the kernel's time; numbers that are 148 times as large lose no bits.
constexpr float SLACK = 5;

// OUT is the bias of what is no cell: its weight is too small to change a sum.
constexpr float OUT = -1e30f;

} // namespace
