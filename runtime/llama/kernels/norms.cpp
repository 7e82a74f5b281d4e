//go:build linux && (amd64 || arm64) && llama_engine && !llama_no_products && !llama_no_norms

// Norms and rotations of a step's rows. ggml adds up the squares of a row one after the other, in float64, and waits for each
// addition; it computes the angles of a position again in each layer, and rotates one pair after the other. Of a prompt's time on a
// 135 M model that was a twelfth. Here the squares of up to eight rows are added side by side, each in ggml's order, a thread keeps
// the angles of its rows for the next layers, and a rotation is a few vectors. The results are ggml's, bit for bit.
//
// The linker puts these functions in the place of ggml's (--wrap, see norms.go).

#if __has_include("ggml.h")

#include "norms.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "../src/ggml-cpu/ops.h"
#include "ggml-cpu.h"
#include "ggml.h"
#include "../ggml_op.h"

extern "C" {
void __real_ggml_compute_forward_rms_norm(const struct ggml_compute_params * p, struct ggml_tensor * dst);
void __wrap_ggml_compute_forward_rms_norm(const struct ggml_compute_params * p, struct ggml_tensor * dst);
void __real_ggml_compute_forward_rms_norm_mul_fused(const struct ggml_compute_params * p, struct ggml_tensor * norm, struct ggml_tensor * mul);
void __wrap_ggml_compute_forward_rms_norm_mul_fused(const struct ggml_compute_params * p, struct ggml_tensor * norm, struct ggml_tensor * mul);
void __real_ggml_compute_forward_rope(const struct ggml_compute_params * p, struct ggml_tensor * dst);
void __wrap_ggml_compute_forward_rope(const struct ggml_compute_params * p, struct ggml_tensor * dst);
}

static_assert(std::is_same_v<decltype(ggml_compute_forward_rms_norm), decltype(__real_ggml_compute_forward_rms_norm)> &&
                  std::is_same_v<decltype(ggml_compute_forward_rms_norm_mul_fused), decltype(__real_ggml_compute_forward_rms_norm_mul_fused)> &&
                  std::is_same_v<decltype(ggml_compute_forward_rope), decltype(__real_ggml_compute_forward_rope)>,
              "what --wrap replaces");

namespace {

std::atomic<bool> enabled{true};
std::atomic<int>  computed{0}; // UMA_NORM, UMA_ROTATION

void note(int what) {
    if (!(computed.load(std::memory_order_relaxed) & what)) {
        computed.fetch_or(what, std::memory_order_relaxed);
    }
}

using f4 = float __attribute__((vector_size(16)));
using f8 = float __attribute__((vector_size(32)));
using i8 = int32_t __attribute__((vector_size(32)));
using d4 = double __attribute__((vector_size(32)));

template <class V> V load(const float * p) {
    V v;
    memcpy(&v, p, sizeof(v));
    return v;
}

// alone keeps a product from becoming a part of the sum behind it, which would then be rounded once.
template <class V> V alone(V v) {
#if defined(__AVX__)
    asm("" : "+x"(v));
#else // registers of 16 bytes
    constexpr int SIZE = sizeof(V) < sizeof(f4) ? sizeof(V) : sizeof(f4), PARTS = sizeof(V) / SIZE;
    std::conditional_t<std::is_same_v<V, float>, float, f4> part[PARTS];
    memcpy(part, &v, sizeof(v));
    for (auto & p : part) {
#if defined(__x86_64__)
        asm("" : "+x"(p));
#else
        asm("" : "+w"(p));
#endif
    }
    memcpy(&v, part, sizeof(v));
#endif
    return v;
}

// row is row i of a tensor's, counted through all its dimensions; one with fewer rows is repeated.
char * row(const ggml_tensor * t, const ggml_tensor * of, int64_t i) {
    const int64_t i1 = i % of->ne[1], i2 = i / of->ne[1] % of->ne[2], i3 = i / of->ne[1] / of->ne[2];
    return (char *) t->data + i1 % t->ne[1] * t->nb[1] + i2 % t->ne[2] * t->nb[2] + i3 % t->ne[3] * t->nb[3];
}

// squares adds up the squares of FOURS times four rows.
template <int FOURS> void squares(const float * const * x, int64_t n, double * sums) {
    d4      sum[FOURS] = {};
    int64_t c          = 0;
    for (; c + 4 <= n; c += 4) {
        for (int f = 0; f < FOURS; f++) {
            f4 r[4];
            for (int i = 0; i < 4; i++) {
                r[i] = load<f4>(x[4 * f + i] + c);
                r[i] = alone(r[i] * r[i]);
            }
            const f4 a = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5), b = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
            const f4 d = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7), e = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
            sum[f] += __builtin_convertvector(__builtin_shufflevector(a, b, 0, 1, 4, 5), d4);
            sum[f] += __builtin_convertvector(__builtin_shufflevector(a, b, 2, 3, 6, 7), d4);
            sum[f] += __builtin_convertvector(__builtin_shufflevector(d, e, 0, 1, 4, 5), d4);
            sum[f] += __builtin_convertvector(__builtin_shufflevector(d, e, 2, 3, 6, 7), d4);
        }
    }
    for (int i = 0; i < 4 * FOURS; i++) {
        sums[i] = sum[i / 4][i % 4];
        for (int64_t j = c; j < n; j++) {
            const float square = x[i][j] * x[i][j];
            sums[i] += (double) square;
        }
    }
}

