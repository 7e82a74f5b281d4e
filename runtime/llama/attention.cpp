//go:build linux && (amd64 || arm64) && !llama_system

// Attention on the CPU: softmax(scale · q·Kᵀ + mask) · V over the cells that a row may see.
//
// llama.cpp asks ggml for it (GGML_OP_FLASH_ATTN_EXT), and on a CPU it is what a step beside long conversations consists
// of: ggml walks over every cell of the pool once per row and head, and each visit is a dot product of 64 halves with its
// own horizontal sum, a scalar expf, and an accumulation that is rounded to half precision and stored again. Measured on
// a 135 M model (2 cores, Zen 4): 3 µs per row and cell it attends to, 0.25 µs per row and cell of another sequence. The linker
// puts this file in the place of ggml's function (--wrap, see attention.go); what it does differently:
//
//   - The cells a row may see are listed first, so that cells of others cost a comparison of four at once. The list is in the
//     order of positions, wherever the cells lie.
//   - Sixteen cells of the list are one block: their K and V are converted to float32 once, for all query heads that share
//     them (grouped-query attention) and for all rows of a group whose lists agree there (the chunk of a prompt).
//   - Scores are summed sixteen at a time, exponentials are vectors, and V is accumulated in float32 registers, which is
//     also more exact.
//
// # What a row's result depends on
//
// Blocks are cut from a row's own list, not from the pool: a row's output is a function of its query and of what its
// positions hold, bit for bit. Which rows share its batch, which threads do the work, where its cells lie and what lies
// between them changes nothing. It matters beyond the last bit: where activations are rounded to 8 bits (Q8_0 weights),
// one at the border of two values takes a logit along by a hundredth of the largest.
//
// # What is left to ggml
//
// Quantised caches, ALiBi, soft-capped scores, attention sinks, values of another width than the keys, head sizes that are
// no multiple of 16: see ours(). The 512 rows of a whole prompt go through here too; groups of rows make up for the lack
// of a matrix product.

#if __has_include("ggml.h")

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "attention.h"
#include "ggml-cpu.h"
#include "ggml.h"
#include "ggml_op.h"
#include "positions.h"

#if defined(__F16C__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

extern "C" {
void ggml_barrier(struct ggml_threadpool * tp);
void ggml_threadpool_chunk_set(struct ggml_threadpool * tp, int value);
int  ggml_threadpool_chunk_add(struct ggml_threadpool * tp, int value);

void __real_ggml_compute_forward_flash_attn_ext(const struct ggml_compute_params * params, struct ggml_tensor * dst);
void __wrap_ggml_compute_forward_flash_attn_ext(const struct ggml_compute_params * params, struct ggml_tensor * dst);
}

static std::atomic<bool> enabled{true};

extern "C" bool uma_attention_enable(bool on) {
    return enabled.exchange(on);
}

extern "C" bool uma_attention_graph(int threads, int kind, int64_t width, int64_t rows, int64_t cells, int64_t heads, int64_t kv_heads, float scale, const float * q,
                                    const void * k, const void * v, const uint16_t * mask, const int32_t * positions, float * out) {
    const ggml_type type   = (ggml_type) kind;
    const int64_t   padded = GGML_PAD(rows, 64);
    const size_t    room   = (size_t) (2 * rows * heads * width * 4 + 2 * cells * kv_heads * width * 4 + padded * cells * 2 + threads * width * 64 + (1 << 20));
    ggml_context *  ctx    = ggml_init({room, nullptr, false});
    if (!ctx) {
        return false;
    }
    ggml_tensor * tq = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, width, heads, rows);
    ggml_tensor * tk = ggml_new_tensor_3d(ctx, type, width, kv_heads, cells);
    ggml_tensor * tv = ggml_new_tensor_3d(ctx, type, width, kv_heads, cells);
    ggml_tensor * tm = nullptr;
    memcpy(tq->data, q, ggml_nbytes(tq));
    memcpy(tk->data, k, ggml_nbytes(tk));
    memcpy(tv->data, v, ggml_nbytes(tv));
    if (mask) {
        tm = ggml_new_tensor_2d(ctx, GGML_TYPE_F16, cells, padded);
        memset(tm->data, 0, ggml_nbytes(tm));
        memcpy(tm->data, mask, rows * cells * sizeof(uint16_t));
    }
    std::vector<int32_t> known;
    if (positions) {
        known.assign(positions, positions + cells);
        uma_positions_add(ctx, tk->data, ggml_nbytes(tk), &known);
    }
    ggml_tensor * o     = ggml_flash_attn_ext(ctx, ggml_permute(ctx, tq, 0, 2, 1, 3), ggml_permute(ctx, tk, 0, 2, 1, 3), ggml_permute(ctx, tv, 0, 2, 1, 3), tm, scale, 0, 0);
    ggml_cgraph * graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, o);
    ggml_graph_compute_with_ctx(ctx, graph, threads);
    memcpy(out, o->data, ggml_nbytes(o));
    uma_positions_remove(ctx);
    ggml_free(ctx);
    return true;
}

