//go:build linux && (amd64 || arm64) && llama_engine && !llama_no_products

// Quantised weights times a few rows of activations.
//
// A step of a server is a product of the whole model with as many rows as there are tokens in the step: one for each
// conversation that decodes, and a prompt's chunk. Reading the weights takes the same time for all of them, so a handful
// of rows could cost what one costs. ggml's products do not get there: they form dot products along the rows of the
// weights, which leaves four instructions per 32 products that are no products (scales, conversions, and a sum for each
// pair of rows), and unpack the weights again for each row or four. ggml's CPU backend asks its extra buffer types for each node of
// a graph whether one of them computes it, before it looks at its own functions (ggml-cpu/traits.h; so its repacking, AMX and
// KleidiAI come in). This file adds one that claims the products which it computes. Here a vector's lanes are rows of weights:
//
//   - A strip of as many rows as there are lanes is unpacked and transposed, block by block, so that a vector holds four
//     bytes of each row. Eight rows of activations (four in AVX2) pass by while the weights are in registers; for many of
//     them the strip stays in the first- or second-level cache. No second copy of the weights is in memory.
//   - One instruction then multiplies the weights with four broadcast activations and adds to the sums of all lanes; the scales
//     cost three or four instructions per block of 32 values, and there is no sum across lanes.
//
// A row's result is the same whatever the number of rows: a token's result does not depend on who shares its step, bit for
// bit. ggml's differs between one row and several.
//
// Instruction sets: matmul_avx512.cpp (with AMX of matmul_amx.h), matmul_avxvnni.cpp, matmul_avx2.cpp, matmul_i8mm.cpp, matmul_neon.cpp. The processor chooses.

#if __has_include("ggml.h")

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <vector>

#include "../src/ggml-backend-impl.h"
#include "../src/ggml-cpu/traits.h"
#include "kernels/attention.h"
#include "barrier.h"
#include "ggml-cpu.h"
#include "ggml.h"
#include "ggml_op.h"
#include "kernels/matmul.h"

extern "C" {
void ggml_barrier(struct ggml_threadpool * tp);
void ggml_threadpool_chunk_set(struct ggml_threadpool * tp, int value);
int  ggml_threadpool_chunk_add(struct ggml_threadpool * tp, int value);
}

namespace {

// From the fastest to the slowest.
const uma_kernels * const known[] = {
#if defined(__x86_64__)
    &uma_kernels_amx,
    &uma_kernels_avx512,
    &uma_kernels_avxvnni,
    &uma_kernels_avx2,
#else
    &uma_kernels_i8mm,
    &uma_kernels_neon,
#endif
};

// fastest leaves out those that are tried first, unless tried is true.
const uma_kernels * fastest(bool tried) {
#if defined(__x86_64__)
    __builtin_cpu_init();
#endif
    for (const uma_kernels * k : known) {
        if (k->faster ? tried && k->here() && k->faster() : k->here()) {
            return k;
        }
    }
    return nullptr;
}

// in_use is null where the products are ggml's. Nothing is tried here, in programs that may not compute at all.
std::atomic<const uma_kernels *> in_use{fastest(false)};

// room is a thread's memory; it grows to what the widest weights and the most rows need.
struct room {
    std::vector<char> bytes;

    char * of(size_t n) {
        if (bytes.size() < n + 64) {
            bytes.resize(n + 64);
        }
        return bytes.data() + (64 - (uintptr_t) bytes.data() % 64) % 64;
    }
};

thread_local room rows, strip;

constexpr int64_t GROUP = 8, PART = 32; // rows of the kernels' largest group, and the fewest of a part of a strip

// pieces cuts the strips of a product into pieces. Each thread begins with half of its even share and takes small pieces as
// long as there are some: a thread on a slower core, or one that another process interrupts, does fewer of them. With many rows
// the small pieces become smaller and smaller, down to a part of a strip's rows, so that no thread waits for another's whole strip.
struct pieces {
    int64_t strips, parts; // parts of a strip: where a piece begins and ends is counted in these
    int     threads;