// scaled writes x · scale, times w where there is one.
void scaled(float * y, const float * x, const float * w, float scale, int64_t n) {
    const f8 s = scale - f8{};
    int64_t  c = 0;
    for (; c + 8 <= n; c += 8) {
        f8 v = alone(load<f8>(x + c) * s);
        if (w) {
            v *= load<f8>(w + c);
        }
        memcpy(y + c, &v, sizeof(v));
    }
    for (; c < n; c++) {
        const float v = x[c] * scale;
        y[c]          = w ? v * w[c] : v;
    }
}

// norm does this thread's rows of x / sqrt(mean square + eps), times w where there is one.
void norm(const ggml_compute_params * p, const ggml_tensor * norm, const ggml_tensor * w, ggml_tensor * dst) {
    const ggml_tensor * x = norm->src[0];
    const int64_t       n = x->ne[0], all = ggml_nrows(x), end = all * (p->ith + 1) / p->nth;
    float               eps;
    memcpy(&eps, norm->op_params, sizeof(eps));
    constexpr int MOST = 8;
    for (int64_t i = all * p->ith / p->nth; i < end; i += MOST) {
        const int     rows = (int) std::min<int64_t>(MOST, end - i);
        const float * from[MOST];
        double        sums[MOST];
        for (int r = 0; r < MOST; r++) { // the last row again for those that are missing
            from[r] = (const float *) row(x, x, i + std::min(r, rows - 1));
        }
        rows > 4 ? squares<2>(from, n, sums) : squares<1>(from, n, sums);
        for (int r = 0; r < rows; r++) {
            const float mean = (float) (sums[r] / (double) n), scale = 1.0f / sqrtf(mean + eps);
            scaled((float *) row(dst, x, i + r), from[r], w ? (const float *) row(w, x, i + r) : nullptr, scale, n);
        }
    }
    note(UMA_NORM);
}

bool floats(const ggml_tensor * t) {
    return t->type == GGML_TYPE_F32 && t->nb[0] == sizeof(float);
}

// A single row gains nothing: its squares are added one after the other, and one thread has it.
bool norms(const ggml_tensor * x, const ggml_tensor * dst) {
    return enabled.load(std::memory_order_relaxed) && floats(x) && floats(dst) && ggml_nrows(x) > 1;
}

// angles are the cosines and sines of some positions, as ggml computes them.
struct angles {
    int32_t              params[GGML_MAX_OP_PARAMS / sizeof(int32_t)] = {};
    std::vector<float>   factors, table; // of a row: the pairs' cosines and sines in turn, or all cosines and then all sines
    std::vector<int32_t> positions;

    // same reports whether they are those of a node for tokens from … to-1.
    bool same(const ggml_tensor * op, int64_t from, int64_t to) const {
        const ggml_tensor * f = op->src[2];
        return (int64_t) positions.size() == to - from && !memcmp(params, op->op_params, sizeof(params)) &&
               !memcmp(positions.data(), (const int32_t *) op->src[1]->data + from, (to - from) * sizeof(int32_t)) && (f ? !factors.empty() : factors.empty()) &&
               (!f || !memcmp(factors.data(), f->data, factors.size() * sizeof(float)));
    }

