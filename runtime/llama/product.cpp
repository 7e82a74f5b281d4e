//go:build linux && (amd64 || arm64) && llama_engine && !llama_no_products

// One product as a graph of ggml: for tests and benchmarks, and to try the kernels at the start.

#if __has_include("ggml.h")

#include "product.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "ggml-cpu.h"
#include "ggml.h"
#include "kernels/attention.h"
#include "kernels/matmul.h"

struct uma_product {
    ggml_context *       ctx;
    ggml_tensor *        out;
    ggml_cgraph *        graph;
    ggml_tensor *        last; // the newest product
    std::vector<uint8_t> work;
};

extern "C" uma_product * uma_product_new(const uma_shape * s, const float * weights, const float * x, const int32_t * ids) {
    const ggml_type type   = (ggml_type) s->type;
    const int64_t   stacks = s->experts ? s->experts : 1, used = s->experts ? s->used : 1;
    ggml_context *  ctx    = ggml_init({stacks * s->m * ggml_row_size(type, s->k) + s->n * used * (s->k + s->m) * 4 + (1 << 20), nullptr, false});
    if (!ctx) {
        return nullptr;
    }
    ggml_tensor *            w = ggml_new_tensor_3d(ctx, type, s->k, s->m, stacks);
    const std::vector<float> alike(s->k, 1.0f); // some formats must be told how much each column matters
    if (weights) {
        ggml_quantize_chunk(type, weights, w->data, 0, s->m * stacks, s->k, alike.data());
    } else {
        memset(w->data, 0x35, ggml_nbytes(w)); // ordinary numbers in every format
    }
    ggml_tensor * t;
    ggml_tensor * out;
    if (s->experts) {
        t               = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, s->k, s->each ? used : 1, s->n);
        ggml_tensor * i = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, used, s->n);
        memcpy(i->data, ids, ggml_nbytes(i));
        out = ggml_mul_mat_id(ctx, w, t, i);
    } else {
        t   = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, s->k, s->n);
        out = ggml_mul_mat(ctx, w, t);
    }
    memcpy(t->data, x, ggml_nbytes(t));
    uma_product * p = new uma_product{ctx, out, ggml_new_graph(ctx), nullptr, {}};
    ggml_build_forward_expand(p->graph, p->out);
    return p;
}

extern "C" uma_product * uma_product_rows(const uma_product * p, int64_t first, int64_t n) {
    ggml_tensor *  w   = p->out->src[0];
    const int64_t  k   = w->ne[0];
    ggml_context * ctx = ggml_init({(size_t) (n * (k + w->ne[1]) * 4 + (1 << 20)), nullptr, false});
    if (!ctx) {
        return nullptr;
    }
    ggml_tensor * t = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, k, n);
    memcpy(t->data, (const float *) p->out->src[1]->data + first * k, ggml_nbytes(t));
    uma_product * some = new uma_product{ctx, ggml_mul_mat(ctx, w, t), ggml_new_graph(ctx), nullptr, {}};
    ggml_build_forward_expand(some->graph, some->out);
    return some;
}

extern "C" uma_product * uma_product_again(const uma_product * p, enum uma_between between) {
    ggml_tensor *  w = p->out->src[0], *from = p->out->src[1];
    const int64_t  k = w->ne[0], m = w->ne[1], n = from->ne[1];
    ggml_context * ctx = ggml_init({(size_t) (n * (2 * k + 4 * m) * 4 + (1 << 20)), nullptr, false});
    if (!ctx) {
        return nullptr;
    }
    ggml_tensor * x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, k, n);
    memcpy(x->data, from->data, ggml_nbytes(x));
    ggml_tensor * twice   = between == UMA_ANOTHER ? ggml_scale(ctx, x, 2) : nullptr;
    ggml_tensor * step[4] = {twice, ggml_mul_mat(ctx, w, x)};
    if (between == UMA_ROTATION) {
        ggml_tensor * at = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, n);
        memset(at->data, 1, ggml_nbytes(at));
        step[2] = ggml_rope(ctx, ggml_reshape_3d(ctx, step[1], m, 1, n), at, (int) m, 0);
    } else if (between == UMA_TWICE) {
        step[2] = ggml_add_inplace(ctx, x, x);
    }
    if (between == UMA_OVERLAP) {
        step[2]       = ggml_add(ctx, step[1], step[1]);
        step[3]       = ggml_mul_mat(ctx, ggml_view_2d(ctx, w, k, m / 2, w->nb[1], m / 2 * w->nb[1]), x);
        step[3]->data = step[1]->data;
    } else {
        step[3] = ggml_mul_mat(ctx, w, twice ? twice : x);
    }
    uma_product * second = new uma_product{ctx, step[between == UMA_OVERLAP ? 2 : 3], ggml_new_graph(ctx), step[3], {}};
    for (ggml_tensor * s : step) {
        if (s) {
            ggml_build_forward_expand(second->graph, s);
        }
    }
    return second;
}

