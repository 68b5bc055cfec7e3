/* Functions on flat arrays, of every CPU level: 16-bit buffers bit by bit, sums, norms, and the update in one pass. */
#include <math.h>
#include "nets.h"
#include "node.h"

extern const ga_compute ga_compute_f32_base, ga_compute_f64_base;
#ifdef GA_HAVE_X86_LEVELS
extern const ga_compute ga_compute_f32_avx2, ga_compute_f64_avx2, ga_compute_f32_avx512, ga_compute_f64_avx512;
static const ga_compute *const tables[2][3] = {{&ga_compute_f32_base, &ga_compute_f32_avx2, &ga_compute_f32_avx512},
                                               {&ga_compute_f64_base, &ga_compute_f64_avx2, &ga_compute_f64_avx512}};
#else
static const ga_compute *const tables[2][3] = {{&ga_compute_f32_base}, {&ga_compute_f64_base}};
#endif

static int levels(void)
{
    const char *best = ga_cpu_level();
    return !strcmp(best, "avx512") ? 3 : !strcmp(best, "avx2") ? 2 : 1;
}

/* ---- 16 bits ---- */

/* What the bits stand for, from the definition of the formats. */
static double value_of(ga_buffer kind, unsigned h)
{
    int exponent_bits = kind == GA_BUFFER_FLOAT16 ? 5 : 8, fraction_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
    int exponent = (int)(h >> fraction_bits) & ((1 << exponent_bits) - 1);
    double fraction = (h & ((1u << fraction_bits) - 1)) / (double)(1 << fraction_bits), sign = h & 0x8000 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1)
        return fraction != 0 ? NAN : sign * INFINITY;
    return sign * (exponent ? ldexp(1 + fraction, exponent - bias) : ldexp(fraction, 1 - bias));
}

static void every_16_bit_number(ga_buffer kind)
{
    enum { N = 65536 };
    unsigned infinity = kind == GA_BUFFER_FLOAT16 ? 0x7C00 : 0x7F80;
    uint16_t *buffer = block(N * 2), *before = block(N * 2);
    float *g = block(N * 4), *read = block(N * 4);
    for (int level = 0; level < levels(); level++) {
        const ga_compute *t = tables[0][level];
        for (int h = 0; h < N; h++)
            before[h] = buffer[h] = (uint16_t)h;
        t->buffer_read(kind, N, buffer, NULL, 1, read);
        for (unsigned h = 0; h < N; h++)
            CHECK(isnan(value_of(kind, h)) ? isnan(read[h]) : (double)read[h] == value_of(kind, h));
        memset(g, 0, N * 4);
        t->buffer_add(kind, N, buffer, NULL, g);             /* adding 0 gives every number back (-0 becomes 0, NaN stays NaN) */
        for (unsigned h = 0; h < N; h++)
            CHECK(isnan(read[h]) ? isnan(value_of(kind, buffer[h])) : h == 0x8000 ? buffer[h] == 0 : buffer[h] == h);

        for (int where = -1; where <= 1; where++) {          /* just below, at, and just above the middle of two neighbours */
            for (unsigned h = 0; h < infinity; h++) {
                double next = h + 1 == infinity ? 2 * value_of(kind, h) - value_of(kind, h - 1) : value_of(kind, h + 1);
                double middle = (value_of(kind, h) + next) / 2;
                g[h] = (float)middle;                        /* exact: it has one bit more */
                if (where)
                    g[h] = nextafterf(g[h], where < 0 ? -INFINITY : INFINITY);
            }
            memset(buffer, 0, N * 2);
            t->buffer_add(kind, infinity, buffer, NULL, g);
            for (unsigned h = 0; h < infinity; h++)
                CHECK_EQ(buffer[h], where < 0 ? h : where > 0 ? h + 1 : h + (h & 1));
        }
    }
    free(buffer), free(before), free(g), free(read);
}

/* ---- sums ---- */

static double get(const void *a, int wide, int64_t i) { return wide ? ((const double *)a)[i] : (double)((const float *)a)[i]; }

