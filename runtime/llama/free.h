#pragma once

#ifdef __cplusplus
extern "C" {
#endif

struct llama_context;

// uma_context_free is llama_free, whose order it mends.
void uma_context_free(struct llama_context * ctx);

#ifdef __cplusplus
}
#endif
