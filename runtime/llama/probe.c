//go:build llama_engine || llama_system

// One pass over a row of raw logits: max, argmax, log-sum-exp, entropy, and where the close ids stand.
//
// A row of 152,064 float32 is 600 KB: it passes through the first-level cache in blocks of BLOCK entries, and each
// block is looked at twice while it is there. survey finds its largest entry, how many lie above the best close id,
// and whether anything in it is not a number. weigh then sums e^(x-m) and (x-m)·e^(x-m), with m the largest entry so
// far; when a block raises m, the sums of the blocks before are scaled down to it. With Z = Σ e^(x-m),
//
//     log-sum-exp = m + ln Z        entropy = ln Z - Σ (x-m)·e^(x-m) / Z
//
// and in the second all terms are of one sign, so that nothing cancels.
//
// # What is left out, and the bound
//
// With c = PRUNE + ln n, a block whose largest entry is more than c below m is not exponentiated. What is left out so
// has together less than n·e^-c = e^-PRUNE = 2.1e-9 of the mass, and as -p·ln p grows with p there, less than
// e^-PRUNE·c = 6.6e-8 nats of the entropy at n = 152,064. (m only grows, so what was far below it stays so.)
//
// # How it becomes vector code without -ffast-math
//
// The loops have no branches, and the two things a compiler may not do by itself are said where they are wanted: the
// order of a sum is free in the loops marked SUMS, and nowhere else. NaN and infinities are told by their bits, so that
// neither the operands' order in a vector maximum nor flags given to the whole build decide what happens to them.
// Nothing becomes a denormal: the argument of exp_neg has a floor.

#include "probe.h"

#include <math.h>
#include <string.h>

#include "bridge.h"

enum { BLOCK = 1024, PART = 128 };

#define PRUNE 20.0

#if defined(__clang__)
#define SUMS(of) _Pragma("clang loop vectorize(enable) interleave(enable)")
#else
#define TEXT(x) #x
#define SUMS(of) PRAGMA(omp simd of)
#define PRAGMA(x) _Pragma(TEXT(x))
#endif

#define MAGNITUDE 0x7fffffffu
#define INFINITE 0x7f800000u // and any larger magnitude is a NaN

static inline uint32_t bits(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof(u));
    return u;
}

static inline float from_bits(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof(x));
    return x;
}

// The order of int32 over these keys is the order of the floats, -0 before +0 and the NaNs outside of the infinities.
// It is its own inverse.
static inline int32_t order(int32_t b) { return b ^ ((b >> 31) & (int32_t) MAGNITUDE); }

static inline int dropped(uint32_t b) { return b == INFINITE || (b & MAGNITUDE) > INFINITE; }

// e^d for d in [-85, 0], within 3e-7 of it relatively, e^0 = 1 exactly. With k the integer nearest to d/ln 2,
// e^d = 2^k·e^r and |r| ≤ ln 2/2; the polynomial is Chebyshev's fit to (e^r-1)/r there, and k goes to the exponent.
static inline float exp_neg(float d) {
    int32_t k = (int32_t) (d * 1.44269504f - 0.5f); // d ≤ 0, so cutting rounds up
    float   r = d - (float) k * 0.693147181f;
    float   p = 0.008363203f;
    p = p * r + 0.041875854f;
    p = p * r + 0.166665769f;
    p = p * r + 0.499993709f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return from_bits(bits(p) + ((uint32_t) k << 23));
}

typedef struct {
    float   max;
    int32_t above; // entries larger than the bound
    int     odd;   // the block holds what must be dropped; the other two are void
} survey;

static survey look(const float * x, int32_t n, float bound) {
    int32_t  max = INT32_MIN, above = 0;
    uint32_t top = 0;
    SUMS(reduction(max : max, top) reduction(+ : above))
    for (int32_t i = 0; i < n; i++) {
        int32_t  b = (int32_t) bits(x[i]), key = order(b);
        uint32_t a = (uint32_t) b & MAGNITUDE;
        max = key > max ? key : max;
        top = a > top ? a : top;
        above += x[i] > bound;
    }
    survey s = {from_bits((uint32_t) order(max)), above, top > INFINITE || max == (int32_t) INFINITE};
    return s;
}

typedef struct {
    double sum, dot; // Σ e^(x-m) and Σ (x-m)·e^(x-m)
} weight;

// PART entries are summed in float32: of more, all alike and so all rounded to the same side, the sum would be off by
// nearly what the probe may be. floor must not be known to the compiler: it would split the loop for what lies below.
static weight weigh(const float * x, int32_t n, float m, float floor) {
    weight w = {0, 0};
    for (; n > 0; x += PART, n -= PART) {
        int32_t part = n < PART ? n : PART;
        float   sum = 0, dot = 0;
        SUMS(reduction(+ : sum, dot))
        for (int32_t i = 0; i < part; i++) {
            float d = x[i] - m;
            d = d > floor ? d : floor;
            float e = exp_neg(d);
            sum += e;
            dot += d * e;
        }
        w.sum += sum;
        w.dot += dot;
    }
    return w;
}

