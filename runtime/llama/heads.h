// Heads of models (MTP), see heads.cpp.
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

#ifdef __cplusplus
}
#endif
#endif
