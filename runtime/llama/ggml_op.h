#pragma once

#include <stddef.h>

// What ggml hands to the function that computes a node, one call per thread: ggml-cpu-impl.h, which llama.cpp does not
// install, of the commit that engineBuild names. The kernels that the linker puts in the place of ggml's read it.

#ifdef __cplusplus
extern "C" {
#endif

struct ggml_compute_params {
    int                      ith, nth; // this thread, of how many
    size_t                   wsize;
    void *                   wdata;
    struct ggml_threadpool * threadpool;
};

#ifdef __cplusplus
}
#endif
