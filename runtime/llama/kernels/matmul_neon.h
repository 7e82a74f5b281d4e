// The kernels of matmul_neon.cpp and matmul_i8mm.cpp.
#include "vectors_neon.h"

#include "matmul_formats.h"
#include "matmul_grids.h"

#include "matmul_float.h"

namespace {
struct format;
format bf16_format();
} // namespace

#include "matmul_kernel.h"

namespace {

format bf16_format() {
    return {FLOAT_ROWS, nullptr, floats<bf16>};
}

} // namespace
