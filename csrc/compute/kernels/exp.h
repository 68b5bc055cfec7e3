/* exp, tanh and the logistic function of a vector of reals: the same operations for every element, in any lane.
 *
 *   x = n ln 2 + r,  |r| <= ln 2 / 2,      exp x = 2^n (1 + q),  q = r + r^2 / 2! + r^3 / 3! + ...
 *
 * The series ends where its rest is below the rounding. ln 2 is subtracted in two parts, the first with so few digits that n
 * times it is exact (Cody, Waite 1980). Results below the smallest normal number are 0; exp is infinite above EXP_HIGH. */
#ifndef GA_EXP_H
#define GA_EXP_H
#include "../layer.h"

#if GA_REAL_BITS == 32
typedef int32_t vec_int __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
enum { EXPONENT_AT = 23, EXPONENT_BIAS = 127, SERIES = 8 };
#define ROUNDER (real)12582912                   /* 1.5 * 2^23: adding it leaves the nearest integer in the low digits */
#define EXP_LOW (real)-87.33654
#define EXP_HIGH (real)88.37626
#else
typedef int64_t vec_int __attribute__((vector_size(VECTOR_BYTES), aligned(8), may_alias));
enum { EXPONENT_AT = 52, EXPONENT_BIAS = 1023, SERIES = 14 };
#define ROUNDER (real)6755399441055744           /* 1.5 * 2^52 */
#define EXP_LOW (real)-708.3964185322641
#define EXP_HIGH (real)709.4361393031039
#endif

/* mask ? a : b, for each lane */
static inline vec choose(vec_int mask, vec a, vec b) { return (vec)(((vec_int)a & mask) | ((vec_int)b & ~mask)); }
static inline vec larger_vec(vec a, vec b) { return choose((vec_int)(a > b), a, b); }

/* exp x = *scale + *scale * q for x within the limits; returns q. */
static inline vec exp_parts(vec x, vec *scale)
{
    static const real reciprocal[] = {                       /* 1 / k! */
        1, 1, 1. / 2, 1. / 6, 1. / 24, 1. / 120, 1. / 720, 1. / 5040, 1. / 40320, 1. / 362880, 1. / 3628800, 1. / 39916800,
        1. / 479001600, 1. / 6227020800,
    };
    vec rounded = multiply_add_vec(x, broadcast((real)1.44269504088896340736), broadcast(ROUNDER)), n = rounded - broadcast(ROUNDER);
    vec r = multiply_add_vec(-n, broadcast((real)0.693145751953125), x);
    r = multiply_add_vec(-n, broadcast((real)1.42860682030941723212e-6), r);
    vec q = broadcast(reciprocal[SERIES - 1]);
    _Pragma("GCC unroll 16") for (int k = SERIES - 2; k > 0; k--)
        q = multiply_add_vec(q, r, broadcast(reciprocal[k]));
    *scale = (vec)(((vec_int)rounded + EXPONENT_BIAS) << EXPONENT_AT);
    return q * r;
}

static inline vec exp_vec(vec x)
{
    vec scale, q = exp_parts(x, &scale), y = multiply_add_vec(scale, q, scale);
    y = choose((vec_int)(x < broadcast(EXP_LOW)), broadcast(0), y);
    return choose((vec_int)(x > broadcast(EXP_HIGH)), broadcast((real)INFINITY), y);
}

/* t / (t + 2) with t = exp(2 x) - 1, which keeps small x accurate; beyond |x| = 20 it is 1. */
static inline vec tanh_vec(vec x)
{
    vec scale, y = x + x;
    y = choose((vec_int)(y > broadcast(40)), broadcast(40), y);
    y = choose((vec_int)(y < broadcast(-40)), broadcast(-40), y);
    vec q = exp_parts(y, &scale), t = multiply_add_vec(scale, q, scale - broadcast(1));
    return t / (t + broadcast(2));
}

static inline vec sigmoid_vec(vec x) { return broadcast(1) / (broadcast(1) + exp_vec(-x)); }
#endif
