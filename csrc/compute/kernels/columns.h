/* Sums down the columns of rows of c reals, in float64: statistics of channels. A column is four chains of additions, over rows
 * 0, 4, ..., 1, 5, ..., so that additions overlap; the order depends on the number of rows alone. */
#ifndef GA_COLUMNS_H
#define GA_COLUMNS_H
#include "../layer.h"

typedef double vec_double __attribute__((vector_size(VECTOR_BYTES), aligned(8), may_alias));
enum { DOUBLES = VECTOR_BYTES / 8 };

#if GA_REAL_BITS == 32
typedef float half_vec __attribute__((vector_size(VECTOR_BYTES / 2), aligned(4), may_alias));
static inline vec_double widened(const real *p) { return __builtin_convertvector(*(const half_vec *)p, vec_double); }
#else
static inline vec_double widened(const real *p) { return *(const vec_double *)p; }
#endif

typedef enum { SUM, SQUARES, WITH_X } column_sum;

/* SUM: first = sum of x.  SQUARES: first = sum of (x - mean)^2.  WITH_X: first = sum of dy, second = sum of dy (x - mean) scale. */
static inline __attribute__((always_inline)) void sum_columns(column_sum what, int64_t rows, int64_t c, const real *x, const real *dy,
                                                              const double *mean, const double *scale, double *first, double *second)
{
    int64_t i = 0;
    for (; i + DOUBLES <= c; i += DOUBLES) {
        vec_double a[4] = {{0}}, b[4] = {{0}}, m = {0}, s = {0};
        if (what != SUM)
            m = *(const vec_double *)(mean + i);
        if (what == WITH_X)
            s = *(const vec_double *)(scale + i);
        int64_t r = 0;
        for (; r + 4 <= rows; r += 4)
            _Pragma("GCC unroll 4") for (int q = 0; q < 4; q++) {
                vec_double v = widened(x + (r + q) * c + i);
                if (what == SUM)
                    a[q] += v;
                else if (what == SQUARES)
                    a[q] += (v - m) * (v - m);
                else {
                    vec_double d = widened(dy + (r + q) * c + i);
                    a[q] += d;
                    b[q] += d * ((v - m) * s);
                }
            }
        for (int q = 0; r < rows; r++, q++) {
            vec_double v = widened(x + r * c + i);
            if (what == SUM)
                a[q] += v;
            else if (what == SQUARES)
                a[q] += (v - m) * (v - m);
            else {
                vec_double d = widened(dy + r * c + i);
                a[q] += d;
                b[q] += d * ((v - m) * s);
            }
        }
        *(vec_double *)(first + i) = (a[0] + a[2]) + (a[1] + a[3]);
        if (what == WITH_X)
            *(vec_double *)(second + i) = (b[0] + b[2]) + (b[1] + b[3]);
    }
    for (; i < c; i++) {
        double a[4] = {0}, b[4] = {0};
        for (int64_t r = 0; r < rows; r++) {
            double v = (double)x[r * c + i];
            if (what == WITH_X) {
                a[r & 3] += (double)dy[r * c + i];
                b[r & 3] += (double)dy[r * c + i] * ((v - mean[i]) * scale[i]);
            } else
                a[r & 3] += what == SUM ? v : (v - mean[i]) * (v - mean[i]);
        }
        first[i] = (a[0] + a[2]) + (a[1] + a[3]);
        if (what == WITH_X)
            second[i] = (b[0] + b[2]) + (b[1] + b[3]);
    }
}

/* Mean and sum of squared deviations of each column. */
static inline void column_moments(int64_t rows, int64_t c, const real *x, double *mean, double *m2)
{
    sum_columns(SUM, rows, c, x, NULL, NULL, NULL, mean, NULL);
    for (int64_t i = 0; i < c; i++)
        mean[i] /= (double)rows;
    sum_columns(SQUARES, rows, c, x, NULL, mean, NULL, m2, NULL);
}
#endif
