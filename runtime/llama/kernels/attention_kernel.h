// Attention of a group of rows, for any instruction set: `state` and `tile`, what it computes with, are those of the including file.
//
// A row's cells are cut into parts of PART cells of its list, and a part into blocks of BLOCK. Of each part come a base
// of the scores, the sum of the weights and the weighted values; uma_attention_merge adds them up in the order of the parts.
// So the result is the same whether one thread computes all parts of a row or several share them.

namespace {

typedef uma_attention_job job;

// alike compares a block of two lists, which may be one.
template <class T> INLINE bool alike(const T * a, const T * b, int n) {
    return a == b || memcmp(a, b, n * sizeof(T)) == 0;
}

template <int D> void group(const job & j) {
    using S         = state<D>;
    S *    states   = (S *) j.room;
    auto & t        = *(tile<D> *) (states + j.rows * j.heads);
    float * record  = (float *) (&t + 1);
    float * results = record + D + 2; // of the queries, where all parts are computed here
    for (int64_t r = 0; r < j.rows; r++) {
        for (int64_t h = 0; h < j.heads; h++) {
            S & state = states[r * j.heads + h];
            state.q.ask(j.q + r * j.q_row + h * j.q_head, j.softcap == 0 ? j.scale : j.scale / j.softcap, j.k_width);
            state.slope = j.slopes ? j.slopes[h] : 1;
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
    // The pool has cells of other sequences, too: the rows' lists may end long before the last part.
    int64_t most = 0;
    for (int64_t r = 0; r < j.rows; r++) {
        most = j.seen[r].n > most ? j.seen[r].n : most;
    }
    const int64_t seen = (most + PART - 1) / PART, last = j.last < seen ? j.last : seen;
    for (int64_t part = j.first > seen ? j.first : seen; j.parts && part < j.last; part++) {
        for (int64_t i = 0; i < j.rows * j.heads; i++) {
            j.parts[(i * j.all + part) * (D + 2)] = NONE;
        }
    }
    for (int64_t part = j.first; part < last; part++) {
        for (int64_t i = 0; i < j.rows * j.heads; i++) {
            states[i].begin();
        }
        for (int64_t b = part * PART; b < (part + 1) * PART; b += BLOCK) {
            const int32_t * have = nullptr; // whose block the tile holds
            int             held = 0;
            // The last rows of a prompt see the most: what they bring in holds the blocks of those before them.
            for (int64_t r = j.rows - 1; r >= 0;) {
                const uma_cells & c    = j.seen[r];
                const int         here = (int) (c.n - b < BLOCK ? c.n - b : BLOCK);
                if (here <= 0) {
                    r--;
                    continue;
                }
                // Rows with the very same block go on together.
                int64_t before = r - 1;
                if (here == BLOCK && j.seen[first[r]].n - b >= BLOCK) {
                    before = first[r] - 1;
                }
                while (here == BLOCK && before >= 0 && j.seen[before].n - b >= BLOCK && alike(c.at + b, j.seen[before].at + b, BLOCK) &&
                       alike(c.bias + b, j.seen[before].bias + b, BLOCK)) {
                    before--;
                }
                // With enough of them a cell of the block after the next is fetched with each four, else all with this block.
                const int32_t * ahead    = c.at + b + 2 * BLOCK;
                int64_t         to_fetch = 0;
                if (!have || here > held || (here < BLOCK && t.keys.rounded) || !alike(have, c.at + b, here)) {
                    const bool    many = (r - before) * j.heads >= 4 * BLOCK;
                    const int64_t rest = c.n - b - 2 * BLOCK < BLOCK ? c.n - b - 2 * BLOCK : BLOCK;
                    t.fill(j, c.at + b, here, ahead, many ? 0 : rest);
                    have = c.at + b, held = here;
                    to_fetch = many ? rest : 0;
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
                        S::template attend<4>(batch, t, bias, here, j.softcap);
                        break;
                    case 3:
                        S::template attend<3>(batch, t, bias, here, j.softcap);
                        break;
                    case 2:
                        S::template attend<2>(batch, t, bias, here, j.softcap);
                        break;
                    case 1:
                        S::template attend<1>(batch, t, bias, here, j.softcap);
                        break;
                    }
                    if (to_fetch > 0) {
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
                uma_attention_result(results + (r * j.heads + h) * (D + 2), j.sinks ? j.sinks + h : nullptr, j.out + r * j.out_row + h * j.out_head,
                                     j.v_width);
            }
        }
    }
}

// room is the bytes that group needs for so many queries.
template <int D> size_t room(int64_t queries) {
    return queries * (sizeof(state<D>) + (D + 2) * sizeof(float)) + sizeof(tile<D>) + (D + 2) * sizeof(float);
}

template <int D> constexpr uma_attention_width width_of = {D, group<D>, room<D>};

// width is the narrowest kernel for heads of d values.
uma_attention_width width(int d) {
    static constexpr uma_attention_width all[] = {width_of<32>,  width_of<64>,  width_of<80>,  width_of<96>, width_of<128>,
                                                  width_of<192>, width_of<256>, width_of<512>, width_of<576>};
    for (const uma_attention_width & w : all) {
        if (d <= w.width) {
            return w;
        }
    }
    return {0, nullptr, nullptr};
}

} // namespace
