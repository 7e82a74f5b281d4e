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

namespace {

struct inputs_of {
    llama_context * ctx;
    const int32_t * layers;
    int32_t         n;
};

} // namespace

// A graph that lacks an input fails an assertion when it is built, and one whose inputs are wider than a row, or leave out
// rows without logits, when they are copied out: a decode of two rows, one with logits, asks for both.
bool uma_keep_inputs(struct llama_context * ctx, const int32_t * layers, int32_t n) {
    inputs_of of = {ctx, layers, n};
    return uma_guarded("inputs of layers", [](void * arg) {
        const inputs_of * of = (const inputs_of *) arg;
        for (int32_t i = 0; i < of->n; i++) {
            llama_set_embeddings_layer_inp(of->ctx, (uint32_t) of->layers[i], true);
        }
        llama_token tokens[] = {0, 0};
        const bool  ok       = llama_decode(of->ctx, llama_batch_get_one(tokens, 2)) == 0;
        llama_memory_clear(llama_get_memory(of->ctx), false);
        return ok;
    }, &of);
}

float * uma_inputs(struct llama_context * ctx, int32_t layer) {
    try {
        return llama_get_embeddings_layer_inp(ctx, (uint32_t) layer);
    } catch (...) {
        return nullptr; // as above
    }
}

#endif
