/* Flat arrays of gradients: sums in several precisions, norms, scaling, moving averages. */
#include <stdlib.h>
#include "compute.h"

enum { RANGE = 16384, SUMS = 8 };

/* ---- norm ---- */

/* Sum of squares of g / divisor in float64. Each range of RANGE elements has SUMS chains that are added in a fixed order, and
 * the ranges are added in order: the result depends on n alone, not on threads. */
static double range_squares(const real *g, int64_t n, real divisor)
{
    double sum[SUMS] = {0};
    int64_t i = 0;
    for (; i + SUMS <= n; i += SUMS)
        for (int k = 0; k < SUMS; k++) {
            double q = (double)(g[i + k] / divisor);
            sum[k] += q * q;
        }
    for (int k = 0; i < n; i++, k++) {
        double q = (double)(g[i] / divisor);
        sum[k] += q * q;
    }
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

enum { GROUP = 64 };                             /* ranges per parallel call, so that their sums fit the stack */
typedef struct { const real *g; int64_t n; real divisor; double sum[GROUP]; } norm_job;
static void norm_task(void *context, int i, int worker)
{
    norm_job *j = context;
    (void)worker;
    int64_t from = (int64_t)i * RANGE, n = j->n - from < RANGE ? j->n - from : RANGE;
    j->sum[i] = range_squares(j->g + from, n, j->divisor);
}

int flat_finite(int64_t n, const void *g)
{
    const real *x = g;
    real sum = 0;                                /* x * 0 is 0, or NaN */
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * 0;
    return sum == 0;
}

double flat_norm_squares(int64_t n, const void *g, double divisor)
{
    double sum = 0;
    norm_job j = {.divisor = (real)divisor};
    for (int64_t from = 0; from < n; from += (int64_t)GROUP * RANGE) {
        j.g = (const real *)g + from;
        j.n = n - from < (int64_t)GROUP * RANGE ? n - from : (int64_t)GROUP * RANGE;
        int ranges = (int)((j.n + RANGE - 1) / RANGE);
        ga_parallel(ga_get_threads(), ranges, norm_task, &j);
        for (int i = 0; i < ranges; i++)
            sum += j.sum[i];
    }
    return sum;
}

/* ---- simple passes ---- */

void flat_scale(int64_t n, void *g, double divisor, double factor)
{
    real *x = g, d = (real)divisor, f = (real)factor;
    for (int64_t i = 0; i < n; i++)
        x[i] = x[i] / d * f;
}

void flat_add(int64_t n, void *to, const void *from)
{
    real *restrict y = to;
    const real *restrict x = from;
    for (int64_t i = 0; i < n; i++)
        y[i] += x[i];
}

void flat_average(int64_t n, void *ema, const void *p, double decay)
{
    real *restrict e = ema;
    const real *restrict x = p;
    const real keep = (real)decay, take = (real)(1 - decay);
    for (int64_t i = 0; i < n; i++)
        e[i] = keep * e[i] + take * x[i];
}

/* ---- the window's buffer when it is staged ---- */

/* bfloat16: the upper half of a float32, rounded to nearest even. */
static uint16_t to_bfloat16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if (x != x)
        return (uint16_t)(bits >> 16 | 64);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
static float from_bfloat16(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

/* IEEE binary16, rounded to nearest even. */
static uint16_t to_float16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    float a = fabsf(x);
    if (x != x)
        return (uint16_t)(sign | 0x7E00);
    if (a >= 65520.0f)
        return (uint16_t)(sign | 0x7C00);
    if (a < 0x1p-14f)                            /* subnormal: multiples of 2^-24 */
        return (uint16_t)(sign | (uint16_t)(int)rintf(a * 0x1p24f));
    memcpy(&bits, &a, 4);
    bits += 0xFFF + (bits >> 13 & 1);
    return (uint16_t)(sign | (uint16_t)((bits - (112u << 23)) >> 13));
}
static float from_float16(uint16_t h)
{
    uint32_t exponent = h >> 10 & 31, fraction = h & 1023;
    float x = exponent == 31 ? (fraction ? NAN : INFINITY)
              : exponent ? ldexpf(1.0f + (float)fraction / 1024.0f, (int)exponent - 15) : ldexpf((float)fraction, -24);
    return h & 0x8000 ? -x : x;
}

/* Error-free sum: s + e == a + b exactly (Knuth, TAOCP 2, 4.2.2, theorem B). */
static inline real two_sum(real a, real b, real *e)
{
    real s = a + b, t = s - a;
    *e = (a - (s - t)) + (b - t);
    return s;
}

void flat_buffer_add(ga_buffer kind, int64_t n, void *buffer, void *compensation, const void *gradient)
{
    const real *restrict g = gradient;
    switch (kind) {
    case GA_BUFFER_REAL:
        flat_add(n, buffer, gradient);
        break;
    case GA_BUFFER_FLOAT64: {
        double *restrict b = buffer;
        for (int64_t i = 0; i < n; i++)
            b[i] += (double)g[i];
        break;
    }
    case GA_BUFFER_COMPENSATED: {                /* the pair (b, c) holds the sum; c collects what b cannot */
        real *restrict b = buffer, *restrict c = compensation;
        for (int64_t i = 0; i < n; i++) {
            real e;
            b[i] = two_sum(b[i], g[i], &e);
            c[i] += e;
        }
        break;
    }
    case GA_BUFFER_BFLOAT16: {
        uint16_t *restrict b = buffer;
        for (int64_t i = 0; i < n; i++)
            b[i] = to_bfloat16(from_bfloat16(b[i]) + (float)g[i]);
        break;
    }
    case GA_BUFFER_FLOAT16: {
        uint16_t *restrict b = buffer;
        for (int64_t i = 0; i < n; i++)
            b[i] = to_float16(from_float16(b[i]) + (float)g[i]);
        break;
    }
    }
}

void flat_buffer_read(ga_buffer kind, int64_t n, const void *buffer, const void *compensation, double divisor, void *gradient)
{
    real *restrict g = gradient, d = (real)divisor;
    switch (kind) {
    case GA_BUFFER_REAL:
        for (int64_t i = 0; i < n; i++)
            g[i] = ((const real *)buffer)[i] / d;
        break;
    case GA_BUFFER_FLOAT64:
        for (int64_t i = 0; i < n; i++)
            g[i] = (real)(((const double *)buffer)[i] / divisor);
        break;
    case GA_BUFFER_COMPENSATED:
        for (int64_t i = 0; i < n; i++)
            g[i] = (((const real *)buffer)[i] + ((const real *)compensation)[i]) / d;
        break;
    case GA_BUFFER_BFLOAT16:
        for (int64_t i = 0; i < n; i++)
            g[i] = (real)from_bfloat16(((const uint16_t *)buffer)[i]) / d;
        break;
    case GA_BUFFER_FLOAT16:
        for (int64_t i = 0; i < n; i++)
            g[i] = (real)from_float16(((const uint16_t *)buffer)[i]) / d;
        break;
    }
}