static void sums(int wide)
{
    enum { N = 1003 };
    ga_dtype dtype = wide ? GA_FLOAT64 : GA_FLOAT32;
    int64_t real = wide ? 8 : 4;
    void *a = block(N * 8), *b = block(N * 8), *c = block(N * 8), *e = block(N * 8);
    for (int level = 0; level < levels(); level++) {
        const ga_compute *t = tables[wide][level];
        CHECK_EQ(t->real_bytes, real);
        for (int i = 0; i < N; i++) {
            put(a, dtype, i, noise((uint64_t)i));
            put(b, dtype, i, 1e-3 * noise((uint64_t)(i + N)));
        }
        memcpy(c, a, N * 8);
        t->add(N, c, b);
        for (int i = 0; i < N; i++) {
            if (wide)
                CHECK(((double *)c)[i] == ((double *)a)[i] + ((double *)b)[i]);
            else
                CHECK(((float *)c)[i] == ((float *)a)[i] + ((float *)b)[i]);
        }
        memcpy(c, a, N * 8);
        t->scale(N, c, 3, 0.5);
        for (int i = 0; i < N; i++)
            CHECK(get(c, wide, i) == (wide ? ((double *)a)[i] / 3 * 0.5 : (double)(((float *)a)[i] / 3.0f * 0.5f)));
        memcpy(c, a, N * 8);
        t->average(N, c, b, 0.75);
        for (int i = 0; i < N; i++)
            CHECK(get(c, wide, i) == (wide ? 0.75 * ((double *)a)[i] + 0.25 * ((double *)b)[i]
                                           : (double)(0.75f * ((float *)a)[i] + 0.25f * ((float *)b)[i])));

        memset(e, 0, N * 8);                                 /* float64 buffer: exact for a few float32 */
        for (int k = 0; k < 3; k++)
            t->buffer_add(GA_BUFFER_FLOAT64, N, e, NULL, k == 1 ? b : a);
        t->buffer_read(GA_BUFFER_FLOAT64, N, e, NULL, 7, c);
        for (int i = 0; i < N; i++) {
            double sum = get(a, wide, i) + get(b, wide, i) + get(a, wide, i);
            CHECK(((double *)e)[i] == sum && get(c, wide, i) == (wide ? sum / 7 : (double)(float)(sum / 7)));
        }

        double tiny = wide ? 0x1p-60 : 0x1p-30;              /* compensated: 1 + 4096 tiny - 1, which a plain sum loses */
        void *compensation = block(N * 8);
        memset(e, 0, N * 8);
        for (int k = -1; k <= 4096; k++) {
            for (int i = 0; i < N; i++)
                put(b, dtype, i, k < 0 ? 1 : k == 4096 ? -1 : tiny);
            t->buffer_add(GA_BUFFER_COMPENSATED, N, e, compensation, b);
            if (k == 0)
                CHECK(get(e, wide, 5) == 1 && get(compensation, wide, 5) == tiny);
        }
        t->buffer_read(GA_BUFFER_COMPENSATED, N, e, compensation, 1, c);
        for (int i = 0; i < N; i++)
            CHECK_EQ(get(c, wide, i), 4096 * tiny);
        free(compensation);
    }
    free(a), free(b), free(c), free(e);
}

/* ---- norms ---- */

