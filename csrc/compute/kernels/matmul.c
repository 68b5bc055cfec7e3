/* The product: tiles (tile.h) over panels of B, in blocks that stay in the caches. */
#include "matmul.h"

enum {
    DEPTH = 256,                                 /* steps of k per block: a panel block fits the first-level cache */
    BLOCK = 240                                  /* rows of A per block: they stay in the second-level cache */
};

typedef struct {
    int64_t m, n, k;
    matrix a, b;
    const real *packed;                          /* NULL: b is not packed */
    real *c;
    int64_t c_row;
    start from;
    const real *bias;
    int row_tasks;                               /* tasks divide rows, else panels */
    int tasks;
} product;

/* Rows k0..k0+k of panel p of B to `to`, columns beyond n filled with 0. */
static void pack_panel(const matrix *b, int64_t n, int64_t p, int64_t k0, int64_t k, real *to)
{
    int64_t first = p * WIDE, columns = smaller(WIDE, n - first);
    const real *from = b->at + k0 * b->row + first * b->column;
    if (columns == WIDE && b->column == 1) {
        for (int64_t i = 0; i < k; i++, from += b->row, to += WIDE) {
            store(to, load(from));
            store(to + LANES, load(from + LANES));
        }
        return;
    }
    if (columns < WIDE)
        memset(to, 0, (size_t)(k * WIDE) * sizeof(real));
    for (int64_t i = 0; i < k; i += 16)          /* a transposition reads along its rows, in blocks that stay in the first-level cache */
        for (int64_t j = 0; j < columns; j++)
            for (int64_t r = i; r < smaller(i + 16, k); r++)
                to[r * WIDE + j] = from[r * b->row + j * b->column];
}

static void task(void *context, int index, int worker)
{
    const product *q = context;
    (void)worker;
    int64_t panels = (q->n + WIDE - 1) / WIDE, p0 = 0, p1 = panels, m0 = 0, m1 = q->m;
    if (q->row_tasks) {
        m0 = q->m * index / q->tasks;
        m1 = q->m * (index + 1) / q->tasks;
    } else {
        p0 = panels * index / q->tasks;
        p1 = panels * (index + 1) / q->tasks;
    }
    real panel[DEPTH * WIDE] __attribute__((aligned(64)));
    for (int64_t i = m0; i < m1; i += BLOCK) {
        int64_t end = smaller(i + BLOCK, m1);
        for (int64_t k0 = 0; k0 < q->k || k0 == 0; k0 += DEPTH) {
            int64_t k = smaller(DEPTH, q->k - k0);
            for (int64_t p = p0; p < p1; p++) {
                const real *b = panel;
                int64_t b_row = WIDE;
                if (q->packed)
                    b = q->packed + (p * q->k + k0) * WIDE;
                else if (q->b.column == 1 && p * WIDE + tile_width(q->n - p * WIDE) <= q->n && end - i <= 4 * ROWS) {
                    b = q->b.at + k0 * q->b.row + p * WIDE;     /* too few rows to repay a copy */
                    b_row = q->b.row;
                } else
                    pack_panel(&q->b, q->n, p, k0, k, panel);
                walk w = {.count = 1, .k = k, .a_row = q->a.row, .a_column = q->a.column, .b_row = b_row};
                tile_rows(&w, end - i, smaller(WIDE, q->n - p * WIDE), q->a.at + i * q->a.row + k0 * q->a.column, b,
                          k0 ? FROM_C : q->from, q->bias ? q->bias + p * WIDE : NULL, q->c + i * q->c_row + p * WIDE, q->c_row);
            }
        }
    }
}

static void run(product *q, int threads)
{
    int64_t panels = (q->n + WIDE - 1) / WIDE;
    q->tasks = 1;
    if (threads > 1 && (double)q->m * (double)q->n * (double)q->k > 2e6) {    /* below, about 20 microseconds, a second thread costs more */
        q->row_tasks = panels < 2 * threads;
        q->tasks = (int)(q->row_tasks ? smaller(threads, q->m) : smaller(4 * threads, panels));   /* some to take over from a slower core */
    }
    ga_parallel(threads, q->tasks, task, q);
}

int64_t matmul_packed_count(int64_t k, int64_t n) { return (n + WIDE - 1) / WIDE * WIDE * k; }

typedef struct { int64_t k, n; matrix b; real *packed; } packing;

static void pack_task(void *context, int panel, int worker)
{
    const packing *q = context;
    (void)worker;
    pack_panel(&q->b, q->n, panel, 0, q->k, q->packed + panel * q->k * WIDE);
}

void matmul_pack(int threads, int64_t k, int64_t n, matrix b, real *packed)
{
    packing q = {k, n, b, packed};
    ga_parallel(k * n > CHUNK ? threads : 1, (int)((n + WIDE - 1) / WIDE), pack_task, &q);
}

void matmul_packed(int threads, int64_t m, int64_t n, int64_t k, matrix a, const real *packed, real *c, int64_t c_row, start from,
                   const real *bias)
{
    product q = {.m = m, .n = n, .k = k, .a = a, .packed = packed, .c = c, .c_row = c_row, .from = from, .bias = bias};
    run(&q, threads);
}

/* ---- OpenBLAS ---- */

enum { ROW_MAJOR = 101, NO_TRANSPOSE = 111, TRANSPOSE = 112 };

static void with_blas(int64_t m, int64_t n, int64_t k, matrix a, matrix b, real *c, int64_t c_row, start from, const real *bias)
{
    if (from == FROM_BIAS)
        for (int64_t i = 0; i < m; i++)
            memcpy(c + i * c_row, bias, (size_t)n * sizeof(real));
    int ta = a.column == 1 ? NO_TRANSPOSE : TRANSPOSE, tb = b.column == 1 ? NO_TRANSPOSE : TRANSPOSE;
    int64_t lda = a.column == 1 ? a.row : a.column, ldb = b.column == 1 ? b.row : b.column;
    lda = larger(lda, a.column == 1 ? k : m);    /* of a single row the stride does not matter, but is checked */
    ldb = larger(ldb, b.column == 1 ? n : k);
    real beta = from == FROM_ZERO ? 0 : 1;
#if GA_REAL_BITS == 32
    ga_blas_table.sgemm(ROW_MAJOR, ta, tb, (int)m, (int)n, (int)k, 1, a.at, (int)lda, b.at, (int)ldb, beta, c, (int)c_row);
#else
    ga_blas_table.dgemm(ROW_MAJOR, ta, tb, (int)m, (int)n, (int)k, 1, a.at, (int)lda, b.at, (int)ldb, beta, c, (int)c_row);
#endif
}

void matmul(ga_engine engine, int threads, int64_t m, int64_t n, int64_t k, matrix a, matrix b, real *c, int64_t c_row, start from,
            const real *bias)
{
    if (m < 1 || n < 1)
        return;
    if (engine == GA_OPENBLAS && k > 0) {
        with_blas(m, n, k, a, b, c, c_row, from, bias);
        return;
    }
    product q = {.m = m, .n = n, .k = k, .a = a, .b = b, .c = c, .c_row = c_row, .from = from, .bias = bias};
    run(&q, threads);
}
