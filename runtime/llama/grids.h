// Cells by all dimensions of their positions, for models where the rows of an image share the first one (M-RoPE). llama.cpp's
// functions for ranges of a sequence know the first one alone, and would take an image whole. See grids.cpp.
#ifndef UMA_GRIDS_H
#define UMA_GRIDS_H

#include "bridge.h"

#ifdef __cplusplus
extern "C" {
#endif

// In the order of t, then y, then x. A row of text has three times the same.
typedef struct {
    int32_t t, y, x;
} uma_position;

// Whether ctx has a memory whose cells these functions find.
bool uma_grid_known(struct llama_context * ctx);

// The number of cells that no sequence has.
int32_t uma_grid_free(struct llama_context * ctx);

// The cells of seq at positions [from, to): those of dst too, or no longer those of seq.
void uma_grid_copy(struct llama_context * ctx, int32_t seq, int32_t dst, uma_position from, uma_position to);
void uma_grid_remove(struct llama_context * ctx, int32_t seq, uma_position from, uma_position to);

// The position of seq's first cell, or of its last one; t is -1 when it has none.
uma_position uma_grid_end(struct llama_context * ctx, int32_t seq, bool last);

#ifdef __cplusplus
}
#endif
#endif
