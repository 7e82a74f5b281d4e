// What attention_kernel.h computes with: a block's cells, and a row's head. `cached_keys`, how a block keeps its keys, is that of
// the including file.

namespace {

// tile is a block's cells.
template <int D> struct alignas(64) tile {
    cached_keys<D> keys;
    float          v[BLOCK][D];

    // fill takes n cells of a list, and fetches as many of those that come `ahead` of them. Behind the keys it repeats the last.
    void fill(const uma_attention_job & j, const int32_t * at, int n, const int32_t * ahead, int64_t fetched) {
        const char * cell[BLOCK];
        for (int c = 0; c < BLOCK; c++) {
            cell[c] = j.k + at[c < n ? c : n - 1] * j.k_cell;
        }
        keys.fill(j.k_type, j.k_width, cell, n == BLOCK, {j, ahead, ahead + fetched});
        for (int c = 0; c < n; c++) {
            head_row<D>(j.v_type, j.v + at[c] * j.v_cell, v[c], j.v_width);
        }
    }
};

// state is a row's head: its softmax as far as the blocks of a part have been seen.
template <int D> struct alignas(64) state {
    using query = typename cached_keys<D>::query;

    query q;
    float out[D];
    vf    mass; // Σ e^(score - base), by lanes
    float base, slope;

    void begin() {
        memset(out, 0, sizeof(out));
        mass = vf{};
        base = NONE;
    }

    void scale_down(float by) {
        for (int i = 0; i < D; i++) {
            out[i] *= by;
        }
        mass *= by;
    }

    void end(float * record) const {
        record[0] = base;
        record[1] = sum_of(mass);
        memcpy(record + 2, out, sizeof(out));
    }

    // attend has N queries see n cells in a tile. bias has a whole block: OUT behind the cells. softcap as in the job.
    template <int N> static void attend(state ** qs, const tile<D> & t, const float * bias, int n, float softcap) {
        vf            s[N * WIDE];
        const query * q[N];
#pragma GCC unroll 4
        for (int i = 0; i < N; i++) {
            q[i] = &qs[i]->q;
        }
        t.keys.template scores<N>(q, s);
        if (__builtin_expect(softcap != 0, 0)) {
            cap<N * WIDE>(s, softcap);
        }
        vf above[N * WIDE], top = splat(NONE); // how far the scores lie above the bases; what is no number hides no other
#pragma GCC unroll 4
        for (int p = 0; p < WIDE; p++) {
            vf b;
            memcpy(&b, bias + p * LANES, sizeof(b));
#pragma GCC unroll 4
            for (int i = 0; i < N; i++) {
                s[i * WIDE + p] = fma(b, splat(qs[i]->slope), s[i * WIDE + p]);
                above[i * WIDE + p] = s[i * WIDE + p] - qs[i]->base;
                top                 = larger(above[i * WIDE + p], top);
            }
        }
        if (__builtin_expect(largest(top) > SLACK, 0)) {
            vf copy[N * WIDE]; // else the scores themselves would lie in memory
#pragma GCC unroll 16
            for (int i = 0; i < N * WIDE; i++) {
                copy[i] = s[i];
            }
            for (int i = 0; i < N; i++) {
                qs[i]->rise(copy + i * WIDE);
            }
#pragma GCC unroll 4
            for (int i = 0; i < N; i++) {
#pragma GCC unroll 4
                for (int p = 0; p < WIDE; p++) {
                    above[i * WIDE + p] = copy[i * WIDE + p] - qs[i]->base;
                }
            }
        }
        exp_of<N * WIDE>(above);
#pragma GCC unroll 4
        for (int i = 0; i < N; i++) {
            vf sum = above[i * WIDE];
#pragma GCC unroll 4
            for (int p = 1; p < WIDE; p++) {
                sum += above[i * WIDE + p];
            }
            qs[i]->mass += sum;
        }
        alignas(64) float w[N * BLOCK];
#pragma GCC unroll 16
        for (int i = 0; i < N * WIDE; i++) {
            memcpy(w + i * LANES, above + i, sizeof(vf));
        }
        // Nearly all blocks are whole; a loop of known length is faster.
        if (n == BLOCK) {
            gather<N>(qs, t, w, BLOCK);
        } else {
            gather<N>(qs, t, w, n);
        }
    }

    // rise makes the largest of a block's scores the base, if it lies too far above it.
    __attribute__((noinline)) void rise(const vf * s) {
        vf m = splat(NONE);
        for (int p = 0; p < WIDE; p++) {
            m = larger(s[p], m);
        }
        const float most = largest(m);
        if (most - base > SLACK) {
            if (base != NONE) {
                scale_down(uma_attention_exp(base - most));
            }
            base = most;
        }
    }

    // gather adds the values of n cells to N queries' sums, with the weights w.
    template <int N> static INLINE void gather(state ** qs, const tile<D> & t, const float * w, int n) {
        constexpr int W = at_once(D / LANES, (LANES == 16 ? 16 : 8) / N); // vectors of each query: what the registers hold
        for (int l = 0; l < D; l += W * LANES) {
            vf o[N][W];
            // Vector by vector: an array that is copied whole stays in memory, and each step of the sums stores it.
#pragma GCC unroll 4
            for (int i = 0; i < N; i++) {
#pragma GCC unroll 16
                for (int x = 0; x < W; x++) {
                    memcpy(&o[i][x], qs[i]->out + l + x * LANES, sizeof(vf));
                }
            }
            for (int c = 0; c < n; c++) {
#pragma GCC unroll 16
                for (int x = 0; x < W; x++) {
                    vf v;
                    memcpy(&v, &t.v[c][l + x * LANES], sizeof(v));
                    KEEP(v);
#pragma GCC unroll 4
                    for (int i = 0; i < N; i++) {
                        o[i][x] = fma(v, splat(w[i * BLOCK + c]), o[i][x]);
                    }
                }
            }
#pragma GCC unroll 4
            for (int i = 0; i < N; i++) {
#pragma GCC unroll 16
                for (int x = 0; x < W; x++) {
                    memcpy(qs[i]->out + l + x * LANES, &o[i][x], sizeof(vf));
                }
            }
        }
    }
};

} // namespace
