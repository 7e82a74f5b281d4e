//go:build linux && amd64 && !llama_system

// Q8_0 weights times a few rows of activations, for processors with AVX-512 VNNI.
//
// A step of a server is a product of the whole model with as many rows as there are tokens in the step: one for each
// conversation that decodes, and a prompt's chunk. Reading the weights takes the same time for all of them, so a handful
// of rows could cost what one costs. ggml's product does not get there: it forms dot products along the rows of the
// weights, which leaves four instructions per 32 products that are no products (scales, conversions, and a separate
// sum for each pair of rows). Measured on a 135 M model with 2 cores: 1 row 7 ms, 2 rows 15, 8 rows 28, 16 rows 32. The
// linker puts this file in the place of ggml's function (--wrap, see matmul.go). Here a vector's lanes are 16 rows
// of weights:
//
//   - A strip of 16 rows is transposed, block by block, so that a 512-bit vector holds four bytes of each row. It stays in
//     the first- or second-level cache while all rows of activations pass by. Nothing is kept: a second copy of the
//     weights would double what the model takes in memory.
//   - One instruction then multiplies 64 weights with four broadcast activations and adds to 16 sums; the scales cost three
//     instructions per block of 512 products, and there is no sum across lanes.
//   - The instruction wants unsigned times signed: weights are shifted by 128, and the sums begin at -128 · Σ activations.
//
// Each output is Σ over blocks of (integer sum · weight's scale · activation's scale), in the order of the blocks, whatever
// the number of rows: a token's result does not depend on who shares its step, bit for bit. ggml's differs between one
// row and several.

#if __has_include("ggml.h")

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <vector>

#include "ggml-cpu.h"
#include "ggml.h"
#include "ggml_op.h"
#include "matmul.h"

extern "C" {
// C[n][m] = B[n][k] · A[m][k]ᵀ, with k in blocks of the types and strides in elements of them.
bool __real_llamafile_sgemm(const struct ggml_compute_params * params, int64_t m, int64_t n, int64_t k, const void * a, int64_t lda, const void * b, int64_t ldb, void * c,
                            int64_t ldc, int a_type, int b_type, int c_type);
bool __wrap_llamafile_sgemm(const struct ggml_compute_params * params, int64_t m, int64_t n, int64_t k, const void * a, int64_t lda, const void * b, int64_t ldb, void * c,
                            int64_t ldc, int a_type, int b_type, int c_type);
}

static std::atomic<bool> enabled{true};

extern "C" bool uma_matmul_enable(bool on) {
    return enabled.exchange(on);
}

struct uma_product {
    ggml_context * ctx;
    ggml_tensor *  out;
    ggml_cgraph *  graph;
};

extern "C" uma_product * uma_product_new(int64_t m, int64_t n, int64_t k, const float * weights, const float * x) {
    ggml_context * ctx = ggml_init({(size_t) (m * k * 2 + n * k * 8 + n * m * 4 + (1 << 20)), nullptr, false});
    if (!ctx) {
        return nullptr;
    }
    ggml_tensor * w = ggml_new_tensor_2d(ctx, GGML_TYPE_Q8_0, k, m);
    ggml_tensor * t = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, k, n);
    ggml_quantize_chunk(GGML_TYPE_Q8_0, weights, w->data, 0, m, k, nullptr);
    memcpy(t->data, x, ggml_nbytes(t));
    uma_product * p = new uma_product{ctx, ggml_mul_mat(ctx, w, t), ggml_new_graph(ctx)};
    ggml_build_forward_expand(p->graph, p->out);
    return p;
}

extern "C" void uma_product_compute(uma_product * p, int threads) {
    ggml_cplan plan = ggml_graph_plan(p->graph, threads, nullptr);
    std::vector<uint8_t> work(plan.work_size + 64);
    plan.work_data = work.data() + (64 - (uintptr_t) work.data() % 64) % 64;
    ggml_graph_compute(p->graph, &plan);
}

extern "C" const float * uma_product_out(const uma_product * p) {
    return (const float *) p->out->data;
}

extern "C" void uma_product_free(uma_product * p) {
    ggml_free(p->ctx);
    delete p;
}

#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512VNNI__)

extern "C" bool uma_matmul_built(void) {
    return false;
}

extern "C" bool __wrap_llamafile_sgemm(const struct ggml_compute_params * params, int64_t m, int64_t n, int64_t k, const void * a, int64_t lda, const void * b, int64_t ldb,
                                       void * c, int64_t ldc, int a_type, int b_type, int c_type) {
    return __real_llamafile_sgemm(params, m, n, k, a, lda, b, ldb, c, ldc, a_type, b_type, c_type);
}

#else

#include <immintrin.h>

extern "C" bool uma_matmul_built(void) {
    return true;
}

