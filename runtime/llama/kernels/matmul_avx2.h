// The products of matmul_kernel.h and matmul_float.h with the vectors of vectors_avx2.h, for two instruction sets.

#include "vectors_avx2.h"

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