#if !defined(__F16C__) && !defined(__ARM_NEON)

// Without conversion instructions for halves there is nothing to win.
extern "C" void __wrap_ggml_compute_forward_flash_attn_ext(const struct ggml_compute_params * params, struct ggml_tensor * dst) {
    __real_ggml_compute_forward_flash_attn_ext(params, dst);
}

#else

namespace {

#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif

constexpr int   BLOCK   = 16; // cells
constexpr int   PARTS   = BLOCK / LANES;
constexpr int   QUERIES = 32; // rows × query heads of a group: their state is to stay in the first-level cache
constexpr float NONE    = -std::numeric_limits<float>::infinity();

typedef float   vec __attribute__((vector_size(4 * LANES)));
typedef int32_t ivec __attribute__((vector_size(4 * LANES)));

inline vec load(const float * p) {
    vec v;
    memcpy(&v, p, sizeof(v));
    return v;
}

inline void store(float * p, vec v) {
    memcpy(p, &v, sizeof(v));
}

inline vec all(float x) {
    return x - vec{};
}

inline vec larger(vec a, vec b) {
    return a > b ? a : b;
}

// pairs adds neighbours: the sums of a's pairs, then those of b's.
inline vec pairs(vec a, vec b) {
#if defined(__AVX512F__)
    return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30) +
           __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
#elif defined(__AVX__)
    return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14) + __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
#else
    return __builtin_shufflevector(a, b, 0, 2, 4, 6) + __builtin_shufflevector(a, b, 1, 3, 5, 7);
#endif
}

// sums turns LANES vectors into the vector of their sums, by a tree of pairs.
inline vec sums(vec * a) {
    for (int n = LANES; n > 1; n /= 2) {
        for (int i = 0; i < n / 2; i++) {
            a[i] = pairs(a[2 * i], a[2 * i + 1]);
        }
    }
    return a[0];
}

// largest is the maximum over the lanes.
inline float largest(vec v) {
#if defined(__AVX512F__)
    v = larger(v, __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
    v = larger(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
    v = larger(v, __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
    v = larger(v, __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14));
#elif defined(__AVX__)
    v = larger(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3));
    v = larger(v, __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5));
    v = larger(v, __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6));
#else
    v = larger(v, __builtin_shufflevector(v, v, 2, 3, 0, 1));
    v = larger(v, __builtin_shufflevector(v, v, 1, 0, 3, 2));
#endif
    return v[0];
}

inline float sum(vec v) {
    float s = 0;
    for (int i = 0; i < LANES; i++) {
        s += v[i];
    }
    return s;
}

