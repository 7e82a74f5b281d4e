//go:build linux && (amd64 || arm64) && llama_engine && !llama_no_keep

// Which weights ggml repacks. Its CPU backend offers a buffer type that rearranges what it takes while the model loads;
// llama.cpp asks it for each matrix, with an empty buffer in place of the weights. The context of that buffer type is
// substituted by one that declines the matrices that matmul.cpp computes: they stay in the mapped file, in one copy.

#if __has_include("ggml.h")

#include "matmul.h"

#if defined(GGML_USE_CPU_REPACK)

#include "../src/ggml-backend-impl.h"
#include "ggml-cpu.h"

#include "../src/ggml-cpu/repack.h"
#include "../src/ggml-cpu/traits.h"

namespace {

class declining : public ggml::cpu::extra_buffer_type {
  public:
    explicit declining(ggml::cpu::extra_buffer_type * of) : of(of) {}

    // Weights that lie in the buffer already have a size: what is repacked remains computable when the kernels change.
    bool supports_op(ggml_backend_dev_t dev, const ggml_tensor * op) override {
        const ggml_tensor * w = op->src[0];
        if (op->op == GGML_OP_MUL_MAT && w->buffer && ggml_backend_buffer_get_size(w->buffer) == 0 && uma_matmul_takes(w->type)) {
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
        ggml_backend_buffer_type_t repacked = ggml_backend_cpu_repack_buffer_type();
        repacked->context                   = new declining((ggml::cpu::extra_buffer_type *) repacked->context);
        return true;
    }();
    (void) once;
}

#else

extern "C" void uma_keep_weights(void) {
}

#endif
#endif