namespace {

constexpr int ROWS  = 16; // of weights in a strip: a vector's lanes
constexpr int BLOCK = 32; // values with one scale
constexpr int QUADS = BLOCK / 4;

struct block {
    uint16_t scale; // half precision
    int8_t   q[BLOCK];
};

static_assert(sizeof(block) == 34, "ggml's block_q8_0");

// strip is one block of 16 rows: weights + 128, byte j of quad i of row r is byte 4r + j of q[i]. The scales stay halves.
struct alignas(64) strip {
    __m512i              q[QUADS];
    alignas(32) uint16_t scale[ROWS];
};

// transpose takes one block of 16 rows of weights, lda blocks apart, of which those from rows on do not exist: q[i] are
// quads i, plus 128 each.
template <bool WHOLE> __attribute__((always_inline)) inline void transpose(const block * a, int64_t lda, int rows, __m512i * q, uint16_t * scale) {
    const __m512i shift = _mm512_set1_epi8((char) 0x80);
    const block   none  = {0, {0}};
    __m512i       z[8], t[8];
#pragma GCC unroll 8
    for (int r = 0; r < 8; r++) {
        const block * lo = WHOLE || r < rows ? a + r * lda : &none;
        const block * hi = WHOLE || r + 8 < rows ? a + (r + 8) * lda : &none;
        z[r]     = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *) lo->q)), _mm256_loadu_si256((const __m256i *) hi->q), 1);
        scale[r] = lo->scale, scale[r + 8] = hi->scale;
    }
    // An 8 × 8 transposition of quads in each half: rows 0 … 7 in the lower one, 8 … 15 in the upper one.
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        t[2 * i]     = _mm512_unpacklo_epi32(z[2 * i], z[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_epi32(z[2 * i], z[2 * i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        z[4 * i]     = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
        z[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
        z[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
        z[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
    }
    // Now the 128-bit parts of z[i] are quads i and i + 4 of rows 0 … 3, then of rows 8 … 11; those of z[i + 4] of the rest.
    const __m512i low = _mm512_set_epi64(13, 12, 5, 4, 9, 8, 1, 0), high = _mm512_set_epi64(15, 14, 7, 6, 11, 10, 3, 2);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        q[i]     = _mm512_xor_si512(_mm512_permutex2var_epi64(z[i], low, z[i + 4]), shift);
        q[i + 4] = _mm512_xor_si512(_mm512_permutex2var_epi64(z[i], high, z[i + 4]), shift);
    }
}

// row is a block of a row of activations, with what its sums begin with.
struct row {
    int8_t  q[BLOCK];
    float   scale;
    int32_t begin; // -128 · Σ q
};

// room is a thread's memory; it grows to what the widest weights and the most rows need.
struct room {
    std::vector<strip> weights;
    std::vector<row>   rows;
};

thread_local room mine;

// tally is the sums of N rows of activations with a strip.
template <int N> struct tally {
    __m512 sum[N];

    __attribute__((always_inline)) inline void clear() {
#pragma GCC unroll 8
        for (int i = 0; i < N; i++) {
            sum[i] = _mm512_setzero_ps();
        }
    }

    // add adds block x[i · k] of each row.
    __attribute__((always_inline)) inline void add(const __m512i * q, __m512 scale, const row * x, int64_t k) {
        __m512i dot[N];
#pragma GCC unroll 8
        for (int i = 0; i < N; i++) {
            dot[i] = _mm512_set1_epi32(x[i * k].begin);
        }
#pragma GCC unroll 8
        for (int j = 0; j < QUADS; j++) {
#pragma GCC unroll 8
            for (int i = 0; i < N; i++) {
                int32_t four;
                memcpy(&four, x[i * k].q + 4 * j, sizeof(four));
                dot[i] = _mm512_dpbusd_epi32(dot[i], q[j], _mm512_set1_epi32(four));
            }
        }
#pragma GCC unroll 8
        for (int i = 0; i < N; i++) {
            sum[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[i]), _mm512_mul_ps(scale, _mm512_set1_ps(x[i * k].scale)), sum[i]);
        }
    }

    __attribute__((always_inline)) inline void write(float * c, int64_t ldc, __mmask16 lanes) const {
#pragma GCC unroll 8
        for (int i = 0; i < N; i++) {
            _mm512_mask_storeu_ps(c + i * ldc, lanes, sum[i]);
        }
    }
};

// work is a strip's share of a product: k blocks of rows rows of weights at a, N rows of activations at x, results at c.
struct work {
    const block * a;
    int64_t       lda, k;
    int           rows;
    const row *   x;
    float *       c;
    int64_t       ldc;
    strip *       kept;
};

// fetch_next has as much of the next strip brought in as block b of this one is: sixteen rows side by side are more streams
// than the processor follows by itself (without it, two rows took 28 ms of the 135 M model on one core, with it 22).
inline void fetch_next(const work & w, int64_t b) {
    const char * next = (const char *) (w.a + ROWS * w.lda) + b * ROWS * sizeof(block);
    for (size_t i = 0; i < ROWS * sizeof(block); i += 64) {
        _mm_prefetch(next + i, _MM_HINT_T0);
    }
}

// few multiplies up to eight rows: the weights go from memory through registers.
template <int N> void few(const work & w) {
    tally<N> t;
    t.clear();
    alignas(32) uint16_t scale[ROWS];
    __m512i              q[QUADS];
    for (int64_t b = 0; b < w.k; b++) {
        fetch_next(w, b);
        if (w.rows == ROWS) {
            transpose<true>(w.a + b, w.lda, w.rows, q, scale);
        } else {
            transpose<false>(w.a + b, w.lda, w.rows, q, scale);
        }
        t.add(q, _mm512_cvtph_ps(_mm256_load_si256((const __m256i *) scale)), w.x + b, w.k);
    }
    t.write(w.c, w.ldc, (__mmask16) ((1u << w.rows) - 1));
}

// more multiplies N more rows with a strip that is kept.
template <int N> void more(const work & w) {
    tally<N> t;
    t.clear();
    for (int64_t b = 0; b < w.k; b++) {
        t.add(w.kept[b].q, _mm512_cvtph_ps(_mm256_load_si256((const __m256i *) w.kept[b].scale)), w.x + b, w.k);
    }
    t.write(w.c, w.ldc, (__mmask16) ((1u << w.rows) - 1));
}

// keep transposes a strip.
void keep(const work & w) {
    for (int64_t b = 0; b < w.k; b++) {
        fetch_next(w, b);
        if (w.rows == ROWS) {
            transpose<true>(w.a + b, w.lda, w.rows, w.kept[b].q, w.kept[b].scale);
        } else {
            transpose<false>(w.a + b, w.lda, w.rows, w.kept[b].q, w.kept[b].scale);
        }
    }
}

typedef void (*kernel)(const work &);

constexpr kernel few_of[]  = {nullptr, few<1>, few<2>, few<3>, few<4>, few<5>, few<6>, few<7>, few<8>};
constexpr kernel more_of[] = {nullptr, more<1>, more<2>, more<3>, more<4>, more<5>, more<6>, more<7>, more<8>};

void product(const ggml_compute_params * p, int64_t m, int64_t n, int64_t k, const block * a, int64_t lda, const block * b, int64_t ldb, float * c, int64_t ldc) {
    // Equal shares: the processors that have these instructions have cores of one kind.
    const int64_t strips = (m + ROWS - 1) / ROWS, from = strips * p->ith / p->nth, to = strips * (p->ith + 1) / p->nth;
    if (from == to) {
        return;
    }
    if ((int64_t) mine.weights.size() < k) {
        mine.weights.resize(k);
    }
    if ((int64_t) mine.rows.size() < n * k) {
        mine.rows.resize(n * k);
    }
    row *         x    = mine.rows.data();
    const __m512i ones = _mm512_set1_epi8(1);
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < k; j++) {
            const block & from_ = b[i * ldb + j];
            row &         to_   = x[i * k + j];
            const __m256i q     = _mm256_loadu_si256((const __m256i *) from_.q);
            _mm256_storeu_si256((__m256i *) to_.q, q);
            to_.begin = -128 * _mm512_reduce_add_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), ones, _mm512_zextsi256_si512(q)));
            to_.scale = ggml_fp16_to_fp32(from_.scale);
        }
    }
    for (int64_t s = from; s < to; s++) {
        work w = {a + s * ROWS * lda, lda, k, (int) std::min<int64_t>(ROWS, m - s * ROWS), x, c + s * ROWS, ldc, mine.weights.data()};
        if (n <= 8) {
            few_of[n](w);
            continue;
        }
        keep(w);
        for (int64_t i = 0; i < n; i += 8, w.x += 8 * k, w.c += 8 * ldc) {
            more_of[std::min<int64_t>(8, n - i)](w);
        }
    }
}

} // namespace

extern "C" bool __wrap_llamafile_sgemm(const struct ggml_compute_params * params, int64_t m, int64_t n, int64_t k, const void * a, int64_t lda, const void * b, int64_t ldb,
                                       void * c, int64_t ldc, int a_type, int b_type, int c_type) {
    if (a_type == GGML_TYPE_Q8_0 && b_type == GGML_TYPE_Q8_0 && c_type == GGML_TYPE_F32 && n > 0 && enabled.load(std::memory_order_relaxed)) {
        product(params, m, n, k, (const block *) a, lda, (const block *) b, ldb, (float *) c, ldc);
        return true;
    }
    return __real_llamafile_sgemm(params, m, n, k, a, lda, b, ldb, c, ldc, a_type, b_type, c_type);
}

#endif
#endif
