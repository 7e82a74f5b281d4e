//go:build linux && (amd64 || arm64) && llama_engine && !llama_no_barrier

// The barrier between two nodes of a graph.
//
// ggml's spins until the last thread arrives. Where another process has taken the core of a thread, the others then spin
// for as long as the kernel lets it wait, some milliseconds, and keep the cores that it could run on: one busy
// process beside two threads on two cores takes three quarters of their speed. This one spins for as long as threads that
// all run wait for each other, and then sleeps, so that the kernel moves the waiting thread to the core that became free.
// A spinning thread prefetches what it will read (uma_coming): memory would be idle meanwhile.
//
// The linker puts it in the place of ggml's (barrier.so). It counts in ggml's own fields, whose layout uma_barrier_fits checks.

#if __has_include("ggml.h")

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "barrier.h"
#include "barrier_pool.h"
#include "ggml-cpu.h"
#include "ggml.h"

namespace {

using pool = struct uma_pool;

constexpr int THREADS = UMA_POOL_THREADS;

// SPIN is how long a thread spins, in nanoseconds. Threads that all run wait some microseconds for each other, and up to 100 behind
// a large product; a thread without a core comes back after milliseconds. Waking one takes 5 to 50 µs.
constexpr int64_t SPIN = 100000;

// LINES is how many lines of memory a thread asks for before it looks again whether it may go on.
constexpr int LINES = 4;

// How many threads sleep at barriers of the pools that share a slot. A slot of several pools costs calls that wake no thread.
struct alignas(64) slot {
    std::atomic<int> sleeping;
};
slot slots[64];

std::atomic<uint64_t> sleeps;

// passed is whether a thread has come here for the first time since uma_barrier_passed asked.
std::atomic<bool> passed;

slot & slot_of(const void * p) {
    return slots[((uintptr_t) p >> 6) % 64 ^ ((uintptr_t) p >> 12) % 64];
}

// seats are the ids of the threads that have computed.
constexpr int        SEATS = 1024;
std::atomic<int32_t> seats[SEATS];

struct seat {
    int at = -1;

    seat() {
        const int32_t id = (int32_t) syscall(SYS_gettid);
        for (int i = 0; i < SEATS && at < 0; i++) {
            int32_t none = 0;
            if (seats[i].load(std::memory_order_relaxed) == 0 && seats[i].compare_exchange_strong(none, id)) {
                at = i;
            }
        }
    }
    ~seat() {
        if (at >= 0) {
            seats[at] = 0;
        }
    }
};

thread_local bool seated = false;

__attribute__((noinline)) void sit() {
    thread_local seat mine;
    seated = true;
}

void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    __asm__ volatile("yield" ::: "memory");
#endif
}

int64_t now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

// await returns once p->passed is not before.
void await(pool * p, int before) {
    uma_range & coming = uma_coming;
    int64_t     until  = 0;
    for (;;) {
        for (int i = 0; i < 128; i++) { // a few microseconds without a look at the clock
            if (p->passed.load(std::memory_order_relaxed) != before) {
                return;
            }
            if (coming.at < coming.end) {
                for (int l = 0; l < LINES; l++, coming.at += 64) {
                    __builtin_prefetch(coming.at, 0, 2);
                }
            }
            relax();
        }
        const int64_t t = now();
        if (until == 0) {
            until = t + SPIN;
        } else if (t >= until) {
            break;
        }
    }
    slot & s = slot_of(p);
    s.sleeping.fetch_add(1, std::memory_order_seq_cst);
    sleeps.fetch_add(1, std::memory_order_relaxed);
    while (p->passed.load(std::memory_order_seq_cst) == before) {
        syscall(SYS_futex, &p->passed, FUTEX_WAIT_PRIVATE, before, nullptr, nullptr, 0);
    }
    s.sleeping.fetch_sub(1, std::memory_order_relaxed);
}

} // namespace

extern "C" void uma_barrier(struct ggml_threadpool * tp) {
    if (!seated) {
        sit();
        passed.store(true, std::memory_order_relaxed);
    }
    pool *    p       = (pool *) tp;
    const int threads = p->graph.load(std::memory_order_relaxed) & THREADS;
    if (threads == 1) {
        return;
    }
    const int before = p->passed.load(std::memory_order_relaxed);
    if (p->arrived.fetch_add(1, std::memory_order_seq_cst) == threads - 1) {
        p->arrived.store(0, std::memory_order_relaxed);
        p->passed.fetch_add(1, std::memory_order_seq_cst);
        // A thread counts itself as sleeping before the kernel compares passed with before: either this sees it, or it does not sleep.
        if (slot_of(p).sleeping.load(std::memory_order_seq_cst) > 0) {
            syscall(SYS_futex, &p->passed, FUTEX_WAKE_PRIVATE, THREADS, nullptr, nullptr, 0);
        }
        return;
    }
    await(p, before);
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

extern "C" bool uma_barrier_fits(struct ggml_threadpool * tp, int32_t threads, uint32_t poll) {
    const pool * p = (const pool *) tp;
    return p->cgraph == nullptr && p->cplan == nullptr && p->graph == 0 && p->arrived == 0 && p->passed == 0 && p->chunk == 0 && !p->stop && !p->pause && p->abort == -1 &&
           p->workers != nullptr && p->threads == threads && p->priority == 0 && p->poll == poll;
}

extern "C" void uma_barrier_try(void) {
    ggml_context * ctx = ggml_init({1 << 16, nullptr, false});
    if (!ctx) {
        return;
    }
    ggml_tensor * x = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 64);
    ggml_set_zero(x);
    ggml_cgraph * graph = ggml_new_graph_custom(ctx, 8, false);
    ggml_build_forward_expand(graph, ggml_add(ctx, ggml_add(ctx, x, x), x));
    ggml_graph_compute_with_ctx(ctx, graph, 2);
    ggml_free(ctx);
}

extern "C" bool uma_barrier_passed(void) {
    return passed.exchange(false, std::memory_order_relaxed);
}

extern "C" uint64_t uma_barrier_sleeps(void) {
    return sleeps.load(std::memory_order_relaxed);
}

extern "C" int32_t uma_compute_threads(int32_t * ids, int32_t n) {
    int32_t found = 0;
    for (int i = 0; i < SEATS && found < n; i++) {
        if (const int32_t id = seats[i].load(std::memory_order_relaxed)) {
            ids[found++] = id;
        }
    }
    return found;
}

#endif
