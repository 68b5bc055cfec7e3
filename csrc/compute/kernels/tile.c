/* Tiles of 1 to ROWS rows x 1 or 2 vectors, sums in registers. One vector is for panels of 16 channels or 10 classes: twice as fast there. */
#include "tile.h"

/* start has row stride s_row; 0: one row for all */
typedef void tile_function(const walk *w, const real *a, const real *b, const real *s, int64_t s_row, real *c, int64_t c_row);
#define TILE(R, V)                                                                                                          \
    static void tile##R##x##V(const walk *w, const real *a, const real *b, const real *s, int64_t s_row, real *c, int64_t c_row) \
    {                                                                                                                       \
        const int64_t a_row = w->a_row, a_column = w->a_column, b_row = w->b_row;                                           \
        vec t[R][V];                                                                                                        \
        _Pragma("GCC unroll 16") for (int i = 0; i < R; i++)                                                                \
            _Pragma("GCC unroll 2") for (int j = 0; j < V; j++) t[i][j] = load(s + i * s_row + j * LANES);                  \
        for (int64_t n = 0; n < w->count; n++) {                                                                            \
            const real *x = a + n * w->a_jump, *y = b + n * w->b_jump;                                                      \
            for (int64_t k = w->k; k > 0; k--, x += a_column, y += b_row) {                                                 \
                vec row[V];                                                                                                 \
                _Pragma("GCC unroll 2") for (int j = 0; j < V; j++) row[j] = load(y + j * LANES);                           \
                _Pragma("GCC unroll 16") for (int i = 0; i < R; i++) {                                                      \
                    vec v = broadcast(x[i * a_row]);                                                                        \
                    _Pragma("GCC unroll 2") for (int j = 0; j < V; j++) t[i][j] = multiply_add_vec(v, row[j], t[i][j]);     \
                }                                                                                                           \
            }                                                                                                               \
        }                                                                                                                   \
        _Pragma("GCC unroll 16") for (int i = 0; i < R; i++)                                                                \
            _Pragma("GCC unroll 2") for (int j = 0; j < V; j++) store(c + i * c_row + j * LANES, t[i][j]);                  \
    }
#define TILES(R) TILE(R, 1) TILE(R, 2)
TILES(1) TILES(2) TILES(3) TILES(4)
#if defined __AVX2__
TILES(5) TILES(6)
#endif
#if defined __AVX512F__
TILES(7) TILES(8) TILES(9) TILES(10) TILES(11) TILES(12)
#endif
#define BOTH(R) {tile##R##x1, tile##R##x2}
static tile_function *const tiles[ROWS + 1][2] = {
    {0, 0}, BOTH(1), BOTH(2), BOTH(3), BOTH(4),
#if defined __AVX2__
    BOTH(5), BOTH(6),
#endif
#if defined __AVX512F__
    BOTH(7), BOTH(8), BOTH(9), BOTH(10), BOTH(11), BOTH(12),
#endif
};

static const real zeros[WIDE];

void tile_rows(const walk *w, int64_t m, int64_t columns, const real *a, const real *b, start from, const real *bias, real *c,
               int64_t c_row)
{
    real edge[ROWS * WIDE];
    int64_t left = m, count = (m + ROWS - 1) / ROWS, width = tile_width(columns);
    const int both = width == WIDE;
    for (; left > 0; count--) {
        int64_t rows = (left + count - 1) / count;           /* tiles of nearly equal height */
        if (columns == width) {
            const real *s = from == FROM_C ? c : from == FROM_BIAS ? bias : zeros;
            tiles[rows][both](w, a, b, s, from == FROM_C ? c_row : 0, c, c_row);
        } else {                                 /* a narrower panel goes through a full tile of its own */
            memset(edge, 0, sizeof edge);
            for (int64_t r = 0; r < rows && from != FROM_ZERO; r++)
                memcpy(edge + r * WIDE, from == FROM_C ? c + r * c_row : bias, (size_t)columns * sizeof(real));
            tiles[rows][both](w, a, b, edge, WIDE, edge, WIDE);
            for (int64_t r = 0; r < rows; r++)
                memcpy(c + r * c_row, edge + r * WIDE, (size_t)columns * sizeof(real));
        }
        a += rows * w->a_row;
        c += rows * c_row;
        left -= rows;
    }
}
