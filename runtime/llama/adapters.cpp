//go:build llama_engine && !llama_no_adapters

// Changes of a context's adapters. llama_set_adapters_lora has the context plan the memory of its largest graphs anew, which took 7 ms for
// 135 M parameters, each time that a step has another mix. Here the context keeps its plan and gets another set.

#if __has_include("llama.h")

#include "adapters.h"

#include "../src/llama-adapter.h"
#include "../src/llama-context.h"

namespace {

// An explicit instantiation may name what is private: see cells.cpp.
template <auto member> struct sets_by {
    friend llama_adapter_loras_ptr & set_of(llama_context & c) { return c.*member; }
};

llama_adapter_loras_ptr & set_of(llama_context &);

template struct sets_by<&llama_context::loras>;

} // namespace

void * uma_mix_new(struct llama_adapter_lora ** adapters, const float * scales, size_t n) {
    try {
        auto set = std::make_unique<llama_adapter_loras>();
        for (size_t i = 0; i < n; i++) {
            if (scales[i] != 0) {
                (*set)[adapters[i]] += scales[i];
            }
        }
        return set.release();
    } catch (...) {
        return nullptr;
    }
}

void uma_mix_free(void * mix) { delete (llama_adapter_loras *) mix; }

void * uma_mix_swap(struct llama_context * ctx, void * mix) {
    llama_adapter_loras_ptr & set = set_of(*ctx);
    void *                    old = set.release();
    set.reset((llama_adapter_loras *) mix);
    return old;
}

#endif
