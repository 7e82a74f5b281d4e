//go:build linux && (amd64 || arm64) && !llama_system

// Which position lies in which cell. Attention adds up over the cells of a conversation, and sums in floating point depend
// on their order: with the positions at hand the kernel adds in theirs, wherever the cells have come to lie after an
// eviction, a restore or a walk around the end of the pool (attention.cpp). llama.cpp does not tell: the members read here
// are private, in the commit that engineBuild names.

#if __has_include("llama.h")

#include "positions.h"

#include <algorithm>
#include <mutex>
#include <shared_mutex>

#include "../src/llama-kv-cache-iswa.h"
#include "../src/llama-kv-cache.h"
#include "ggml-backend.h"

namespace {

// An explicit instantiation may name what is private: it hands the member's address out through a friend.
template <auto member> struct cells_by {
    friend const std::vector<llama_kv_cells> & cells_of(const llama_kv_cache & c) { return c.*member; }
};
template <auto member> struct buffers_by {
    friend const std::vector<std::pair<ggml_context_ptr, ggml_backend_buffer_ptr>> & buffers_of(const llama_kv_cache & c) { return c.*member; }
};
template <auto member> struct positions_by {
    friend const std::vector<llama_pos> & positions_of(const llama_kv_cells & c) { return c.*member; }
};

const std::vector<llama_kv_cells> &                                            cells_of(const llama_kv_cache &);
const std::vector<std::pair<ggml_context_ptr, ggml_backend_buffer_ptr>> & buffers_of(const llama_kv_cache &);
const std::vector<llama_pos> &                                                 positions_of(const llama_kv_cells &);

template struct cells_by<&llama_kv_cache::v_cells>;
template struct buffers_by<&llama_kv_cache::ctxs_bufs>;
template struct positions_by<&llama_kv_cells::pos>;

struct region {
    const void *                 owner;
    const char *                 from;
    size_t                       size;
    const std::vector<int32_t> * positions;
};

std::shared_mutex   mu;
std::vector<region> regions;

void know(const void * owner, const llama_kv_cache * c) {
    if (!c || cells_of(*c).size() != 1) { // several streams: a key's place is not its cell's number
        return;
    }
    for (const auto & b : buffers_of(*c)) {
        if (ggml_backend_buffer_is_host(b.second.get())) {
            uma_positions_add(owner, ggml_backend_buffer_get_base(b.second.get()), ggml_backend_buffer_get_size(b.second.get()), &positions_of(cells_of(*c)[0]));
        }
    }
}

} // namespace

const std::vector<int32_t> * uma_positions(const void * k) {
    std::shared_lock<std::shared_mutex> lock(mu);
    for (const region & r : regions) {
        if (k >= r.from && k < r.from + r.size) {
            return r.positions;
        }
    }
    return nullptr;
}

void uma_positions_add(const void * owner, const void * k, size_t size, const std::vector<int32_t> * positions) {
    std::unique_lock<std::shared_mutex> lock(mu);
    regions.push_back({owner, (const char *) k, size, positions});
}

void uma_positions_know(struct llama_context * ctx) {
    llama_memory_i * memory = llama_get_memory(ctx);
    know(ctx, dynamic_cast<llama_kv_cache *>(memory));
    if (const auto * two = dynamic_cast<llama_kv_cache_iswa *>(memory)) {
        know(ctx, two->get_base());
        know(ctx, two->get_swa());
    }
}

void uma_positions_remove(const void * owner) {
    std::unique_lock<std::shared_mutex> lock(mu);
    regions.erase(std::remove_if(regions.begin(), regions.end(), [&](const region & r) { return r.owner == owner; }), regions.end());
}

#endif