// clean copies a block with -infinity in the place of what must be dropped, and returns how many that were.
static int32_t clean(const float * x, int32_t n, float * dst) {
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++) {
        uint32_t b = bits(x[i]);
        int      drop = dropped(b);
        dst[i] = from_bits(drop ? INFINITE | ~MAGNITUDE : b);
        count += drop;
    }
    return count;
}

// A loader gives entries from … from+n of a row as float32, in buf when they are not already.
typedef const float * loader(const void * row, int32_t from, int32_t n, float * buf);

static inline const float * load_f32(const void * row, int32_t from, int32_t n, float * buf) {
    (void) n, (void) buf;
    return (const float *) row + from;
}

// The half's exponent and fraction, shifted to a float's place, are 2^112 too small; the product also makes its
// denormals right. Infinities and NaNs keep an exponent of all ones.
static inline const float * load_f16(const void * row, int32_t from, int32_t n, float * buf) {
    const uint16_t * h = (const uint16_t *) row + from;
    for (int32_t i = 0; i < n; i++) {
        uint32_t u = h[i], magnitude = (u & 0x7fff) << 13;
        uint32_t ones = magnitude >= 0x7c00u << 13 ? INFINITE : 0;
        buf[i] = from_bits(bits(from_bits(magnitude) * 0x1p112f) | ones | (u & 0x8000) << 16);
    }
    return buf;
}

static inline const float * load_bf16(const void * row, int32_t from, int32_t n, float * buf) {
    const uint16_t * h = (const uint16_t *) row + from;
    for (int32_t i = 0; i < n; i++) {
        buf[i] = from_bits((uint32_t) h[i] << 16);
    }
    return buf;
}

static inline float at(const void * row, int32_t i, loader * load) {
    float buf[1];
    return *load(row, i, 1, buf);
}

// probe is inlined into one function for each loader.
__attribute__((always_inline)) static inline uma_row_stats probe(
    const void * row, int32_t n, loader * load, const int32_t * close, int32_t n_close) {
    uma_row_stats st = {-INFINITY, 0, 0, -INFINITY, -1, -1, 0};

    float bound = -INFINITY; // the best close id's logit
    int   ranked = 0;
    for (int32_t j = 0; j < n_close; j++) {
        if (close[j] >= 0 && close[j] < n) {
            float v = at(row, close[j], load);
            if (!dropped(bits(v))) {
                ranked = 1;
                bound = v > bound ? v : bound;
            }
        }
    }

    const double c = PRUNE + log((double) (n > 0 ? n : 1));
    const float  floor = (float) -(2 * c); // 2c ≤ 83, and what lies there has no weight left
    float        buf[BLOCK], cleaned[BLOCK];
    weight       w = {0, 0};
    int32_t      above = 0, first = 0;
    for (int32_t from = 0; from < n; from += BLOCK) {
        int32_t       len = n - from < BLOCK ? n - from : BLOCK;
        const float * x = load(row, from, len, buf);
        survey        s = look(x, len, bound);
        if (s.odd) {
            st.non_finite += clean(x, len, cleaned);
            x = cleaned;
            s = look(x, len, bound);
        }
        above += s.above;
        if (s.max > st.max) {
            if (w.sum > 0) {
                double down = (double) st.max - s.max, e = exp(down);
                w.dot = e > 0 ? (w.dot + down * w.sum) * e : 0;
                w.sum *= e;
            }
            st.max = s.max;
            first = from;
        } else if (s.max == -INFINITY || s.max < st.max - c) {
            continue;
        }
        weight b = weigh(x, len, st.max, floor);
        w.sum += b.sum;
        w.dot += b.dot;
    }
    if (ranked) {
        st.close_rank = above;
    }
    if (w.sum == 0) {
        return st; // nothing above -infinity
    }

    const float * x = load(row, first, n - first < BLOCK ? n - first : BLOCK, buf);
    int32_t       at_max = 0;
    while (dropped(bits(x[at_max])) || x[at_max] != st.max) {
        at_max++;
    }
    st.argmax = first + at_max;
    st.log_sum_exp = st.max + log(w.sum);
    st.entropy = log(w.sum) - w.dot / w.sum;
    for (int32_t j = 0; j < n_close; j++) {
        if (close[j] >= 0 && close[j] < n) {
            float v = at(row, close[j], load);
            if (!dropped(bits(v))) {
                st.close_mass += exp(v - st.log_sum_exp);
            }
        }
    }
    return st;
}

uma_row_stats uma_probe_f32(const float * row, int32_t n, const int32_t * close, int32_t n_close) {
    return probe(row, n, load_f32, close, n_close);
}

uma_row_stats uma_probe_f16(const uint16_t * row, int32_t n, const int32_t * close, int32_t n_close) {
    return probe(row, n, load_f16, close, n_close);
}

uma_row_stats uma_probe_bf16(const uint16_t * row, int32_t n, const int32_t * close, int32_t n_close) {
    return probe(row, n, load_bf16, close, n_close);
}

uma_row_stats uma_probe_row(struct llama_context * ctx, int32_t i, int32_t n, const int32_t * close, int32_t n_close) {
    return uma_probe_f32(llama_get_logits_ith(ctx, i), n, close, n_close);
}