    // Of rows that are not prepared in common a strip is one part.
    pieces(const uma_job & j, int size, int threads)
        : strips((j.m + size - 1) / size), parts(threads == 1 || !j.rows ? 1 : std::clamp<int64_t>(j.n / PART, 1, 4)), threads(threads) {}

    // small is how many pieces per thread the second half has: at most as many as there are strips.
    int64_t small() const {
        const int64_t each = (strips - strips / 2) / threads;
        return each < 1 ? 1 : each > 8 ? 8 : each;
    }
    int64_t count() const { return threads == 1 ? 1 : (1 + small()) * threads; }
    int64_t begin(int64_t i) const {
        if (threads == 1) {
            return i == 0 ? 0 : strips;
        }
        const int64_t half = strips / 2, all = small() * threads, rest = all - (i - threads);
        if (i <= threads) {
            return half * i / threads * parts;
        }
        if (parts == 1) {
            return strips - (strips - half) * rest / all;
        }
        const int64_t left = (strips - half) * parts * rest * rest / (all * all);
        return strips * parts - (left > 2 * threads * parts ? (left + parts - 1) / parts * parts : left); // whole strips at first
    }

    // some is the product with the rows of parts [a, b). The kernels' groups of rows are whole.
    uma_job some(const uma_kernels * kernels, uma_job j, int64_t a, int64_t b) const {
        const int64_t end = b == parts ? j.n : j.n * b / parts / GROUP * GROUP;
        j.n               = j.n * a / parts / GROUP * GROUP;
        j.rows += kernels->rows_bytes(j);
        j.c += j.n * j.c_row;
        j.n = end - j.n;
        return j;
    }
};

// The piece that a thread has taken and not begun. Where a node of the graph has several products, or has the rows of another
// one, their pieces are numbered through. A thread takes a piece before it computes the one before, so that its weights come in meanwhile.
thread_local int64_t taken;

// numbered is how many pieces have numbers before those of the next product.
thread_local int64_t numbered;

// followers remembers where a thread began in the product that came after one, because a step computes the same products as the
// last one did: the first weights of a product come in while the one before ends, and while the thread waits at a barrier. An
// entry that is out of date costs prefetches that are of no use, and no more.
class followers {
    struct entry {
        const char * product;
        uma_range    first;
    };
    static constexpr int SETS = 256, WAYS = 4; // a large model has some hundred matrices
    std::vector<entry>   entries = std::vector<entry>(SETS * WAYS);
    const char *         newest  = nullptr;

    // of returns the entry of weights w, or the one that they may have.
    entry & of(const char * w) {
        entry * set = entries.data() + WAYS * (((uintptr_t) w >> 5) * 0x9e3779b97f4a7c15 >> 56);
        for (int i = 0; i < WAYS; i++) {
            if (set[i].product == w || !set[i].product) {
                return set[i];
            }
        }
        return *set;
    }

  public:
    // next notes that the thread begins the product with weights w with those of first, and returns what it is expected to begin
    // the next product with; {} = not known.
    uma_range next(const char * w, uma_range first) {
        if (newest) {
            of(newest) = {newest, first};
        }
        newest          = w;
        const entry & e = of(w);
        return e.product == w ? e.first : uma_range{};
    }

