#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// uma_matmul_enable says whether the kernel of matmul.cpp computes products with Q8_0 weights, or ggml's; it returns what was
// before. For tests and benchmarks: no decode may be running.
bool uma_matmul_enable(bool on);

// uma_matmul_built reports whether this build has the kernel: the compiler was told of AVX-512 VNNI.
bool uma_matmul_built(void);

// uma_product is one product as a graph of ggml, for tests and benchmarks: out[n][m] = x[n][k] · wᵀ, w[m][k] in Q8_0 made of
// weights. NULL when there is no memory for it.
typedef struct uma_product uma_product;
uma_product * uma_product_new(int64_t m, int64_t n, int64_t k, const float * weights, const float * x);
void          uma_product_compute(uma_product * p, int threads);
const float * uma_product_out(const uma_product * p);
void          uma_product_free(uma_product * p);

#ifdef __cplusplus
}
#endif
