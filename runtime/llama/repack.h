#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct llama_model;
struct llama_context;

// What one device has of a model, in bytes.
typedef struct {
    char     name[64]; // ggml's; "CPU" for all memory of the host
    uint64_t weights, kv, compute;
} uma_place;

// uma_repacked_bytes is the size of the tensors that lie rearranged in anonymous memory of the CPU backend.
uint64_t uma_repacked_bytes(const struct llama_model * model);

// uma_placed writes the memory of each device, and returns the number of devices. Devices beyond cap are left out.
int32_t uma_placed(const struct llama_context * ctx, uma_place * list, int32_t cap);

// uma_state_rows is the size of the tensors' rows in the state of sequence 0, of all of the context's caches.
uint64_t uma_state_rows(struct llama_context * ctx);

#ifdef __cplusplus
}
#endif