static void norms(int wide)
{
    static const int64_t sizes[] = {0, 1, 7, 8, 9, 16384, 16385, 40000, 64 * 16384 + 11};
    ga_dtype dtype = wide ? GA_FLOAT64 : GA_FLOAT32;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int64_t n = sizes[s];
        void *a = block(n * 8);
        long double sum = 0;
        double first = -1;
        for (int64_t i = 0; i < n; i++)
            put(a, dtype, i, 3 * noise((uint64_t)i));
        for (int64_t i = 0; i < n; i++) {
            double q = wide ? ((double *)a)[i] / 3 : (double)(((float *)a)[i] / 3.0f);
            sum += (long double)q * q;
        }
        for (int level = 0; level < levels(); level++)
            for (int threads = 1; threads <= 3; threads++) {
                CHECK_EQ(ga_set_threads(threads), GA_OK);
                double got = tables[wide][level]->norm_squares(n, a, 3);
                CHECK(fabsl((long double)got - sum) <= 1e-12L * sum);
                first = first < 0 ? got : first;
                CHECK_EQ(got, first);                        /* the same bits for every level and number of threads */
            }
        if (n) {
            put(a, dtype, n - 1, NAN);
            CHECK(isnan(tables[wide][0]->norm_squares(n, a, 1)));
            put(a, dtype, n - 1, -INFINITY);
            CHECK(isinf(tables[wide][0]->norm_squares(n, a, 1)));
        }
        free(a);
    }
    float large[2] = {3e38f, 3e38f};                         /* squares that float32 cannot hold */
    if (!wide)
        CHECK(fabs(tables[0][0]->norm_squares(2, large, 1) / (2 * 9e76) - 1) < 1e-6);
}

/* ---- the update in one pass ---- */

static void one_pass(int wide)
{
    enum { N = 16384 + 77 };
    ga_dtype dtype = wide ? GA_FLOAT64 : GA_FLOAT32;
    void *p[2], *g[2], *m[2], *v[2], *w[2];
    for (int i = 0; i < 2; i++)
        p[i] = block(N * 8), g[i] = block(N * 8), m[i] = block(N * 8), v[i] = block(N * 8), w[i] = block(N * 8);
    ga_hyper h = {.lr = 0.1, .weight_decay = 0.01, .momentum = 0.9, .dampening = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .amsgrad = 1};
    for (int level = 0; level < levels(); level++)
        for (ga_optimizer_kind kind = GA_SGD; kind <= GA_ADAMW; kind++) {
            const ga_compute *t = tables[wide][level];
            for (int i = 0; i < 2; i++) {
                memset(m[i], 0, N * 8), memset(v[i], 0, N * 8), memset(w[i], 0, N * 8);
                for (int j = 0; j < N; j++)
                    put(p[i], dtype, j, noise((uint64_t)j));
            }
            for (int64_t clock = 1; clock <= 3; clock++) {
                for (int i = 0; i < 2; i++)
                    for (int j = 0; j < N; j++)
                        put(g[i], dtype, j, noise((uint64_t)(j + clock * N)));
                CHECK_EQ(ga_set_threads(2), GA_OK);
                t->optimize(kind, &h, clock, 48, 0.3, 1, N, p[0], g[0], (void *[]){m[0], v[0], w[0]});
                CHECK_EQ(ga_set_threads(1), GA_OK);
                t->scale(N, g[1], 48, 1);
                t->scale(N, g[1], 1, 0.3);
                t->optimize(kind, &h, clock, 1, 1, 0, N, p[1], g[1], (void *[]){m[1], v[1], w[1]});
                CHECK(!memcmp(p[0], p[1], N * 8) && !memcmp(m[0], m[1], N * 8) && !memcmp(v[0], v[1], N * 8) && !memcmp(w[0], w[1], N * 8));
                for (int j = 0; j < N; j++)
                    CHECK(get(g[0], wide, j) == 0 && get(g[1], wide, j) != 0);
            }
            CHECK(intact(p[0], N * 8) && intact(g[0], N * 8) && intact(m[0], N * 8));
        }
    for (int i = 0; i < 2; i++)
        free(p[i]), free(g[i]), free(m[i]), free(v[i]), free(w[i]);
}

