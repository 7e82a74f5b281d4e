#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// uma_product is one product as a graph of ggml, for tests and benchmarks: out[n][m] = x[n][k] · wᵀ, w[m][k] of the type made
// of weights. NULL when there is no memory for it. k is a multiple of the type's block.
typedef struct uma_product uma_product;
uma_product * uma_product_new(int type, int64_t m, int64_t n, int64_t k, const float * weights, const float * x);
void          uma_product_compute(uma_product * p, int threads);
const float * uma_product_out(const uma_product * p);
void          uma_product_free(uma_product * p);

// uma_product_exact computes the product of the rounded weights and activations, as ggml decodes them, in float64: want[n][m],
// and size[n][m], the sum of the magnitudes of what is added up.
void uma_product_exact(const uma_product * p, double * want, double * size);

#ifdef __cplusplus
}
#endif
