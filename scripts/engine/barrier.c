// Whether runtime/llama's barrier fits a tree: its thread pool has the layout of struct uma_pool, as far as the barrier reads
// it. The pool's type is private to this file of ggml's.
#include "ggml-cpu.c"

#include "barrier_pool.h"

#ifdef GGML_USE_OPENMP
#error the threads of OpenMP have their own barrier
#endif

#define SAME(theirs, ours)                                                                                                                   \
    _Static_assert(offsetof(struct ggml_threadpool, theirs) == offsetof(struct uma_pool, ours) &&                                           \
                       sizeof(((struct ggml_threadpool *) 0)->theirs) == sizeof(((struct uma_pool *) 0)->ours),                             \
                   "ggml_threadpool." #theirs)

SAME(cgraph, cgraph);
SAME(cplan, cplan);
SAME(n_graph, graph);
SAME(n_barrier, arrived);
SAME(n_barrier_passed, passed);
SAME(current_chunk, chunk);
SAME(stop, stop);
SAME(pause, pause);
SAME(abort, abort);
SAME(workers, workers);
SAME(n_threads, threads);
SAME(prio, priority);
SAME(poll, poll);
_Static_assert(GGML_THREADPOOL_N_THREADS_MASK == UMA_POOL_THREADS, "GGML_THREADPOOL_N_THREADS_MASK");
_Static_assert(__builtin_types_compatible_p(__typeof__(ggml_barrier), void(struct ggml_threadpool *)), "ggml_barrier");
