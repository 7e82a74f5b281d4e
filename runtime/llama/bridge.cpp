//go:build llama_engine || llama_system

#include "bridge.h"
#if __has_include("llama.h")
#include "graphprobe.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <exception>
#include <memory>
#include <mutex>
#include <poll.h>
#include <pthread.h>
#include <stdexcept>
#include <string>
#ifdef __linux__
#include <sys/mman.h>
#endif
#include <unistd.h>
#include <vector>

// ---- log ring ----

namespace {

struct line {
    int32_t     level;
    std::string text;
};

constexpr size_t max_lines = 1024; // a model with many metadata keys logs a few hundred while it loads
constexpr size_t max_bytes = 4096; // of one line

std::mutex           log_mu;
std::deque<line>     log_lines; // the last one may be unfinished
bool                 log_open = false; // the last line has not seen its newline
int32_t              log_lost_n = 0;
std::atomic<int32_t> log_min{GGML_LOG_LEVEL_INFO};

void log_append(int32_t level, const char * text) {
    std::lock_guard<std::mutex> lock(log_mu);
    if (level == GGML_LOG_LEVEL_CONT) {
        if (!log_open) {
            return; // continues a line that was dropped
        }
    } else {
        log_open = false;
    }
    for (const char * p = text; *p != 0;) {
        if (!log_open) {
            if (log_lines.size() == max_lines) {
                log_lines.pop_front();
                log_lost_n++;
            }
            log_lines.push_back({level == GGML_LOG_LEVEL_CONT ? (int32_t) GGML_LOG_LEVEL_INFO : level, std::string()});
            log_open = true;
        }
        const size_t n   = std::strcspn(p, "\n");
        auto &       dst = log_lines.back().text;
        if (dst.size() < max_bytes) {
            dst.append(p, std::min(n, max_bytes - dst.size()));
        }
        p += n;
        if (*p == '\n') {
            log_open = false;
            p++;
        }
    }
}

// Called from any thread of llama.cpp's, never while one of them holds up a Go callback: it only stores.
void log_callback(enum ggml_log_level level, const char * text, void *) {
    if (level != GGML_LOG_LEVEL_CONT && level < log_min.load(std::memory_order_relaxed)) {
        std::lock_guard<std::mutex> lock(log_mu);
        log_open = false;
        return;
    }
    try {
        log_append(level, text);
    } catch (...) {
        // out of memory for a log line: it is lost
    }
}

void log_exception(const char * what, const char * text) {
    const std::string s = std::string(what) + ": " + text + "\n";
    log_append(GGML_LOG_LEVEL_ERROR, s.c_str());
}

// While above 0, a failed assertion of llama.cpp on this thread becomes an exception.
thread_local int assertions_throw = 0;

// The file whose model is being opened, "" when none is. Its first decodes run on threads of ggml's, where an assertion
// cannot become an exception.
std::mutex  opening_mu;
std::string opening;

// Writes to stderr as much as fits: a full pipe must not delay the end of the process.
void last_words(const std::string & text) {
    struct pollfd p = {2, POLLOUT, 0};
    if (poll(&p, 1, 0) == 1 && (p.revents & POLLOUT) != 0) {
        if (write(2, text.data(), text.size()) < 0) {
            return;
        }
    }
}

// Called by a failed assertion, instead of ggml's own report (which starts a debugger, where one is installed). When it
// returns the process aborts. While a model is opened it is the file's fault, and the process ends with a sentence.
void on_assertion(const char * message) {
    if (assertions_throw > 0) {
        throw std::runtime_error(message); // through one frame of C, which has unwind tables
    }
    std::string file;
    {
        std::lock_guard<std::mutex> lock(opening_mu);
        file = opening;
    }
    if (file.empty()) {
        last_words(std::string("llama.cpp: ") + message + "\n");
        return;
    }
    last_words("uma-serve: model cannot be loaded: " + file + ": its first decode failed an assertion of llama.cpp: " + message + "\n");
    _exit(1);
}

// Runs f with failed assertions as exceptions. Only for what may be given up half done: what f was building leaks.
template <typename F>
auto asserting(F f) -> decltype(f()) {
    struct scope {
        scope() { assertions_throw++; }
        ~scope() { assertions_throw--; }
    } s;
    return f();
}

// A llama.cpp before 0.5 reads an adapter only by its name: the second function is chosen where the first one's call
// does not exist. /dev/fd/N names the open file.
template <typename M>
auto adapter_from(M * model, FILE * f, int) -> decltype(llama_adapter_lora_init_from_file_ptr(model, f)) {
    return llama_adapter_lora_init_from_file_ptr(model, f);
}

template <typename M>
llama_adapter_lora * adapter_from(M * model, FILE * f, long) {
    return llama_adapter_lora_init(model, ("/dev/fd/" + std::to_string(fileno(f))).c_str());
}

// The width that llama.cpp takes a row's hidden state to have. Before 0.5 it is that of the token embeddings.
template <typename M> auto out_width(const M * model, int) -> decltype(llama_model_n_embd_out(model)) { return llama_model_n_embd_out(model); }
template <typename M> int32_t out_width(const M * model, long) { return llama_model_n_embd(model); }

// Runs f; where it throws, the text goes to the log ring and the result is otherwise.
template <typename R, typename F>
R guarded(const char * what, R otherwise, F f) {
    try {
        return f();
    } catch (const std::exception & e) {
        log_exception(what, e.what());
    } catch (...) {
        log_exception(what, "unknown exception");
    }
    return otherwise;
}

// The calls below were changed between the llama.cpp of the module and that of August 2026. The binding compiles with both: the
// compiler takes the overload whose members or parameters are there.

template <typename P> auto set_load_mode(P & p, bool mmap, bool mlock, int) -> decltype((void) p.use_mmap) {
    p.use_mmap  = mmap;
    p.use_mlock = mlock;
}

template <typename P> auto set_load_mode(P & p, bool mmap, bool mlock, long) -> decltype((void) p.load_mode) {
    p.load_mode = (decltype(p.load_mode)) ((mmap ? 1 : 0) | (mlock ? 2 : 0)); // LLAMA_LOAD_MODE_MMAP, _MLOCK
}

// Older trees load the layers of a head always, or know none.
template <typename P> auto set_load_head(P & p, bool head, int) -> decltype((void) p.load_mtp) { p.load_mtp = head; }

template <typename P> void set_load_head(P &, bool, long) {}

template <typename P> auto set_head(P & p, int32_t head, int) -> decltype((void) p.ctx_type) { p.ctx_type = (decltype(p.ctx_type)) head; }

template <typename P> void set_head(P &, int32_t, long) {}

template <typename P> auto set_model(P & p, llama_context * of, int) -> decltype((void) p.ctx_other) { p.ctx_other = of; }

template <typename P> void set_model(P &, llama_context *, long) {}

// Newer contexts have room for as many rows of logits as a batch has tokens, and fail where there are more sequences.
template <typename P> auto set_outputs(P & p, int) -> decltype((void) p.n_outputs_max) {
    p.n_outputs_max = std::max(p.n_batch, p.n_seq_max);
}

template <typename P> void set_outputs(P &, long) {
}

[[maybe_unused]] llama_sampler * penalties(llama_sampler * (*init)(int32_t, float, float, float), int32_t, int32_t last_n, float repeat, float frequency,
                                           float presence) {
    return init(last_n, repeat, frequency, presence);
}

[[maybe_unused]] llama_sampler * penalties(llama_sampler * (*init)(int32_t, int32_t, float, float, float), int32_t n_vocab, int32_t last_n, float repeat,
                                           float frequency, float presence) {
    return init(n_vocab, last_n, repeat, frequency, presence);
}

// While it lives, graphs that this thread builds and computes have the nodes of a probe.
struct probing {
    explicit probing(const uma_stop * stop) { uma_probing = stop->probe; }
    ~probing() { uma_probing = nullptr; }
};

} // namespace