// exp_neg turns each x ≤ 0 into e^x, to about one unit in the last place; what is below -87 becomes 1.6e-38. e^x = 2^n · e^r
// with n = round(x · log2 e), and the polynomial of Cephes' expf for e^r on |r| ≤ ln 2 / 2. N vectors go step by step
// together: each step waits for the one before, and one vector alone took a fifth of the kernel's time.
template <int N> inline void exp_neg(vec * x) {
    constexpr float round   = 12582912.f; // 1.5 · 2^23: adding it leaves no bits below the point
    constexpr float terms[] = {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
    vec             n[N], r[N], p[N];
    for (int i = 0; i < N; i++) {
        x[i] = larger(x[i], all(-87.f));
        n[i] = (x[i] * 1.44269504088896341f + round) - round;
        r[i] = (x[i] - n[i] * 0.693359375f) - n[i] * -2.12194440e-4f;
        p[i] = all(1.9875691500e-4f);
    }
    for (const float t : terms) {
        for (int i = 0; i < N; i++) {
            p[i] = p[i] * r[i] + t;
        }
    }
    for (int i = 0; i < N; i++) {
        p[i]         = p[i] * (r[i] * r[i]) + r[i] + 1.f;
        const ivec e = (__builtin_convertvector(n[i], ivec) + 127) << 23;
        x[i]         = p[i] * (vec) e;
    }
}

// widen makes float32 of n values, a multiple of 16.
inline void widen(ggml_type type, const void * from, float * to, int n) {
    switch (type) {
    case GGML_TYPE_F32:
        memcpy(to, from, n * sizeof(float));
        return;
    case GGML_TYPE_BF16:
        for (int i = 0; i < n; i++) {
            const uint32_t u = (uint32_t) ((const uint16_t *) from)[i] << 16;
            memcpy(to + i, &u, sizeof(u));
        }
        return;
    default:
        break;
    }
    const uint16_t * half = (const uint16_t *) from;
#if defined(__AVX512F__)
    for (int i = 0; i < n; i += 16) {
        _mm512_storeu_ps(to + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *) (half + i))));
    }
#elif defined(__F16C__)
    for (int i = 0; i < n; i += 8) {
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *) (half + i))));
    }
#else
    for (int i = 0; i < n; i += 4) {
        vst1q_f32(to + i, vcvt_f32_f16(vld1_f16((const __fp16 *) (half + i))));
    }
#endif
}

inline float widen(uint16_t half) {
    return ggml_fp16_to_fp32(half);
}

// cells are what a row may see: indices and what the mask adds to their scores.
struct cells {
    int32_t * at;
    float *   bias;
    int64_t   n;
};

// list fills c from a row of the mask: n halves, a multiple of 4. They are in the pool's order; it reports whether that is
// the order of positions, too.
bool list(const uint16_t * mask, int64_t n, const int32_t * position, cells & c) {
    constexpr uint16_t hidden  = 0xFC00; // -infinity
    int32_t            last    = -1;
    bool               ordered = true;
    c.n                        = 0;
    for (int64_t i = 0; i < n; i += 4) {
        uint64_t four;
        memcpy(&four, mask + i, sizeof(four));
        if (four == 0xFC00FC00FC00FC00u) {
            continue;
        }
        if (four == 0) {
            const int32_t at[4]   = {(int32_t) i, (int32_t) i + 1, (int32_t) i + 2, (int32_t) i + 3};
            const float   bias[4] = {};
            memcpy(c.at + c.n, at, sizeof(at));
            memcpy(c.bias + c.n, bias, sizeof(bias));
            c.n += 4;
            if (position) {
                const int32_t * p = position + i;
                ordered &= (p[0] >= last) & (p[1] >= p[0]) & (p[2] >= p[1]) & (p[3] >= p[2]);
                last = p[3];
            }
            continue;
        }
        for (int64_t j = i; j < i + 4; j++) {
            if (mask[j] != hidden) {
                c.at[c.n]   = (int32_t) j;
                c.bias[c.n] = mask[j] == 0 ? 0.f : widen(mask[j]);
                c.n++;
                if (position) {
                    ordered &= position[j] >= last;
                    last = position[j];
                }
            }
        }
    }
    return ordered;
}

// piece is a part of a list whose positions follow each other.
struct piece {
    int32_t position;
    int64_t from, n;
};

