// Sets of adapters of a context, see adapters.cpp.
#ifndef UMA_ADAPTERS_H
#define UMA_ADAPTERS_H

#include "llama.h"

#ifdef __cplusplus
extern "C" {
#endif

// A set that no context has; NULL without memory.
void * uma_mix_new(struct llama_adapter_lora ** adapters, const float * scales, size_t n);
void   uma_mix_free(void * mix);
// Gives ctx a set, which it owns from then on, and returns the one that it had. A new adapter needs one call of
// llama_set_adapters_lora before: it has the context make room for the adapter's nodes.
void * uma_mix_swap(struct llama_context * ctx, void * mix);

#ifdef __cplusplus
}
#endif
#endif