/* With one micro-batch a window AdamA is Adam, on any number of threads; a second micro-batch only adds, and gradients are cleared. */
static void without_buffer(int wide)
{
    enum { N = 16384 + 77 };
    ga_dtype dtype = wide ? GA_FLOAT64 : GA_FLOAT32;
    void *p[2], *g[2], *m[2], *v[2];
    for (int i = 0; i < 2; i++)
        p[i] = block(N * 8), g[i] = block(N * 8), m[i] = block(N * 8), v[i] = block(N * 8);
    ga_hyper h = {.lr = 0.1, .beta1 = 0.75, .beta2 = 0.5, .eps = 1e-8};
    for (int level = 0; level < levels(); level++) {
        const ga_compute *t = tables[wide][level];
        for (int i = 0; i < 2; i++)
            memset(p[i], 0, N * 8), memset(m[i], 0, N * 8), memset(v[i], 0, N * 8);
        for (int64_t clock = 1; clock <= 3; clock++) {
            for (int i = 0; i < 2; i++)
                for (int j = 0; j < N; j++)
                    put(g[i], dtype, j, noise((uint64_t)(j + clock * N)));
            CHECK_EQ(ga_set_threads(2), GA_OK);
            t->take(&h, 1, 48, N, g[0], m[0], v[0]);
            t->optimize(GA_ADAMA, &h, clock, 1, 1, 0, N, p[0], g[0], (void *[]){m[0], v[0], NULL});
            CHECK_EQ(ga_set_threads(1), GA_OK);
            t->optimize(GA_ADAM, &h, clock, 48, 1, 1, N, p[1], g[1], (void *[]){m[1], v[1], NULL});
            CHECK(!memcmp(p[0], p[1], N * 8) && !memcmp(m[0], m[1], N * 8) && !memcmp(v[0], v[1], N * 8) && !memcmp(g[0], g[1], N * 8));
        }
        memset(m[0], 0, N * 8), memset(v[0], 0, N * 8);
        put(m[0], dtype, 0, 8), put(v[0], dtype, 0, 8), put(g[0], dtype, 0, 4);
        t->take(&h, 1, 2, N, g[0], m[0], v[0]);                  /* 0.75 * 8 + 0.25 * 2, 0.5 * 8 + 0.5 * 4 */
        CHECK(get(m[0], wide, 0) == 6.5 && get(v[0], wide, 0) == 6 && get(g[0], wide, 0) == 0);
        put(g[0], dtype, 0, -8);
        t->take(&h, 0, 2, N, g[0], m[0], v[0]);                  /* 6.5 - 0.25 * 4, 6 + 0.5 * 16 */
        CHECK(get(m[0], wide, 0) == 5.5 && get(v[0], wide, 0) == 14 && get(g[0], wide, 0) == 0);
        CHECK(intact(p[0], N * 8) && intact(g[0], N * 8) && intact(m[0], N * 8) && intact(v[0], N * 8));
    }
    for (int i = 0; i < 2; i++)
        free(p[i]), free(g[i]), free(m[i]), free(v[i]);
}

/* ---- images ---- */

static void images(void)
{
    enum { SAMPLES = 3, C = 5, H = 2, W = 4, N = SAMPLES * C * H * W };
    float from[N], stored[N], back[N];
    ga_shape shape = {3, {C, H, W}}, flat = {2, {C, H * W}};
    for (int i = 0; i < N; i++)
        from[i] = (float)i;
    for (int level = 0; level < levels(); level++) {
        tables[0][level]->import(&shape, SAMPLES, from, stored);
        for (int s = 0; s < SAMPLES; s++)
            for (int c = 0; c < C; c++)
                for (int p = 0; p < H * W; p++)
                    CHECK_EQ(stored[(s * H * W + p) * C + c], from[(s * C + c) * H * W + p]);
        tables[0][level]->export(&shape, SAMPLES, stored, back);
        CHECK(!memcmp(from, back, sizeof from));
        tables[0][level]->import(&flat, SAMPLES, from, stored);
        CHECK(!memcmp(from, stored, sizeof from));
    }
}

int main(void)
{
    every_16_bit_number(GA_BUFFER_BFLOAT16);
    every_16_bit_number(GA_BUFFER_FLOAT16);
    for (int wide = 0; wide < 2; wide++) {
        sums(wide);
        norms(wide);
        one_pass(wide);
        without_buffer(wide);
    }
    images();
    return 0;
}