    void fill(const ggml_tensor * op, int64_t from, int64_t to) {
        memcpy(params, op->op_params, sizeof(params));
        const int32_t * at = (const int32_t *) op->src[1]->data;
        const float *   f  = op->src[2] ? (const float *) op->src[2]->data : nullptr;
        const int       dims = params[1], pairs = dims / 2;
        const bool      halves = params[2] == GGML_ROPE_TYPE_NEOX;
        float           base, scale, magnitude;
        memcpy(&base, params + 5, sizeof(base)), memcpy(&scale, params + 6, sizeof(scale)), memcpy(&magnitude, params + 8, sizeof(magnitude));
        positions.assign(at + from, at + to);
        factors.assign(f, f ? f + pairs : f);
        table.resize((to - from) * dims);
        const float step = powf(base, -2.0f / dims);
        for (int64_t t = from; t < to; t++) {
            float * row   = table.data() + (t - from) * dims;
            float   theta = (float) at[t];
            for (int i = 0; i < pairs; i++, theta *= step) {
                const float angle                  = scale * (theta / (f ? f[i] : 1.0f));
                row[halves ? i : 2 * i]             = cosf(angle) * magnitude;
                row[halves ? pairs + i : 2 * i + 1] = sinf(angle) * magnitude;
            }
        }
    }
};

// A model has one or two kinds of rotations; those of one layer's queries and keys are the same.
thread_local angles kept[2];
thread_local int    newest;

const float * angles_of(const ggml_tensor * op, int64_t from, int64_t to) {
    for (int i : {newest, 1 - newest}) {
        if (kept[i].same(op, from, to)) {
            newest = i;
            return kept[i].table.data();
        }
    }
    newest = 1 - newest;
    kept[newest].fill(op, from, to);
    return kept[newest].table.data();
}

// turn rotates a pair. The first product of each sum is not rounded before the addition, as compilers form ggml's.
template <class V> void turn(V x, V y, V cos, V sin, V & to_x, V & to_y) {
    to_x = x * cos - alone(y * sin);
    to_y = x * sin + alone(y * cos);
}

// pairs rotates neighbours; table has a cosine and a sine for each pair.
void pairs(float * y, const float * x, const float * table, int64_t n) {
    int64_t c = 0;
    for (; c + 8 <= n; c += 8) {
        const f8 v = load<f8>(x + c), t = load<f8>(table + c);
        const f8 first = __builtin_shufflevector(v, v, 0, 0, 2, 2, 4, 4, 6, 6), second = __builtin_shufflevector(v, v, 1, 1, 3, 3, 5, 5, 7, 7);
        const f8 turned = (f8) ((i8) __builtin_shufflevector(t, t, 1, 0, 3, 2, 5, 4, 7, 6) ^ i8{INT32_MIN, 0, INT32_MIN, 0, INT32_MIN, 0, INT32_MIN, 0}); // -sin, cos
        const f8 sum = first * t + alone(second * turned);
        memcpy(y + c, &sum, sizeof(sum));
    }
    for (; c < n; c += 2) {
        float a, b;
        turn(x[c], x[c + 1], table[c], table[c + 1], a, b);
        y[c] = a, y[c + 1] = b;
    }
}

// halves rotates the first half against the second; table has n/2 cosines and as many sines.
void halves(float * y, const float * x, const float * table, int64_t n) {
    const int64_t half = n / 2;
    int64_t       c    = 0;
    for (; c + 8 <= half; c += 8) {
        f8 a, b;
        turn(load<f8>(x + c), load<f8>(x + half + c), load<f8>(table + c), load<f8>(table + half + c), a, b);
        memcpy(y + c, &a, sizeof(a)), memcpy(y + half + c, &b, sizeof(b));
    }
    for (; c < half; c++) {
        float a, b;
        turn(x[c], x[half + c], table[c], table[half + c], a, b);
        y[c] = a, y[half + c] = b;
    }
}

// rotates reports whether a rotation is computed here: pairs of one position for each token, without YaRN's blend of two angles.
bool rotates(const ggml_tensor * op) {
    const ggml_tensor * x = op->src[0];
    float               blend;
    memcpy(&blend, op->op_params + 7, sizeof(blend));
    return enabled.load(std::memory_order_relaxed) && floats(x) && floats(op) && x->ne[3] == 1 && blend == 0 &&
           (op->op_params[2] == GGML_ROPE_TYPE_NORMAL || op->op_params[2] == GGML_ROPE_TYPE_NEOX);
}

} // namespace

