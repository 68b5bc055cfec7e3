/* The products of every CPU level and precision against one chain of multiply-adds an element, bit for bit, whatever the shape
 * of the tile, the layout of the matrices, the number of threads, and the places where a sum is interrupted. */
#include <math.h>
#include "nets.h"
#include "node.h"

enum { LEVELS = 3, ZERO, BIAS, C };              /* the library's FROM_ZERO, FROM_BIAS, FROM_C, from 0 */

/* kernels/matmul.h is compiled once per variant; these are its functions as one table. */
#define FUNCTIONS(real)                                                                                                     \
    typedef struct { const real *at; int64_t row, column; } matrix_##real;                                                  \
    typedef void product_##real(int engine, int threads, int64_t m, int64_t n, int64_t k, matrix_##real a, matrix_##real b, \
                                real *c, int64_t c_row, int from, const real *bias);                                        \
    typedef int64_t count_##real(int64_t k, int64_t n);                                                                     \
    typedef void pack_##real(int threads, int64_t k, int64_t n, matrix_##real b, real *packed);                             \
    typedef void packed_##real(int threads, int64_t m, int64_t n, int64_t k, matrix_##real a, const real *packed, real *c,  \
                               int64_t c_row, int from, const real *bias);                                                  \
    typedef struct { product_##real *product; count_##real *count; pack_##real *pack; packed_##real *packed; int fused; } kernels_##real;
FUNCTIONS(float)
FUNCTIONS(double)
#define DECLARE(real, v)                                                                                                    \
    extern product_##real ga_matmul_##v; extern count_##real ga_matmul_packed_count_##v; extern pack_##real ga_matmul_pack_##v; \
    extern packed_##real ga_matmul_packed_##v;
#define TABLE(v, fused) {ga_matmul_##v, ga_matmul_packed_count_##v, ga_matmul_pack_##v, ga_matmul_packed_##v, fused}
DECLARE(float, f32_base)
DECLARE(double, f64_base)
#ifdef GA_HAVE_X86_LEVELS
DECLARE(float, f32_avx2) DECLARE(float, f32_avx512)
DECLARE(double, f64_avx2) DECLARE(double, f64_avx512)
static const kernels_float floats[LEVELS] = {TABLE(f32_base, 0), TABLE(f32_avx2, 1), TABLE(f32_avx512, 1)};
static const kernels_double doubles[LEVELS] = {TABLE(f64_base, 0), TABLE(f64_avx2, 1), TABLE(f64_avx512, 1)};
#else
static const kernels_float floats[LEVELS] = {TABLE(f32_base, 0)};
static const kernels_double doubles[LEVELS] = {TABLE(f64_base, 0)};
#endif

static int levels(void)
{
    const char *best = ga_cpu_level();
    return !strcmp(best, "avx512") ? 3 : !strcmp(best, "avx2") ? 2 : 1;
}

static inline float fused_float(float a, float b, float c) { return fmaf(a, b, c); }
static inline double fused_double(double a, double b, double c) { return fma(a, b, c); }

enum { MOST = 620, EDGE = 5 };                   /* largest size; columns of C that do not belong to the product */
typedef struct { int64_t m, n, k; } shape;

#define TESTS(real)                                                                                                         \
    /* One element is one chain: start, then k multiply-adds in order. exact: the same sum in double; size: of absolute values. */ \
    static real chain_##real(int fused, int64_t k, const real *a, int64_t a_step, const real *b, int64_t b_step, real start,    \
                             double *exact, double *size)                                                                   \
    {                                                                                                                       \
        real t = start;                                                                                                     \
        *exact = (double)start;                                                                                             \
        *size = fabs(*exact);                                                                                               \
        for (int64_t i = 0; i < k; i++, a += a_step, b += b_step) {                                                         \
            t = fused ? fused_##real(*a, *b, t) : *a * *b + t;                                                              \
            *exact += (double)*a * (double)*b;                                                                              \
            *size += fabs((double)*a * (double)*b);                                                                         \
        }                                                                                                                   \
        return t;                                                                                                           \
    }                                                                                                                       \
    typedef struct {                                                                                                        \
        real *a, *at, *b, *bt, *bias, *start, *expected, *c, *packed;                                                       \
        shape s;                                                                                                            \
        int64_t c_row;                                                                                                      \
    } case_##real;                                                                                                          \
    static case_##real make_##real(shape s)                                                                                 \
    {                                                                                                                       \
        case_##real x = {.s = s, .c_row = s.n + EDGE};                                                                      \
        int64_t each = (int64_t)sizeof(real);                                                                               \
        x.a = block(s.m * s.k * each), x.at = block(s.m * s.k * each), x.b = block(s.k * s.n * each), x.bt = block(s.k * s.n * each);   \
        x.bias = block(s.n * each), x.start = block(s.m * x.c_row * each), x.c = block(s.m * x.c_row * each);                 \
        x.expected = block(s.m * x.c_row * each);                                                                           \
        x.packed = block((s.n + 64) * (s.k + 1) * each);                                                                    \
        for (int64_t i = 0; i < s.m; i++)                                                                                   \
            for (int64_t k = 0; k < s.k; k++)                                                                               \
                x.a[i * s.k + k] = x.at[k * s.m + i] = (real)noise((uint64_t)(i * 7919 + k));                               \
        for (int64_t k = 0; k < s.k; k++)                                                                                   \
            for (int64_t j = 0; j < s.n; j++)                                                                               \
                x.b[k * s.n + j] = x.bt[j * s.k + k] = (real)noise((uint64_t)(1000003 + j * 104729 + k));                   \
        for (int64_t j = 0; j < s.n; j++)                                                                                   \
            x.bias[j] = (real)noise((uint64_t)(77 + j));                                                                    \
        for (int64_t i = 0; i < s.m * x.c_row; i++)                                                                         \
            x.start[i] = (real)noise((uint64_t)(555 + i));                                                                  \
        return x;                                                                                                           \
    }                                                                                                                       \
    static void free_##real(case_##real *x)                                                                                 \
    {                                                                                                                       \
        free(x->a), free(x->at), free(x->b), free(x->bt), free(x->bias), free(x->start), free(x->expected), free(x->c), free(x->packed);    \
    }                                                                                                                       \
    static void expect_##real(case_##real *x, int fused, int from)                                                          \
    {                                                                                                                       \
        memcpy(x->expected, x->start, (size_t)(x->s.m * x->c_row) * sizeof(real));                                          \
        for (int64_t i = 0; i < x->s.m; i++)                                                                                \
            for (int64_t j = 0; j < x->s.n; j++) {                                                                          \
                double exact, size;                                                                                         \
                real *at = &x->expected[i * x->c_row + j], s = from == ZERO ? 0 : from == BIAS ? x->bias[j] : *at;           \
                *at = chain_##real(fused, x->s.k, x->at + i, x->s.m, x->b + j, x->s.n, s, &exact, &size);                   \
                CHECK(fabs((double)*at - exact) <= (double)(x->s.k + 1) * (sizeof(real) == 4 ? 0x1p-23 : 0x1p-52) * size);  \
            }                                                                                                               \
    }                                                                                                                       \
    static void compare_##real(const case_##real *x)                                                                        \
    {                                                                                                                       \
        CHECK(!memcmp(x->c, x->expected, (size_t)(x->s.m * x->c_row) * sizeof(real)));                                      \
        CHECK(intact(x->c, x->s.m * x->c_row * (int64_t)sizeof(real)));                                                     \
    }                                                                                                                       \
    static void product_of_##real(case_##real *x, const kernels_##real *f, int from, int layout, int threads)               \
    {                                                                                                                       \
        shape s = x->s;                                                                                                     \
        matrix_##real a = layout & 1 ? (matrix_##real){x->at, 1, s.m} : (matrix_##real){x->a, s.k, 1};                      \
        matrix_##real b = layout & 2 ? (matrix_##real){x->bt, 1, s.k} : (matrix_##real){x->b, s.n, 1};                      \
        memcpy(x->c, x->start, (size_t)(s.m * x->c_row) * sizeof(real));                                                    \
        if (layout & 4) {                                                                                                   \
            CHECK(f->count(s.k, s.n) <= (s.n + 64) * (s.k + 1));                                                            \
            f->pack(threads, s.k, s.n, b, x->packed);                                                                       \
            f->packed(threads, s.m, s.n, s.k, a, x->packed, x->c, x->c_row, from - ZERO, x->bias);                          \
        } else                                                                                                              \
            f->product(GA_NATIVE, threads, s.m, s.n, s.k, a, b, x->c, x->c_row, from - ZERO, x->bias);                      \
        compare_##real(x);                                                                                                  \
    }                                                                                                                       \
    /* Every start, layout, level; one thread and several. */                                                               \
    static void all_of_##real(shape s, const kernels_##real *table)                                                         \
    {                                                                                                                       \
        case_##real x = make_##real(s);                                                                                     \
        for (int from = ZERO; from <= C; from++)                                                                            \
            for (int fused = 0; fused < 2; fused++) {                                                                       \
                expect_##real(&x, fused, from);                                                                             \
                for (int level = 0; level < levels(); level++)                                                              \
                    for (int layout = 0; layout < 8 && table[level].fused == fused; layout++)                               \
                        product_of_##real(&x, &table[level], from, layout, 1 + (layout + level) % 3);                       \
            }                                                                                                               \
        free_##real(&x);                                                                                                    \
    }                                                                                                                       \
    /* A parameter gradient: the sum over samples is cut anywhere, and continued from C. */                                 \
    static void cut_##real(shape s, const kernels_##real *table)                                                            \
    {                                                                                                                       \
        case_##real x = make_##real(s);                                                                                     \
        for (int level = 0; level < levels(); level++) {                                                                    \
            expect_##real(&x, table[level].fused, C);                                                                       \
            for (int64_t piece = 1; piece <= s.k; piece = piece * 3 + 1) {                                                  \
                memcpy(x.c, x.start, (size_t)(s.m * x.c_row) * sizeof(real));                                               \
                for (int64_t k = 0; k < s.k; k += piece) {                                                                  \
                    int64_t n = s.k - k < piece ? s.k - k : piece;                                                          \
                    table[level].product(GA_NATIVE, 1 + (int)(piece % 2), s.m, s.n, n, (matrix_##real){x.at + k * s.m, 1, s.m}, \
                                         (matrix_##real){x.b + k * s.n, s.n, 1}, x.c, x.c_row, C - ZERO, NULL);             \
                }                                                                                                           \
                compare_##real(&x);                                                                                         \
            }                                                                                                               \
        }                                                                                                                   \
        free_##real(&x);                                                                                                    \
    }                                                                                                                       \
    /* A row is the same in a product of one row as in one of many. */                                                      \
    static void row_by_row_##real(shape s, const kernels_##real *table)                                                     \
    {                                                                                                                       \
        case_##real x = make_##real(s);                                                                                     \
        for (int level = 0; level < levels(); level++) {                                                                    \
            expect_##real(&x, table[level].fused, BIAS);                                                                    \
            for (int64_t rows = 1; rows <= 15; rows++) {                                                                    \
                memcpy(x.c, x.start, (size_t)(s.m * x.c_row) * sizeof(real));                                               \
                for (int64_t i = 0; i < s.m; i += rows)                                                                     \
                    table[level].product(GA_NATIVE, 1, s.m - i < rows ? s.m - i : rows, s.n, s.k,                           \
                                         (matrix_##real){x.a + i * s.k, s.k, 1}, (matrix_##real){x.b, s.n, 1},              \
                                         x.c + i * x.c_row, x.c_row, BIAS - ZERO, x.bias);                                  \
                compare_##real(&x);                                                                                         \
            }                                                                                                               \
        }                                                                                                                   \
        free_##real(&x);                                                                                                    \
    }
TESTS(float)
TESTS(double)

int main(void)
{
    static const int64_t ms[] = {1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 23, 25, 49}, ns[] = {1, 3, 8, 15, 16, 17, 31, 32, 33, 64, 65},
                         ks[] = {0, 1, 2, 7, 40};
    static const shape large[] = {{1, 70, 500}, {13, 33, 384}, {7, 40, 385}, {241, 35, 9}, {480, 17, 5}, {50, 5, MOST}, {150, 200, 90}, {2000, 33, 40}};
    for (size_t m = 0; m < sizeof ms / sizeof *ms; m++)
        for (size_t n = 0; n < sizeof ns / sizeof *ns; n++) {
            int64_t k = ks[(m + n) % (sizeof ks / sizeof *ks)];
            all_of_float((shape){ms[m], ns[n], k}, floats);
            all_of_double((shape){ms[m], ns[n], k}, doubles);
        }
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        all_of_float(large[i], floats);
        all_of_double(large[i], doubles);
        cut_float(large[i], floats);
        cut_double(large[i], doubles);
    }
    row_by_row_float((shape){45, 37, 80}, floats);
    row_by_row_double((shape){45, 37, 80}, doubles);
    return 0;
}
