//go:build linux && (amd64 || arm64) && llama_engine && !llama_no_keep

// Which weights ggml repacks. Its CPU backend offers buffer types that rearrange what they take while the model loads (for
// vector instructions in general, for AMX); llama.cpp asks each of them for each matrix, with an empty buffer in place of the
// weights. Their contexts are substituted by ones that decline the matrices that matmul.cpp computes: they stay in the mapped
// file, in one copy.

#if __has_include("ggml.h")

#include "../src/ggml-backend-impl.h"
#include "../src/ggml-cpu/traits.h"
#include "ggml-cpu.h"
#include "kernels/matmul.h"

namespace {

class declining : public ggml::cpu::extra_buffer_type {
  public:
    explicit declining(ggml::cpu::extra_buffer_type * of) : of(of) {}

    // Weights that lie in the buffer already have a size: what is repacked remains computable when the kernels change.
    bool supports_op(ggml_backend_dev_t dev, const ggml_tensor * op) override {
        const ggml_tensor * w = op->src[0];
        if ((op->op == GGML_OP_MUL_MAT || op->op == GGML_OP_MUL_MAT_ID) && w->buffer && ggml_backend_buffer_get_size(w->buffer) == 0 && uma_matmul_takes(w->type)) {
            return false;
        }
        return of->supports_op(dev, op);
    }

    ggml::cpu::tensor_traits * get_tensor_traits(const ggml_tensor * op) override { return of->get_tensor_traits(op); }

  private:
    ggml::cpu::extra_buffer_type * of;
};

} // namespace

extern "C" void uma_keep_weights(void) {
    static const bool once = [] {
        for (ggml_backend_buffer_type_t type : ggml_backend_cpu_get_extra_buffer_types()) {
            if (type && type->context) {
                type->context = new declining((ggml::cpu::extra_buffer_type *) type->context);
            }
        }
        return true;
    }();
    (void) once;
}

// Asks as llama.cpp does when it loads a matrix (weight_buft_supported).
extern "C" bool uma_keeps(int type) {
    ggml_context * ctx = ggml_init({4 * ggml_tensor_overhead(), nullptr, true});
    if (!ctx) {
        return true;
    }
    ggml_tensor * w  = ggml_new_tensor_2d(ctx, (ggml_type) type, 256, 64);
    ggml_tensor * op = ggml_mul_mat(ctx, w, ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 256, 8));
    bool          kept = true;
    for (ggml_backend_buffer_type_t extra : ggml_backend_cpu_get_extra_buffer_types()) {
        if (!extra || !extra->iface.alloc_buffer) { // matmul.cpp's own: nothing lies in it
            continue;
        }
        w->buffer = ggml_backend_buft_alloc_buffer(extra, 0);
        kept &= !ggml_backend_dev_supports_op(ggml_backend_reg_dev_get(ggml_backend_cpu_reg(), 0), op);
        ggml_backend_buffer_free(w->buffer);
    }
    ggml_free(ctx);
    return kept;
}

#endif
