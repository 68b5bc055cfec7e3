/* The element type and the vector width of one variant of the compute sources.
 *
 * Everything below csrc/compute is compiled once per precision (GA_REAL_BITS 32, 64) and CPU level; GA_VARIANT is the suffix
 * of its public names (f32_avx2). The compiler fuses no multiplication and addition on its own (-ffp-contract=off): a fused
 * one is written as multiply_add, so an element is computed by the same operations in a vector loop and in its remainder. */
#ifndef GA_REAL_H
#define GA_REAL_H
#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined __AVX2__
#include <immintrin.h>
#endif

#define GA_PASTE_(a, b) a##_##b
#define GA_PASTE(a, b) GA_PASTE_(a, b)
#define GA_NAME(name) GA_PASTE(name, GA_VARIANT)

#if defined __AVX512F__
#define VECTOR_BYTES 64
#elif defined __AVX2__
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif

#if GA_REAL_BITS == 32
typedef float real;
#define REAL_MIN FLT_MIN
#define real_exp expf
#define real_log logf
#define real_log1p log1pf
#define real_tanh tanhf
#define real_erf erff
#define real_sqrt sqrtf
#define real_abs fabsf
#else
typedef double real;
#define real_exp exp
#define real_log log
#define real_log1p log1p
#define real_tanh tanh
#define real_erf erf
#define real_sqrt sqrt
#define real_abs fabs
#endif

enum { LANES = VECTOR_BYTES / (int)sizeof(real) };
typedef real vec __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(real)), may_alias));

static inline vec load(const real *p) { return *(const vec *)p; }
static inline void store(real *p, vec v) { *(vec *)p = v; }

#if defined __AVX512F__ && GA_REAL_BITS == 32
static inline vec broadcast(real a) { return (vec)_mm512_set1_ps(a); }
static inline vec multiply_add_vec(vec a, vec b, vec c) { return (vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
#elif defined __AVX512F__
static inline vec broadcast(real a) { return (vec)_mm512_set1_pd(a); }
static inline vec multiply_add_vec(vec a, vec b, vec c) { return (vec)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c); }
#elif defined __AVX2__ && GA_REAL_BITS == 32
static inline vec broadcast(real a) { return (vec)_mm256_set1_ps(a); }
static inline vec multiply_add_vec(vec a, vec b, vec c) { return (vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
#elif defined __AVX2__
static inline vec broadcast(real a) { return (vec)_mm256_set1_pd(a); }
static inline vec multiply_add_vec(vec a, vec b, vec c) { return (vec)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c); }
#else
static inline vec broadcast(real a)
{
    vec v;
    for (int i = 0; i < LANES; i++)
        v[i] = a;
    return v;
}
static inline vec multiply_add_vec(vec a, vec b, vec c) { return a * b + c; }
#endif

#if defined __FMA__ && GA_REAL_BITS == 32
static inline real multiply_add(real a, real b, real c) { return __builtin_fmaf(a, b, c); }
#elif defined __FMA__
static inline real multiply_add(real a, real b, real c) { return __builtin_fma(a, b, c); }
#else
static inline real multiply_add(real a, real b, real c) { return a * b + c; }
#endif
#endif
