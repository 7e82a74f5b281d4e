//go:build linux && (amd64 || arm64) && llama_engine && !llama_no_positions

// Which position lies in which cell, and of which layers. llama.cpp does not tell: the members read here are private, in the commit that
// engineBuild names. Newer sources hold the cells behind a pointer (UMA_CELLS_SHARED, which scripts/engine.sh finds out).

#if __has_include("llama.h")

#include "bridge.h"
#include "positions.h"

#include "../src/llama-kv-cache-iswa.h"
#include "../src/llama-kv-cache.h"
#include "../src/llama-model.h"
#include "ggml-backend.h"

namespace {

// An explicit instantiation may name what is private: it hands the member's address out through a friend.
template <auto member> struct cells_by {
#ifdef UMA_CELLS_SHARED
    friend const std::vector<llama_kv_cells> * cells_of(const llama_kv_cache & c) { return (c.*member).get(); }
#else
    friend const std::vector<llama_kv_cells> * cells_of(const llama_kv_cache & c) { return &(c.*member); }
#endif
};
template <auto member> struct buffers_by {
    friend const std::vector<std::pair<ggml_context_ptr, ggml_backend_buffer_ptr>> & buffers_of(const llama_kv_cache & c) { return c.*member; }
};
// Trees before has_rope rotate all layers.
template <class H> auto rotated(const H & h, uint32_t layer, int) -> decltype(h.has_rope(layer)) { return h.has_rope(layer); }
template <class H> bool rotated(const H &, uint32_t, long) { return true; }

template <class L> bool some_rotated(const L & layers, const llama_hparams & h) {
    for (const auto & layer : layers) {
        if (rotated(h, layer.il, 0)) {
            return true;
        }
    }
    return false;
}

// The rows of an image are in the order of their lines. Trees without the other dimensions of a cell have no such rows.
template <class C> auto line_before(const C & c, int32_t a, int32_t b, int) -> decltype(c.ext_get(0).y, false) {
    const auto &p = c.ext_get(a), &q = c.ext_get(b);
    return p.y < q.y || (p.y == q.y && p.x < q.x);
}
template <class C> bool line_before(const C &, int32_t, int32_t, long) { return false; }

bool before(const void * cells, int32_t a, int32_t b) { return line_before(*(const llama_kv_cells *) cells, a, b, 0); }

template <auto member> struct layers_by {
    friend bool rotates(const llama_kv_cache & c, const llama_hparams & h) { return some_rotated(c.*member, h); }
};
template <auto member> struct positions_by {
    friend const std::vector<llama_pos> & positions_of(const llama_kv_cells & c) { return c.*member; }
};

const std::vector<llama_kv_cells> *                                            cells_of(const llama_kv_cache &);
const std::vector<std::pair<ggml_context_ptr, ggml_backend_buffer_ptr>> & buffers_of(const llama_kv_cache &);
const std::vector<llama_pos> &                                                 positions_of(const llama_kv_cells &);
bool                                                                           rotates(const llama_kv_cache &, const llama_hparams &);

#ifdef UMA_CELLS_SHARED
template struct cells_by<&llama_kv_cache::v_cells_impl>;
#else
template struct cells_by<&llama_kv_cache::v_cells>;
#endif
template struct buffers_by<&llama_kv_cache::ctxs_bufs>;
template struct layers_by<&llama_kv_cache::layers>;
template struct positions_by<&llama_kv_cells::pos>;

// llama.cpp has just filled the cells with zeros, and so touched the memory of the whole context. Pages given back to
// the system read as zeros again and take memory when a token is first stored in them: a large context costs what is
// used of it. Not the memory of a device, or what its driver has pinned.
void give_back(ggml_backend_buffer_t b) {
    if (ggml_backend_buffer_get_type(b) == ggml_backend_cpu_buffer_type()) {
        uma_give_back(ggml_backend_buffer_get_base(b), ggml_backend_buffer_get_size(b));
    }
}

int know(const void * owner, const llama_kv_cache * c, bool shared) {
    const std::vector<llama_kv_cells> * cells = c ? cells_of(*c) : nullptr;
    if (!cells || cells->size() != 1) { // several streams: a key's place is not its cell's number
        return 0;
    }
    int n = 0;
    for (const auto & b : buffers_of(*c)) {
        if (ggml_backend_buffer_is_host(b.second.get())) {
            uma_positions_add(owner, ggml_backend_buffer_get_base(b.second.get()), ggml_backend_buffer_get_size(b.second.get()), {&positions_of((*cells)[0]), &(*cells)[0], shared ? before : nullptr});
            give_back(b.second.get());
            n++;
        }
    }
    return n;
}

} // namespace

int uma_positions_know(struct llama_context * ctx) {
    llama_memory_i * memory = llama_get_memory(ctx);
    const auto       rope   = llama_get_model(ctx)->hparams.rope_type;
    const bool       shared = rope == LLAMA_ROPE_TYPE_MROPE || rope == LLAMA_ROPE_TYPE_IMROPE;
    if (const auto * two = dynamic_cast<llama_kv_cache_iswa *>(memory)) {
        return know(ctx, two->get_base(), shared) + know(ctx, two->get_swa(), shared);
    }
    return know(ctx, dynamic_cast<llama_kv_cache *>(memory), shared);
}

int uma_positions_shift(struct llama_context * ctx) {
    const llama_hparams & h      = llama_get_model(ctx)->hparams;
    llama_memory_i *      memory = llama_get_memory(ctx);
    if (h.rope_type == LLAMA_ROPE_TYPE_NONE) {
        return 1;
    }
    if (const auto * two = dynamic_cast<llama_kv_cache_iswa *>(memory)) {
        return rotates(*two->get_base(), h) && rotates(*two->get_swa(), h);
    }
    const auto * one = dynamic_cast<llama_kv_cache *>(memory);
    return !one || rotates(*one, h);
}

#endif