// sort brings c into the order of positions. A conversation lies in few pieces.
void sort(cells & c, const int32_t * position, std::vector<piece> & pieces, std::vector<int32_t> & at, std::vector<float> & bias) {
    int32_t last = 0;
    pieces.clear();
    for (int64_t i = 0; i < c.n; i++) {
        const int32_t p = position[c.at[i]];
        if (i == 0 || p != last + 1) {
            pieces.push_back({p, i, 0});
        }
        pieces.back().n++;
        last = p;
    }
    std::stable_sort(pieces.begin(), pieces.end(), [](const piece & a, const piece & b) { return a.position < b.position; });
    at.assign(c.at, c.at + c.n);
    bias.assign(c.bias, c.bias + c.n);
    int64_t to = 0;
    for (const piece & p : pieces) {
        memcpy(c.at + to, at.data() + p.from, p.n * sizeof(int32_t));
        memcpy(c.bias + to, bias.data() + p.from, p.n * sizeof(float));
        to += p.n;
    }
}

// query is a row's head: its softmax as far as the blocks have been seen.
struct query {
    const float * q;   // D, scaled
    float *       out; // D
    float         max;
    vec           mass; // Σ e^(score - max), by lanes
};

// tile is a block's K and V.
template <int D> struct alignas(64) tile {
    float k[BLOCK * D], v[BLOCK * D];
};

// scores are q · k of a block; those of the cells from n on are -infinity.
template <int D> inline void scores(const float * q, const tile<D> & t, const float * bias, int n, vec * s) {
    constexpr int W = D / LANES;
    vec           x[W];
    for (int j = 0; j < W; j++) {
        x[j] = load(q + j * LANES);
    }
    for (int p = 0; p < PARTS; p++) {
        vec a[LANES];
#pragma GCC unroll 16
        for (int c = 0; c < LANES; c++) {
            const float * k = t.k + (p * LANES + c) * D;
            a[c]            = x[0] * load(k);
#pragma GCC unroll 32
            for (int j = 1; j < W; j++) {
                a[c] += x[j] * load(k + j * LANES);
            }
        }
        s[p] = sums(a) + load(bias + p * LANES);
    }
    if (n < BLOCK) {
        float * f = (float *) s;
        for (int c = n; c < BLOCK; c++) {
            f[c] = NONE;
        }
    }
}

// weigh turns the scores of a block into weights, and scales what the queries have gathered down to their maxima.
template <int D, int N> inline void weigh(query ** qs, vec * s, int n) {
    float top[N];
    for (int i = 0; i < N; i++) {
        vec m = s[i * PARTS];
        for (int p = 1; p < PARTS; p++) {
            m = larger(m, s[i * PARTS + p]);
        }
        top[i] = largest(m);
    }
    for (int i = 0; i < N; i++) {
        query & q = *qs[i];
        if (top[i] > q.max) {
            const float down = expf(q.max - top[i]);
            for (int j = 0; j < D; j += LANES) {
                store(q.out + j, load(q.out + j) * down);
            }
            q.mass *= down;
            q.max = top[i];
        }
        for (int p = 0; p < PARTS; p++) {
            s[i * PARTS + p] -= q.max;
        }
    }
    exp_neg<N * PARTS>(s);
    for (int i = 0; i < N; i++) {
        if (n < BLOCK) {
            float * f = (float *) (s + i * PARTS);
            for (int c = n; c < BLOCK; c++) {
                f[c] = 0;
            }
        }
        for (int p = 0; p < PARTS; p++) {
            qs[i]->mass += s[i * PARTS + p];
        }
    }
}

// at_once is the largest divisor of all that is at most limit.
constexpr int at_once(int all, int limit) {
    int n = std::max(1, std::min(all, limit));
    while (all % n != 0) {
        n--;
    }
    return n;
}

// KEEP has a vector stay in its register. gcc would read it again for each of its uses, and reading is what gather waits for.
#if defined(__x86_64__)
#define KEEP(v) asm("" : "+v"(v))
#else
#define KEEP(v) asm("" : "+w"(v))
#endif

