//go:build llama_engine && !llama_no_heads

// The head of a model, a layer that guesses tokens, is a second context: on the same weights (multi-token prediction), or on
// those of a separate file (EAGLE-3, DFlash). It reads what the model's rows leave: states before the last norm, or the inputs of
// some layers. The functions for that are llama.cpp's staging interface, which changes without notice.

#if __has_include("llama.h")

#include "heads.h"

#include "../src/llama-ext.h"

struct llama_context * uma_head_new(struct llama_model * model, const uma_context_options * o) {
    uma_context_options head = *o;
    head.head                = LLAMA_CONTEXT_TYPE_MTP;
    return uma_context_new(model, &head);
}

void uma_keep_states(struct llama_context * ctx, bool on, bool outputs) { llama_set_embeddings_nextn(ctx, on, outputs); }

float * uma_state(struct llama_context * ctx, int32_t row) {
    try {
        return llama_get_embeddings_nextn_ith(ctx, row);
    } catch (...) {
        return nullptr; // out of memory while rows are put in order
    }
}

void uma_keep_inputs(struct llama_context * ctx, const int32_t * layers, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        llama_set_embeddings_layer_inp(ctx, (uint32_t) layers[i], true);
    }
}

float * uma_inputs(struct llama_context * ctx, int32_t layer) {
    try {
        return llama_get_embeddings_layer_inp(ctx, (uint32_t) layer);
    } catch (...) {
        return nullptr; // as above
    }
}

#endif
