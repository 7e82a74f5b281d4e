//go:build llama_engine && !llama_no_images && !llama_no_grids

// See grids.h. llama.cpp hands out the cells of a cache for reading; their own functions keep them consistent.

#if __has_include("llama.h")

#include "grids.h"

#include "../src/llama-kv-cache.h"
#include "../src/llama-memory-hybrid.h"

#include <tuple>
#include <vector>

namespace {

bool before(const uma_position & a, const uma_position & b) { return std::tie(a.t, a.y, a.x) < std::tie(b.t, b.y, b.x); }

// Or null: a memory of another kind.
llama_kv_cells * cells_of(llama_context * ctx, int32_t seq) {
    llama_memory_i * memory = llama_get_memory(ctx);
    if (const auto * hybrid = dynamic_cast<llama_memory_hybrid *>(memory)) {
        return const_cast<llama_kv_cells *>(&hybrid->get_mem_attn()->get_cells(seq));
    }
    const auto * cache = dynamic_cast<llama_kv_cache *>(memory);
    return cache ? const_cast<llama_kv_cells *>(&cache->get_cells(seq)) : nullptr;
}

uma_position position(const llama_kv_cells & cells, uint32_t i) { return {cells.pos_get(i), cells.ext_get(i).y, cells.ext_get(i).x}; }

// The cells of seq at positions [from, to).
std::vector<uint32_t> range(const llama_kv_cells & cells, int32_t seq, const uma_position & from, const uma_position & to) {
    std::vector<uint32_t> found;
    const auto &          all = cells.seq_pos_get(seq);
    for (auto it = all.lower_bound({from.t, 0}); it != all.end() && it->first <= to.t; ++it) {
        const uma_position p = position(cells, it->second);
        if (!before(p, from) && before(p, to)) {
            found.push_back(it->second);
        }
    }
    return found;
}

} // namespace

extern "C" {

bool uma_grid_known(struct llama_context * ctx) { return cells_of(ctx, 0) != nullptr; }

int32_t uma_grid_free(struct llama_context * ctx) {
    const llama_kv_cells * cells = cells_of(ctx, 0);
    return (int32_t) (cells->size() - cells->get_used());
}

void uma_grid_copy(struct llama_context * ctx, int32_t seq, int32_t dst, uma_position from, uma_position to) {
    llama_kv_cells * cells = cells_of(ctx, seq);
    for (const uint32_t i : range(*cells, seq, from, to)) {
        if (!cells->seq_has(i, dst)) {
            cells->seq_add(i, dst);
        }
    }
}

void uma_grid_remove(struct llama_context * ctx, int32_t seq, uma_position from, uma_position to) {
    llama_kv_cells * cells = cells_of(ctx, seq);
    for (const uint32_t i : range(*cells, seq, from, to)) {
        cells->seq_rm(i, seq);
    }
}

uma_position uma_grid_end(struct llama_context * ctx, int32_t seq, bool last) {
    const llama_kv_cells & cells = *cells_of(ctx, seq);
    const auto &           all   = cells.seq_pos_get(seq);
    if (all.empty()) {
        return {-1, -1, -1};
    }
    const int32_t t    = last ? all.rbegin()->first : all.begin()->first;
    uma_position  best = position(cells, last ? all.rbegin()->second : all.begin()->second);
    for (auto it = all.lower_bound({t, 0}); it != all.end() && it->first == t; ++it) {
        const uma_position p = position(cells, it->second);
        if (before(best, p) == last) {
            best = p;
        }
    }
    return best;
}

} // extern "C"
#endif
