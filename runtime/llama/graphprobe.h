// The entropy probe as nodes of llama.cpp's graph, see graphprobe.cpp.
#ifndef UMA_GRAPHPROBE_H
#define UMA_GRAPHPROBE_H

#include "probe.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct llama_model;

// A row of a decode that only the probe needs: it is the one of its sequence at pos.
typedef struct {
    int32_t seq, pos;
    int32_t done; // its statistics are in the place of its logits, see uma_graph_probe_read
} uma_wanted_row;

// What a context's graphs probe. uma_stop names it to the calls that build and compute graphs.
struct uma_graph_probe {
    uma_wanted_row * rows; // of the decode that is under way
    int32_t         n_rows;
    bool            called; // llama.cpp has built a graph with it
    uint64_t        logits; // bytes of logits that were copied
    uint64_t        probed; // rows
    void *          graph;  // the one that computes
};

// Whether the device of the model's output layer computes all nodes; only_beside: and is none of the processor.
bool uma_graph_probe_fits(const struct llama_model * model, bool only_beside);

// Has that device probe n logits. false where it cannot, or without memory.
bool uma_graph_probe_try(const struct llama_model * model, const float * logits, int32_t n, uma_row_stats * out);

// The statistics in the place of a row's logits; false where they are no numbers.
bool uma_graph_probe_read(const float * row, uma_row_stats * out);

#ifdef __cplusplus
}

// Of the llama_decode, or the creation of a context, that this thread is in: bridge.cpp sets it.
extern thread_local uma_graph_probe * uma_probing;
#endif
#endif
