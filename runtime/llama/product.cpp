//go:build linux && (amd64 || arm64) && llama_engine && !llama_no_products

// One product as a graph of ggml, for tests and benchmarks.

#if __has_include("ggml.h")

#include "product.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "ggml-cpu.h"
#include "ggml.h"

struct uma_product {
    ggml_context *       ctx;
    ggml_tensor *        out;
    ggml_cgraph *        graph;
    std::vector<uint8_t> work;
};

extern "C" uma_product * uma_product_new(int type, int64_t m, int64_t n, int64_t k, const float * weights, const float * x) {
    const size_t   row = ggml_row_size((ggml_type) type, k);
    ggml_context * ctx = ggml_init({m * row + n * k * 4 + n * m * 4 + (1 << 20), nullptr, false});
    if (!ctx) {
        return nullptr;
    }
    ggml_tensor * w = ggml_new_tensor_2d(ctx, (ggml_type) type, k, m);
    ggml_tensor * t = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, k, n);
    ggml_quantize_chunk((ggml_type) type, weights, w->data, 0, m, k, nullptr);
    memcpy(t->data, x, ggml_nbytes(t));
    uma_product * p = new uma_product{ctx, ggml_mul_mat(ctx, w, t), ggml_new_graph(ctx), {}};
    ggml_build_forward_expand(p->graph, p->out);
    return p;
}

extern "C" void uma_product_compute(uma_product * p, int threads) {
    ggml_cplan plan = ggml_graph_plan(p->graph, threads, nullptr);
    p->work.resize(plan.work_size + 64);
    plan.work_data = p->work.data() + (64 - (uintptr_t) p->work.data() % 64) % 64;
    ggml_graph_compute(p->graph, &plan);
}

extern "C" const float * uma_product_out(const uma_product * p) {
    return (const float *) p->out->data;
}

extern "C" void uma_product_exact(const uma_product * p, double * want, double * size) {
    const ggml_tensor *w = p->out->src[0], *x = p->out->src[1];
    const int64_t      k = w->ne[0], m = w->ne[1], n = x->ne[1];
    const ggml_type    rounded = ggml_get_type_traits_cpu(w->type)->vec_dot_type;
    std::vector<float> a(m * k), b(n * k);
    for (int64_t i = 0; i < m; i++) {
        ggml_get_type_traits(w->type)->to_float((const char *) w->data + i * w->nb[1], a.data() + i * k, k);
    }
    std::vector<char> row(ggml_row_size(rounded, k));
    for (int64_t i = 0; i < n; i++) {
        ggml_get_type_traits_cpu(rounded)->from_float((const float *) x->data + i * k, row.data(), k);
        if (rounded != GGML_TYPE_Q8_K) {
            ggml_get_type_traits(rounded)->to_float(row.data(), b.data() + i * k, k);
            continue;
        }
        for (int64_t j = 0; j < k; j++) { // a scale, 256 bytes, and their 16 sums
            const char * block = row.data() + j / 256 * 292;
            float        scale;
            memcpy(&scale, block, sizeof(scale));
            b[i * k + j] = scale * (float) (int8_t) block[4 + j % 256];
        }
    }
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < m; j++) {
            double sum = 0, all = 0;
            for (int64_t l = 0; l < k; l++) {
                const double term = (double) a[j * k + l] * b[i * k + l];
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
