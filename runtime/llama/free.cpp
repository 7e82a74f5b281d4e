//go:build !llama_system && !llama_engine && !llama_stub

// The end of a context. The engine module's ggml_backend_sched_free reads the backends, and llama_context frees its
// backends first, because it declares them last: freed memory was read, and where it had been unmapped, the process
// crashed. llama.cpp's own ggml_backend_sched_free does not read them.

#if __has_include("llama.h")

#include "free.h"

#include "../src/llama-context.h"

namespace {

// As in cells.cpp: an explicit instantiation may name what is private.
template <auto member> struct sched_by {
    friend ggml_backend_sched_ptr & sched_of(llama_context & c) { return c.*member; }
};

ggml_backend_sched_ptr & sched_of(llama_context &);
template struct sched_by<&llama_context::sched>;

} // namespace

void uma_context_free(struct llama_context * ctx) {
    ctx->synchronize();
    sched_of(*ctx).reset();
    llama_free(ctx);
}

#endif
