#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    const char * name;
    float *      data; // for free(); NULL: the file has no such tensor
    int64_t      rows, columns;
} uma_tensor;

// Reads the named tensors of a GGUF file as floats. Returns NULL, or what failed.
const char * uma_read_tensors(const char * path, uma_tensor * tensors, int32_t n);

#ifdef __cplusplus
}
#endif
