//go:build linux && (amd64 || arm64) && llama_engine && !llama_no_attention

// Which position lies in which cell. Attention adds up over the cells of a conversation, and sums in floating point depend
// on their order: with the positions at hand the kernel adds in theirs, wherever the cells have come to lie after an
// eviction, a restore or a walk around the end of the pool (attention.cpp). cells.cpp has them from llama.cpp.

#if __has_include("llama.h")

#include "positions.h"

#include <algorithm>
#include <mutex>
#include <shared_mutex>

namespace {

struct region {
    const void * owner;
    const char * from;
    size_t       size;
    uma_order    order;
};

std::shared_mutex   mu;
std::vector<region> regions;

} // namespace

uma_order uma_positions(const void * k) {
    std::shared_lock<std::shared_mutex> lock(mu);
    for (const region & r : regions) {
        if (k >= r.from && k < r.from + r.size) {
            return r.order;
        }
    }
    return {};
}

void uma_positions_add(const void * owner, const void * k, size_t size, const uma_order & order) {
    std::unique_lock<std::shared_mutex> lock(mu);
    regions.push_back({owner, (const char *) k, size, order});
}

void uma_positions_remove(const void * owner) {
    std::unique_lock<std::shared_mutex> lock(mu);
    regions.erase(std::remove_if(regions.begin(), regions.end(), [&](const region & r) { return r.owner == owner; }), regions.end());
}

#endif
