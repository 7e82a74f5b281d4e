// Attention of a group of rows, for any instruction set: `state`, what it computes with, and `cached_keys`, how it keeps keys that
// a cache has rounded, are those of the including file.
//
// A row's cells are cut into parts of PART cells of its list, and a part into blocks of BLOCK. Of each part come the maximum
// of the scores, the sum of the weights and the weighted values; uma_attention_merge adds them up in the order of the parts.
// So the result is the same whether one thread computes all parts of a row or several share them.

namespace {

typedef uma_attention_job job;

// alike compares a block of two lists, which may be one.
template <class T> INLINE bool alike(const T * a, const T * b, int n) {
    return a == b || memcmp(a, b, n * sizeof(T)) == 0;
}

// group computes a job; K is how it keeps the keys.
template <int D, class K> void group(const job & j) {
    using S         = state<D, K>;
    S *    states   = (S *) j.room;
    auto & t        = *(tile<D, K> *) (states + j.rows * j.heads);
    float * record  = (float *) (&t + 1);
    float * results = record + D + 2; // of the queries, where all parts are computed here
    for (int64_t r = 0; r < j.rows; r++) {
        for (int64_t h = 0; h < j.heads; h++) {
            states[r * j.heads + h].q.ask(j.q + r * j.q_row + h * j.q_head, j.scale);
            if (!j.parts) {
                results[(r * j.heads + h) * (D + 2)] = NONE;
            }
        }
    }
    // The first of the rows before each that see its list or less of it, as those of a prompt do.
    int first[QUERIES];
    for (int64_t r = 0; r < j.rows; r++) {
        const bool same = r > 0 && j.seen[r - 1].at == j.seen[r].at && j.seen[r - 1].bias == j.seen[r].bias && j.seen[r - 1].n <= j.seen[r].n;
        first[r]        = same ? first[r - 1] : (int) r;
    }
    const bool many = j.rows * j.heads >= 4 * BLOCK; // enough batches to fetch a cell with each, else they come with the tile
    for (int64_t part = j.first; part < j.last; part++) {
        for (int64_t i = 0; i < j.rows * j.heads; i++) {
            states[i].begin();
        }
        for (int64_t b = part * PART; b < (part + 1) * PART; b += BLOCK) {
            const int32_t * have = nullptr; // whose block the tile holds
            int             held = 0;
            const int32_t * ahead = nullptr; // the cells to fetch: of the block after the next
            int64_t         to_fetch = 0;
            // The last rows of a prompt see the most: what they bring in holds the blocks of those before them.
            for (int64_t r = j.rows - 1; r >= 0;) {
                const uma_cells & c    = j.seen[r];
                const int         here = (int) (c.n - b < BLOCK ? c.n - b : BLOCK);
                if (here <= 0) {
                    r--;
                    continue;
                }
                if (!have || here > held || !alike(have, c.at + b, here)) {
                    ahead    = c.at + b + 2 * BLOCK;
                    to_fetch = c.n - b - 2 * BLOCK < BLOCK ? c.n - b - 2 * BLOCK : BLOCK;
                    t.fill(j, c.at + b, here, ahead, many ? 0 : to_fetch);
                    have = c.at + b, held = here;
                }
                // Rows with the very same block go on together.
                int64_t before = r - 1;
                if (here == BLOCK && j.seen[first[r]].n - b >= BLOCK) {
                    before = first[r] - 1;
                }
                while (here == BLOCK && before >= 0 && j.seen[before].n - b >= BLOCK && alike(have, j.seen[before].at + b, BLOCK) &&
                       alike(c.bias + b, j.seen[before].bias + b, BLOCK)) {
                    before--;
                }
                const float *     bias = c.bias + b;
                alignas(64) float rest[BLOCK];
                if (here < BLOCK) {
                    for (int i = 0; i < BLOCK; i++) {
                        rest[i] = i < here ? bias[i] : OUT;
                    }
                    bias = rest;
                }
                for (int64_t i = (before + 1) * j.heads, end = (r + 1) * j.heads; i < end; i += 4) {
                    S * batch[4] = {states + i, states + i + 1, states + i + 2, states + i + 3};
                    switch (end - i) {
                    default:
                        S::template attend<4>(batch, t, bias, here);
                        break;
                    case 3:
                        S::template attend<3>(batch, t, bias, here);
                        break;
                    case 2:
                        S::template attend<2>(batch, t, bias, here);
                        break;
                    case 1:
                        S::template attend<1>(batch, t, bias, here);
                        break;
                    }
                    if (many && to_fetch > 0) {
                        to_fetch--;
                        fetch(j, *ahead++);
                    }
                }
                r = before;
            }
        }
        for (int64_t i = 0; i < j.rows * j.heads; i++) {
            if (states[i].base == NONE) {
                if (j.parts) {
                    j.parts[(i * j.all + part) * (D + 2)] = NONE;
                }
                continue;
            }
            float * to = j.parts ? j.parts + (i * j.all + part) * (D + 2) : record;
            states[i].end(to);
            if (!j.parts) {
                uma_attention_merge(results + i * (D + 2), record, D);
            }
        }
    }
    if (!j.parts) {
        for (int64_t r = 0; r < j.rows; r++) {
            for (int64_t h = 0; h < j.heads; h++) {
                uma_attention_result(results + (r * j.heads + h) * (D + 2), j.out + r * j.out_row + h * j.out_head, D);
            }
        }
    }
}

// compute computes a job. Who has a cache in float32 wants no other rounding.
template <int D> void compute(const job & j) {
    if (j.k_type == GGML_TYPE_F32) {
        group<D, float_keys<D>>(j);
    } else {
        group<D, cached_keys<D>>(j);
    }
}

// room is the bytes that compute needs for so many queries.
template <int D> size_t room(int64_t queries) {
    using F = float_keys<D>;
    using C = cached_keys<D>;
    static_assert(sizeof(state<D, C>) <= sizeof(state<D, F>) && sizeof(tile<D, C>) <= sizeof(tile<D, F>), "room for either");
    return queries * (sizeof(state<D, F>) + (D + 2) * sizeof(float)) + sizeof(tile<D, F>) + (D + 2) * sizeof(float);
}

uma_attention_width width(int d) {
    switch (d) {
    case 32:
        return {compute<32>, room<32>};
    case 64:
        return {compute<64>, room<64>};
    case 80:
        return {compute<80>, room<80>};
    case 96:
        return {compute<96>, room<96>};
    case 128:
        return {compute<128>, room<128>};
    case 256:
        return {compute<256>, room<256>};
    }
    return {nullptr, nullptr};
}

} // namespace
