//go:build linux && (amd64 || arm64) && llama_engine && !llama_no_attention

// Attention on the CPU: softmax(scale · q·Kᵀ + mask) · V over the cells that a row may see.
//
// llama.cpp asks ggml for it (GGML_OP_FLASH_ATTN_EXT), and on a CPU it is what a step beside long conversations consists
// of: ggml walks over every cell of the pool once per row and head, and each visit is a dot product of 64 halves with its
// own horizontal sum, a scalar expf, and an accumulation that is rounded to half precision and stored again. Measured on
// a 135 M model (2 cores, Zen 4): 3 µs per row and cell it attends to, 0.25 µs per row and cell of another sequence. The linker
// puts this file in the place of ggml's function (--wrap, see attention.go); what it does differently:
//
//   - The cells a row may see are listed first, once for all layers that share a mask, so that cells of others cost a
//     comparison of four at once in one of them (attention_lists.h). The list is in the order of positions, wherever the cells lie.
//   - Some cells of the list (16 or 32) are one block: their K and V are converted and transposed once, for all query heads
//     that share them (grouped-query attention) and for all rows of a group whose lists agree there (the chunk of a prompt).
//   - Scores are computed with lanes along the cells, values with lanes along the width of a head, so that there is no sum
//     across lanes; exponentials are vectors, and V is accumulated in registers, which is also more exact. AVX-512 multiplies
//     keys and queries as 16-bit integers, unless the cache is in float32.
//   - Where there are fewer rows than threads need, at the end of a prompt's, and where a few rows of one sequence see many
//     cells, the threads share a row's cells.
//
// The arithmetic is in attention_float.h and attention_short.h; attention_kernel.h is the way over the blocks.
//
// # What a row's result depends on
//
// Blocks and parts are cut from a row's own list, not from the pool: a row's output is a function of its query and of what
// its positions hold, bit for bit. Which rows share its batch, which threads do the work, where its cells lie and what lies
// between them changes nothing. It matters beyond the last bit: where activations are rounded to 8 bits, one at the border
// of two values takes a logit along by a hundredth of the largest.
//
// # What is left to ggml
//
// Caches of other types than F32, F16, BF16, Q8_0 and Q4_0, heads wider than 576: see ours().

#if __has_include("ggml.h")

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "attention_lists.h"
#include "kernels/attention.h"
#include "ggml-cpu.h"
#include "ggml.h"
#include "ggml_op.h"
#include "kernels/matmul.h"
#include "positions.h"

extern "C" {
void ggml_barrier(struct ggml_threadpool * tp);
void ggml_threadpool_chunk_set(struct ggml_threadpool * tp, int value);
int  ggml_threadpool_chunk_add(struct ggml_threadpool * tp, int value);

void __real_ggml_compute_forward_flash_attn_ext(const struct ggml_compute_params * params, struct ggml_tensor * dst);
void __wrap_ggml_compute_forward_flash_attn_ext(const struct ggml_compute_params * params, struct ggml_tensor * dst);

enum ggml_status __real_ggml_graph_compute(struct ggml_cgraph * graph, struct ggml_cplan * plan);
enum ggml_status __wrap_ggml_graph_compute(struct ggml_cgraph * graph, struct ggml_cplan * plan);
}

#include "../src/ggml-cpu/ops.h"

#include <type_traits>
static_assert(std::is_same<decltype(ggml_compute_forward_flash_attn_ext), decltype(__wrap_ggml_compute_forward_flash_attn_ext)>::value,
              "ggml_compute_forward_flash_attn_ext");

static std::atomic<bool> enabled{true}, computed{false};

extern "C" bool uma_attention_enable(bool on) {
    return enabled.exchange(on);
}

extern "C" bool uma_attention_computed(void) {
    return computed.exchange(false, std::memory_order_relaxed);
}

