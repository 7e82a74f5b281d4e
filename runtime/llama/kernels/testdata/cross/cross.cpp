// Runs the kernels that the argument names, of those of UMA_KERNELS, on fixed pseudo-random weights, activations and caches, and
// prints the results: scripts/neon.sh compares those of NEON and I8MM, under an emulator, with those of AVX2, and scripts/amx.sh those
// of AMX, emulated, with those of AVX-512. Products with quantised weights are the same bit for bit; sums of F16, BF16 and
// attention, which have lanes in another order, are rounded before they are printed.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "attention.h"
#include "ggml.h"
#include "matmul.h"

namespace {

uint32_t random_bits() { // xorshift64
    static uint64_t s = 88172645463325252ull;
    s ^= s << 13;
    s ^= s >> 7;
    s ^= s << 17;
    return (uint32_t) (s >> 11);
}

int8_t random_byte() { // -127 … 127
    return (int8_t) ((int) (random_bits() % 255) - 127);
}

// set makes a half-precision number of a moderate size of the two bytes at p; bits are those of the upper byte that are fixed.
void set(uint8_t * p, uint8_t bits, uint8_t loose) {
    p[1] = bits | (random_bits() & loose);
}

// type is a format of weights: values and bytes of a block, and where in it half-precision numbers are.
struct type {
    int number, values, bytes, halves[2];
};

constexpr type types[] = {
    {GGML_TYPE_Q4_0, 32, 18, {0, -1}},    {GGML_TYPE_Q5_0, 32, 22, {0, -1}},    {GGML_TYPE_Q8_0, 32, 34, {0, -1}},
    {GGML_TYPE_Q4_K, 256, 144, {0, 2}},   {GGML_TYPE_Q5_K, 256, 176, {0, 2}},   {GGML_TYPE_Q6_K, 256, 210, {208, -1}},
    {GGML_TYPE_IQ4_NL, 32, 18, {0, -1}},  {GGML_TYPE_IQ4_XS, 256, 136, {0, -1}}, {GGML_TYPE_F16, 1, 2, {0, -1}},
    {GGML_TYPE_BF16, 1, 2, {0, -1}},      {GGML_TYPE_F32, 1, 4, {2, -1}},       {GGML_TYPE_Q4_1, 32, 20, {0, 2}},      {GGML_TYPE_Q5_1, 32, 24, {0, 2}},
    {GGML_TYPE_MXFP4, 32, 17, {-1, -1}},  {GGML_TYPE_NVFP4, 64, 36, {-1, -1}},   {GGML_TYPE_Q2_K, 256, 84, {80, 82}},
    {GGML_TYPE_Q3_K, 256, 110, {108, -1}}, {GGML_TYPE_TQ1_0, 256, 54, {52, -1}}, {GGML_TYPE_TQ2_0, 256, 66, {64, -1}},
    {GGML_TYPE_IQ2_XXS, 256, 66, {0, -1}}, {GGML_TYPE_IQ2_XS, 256, 74, {0, -1}}, {GGML_TYPE_IQ2_S, 256, 82, {0, -1}},
    {GGML_TYPE_IQ3_XXS, 256, 98, {0, -1}}, {GGML_TYPE_IQ3_S, 256, 110, {0, -1}},
};

char * aligned(size_t bytes) {
    return (char *) aligned_alloc(64, (bytes + 127) / 64 * 64);
}

void product(const uma_kernels & kernels, const type & t, int m, int n, int64_t k) {
    const int64_t        blocks = k / t.values;
    const bool           brain  = t.number == GGML_TYPE_BF16 || t.number == GGML_TYPE_F32; // eight bits of exponent
    const uint8_t        upper  = brain ? 0x3e : t.values == 1 ? 0x30 : 0x20;
    const uint8_t        loose  = brain ? 0x81 : 0x8b;
    std::vector<uint8_t> w(m * blocks * t.bytes), x(n * k * 4);
    for (uint8_t & b : w) {
        b = random_bits();
    }
    for (int64_t i = 0; i < m * blocks; i++) {
        for (int h : t.halves) {
            if (h >= 0) {
                set(&w[i * t.bytes + h], upper, loose);
            }
        }
        if (t.number == GGML_TYPE_MXFP4) { // an exponent
            w[i * t.bytes] = 120 + random_bits() % 8;
        }
        for (int g = 0; t.number == GGML_TYPE_NVFP4 && g < 4; g++) { // a scale of 16 values: four bits of exponent, three of fraction
            w[i * t.bytes + g] &= 0x4f;
        }
    }
    int64_t row = t.bytes * k;
    for (int64_t i = 0; t.values == 1 && i < n * k; i++) {
        for (int b = 0; b < t.bytes; b++) {
            x[t.bytes * i + b] = random_bits();
        }
        set(&x[t.bytes * i + t.bytes - 2], upper, loose);
    }
    if (t.values == 32 || t.values == 64) { // Q8_0, or with a minimum Q8_1, whose sum the kernels do not read
        const int head = t.halves[1] >= 0 ? 4 : 2;
        row            = k / 32 * (head + 32);
        for (int64_t i = 0; i < n * k / 32; i++) {
            set(&x[i * (head + 32)], upper, loose);
            for (int l = 0; l < 32; l++) {
                x[i * (head + 32) + head + l] = random_byte();
            }
        }
    }
    if (t.values == 256) { // Q8_K
        row = k / 256 * 292;
        for (int64_t i = 0; i < n * k / 256; i++) {
            uint8_t *   p     = &x[i * 292];
            const float scale = .01f * (1 + random_bits() % 7);
            memcpy(p, &scale, sizeof(scale));
            for (int g = 0; g < 16; g++) {
                int16_t sum = 0;
                for (int l = 0; l < 16; l++) {
                    const int8_t q    = random_byte();
                    p[4 + g * 16 + l] = q;
                    sum += q;
                }
                memcpy(p + 260 + 2 * g, &sum, sizeof(sum));
            }
        }
    }
    std::vector<float> c(n * m, NAN);
    uma_job            j = {t.number, m, n, k, (const char *) w.data(), blocks * t.bytes, (const char *) x.data(), row, c.data(), m, nullptr, nullptr, nullptr, nullptr};
    j.rows               = aligned(kernels.rows_bytes(j));
    j.strip              = aligned(kernels.strip_bytes(j));
    kernels.prepare(j);
    kernels.compute(j, {0, (m + kernels.strip(t.number) - 1) / kernels.strip(t.number), nullptr});
    for (float v : c) {
        if (t.values > 1) {
            printf("%d %d %d %a\n", t.number, m, n, v);
        } else {
            printf("%d %d %d %.5f\n", t.number, m, n, v);
        }
    }
    free(j.rows);
    free(j.strip);
}

void attention(const uma_kernels & kernels, int width, int type, int bytes, bool all) {
    constexpr int              rows = 5, heads = 3, cells = 1100, padded = cells + 64;
    const uma_attention_width  kernel = kernels.attention(width);
    std::vector<uint8_t>       k(cells * bytes), v(cells * bytes);
    for (auto * cache : {&k, &v}) {
        for (uint8_t & b : *cache) {
            b = random_bits();
        }
        for (size_t i = 0; i < cache->size(); i += type == GGML_TYPE_Q8_0 ? 34 : type == GGML_TYPE_Q4_0 ? 18 : type == GGML_TYPE_F16 ? 2 : 4) {
            if (type == GGML_TYPE_F32) {
                const float u = ((int) (random_bits() % 2001) - 1000) / 700.f;
                memcpy(&(*cache)[i], &u, sizeof(u));
            } else {
                set(&(*cache)[i], type == GGML_TYPE_F16 ? 0x34 : type == GGML_TYPE_Q8_0 ? 0x20 : 0x30, type == GGML_TYPE_F16 ? 0x87 : 0);
            }
        }
    }
    std::vector<float> q(rows * heads * width), out(rows * heads * width), bias(rows * padded);
    for (float & u : q) {
        u = ((int) (random_bits() % 2001) - 1000) / 500.f;
    }
    for (float & u : bias) {
        u = all ? -(float) (random_bits() % 64) / 8 : 0;
    }
    std::vector<int32_t> at(rows * padded);
    uma_cells            seen[rows];
    for (int r = 0; r < rows; r++) {
        seen[r] = {&at[r * padded], &bias[r * padded], 0};
        for (int i = 0; i < cells - rows + r; i++) {
            if (r != 2 || random_bits() % 2) {
                seen[r].at[seen[r].n++] = i;
            }
        }
    }
    const int         parts = (cells + PART - 1) / PART;
    char *            room  = aligned(kernel.room(rows * heads));
    const float       slopes[heads] = {.5f, .25f, .125f}, sinks[heads] = {-1, 0, 3};
    uma_attention_job j     = {type, type, (const char *) k.data(), (const char *) v.data(), bytes, bytes, bytes, bytes, width, width, rows, heads, seen, q.data(),
                               heads * width, width, 1 / sqrtf(width), all ? 2.f : 0, all ? slopes : nullptr, all ? sinks : nullptr, 0, parts, parts, nullptr,
                               out.data(), heads * width, width, room};
    kernel.group(j);
    for (float u : out) {
        printf("attention %d %d %.5f\n", width, type, u);
    }
    free(room);
}

} // namespace

