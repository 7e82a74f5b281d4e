// Heads of models (MTP, EAGLE-3, DFlash), see heads.cpp.
#ifndef UMA_HEADS_H
#define UMA_HEADS_H

#include "bridge.h"

#ifdef __cplusplus
extern "C" {
#endif

// The context of the model's head; NULL on failure, whose reason is in the log ring.
struct llama_context * uma_head_new(struct llama_model * model, const uma_context_options * o);

// Whether the rows of later decodes keep their states: all of them, or with outputs those that have logits.
void uma_keep_states(struct llama_context * ctx, bool on, bool outputs);
// The state of a row of the last decode; NULL where none was kept. Its length is llama_model_n_embd_out.
float * uma_state(struct llama_context * ctx, int32_t row);

// From now on all rows of a decode keep the inputs of n layers; the last of them may be behind the last layer. False where
// llama.cpp's graph of the model has not all of them, or not in the width of a row: then the context can only be freed.
// Nothing may be in its memory.
bool uma_keep_inputs(struct llama_context * ctx, const int32_t * layers, int32_t n);
// The inputs of a layer that keeps them, one row of the last decode behind the other; NULL where memory ran out. A row has
// llama_model_n_embd numbers.
float * uma_inputs(struct llama_context * ctx, int32_t layer);

#ifdef __cplusplus
}
#endif
#endif
