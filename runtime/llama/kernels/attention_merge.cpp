//go:build linux && (amd64 || arm64) && llama_engine && !llama_no_products

// The records of parts of a row's attention, for the kernels of every instruction set.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "attention.h"

__attribute__((noinline)) void uma_attention_merge(float * record, const float * part, int width) {
    constexpr float none = -std::numeric_limits<float>::infinity();
    if (part[0] == none) {
        return;
    }
    if (record[0] == none) {
        memcpy(record, part, (width + 2) * sizeof(float));
        return;
    }
    const float most = std::max(record[0], part[0]), a = expf(record[0] - most), b = expf(part[0] - most);
    record[0] = most;
    for (int i = 1; i < width + 2; i++) {
        record[i] = record[i] * a + part[i] * b;
    }
}

void uma_attention_result(const float * record, const float * sink, float * out, int width) {
    const bool  none = record[0] == -std::numeric_limits<float>::infinity() || record[1] == 0;
    const float most = sink ? std::max(record[0], *sink) : record[0], part = none ? 0 : sink ? expf(record[0] - most) : 1;
    const float mass = sink ? record[1] * part + expf(*sink - most) : record[1], inverse = none ? 0 : part / mass;
    for (int i = 0; i < width; i++) {
        out[i] = none ? 0 : record[2 + i] * inverse;
    }
}

float uma_attention_exp(float x) {
    return expf(x);
}