// gather adds the weighted V of a block to N queries, W vectors of each at once: what the registers hold.
template <int D, int N> inline void gather(query ** qs, const tile<D> & t, const float (*w)[BLOCK], int n) {
    constexpr int W = at_once(D / LANES, (LANES == 8 ? 8 : 16) / N);
    for (int j = 0; j < D; j += W * LANES) {
        vec o[N][W];
        for (int i = 0; i < N; i++) {
            for (int x = 0; x < W; x++) {
                o[i][x] = load(qs[i]->out + j + x * LANES);
            }
        }
        for (int c = 0; c < n; c++) {
            for (int x = 0; x < W; x++) {
                vec v = load(t.v + c * D + j + x * LANES);
                KEEP(v);
                for (int i = 0; i < N; i++) {
                    o[i][x] += v * w[i][c];
                }
            }
        }
        for (int i = 0; i < N; i++) {
            for (int x = 0; x < W; x++) {
                store(qs[i]->out + j + x * LANES, o[i][x]);
            }
        }
    }
}

template <int D, int N> void attend(query ** qs, const tile<D> & t, const float * bias, int n) {
    alignas(64) float w[N][BLOCK];
    for (int i = 0; i < N; i++) {
        scores<D>(qs[i]->q, t, bias, n, (vec *) w[i]);
    }
    weigh<D, N>(qs, (vec *) w, n);
    gather<D, N>(qs, t, w, n);
}

// node is the operation, with names for what it reads.
struct node {
    const ggml_tensor *q, *k, *v, *mask;
    ggml_tensor *      dst;
    float              scale;
    int64_t            rows, heads, kv_heads, cells, shared; // shared: query heads to a K/V head
    const int32_t *    positions; // of the cells, or null

    explicit node(ggml_tensor * d) : q(d->src[0]), k(d->src[1]), v(d->src[2]), mask(d->src[3]), dst(d) {
        memcpy(&scale, d->op_params, sizeof(scale));
        rows = q->ne[1], heads = q->ne[2], kv_heads = k->ne[2], cells = k->ne[1], shared = heads / kv_heads;
        const std::vector<int32_t> * p = uma_positions(k->data);
        positions                      = p && (int64_t) p->size() >= cells && k->ne[3] == 1 ? p->data() : nullptr;
    }
};

const char * at(const ggml_tensor * t, int64_t i1, int64_t i2, int64_t i3) {
    return (const char *) t->data + i1 * t->nb[1] + i2 * t->nb[2] + i3 * t->nb[3];
}

// room is a thread's memory. It grows to what the largest group needs and goes when the thread ends.
struct room {
    cells                seen[QUERIES]; // of the rows of a group
    int64_t              longest;       // of these lists
    std::vector<int32_t> ints;          // what they hold
    std::vector<float>   biases;
    std::vector<query>   queries;
    std::vector<float>   floats; // what those hold
    std::vector<piece>   pieces; // of a list that is being put in order
    std::vector<int32_t> at;
    std::vector<float>   bias;
};

thread_local room mine;

// look lists what rows [from, to) may see.
void look(const node & n, int64_t from, int64_t to, int64_t stream) {
    const int64_t rows = to - from, padded = n.cells + BLOCK;
    mine.ints.resize(rows * padded);
    mine.biases.resize(rows * padded);
    mine.longest = 0;
    for (int64_t r = 0; r < rows; r++) {
        cells & c = mine.seen[r];
        c         = {mine.ints.data() + r * padded, mine.biases.data() + r * padded, n.cells};
        if (n.mask) {
            if (!list((const uint16_t *) at(n.mask, from + r, 0, stream % n.mask->ne[3]), n.cells, n.positions, c)) {
                sort(c, n.positions, mine.pieces, mine.at, mine.bias);
            }
        } else {
            for (int32_t i = 0; i < n.cells; i++) {
                c.at[i] = i, c.bias[i] = 0;
            }
        }
        memset(c.bias + c.n, 0, BLOCK * sizeof(float));
        mine.longest = std::max(mine.longest, c.n);
    }
}