thread_local uma_graph_probe * uma_probing = nullptr;

extern "C" {

void uma_install(void) {
    llama_log_set(log_callback, nullptr);
    ggml_set_abort_callback(on_assertion);
}

void uma_log(enum ggml_log_level level, const char * text, void * none) { log_callback(level, text, none); }

void uma_log_error(const char * what, const char * text) { log_exception(what, text); }

bool uma_guarded(const char * what, bool (*f)(void *), void * arg) {
    return guarded(what, false, [&] { return asserting([&] { return f(arg); }); });
}

void uma_opening(const char * path) {
    std::lock_guard<std::mutex> lock(opening_mu);
    opening = path;
}

void uma_log_level(int32_t min_level) { log_min.store(min_level, std::memory_order_relaxed); }

int32_t uma_log_next(char * dst, int32_t cap, int32_t * level) {
    std::lock_guard<std::mutex> lock(log_mu);
    if (log_lines.empty()) {
        return -1;
    }
    const line &  l = log_lines.front();
    const int32_t n = (int32_t) std::min<size_t>(l.text.size(), cap);
    std::memcpy(dst, l.text.data(), n);
    *level = l.level;
    log_lines.pop_front();
    if (log_lines.empty()) {
        log_open = false;
    }
    return n;
}

int32_t uma_log_lost(void) {
    std::lock_guard<std::mutex> lock(log_mu);
    const int32_t n = log_lost_n;
    log_lost_n      = 0;
    return n;
}

// ---- loading ----

extern bool umaProgress(float fraction, uintptr_t handle); // Go

static bool on_progress(float fraction, void * handle) { return umaProgress(fraction, (uintptr_t) handle); }

static int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

// Whether the decode will take longer than its limit, asked once, when it has taken so long that it can be given up in
// time. The share of nodes is a rough measure of what is done: layers are alike, and there are some dozens. The rest is as
// slow as what was computed, but at most one and a half times as slow as expected: an interruption that is over does not
// slow down the rest.
static bool too_late(uma_stop * s) {
    const int64_t took = now_ns() - s->begun;
    if (took < s->decide) {
        return false;
    }
    s->decide         = 0;
    const double done = (double) s->nodes / (double) s->all;
    const double rest = (1 - done) * std::min((double) took / done, 1.5 * (double) s->expected);
    s->late           = done < 1 && (double) took + rest > (double) s->limit;
    return s->late != 0;
}

static bool on_abort(void * stop) {
    uma_stop * s = (uma_stop *) stop;
    s->nodes++;
    if (s->never) {
        return false;
    }
    return __atomic_load_n(&s->abort, __ATOMIC_RELAXED) != 0 || s->late != 0 || (s->decide > 0 && s->all > 0 && too_late(s));
}

// Readies the unwinder. That of a static binary is not the library's, which is libgcc_s: an exception of the library
// unwinds with libgcc_s, through functions here whose registers our copy sets. It knows the registers' sizes once it has
// unwound an exception, and aborts before.
static void ready_unwinder() {
    try {
        throw 0;
    } catch (int) {
    }
}

void uma_load_backend(const char * path) {
    ready_unwinder();
    guarded("load a back end", 0, [&] {
        const auto refuse = [&](const char * why) {
            const std::string text = std::string("the back end ") + path + " is not used: " + why + "\n";
            log_append(GGML_LOG_LEVEL_ERROR, text.c_str());
            return 0;
        };
        void * library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) {
            const char * why = dlerror();
            return refuse(why == nullptr ? "no reason is known" : why);
        }
#ifdef UMA_ENGINE
        // ggml compares the version of its interface alone; tensors and graphs are shared too.
        const auto * sources = (const uint64_t *) dlsym(library, "uma_backend_sources");
        if (sources != nullptr && *sources != UMA_ENGINE) {
            dlclose(library);
            return refuse("it is built from another llama.cpp than this uma-serve; make backend-cuda or backend-vulkan "
                          "builds it again");
        }
#endif
        // The library has its copy of ggml-base, and so its log and its assertions.
        if (const auto set = (decltype(&ggml_log_set)) dlsym(library, "ggml_log_set")) {
            set(log_callback, nullptr);
        }
        if (const auto set = (decltype(&ggml_set_abort_callback)) dlsym(library, "ggml_set_abort_callback")) {
            set(on_assertion);
        }
        ggml_backend_load(path); // it logs why it does not take a library
        return 0;
    });
}