    // lost is for a product after which others come than the last time.
    uma_range lost() {
        newest = nullptr;
        return {};
    }
};

thread_local followers after;

// first_weights is what a thread that begins a product with weights from at to end should find in its second-level cache: a part of
// that. One row reads F32, F16 and BF16 in AVX-512 as a single stream, which the processor follows by itself unless its beginning
// is in the cache: BF16 took 1.13 of the time.
uma_range first_weights(const uma_job & j, const char * at, const char * end) {
    constexpr int64_t MOST = 128 << 10;
    if (at == end || (j.n == 1 && (j.type == GGML_TYPE_F32 || j.type == GGML_TYPE_F16 || j.type == GGML_TYPE_BF16))) {
        return {};
    }
    return {at, end - at > MOST ? at + MOST : end};
}

// product does this thread's part of a product. j.rows is null where each thread prepares them. shared: the threads take pieces by
// the pool's counter, which has been set to their number when numbered was 0. expert: the next step may have another product in
// its place.
void product(const ggml_compute_params * p, const uma_kernels * kernels, uma_job & j, bool shared, bool expert) {
    const int64_t size = kernels->strip(j.type);
    const pieces  cut(j, (int) size, p->nth);
    const auto    at   = [&](int64_t part) { return j.w + part / cut.parts * size * j.w_row; };
    const auto    next = [&](int64_t from, int64_t to) { return expert ? after.lost() : after.next(j.w, first_weights(j, at(from), at(to))); };
    const auto    prepare = [&] {
        j.strip = strip.of(kernels->strip_bytes(j));
        if (!j.rows) {
            j.rows = rows.of(kernels->rows_bytes(j));
            kernels->prepare(j);
        }
    };
    if (p->nth > 1 && !shared) {
        prepare();
        const int64_t from = cut.strips * p->ith / p->nth, to = cut.strips * (p->ith + 1) / p->nth;
        uma_coming = next(from, to);
        kernels->compute(j, {from, to, uma_coming.at});
        return;
    }
    const int64_t first = p->nth > 1 ? numbered : 0, end = first + cut.count();
    numbered            = end;
    if (first == 0) {
        taken = p->ith;
    }
    if (taken >= end) {
        return;
    }
    prepare();
    uma_coming = next(cut.begin(taken - first), cut.begin(taken - first + 1));
    while (taken < end) {
        const int64_t i = taken - first;
        taken           = p->nth > 1 ? ggml_threadpool_chunk_add(p->threadpool, 1) : taken + 1;
        const char *  then = taken < end ? at(cut.begin(taken - first)) : uma_coming.at;
        const int64_t from = cut.begin(i), to = cut.begin(i + 1), whole = to / cut.parts;
        int64_t       s = from / cut.parts;
        if (const int64_t a = from % cut.parts; a > 0 && from < to) {
            const int64_t b = std::min(cut.parts, a + to - from);
            kernels->compute(cut.some(kernels, j, a, b), {s, s + 1, b == cut.parts && s + 1 < cut.strips ? at(from + b - a) : then});
            s++;
        }
        if (s < whole) {
            kernels->compute(j, {s, whole, whole * cut.parts < to ? at(to) : then});
            s = whole;
        }
        if (s * cut.parts < to) {
            kernels->compute(cut.some(kernels, j, 0, to - s * cut.parts), {s, s + 1, then});
        }
    }
}

// product_type is what ggml quantises the activations to beside weights of a type.
int product_type(int type) {
    return ggml_get_type_traits_cpu((ggml_type) type)->vec_dot_type;
}

// A product that multiplies the rows that one before it has prepared is marked with SAME_ROWS, a number among a node's
// parameters that ggml has no use for. Attention's three products and a feed-forward network's first two are such; what is between
// them may use the first ASIDE bytes of the threads' common memory. Where its results disturb nothing that is computed between it is
// JOINED: it is computed with the first one, whose NEXT leads to it, so that the threads need not wait for each other.
constexpr int     SAME_ROWS = GGML_MAX_OP_PARAMS / sizeof(int32_t) - 1, JOINED = SAME_ROWS - 1, NEXT = JOINED - 2;
constexpr int64_t ASIDE     = 16 << 10;

static_assert(sizeof(ggml_tensor *) <= 2 * sizeof(int32_t), "NEXT");

ggml_tensor * next_of(const ggml_tensor * op) {
    ggml_tensor * next;
    memcpy(&next, op->op_params + NEXT, sizeof(next));
    return next;
}

void set_next(ggml_tensor * op, const ggml_tensor * next) {
    memcpy(op->op_params + NEXT, &next, sizeof(next));
}

char * prepared_rows(const ggml_compute_params * p) {
    return (char *) p->wdata + ASIDE;
}

// computed has the types of which a product was computed since uma_matmul_computed asked.
std::atomic<bool> computed[GGML_TYPE_COUNT];

// claimed reports whether the kernels compute a node of a graph: weights as the file has them, in the host's memory.
bool claimed(const uma_kernels * kernels, const ggml_tensor * op) {
    const bool experts = op->op == GGML_OP_MUL_MAT_ID;
    if (!kernels || !(experts || (op->op == GGML_OP_MUL_MAT && op->op_params[1] == 0))) { // [1]: a hint that the matrix has a special form
        return false;
    }
    if (experts && (op->src[0]->ne[3] != 1 || op->src[1]->ne[3] != 1 || op->src[1]->nb[2] % op->src[1]->nb[1] != 0 ||
                    op->nb[2] != op->ne[1] * op->nb[1])) {
        return false;
    }
    const ggml_tensor *w = op->src[0], *x = op->src[1];
    const int64_t      least = w->type == GGML_TYPE_F32 || w->type == GGML_TYPE_F16 ? 16 : 32; // 16: an adapter's rank
    return kernels->strip(w->type) > 0 && w->ne[0] % least == 0 && w->nb[0] == ggml_type_size(w->type) && (!w->buffer || ggml_backend_buffer_is_host(w->buffer)) &&
           (x->type == GGML_TYPE_F32 || (int) x->type == product_type(w->type)) && x->nb[0] == ggml_type_size(x->type) && op->type == GGML_TYPE_F32 &&
           op->nb[0] == sizeof(float);
}

// groups is the rows of a product with experts by expert: those of expert e are begin[e] … begin[e + 1] of x and c.
class groups {
  public:
    std::vector<int32_t> x, c;
    std::vector<int64_t> begin;

