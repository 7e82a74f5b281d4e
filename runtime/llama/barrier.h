#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ggml_threadpool;

// uma_barrier is ggml_barrier: it returns once all threads of the pool's graph have called it.
void uma_barrier(struct ggml_threadpool * pool);

// uma_barrier_fits reports whether the pool, new, with that many threads and that polling level, has the layout that uma_barrier
// reads.
bool uma_barrier_fits(struct ggml_threadpool * pool, int32_t threads, uint32_t poll);

// uma_barrier_try computes a small graph on two threads.
void uma_barrier_try(void);

// uma_barrier_passed reports whether a new thread has called uma_barrier since the last call.
bool uma_barrier_passed(void);

// uma_barrier_sleeps is how often a thread of this process has slept at a barrier.
uint64_t uma_barrier_sleeps(void);

// uma_compute_threads writes the kernel's ids of up to n live threads that have computed a graph, and returns how many.
int32_t uma_compute_threads(int32_t * ids, int32_t n);

#ifdef __cplusplus
}

// uma_coming is memory that this thread will read soon: it is prefetched while the thread waits at a barrier.
struct uma_range {
    const char *at, *end;
};
inline thread_local uma_range uma_coming;
#endif
