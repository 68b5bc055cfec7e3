/* Tiles of 1 to ROWS rows x 2 vectors, sums in registers. */
#include "tile.h"

/* start has row stride s_row; 0: one row for all */
typedef void tile_function(const walk *w, const real *a, const real *b, const real *s, int64_t s_row, real *c, int64_t c_row);
#define TILE(R)                                                                                                             \
    static void tile##R(const walk *w, const real *a, const real *b, const real *s, int64_t s_row, real *c, int64_t c_row)  \
    {                                                                                                                       \
        const int64_t a_row = w->a_row, a_column = w->a_column, b_row = w->b_row;                                           \
        vec t[R][2];                                                                                                        \
        _Pragma("GCC unroll 16") for (int i = 0; i < R; i++) {                                                              \
            t[i][0] = load(s + i * s_row);                                                                                  \
            t[i][1] = load(s + i * s_row + LANES);                                                                          \
        }                                                                                                                   \
        for (int64_t n = 0; n < w->count; n++) {                                                                            \
            const real *x = a + n * w->a_jump, *y = b + n * w->b_jump;                                                      \
            for (int64_t k = w->k; k > 0; k--, x += a_column, y += b_row) {                                                 \
                vec b0 = load(y), b1 = load(y + LANES);                                                                     \
                _Pragma("GCC unroll 16") for (int i = 0; i < R; i++) {                                                      \
                    vec v = broadcast(x[i * a_row]);                                                                        \
                    t[i][0] = multiply_add_vec(v, b0, t[i][0]);                                                             \
                    t[i][1] = multiply_add_vec(v, b1, t[i][1]);                                                             \
                }                                                                                                           \
            }                                                                                                               \
        }                                                                                                                   \
        _Pragma("GCC unroll 16") for (int i = 0; i < R; i++) {                                                              \
            store(c + i * c_row, t[i][0]);                                                                                  \
            store(c + i * c_row + LANES, t[i][1]);                                                                          \
        }                                                                                                                   \
    }
TILE(1) TILE(2) TILE(3) TILE(4)
#if defined __AVX2__
TILE(5) TILE(6)
#endif
#if defined __AVX512F__
TILE(7) TILE(8) TILE(9) TILE(10) TILE(11) TILE(12)
#endif
static tile_function *const tiles[ROWS + 1] = {
    0, tile1, tile2, tile3, tile4,
#if defined __AVX2__
    tile5, tile6,
#endif
#if defined __AVX512F__
    tile7, tile8, tile9, tile10, tile11, tile12,
#endif
};

static const real zeros[WIDE];

void tile_rows(const walk *w, int64_t m, int64_t columns, const real *a, const real *b, start from, const real *bias, real *c,
               int64_t c_row)
{
    real edge[ROWS * WIDE];
    int64_t left = m, count = (m + ROWS - 1) / ROWS;
    for (; left > 0; count--) {
        int64_t rows = (left + count - 1) / count;           /* tiles of nearly equal height */
        if (columns == WIDE) {
            const real *s = from == FROM_C ? c : from == FROM_BIAS ? bias : zeros;
            tiles[rows](w, a, b, s, from == FROM_C ? c_row : 0, c, c_row);
        } else {                                 /* a narrower panel goes through a full tile of its own */
            memset(edge, 0, sizeof edge);
            for (int64_t r = 0; r < rows && from != FROM_ZERO; r++)
                memcpy(edge + r * WIDE, from == FROM_C ? c + r * c_row : bias, (size_t)columns * sizeof(real));
            tiles[rows](w, a, b, edge, WIDE, edge, WIDE);
            for (int64_t r = 0; r < rows; r++)
                memcpy(c + r * c_row, edge + r * WIDE, (size_t)columns * sizeof(real));
        }
        a += rows * w->a_row;
        c += rows * c_row;
        left -= rows;
    }
}
