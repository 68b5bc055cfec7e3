/* The register tile that every product and convolution is made of.
 *
 *   C[i][j] = start[i][j] + sum over s < count, r < k of A(i, s, r) B(s, r, j)      for up to m rows i and WIDE columns j
 *
 * Each element is one chain of multiply-adds over (s, r) in order, from its start, whatever m, the place in a tile, the other
 * columns or the thread. With start = C a sum over samples goes on where it stopped: every split has the same bits. */
#ifndef GA_TILE_H
#define GA_TILE_H
#include "../layer.h"

enum {
    WIDE = 2 * LANES,                            /* columns of a tile, and of a panel of B */
#if defined __AVX512F__
    ROWS = 12,                                   /* 24 sums + 2 of B + 1 of A of 32 registers */
#elif defined __AVX2__
    ROWS = 6,                                    /* 12 + 2 + 1 of 16 */
#else
    ROWS = 4,
#endif
};

typedef enum { FROM_ZERO, FROM_BIAS, FROM_C } start;                 /* FROM_BIAS: every row starts from bias[j] */

typedef struct {                                 /* element strides */
    int64_t count, a_jump, b_jump;               /* segments, and from one to the next in A and B */
    int64_t k, a_row, a_column, b_row;           /* A(i, s, r) = a[s a_jump + i a_row + r a_column], B(s, r, j) = b[s b_jump + r b_row + j] */
} walk;

#define tile_rows GA_NAME(ga_tile_rows)
/* columns <= WIDE are stored; B is read over tile_width of them. */
void tile_rows(const walk *w, int64_t m, int64_t columns, const real *a, const real *b, start from, const real *bias, real *c,
               int64_t c_row);

static inline int64_t tile_width(int64_t columns) { return columns <= LANES ? LANES : WIDE; }
static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
#endif
