/* Matrix products, C[m][n] = start + sum over k of A(i, k) B(k, j).
 *
 * Native engine: each element of C is one chain of multiply-adds over k in order, from `start`, whatever m, n, the place in a
 * tile or the thread. With start = C a sum over samples continues where the last micro-batch left it: any split, same bits.
 * OpenBLAS engine: the same product, equal to rounding only. */
#ifndef GA_MATMUL_H
#define GA_MATMUL_H
#include "tile.h"

typedef struct { const real *at; int64_t row, column; } matrix;      /* element (i, j) is at[i * row + j * column] */

#define matmul GA_NAME(ga_matmul)
#define matmul_packed GA_NAME(ga_matmul_packed)
#define matmul_pack GA_NAME(ga_matmul_pack)
#define matmul_packed_count GA_NAME(ga_matmul_packed_count)

void matmul(ga_engine engine, int threads, int64_t m, int64_t n, int64_t k, matrix a, matrix b, real *c, int64_t c_row, start from,
            const real *bias);
/* B packed into panels beforehand; native only. */
int64_t matmul_packed_count(int64_t k, int64_t n);
void matmul_pack(int threads, int64_t k, int64_t n, matrix b, real *packed);
void matmul_packed(int threads, int64_t m, int64_t n, int64_t k, matrix a, const real *packed, real *c, int64_t c_row, start from,
                   const real *bias);
#endif
