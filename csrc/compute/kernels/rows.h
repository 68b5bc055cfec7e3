/* Loops along one row of n reals. Sums are taken in interleaved parts, in an order that depends on n alone: the same row gives
 * the same bits wherever it stands. */
#ifndef GA_ROWS_H
#define GA_ROWS_H
#include "../layer.h"

/* The first n <= LANES lanes from memory, the others `rest`. */
static inline vec load_first(const real *p, int64_t n, real rest)
{
    real lane[LANES];
    if (n >= LANES)
        return load(p);
    for (int64_t i = 0; i < LANES; i++)
        lane[i] = i < n ? p[i] : rest;
    return load(lane);
}
static inline void store_first(real *p, int64_t n, vec v)
{
    real lane[LANES];
    if (n >= LANES) {
        store(p, v);
        return;
    }
    store(lane, v);
    for (int64_t i = 0; i < n; i++)
        p[i] = lane[i];
}

enum { PARTS = 8 };
static inline double add_parts(const double part[PARTS])
{
    return ((part[0] + part[4]) + (part[2] + part[6])) + ((part[1] + part[5]) + (part[3] + part[7]));
}

/* Sum over i < n of `term`, an expression of i, in float64. */
#define ROW_SUM(result, n, term)                                                                                            \
    do {                                                                                                                    \
        double part_[PARTS] = {0};                                                                                          \
        int64_t j_ = 0;                                                                                                     \
        for (; j_ + PARTS <= (n); j_ += PARTS)                                                                              \
            _Pragma("GCC unroll 8") for (int l_ = 0; l_ < PARTS; l_++) {                                                    \
                const int64_t i = j_ + l_;                                                                                  \
                part_[l_] += (double)(term);                                                                                \
            }                                                                                                               \
        for (int64_t i = j_; i < (n); i++)                                                                                  \
            part_[i - j_] += (double)(term);                                                                                \
        (result) = add_parts(part_);                                                                                        \
    } while (0)

/* Sum of a[i] b[i] in reals. */
static inline real row_dot(int64_t n, const real *a, const real *b)
{
    vec sum = broadcast(0);
    int64_t whole = n / LANES * LANES;
    real lane[LANES], total = 0;
    for (int64_t i = 0; i < whole; i += LANES)
        sum = multiply_add_vec(load(a + i), load(b + i), sum);
    if (whole < n)
        sum = multiply_add_vec(load_first(a + whole, n - whole, 0), load_first(b + whole, n - whole, 0), sum);
    store(lane, sum);
    for (int l = 0; l < LANES; l++)
        total += lane[l];
    return total;
}

/* Rows to a task when rows of n reals are spread over threads. */
static inline int64_t rows_of_task(int64_t n) { return n < CHUNK ? (CHUNK + n - 1) / n : 1; }

/* to[j] += each row's x[j], in the order of the rows: the gradient of a bias. */
static inline void add_rows(int64_t rows, int64_t n, const real *x, int64_t x_row, real *to)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < n; j++)
            to[j] += x[r * x_row + j];
}
#endif
