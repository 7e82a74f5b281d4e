// Which cells each row of a batch may see, for attention.cpp: lists made from the mask.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "ggml.h"
#include "kernels/attention.h"

namespace {

// order is that of cells. before is null where no two have one position.
struct order {
    const int32_t * position = nullptr; // of each cell; null: it is not known
    const void *    cells    = nullptr;
    bool (*before)(const void * cells, int32_t a, int32_t b) = nullptr;

    bool operator==(const order & b) const { return position == b.position && cells == b.cells && before == b.before; }

    // behind reports whether cell b follows cell a, which may have its position.
    bool behind(int32_t a, int32_t b) const { return position[a] < position[b] || (position[a] == position[b] && before && before(cells, a, b)); }
};

// list fills c from a row of the mask: n halves, a multiple of 4. They are in the pool's order; it reports whether that is
// the order of positions, too.
bool list(const uint16_t * mask, int64_t n, const order & by, uma_cells & c) {
    const int32_t *    position = by.position;
    constexpr uint16_t hidden  = 0xFC00; // -infinity
    int32_t            last    = -1;
    bool               ordered = true;
    c.n                        = 0;
    for (int64_t i = 0; i < n; i += 4) {
        uint64_t four;
        memcpy(&four, mask + i, sizeof(four));
        if (four == 0xFC00FC00FC00FC00u) {
            continue;
        }
        if (four == 0) {
            const int32_t at[4]   = {(int32_t) i, (int32_t) i + 1, (int32_t) i + 2, (int32_t) i + 3};
            const float   bias[4] = {};
            memcpy(c.at + c.n, at, sizeof(at));
            memcpy(c.bias + c.n, bias, sizeof(bias));
            c.n += 4;
            if (position) {
                const int32_t * p = position + i;
                ordered &= (p[0] >= last) & (p[1] >= p[0]) & (p[2] >= p[1]) & (p[3] >= p[2]);
                last = p[3];
            }
            continue;
        }
        for (int64_t j = i; j < i + 4; j++) {
            if (mask[j] != hidden) {
                c.at[c.n]   = (int32_t) j;
                c.bias[c.n] = mask[j] == 0 ? 0.f : ggml_fp16_to_fp32(mask[j]);
                c.n++;
                if (position) {
                    ordered &= position[j] >= last;
                    last = position[j];
                }
            }
        }
    }
    for (int64_t i = 1; ordered && by.before && i < c.n; i++) {
        ordered = by.behind(c.at[i - 1], c.at[i]);
    }
    return ordered;
}

// piece is a part of a list whose positions follow each other.
struct piece {
    int32_t position;
    int64_t from, n;
};

// arrange sorts the pieces of c and reports whether each cell is behind the one before it. With one, a piece is a cell.
bool arrange(uma_cells & c, const order & by, bool one, std::vector<piece> & pieces, std::vector<int32_t> & at, std::vector<float> & bias) {
    int32_t last = 0;
    pieces.clear();
    for (int64_t i = 0; i < c.n; i++) {
        const int32_t p = by.position[c.at[i]];
        if (i == 0 || one || p != last + 1) {
            pieces.push_back({p, i, 0});
        }
        pieces.back().n++;
        last = p;
    }
    std::stable_sort(pieces.begin(), pieces.end(), [&](const piece & a, const piece & b) {
        return a.position < b.position || (a.position == b.position && by.before && by.before(by.cells, c.at[a.from], c.at[b.from]));
    });
    at.assign(c.at, c.at + c.n);
    bias.assign(c.bias, c.bias + c.n);
    int64_t to = 0;
    for (const piece & p : pieces) {
        memcpy(c.at + to, at.data() + p.from, p.n * sizeof(int32_t));
        memcpy(c.bias + to, bias.data() + p.from, p.n * sizeof(float));
        to += p.n;
    }
    for (int64_t i = 1; i < c.n; i++) {
        if (!by.behind(c.at[i - 1], c.at[i])) {
            return false;
        }
    }
    return true;
}

// sort brings c into the order of cells, and reports whether it tells all of them apart. A conversation lies in few pieces;
// that the rows of an image lie in some of them is seen when these are sorted.
bool sort(uma_cells & c, const order & by, std::vector<piece> & pieces, std::vector<int32_t> & at, std::vector<float> & bias) {
    return arrange(c, by, false, pieces, at, bias) || (by.before && arrange(c, by, true, pieces, at, bias));
}

// MASK_CHUNK cells of the mask are compared at once.
constexpr int64_t MASK_CHUNK = 64;

// same compares a chunk of two rows of the mask, in a form that compilers turn into vectors.
inline bool same(const uint16_t * a, const uint16_t * b) {
    uint16_t differ = 0;
    for (int64_t i = 0; i < MASK_CHUNK; i++) {
        differ |= a[i] ^ b[i];
    }
    return differ == 0;
}

// shorter is how many cells less a row of the mask sees than the next row, where it sees what that one does, but for the last
// cells of its list, of_next: so it is in a prompt. -1 when it is not so.
int64_t shorter(const uint16_t * mask, const uint16_t * next, int64_t n, const uma_cells & of_next) {
    constexpr uint16_t hidden = 0xFC00;
    constexpr int64_t  MOST = 4;
    int32_t            lost[MOST];
    int64_t            many = 0;
    for (int64_t i = 0; i < n; i += MASK_CHUNK) {
        const int64_t end = std::min(i + MASK_CHUNK, n);
        if (end == i + MASK_CHUNK && same(mask + i, next + i)) {
            continue;
        }
        for (int64_t j = i; j < end; j++) {
            if (mask[j] == next[j]) {
                continue;
            }
            if (mask[j] != hidden || many == MOST) {
                return -1;
            }
            lost[many++] = (int32_t) j;
        }
    }
    if (many > of_next.n) {
        return -1;
    }
    for (int64_t i = of_next.n - many; i < of_next.n; i++) {
        if (std::find(lost, lost + many, of_next.at[i]) == lost + many) {
            return -1;
        }
    }
    return many;
}

// lists is what each row of a batch may see. The layers of a graph share their masks, so the lists are made for the first of
// them that asks: a mask has a column for every cell of the pool, and a long conversation elsewhere in it would cost each
// layer as much again.
class lists {
  public:
    // source is what lists are made from.
    struct source {
        const ggml_tensor * mask;      // or null: every row sees every cell
        order               by;
        int64_t             rows, cells, streams;

