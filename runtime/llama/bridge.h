// The C side of runtime/llama: what Go cannot do itself. Three reasons bring a function here: llama.cpp may throw (a
// C++ exception that reaches cgo kills the process), it calls back (log, abort, progress), or a loop over a row of
// logits needs vector code. Everything else is called from Go directly.
#ifndef UMA_BRIDGE_H
#define UMA_BRIDGE_H

#if !__has_include("llama.h")
#error uma-serve is built with: make  (or: eval "$(make env)" and then go build)
#else

#include "llama.h"

#ifdef __cplusplus
extern "C" {
#endif

// What a bridge function returns where llama.cpp threw; the exception's text is in the log ring, at error level.
#define UMA_THREW INT32_MIN

// Routes the log of llama.cpp and ggml into the ring, and its failed assertions to where they can be survived.
void uma_install(void);
// Lines below min_level (a ggml_log_level) are dropped unread.
void uma_log_level(int32_t min_level);
// Takes the oldest line: its length in bytes, cut to cap; -1 when there is none.
int32_t uma_log_next(char * dst, int32_t cap, int32_t * level);
// The number of lines lost because the ring was full; reading resets it.
int32_t uma_log_lost(void);

// For other files of this package: a line of llama.cpp's log, an error of the ring, and a call of f whose exceptions and
// failed assertions on this thread make it false. What f was building leaks then.
void uma_log(enum ggml_log_level level, const char * text, void * none);
void uma_log_error(const char * what, const char * text);
bool uma_guarded(const char * what, bool (*f)(void *), void * arg);

// From now on until it is called with "", a failed assertion on any thread ends the process with a sentence that names path and
// with exit status 1, instead of aborting it.
void uma_opening(const char * path);

// An instruction set that this build uses throughout and the processor does not have; NULL: none.
const char * uma_processor_lacks(void);

// Loads the library of a device back end. One that is built from another llama.cpp is refused; the log says why.
void uma_load_backend(const char * path);

// NULL on failure; the reason is in the log ring. head: with the layers that guess tokens. progress is a cgo.Handle, 0 = none.
// devices ends with a null; split has llama_max_devices() numbers of layers, in their order. NULL: llama.cpp chooses.
// in_host is a regular expression of the names of tensors that stay in the host's memory, whatever layer they are of; NULL:
// none.
struct llama_model * uma_model_load(const char * path, int32_t gpu_layers, ggml_backend_dev_t * devices, const float * split, bool use_mmap, bool use_mlock, bool repack, bool head, const char * in_host, uintptr_t progress);

typedef struct {
    uint32_t n_ctx, n_batch, n_ubatch, n_seq_max;
    int32_t  n_threads, n_threads_batch;
    int32_t  flash_attn;     // enum llama_flash_attn_type
    int32_t  type_k, type_v; // enum ggml_type
    bool     swa_full;
    bool     offload_kqv;    // the KV cache of layers on a device is there, too
    bool     embeddings;     // see llama_set_embeddings
    bool     whole_texts;    // each row sees the whole text, whatever the file says
    int32_t  pooling;        // enum llama_pooling_type
    int32_t  head;           // not 0: the enum llama_context_type of a head (heads.h)
    struct llama_context * model; // of a head with a separate file: the context of its model, which outlives it
    struct uma_stop * stop;  // must outlive the context
} uma_context_options;

// When a decode stops before its end. Read by the thread that runs it, at each node of the graph.
typedef struct uma_stop {
    int32_t abort;                   // atomic, written by any thread
    int32_t late;                    // it was given up: it would have taken longer than limit
    bool    never;                   // not even with abort
    int64_t decide, limit, expected; // ns, see runtime.Bound; decide 0: it is not given up
    int64_t begun;                   // ns
    int64_t nodes, all;              // computed in this decode, and in a whole one; all 0: not known
    struct uma_graph_probe * probe;  // of the context's graphs (graphprobe.h), NULL = none
} uma_stop;

// uma_give_back_rows returns the memory of the rows of logits to the system until they are computed: llama.cpp has filled
// those of all sequences with zeros, 256 MiB for a vocabulary of 262,144. Only for memory of the processor.
void uma_give_back_rows(struct llama_context * ctx);

// uma_give_back returns whole pages of n bytes at p to the system. They read as zeros.
void uma_give_back(void * p, size_t n);

// uma_state_bytes is the size of what a sequence keeps besides its cells: a state of recurrent layers. 0 where it cannot be
// found out. each: 0, or what the context of o has for each of its sequences, which share nothing: llama_memory_seq_cp copies
// bytes, and only in the next decode (DeepSeek 4).
size_t uma_state_bytes(struct llama_model * model, const uma_context_options * o, size_t * each);

struct llama_context * uma_context_new(struct llama_model * model, const uma_context_options * o);

// n_threads threads that live until ggml_threadpool_free; poll is 0 (sleep at once) … 100 (spin long). Those that it creates
// run on the n_cpus CPUs, or where the kernel likes with n_cpus = 0.
struct ggml_threadpool * uma_threadpool_new(int32_t n_threads, uint32_t poll, const int32_t * cpus, int32_t n_cpus);

// llama_decode, or llama_encode, of the first n rows of b, and the wait for its result. The caller sets decide, limit,
// expected and never of stop before.
int32_t uma_decode(struct llama_context * ctx, struct llama_batch * b, int32_t n, bool encode, uma_stop * stop);

// uma_decode without the wait: a device may still compute. uma_wait follows where it returned 0.
int32_t uma_submit(struct llama_context * ctx, struct llama_batch * b, int32_t n, uma_stop * stop);
int32_t uma_wait(struct llama_context * ctx);

// The adapter in the file of a descriptor, which stays open. NULL on failure; the reason is in the log ring.
struct llama_adapter_lora * uma_adapter_load(struct llama_model * model, int32_t fd);
// llama_set_adapters_lora.
void uma_use_adapters(struct llama_context * ctx, struct llama_adapter_lora ** adapters, size_t n, float * scales);

// llama_tokenize, on a new thread with that many bytes of stack unless stack is 0. UMA_THREW when llama.cpp threw or the
// thread cannot be created.
int32_t uma_tokenize(const struct llama_vocab * v, const char * text, int32_t len, llama_token * dst, int32_t cap, bool add_special, bool parse_special, size_t stack);

// Writes the strings of all tokens one behind the other and, to end[t], where token t's string ends. text = false:
// what the token shows (nothing for control tokens); true: how the vocabulary writes it. Returns the bytes of all;
// nothing is written to dst when cap is less. -1 when llama.cpp threw.
int64_t uma_vocab_strings(const struct llama_vocab * v, bool text, char * dst, int64_t cap, uint32_t * end);
// flags[t]: 1 = control, 2 = ends a generation, 4 = found in a text before it is tokenized, 8 = and takes the blanks
// before it. false when llama.cpp threw.
bool uma_vocab_flags(const struct llama_vocab * v, uint8_t * flags);

// llama_state_seq_set_data, 0 also where a malformed snapshot fails an assertion.
size_t uma_restore(struct llama_context * ctx, const uint8_t * src, size_t n, llama_seq_id seq);

// Whether the hidden states of rows can be read. A model that answers with several streams side by side (DeepSeek 4) leaves one
// of them, and llama.cpp reads as many numbers as all have: it ends the process.
bool uma_embeds(const struct llama_model * model);

// Gives dst, which is empty, what src has, at once, where llama_memory_seq_cp is late. false: the log says why.
bool uma_copy(struct llama_context * ctx, llama_seq_id src, llama_seq_id dst);

typedef struct {
    int32_t token;
    float   max;
} uma_max;

// The first index of the largest of n values; NaN never wins. token is -1 when no value is above -infinity.
uma_max uma_argmax(const float * x, int32_t n);
// The same over the logits of batch row i, which must have logits.
uma_max uma_argmax_row(struct llama_context * ctx, int32_t i, int32_t n);

// llama_sampler_init_penalties; n_vocab is ignored by the versions that do not take it.
struct llama_sampler * uma_sampler_penalties(int32_t n_vocab, int32_t last_n, float repeat, float frequency, float presence);

// Applies a sampler to the *size candidates of data and leaves the survivors at its front, *size of them. Returns the
// index of the chosen one, -1 = none.
int64_t uma_sample(struct llama_sampler * chain, llama_token_data * data, int64_t * size);

#ifdef __cplusplus
}
#endif
#endif // __has_include("llama.h")
#endif