struct llama_model * uma_model_load(const char * path, int32_t gpu_layers, ggml_backend_dev_t * devices, const float * split, bool use_mmap, bool use_mlock, bool repack, bool head, const char * in_host, uintptr_t progress) {
    return guarded("load model", (llama_model *) nullptr, [&] {
        ggml_backend_dev_t none[1] = {nullptr};
        llama_model_params p       = llama_model_default_params();
        p.n_gpu_layers    = gpu_layers;
        set_load_mode(p, use_mmap, use_mlock, 0);
        p.use_extra_bufts = repack;
        set_load_head(p, head, 0);
        if (gpu_layers == 0) {
            p.devices = none; // otherwise large batches would still run on a GPU
        } else if (devices != nullptr) {
            p.devices      = devices;
            p.tensor_split = split;
        }
        const llama_model_tensor_buft_override host[] = {{in_host, ggml_backend_cpu_buffer_type()}, {nullptr, nullptr}};
        if (in_host) {
            p.tensor_buft_overrides = host; // read while the model is loaded
        }
        if (progress != 0) {
            p.progress_callback           = on_progress;
            p.progress_callback_user_data = (void *) progress;
        } else {
            p.progress_callback = [](float, void *) { return true; }; // the default one prints dots
        }
        return asserting([&] { return llama_model_load_from_file(path, p); });
    });
}

