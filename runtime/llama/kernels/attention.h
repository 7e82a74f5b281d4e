#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
#include <stddef.h>

// uma_cells are what a row may see: indices, and what the mask adds to their scores.
struct uma_cells {
    int32_t * at;
    float *   bias;
    int64_t   n;
};

// QUERIES is how many rows × query heads a job has at most: enough to make up for the conversion of a block.
constexpr int QUERIES = 256;

// uma_attention_job is rows that are computed together, for the query heads of one K/V head.
struct uma_attention_job {
    int               k_type, v_type; // enum ggml_type
    const char *      k, *v;
    int64_t           k_cell, v_cell;   // bytes from one cell to the next
    int               k_bytes, v_bytes; // of a cell
    int               k_width, v_width; // values of a cell; a query has k_width, a result v_width
    int64_t           rows, heads;
    const uma_cells * seen; // of each row
    const float *     q;
    int64_t           q_row, q_head; // floats
    float             scale;
    float             softcap; // scores become softcap · tanh(score / softcap); 0: they stay
    const float *     slopes;  // what each head multiplies a cell's bias by; null: 1
    const float *     sinks;   // a score of each head that takes its weight along and nothing else; null: there is none
    int64_t           first, last; // parts of PART cells of the rows' lists
    int64_t           all;         // parts that there are
    float *           parts;       // records of the parts, [rows][heads][all], where others compute some of them; else null
    float *           out;         // the results, where all parts are computed here
    int64_t           out_row, out_head; // floats
    char *            room;
};

// A record of a part is the base, a score that the weights are relative to, the sum of the weights and the weighted values:
// the kernel's width + 2 floats. The base is -infinity where no cell is in the part.
constexpr int64_t PART = 512;

// uma_attention_merge adds a part to the record of those before it.
void uma_attention_merge(float * record, const float * part, int width);

// uma_attention_result is what a record of all parts comes to, width values; zeros where there was no cell. sink may be null.
void uma_attention_result(const float * record, const float * sink, float * out, int width);

// uma_attention_exp is e^x by libm: one function for all instruction sets.
float uma_attention_exp(float x);

// uma_attention_width is the kernel for heads of at most so many values, which are multiplied as if zeros followed them. group
// needs room(queries) bytes, aligned to 64.
struct uma_attention_width {
    int width;
    void (*group)(const uma_attention_job &);
    size_t (*room)(int64_t queries);
};

// uma_attention_kernels are those of the instruction set that uma_matmul_use chose, for heads of a width; group is null where
// there are none.
uma_attention_width uma_attention_kernels(int width);

extern "C" {
#endif

// uma_attention_enable says whether our kernels compute attention, or ggml's; it returns what was before. For tests and
// benchmarks: no decode may be running.
bool uma_attention_enable(bool on);

// uma_attention_computed reports whether our kernels computed attention since the last call.
bool uma_attention_computed(void);

// uma_attention_graph computes the operation through a graph of ggml, as llama.cpp lays its tensors out, with ggml's threads:
// q[rows][heads][width], k[cells][kv_heads][width] and v[cells][kv_heads][v_width] of type kind (enum ggml_type), mask[rows][cells] halves, or NULL,
// sinks[heads], or NULL, positions[cells], or NULL, lines[cells], or NULL, by which cells at one position are in order,
// out[rows][heads][v_width]. For tests. False when there is no memory for the
// graph. With several layers the operation is in the graph as often, with one mask, and the last one's result counts.
typedef struct {
    int         threads, kind, layers;
    int64_t     width, v_width, rows, cells, heads, kv_heads;
    float       scale, max_bias, softcap;
} uma_attention_shape;

bool uma_attention_graph(const uma_attention_shape * shape, const float * q, const void * k, const void * v, const uint16_t * mask, const float * sinks,
                         const int32_t * positions, const int32_t * lines, float * out);

#ifdef __cplusplus
}
#endif
