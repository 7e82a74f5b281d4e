// Keys and queries as 16-bit integers, for AVX-512 with VNNI: it multiplies two pairs and adds them up where float32 multiplies one.
//
// A key's integers have 14 bits and a sign, relative to the largest of the cell; a query's have 15, relative to its own largest.
// Four products stay below 2^31 then: they are added up as integers, and those sums in float32. The errors, 2^-15 of the largest at
// most, are smaller than those of ggml, which rounds a query to the type of the cache, a half: about a third where scores differ by
// hundreds, a tenth otherwise. Where a cell's largest number is 60 times the others they are as large as ggml's, and beyond that
// larger; so a block with such keys keeps float32 (OUTLYING). So do blocks that are not whole, whose keys may be another row's, and
// caches in float32. Values always do: a lone cell's must come out as the cache has them.

namespace {

template <int D> struct alignas(64) short_keys {
    static constexpr int   VECTORS = D / LANES;
    static constexpr float KEY = (1 << 14) - 1, QUERY = (1 << 15) - 1;

    // OUTLYING is how many times the mean size of a block's numbers the largest may be. 15 is a column at 16 times the others'
    // deviation, in heads of 64: from there on the error can be larger than that of queries rounded to halves.
    static constexpr float OUTLYING = 14;

    bool rounded; // to integers; else exact has the keys
    union {
        struct {
            vi k[D / 2][WIDE]; // pairs of each cell
            vf unit[WIDE];     // what 1 stands for, of each cell
        };
        float_keys<D> exact;
    };

    struct alignas(64) query {
        int32_t                       pairs[D / 2];
        float                         unit;
        typename float_keys<D>::query exact;

        void ask(const float * from, float scale, int n) {
            exact.ask(from, scale, n);
            vf q[VECTORS] = {}, most = splat(TINY);
            memcpy(q, from, n * sizeof(float));
            for (int x = 0; x < VECTORS; x++) {
                most = larger(most, size(q[x]));
            }
            const float all = largest(most);
            unit            = all / QUERY * scale;
            shorts(q, QUERY / all, (char *) pairs);
        }
    };

    void fill(int type, int width, const char * const * cell, bool whole, fetching ahead) {
        rounded = whole && type != GGML_TYPE_F32;
        if (!rounded) {
            exact.fill(type, width, cell, whole, ahead);
            return;
        }
        alignas(64) char row[BLOCK][D * 2];
        vf               total = {}, high = {}; // of the sizes
        for (int c = 0; c < BLOCK; c += 4) {
            vf key[4][VECTORS], most[4];
            for (int l = 0; l < 4; l++) {
                ahead();
                head_row<D>(type, cell[c + l], (float *) key[l], width);
                most[l] = splat(TINY);
#pragma GCC unroll 16
                for (int x = 0; x < VECTORS; x++) {
                    most[l] = larger(most[l], size(key[l][x]));
                    total += size(key[l][x]);
                }
                high = larger(high, most[l]);
            }
            const __m128 all = largest4(most), up = KEY / all, down = all / KEY;
            memcpy((float *) unit + c, &down, sizeof(down));
#pragma GCC unroll 4
            for (int l = 0; l < 4; l++) {
                shorts(key[l], up[l], row[c + l]);
            }
        }
        rounded = largest(high) * (float) (BLOCK * width) < OUTLYING * sum_of(total);
        if (!rounded) {
            exact.fill(type, width, cell, whole, ahead);
            return;
        }
        for (int g = 0; g < WIDE; g++) {
            for (int i = 0; i < D / 2; i += 4) {
                vi four[4];
                load4(rows{row[g * LANES] + 4 * i}, four);
                for (int l = 0; l < 4; l++) {
                    k[i + l][g] = four[l];
                }
            }
        }
    }

    template <int N> INLINE void scores(const query * const * q, vf * s) const {
        if (!rounded) {
            const typename float_keys<D>::query * floats[N];
#pragma GCC unroll 4
            for (int i = 0; i < N; i++) {
                floats[i] = &q[i]->exact;
            }
            exact.template scores<N>(floats, s);
            return;
        }
#pragma GCC unroll 16
        for (int i = 0; i < N * WIDE; i++) {
            s[i] = vf{};
        }
#pragma GCC unroll 4
        for (int from = 0; from < D / 2; from += 2) {
            vs part[N * WIDE];
#pragma GCC unroll 16
            for (int i = 0; i < N * WIDE; i++) {
                part[i] = vs{};
            }
#pragma GCC unroll 2
            for (int d = from; d < from + 2; d++) {
                vi at[WIDE];
#pragma GCC unroll 4
                for (int p = 0; p < WIDE; p++) {
                    at[p] = k[d][p];
                    KEEP(at[p]);
                }
#pragma GCC unroll 4
                for (int i = 0; i < N; i++) {
#pragma GCC unroll 4
                    for (int p = 0; p < WIDE; p++) {
                        // As in fma_all, the instruction itself reads the query for all lanes.
                        asm("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(part[i * WIDE + p]) : "v"(at[p]), "m"(q[i]->pairs[d]));
                    }
                }
            }
#pragma GCC unroll 16
            for (int i = 0; i < N * WIDE; i++) {
                s[i] += (vf) _mm512_cvtepi32_ps((__m512i) part[i]);
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < N; i++) {
#pragma GCC unroll 4
            for (int p = 0; p < WIDE; p++) {
                s[i * WIDE + p] *= unit[p] * q[i]->unit;
            }
        }
    }

  private:
    static constexpr float TINY = 1e-30f; // in place of nothing but zeros

    static INLINE vf size(vf v) { return (vf) ((vi) v & 0x7fffffffu); }

    // shorts writes a row as integers.
    static INLINE void shorts(const vf * row, float scale, char * to) {
#pragma GCC unroll 16
        for (int x = 0; x < VECTORS; x++) {
            const __m256i v = _mm512_cvtepi32_epi16(_mm512_cvtps_epi32((__m512) (row[x] * scale)));
            memcpy(to + x * sizeof(v), &v, sizeof(v));
        }
    }

    // largest4 is the largest lane of each of four vectors.
    static INLINE __m128 largest4(const vf * a) {
        const __m512 x = _mm512_max_ps(_mm512_unpacklo_ps((__m512) a[0], (__m512) a[1]), _mm512_unpackhi_ps((__m512) a[0], (__m512) a[1]));
        const __m512 y = _mm512_max_ps(_mm512_unpacklo_ps((__m512) a[2], (__m512) a[3]), _mm512_unpackhi_ps((__m512) a[2], (__m512) a[3]));
        const __m512 z = _mm512_max_ps(_mm512_shuffle_ps(x, y, 0x44), _mm512_shuffle_ps(x, y, 0xee));
        const __m256 v = _mm256_max_ps(_mm512_castps512_ps256(z), _mm512_extractf32x8_ps(z, 1));
        return _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    }

    struct rows {
        const char * p;
        INLINE const char * operator[](int r) const { return p + r * D * 2; }
    };
};

} // namespace