extern "C" bool uma_attention_graph(const uma_attention_shape * s, const float * q, const void * k, const void * v, const uint16_t * mask, const float * sinks,
                                    const int32_t * positions, const int32_t * lines, float * out) {
    const ggml_type type  = (ggml_type) s->kind;
    const int64_t   width = s->width, rows = s->rows, cells = s->cells, heads = s->heads, kv_heads = s->kv_heads, padded = GGML_PAD(rows, 64);
    const int64_t   wider = std::max(width, s->v_width);
    const size_t    room  = (size_t) (2 * s->layers * rows * heads * wider * 4 + 2 * cells * kv_heads * wider * 4 + padded * cells * 2 + (1 << 20));
    ggml_context *  ctx    = ggml_init({room, nullptr, false});
    if (!ctx) {
        return false;
    }
    ggml_tensor * tq = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, width, heads, rows);
    ggml_tensor * tk = ggml_new_tensor_3d(ctx, type, width, kv_heads, cells);
    ggml_tensor * tv = ggml_new_tensor_3d(ctx, type, s->v_width, kv_heads, cells);
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
        const auto before = [](const void * lines, int32_t a, int32_t b) { return ((const int32_t *) lines)[a] < ((const int32_t *) lines)[b]; };
        uma_positions_add(ctx, tk->data, ggml_nbytes(tk), {&known, lines, lines ? +before : nullptr});
    }
    ggml_tensor * ts = nullptr;
    if (sinks) {
        ts = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, heads);
        memcpy(ts->data, sinks, ggml_nbytes(ts));
    }
    ggml_cgraph * graph = ggml_new_graph(ctx);
    ggml_tensor * o     = nullptr;
    for (int i = 0; i < s->layers; i++) {
        ggml_tensor * t = i == 0 ? tq : ggml_scale(ctx, tq, 1);
        o = ggml_flash_attn_ext(ctx, ggml_permute(ctx, t, 0, 2, 1, 3), ggml_permute(ctx, tk, 0, 2, 1, 3), ggml_permute(ctx, tv, 0, 2, 1, 3), tm, s->scale, s->max_bias, s->softcap);
        ggml_flash_attn_ext_add_sinks(o, ts);
        ggml_build_forward_expand(graph, o);
    }
    ggml_cplan           plan = ggml_graph_plan(graph, s->threads, nullptr);
    std::vector<uint8_t> work(plan.work_size);
    plan.work_data = work.data();
    ggml_graph_compute(graph, &plan);
    memcpy(out, o->data, ggml_nbytes(o));
    uma_positions_remove(ctx);
    ggml_free(ctx);
    return true;
}

namespace {

constexpr int64_t PROMPT      = 32;      // rows from which on a step counts as a prompt's
constexpr int64_t MOST_SHARED = 4 << 20; // floats of the results of a prompt's shared units
constexpr int64_t DEEP        = 4;       // parts that a few rows of one sequence see at least when they are computed together

// node is the operation, with names for what it reads.
struct node {
    const ggml_tensor *q, *k, *v, *mask;
    ggml_tensor *      dst;
    const float *      sinks; // of the heads, or null
    float              scale, max_bias, softcap;
    int64_t            rows, heads, kv_heads, cells, shared; // shared: query heads to a K/V head
    order              by; // of the cells

