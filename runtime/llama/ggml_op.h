#pragma once

// What ggml hands to the function that computes a node, one call per thread. The kernels that the linker puts in the place
// of ggml's read it.

#ifdef UMA_ENGINE
#include "../src/ggml-cpu/ggml-cpu-impl.h" // of the tree that make ENGINE= names
#else

#include <stddef.h>

// The header has others that the module leaves out of the include path: the members are those of the commit that engineBuild
// names.

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
#endif