extern "C" void uma_product_compute(uma_product * p, int threads) {
    ggml_cplan plan = ggml_graph_plan(p->graph, threads, nullptr);
    p->work.resize(plan.work_size + 64);
    plan.work_data = p->work.data() + (64 - (uintptr_t) p->work.data() % 64) % 64;
    ggml_graph_compute(p->graph, &plan);
}

extern "C" bool uma_product_joined(const uma_product * p) {
    return uma_matmul_joined(p->last);
}

extern "C" const float * uma_product_out(const uma_product * p) {
    return (const float *) p->out->data;
}

namespace {

// rounded is row as ggml rounds it to the type that is multiplied with weights of type.
std::vector<float> rounded(ggml_type type, const float * row, int64_t k) {
    const ggml_type to = ggml_get_type_traits_cpu(type)->vec_dot_type;
    if (to == GGML_TYPE_F32) {
        return {row, row + k};
    }
    std::vector<char>  bytes(ggml_row_size(to, k));
    std::vector<float> out(k);
    ggml_get_type_traits_cpu(to)->from_float(row, bytes.data(), k);
    if (to != GGML_TYPE_Q8_K && to != GGML_TYPE_Q8_1) {
        ggml_get_type_traits(to)->to_float(bytes.data(), out.data(), k);
        return out;
    }
    // Two have no function of ggml's: a scale, the numbers, and sums of them before or behind. Q8_1's scale has half precision.
    const int64_t values = ggml_blck_size(to), size = ggml_type_size(to);
    for (int64_t j = 0; j < k; j++) {
        const char * block = bytes.data() + j / values * size;
        float        scale;
        ggml_fp16_t  h;
        memcpy(&scale, block, sizeof(scale)), memcpy(&h, block, sizeof(h));
        out[j] = (to == GGML_TYPE_Q8_K ? scale : ggml_fp16_to_fp32(h)) * (float) (int8_t) block[4 + j % values];
    }
    return out;
}

} // namespace

extern "C" void uma_product_exact(const uma_product * p, double * want, double * size) {
    const ggml_tensor *w = p->out->src[0], *x = p->out->src[1], *ids = p->out->src[2];
    const int64_t      k = w->ne[0], m = w->ne[1], used = ids ? ids->ne[0] : 1, n = ggml_nelements(p->out) / m;
    std::vector<float> a(m * k * w->ne[2]);
    for (int64_t i = 0; i < m * w->ne[2]; i++) {
        const char * of = (const char *) w->data + i * w->nb[1];
        if (w->type == GGML_TYPE_F32) {
            memcpy(a.data() + i * k, of, k * sizeof(float));
        } else {
            ggml_get_type_traits(w->type)->to_float(of, a.data() + i * k, k);
        }
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t            from = ids ? i / used * x->ne[1] + i % used % x->ne[1] : i;
        const std::vector<float> b    = rounded(w->type, (const float *) x->data + from * k, k);
        const float *            of   = a.data() + (ids ? ((const int32_t *) ids->data)[i] * m * k : 0);
        for (int64_t j = 0; j < m; j++) {
            double sum = 0, all = 0;
            for (int64_t l = 0; l < k; l++) {
                const double term = (double) of[j * k + l] * b[l];
                sum += term, all += std::fabs(term);
            }
            want[i * m + j] = sum, size[i * m + j] = all;
        }
    }
}

extern "C" void uma_product_free(uma_product * p) {
    ggml_free(p->ctx);
    delete p;
}

#endif
