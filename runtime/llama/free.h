#pragma once

#ifdef __cplusplus
extern "C" {
#endif

struct llama_context;

// uma_context_free is llama_free, but frees the scheduler before the backends that it reads.
void uma_context_free(struct llama_context * ctx);

#ifdef __cplusplus
}
#endif
