//go:build linux && (amd64 || arm64) && llama_engine && !llama_no_probe

// The entropy probe as nodes of llama.cpp's graph. Of a row that only the probe needs, 16 bytes come back from a device
// instead of its logits, 600 KB for a vocabulary of 152,064.
//
// The linker puts two functions in the place of llama.cpp's (--wrap, see graphprobe.go): build_sampling, which is called
// behind the output layer of each graph and adds the nodes here, and ggml_backend_tensor_get_async, by which
// llama_decode copies the logits of all rows. Of the rows that were probed it leaves the logits out, and copies the
// statistics to where they would be.
//
// llama.cpp's own way, a chain of samplers for each sequence (llama_set_sampler), costs more than it saves: a context
// that has one keeps four times the rows of all its sequences in the host's memory (622 MB instead of 156 for 256
// sequences and this vocabulary), copies the logits of each step within the device, and asks for those of each row by
// itself (by its source; not measured).
//
// # The nodes
//
// With m the largest logit and d = max(x-m, FLOOR), they are Z = Σ e^d and S = Σ d·e^d; then log-sum-exp = m + ln Z and
// entropy = ln Z - S/Z, in float64 here. Sums are made of pieces of PIECE, and then of the pieces: a device adds up in
// float32, and an error grows with the number of terms.
//
// The nodes are in every graph, of as many rows at most as when memory was planned, so that the plan fits all of them;
// in one that probes nothing they are not computed.

#if __has_include("llama.h")

#include "bridge.h"
#include "graphprobe.h"

#include "../src/llama-context.h"
#include "../src/llama-graph.h"
#include "../src/llama-model.h"
#include "ggml-backend.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#define BUILD _ZNK17llm_graph_context14build_samplingEv
#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)

extern "C" {
void JOIN(__real_, BUILD)(const llm_graph_context * g);
void JOIN(__wrap_, BUILD)(const llm_graph_context * g);
void __real_ggml_backend_tensor_get_async(ggml_backend_t backend, const ggml_tensor * tensor, void * data, size_t offset, size_t size);
void __wrap_ggml_backend_tensor_get_async(ggml_backend_t backend, const ggml_tensor * tensor, void * data, size_t offset, size_t size);
}

static_assert(std::is_same<decltype(&llm_graph_context::build_sampling), void (llm_graph_context::*)() const>::value, "build_sampling");
static_assert(std::is_same<decltype(ggml_backend_tensor_get_async), decltype(__wrap_ggml_backend_tensor_get_async)>::value, "ggml_backend_tensor_get_async");

namespace {

constexpr int64_t MOST  = 4;      // rows that a graph probes: as many as the forks of a step (core.MaxForks)
constexpr int64_t PIECE = 256;    // logits
constexpr float   FLOOR = -87.0f; // e^-87 is the least of normal numbers: the sum of a vocabulary of such is nothing
constexpr int     NODES = 32;     // and leaves that are added, at most

// Where a row has them in the place of its logits.
enum { TOP = 3, FLOATS = 4 };

struct nodes {
    ggml_tensor * stats; // [TOP, rows]: m, Z, S
    ggml_tensor * top;   // [rows]: the index of m
};

// total sums each of the rows of x.
ggml_tensor * total(ggml_context * ctx, ggml_tensor * x) {
    const int64_t n = x->ne[0], rows = x->ne[1], pieces = (n + PIECE - 1) / PIECE;
    if (n % PIECE != 0) {
        x = ggml_pad(ctx, x, (int) (pieces * PIECE - n), 0, 0, 0);
    }
    x = ggml_sum_rows(ctx, ggml_reshape_3d(ctx, x, PIECE, pieces, rows));
    return ggml_sum_rows(ctx, ggml_reshape_2d(ctx, x, pieces, rows));
}

// probe_nodes probes the rows of logits that index names. What is not a number makes Z none: ggml's clamp gives one of its
// two bounds for it.
nodes probe_nodes(ggml_context * ctx, ggml_tensor * logits, ggml_tensor * index) {
    const int64_t n = logits->ne[0], rows = index->ne[0];
    ggml_tensor * x   = ggml_get_rows(ctx, logits, index);
    ggml_tensor * top = ggml_argmax(ctx, x);
    ggml_tensor * m   = ggml_get_rows(ctx, ggml_reshape_3d(ctx, x, 1, n, rows), ggml_reshape_2d(ctx, top, 1, rows));
    m                 = ggml_reshape_2d(ctx, m, 1, rows);
    ggml_tensor * d   = ggml_clamp(ctx, ggml_sub(ctx, x, m), FLOOR, FLT_MAX);
    ggml_tensor * e   = ggml_exp(ctx, d);
    ggml_tensor * z   = total(ctx, e);
    ggml_tensor * s   = total(ctx, ggml_mul(ctx, d, e));
    nodes         out = {ggml_concat(ctx, ggml_concat(ctx, m, z, 0), s, 0), top};
    ggml_set_output(out.stats);
    ggml_set_output(out.top);
    return out;
}

// probes is the part of one graph that probes. It knows the place of the probed rows among those that have logits.
class probes : public llm_graph_input_i {
  public:
    probes(uma_graph_probe * of, const llm_graph_context & g) : of(of), sched(g.sched), logits(g.res->t_logits) {
        const int64_t found = wanted(g.ubatch);
        active              = found > 0;
        rows                = std::min(MOST, std::max<int64_t>(active ? found : g.n_outputs, 1));
        index               = ggml_new_tensor_1d(g.ctx0, GGML_TYPE_I32, rows);
        ggml_set_input(index);
        what = probe_nodes(g.ctx0, logits, index);
        (active ? ggml_build_forward_expand : ggml_build_forward_order)(g.gf, what.top);
        (active ? ggml_build_forward_expand : ggml_build_forward_order)(g.gf, what.stats);
    }

