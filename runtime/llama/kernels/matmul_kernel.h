// Products with quantised weights, for any instruction set: the vectors are those that the including file defines.
//
// A strip is LANES rows of weights, one to each lane. Each output is Σ over blocks of 32 values, in the format's order, of
// (integer sum) · (weights' scale · activations' scale), for some formats plus minimum · (sum of the activations, a whole
// number · their scale). In formats with super-blocks of 256 values the scales of the blocks
// are whole numbers: Σ over super-blocks of (Σ over blocks of (integer sum) · (block's scale)) · (weights' scale · activations'
// scale), plus for some formats (Σ of minima · sums of the activations, integers) · (their scale · activations' scale).
// Nothing in it depends on the number of rows of activations, nor on the instruction set.

namespace {

// activations are a block of N rows; where the instruction takes two at a time (PAIRS) they alternate every eight bytes, but
// for an odd last one. begin is what the sums of the block's halves begin with, FROM - SHIFT · Σ q, or of the whole
// block where a half has no scale. sums is for formats with minima: where eight blocks are a super-block it is Σ q of an even
// block and of the next one, 16 bits each, or where halves have minima those of the halves of each block; elsewhere the float
// Σ q · scale.
template <int N> struct activations {
    int8_t  q[N][32];
    float   scale[N];
    int32_t begin[2][N];
    int32_t sums[N];
};

constexpr int ACTIVATIONS = sizeof(activations<1>); // of a row

// What ggml quantises activations to: blocks of 256 beside super-blocks (Q8_K), else of 32, with their sum beside weights that
// have a minimum (Q8_1), else without (Q8_0).
constexpr int Q8_0_BYTES = 34, Q8_1_BYTES = 36, Q8_K_BYTES = 292;

// K says that a format has super-blocks, OTHER that its blocks have a second number beside their scale.
template <class F> constexpr bool K = F::VALUES == 256;
template <class F> constexpr bool OTHER = F::HALVES == 2 || (F::MIN && !K<F>);

// ONES says that the blocks of a super-block have no scales: they are all one.
template <class F> constexpr bool ONES        = false;
template <> constexpr bool        ONES<tq1_0> = true;
template <> constexpr bool        ONES<tq2_0> = true;

// FROM is what the sums of a block begin with where no SHIFT is taken off: of ONES whole numbers are added up.
template <class F> constexpr int32_t FROM = ONES<F> ? 0 : ORIGIN;

// unpacked is a block of a strip.
struct unpacked {
    vi q[8];
    vf scale, other;
};

// super is what the blocks of a super-block share, with room for the minima of all halves.
struct super {
    vf scale, min;
    vi mins[8];
};

// tally is the sums of N rows of activations with a strip.
template <class F, int N> struct tally {
    vf sum[N];
    vf part[N]; // of the blocks of one super-block, before its scale; with ONES whole numbers

    INLINE void clear() {
        for (int i = 0; i < N; i++) {
            sum[i] = part[i] = vf{};
        }
    }

    INLINE void add(const vi * q, vf scale, vf other, const activations<N> & x) {
        if constexpr (F::HALVES == 2) {
            part_of<0>(q, scale, other, x);
            part_of<1>(q, other, other, x);
        } else {
            part_of<0>(q, scale, other, x);
        }
    }

    // part_of adds half H of a block, or the whole one where a half has no scale.
    template <int H> INLINE void part_of(const vi * q, vf scale, vf min, const activations<N> & x) {
        constexpr int COUNT = 8 / F::HALVES;
        vs            dot[N];
#pragma GCC unroll 8
        for (int i = 0; i < N; i++) {
            dot[i] = splat(F::SHIFT ? x.begin[H][i] : FROM<F>);
        }
        dots<F::TOP, N, H * COUNT, COUNT>(dot, q, x.q);
        weigh(dot, scale, min, x);
    }

    // weigh adds the sums of a block, or of half a block that has its own scale; they began with FROM. min is read where blocks of 32 have one.
    INLINE void weigh(const vs * dot, vf scale, vf min, const activations<N> & x) {
#pragma GCC unroll 8
        for (int i = 0; i < N; i++) {
            if constexpr (ONES<F>) {
                part[i] = (vf) ((vs) part[i] + dot[i]);
                continue;
            }
            const vf d = number(dot[i]);
            if constexpr (K<F>) {
                part[i] = fma(d, scale, part[i]);
                continue;
            }
            sum[i] = fma(d, scale * splat(x.scale[i]), sum[i]);
            if constexpr (F::MIN && !K<F>) {
                float of;
                memcpy(&of, x.sums + i, sizeof(of));
                sum[i] = fma(min, splat(of), sum[i]);
            }
        }
    }

    // close ends a super-block. x is its first block.
    INLINE void close(const super & w, const activations<N> * x) {
        vs mins[N];
        if constexpr (F::MIN) {
#pragma GCC unroll 8
            for (int i = 0; i < N; i++) {
                mins[i] = vs{};
            }
#pragma GCC unroll 8
            for (int l = 0; l < 4 * F::HALVES; l++) {
#pragma GCC unroll 8
                for (int i = 0; i < N; i++) {
                    mins[i] = add_pairs(w.mins[l], x[F::HALVES == 2 ? l : 2 * l].sums + i, mins[i]);
                }
            }
        }
#pragma GCC unroll 8
        for (int i = 0; i < N; i++) {
            const vf scale = splat(x->scale[i]);
            const vf of    = ONES<F> ? __builtin_convertvector((vs) part[i], vf) : part[i];
            sum[i]         = fma(of, w.scale * scale, sum[i]);
            part[i]        = vf{};
            if constexpr (F::MIN) {
                sum[i] = fma(__builtin_convertvector(mins[i], vf), w.min * scale, sum[i]);
            }
        }
    }

    // write writes the results of strip s, whose rows of weights are rows, for the rows of activations from row on.
    INLINE void write(const uma_job & j, int64_t s, int64_t row, int rows) const {
#pragma GCC unroll 8
        for (int i = 0; i < N; i++) {
            const vf v  = sum[i]; // whose address is taken, so that the sums can stay in registers
            float *  to = c_of(j, row + i) + s * LANES;
            if (rows == LANES) {
                memcpy(to, &v, sizeof(vf));
            } else {
                memcpy(to, &v, rows * sizeof(float));
            }
        }
    }
};

// coming is the weights that come in while some rows pass a strip: each block brings in SHARE bytes of them.
struct coming {
    const char * at; // null: none
    int64_t      share;
};

// fetch brings in what is due with block b of a strip, into the second-level cache: in the first level two strips displace
// each other (Q6_K with 16 rows took three times as long). Block by block, because the processor drops what it is asked
// for while its buffers are full.
INLINE void fetch(coming next, int64_t b) {
    for (int64_t i = (b * next.share + 63) & ~63; i < (b + 1) * next.share; i += 64) {
        __builtin_prefetch(next.at + i, 0, 2);
    }
}

// kept is a strip's super-block, or block where a format has no super-blocks, unpacked.
template <class F, bool SUPER = K<F>> struct kept {
    unpacked block[F::VALUES / 32];
    super    whole;
};

template <class F> struct kept<F, false> {
    unpacked block[F::VALUES / 32];
};

// set writes only what the format has: writing is dear.
template <class F> INLINE void set(unpacked & u, const vi * q, vf scale, vf other) {
    memcpy(u.q, q, sizeof(u.q));
    u.scale = scale;
    if constexpr (OTHER<F>) {
        u.other = other;
    }
}

template <class F> INLINE void set_whole(kept<F> & u, const super & whole) {
    if constexpr (K<F>) {
        u.whole.scale = whole.scale;
        if constexpr (F::MIN) {
            u.whole.min = whole.min;
            memcpy(u.whole.mins, whole.mins, 4 * F::HALVES * sizeof(vi));
        }
    }
}

// few multiplies a whole strip with N rows, those from row on: the weights go from memory through registers. With KEEP they
// stay in j.strip as well.
template <class F, int N, bool KEEP> void few(const uma_job & j, int64_t s, int64_t row, coming next) {
    constexpr int          BLOCKS = F::VALUES / 32;
    const char *           w      = j.w + s * LANES * j.w_row;
    const activations<N> * x      = (const activations<N> *) (j.rows + row * (j.k / 32) * ACTIVATIONS);
    kept<F> *              keep   = (kept<F> *) j.strip;
    tally<F, N>            t;
    t.clear();
    for (int64_t b = 0; b < j.k / F::VALUES; b++, x += BLOCKS) {
        super whole;
        F::unpack(at<true>{w + b * F::BYTES, j.w_row, LANES}, whole, [&](int i, const vi * q, vf scale, vf other) INLINE_LAMBDA {
            if (next.at) {
                fetch(next, b * BLOCKS + i);
            }
            if constexpr (KEEP) {
                set<F>(keep[b].block[i], q, scale, other);
            }
            t.add(q, scale, other, x[i]);
        });
        if constexpr (K<F>) {
            t.close(whole, x);
        }
        if constexpr (KEEP) {
            set_whole<F>(keep[b], whole);
        }
    }
    t.write(j, s, row, LANES);
}

// keep_rest unpacks a strip that is not whole.
template <class F> void keep_rest(const uma_job & j, int64_t s, int rows) {
    const char * w = j.w + s * LANES * j.w_row;
    kept<F> *    u = (kept<F> *) j.strip;
    for (int64_t b = 0; b < j.k / F::VALUES; b++, u++) {
        super whole;
        F::unpack(at<false>{w + b * F::BYTES, j.w_row, rows}, whole,
                  [&](int i, const vi * q, vf scale, vf other) INLINE_LAMBDA { set<F>(u->block[i], q, scale, other); });
        set_whole<F>(*u, whole);
    }
}

// more multiplies N rows, those from row on, with the strip that is kept.
template <class F, int N> void more(const uma_job & j, int64_t s, int rows, int64_t row) {
    constexpr int          BLOCKS = F::VALUES / 32;
    const kept<F> *        u      = (const kept<F> *) j.strip;
    const activations<N> * x      = (const activations<N> *) (j.rows + row * (j.k / 32) * ACTIVATIONS);
    tally<F, N>            t;
    t.clear();
    for (int64_t b = 0; b < j.k / F::VALUES; b++, u++, x += BLOCKS) {
#pragma GCC unroll 1
        for (int i = 0; i < BLOCKS; i++) {
            t.add(u->block[i].q, u->block[i].scale, OTHER<F> ? u->block[i].other : vf{}, x[i]);
        }
        if constexpr (K<F>) {
            t.close(u->whole, x);
        }
    }
    t.write(j, s, row, rows);
}

// lanes multiplies a whole group of rows as a smaller one is multiplied.
template <class F> struct lanes {
    static constexpr auto more = ::more<F, ROWS>;

    static void begin() {}
    static void end() {}
};

// ROWS rows (4 or 8) pass a strip at a time. Up to F::AGAIN such groups each unpack it, since the dot products hide that but
// not the writing of what is unpacked; if there are more the first one keeps it for the others, and Whole multiplies those
// that are whole.
template <class F, class Whole> void quantised(const uma_job & j, const uma_piece & p) {
    using few_fn  = void (*)(const uma_job &, int64_t, int64_t, coming);
    using more_fn = void (*)(const uma_job &, int64_t, int, int64_t);
#define UMA_EACH(f) {nullptr, f(1), f(2), f(3), f(4), f(5), f(6), f(7), f(8)}
#define UMA_FEW(n) few<F, n <= ROWS ? n : ROWS, false>
#define UMA_MORE(n) more<F, n <= ROWS ? n : ROWS>
    static constexpr few_fn  few_of[]  = UMA_EACH(UMA_FEW);
    static constexpr more_fn more_of[] = UMA_EACH(UMA_MORE);
#undef UMA_EACH
#undef UMA_FEW
#undef UMA_MORE
    const bool many = j.n > F::AGAIN * ROWS, whole = many && j.n >= 2 * ROWS;
    if (whole) {
        Whole::begin();
    }
    // Groups that unpack the strip one after the other share the next one, or memory would rest after the first of them.
    constexpr int64_t PART   = LANES * F::BYTES * 32 / F::VALUES;
    const int64_t     groups = many ? 1 : (j.n + ROWS - 1) / ROWS, share = (PART + groups - 1) / groups;
    for (int64_t s = p.from; s < p.to; s++) {
        const int    rows = j.m - s * LANES < LANES ? (int) (j.m - s * LANES) : LANES;
        const char * next = ahead(j, p, s, LANES, 24 << 10);
        const bool   keep = rows < LANES || many;
        if (rows < LANES) {
            keep_rest<F>(j, s, rows);
        } else if (keep) {
            few<F, ROWS, true>(j, s, 0, {next, PART});
        }
        for (int64_t i = keep && rows == LANES ? ROWS : 0; i < j.n; i += ROWS) {
            const int64_t n = j.n - i < ROWS ? j.n - i : ROWS;
            if (!keep) {
                const char * from = next ? next + i / ROWS * share * (j.k / 32) : nullptr;
                few_of[n](j, s, i, {from, share});
            } else if (whole && n == ROWS) {
                Whole::more(j, s, rows, i);
            } else {
                more_of[n](j, s, rows, i);
            }
        }
    }
    if (whole) {
        Whole::end();
    }
}

// prepare_blocks brings blocks at … end-1 of row i, which are at x as ggml rounded them, into groups of ROWS rows (the last
// one smaller), block by block. Super-blocks are whole.
template <class F> void prepare_blocks(const uma_job & j, int64_t i, int64_t at, int64_t end, const char * x) {
    constexpr int SUMMED = F::MIN ? Q8_1_BYTES : Q8_0_BYTES, HEAD = SUMMED - 32;
    const int64_t first = i / ROWS * ROWS, n = j.n - first < ROWS ? j.n - first : ROWS, r = i - first;
    char *        to    = j.rows + (first * (j.k / 32) + n * at) * ACTIVATIONS;
    for (int64_t b = at; b < end; b++, to += n * ACTIVATIONS) {
        const int64_t from = F::block(b) - at;
        const char *  p    = x + (K<F> ? from / 8 * Q8_K_BYTES : from * SUMMED);
        const char *  q    = K<F> ? p + 4 + from % 8 * 32 : p + HEAD;
        float         scale;
        int32_t       sum[2] = {0, 0}, sums = 0;
        if constexpr (K<F>) {
            int16_t part[4]; // ggml's sums of 16
            memcpy(&scale, p, sizeof(scale));
            memcpy(part, p + 4 + 256 + from % 8 * 4, from % 2 ? 4 : 8);
            sum[0] = part[0], sum[1] = part[1];
            if (F::HALVES == 2) {
                memcpy(&sums, part, sizeof(sums));
            } else if (from % 2 == 0) {
                const int16_t pair[2] = {(int16_t) (part[0] + part[1]), (int16_t) (part[2] + part[3])};
                memcpy(&sums, pair, sizeof(sums));
            }
        } else {
            uint16_t h;
            memcpy(&h, p, sizeof(h));
            scale = wide1(h);
            if (F::HALVES == 2) {
                sum[0] = total16((const int8_t *) q), sum[1] = total16((const int8_t *) q + 16);
            } else {
                sum[0] = total((const int8_t *) q);
            }
            if (F::MIN) {
                const float of = scale * (float) sum[0];
                memcpy(&sums, &of, sizeof(sums));
            }
        }
        int32_t begin[2] = {-F::SHIFT * sum[0], -F::SHIFT * sum[1]};
        if (F::HALVES == 1) {
            begin[0] += begin[1];
        }
        begin[0] += FROM<F>, begin[1] += FROM<F>;
        if (PAIRS && (r | 1) < n) { // eight bytes of this row, eight of the other one
            for (int e = 0; e < 4; e++) {
                memcpy(to + (r & ~1) * 32 + e * 16 + (r & 1) * 8, q + e * 8, 8);
            }
        } else {
            memcpy(to + r * 32, q, 32);
        }
        memcpy(to + n * 32 + r * 4, &scale, 4);
        memcpy(to + n * 36 + r * 4, begin, 4);
        memcpy(to + n * 40 + r * 4, begin + 1, 4);
        memcpy(to + n * 44 + r * 4, &sums, 4);
    }
}

// round_some rounds B blocks of row i from block at on, at most four, and brings them into their group.
template <class F, int B> void round_some(const uma_job & j, int64_t i, int64_t at, const float * x) {
    const int64_t first = i / ROWS * ROWS, n = j.n - first < ROWS ? j.n - first : ROWS, r = i - first;
    char *        to    = j.rows + (first * (j.k / 32) + n * at) * ACTIVATIONS;
    float         scale[4];
    int32_t       sum[4];
    round_to_bytes<B>(x, (int8_t *) to + r * 32, n * ACTIVATIONS, scale, sum);
    for (int b = 0; b < B; b++, to += n * ACTIVATIONS) {
        memcpy(to + n * 32 + r * 4, scale + b, 4);
        if (F::SHIFT) {
            const int32_t begin = FROM<F> - F::SHIFT * sum[b];
            memcpy(to + n * 36 + r * 4, &begin, 4);
        }
        if (F::MIN) {
            const float of = scale[b] * (float) sum[b];
            memcpy(to + n * 44 + r * 4, &of, 4);
        }
    }
}

// round_blocks does what ggml's rounding and prepare_blocks do, with the same result.
template <class F> void round_blocks(const uma_job & j, int64_t i, int64_t at, int64_t end, const float * x) {
    for (; at + 4 <= end; at += 4, x += 128) {
        round_some<F, 4>(j, i, at, x);
    }
    switch (end - at) {
    case 3:
        return round_some<F, 3>(j, i, at, x);
    case 2:
        return round_some<F, 2>(j, i, at, x);
    case 1:
        return round_some<F, 1>(j, i, at, x);
    }
}

struct format {
    int strip; // rows of weights
    void (*prepare)(const uma_job &, int64_t row, int64_t from, int64_t to, const char * x); // null: x is read as it is
    void (*compute)(const uma_job &, const uma_piece &);
    void (*round)(const uma_job &, int64_t row, int64_t from, int64_t to, const float * x); // null: ggml rounds
};

template <class F> constexpr auto rounding() {
    if constexpr (ROUNDS && !K<F> && F::HALVES == 1) {
        return round_blocks<F>;
    } else {
        return nullptr;
    }
}

template <class F, template <class> class Whole> constexpr format quantised_format = {LANES, prepare_blocks<F>, quantised<F, Whole<F>>, rounding<F>()};

// of is how weights of a type are multiplied; strip is 0 where they are not.
template <template <class> class Whole> format of(int type) {
    switch (type) {
    case GGML_TYPE_Q4_0:
        return quantised_format<q4_0, Whole>;
    case GGML_TYPE_Q5_0:
        return quantised_format<q5_0, Whole>;
    case GGML_TYPE_Q8_0:
        return quantised_format<q8_0, Whole>;
    case GGML_TYPE_Q4_K:
        return quantised_format<q4_k, Whole>;
    case GGML_TYPE_Q5_K:
        return quantised_format<q5_k, Whole>;
    case GGML_TYPE_Q6_K:
        return quantised_format<q6_k, Whole>;
    case GGML_TYPE_IQ4_NL:
        return quantised_format<iq4_nl, Whole>;
    case GGML_TYPE_IQ4_XS:
        return quantised_format<iq4_xs, Whole>;
    case GGML_TYPE_Q4_1:
        return quantised_format<q4_1, Whole>;
    case GGML_TYPE_Q5_1:
        return quantised_format<q5_1, Whole>;
    case GGML_TYPE_Q2_K:
        return quantised_format<q2_k, Whole>;
    case GGML_TYPE_Q3_K:
        return quantised_format<q3_k, Whole>;
    case GGML_TYPE_MXFP4:
        return quantised_format<mxfp4, Whole>;
    case GGML_TYPE_NVFP4:
        return quantised_format<nvfp4, Whole>;
    case GGML_TYPE_TQ1_0:
        return quantised_format<tq1_0, Whole>;
    case GGML_TYPE_TQ2_0:
        return quantised_format<tq2_0, Whole>;
    case GGML_TYPE_IQ2_XXS:
        return quantised_format<iq2_xxs, Whole>;
    case GGML_TYPE_IQ2_XS:
        return quantised_format<iq2_xs, Whole>;
    case GGML_TYPE_IQ2_S:
        return quantised_format<iq2_s, Whole>;
    case GGML_TYPE_IQ3_XXS:
        return quantised_format<iq3_xxs, Whole>;
    case GGML_TYPE_IQ3_S:
        return quantised_format<iq3_s, Whole>;
    case GGML_TYPE_F32:
        return {FLOAT_ROWS, nullptr, floats<f32>};
    case GGML_TYPE_F16:
        return {FLOAT_ROWS, nullptr, floats<f16>};
    case GGML_TYPE_BF16:
        return bf16_format();
    }
    return {0, nullptr, nullptr};
}

int strip(int type) {
    return of<lanes>(type).strip;
}

bool wide_type(int type) {
    return type == GGML_TYPE_F32 || type == GGML_TYPE_F16 || type == GGML_TYPE_BF16;
}

size_t rows_bytes(const uma_job & j) {
    return wide_type(j.type) ? 0 : (size_t) (j.n * (j.k / 32) * ACTIVATIONS);
}

size_t strip_bytes(const uma_job & j) {
    return wide_type(j.type) ? 0 : (size_t) (j.k / 32) * sizeof(unpacked) + (size_t) (j.k / 256) * sizeof(super);
}

void prepare_part(const uma_job & j, int64_t row, int64_t from, int64_t to, const char * x) {
    of<lanes>(j.type).prepare(j, row, from / 32, to / 32, x);
}

bool round_part(const uma_job & j, int64_t row, int64_t from, int64_t to, const float * x) {
    const auto round = of<lanes>(j.type).round;
    if (round) {
        round(j, row, from / 32, to / 32, x);
    }
    return round != nullptr;
}

void prepare(const uma_job & j) {
    for (int64_t i = 0; i < j.n && !wide_type(j.type); i++) {
        prepare_part(j, i, 0, j.k, x_of(j, i));
    }
}

template <template <class> class Whole> void compute(const uma_job & j, const uma_piece & p) {
    of<Whole>(j.type).compute(j, p);
}

} // namespace
