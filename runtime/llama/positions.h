#pragma once

#include <stdint.h>

#ifdef __cplusplus
#include <memory>
#include <vector>

// uma_order is the order of cells: by their positions, and where several have one (the rows of an image in M-RoPE) as before
// says.
struct uma_order {
    const std::vector<int32_t> * positions = nullptr; // one to a cell
    const void *                 cells     = nullptr; // what before reads
    bool (*before)(const void * cells, int32_t a, int32_t b) = nullptr; // null: no two have the same position
};

// uma_positions is the order of the cells that hold the keys at k; its positions are null where they are not known. It is that
// of the present: between two graphs it may change.
uma_order uma_positions(const void * k);

// uma_positions_add makes that of size bytes at k known, until uma_positions_remove(owner).
void uma_positions_add(const void * owner, const void * k, size_t size, const uma_order & order);

extern "C" {
#endif

struct llama_context;

// uma_positions_know makes the positions of the cells of ctx known to the attention kernel, until uma_positions_remove(ctx). It
// returns how many buffers of cells it knows: 0 for a memory that has no cells, or lies on a device.
int uma_positions_know(struct llama_context * ctx);
void uma_positions_remove(const void * owner);

// uma_positions_shift is 0 where moving the positions of ctx would end the process: llama.cpp asserts that some layer of each
// of its caches is rotated.
int uma_positions_shift(struct llama_context * ctx);

#ifdef __cplusplus
}
#endif