    explicit node(ggml_tensor * d) : q(d->src[0]), k(d->src[1]), v(d->src[2]), mask(d->src[3]), dst(d) {
        sinks = d->src[4] ? (const float *) d->src[4]->data : nullptr;
        memcpy(&scale, d->op_params, sizeof(scale));
        memcpy(&max_bias, d->op_params + 1, sizeof(max_bias));
        memcpy(&softcap, d->op_params + 2, sizeof(softcap));
        rows = q->ne[1], heads = q->ne[2], kv_heads = k->ne[2], cells = k->ne[1], shared = heads / kv_heads;
        const uma_order o = uma_positions(k->data);
        if (o.positions && (int64_t) o.positions->size() >= cells && k->ne[3] == 1) {
            by = {o.positions->data(), o.cells, o.before};
        }
    }
};

const char * at(const ggml_tensor * t, int64_t i1, int64_t i2, int64_t i3) {
    return (const char *) t->data + i1 * t->nb[1] + i2 * t->nb[2] + i3 * t->nb[3];
}

// room is a thread's memory. It grows to what the largest group needs and goes when the thread ends.
struct room {
    std::vector<char>  states;
    std::vector<float> slopes, sum;
    std::vector<float> parts; // of all threads, in that of the first one
    lists              seen;  // likewise
};

thread_local room mine;

// common is what the first thread has for all.
struct common {
    lists * seen;
    float * results; // of the shared units
};

// depth is how many parts the row that sees the most may see, about, where most rows see what the row before them sees, as
// those of one sequence do; else 0. It looks at a few cells only: the results do not depend on which rows are computed together.
int64_t depth(const node & n, int64_t parts) {
    constexpr int64_t SAMPLES = 16;
    int64_t           most = 0, pairs = 0;
    for (int64_t r = 1; r < n.rows; r++) {
        const uint16_t *a = (const uint16_t *) at(n.mask, r - 1, 0, 0), *b = (const uint16_t *) at(n.mask, r, 0, 0);
        bool            same = true;
        int64_t         seen = 0;
        for (int64_t i = 0; i < SAMPLES; i++) {
            const int64_t c = (2 * i + 1) * n.cells / (2 * SAMPLES);
            same &= a[c] == b[c];
            seen += b[c] == 0;
        }
        pairs += same && seen > 0;
        most = std::max(most, seen);
    }
    return 2 * pairs >= n.rows - 1 ? most * parts / SAMPLES : 0;
}

// cached reports whether the kernels read a cache of this type.
bool cached(const ggml_tensor * t) {
    switch (t->type) {
    case GGML_TYPE_F32:
    case GGML_TYPE_F16:
    case GGML_TYPE_BF16:
        return t->nb[0] == ggml_type_size(t->type);
    case GGML_TYPE_Q8_0:
    case GGML_TYPE_Q4_0:
        return t->nb[0] == ggml_type_size(t->type) && t->ne[0] % 32 == 0;
    default:
        return false;
    }
}

uma_attention_width kernel_of(const ggml_tensor * k, const ggml_tensor * v) {
    return uma_attention_kernels((int) std::max(k->ne[0], v->ne[0]));
}

// slope is what ALiBi multiplies a head's distances by: a geometric sequence (Press et al. 2022, arXiv:2108.12409), continued as
// ggml does where the number of heads is no power of two.
float slope(int64_t head, int64_t heads, float max_bias) {
    int64_t two = 1;
    while (2 * two <= heads) {
        two *= 2;
    }
    return head < two ? powf(powf(2, -max_bias / (float) two), (float) (head + 1))
                      : powf(powf(2, -max_bias / 2 / (float) two), (float) (2 * (head - two) + 1));
}

// ours reports whether our kernels compute the node.
bool ours(const ggml_tensor * dst) {
    const ggml_tensor *q = dst->src[0], *k = dst->src[1], *v = dst->src[2], *mask = dst->src[3], *sinks = dst->src[4];
    return enabled.load(std::memory_order_relaxed) && (!sinks || (sinks->type == GGML_TYPE_F32 && sinks->nb[0] == sizeof(float) && sinks->ne[0] == q->ne[2])) &&
           q->type == GGML_TYPE_F32 && q->nb[0] == sizeof(float) && dst->type == GGML_TYPE_F32 && cached(k) && cached(v) && q->ne[0] == k->ne[0] &&
           kernel_of(k, v).group &&
           q->ne[2] % k->ne[2] == 0 && q->ne[2] / k->ne[2] <= QUERIES && k->ne[2] == v->ne[2] && q->ne[3] % k->ne[3] == 0 && q->ne[3] % v->ne[3] == 0 &&
           (!mask || (mask->type == GGML_TYPE_F16 && mask->nb[0] == sizeof(uint16_t) && mask->ne[2] == 1 && k->ne[1] % 4 == 0 && mask->ne[1] >= q->ne[1]));
}

// group computes rows [from, to), which see what seen says, of the query heads of one K/V head: parts [first, last) of all, into parts where
// there is room for them, else to the end.
void group(const node & n, const uma_cells * seen, int64_t from, int64_t to, int64_t kv, int64_t stream, int64_t first, int64_t last, int64_t all,
           float * parts) {
    const uma_attention_width work = kernel_of(n.k, n.v);
    const int64_t             rows = to - from, head = kv * n.shared;
    const size_t              bytes = work.room(rows * n.shared) + 64;
    if (mine.states.size() < bytes) {
        mine.states.resize(bytes);
    }
    uma_attention_job j;
    j.k_type = n.k->type, j.v_type = n.v->type;
    j.k      = at(n.k, 0, kv, stream / (n.q->ne[3] / n.k->ne[3]));
    j.v      = at(n.v, 0, kv, stream / (n.q->ne[3] / n.v->ne[3]));
    j.k_cell = n.k->nb[1], j.v_cell = n.v->nb[1];
    j.k_width = (int) n.k->ne[0], j.v_width = (int) n.v->ne[0];
    j.k_bytes = (int) ggml_row_size(n.k->type, j.k_width), j.v_bytes = (int) ggml_row_size(n.v->type, j.v_width);
    j.rows = rows, j.heads = n.shared;
    j.seen  = seen + stream * n.rows + from;
    j.q     = (const float *) at(n.q, from, head, stream);
    j.q_row = n.q->nb[1] / sizeof(float), j.q_head = n.q->nb[2] / sizeof(float);
    j.scale = n.scale, j.softcap = n.softcap;
    j.slopes = nullptr;
    if (n.max_bias > 0) {
        mine.slopes.resize(n.shared);
        for (int64_t h = 0; h < n.shared; h++) {
            mine.slopes[h] = slope(head + h, n.heads, n.max_bias);
        }
        j.slopes = mine.slopes.data();
    }
    j.sinks = n.sinks ? n.sinks + head : nullptr;
    j.first = first, j.last = last, j.all = all;
    j.parts   = parts;
    j.out     = (float *) ((char *) n.dst->data + ((stream * n.rows + from) * n.heads + head) * n.dst->nb[1]);
    j.out_row = n.heads * n.dst->nb[1] / sizeof(float), j.out_head = n.dst->nb[1] / sizeof(float);
    j.room    = mine.states.data() + (64 - (uintptr_t) mine.states.data() % 64) % 64;
    work.group(j);
}

} // namespace

