/* exp, tanh, erf and the logistic function of a vector of reals: the same operations for every element, in any lane.
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

static inline vec polynomial(vec x, const double *coefficient, int n)     /* c[0] x^(n-1) + ... + c[n-1] */
{
    vec y = broadcast((real)coefficient[0]);
    _Pragma("GCC unroll 16") for (int i = 1; i < n; i++)
        y = multiply_add_vec(y, x, broadcast((real)coefficient[i]));
    return y;
}

/* Rational approximations of Cody (1969), Mathematics of Computation 23: of erf(x) / x in x^2 up to 0.46875, and beyond of erfc(x) exp(x^2)
 * in x, which he fitted up to 4; where erf is 1 in float64 (above 6) erfc plays no part any more. */
static inline vec erf_vec(vec x)
{
    static const double a[] = {1.85777706184603153e-1, 3.16112374387056560e0, 1.13864154151050156e2, 3.77485237685302021e2, 3.20937758913846947e3};
    static const double b[] = {1, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3};
    static const double c[] = {2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e0, 6.61191906371416295e1, 2.98635138197400131e2,
                               8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3, 1.23033935479799725e3};
    static const double d[] = {1, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3,
                               3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3};
    const vec one = broadcast(1), size = larger_vec(x, -x), z = choose(size > broadcast(6), broadcast(6), size), square = x * x;
    const vec small = x * polynomial(square, a, 5) / polynomial(square, b, 5);
    const vec rest = exp_vec(-z * z) * polynomial(z, c, 9) / polynomial(z, d, 9), large = one - rest;
    const vec y = choose(size <= broadcast((real)0.46875), small, choose(x < broadcast(0), -large, large));
    return choose(x == x, y, x);
}

static inline vec sigmoid_vec(vec x) { return broadcast(1) / (broadcast(1) + exp_vec(-x)); }
#endif