struct llama_context * uma_context_new(struct llama_model * model, const uma_context_options * o) {
    return guarded("create context", (llama_context *) nullptr, [&] {
        llama_context_params p = llama_context_default_params();
        p.n_ctx           = o->n_ctx;
        p.n_batch         = o->n_batch;
        p.n_ubatch        = o->n_ubatch;
        p.n_seq_max       = o->n_seq_max;
        set_outputs(p, 0);
        p.n_threads       = o->n_threads;
        p.n_threads_batch = o->n_threads_batch;
        p.flash_attn_type = (enum llama_flash_attn_type) o->flash_attn;
        p.type_k          = (enum ggml_type) o->type_k;
        p.type_v          = (enum ggml_type) o->type_v;
        p.swa_full        = o->swa_full;
        p.embeddings      = o->embeddings;
        p.attention_type  = o->whole_texts ? LLAMA_ATTENTION_TYPE_NON_CAUSAL : LLAMA_ATTENTION_TYPE_UNSPECIFIED;
        p.pooling_type    = (enum llama_pooling_type) o->pooling;
        p.kv_unified      = true;
        set_head(p, o->head, 0);
        set_model(p, o->model, 0);
        p.offload_kqv     = o->offload_kqv;
        p.op_offload      = true;
        p.no_perf         = true;
        p.abort_callback  = on_abort;
        p.abort_callback_data = o->stop;
        const probing all(o->stop);
        return asserting([&] { return llama_init_from_model(model, p); });
    });
}

void uma_give_back(void * p, size_t n) {
#ifdef __linux__
    const uintptr_t page = (uintptr_t) sysconf(_SC_PAGESIZE);
    const uintptr_t from = ((uintptr_t) p + page - 1) / page * page;
    const uintptr_t to   = ((uintptr_t) p + n) / page * page;
    if (from < to) {
        madvise((void *) from, to - from, MADV_DONTNEED); // refused for locked pages, which then stay as they are
    }
#else
    (void) p, (void) n; // elsewhere the advice does not promise zeros
#endif
}

void uma_give_back_rows(struct llama_context * ctx) {
    const size_t row = sizeof(float) * (size_t) llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(ctx)));
    if (float * rows = llama_get_logits(ctx)) {
        uma_give_back(rows, row * llama_n_seq_max(ctx));
    }
}