    // by_expert groups the rows of all tokens. A token has slots rows of x, row_step rows apart from the next one's: one for all
    // of its experts, or one for each.
    const groups & by_expert(const ggml_tensor * ids, int64_t experts, int64_t slots, int64_t row_step) {
        const int64_t used = ids->ne[0], tokens = ids->ne[1];
        const auto    of   = [&](int64_t t, int64_t i) { return *(const int32_t *) ((const char *) ids->data + t * ids->nb[1] + i * ids->nb[0]); };
        begin.assign(experts + 2, 0);
        x.resize(used * tokens), c.resize(used * tokens);
        for (int64_t t = 0; t < tokens; t++) {
            for (int64_t i = 0; i < used; i++) {
                GGML_ASSERT(of(t, i) >= 0 && of(t, i) < experts);
                begin[of(t, i) + 2]++;
            }
        }
        for (int64_t e = 2; e < experts + 2; e++) {
            begin[e] += begin[e - 1];
        }
        for (int64_t t = 0; t < tokens; t++) {
            for (int64_t i = 0; i < used; i++) {
                const int64_t at = begin[of(t, i) + 1]++;
                x[at]            = (int32_t) (t * row_step + i % slots);
                c[at]            = (int32_t) (t * used + i);
            }
        }
        return *this;
    }
};

thread_local groups grouped;

class products : public ggml::cpu::tensor_traits {
  public:
    bool work_size(int, const ggml_tensor * op, size_t & size) override {
        const uma_kernels * kernels = in_use.load(std::memory_order_relaxed);
        const ggml_type     type    = (ggml_type) product_type(op->src[0]->type);
        size                        = op->src[1]->type == type ? 0 : ggml_row_size(type, ggml_nelements(op->src[1]));
        if (kernels && together(op, type)) {
            uma_job j = {};
            j.type = op->src[0]->type, j.n = op->src[1]->ne[1], j.k = op->src[0]->ne[0];
            size   = std::max(size, ASIDE + kernels->rows_bytes(j));
        }
        return true;
    }