    ~probes() override {
        if (of->graph == this) {
            of->graph = nullptr;
        }
    }

    void set_input(const llama_ubatch * ubatch) override {
        of->graph = this;
        count     = 0;
        if (!active) {
            return;
        }
        int32_t places[MOST] = {};
        visit(*ubatch, [&](int32_t place, uma_wanted_row & row) {
            if (count < rows) {
                places[count]  = place;
                found[count++] = {(size_t) place, &row};
            }
        });
        ggml_backend_tensor_set(index, places, 0, rows * sizeof(places[0]));
    }

    bool can_reuse(const llm_graph_params & params) override {
        const int64_t n = wanted(params.ubatch);
        return (n > 0) == active && (!active || std::min(n, MOST) == rows);
    }

    // copies takes the place of llama_decode's copy of all logits.
    bool copies(ggml_backend_t backend, const ggml_tensor * tensor, void * data, size_t offset, size_t size) {
        const size_t row = tensor->nb[1];
        if (tensor != logits || offset != 0 || size % row != 0) {
            return false;
        }
        size_t from = 0; // of the rows whose logits are not yet copied
        const auto upto = [&](size_t to) {
            if (from < to) {
                __real_ggml_backend_tensor_get_async(backend, tensor, (char *) data + from, from, to - from);
                of->logits += to - from;
            }
        };
        for (int64_t k = 0; k < count; k++) {
            const size_t at = found[k].place * row;
            upto(at);
            from = at + row;
            float * dst = (float *) ((char *) data + at);
            get(what.stats, dst, k * TOP * sizeof(float), TOP * sizeof(float));
            get(what.top, dst + TOP, k * sizeof(int32_t), sizeof(int32_t));
            found[k].row->done = 1;
            of->probed++;
        }
        upto(size);
        return true;
    }

  private:
    struct place_of {
        size_t          place;
        uma_wanted_row * row;
    };

    uma_graph_probe *    of;
    ggml_backend_sched_t sched;
    ggml_tensor *        logits;
    ggml_tensor *        index = nullptr;
    nodes                what  = {};
    int64_t              rows = 0, count = 0;
    bool                 active = false;
    place_of             found[MOST] = {}; // in the graph that computes, ascending

    void get(const ggml_tensor * t, void * dst, size_t offset, size_t size) {
        __real_ggml_backend_tensor_get_async(ggml_backend_sched_get_tensor_backend(sched, (ggml_tensor *) t), t, dst, offset, size);
    }

    // visit calls f for each row of a piece of the batch that only the probe needs.
    template <typename F> void visit(const llama_ubatch & u, F f) const {
        int32_t place = 0;
        for (uint32_t i = 0; of->n_rows > 0 && i < u.n_tokens; i++) {
            if (!u.output[i]) {
                continue;
            }
            for (int32_t k = 0; k < of->n_rows; k++) {
                uma_wanted_row & r = of->rows[k];
                if (r.seq == u.seq_id[i][0] && r.pos == u.pos[i]) {
                    f(place, r);
                    break;
                }
            }
            place++;
        }
    }

