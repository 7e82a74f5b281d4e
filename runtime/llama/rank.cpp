//go:build llama_engine || llama_system

// The weights of a classifier. llama.cpp computes with them only in a context whose pooling is "rank", which gives no
// hidden states and computes every pair in one step; they are read from the file instead.

#if __has_include("llama.h")

#include "rank.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <vector>

#include "ggml.h"
#include "gguf.h"

namespace {

constexpr int64_t max_values = 1 << 26; // of one tensor: a matrix of 8192 · 8192

struct freed {
    void operator()(gguf_context * c) const { gguf_free(c); }
    void operator()(ggml_context * c) const { ggml_free(c); }
    void operator()(FILE * f) const { fclose(f); }
};

const char * read_tensor(const gguf_context * file, ggml_context * shapes, FILE * in, uma_tensor & to) {
    const int64_t id = gguf_find_tensor(file, to.name);
    if (id < 0) {
        return nullptr;
    }
    const ggml_tensor * t    = ggml_get_tensor(shapes, to.name);
    const int64_t       n    = t ? ggml_nelements(t) : 0;
    const auto *        kind = t ? ggml_get_type_traits(t->type) : nullptr;
    if (n < 1 || n > max_values || (t->type != GGML_TYPE_F32 && !kind->to_float)) {
        return "its classifier's weights have a size or type that is not known";
    }
    std::vector<char> raw(ggml_nbytes(t));
    if (fseeko(in, (off_t) (gguf_get_data_offset(file) + gguf_get_tensor_offset(file, id)), SEEK_SET) != 0 ||
        fread(raw.data(), 1, raw.size(), in) != raw.size()) {
        return "its classifier's weights cannot be read from the file";
    }
    to.data = (float *) malloc(n * sizeof(float));
    if (!to.data) {
        throw std::bad_alloc();
    }
    if (t->type == GGML_TYPE_F32) {
        memcpy(to.data, raw.data(), n * sizeof(float));
    } else {
        kind->to_float(raw.data(), to.data, n);
    }
    to.columns = t->ne[0];
    to.rows    = n / t->ne[0];
    return nullptr;
}

} // namespace

const char * uma_read_tensors(const char * path, uma_tensor * tensors, int32_t n) {
    try {
        ggml_context *                       made = nullptr;
        std::unique_ptr<gguf_context, freed> file(gguf_init_from_file(path, { /*.no_alloc =*/ true, /*.ctx =*/ &made }));
        std::unique_ptr<ggml_context, freed> shapes(made);
        std::unique_ptr<FILE, freed>         in(fopen(path, "rb"));
        if (!file || !shapes || !in) {
            return "the file cannot be opened again";
        }
        for (int32_t i = 0; i < n; i++) {
            if (const char * failed = read_tensor(file.get(), shapes.get(), in.get(), tensors[i])) {
                return failed;
            }
        }
        return nullptr;
    } catch (const std::exception &) {
        return "there is not enough memory for its classifier";
    }
}

#endif
