#pragma once

#include <pthread.h>
#include <stdint.h>

#ifdef __cplusplus
#include <atomic>
#define UMA_ATOMIC(type) std::atomic<type>
#define UMA_LINE alignas(64)
#else
#include <stdatomic.h>
#include <stdbool.h>
#define UMA_ATOMIC(type) _Atomic(type)
#define UMA_LINE _Alignas(64)
#endif

// struct ggml_threadpool of ggml-cpu.c, down to the last member that the barrier reads. C compares it with a tree's own
// (scripts/engine/barrier.c).
struct uma_pool {
    pthread_mutex_t          mutex;
    pthread_cond_t           cond;
    void *                   cgraph;
    void *                   cplan;
    UMA_ATOMIC(int)          graph; // its low bits are the number of threads of the graph, UMA_POOL_THREADS of them
    UMA_LINE UMA_ATOMIC(int) arrived;
    UMA_LINE UMA_ATOMIC(int) passed;
    UMA_LINE UMA_ATOMIC(int) chunk;
    UMA_ATOMIC(bool)         stop, pause;
    UMA_ATOMIC(int)          abort;
    void *                   workers;
    int                      threads;
    int32_t                  priority;
    uint32_t                 poll;
};

#define UMA_POOL_THREADS 0xffff
