// The kernel of the entropy probe: one pass over a row of raw logits (probe.c).
#ifndef UMA_PROBE_H
#define UMA_PROBE_H

#include <stdint.h>

struct llama_context;

// What the pass yields; runtime.RowStats says what each field means.
typedef struct {
    double  log_sum_exp, entropy, close_mass;
    float   max;
    int32_t argmax, close_rank, non_finite;
} uma_row_stats;

// n logits in the three formats engines keep them in, and n_close token ids; ids outside of 0 … n-1 are skipped.
uma_row_stats uma_probe_f32(const float * row, int32_t n, const int32_t * close, int32_t n_close);
uma_row_stats uma_probe_f16(const uint16_t * row, int32_t n, const int32_t * close, int32_t n_close);
uma_row_stats uma_probe_bf16(const uint16_t * row, int32_t n, const int32_t * close, int32_t n_close);

// The same over the logits of batch row i, which must have logits.
uma_row_stats uma_probe_row(struct llama_context * ctx, int32_t i, int32_t n, const int32_t * close, int32_t n_close);

#endif