bool uma_copy(struct llama_context * ctx, llama_seq_id src, llama_seq_id dst) {
    return guarded("copy a sequence", false, [&] {
        return asserting([&] {
            const size_t               n = llama_state_seq_get_size(ctx, src);
            std::unique_ptr<uint8_t[]> all(new uint8_t[n]);
            return llama_state_seq_get_data(ctx, all.get(), n, src) == n && llama_state_seq_set_data(ctx, all.get(), n, dst) == n;
        });
    });
}

namespace {

// Whether llama_memory_seq_cp of a sequence copies bytes, and only in the next decode: a removal, a copy or a snapshot before
// that finds others. Sequence 0 has rows, 1 has none.
[[maybe_unused]] bool copies_late(llama_context * ctx) {
    const llama_memory_t mem = llama_get_memory(ctx);
    const auto           has = [&] {
        std::vector<uint8_t> all(llama_state_seq_get_size(ctx, 1));
        llama_state_seq_get_data(ctx, all.data(), all.size(), 1);
        llama_memory_seq_rm(mem, 1, -1, -1);
        return all;
    };
    llama_memory_seq_cp(mem, 0, 1, -1, -1);
    const auto copied = has();
    return uma_copy(ctx, 0, 1) && copied != has();
}

} // namespace

size_t uma_state_bytes(struct llama_model * model, const uma_context_options * o, size_t * each) {
    uma_context_options small = *o;
    small.n_ctx = 256;
    small.n_batch = small.n_ubatch = 32;
    small.n_seq_max = 2;
    *each = 0;
    llama_context * ctx = uma_context_new(model, &small);
    if (ctx == nullptr) {
        return 0;
    }
    const size_t n = guarded("size of a state", (size_t) 0, [&] {
        constexpr size_t         rows = 16;
        std::vector<llama_token> tokens(rows, std::max(llama_vocab_bos(llama_model_get_vocab(model)), (llama_token) 0));
        if (llama_decode(ctx, llama_batch_get_one(tokens.data(), 1)) != 0) {
            return (size_t) 0;
        }
#ifdef LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY
        const auto   part  = [&] { return llama_state_seq_get_size_ext(ctx, 0, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY); };
        const auto   whole = [&] { return llama_state_seq_get_size(ctx, 0); };
        const size_t state = part(), before = whole() - state;
        if (copies_late(ctx)) {
            *each = std::max(state, (size_t) 1);
            if (llama_decode(ctx, llama_batch_get_one(tokens.data(), rows)) == 0) {
                const size_t all = o->n_ctx > 0 ? o->n_ctx : (size_t) llama_model_n_ctx_train(model);
                *each += (part() - state) * (llama_model_n_swa(model) + o->n_ubatch) / rows + (whole() - part() - before) * all / rows;
            }
        }
        return state;
#else
        return llama_state_seq_get_size(ctx, 0);
#endif
    });
    llama_free(ctx);
    return n;
}

struct ggml_threadpool * uma_threadpool_new(int32_t n_threads, uint32_t poll, const int32_t * cpus, int32_t n_cpus) {
    ggml_threadpool_params p = ggml_threadpool_params_default(n_threads);
    p.poll = poll;
    for (int32_t i = 0; i < n_cpus; i++) {
        if (cpus[i] >= 0 && cpus[i] < GGML_MAX_N_THREADS) {
            p.cpumask[cpus[i]] = true;
        }
    }
#ifdef __linux__
    // ggml binds the calling thread too, which may be any of Go's.
    cpu_set_t mine;
    const bool known = n_cpus > 0 && pthread_getaffinity_np(pthread_self(), sizeof(mine), &mine) == 0;
#endif
    ggml_threadpool * pool = ggml_threadpool_new(&p);
#ifdef __linux__
    if (known) {
        pthread_setaffinity_np(pthread_self(), sizeof(mine), &mine);
    }
#endif
    return pool;
}