int main(int argc, char ** argv) {
    const uma_kernels * const all[] = {UMA_KERNELS};
    const uma_kernels * chosen = nullptr;
    for (const uma_kernels * k : all) {
        if (argc == 2 && strcmp(argv[1], k->name) == 0) {
            chosen = k;
        }
    }
    if (!chosen || !chosen->here()) {
        fprintf(stderr, "this processor or build does not have these kernels\n");
        return 1;
    }
    const uma_kernels & kernels = *chosen;
    for (const type & t : types) {
        for (int n : {1, 2, 3, 4, 5, 8, 11, 17, 45}) {
            for (int m : {1, 7, 16, 33}) {
                product(kernels, t, m, n, 512);
            }
        }
        for (int k : {32, 96, 544, 608}) {
            product(kernels, t, 33, 45, t.values > 32 ? k / 32 * t.values : k);
        }
    }
    for (int width : {32, 48, 64, 72, 80, 96, 112, 128, 192, 256, 512, 576}) {
        for (bool all : {false, true}) {
            attention(kernels, width, GGML_TYPE_F32, 4 * width, all);
            attention(kernels, width, GGML_TYPE_F16, 2 * width, all);
            if (width % 32 == 0) {
                attention(kernels, width, GGML_TYPE_Q8_0, width / 32 * 34, all);
                attention(kernels, width, GGML_TYPE_Q4_0, width / 32 * 18, all);
            }
        }
    }
}
