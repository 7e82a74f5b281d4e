//go:build llama_engine && !llama_no_repacked

// The bytes of a model that ggml's CPU backend keeps in repacked buffers, and those that each device has of a model.
// llama.cpp only logs the numbers: the members and functions used here are those of the commit that engineBuild names.
// What it writes of a cell beside its rows differs by kinds of positions and memories, and is not counted.

#if __has_include("llama.h")

#include "repack.h"

#include "../src/llama-io.h"
#include "../src/llama-memory.h"
#include "../src/llama-model.h"
#if __has_include("../src/llama-ext.h")
#include "../src/llama-ext.h"
#endif
#include "ggml-backend.h"

#include <cstring>

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

int32_t uma_placed(const struct llama_context * ctx, uma_place * list, int32_t cap) {
    int32_t n = 0;
#if __has_include("../src/llama-ext.h")
    for (const auto & part : llama_get_memory_breakdown(ctx)) {
        ggml_backend_dev_t device = ggml_backend_buft_get_device(part.first);
        // Memory of the host that a device's back end has allocated is the processor's.
        const bool   host = device == nullptr || ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_CPU || ggml_backend_buft_is_host(part.first);
        const char * name = host ? "CPU" : ggml_backend_dev_name(device);
        int32_t      i    = 0;
        while (i < n && std::strncmp(list[i].name, name, sizeof(list[i].name) - 1) != 0) {
            i++;
        }
        if (i == cap) {
            continue;
        }
        if (i == n) {
            list[n++] = {};
            std::strncpy(list[i].name, name, sizeof(list[i].name) - 1);
        }
        list[i].weights += part.second.model;
        list[i].kv      += part.second.context;
        list[i].compute += part.second.compute;
    }
#endif
    return n;
}

namespace {

struct rows_of_a_state : llama_io_write_i {
    size_t n = 0;
    void   write(const void *, size_t) override {}
    void   write_tensor(ggml_tensor *, size_t, size_t size) override { n += size; }
    size_t n_bytes() override { return n; }
};

} // namespace

uint64_t uma_state_rows(struct llama_context * ctx) {
    rows_of_a_state io;
    llama_get_memory(ctx)->state_write(io, 0, 0);
    return io.n;
}

#endif