// The thread that asks for a graph is the first of those that compute it.
extern "C" ggml_status __wrap_ggml_graph_compute(ggml_cgraph * graph, ggml_cplan * plan) {
    mine.seen.graph(true);
    uma_matmul_graph(graph, plan->n_threads);
    const ggml_status status = __real_ggml_graph_compute(graph, plan);
    mine.seen.graph(false);
    return status;
}

extern "C" void __wrap_ggml_compute_forward_flash_attn_ext(const struct ggml_compute_params * params, struct ggml_tensor * dst) {
    if (!ours(dst) || (params->nth > 1 && params->wsize < sizeof(common))) {
        __real_ggml_compute_forward_flash_attn_ext(params, dst);
        return;
    }
    if (!computed.load(std::memory_order_relaxed)) {
        computed.store(true, std::memory_order_relaxed);
    }
    const node    n(dst);
    const int64_t width = kernel_of(n.k, n.v).width, streams = n.q->ne[3], wanted = 4 * params->nth;

    // Large groups share conversions, many of them share the work evenly.
    const int64_t most = std::max<int64_t>(1, QUERIES / n.shared);
    const int64_t all = (n.cells + PART - 1) / PART, record = width + 2;
    int64_t       per = std::clamp<int64_t>(n.rows * n.kv_heads * streams / wanted, 1, most);
    // A few rows of one sequence are one group, whose cells the threads share: each group reads and converts all of them.
    const bool    may  = per < n.rows && n.rows < PROMPT && n.rows <= most && streams == 1 && n.mask && params->nth > 1 && all >= DEEP && n.kv_heads < wanted &&
                         n.kv_heads * n.rows * n.shared * all * record <= MOST_SHARED;
    const int64_t deep = may ? depth(n, all) : 0;
    const bool    one_group = deep >= DEEP;
    if (one_group) {
        per = n.rows;
    }
    int64_t groups = (n.rows + per - 1) / per;
    per            = (n.rows + groups - 1) / groups; // all of one size
    groups         = (n.rows + per - 1) / per;
    // K/V heads see the same cells: with enough groups of rows to go round, a thread does all heads of one.
    const bool    whole = groups * streams >= wanted;
    const int64_t units = groups * streams * (whole ? 1 : n.kv_heads);
    // Threads share the cells of a prompt's last units, by parts: no one waits long for another. Of few units those are all.
    const int64_t room   = per * n.shared * all * record; // of a shared unit's results
    const bool    few    = units < wanted;
    const bool    worth  = few || (!whole && n.rows >= PROMPT && params->nth * room <= MOST_SHARED);
    const bool    split  = worth && params->nth > 1 && all > 1;
    const int64_t shared = !split ? 0 : few ? units : params->nth, apart = units - shared;
    const int64_t step   = one_group ? std::max<int64_t>(1, deep * units / (2 * wanted)) : few ? 1 : (all + 7) / 8; // parts
    const int64_t pieces = (all + step - 1) / step;

    common of{&mine.seen, nullptr};
    if (params->ith == 0) {
        of.seen->begin({n.mask, n.by, n.rows, n.cells, streams}, params->nth);
        if (split && (int64_t) mine.parts.size() < shared * room) {
            mine.parts.resize(shared * room);
        }
        of.results = mine.parts.data();
    }
    if (params->nth > 1) {
        if (params->ith == 0) {
            memcpy(params->wdata, &of, sizeof(of));
            ggml_threadpool_chunk_set(params->threadpool, params->nth);
        }
        ggml_barrier(params->threadpool);
        memcpy(&of, params->wdata, sizeof(of));
    }
    if (!of.seen->filled) {
        of.seen->fill(params->ith, params->nth);
        if (params->nth > 1) {
            ggml_barrier(params->threadpool);
        }
    }
    const uma_cells * seen    = of.seen->seen.data();
    float *           results = of.results;
    // rows, head and stream of a unit
    const auto unit = [&](int64_t i, int64_t & from, int64_t & to, int64_t & kv, int64_t & stream) {
        const int64_t heads = whole ? 1 : n.kv_heads, g = i / heads % groups;
        kv = i % heads, stream = i / heads / groups;
        // The last rows of a prompt see the most: they go first, so that no thread begins with them at the end.
        from = (groups - 1 - g) * per, to = std::min(n.rows, from + per);
    };
    int64_t from, to, kv, stream;
    for (int64_t u = params->ith; u < apart + shared * pieces; u = params->nth > 1 ? ggml_threadpool_chunk_add(params->threadpool, 1) : u + 1) {
        const bool one = u < apart;
        unit(one ? u : apart + (u - apart) / pieces, from, to, kv, stream);
        if (!one) {
            const int64_t first = (u - apart) % pieces * step;
            group(n, seen, from, to, kv, stream, first, std::min(first + step, all), all, results + (u - apart) / pieces * room);
            continue;
        }
        for (int64_t h = kv; h < (whole ? n.kv_heads : kv + 1); h++) {
            group(n, seen, from, to, h, stream, 0, all, all, nullptr);
        }
    }
    if (!split) {
        return;
    }
    ggml_barrier(params->threadpool);
    std::vector<float> & sum = mine.sum;
    sum.resize(record);
    for (int64_t i = params->ith; i < shared * per * n.shared; i += params->nth) {
        unit(apart + i / n.shared / per, from, to, kv, stream);
        const int64_t row = from + i / n.shared % per, head = kv * n.shared + i % n.shared;
        if (row >= to) {
            continue;
        }
        sum[0] = -std::numeric_limits<float>::infinity();
        for (int64_t p = 0; p < all; p++) {
            uma_attention_merge(sum.data(), results + (i * all + p) * record, (int) width);
        }
        uma_attention_result(sum.data(), n.sinks ? n.sinks + head : nullptr,
                             (float *) ((char *) n.dst->data + ((stream * n.rows + row) * n.heads + head) * n.dst->nb[1]), (int) n.v->ne[0]);
    }
}

#endif
