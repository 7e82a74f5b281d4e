//go:build llama_engine && !llama_no_repacked

// The bytes of a model that ggml's CPU backend keeps in repacked buffers. llama.cpp only logs the number: the members read
// here are those of the commit that engineBuild names.

#if __has_include("llama.h")

#include "repack.h"

#include "../src/llama-model.h"
#include "ggml-backend.h"

uint64_t uma_repacked_bytes(const struct llama_model * model) {
    uint64_t n = 0;
    for (const auto & named : model->tensors_by_name) {
        const ggml_tensor * t = named.second;
        if (!t->buffer) {
            continue;
        }
        // The CPU's plain and mapped buffers can be read as they are ("host"); the others are CPU_REPACK and its kin.
        ggml_backend_buffer_type_t buft   = ggml_backend_buffer_get_type(t->buffer);
        ggml_backend_dev_t         device = ggml_backend_buft_get_device(buft);
        if (device && ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_CPU && !ggml_backend_buft_is_host(buft)) {
            n += ggml_backend_buft_get_alloc_size(buft, t);
        }
    }
    return n;
}

#endif
