#include <cstdint>

// uma_backend_sources is the sum of the llama.cpp sources that this library is built from: a uma-serve of others
// refuses it.
extern "C" {
extern const uint64_t uma_backend_sources;
const uint64_t uma_backend_sources = UMA_SOURCES;
}