    bool compute_forward(ggml_compute_params * p, ggml_tensor * op) override {
        const uma_kernels * kernels = in_use.load(std::memory_order_relaxed);
        const ggml_tensor * w = op->src[0], *x = op->src[1];
        const ggml_type     type  = (ggml_type) product_type(w->type);
        const int64_t       k = w->ne[0], n = x->ne[1];
        const bool          round = x->type != type;
        const int64_t       row   = round ? ggml_row_size(type, k) : x->nb[1];
        const bool          shared = round || op->op == GGML_OP_MUL_MAT_ID, prepared = together(op, type), same = prepared && op->op_params[SAME_ROWS];
        if (same && op->op_params[JOINED]) {
            return true;
        }
        if (!same) {
            numbered = 0;
        } else if (p->nth > 1) {
            taken = numbered + p->ith; // each has one of these: that with its number, whose weights have come in
        }
        if (prepared && !same) {
            quantise_prepared(p, kernels, op, type);
        } else if (round && !prepared) {
            quantise(p, x, type, (char *) p->wdata);
        }
        if (shared && !same && p->nth > 1) {
            if (p->ith == 0) {
                ggml_threadpool_chunk_set(p->threadpool, p->nth);
            }
            ggml_barrier(p->threadpool);
        }
        const auto job = [&](const char * weights, const char * from, char * to) {
            return uma_job{w->type, w->ne[1], n, k, weights, (int64_t) w->nb[1], from, row, (float *) to, (int64_t) (op->nb[1] / sizeof(float)), nullptr, nullptr, nullptr, nullptr};
        };
        if (prepared) {
            for (; op; op = next_of(op)) {
                w         = op->src[0];
                uma_job j = job((const char *) w->data, nullptr, (char *) op->data);
                j.rows    = prepared_rows(p);
                product(p, kernels, j, true, false);
            }
        } else if (op->op == GGML_OP_MUL_MAT_ID) {
            // A row of x or of the output is numbered through all tokens.
            const ggml_tensor * ids = op->src[2];
            uma_job             j   = job((const char *) w->data, round ? (const char *) p->wdata : (const char *) x->data, (char *) op->data);
            const groups &      g   = grouped.by_expert(ids, w->ne[2], n, round ? n : (int64_t) (x->nb[2] / x->nb[1]));
            for (int64_t e = 0; e < w->ne[2]; e++) {
                if (j.n = g.begin[e + 1] - g.begin[e]; j.n > 0) {
                    j.w = (const char *) w->data + e * w->nb[2], j.rows = nullptr;
                    j.x_at = g.x.data() + g.begin[e], j.c_at = g.c.data() + g.begin[e];
                    product(p, kernels, j, true, true);
                }
            }
        } else {
            for (int64_t i3 = 0; i3 < x->ne[3]; i3++) {
                for (int64_t i2 = 0; i2 < x->ne[2]; i2++) {
                    const int64_t nth = i3 * x->ne[2] + i2;
                    uma_job       j   = job((const char *) w->data + i2 / (x->ne[2] / w->ne[2]) * w->nb[2] + i3 / (x->ne[3] / w->ne[3]) * w->nb[3],
                                            round ? (const char *) p->wdata + nth * n * row : (const char *) x->data + i2 * x->nb[2] + i3 * x->nb[3],
                                            (char *) op->data + i2 * op->nb[2] + i3 * op->nb[3]);
                    product(p, kernels, j, shared, false);
                }
            }
        }
        if (!computed[w->type].load(std::memory_order_relaxed)) {
            computed[w->type].store(true, std::memory_order_relaxed);
        }
        return true;
    }

    // together reports whether the threads prepare the rows of a node's only product together, while they round them.
    static bool together(const ggml_tensor * op, ggml_type type) {
        const ggml_tensor * x = op->src[1];
        return op->op == GGML_OP_MUL_MAT && x->type != type && ggml_is_quantized(type) && x->ne[2] == 1 && x->ne[3] == 1;
    }