// group computes rows [from, to), after look, of the query heads of one K/V head: those numbered [first, last) among the shared.
template <int D> void group(const node & n, int64_t from, int64_t to, int64_t kv, int64_t first, int64_t last, int64_t stream) {
    const int64_t rows = to - from, heads = last - first;
    mine.floats.resize(2 * rows * heads * D + 64 / sizeof(float)); // for the alignment
    mine.queries.resize(rows * heads);
    float * data = mine.floats.data();
    data += (64 - (uintptr_t) data % 64) % 64 / sizeof(float);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t h = 0; h < heads; h++) {
            float *       x     = data + 2 * D * (r * heads + h);
            const float * from_ = (const float *) at(n.q, from + r, kv * n.shared + first + h, stream);
            for (int j = 0; j < D; j++) {
                x[j] = from_[j] * n.scale, x[D + j] = 0;
            }
            mine.queries[r * heads + h] = {x, x + D, NONE, vec{}};
        }
    }

    const cells * seen = mine.seen;
    static thread_local tile<D> t;
    const char *k = at(n.k, 0, kv, stream / (n.q->ne[3] / n.k->ne[3])), *v = at(n.v, 0, kv, stream / (n.q->ne[3] / n.v->ne[3]));
    for (int64_t b = 0; b < mine.longest; b += BLOCK) {
        const int32_t * have = nullptr; // whose block the tile holds
        int             held = 0;
        for (int64_t r = 0; r < rows;) {
            const cells & c    = seen[r];
            const int     here = (int) std::min<int64_t>(BLOCK, c.n - b);
            if (here <= 0) {
                r++;
                continue;
            }
            if (!have || here > held || memcmp(have, c.at + b, here * sizeof(int32_t)) != 0) {
                for (int i = 0; i < here; i++) {
                    widen(n.k->type, k + c.at[b + i] * n.k->nb[1], t.k + i * D, D);
                    widen(n.v->type, v + c.at[b + i] * n.v->nb[1], t.v + i * D, D);
                }
                for (int i = here; i < BLOCK; i++) {
                    memset(t.k + i * D, 0, D * sizeof(float));
                }
                have = c.at + b, held = here;
                // The cells of a conversation lie scattered among those of others, where no processor foresees the next.
                for (int64_t i = b + BLOCK; i < std::min(b + 2 * BLOCK, c.n); i++) {
                    for (size_t j = 0; j < D * ggml_type_size(n.k->type); j += 64) {
                        __builtin_prefetch(k + c.at[i] * n.k->nb[1] + j);
                        __builtin_prefetch(v + c.at[i] * n.v->nb[1] + j);
                    }
                }
            }
            // Rows with the very same block go on together.
            int64_t same = r + 1;
            while (here == BLOCK && same < rows && seen[same].n - b >= BLOCK && memcmp(have, seen[same].at + b, sizeof(int32_t) * BLOCK) == 0 &&
                   memcmp(c.bias + b, seen[same].bias + b, sizeof(float) * BLOCK) == 0) {
                same++;
            }
            query * batch[4];
            int     many = 0;
            for (int64_t i = r * heads; i < same * heads; i++) {
                batch[many++] = &mine.queries[i];
                if (many == 4) {
                    attend<D, 4>(batch, t, c.bias + b, here), many = 0;
                }
            }
            switch (many) {
            case 3:
                attend<D, 3>(batch, t, c.bias + b, here);
                break;
            case 2:
                attend<D, 2>(batch, t, c.bias + b, here);
                break;
            case 1:
                attend<D, 1>(batch, t, c.bias + b, here);
                break;
            }
            r = same;
        }
    }

    for (int64_t r = 0; r < rows; r++) {
        for (int64_t h = 0; h < heads; h++) {
            const query & q     = mine.queries[r * heads + h];
            const float   total = sum(q.mass), inverse = total == 0 ? 0 : 1 / total;
            const int64_t head = kv * n.shared + first + h;
            float *       to_  = (float *) ((char *) n.dst->data + ((stream * n.rows + from + r) * n.heads + head) * n.dst->nb[1]);
            for (int j = 0; j < D; j++) {
                to_[j] = q.out[j] * inverse;
            }
        }
    }
}

