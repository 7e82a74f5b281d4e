#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// uma_attention_enable says whether the kernel of attention.cpp computes attention, or ggml's; it returns what was before.
// For tests and benchmarks: no decode may be running.
bool uma_attention_enable(bool on);

// uma_attention_graph computes the operation through a graph of ggml, as llama.cpp lays its tensors out, with ggml's threads:
// q[rows][heads][width], k and v[cells][kv_heads][width] of type kind (enum ggml_type), mask[rows][cells] halves, or NULL,
// positions[cells], or NULL, out[rows][heads][width]. For tests. False when there is no memory for the graph.
bool uma_attention_graph(int threads, int kind, int64_t width, int64_t rows, int64_t cells, int64_t heads, int64_t kv_heads, float scale, const float * q,
                         const void * k, const void * v, const uint16_t * mask, const int32_t * positions, float * out);

#ifdef __cplusplus
}
#endif
