#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct llama_model;

// uma_repacked_bytes is the size of the tensors that lie rearranged in anonymous memory of the CPU backend.
uint64_t uma_repacked_bytes(const struct llama_model * model);

#ifdef __cplusplus
}
#endif