// ---- decoding ----

int32_t uma_decode(struct llama_context * ctx, struct llama_batch * b, int32_t n, bool encode, uma_stop * stop) {
    return guarded("decode", (int32_t) UMA_THREW, [&] {
        const bool whole = n <= (int32_t) llama_n_ubatch(ctx) && !stop->never; // one graph, with as many nodes as any other
        b->n_tokens      = n;
        stop->late = stop->nodes = 0;
        if (stop->decide > 0 && whole) {
            stop->begun = now_ns();
        } else {
            stop->decide = 0;
        }
        const probing all(stop);
        const int32_t r = encode ? llama_encode(ctx, *b) : llama_decode(ctx, *b);
        if (r == 0) {
            llama_synchronize(ctx);
            if (whole) {
                stop->all = stop->nodes;
            }
        }
        return r;
    });
}

int32_t uma_submit(struct llama_context * ctx, struct llama_batch * b, int32_t n, uma_stop * stop) {
    return guarded("decode", (int32_t) UMA_THREW, [&] {
        b->n_tokens = n;
        stop->late = stop->nodes = 0;
        const probing all(stop);
        return llama_decode(ctx, *b);
    });
}

int32_t uma_wait(struct llama_context * ctx) {
    return guarded("decode", (int32_t) UMA_THREW, [&] {
        llama_synchronize(ctx);
        return 0;
    });
}

struct llama_adapter_lora * uma_adapter_load(struct llama_model * model, int32_t fd) {
    return guarded("load adapter", (llama_adapter_lora *) nullptr, [&] {
        const int mine = dup(fd);
        FILE *    f    = mine < 0 ? nullptr : fdopen(mine, "rb");
        if (f == nullptr) {
            if (mine >= 0) {
                close(mine);
            }
            throw std::runtime_error("its file cannot be read");
        }
        std::rewind(f);
        struct closer {
            FILE * f;
            ~closer() { std::fclose(f); }
        } c{f};
        return asserting([&] { return adapter_from(model, f, 0); });
    });
}

void uma_use_adapters(struct llama_context * ctx, struct llama_adapter_lora ** adapters, size_t n, float * scales) {
    llama_set_adapters_lora(ctx, n > 0 ? adapters : nullptr, n, scales);
}

size_t uma_restore(struct llama_context * ctx, const uint8_t * src, size_t n, llama_seq_id seq) {
    return guarded("restore", (size_t) 0, [&] { return asserting([&] { return llama_state_seq_set_data(ctx, src, n, seq); }); });
}

bool uma_embeds(const struct llama_model * model) { return out_width(model, 0) == llama_model_n_embd(model); }

// ---- vocabulary ----

namespace {

struct tokenize_call {
    const llama_vocab * v;
    const char *        text;
    int32_t             len;
    llama_token *       dst;
    int32_t             cap;
    bool                add_special, parse_special;
    int32_t             result;

    void run() {
        result = guarded("tokenize", (int32_t) UMA_THREW, [&] {
            return asserting([&] { return llama_tokenize(v, text, len, dst, cap, add_special, parse_special); });
        });
    }
};

void * run_tokenize(void * call) {
    ((tokenize_call *) call)->run();
    return nullptr;
}

} // namespace

int32_t uma_tokenize(const struct llama_vocab * v, const char * text, int32_t len, llama_token * dst, int32_t cap, bool add_special, bool parse_special, size_t stack) {
    tokenize_call c = {v, text, len, dst, cap, add_special, parse_special, UMA_THREW};
    if (stack == 0) {
        c.run();
        return c.result;
    }
    pthread_attr_t attr;
    pthread_t      thread;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, stack);
    const int err = pthread_create(&thread, &attr, run_tokenize, &c);
    pthread_attr_destroy(&attr);
    if (err != 0) {
        log_exception("tokenize", std::strerror(err));
        return UMA_THREW;
    }
    pthread_join(thread, nullptr);
    return c.result;
}

