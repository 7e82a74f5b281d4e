// What the states of attention_float.h are made of: the vectors and BLOCK, the cells of a block, are those of the including
// file.

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

// larger is the larger in each lane.
INLINE vf larger(vf a, vf b) {
    return a > b ? a : b;
}

INLINE float sum_of(vf v) {
    float s = 0;
    for (int i = 0; i < LANES; i++) {
        s += v[i];
    }
    return s;
}

// exp_neg turns each x ≤ 0 into e^x, to about one unit in the last place; what is below -87 becomes 1.6e-38. e^x = 2^n · e^r
// with n = round(x · log2 e), and the polynomial of Cephes' expf for e^r on |r| ≤ ln 2 / 2. N vectors go step by step
// together: each step waits for the one before, and one vector alone took a fifth of the kernel's time.
template <int N> INLINE void exp_neg(vf * x) {
    constexpr float rounder = 12582912.f; // 1.5 · 2^23: adding it leaves no bits below the point
    constexpr float terms[] = {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
    vf              n[N], r[N], p[N];
    for (int i = 0; i < N; i++) {
        x[i] = larger(x[i], splat(-87.f));
        n[i] = fma(x[i], splat(1.44269504088896341f), splat(rounder)) - rounder;
        r[i] = fma(n[i], splat(2.12194440e-4f), fma(n[i], splat(-0.693359375f), x[i]));
        p[i] = splat(1.9875691500e-4f);
    }
    for (const float t : terms) {
        for (int i = 0; i < N; i++) {
            p[i] = fma(p[i], r[i], splat(t));
        }
    }
    for (int i = 0; i < N; i++) {
        p[i]       = fma(p[i], r[i] * r[i], r[i] + 1.f);
        const vs e = (__builtin_convertvector(n[i], vs) + 127) << 23;
        x[i]       = p[i] * (vf) e;
    }
}

// weigh turns a block's scores, WIDE vectors of each of N queries, into weights relative to the maxima so far, and scales down
// what was gathered before where a maximum grew. The weights of cells from n on become 0.
template <class S, int N> INLINE void weigh(S ** qs, vf * s, int n) {
    constexpr int WIDE = BLOCK / LANES;
    if (n < BLOCK) {
        for (int i = 0; i < N; i++) {
            float * f = (float *) (s + i * WIDE);
            for (int c = n; c < BLOCK; c++) {
                f[c] = NONE;
            }
        }
    }
    float top[N];
    for (int i = 0; i < N; i++) {
        vf m = s[i * WIDE];
        for (int p = 1; p < WIDE; p++) {
            m = larger(m, s[i * WIDE + p]);
        }
        top[i] = largest(m);
    }
    for (int i = 0; i < N; i++) {
        S & q = *qs[i];
        if (top[i] > q.max) {
            q.scale_down(uma_attention_exp(q.max - top[i]));
            q.max = top[i];
        }
        for (int p = 0; p < WIDE; p++) {
            s[i * WIDE + p] -= q.max;
        }
    }
    exp_neg<N * WIDE>(s);
    for (int i = 0; i < N; i++) {
        if (n < BLOCK) {
            float * f = (float *) (s + i * WIDE);
            for (int c = n; c < BLOCK; c++) {
                f[c] = 0;
            }
        }
        for (int p = 0; p < WIDE; p++) {
            qs[i]->mass += s[i * WIDE + p];
        }
    }
}

} // namespace
