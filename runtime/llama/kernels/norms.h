#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// uma_norms_use has norms and rotations computed here, as at first, or by ggml. No decode may be running.
void uma_norms_use(bool on);

enum { UMA_NORM = 1, UMA_ROTATION = 2 };

// uma_norms_computed is what was computed here since the last call.
int uma_norms_computed(void);

// uma_norms_case is some norms, or rotations if dims is not 0, one of the other's result: of tokens of some heads, each of width
// values, dims of which are rotated. The rotation's base is doubled in every second layer.
typedef struct {
    int64_t width, heads, tokens;
    int     layers, dims;
    bool    neox, in_place;
    float   eps, base, scale, magnitude;
} uma_norms_case;

// uma_norms_graph computes a case. w is what a norm is multiplied with, or the frequencies' factors (dims / 2), or null. False: no memory.
bool uma_norms_graph(const uma_norms_case * c, const float * x, const float * w, const int32_t * positions, int threads, float * out);

#ifdef __cplusplus
}
#endif