void __wrap_ggml_compute_forward_rms_norm(const struct ggml_compute_params * p, struct ggml_tensor * dst) {
    if (!norms(dst->src[0], dst)) {
        __real_ggml_compute_forward_rms_norm(p, dst);
        return;
    }
    norm(p, dst, nullptr, dst);
}

void __wrap_ggml_compute_forward_rms_norm_mul_fused(const struct ggml_compute_params * p, struct ggml_tensor * of, struct ggml_tensor * mul) {
    const ggml_tensor * w = mul->src[0] == of ? mul->src[1] : mul->src[0];
    if (!norms(of->src[0], mul) || !floats(w)) {
        __real_ggml_compute_forward_rms_norm_mul_fused(p, of, mul);
        return;
    }
    norm(p, of, w, mul);
}

void __wrap_ggml_compute_forward_rope(const struct ggml_compute_params * p, struct ggml_tensor * dst) {
    if (!rotates(dst)) {
        __real_ggml_compute_forward_rope(p, dst);
        return;
    }
    const ggml_tensor * x     = dst->src[0];
    const int64_t       dims = dst->op_params[1], first = dst->op_params[15], width = x->ne[0], heads = x->ne[1], tokens = x->ne[2];
    const bool          neox = dst->op_params[2] == GGML_ROPE_TYPE_NEOX;
    // Many tokens are shared out by tokens: queries and keys of one thread are then of the same positions.
    const int64_t unit = tokens >= 4 * p->nth ? heads : 1, all = tokens * heads / unit;
    const int64_t from = all * p->ith / p->nth * unit, to = all * (p->ith + 1) / p->nth * unit;
    if (from >= to) {
        return;
    }
    const int64_t begin = from / heads;
    const float * table = angles_of(dst, begin, (to - 1) / heads + 1);
    for (int64_t i = from; i < to; i++) {
        const float * in  = (const float *) ((const char *) x->data + i % heads * x->nb[1] + i / heads * x->nb[2]);
        float *       out = (float *) ((char *) dst->data + i % heads * dst->nb[1] + i / heads * dst->nb[2]);
        (neox ? halves : pairs)(out + first, in + first, table + (i / heads - begin) * dims, dims);
        if (in != out) {
            memcpy(out, in, first * sizeof(float));
            memcpy(out + first + dims, in + first + dims, (width - first - dims) * sizeof(float));
        }
    }
    note(UMA_ROTATION);
}

void uma_norms_use(bool on) { enabled = on; }

int uma_norms_computed(void) { return computed.exchange(0); }

bool uma_norms_graph(const uma_norms_case * s, const float * x, const float * w, const int32_t * positions, int threads, float * out) {
    const int64_t  n   = s->width * s->heads * s->tokens;
    ggml_context * ctx = ggml_init({(size_t) (n * (s->layers + 2) * 4 + (s->width * s->heads + s->tokens) * 4 + (1 << 20)), nullptr, false});
    if (!ctx) {
        return false;
    }
    ggml_tensor * t = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, s->width, s->heads, s->tokens);
    memcpy(t->data, x, ggml_nbytes(t));
    ggml_tensor * by = nullptr;
    if (w) {
        by = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, s->width);
        memcpy(by->data, w, ggml_nbytes(by));
    }
    ggml_tensor * at = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, s->tokens);
    memcpy(at->data, positions, ggml_nbytes(at));
    for (int i = 0; i < s->layers; i++) {
        if (s->dims == 0) {
            t = ggml_rms_norm(ctx, t, s->eps);
            t = by ? ggml_mul(ctx, t, by) : t;
            continue;
        }
        const auto rotated = s->in_place ? ggml_rope_ext_inplace : ggml_rope_ext;
        t = rotated(ctx, t, at, by, s->dims, s->neox ? GGML_ROPE_TYPE_NEOX : GGML_ROPE_TYPE_NORMAL, 4096, i % 2 ? 2 * s->base : s->base, s->scale, 0, s->magnitude, 32, 1);
    }
    ggml_cgraph * graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, t);
    ggml_cplan           plan = ggml_graph_plan(graph, threads, nullptr);
    std::vector<uint8_t> work(plan.work_size + 64);
    plan.work_data = work.data();
    ggml_graph_compute(graph, &plan);
    memcpy(out, t->data, ggml_nbytes(t));
    ggml_free(ctx);
    return true;
}

#endif
