//go:build linux && (amd64 || arm64) && llama_engine && !llama_no_products

// Quantised weights times a few rows of activations.
//
// A step of a server is a product of the whole model with as many rows as there are tokens in the step: one for each
// conversation that decodes, and a prompt's chunk. Reading the weights takes the same time for all of them, so a handful
// of rows could cost what one costs. ggml's products do not get there: they form dot products along the rows of the
// weights, which leaves four instructions per 32 products that are no products (scales, conversions, and a sum for each
// pair of rows), and unpack the weights again for each row or four. The linker puts this file in the place of ggml's
// function (--wrap, see matmul.go). Here a vector's lanes are rows of weights:
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

#include <atomic>
#include <cstdint>
#include <cstring>
#include <vector>

#include "attention.h"
#include "barrier.h"
#include "ggml-cpu.h"
#include "ggml.h"
#include "ggml_op.h"
#include "matmul.h"

extern "C" {
int ggml_threadpool_chunk_add(struct ggml_threadpool * tp, int value);

// C[n][m] = B[n][k] · A[m][k]ᵀ, with k in blocks of A's type and strides in elements of the types.
bool __real_llamafile_sgemm(const struct ggml_compute_params * params, int64_t m, int64_t n, int64_t k, const void * a, int64_t lda, const void * b, int64_t ldb, void * c,
                            int64_t ldc, int a_type, int b_type, int c_type);
bool __wrap_llamafile_sgemm(const struct ggml_compute_params * params, int64_t m, int64_t n, int64_t k, const void * a, int64_t lda, const void * b, int64_t ldb, void * c,
                            int64_t ldc, int a_type, int b_type, int c_type);
}

#include "../src/ggml-cpu/llamafile/sgemm.h"

#include <type_traits>
#ifndef GGML_USE_LLAMAFILE
#error ggml is built without llamafile_sgemm
#endif
static_assert(std::is_same<decltype(llamafile_sgemm), decltype(__wrap_llamafile_sgemm)>::value, "llamafile_sgemm");

// ggml's products of K- and IQ-quants, which come before llamafile_sgemm. llama.cpp has them since 0.4.
#if __has_include("../src/ggml-cpu/tiled/tiled.h")
#include "../src/ggml-cpu/tiled/tiled.h"
#define TILED 1

extern "C" {
bool __real_ggml_compute_forward_mul_mat_tiled(const struct ggml_compute_params * params, struct ggml_tensor * dst);
bool __wrap_ggml_compute_forward_mul_mat_tiled(const struct ggml_compute_params * params, struct ggml_tensor * dst);
}
static_assert(std::is_same<decltype(ggml_compute_forward_mul_mat_tiled), decltype(__wrap_ggml_compute_forward_mul_mat_tiled)>::value,
              "ggml_compute_forward_mul_mat_tiled");
#endif

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

// pieces cuts the strips of a product into pieces. Each thread begins with half of its even share and takes small pieces as
// long as there are some: a thread on a slower core, or one that another process interrupts, does fewer of them.
struct pieces {
    int64_t strips;
    int     threads;

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
        const int64_t half = strips / 2;
        return i <= threads ? half * i / threads : half + (strips - half) * (i - threads) / (small() * threads);
    }
};

// The piece that a thread has taken and not begun. Where a node of the graph has several products their pieces are numbered
// through. A thread takes a piece before it computes the one before, so that its weights come in meanwhile.
thread_local int64_t taken;

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
};

thread_local followers after;

// first_weights is what a thread that begins a product with weights from at to end should find in its second-level cache: a part of
// that. One row reads F16 and BF16 in AVX-512 as a single stream, which the processor follows by itself unless its beginning
// is in the cache: BF16 took 1.13 of the time.
uma_range first_weights(const uma_job & j, const char * at, const char * end) {
    constexpr int64_t MOST = 128 << 10;
    if (at == end || (j.n == 1 && (j.type == GGML_TYPE_F16 || j.type == GGML_TYPE_BF16))) {
        return {};
    }
    return {at, end - at > MOST ? at + MOST : end};
}

