//go:build llama_engine && !llama_no_images

// See images.h. The binding takes nothing of libmtmd but its C interface.

#if __has_include("llama.h")

#include "images.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>
#ifdef __linux__
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "mtmd.h"

struct uma_images {
    mtmd_context * ctx;
    bool           plane; // positions have several dimensions
    int32_t        width; // of an embedding
};

namespace {

// Of a thread that encodes, as nice(1) has it: beside a step it gets a tenth of a processor. The scheduling class for idle
// work would leave steps alone entirely, but on a machine that others keep busy it gets nothing for minutes.
constexpr int NICENESS = 10;

template <typename F> bool guarded(const char * what, F f) {
    return uma_guarded(what, [](void * p) { return (*(F *) p)(); }, &f);
}

// Cuts what make returns.
template <typename F> mtmd_input_chunks * cut(uma_images * im, const char * what, F make) {
    mtmd_input_chunks * out = nullptr;
    guarded(what, [&] {
        std::unique_ptr<mtmd_bitmap, void (*)(mtmd_bitmap *)>             medium(make(), mtmd_bitmap_free);
        std::unique_ptr<mtmd_input_chunks, void (*)(mtmd_input_chunks *)> parts(mtmd_input_chunks_init(), mtmd_input_chunks_free);
        const char *          marker = mtmd_get_marker(im->ctx);
        const mtmd_input_text text   = {marker, strlen(marker), false, true};
        const mtmd_bitmap *   list[] = {medium.get()};
        if (mtmd_tokenize(im->ctx, parts.get(), &text, list, 1) != 0) {
            return false;
        }
        out = parts.release();
        return true;
    });
    return out;
}

// The width of the grid that an image's rows are: each at the place of the image in time, and at its line and its column, with
// the next row behind the longer side. 0: positions follow one another. -1: neither is so.
int32_t width_of(const mtmd_input_chunk * part) {
    const int32_t n = (int32_t) mtmd_input_chunk_get_n_tokens(part), positions = mtmd_input_chunk_get_n_pos(part);
    if (mtmd_input_chunk_get_type(part) != MTMD_INPUT_CHUNK_TYPE_IMAGE) {
        return positions == n ? 0 : -1;
    }
    const mtmd_image_tokens * rows = mtmd_input_chunk_get_tokens_image(part);
    constexpr int32_t         from = 100;
    int32_t                   width = 0;
    const auto                at    = [&](int32_t i) { return mtmd_image_tokens_get_decoder_pos(rows, from, i); };
    while (width < n && (int32_t) at(width).x == from + width && (int32_t) at(width).y == from) {
        width++;
    }
    for (int32_t i = 0; i < n; i++) {
        const auto p = at(i);
        if (width == 0 || (int32_t) p.t != from || (int32_t) p.y != from + i / width || (int32_t) p.x != from + i % width || p.z != 0) {
            return -1;
        }
    }
    return width > 0 && n % width == 0 && positions == std::max(width, n / width) ? width : -1;
}

} // namespace