int64_t uma_vocab_strings(const struct llama_vocab * v, bool text, char * dst, int64_t cap, uint32_t * end) {
    return guarded("read vocabulary", (int64_t) -1, [&] { return asserting([&] {
        const int32_t n = llama_vocab_n_tokens(v);
        std::string   all, piece(256, 0);
        for (int32_t t = 0; t < n; t++) {
            if (text) {
                const char * s = llama_vocab_get_text(v, t);
                all += s ? s : "";
            } else {
                int32_t k = llama_token_to_piece(v, t, &piece[0], (int32_t) piece.size(), 0, false);
                if (k < 0) {
                    piece.resize(-k);
                    k = llama_token_to_piece(v, t, &piece[0], (int32_t) piece.size(), 0, false);
                }
                all.append(piece.data(), k > 0 ? k : 0);
            }
            end[t] = (uint32_t) all.size();
        }
        if ((int64_t) all.size() <= cap) {
            std::memcpy(dst, all.data(), all.size());
        }
        return (int64_t) all.size();
    }); });
}

bool uma_vocab_flags(const struct llama_vocab * v, uint8_t * flags) {
    return guarded("read vocabulary", false, [&] { return asserting([&] {
        const int32_t n = llama_vocab_n_tokens(v);
        for (int32_t t = 0; t < n; t++) {
            const int32_t attr = llama_vocab_get_attr(v, t);
            flags[t] = (llama_vocab_is_control(v, t) ? 1 : 0) | (llama_vocab_is_eog(v, t) ? 2 : 0) |
                       (attr & (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_USER_DEFINED | LLAMA_TOKEN_ATTR_UNKNOWN) ? 4 : 0) |
                       (attr & LLAMA_TOKEN_ATTR_LSTRIP ? 8 : 0);
        }
        return true;
    }); });
}

// ---- argmax ----

// Two passes, both of a shape compilers turn into vector code without -ffast-math: the largest value over
// independent lanes, then the first place it occurs. `a > b ? a : b` keeps b where a is NaN.
uma_max uma_argmax(const float * x, int32_t n) {
    constexpr int32_t lanes = 64;
    float             best[lanes];
    for (int32_t j = 0; j < lanes; j++) {
        best[j] = -INFINITY;
    }
    int32_t i = 0;
    for (; i + lanes <= n; i += lanes) {
        for (int32_t j = 0; j < lanes; j++) {
            best[j] = x[i + j] > best[j] ? x[i + j] : best[j];
        }
    }
    float max = -INFINITY;
    for (int32_t j = 0; j < lanes; j++) {
        max = best[j] > max ? best[j] : max;
    }
    for (; i < n; i++) {
        max = x[i] > max ? x[i] : max;
    }
    if (max == -INFINITY) {
        return {-1, max};
    }
    for (i = 0; i + lanes <= n; i += lanes) {
        int32_t hit = 0;
        for (int32_t j = 0; j < lanes; j++) {
            hit |= x[i + j] == max;
        }
        if (hit) {
            break;
        }
    }
    while (x[i] != max) {
        i++;
    }
    return {i, max};
}

uma_max uma_argmax_row(struct llama_context * ctx, int32_t i, int32_t n) { return uma_argmax(llama_get_logits_ith(ctx, i), n); }

// ---- reference sampler ----

struct llama_sampler * uma_sampler_penalties(int32_t n_vocab, int32_t last_n, float repeat, float frequency, float presence) {
    return penalties(llama_sampler_init_penalties, n_vocab, last_n, repeat, frequency, presence);
}

int64_t uma_sample(struct llama_sampler * chain, llama_token_data * data, int64_t * size) {
    return guarded("sample", (int64_t) -1, [&] {
        llama_token_data_array a = {data, (size_t) *size, -1, false};
        llama_sampler_apply(chain, &a);
        if (a.data != data) { // a sampler may replace the array
            std::memmove(data, a.data, a.size * sizeof(*data));
        }
        *size = (int64_t) a.size;
        return a.selected;
    });
}

} // extern "C"
#endif // __has_include("llama.h")