    int64_t wanted(const llama_ubatch & u) const {
        int64_t n = 0;
        visit(u, [&](int32_t, uma_wanted_row &) { n++; });
        return n;
    }
};

// There is room for as many nodes and tensors as llama.cpp thinks a graph has.
bool roomy(const llm_graph_context & g) {
    return ggml_graph_size(g.gf) - ggml_graph_n_nodes(g.gf) > NODES && ggml_get_mem_size(g.ctx0) - ggml_used_mem(g.ctx0) > NODES * ggml_tensor_overhead();
}

struct freed {
    void operator()(ggml_context * c) const { ggml_free(c); }
    void operator()(ggml_backend * b) const { ggml_backend_free(b); }
    void operator()(ggml_backend_buffer * b) const { ggml_backend_buffer_free(b); }
};

// A graph that probes one row of n logits, without memory.
struct alone {
    std::unique_ptr<ggml_context, freed> ctx;
    ggml_tensor *                        logits = nullptr;
    ggml_tensor *                        index  = nullptr;
    nodes                                what   = {};
    ggml_cgraph *                        gf     = nullptr;

    explicit alone(int64_t n) {
        ctx.reset(ggml_init({(NODES + 4) * ggml_tensor_overhead() + ggml_graph_overhead_custom(2 * NODES, false), nullptr, true}));
        if (ctx) {
            logits = ggml_new_tensor_2d(ctx.get(), GGML_TYPE_F32, n, 2);
            index  = ggml_new_tensor_1d(ctx.get(), GGML_TYPE_I32, 1);
            what   = probe_nodes(ctx.get(), logits, index);
            gf     = ggml_new_graph_custom(ctx.get(), 2 * NODES, false);
            ggml_build_forward_expand(gf, what.top);
            ggml_build_forward_expand(gf, what.stats);
        }
    }
};

} // namespace

extern "C" void JOIN(__wrap_, BUILD)(const llm_graph_context * g) {
    JOIN(__real_, BUILD)(g);
    uma_graph_probe * of = uma_probing;
    if (of && g->res->t_logits && roomy(*g)) {
        of->called = true;
        g->res->add_input(std::make_unique<probes>(of, *g));
    }
}

extern "C" void __wrap_ggml_backend_tensor_get_async(ggml_backend_t backend, const ggml_tensor * tensor, void * data, size_t offset, size_t size) {
    probes * graph = uma_probing ? (probes *) uma_probing->graph : nullptr;
    if (!graph || !graph->copies(backend, tensor, data, offset, size)) {
        __real_ggml_backend_tensor_get_async(backend, tensor, data, offset, size);
    }
}

bool uma_graph_probe_fits(const struct llama_model * model, bool only_beside) {
    ggml_backend_dev_t device = model->dev_output();
    if (!device || (only_beside && ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_CPU)) {
        return false;
    }
    const alone graph(llama_vocab_n_tokens(llama_model_get_vocab(model)));
    for (int i = 0; graph.ctx && i < ggml_graph_n_nodes(graph.gf); i++) {
        if (!ggml_backend_dev_supports_op(device, ggml_graph_node(graph.gf, i))) {
            return false;
        }
    }
    return graph.ctx != nullptr;
}

bool uma_graph_probe_try(const struct llama_model * model, const float * logits, int32_t n, uma_row_stats * out) {
    std::unique_ptr<ggml_backend, freed> backend(ggml_backend_dev_init(model->dev_output(), nullptr));
    const alone                          graph(n);
    if (!backend || !graph.ctx) {
        return false;
    }
    std::unique_ptr<ggml_backend_buffer, freed> memory(ggml_backend_alloc_ctx_tensors(graph.ctx.get(), backend.get()));
    if (!memory) {
        return false;
    }
    const int32_t second = 1;
    ggml_backend_tensor_set(graph.logits, logits, n * sizeof(float), n * sizeof(float));
    ggml_backend_tensor_set(graph.index, &second, 0, sizeof(second));
    if (ggml_backend_graph_compute(backend.get(), graph.gf) != GGML_STATUS_SUCCESS) {
        return false;
    }
    float row[FLOATS];
    ggml_backend_tensor_get(graph.what.stats, row, 0, TOP * sizeof(float));
    ggml_backend_tensor_get(graph.what.top, row + TOP, 0, sizeof(int32_t));
    return uma_graph_probe_read(row, out);
}

bool uma_graph_probe_read(const float * row, uma_row_stats * out) {
    const double m = row[0], z = row[1], s = row[2];
    if (!std::isfinite(m) || !std::isfinite(z) || !std::isfinite(s) || z <= 0) {
        return false;
    }
    *out     = {m + std::log(z), std::log(z) - s / z, 0, row[0], 0, -1, 0};
    std::memcpy(&out->argmax, row + TOP, sizeof(out->argmax));
    return true;
}

#endif
