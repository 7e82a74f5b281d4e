#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// uma_shape is a product's: out[n][m] = x[n][k] · wᵀ, w[m][k]. k is a multiple of the type's block. With experts there is a
// w for each, ids[n][used] has those of each row, and out is [n][used][m]; x is [n][used][k] if each is true.
typedef struct {
    int     type;
    int64_t m, n, k, experts, used;
    bool    each;
} uma_shape;

// uma_product is one product as a graph of ggml, with weights rounded to the type, or of some constant where they are NULL. NULL when there
// is no memory for it.
typedef struct uma_product uma_product;
uma_product * uma_product_new(const uma_shape * s, const float * weights, const float * x, const int32_t * ids);
// uma_product_rows is the product of n rows of x from row first on, without experts. It uses the weights of p: free it before p.
uma_product * uma_product_rows(const uma_product * p, int64_t first, int64_t n);
// uma_product_again is p computed twice in one graph, of which the second result is the out. What is between: nothing, a rotation
// of the first result, or x times two in its place; or the second one multiplies another x, the first one's times two. Or the first
// result times two is the out, and then a product with the second half of the weights takes its place. m is even. It uses p's
// weights, as rows do.
enum uma_between { UMA_NOTHING, UMA_ROTATION, UMA_OVERLAP, UMA_TWICE, UMA_ANOTHER };
uma_product * uma_product_again(const uma_product * p, enum uma_between between);
// uma_product_joined reports whether the second product of uma_product_again was computed with the first one.
bool          uma_product_joined(const uma_product * p);
void          uma_product_compute(uma_product * p, int threads);
const float * uma_product_out(const uma_product * p);
void          uma_product_free(uma_product * p);

// uma_product_exact computes the product of the rounded weights and activations, as ggml decodes them, in float64: want[n][m],
// and size[n][m], the sum of the magnitudes of what is added up.
void uma_product_exact(const uma_product * p, double * want, double * size);

#ifdef __cplusplus
}
#endif