typedef void (*group_of)(const node &, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t);

group_of grouped(int64_t width) {
    switch (width) {
    case 32:
        return group<32>;
    case 64:
        return group<64>;
    case 80:
        return group<80>;
    case 96:
        return group<96>;
    case 128:
        return group<128>;
    case 256:
        return group<256>;
    }
    return nullptr;
}

bool wide(const ggml_tensor * t) {
    return (t->type == GGML_TYPE_F16 || t->type == GGML_TYPE_BF16 || t->type == GGML_TYPE_F32) && t->nb[0] == ggml_type_size(t->type);
}

// ours reports whether this file computes the node.
bool ours(const ggml_tensor * dst) {
    const ggml_tensor *q = dst->src[0], *k = dst->src[1], *v = dst->src[2], *mask = dst->src[3];
    float              max_bias, softcap;
    memcpy(&max_bias, dst->op_params + 1, sizeof(max_bias));
    memcpy(&softcap, dst->op_params + 2, sizeof(softcap));
    return enabled.load(std::memory_order_relaxed) && !dst->src[4] && max_bias == 0 && softcap == 0 && q->type == GGML_TYPE_F32 && q->nb[0] == sizeof(float) &&
           dst->type == GGML_TYPE_F32 && wide(k) && wide(v) && q->ne[0] == k->ne[0] && q->ne[0] == v->ne[0] && grouped(q->ne[0]) && q->ne[2] % k->ne[2] == 0 &&
           k->ne[2] == v->ne[2] && q->ne[3] % k->ne[3] == 0 && q->ne[3] % v->ne[3] == 0 &&
           (!mask || (mask->type == GGML_TYPE_F16 && mask->nb[0] == sizeof(uint16_t) && mask->ne[2] == 1 && k->ne[1] % 4 == 0 && mask->ne[1] >= q->ne[1]));
}

} // namespace

extern "C" void __wrap_ggml_compute_forward_flash_attn_ext(const struct ggml_compute_params * params, struct ggml_tensor * dst) {
    if (!ours(dst)) {
        __real_ggml_compute_forward_flash_attn_ext(params, dst);
        return;
    }
    const node     n(dst);
    const group_of work    = grouped(n.q->ne[0]);
    const int64_t  streams = n.q->ne[3], wanted = 4 * params->nth;

    // Large groups share conversions, many of them share the work evenly: the heads of a single row go one by one where
    // there are fewer K/V heads than it takes.
    const int64_t most  = std::max<int64_t>(1, QUERIES / n.shared);
    const int64_t per   = std::clamp<int64_t>(n.rows * n.kv_heads * streams / wanted, 1, most);
    const int64_t parts = (n.rows + per - 1) / per;
    // K/V heads see the same cells: with enough groups of rows to go round, a thread does all heads of one.
    const bool    whole = parts * streams >= wanted;
    const int64_t units = parts * streams * (whole ? 1 : n.kv_heads);
    const int64_t split = units >= wanted || params->nth == 1 || n.kv_heads % params->nth == 0 ? 1 : n.shared;

    if (params->nth > 1) {
        if (params->ith == 0) {
            ggml_threadpool_chunk_set(params->threadpool, params->nth);
        }
        ggml_barrier(params->threadpool);
    }
    for (int64_t u = params->ith; u < units * split; u = params->nth > 1 ? ggml_threadpool_chunk_add(params->threadpool, 1) : u + 1) {
        const int64_t part = u / split % parts, kv = whole ? 0 : u / split / parts % n.kv_heads, stream = u / split / parts / (whole ? 1 : n.kv_heads);
        const int64_t heads = n.shared / split, first = u % split * heads;
        // The last rows of a prompt see the most: they go first, so that no thread begins with them at the end.
        const int64_t from = (parts - 1 - part) * per, to = std::min(n.rows, from + per);
        look(n, from, to, stream);
        for (int64_t i = kv; i < (whole ? n.kv_heads : kv + 1); i++) {
            work(n, from, to, i, first, first + heads, stream);
        }
    }
}

#endif
#endif