        bool operator==(const source & b) const {
            return mask == b.mask && by == b.by && rows == b.rows && cells == b.cells && streams == b.streams;
        }
    };

    // graph is called when a graph begins and ends. In between a mask stays what it is.
    void graph(bool begins) { known = false, within = begins; }

    // begin is called by one thread before fill. Then filled says whether the others have nothing to do.
    void begin(const source & s, int threads) {
        filled = within && known && of == s;
        if (filled) {
            return;
        }
        of = s, known = true;
        seen.resize(s.rows * s.streams);
        start.resize(s.rows * s.streams);
        if ((int) parts.size() < threads) {
            parts.resize(threads);
        }
    }

    // fill makes a thread's part of the lists. All threads have to be done before seen is read.
    void fill(int thread, int threads) {
        part &           p    = parts[thread];
        const int64_t    all  = of.rows * of.streams, from = all * thread / threads, to = all * (thread + 1) / threads;
        const uint16_t * next = nullptr; // the mask of the row behind r, where r's list may be a shorter one
        p.at.clear(), p.bias.clear();
        for (int64_t r = to - 1; r >= from; r--) {
            const uint16_t * mask = of.mask ? row(r) : nullptr;
            if (r % of.rows == of.rows - 1) {
                next = nullptr;
            }
            const int64_t less = r == to - 1 ? -1 : !mask ? 0 : next ? shorter(mask, next, of.cells, listed(p, r + 1)) : -1;
            if (less >= 0) {
                start[r] = start[r + 1], seen[r].n = seen[r + 1].n - less;
                next = mask;
                continue;
            }
            p.one_at.resize(of.cells), p.one_bias.resize(of.cells);
            uma_cells c = {p.one_at.data(), p.one_bias.data(), of.cells};
            if (mask) {
                next = list(mask, of.cells, of.by, c) || sort(c, of.by, p.pieces, p.old_at, p.old_bias) ? mask : nullptr;
            } else {
                for (int32_t i = 0; i < of.cells; i++) {
                    c.at[i] = i, c.bias[i] = 0;
                }
            }
            start[r] = (int64_t) p.at.size(), seen[r].n = c.n;
            p.at.insert(p.at.end(), c.at, c.at + c.n);
            p.bias.insert(p.bias.end(), c.bias, c.bias + c.n);
        }
        for (int64_t r = from; r < to; r++) {
            seen[r] = listed(p, r);
        }
    }

    std::vector<uma_cells> seen; // [streams][rows]
    bool                   filled = false;

  private:
    struct part { // what a thread has listed, and where it lists one row
        std::vector<int32_t> at, one_at, old_at;
        std::vector<float>   bias, one_bias, old_bias;
        std::vector<piece>   pieces;
    };

    // listed is r's list: in fill it lies there until the next one is added.
    uma_cells listed(part & p, int64_t r) { return {p.at.data() + start[r], p.bias.data() + start[r], seen[r].n}; }

    const uint16_t * row(int64_t r) const {
        return (const uint16_t *) ((const char *) of.mask->data + r % of.rows * of.mask->nb[1] + r / of.rows % of.mask->ne[3] * of.mask->nb[3]);
    }

    source               of{};
    std::vector<int64_t> start; // of each row's list in those of its part
    std::vector<part>    parts;
    bool                 known = false, within = false;
};

} // namespace