// product does this thread's part.
void product(const ggml_compute_params * p, const uma_kernels * kernels, uma_job & j) {
    j.rows  = rows.of(kernels->rows_bytes(j));
    j.strip = strip.of(kernels->strip_bytes(j));
    kernels->prepare(j);
    const int64_t size   = kernels->strip(j.type);
    const pieces  cut    = {(j.m + size - 1) / size, p->nth};
    const char *  begin  = (const char *) p->wdata;
    const int64_t stride = j.n * j.x_row;
    const auto    at     = [&](int64_t strip) { return j.w + strip * size * j.w_row; };
    const auto    next   = [&](int64_t from, int64_t to) { return after.next(j.w, first_weights(j, at(from), at(to))); };
    if (p->nth > 1 && (j.x < begin || j.x >= begin + p->wsize)) {
        // The activations were not ggml's to quantise in this node: its counter of pieces has not been set.
        const int64_t from = cut.strips * p->ith / p->nth, to = cut.strips * (p->ith + 1) / p->nth;
        uma_coming = next(from, to);
        kernels->compute(j, {from, to, uma_coming.at});
        return;
    }
    // ggml set the counter to the number of threads before it quantised the activations of all the node's products, which
    // lie one behind the other.
    const int64_t nth_product = p->nth > 1 ? (j.x - begin) / stride : 0, first = nth_product * cut.count(), end = first + cut.count();
    if (nth_product == 0) {
        taken = p->ith;
    }
    if (taken >= end) {
        return;
    }
    uma_coming = next(cut.begin(taken - first), cut.begin(taken - first + 1));
    while (taken < end) {
        const int64_t i = taken - first;
        taken           = p->nth > 1 ? ggml_threadpool_chunk_add(p->threadpool, 1) : taken + 1;
        if (const uma_piece piece = {cut.begin(i), cut.begin(i + 1), taken < end ? at(cut.begin(taken - first)) : uma_coming.at}; piece.from < piece.to) {
            kernels->compute(j, piece);
        }
    }
}

// product_type is what ggml quantises the activations to beside weights of a type.
int product_type(int type) {
    return ggml_get_type_traits_cpu((ggml_type) type)->vec_dot_type;
}

} // namespace

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
    return k ? k->attention(width) : uma_attention_width{nullptr, nullptr};
}

#ifdef TILED
// false has ggml ask llamafile_sgemm, which is the one below.
extern "C" bool __wrap_ggml_compute_forward_mul_mat_tiled(const struct ggml_compute_params * params, struct ggml_tensor * dst) {
    return !uma_matmul_takes(dst->src[0]->type) && __real_ggml_compute_forward_mul_mat_tiled(params, dst);
}
#endif

extern "C" bool __wrap_llamafile_sgemm(const struct ggml_compute_params * params, int64_t m, int64_t n, int64_t k, const void * a, int64_t lda, const void * b, int64_t ldb,
                                       void * c, int64_t ldc, int a_type, int b_type, int c_type) {
    const uma_kernels * kernels = in_use.load(std::memory_order_relaxed);
    const int64_t       values  = k * ggml_blck_size((ggml_type) a_type);
    if (!kernels || n == 0 || m == 0 || values == 0 || values % 32 != 0 || c_type != GGML_TYPE_F32 || kernels->strip(a_type) == 0 || b_type != product_type(a_type)) {
        return __real_llamafile_sgemm(params, m, n, k, a, lda, b, ldb, c, ldc, a_type, b_type, c_type);
    }
    uma_job j = {a_type, m, n, values, (const char *) a, lda * (int64_t) ggml_type_size((ggml_type) a_type), (const char *) b, ldb * (int64_t) ggml_type_size((ggml_type) b_type),
                 (float *) c, ldc, nullptr, nullptr};
    product(params, kernels, j);
    return true;
}

#endif