  private:
    // quantise_prepared does this thread's part of the activations, as quantise does, straight into the kernels' order: groups
    // of rows one after the other, in each of them a block's rows are neighbours. So a thread writes one stretch of memory,
    // and reads as many as a group has rows.
    static void quantise_prepared(const ggml_compute_params * p, const uma_kernels * kernels, const ggml_tensor * op, ggml_type type) {
        const ggml_tensor *     x          = op->src[1];
        const ggml_from_float_t from_float = ggml_get_type_traits_cpu(type)->from_float;
        uma_job                 j          = {};
        j.type = op->src[0]->type, j.n = x->ne[1], j.k = x->ne[0], j.rows = prepared_rows(p);
        constexpr int64_t VALUES = 256; // that a thread rounds in turn
        const int64_t     parts = (j.k + VALUES - 1) / VALUES, all = parts * j.n, end = all * (p->ith + 1) / p->nth;
        alignas(64) char  rounded[VALUES * 2];
        for (int64_t b = all * p->ith / p->nth; b < end; b++) {
            const int64_t first = b / (parts * GROUP) * GROUP, n = std::min(GROUP, j.n - first), at = b - first * parts;
            const int64_t r = first + at % n, from = at / n * VALUES, to = std::min(from + VALUES, j.k);
            const float * values = (const float *) ((const char *) x->data + r * x->nb[1]) + from;
            if (!kernels->round_part(j, r, from, to, values)) {
                from_float(values, rounded, to - from);
                kernels->prepare_part(j, r, from, to, rounded);
            }
        }
    }

    // quantise does this thread's part of the activations: blocks, whatever rows they are of.
    static void quantise(const ggml_compute_params * p, const ggml_tensor * x, ggml_type type, char * to) {
        const ggml_from_float_t from_float = ggml_get_type_traits_cpu(type)->from_float;
        const int64_t           values = ggml_blck_size(type) > 1 ? ggml_blck_size(type) : 16, bytes = ggml_row_size(type, values);
        const int64_t           blocks = x->ne[0] / values, all = blocks * ggml_nrows(x), end = all * (p->ith + 1) / p->nth;
        for (int64_t b = all * p->ith / p->nth; b < end;) {
            const int64_t r = b / blocks, at = b % blocks, count = std::min(blocks - at, end - b);
            const char *  row = (const char *) x->data + r % x->ne[1] * x->nb[1] + r / x->ne[1] % x->ne[2] * x->nb[2] + r / x->ne[1] / x->ne[2] * x->nb[3];
            from_float((const float *) row + at * values, to + b * bytes, count * values);
            b += count;
        }
    }
};

// apart reports whether two tensors have no memory in common.
bool apart(const ggml_tensor * a, const ggml_tensor * b) {
    const char *x = (const char *) a->data, *y = (const char *) b->data;
    return x + ggml_nbytes(a) <= y || y + ggml_nbytes(b) <= x;
}

// joins reports whether node `at` of a graph can be computed at node first: no node between computes its weights, or has to do with
// the memory of its results.
bool joins(ggml_cgraph * graph, int first, int at) {
    const ggml_tensor * op = ggml_graph_node(graph, at);
    for (int i = first; i < at; i++) {
        const ggml_tensor * n = ggml_graph_node(graph, i);
        if (ggml_op_is_empty(n->op)) {
            continue;
        }
        if (!apart(op, n) || !apart(op->src[0], n)) {
            return false;
        }
        for (int s = 0; s < GGML_MAX_SRC && n->src[s]; s++) {
            if (!apart(op, n->src[s])) {
                return false;
            }
        }
    }
    return true;
}

// spares reports whether a node leaves the prepared rows of x as they are, and x.
bool spares(const ggml_tensor * op, const ggml_tensor * x, int threads) {
    if (!apart(op, x)) {
        return false;
    }
    switch (op->op) {
    case GGML_OP_ROPE: // a row and a line of the cache for each thread
        return (op->ne[0] + 16) * (int64_t) sizeof(float) * threads <= ASIDE;
    case GGML_OP_ADD:
    case GGML_OP_MUL:
    case GGML_OP_RMS_NORM:
        return op->src[0]->type == GGML_TYPE_F32; // no common memory
    default:
        return false;
    }
}

// claims is the buffer type's context. No tensor lies in a buffer of the type.
class claims : public ggml::cpu::extra_buffer_type {
  public:
    bool supports_op(ggml_backend_dev_t, const ggml_tensor *) override { return false; }

