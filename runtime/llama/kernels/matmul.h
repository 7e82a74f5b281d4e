#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
#include <stddef.h>

struct uma_attention_width;

// uma_job is a product on one thread: c[n][m] = x[n][k] · wᵀ, w[m][k].
struct uma_job {
    int             type;    // of the weights, an enum ggml_type
    int64_t         m, n, k; // k in values
    const char *    w;
    int64_t         w_row; // bytes from one row to the next
    const char *    x;     // as ggml quantised it for this type: vec_dot_type
    int64_t         x_row;
    float *         c;
    int64_t         c_row; // floats
    const int32_t * x_at;  // the n rows of x that are multiplied, and those of c that are written; null: the first n
    const int32_t * c_at;
    char *          rows;  // room for what prepare makes of x
    char *          strip; // room for a strip of unpacked weights
};

// uma_piece is a thread's next part of a product: strips [from, to). then is the weights that it reads afterwards, null
// where that is not known; they are only prefetched.
struct uma_piece {
    int64_t      from, to;
    const char * then;
};

// uma_kernels is the products of one instruction set. They work on strips: a few rows of weights at a time.
struct uma_kernels {
    const char * name;
    bool (*here)(void);                                         // whether this processor has the instructions
    int (*strip)(int type);                                     // rows of weights in a strip; 0: the type is ggml's
    size_t (*rows_bytes)(const uma_job &);                      // what prepare needs
    size_t (*strip_bytes)(const uma_job &);                     // what compute needs
    void (*prepare)(const uma_job &);                           // x → rows
    void (*prepare_part)(const uma_job &, int64_t row, int64_t from, int64_t to, const char * x); // values [from, to) of a row, which are at x → rows
    bool (*round_part)(const uma_job &, int64_t row, int64_t from, int64_t to, const float * x);  // the same, rounded as ggml does; false: it does not round this type
    void (*compute)(const uma_job &, const uma_piece &);
    uma_attention_width (*attention)(int width);                // see attention.h
    bool (*faster)(void);                                       // tries it against the next ones; null: they are
};

extern const uma_kernels uma_kernels_amx, uma_kernels_avx512, uma_kernels_avxvnni, uma_kernels_avx2, uma_kernels_i8mm, uma_kernels_neon;

uma_attention_width uma_attention_avx512(int width);
uma_attention_width uma_attention_avx2(int width);
uma_attention_width uma_attention_neon(int width);

// uma_matmul_graph finds the products of a graph that multiply the same activations, which are then prepared once. It is called
// whenever a graph is about to be computed.
void uma_matmul_graph(struct ggml_cgraph * graph, int threads);

// uma_matmul_joined reports whether a product of a graph was computed with one before it.
bool uma_matmul_joined(const struct ggml_tensor * op);

extern "C" {
#endif

// uma_matmul_use chooses the kernels, at first the fastest that this processor has but for "amx", by name: "amx", "avx512", "avxvnni", "avx2", "i8mm" or "neon", "ggml" for none of ours, or
// "auto" for the fastest that this processor has. False, and nothing changes, when the processor or the build does not have
// them. Models that are loaded afterwards keep the weights that the kernels take as the file has them. With "ggml" attention is
// ggml's, too. No decode may be running.
bool uma_matmul_use(const char * name);

// uma_matmul_used is the name of the kernels in use, "ggml" when they are not ours.
const char * uma_matmul_used(void);

// uma_matmul_takes reports whether the kernels in use compute products with weights of the type (enum ggml_type).
bool uma_matmul_takes(int type);

// uma_matmul_register has ggml's CPU backend offer its products to the kernels. It must be called before the first graph is computed.
void uma_matmul_register(void);

// uma_matmul_computed reports whether the kernels computed a product with weights of the type since the last call.
bool uma_matmul_computed(int type);

// uma_keep_weights has ggml repack no matrix that the kernels take, nor a stack of them (experts), in models that are loaded
// from now on.
void uma_keep_weights(void);

// uma_keeps reports whether ggml repacks no matrix of the type (enum ggml_type).
bool uma_keeps(int type);

#ifdef __cplusplus
}
#endif
