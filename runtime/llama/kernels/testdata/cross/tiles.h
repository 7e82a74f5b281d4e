// The tiles of AMX in C++ (Intel SDM, volume 2, LDTILECFG, TILELOADD, TILESTORED, TDPBSUD): for scripts/amx.sh. Where the
// processor would raise an exception it ends the program.

struct tile_state {
    tile_shapes shapes;
    bool        shaped = false;
    uint8_t     row[8][16][64];
};

thread_local tile_state tile_now;

inline void tile_must(bool ok, const char * what) {
    if (!ok) {
        fprintf(stderr, "AMX: %s\n", what);
        abort();
    }
}

inline void tiles_shape(const tile_shapes & s) {
    tile_must(s.palette == 1 && s.start_row == 0, "palette, start row");
    for (uint8_t r : s.reserved) {
        tile_must(r == 0, "reserved bytes");
    }
    for (int t = 0; t < 16; t++) {
        tile_must(t < 8 || (s.rows[t] == 0 && s.row_bytes[t] == 0), "more than eight tiles");
        tile_must(s.rows[t] <= 16 && s.row_bytes[t] <= 64 && (s.rows[t] == 0) == (s.row_bytes[t] == 0), "shape");
    }
    memset(tile_now.row, 0, sizeof(tile_now.row));
    tile_now.shapes = s;
    tile_now.shaped = true;
}

inline void tiles_shaped(tile_shapes & s) {
    s = tile_now.shaped ? tile_now.shapes : tile_shapes{};
}

inline void tiles_release() {
    tile_now.shaped = false;
}

inline void tile_used(int t) {
    tile_must(tile_now.shaped && tile_now.shapes.rows[t] > 0, "a tile without a shape");
}

template <int T> void tile_zero() {
    tile_used(T);
    memset(tile_now.row[T], 0, sizeof(tile_now.row[T]));
}

template <int T> void tile_load(const void * p, int64_t row) {
    tile_zero<T>();
    for (int r = 0; r < tile_now.shapes.rows[T]; r++) {
        memcpy(tile_now.row[T][r], (const char *) p + r * row, tile_now.shapes.row_bytes[T]);
    }
}

template <int T> void tile_store(void * p, int64_t row) {
    tile_used(T);
    for (int r = 0; r < tile_now.shapes.rows[T]; r++) {
        memcpy((char *) p + r * row, tile_now.row[T][r], tile_now.shapes.row_bytes[T]);
    }
}

template <int S, int A, int B> void tile_dots() {
    tile_used(S), tile_used(A), tile_used(B);
    const tile_shapes & s = tile_now.shapes;
    tile_must(S != A && S != B && A != B, "the same tile twice");
    tile_must(s.rows[S] == s.rows[A] && s.row_bytes[S] == s.row_bytes[B] && s.row_bytes[A] == 4 * s.rows[B], "shapes of a product");
    for (int m = 0; m < s.rows[S]; m++) {
        for (int k = 0; k < s.row_bytes[A] / 4; k++) {
            for (int n = 0; n < s.row_bytes[S] / 4; n++) {
                int32_t sum;
                memcpy(&sum, tile_now.row[S][m] + 4 * n, sizeof(sum));
                for (int i = 0; i < 4; i++) {
                    sum += (int8_t) tile_now.row[A][m][4 * k + i] * tile_now.row[B][k][4 * n + i];
                }
                memcpy(tile_now.row[S][m] + 4 * n, &sum, sizeof(sum));
            }
        }
    }
}

inline bool tiles_allowed() {
    return true;
}