    ggml::cpu::tensor_traits * get_tensor_traits(const ggml_tensor * op) override {
        static products ours;
        return claimed(in_use.load(std::memory_order_relaxed), op) ? &ours : nullptr;
    }
};

} // namespace

void uma_matmul_graph(ggml_cgraph * graph, int threads) {
    const uma_kernels * kernels  = in_use.load(std::memory_order_relaxed);
    const ggml_tensor * first    = nullptr; // the product whose rows are prepared
    ggml_tensor *       last     = nullptr; // of those that are computed with it
    int                 first_at = 0;
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        ggml_tensor * op = ggml_graph_node(graph, i);
        if (ggml_op_is_empty(op->op) || !(op->flags & GGML_TENSOR_FLAG_COMPUTE)) {
            continue;
        }
        if (claimed(kernels, op) && products::together(op, (ggml_type) product_type(op->src[0]->type))) {
            const bool same = first && first->src[1] == op->src[1] && first->src[0]->type == op->src[0]->type, joined = same && joins(graph, first_at, i);
            op->op_params[SAME_ROWS] = same, op->op_params[JOINED] = joined;
            set_next(op, nullptr);
            if (joined) {
                set_next(last, op);
                last = op;
            } else if (!same) {
                first = last = op, first_at = i;
            }
        } else if (first && !spares(op, first->src[1], threads)) {
            first = nullptr;
        }
    }
}

bool uma_matmul_joined(const ggml_tensor * op) {
    return op->op_params[SAME_ROWS] && op->op_params[JOINED];
}

extern "C" bool uma_matmul_use(const char * name) {
    if (!strcmp(name, "ggml")) {
        in_use = nullptr;
        return true;
    }
    if (!strcmp(name, "auto")) {
        in_use = fastest(true);
        return true;
    }
    for (const uma_kernels * k : known) {
        if (!strcmp(name, k->name) && k->here()) {
            in_use = k;
            return true;
        }
    }
    return false;
}

extern "C" const char * uma_matmul_used(void) {
    const uma_kernels * k = in_use;
    return k ? k->name : "ggml";
}

extern "C" bool uma_matmul_takes(int type) {
    const uma_kernels * k = in_use;
    return k && k->strip(type) > 0;
}

uma_attention_width uma_attention_kernels(int width) {
    const uma_kernels * k = in_use.load(std::memory_order_relaxed);
    return k ? k->attention(width) : uma_attention_width{0, nullptr, nullptr};
}

extern "C" bool uma_matmul_computed(int type) {
    return computed[type].exchange(false, std::memory_order_relaxed);
}

extern "C" void uma_matmul_register(void) {
    static ggml_backend_buffer_type type = {};
    static const bool               once = [] {
        ggml_backend_reg_t reg   = ggml_backend_cpu_reg();
        type.iface.get_name      = [](ggml_backend_buffer_type_t) { return "CPU_UMA"; };
        type.iface.get_alignment = [](ggml_backend_buffer_type_t) { return (size_t) 64; };
        type.device              = ggml_backend_reg_dev_get(reg, 0);
        type.context             = new claims;
        // llama.cpp would ask this type too where weights may lie: the device's list for that is a copy, made at the first call.
        const auto list = (ggml_backend_dev_get_extra_bufts_t) ggml_backend_reg_get_proc_address(reg, "ggml_backend_dev_get_extra_bufts");
        if (list) {
            list(type.device);
        }
        ggml_backend_cpu_get_extra_buffer_types().push_back(&type);
        return true;
    }();
    (void) once;
}

#endif