extern "C" {

struct uma_images * uma_images_open(const char * projector, struct llama_model * model, bool gpu, ggml_backend_dev_t device, int32_t threads, int32_t flash_attn, uma_images_facts * facts) {
    uma_images * out = nullptr;
    guarded("open the projector", [&] {
        mtmd_log_set(uma_log, nullptr);
        mtmd_context_params p = mtmd_context_params_default();
        p.use_gpu             = gpu;
        p.device              = gpu ? device : nullptr;
        p.print_timings       = false;
        p.n_threads           = threads;
        p.flash_attn_type     = (enum llama_flash_attn_type) flash_attn;
        p.warmup              = false;
        mtmd_context * ctx    = mtmd_init_from_file(projector, model, p);
        if (!ctx) {
            return false;
        }
        facts->sees     = mtmd_support_vision(ctx);
        facts->together = facts->sees && mtmd_decode_use_non_causal(ctx, nullptr);
        facts->plane    = mtmd_decode_use_mrope(ctx);
        if (mtmd_support_audio(ctx)) {
            facts->sample_rate = mtmd_get_audio_sample_rate(ctx);
        }
        if (gpu) {
            for (const auto & [dev, bytes] : mtmd_get_memory_usage(projector, p)) {
                if (dev != nullptr && ggml_backend_dev_type(dev) != GGML_BACKEND_DEVICE_TYPE_CPU) {
                    strncpy(facts->device, ggml_backend_dev_name(dev), sizeof(facts->device) - 1);
                    facts->bytes = bytes;
                }
            }
        }
        out = new uma_images{ctx, facts->plane, (int32_t) llama_model_n_embd_inp(model)};
        if (facts->plane && facts->sees) {
            const std::vector<uint8_t> gray(3 * 64 * 64, 128);
            mtmd_input_chunks *        parts = uma_images_cut(out, gray.data(), 64, 64);
            for (size_t i = 0; parts && i < mtmd_input_chunks_size(parts); i++) {
                const mtmd_input_chunk * part = mtmd_input_chunks_get(parts, i);
                facts->grid |= mtmd_input_chunk_get_type(part) == MTMD_INPUT_CHUNK_TYPE_IMAGE && width_of(part) > 0;
            }
            mtmd_input_chunks_free(parts);
        }
        return true;
    });
    return out;
}

void uma_images_close(struct uma_images * im) {
    if (im) {
        mtmd_free(im->ctx);
        delete im;
    }
}

void uma_images_background(void) {
#ifdef __linux__
    setpriority(PRIO_PROCESS, (id_t) syscall(SYS_gettid), NICENESS); // where it is refused, it has a fair share
#endif
}

struct mtmd_input_chunks * uma_images_cut(struct uma_images * im, const uint8_t * rgb, int32_t width, int32_t height) {
    return cut(im, "cut an image", [&] { return mtmd_bitmap_init(width, height, rgb); });
}

struct mtmd_input_chunks * uma_images_cut_sound(struct uma_images * im, const float * samples, int64_t n) {
    return cut(im, "cut a sound", [&] { return mtmd_bitmap_init_from_audio(n, samples); });
}

void uma_images_free_cut(struct mtmd_input_chunks * parts) { mtmd_input_chunks_free(parts); }

int32_t uma_images_part(struct uma_images * im, struct mtmd_input_chunks * parts, int32_t i, uma_images_facts_of_part * facts) {
    if (i < 0 || (size_t) i >= mtmd_input_chunks_size(parts)) {
        return -1;
    }
    const mtmd_input_chunk * part = mtmd_input_chunks_get(parts, i);
    size_t                   n    = mtmd_input_chunk_get_n_tokens(part);
    facts->text                   = nullptr;
    facts->together               = false;
    facts->width                  = 0;
    if (mtmd_input_chunk_get_type(part) == MTMD_INPUT_CHUNK_TYPE_TEXT) {
        facts->text = mtmd_input_chunk_get_tokens_text(part, &n);
    } else {
        facts->together = mtmd_decode_use_non_causal(im->ctx, part);
        facts->width    = im->plane ? width_of(part) : 0;
    }
    facts->positions = mtmd_input_chunk_get_n_pos(part);
    return (int32_t) n;
}

bool uma_images_encode(struct uma_images * im, struct mtmd_input_chunks * parts, int32_t i, float * dst, int64_t n) {
    return guarded("encode", [&] {
        const mtmd_input_chunk * part = mtmd_input_chunks_get(parts, i);
        if ((int64_t) mtmd_input_chunk_get_n_tokens(part) * im->width != n || mtmd_encode_chunk(im->ctx, part) != 0) {
            return false;
        }
        memcpy(dst, mtmd_get_output_embd(im->ctx), n * sizeof(float));
        return true;
    });
}

int32_t uma_images_decode(struct llama_context * ctx, const float * rows, int32_t n, int32_t * places, int32_t seq, bool together, uma_stop * stop) {
    std::vector<int32_t>        counts(n, 1);
    std::vector<llama_seq_id *> lists(n, &seq);
    std::vector<int8_t>         outputs(n, 0);
    llama_batch b = {};
    b.embd        = const_cast<float *>(rows);
    b.pos         = places;
    b.n_seq_id    = counts.data();
    b.seq_id      = lists.data();
    b.logits      = outputs.data();
    if (together) {
        llama_set_causal_attn(ctx, false);
    }
    const int32_t r = uma_decode(ctx, &b, n, false, stop);
    if (together) {
        llama_set_causal_attn(ctx, true);
    }
    return r;
}

int32_t uma_decode_rows(struct llama_context * ctx, struct llama_batch * b, int32_t from, int32_t n, uma_stop * stop) {
    llama_batch part = *b;
    part.token += from;
    part.pos += from;
    part.n_seq_id += from;
    part.seq_id += from;
    part.logits += from;
    return uma_decode(ctx, &part, n, false, stop);
}

} // extern "C"
#endif
