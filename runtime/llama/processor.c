//go:build llama_engine || llama_system

#include "bridge.h"

#include <stddef.h>

const char * uma_processor_lacks(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
#if defined(__AVX512F__)
    if (!__builtin_cpu_supports("avx512f")) {
        return "AVX-512";
    }
#endif
#if defined(__AVX512VNNI__)
    if (!__builtin_cpu_supports("avx512vnni")) {
        return "AVX-512 VNNI";
    }
#endif
#if defined(__AVX512BF16__)
    if (!__builtin_cpu_supports("avx512bf16")) {
        return "AVX-512 BF16";
    }
#endif
#if defined(__AVX2__)
    if (!__builtin_cpu_supports("avx2")) {
        return "AVX2";
    }
#endif
#if defined(__FMA__)
    if (!__builtin_cpu_supports("fma")) {
        return "FMA";
    }
#endif
#endif
    return NULL;
}
