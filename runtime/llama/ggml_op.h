#pragma once

// What ggml hands to the function that computes a node, one call per thread. The kernels that the linker puts in the place
// of ggml's read it.

#include "../src/ggml-cpu/ggml-cpu-impl.h" // of the tree that make names
