/* Forward, input gradient and weight gradient by Winograd's filtering; see the header. */
#include "rows.h"
#include "winograd.h"

enum {
    POINTS = 16,
    BLOCK = 2 * ROWS,                            /* tiles that go through the 16 products together; their transforms stay in the second-level cache */
    DEPTH = 64, CHANNELS = 64,                   /* the same of the weights' gradient: tiles, and channels of a task at most */
    GAP = LANES                                  /* between the points: at multiples of 4096 bytes they would share a set of the first-level cache */
};

/* A convolution of image (h, w, c) to (oh, ow, o) with padding ph, pw. parts: tasks a sample. */
typedef struct {
    int64_t h, w, c, oh, ow, o, ph, pw;
    const ga_node *node;
    const real *x, *packed, *bias;
    real *y;
    int adds, parts;
} job;

static int64_t panels(int64_t n) { return (n + WIDE - 1) / WIDE; }
static int64_t row_of(int64_t n) { return (panels(n) - 1) * WIDE + tile_width(n - (panels(n) - 1) * WIDE); }   /* n, filled up to whole vectors */
static int64_t across(const job *j) { return (j->ow + 1) / 2; }
static int64_t tiles(const job *j) { return (j->oh + 1) / 2 * across(j); }

int64_t winograd_bytes(const convolution *q)
{
    int64_t c = smaller(q->c, CHANNELS), image = POINTS * (BLOCK * (larger(q->c + row_of(q->o), q->o + row_of(q->c))) + 2 * GAP);
    int64_t weights = POINTS * (DEPTH * (c + WIDE) + 2 * GAP + panels(q->o) * (c * WIDE + GAP));
    return (larger(image, weights) + larger(q->c, q->o) + 2 * WIDE) * (int64_t)sizeof(real);
}

int64_t winograd_packed_count(const convolution *q, int backward)
{
    return backward ? POINTS * panels(q->c) * q->o * WIDE : POINTS * panels(q->o) * q->c * WIDE;
}

/* ---- weights: G g G', G = (1 0 0, 1/2 1/2 1/2, 1/2 -1/2 1/2, 0 0 1) ---- */

/* From g[tap][WIDE] to u[point * step + k] for k < WIDE. */
static void transform_weights(const real g[9][WIDE], int64_t step, real *u)
{
    const vec half = broadcast((real)0.5);
    for (int i = 0; i < WIDE; i += LANES) {
        vec t[4][3];
        _Pragma("GCC unroll 3") for (int b = 0; b < 3; b++) {
            vec g0 = load(g[b] + i), g1 = load(g[3 + b] + i) * half, g2 = load(g[6 + b] + i), both = (g0 + g2) * half;
            t[0][b] = g0;
            t[1][b] = both + g1;
            t[2][b] = both - g1;
            t[3][b] = g2;
        }
        _Pragma("GCC unroll 4") for (int a = 0; a < 4; a++) {
            vec both = (t[a][0] + t[a][2]) * half, middle = t[a][1] * half;
            real *to = u + 4 * a * step + i;
            store(to, t[a][0]);
            store(to + step, both + middle);
            store(to + 2 * step, both - middle);
            store(to + 3 * step, t[a][2]);
        }
    }
}

typedef struct { const convolution *q; const real *w; real *packed; int backward; int64_t in, out; } packing;

/* packed: [point][panel of outputs][input][WIDE] */
static void pack_panel(void *context, int panel, int worker)
{
    enum { INPUTS = 16 };                        /* together: a transposition reads along its rows */
    const packing *j = context;
    const convolution *q = j->q;
    const int64_t o0 = panel * WIDE, outputs = smaller(WIDE, j->out - o0), step = panels(j->out) * j->in * WIDE;
    real g[INPUTS][9][WIDE] __attribute__((aligned(64)));
    (void)worker;
    memset(g, 0, sizeof g);
    for (int64_t c0 = 0; c0 < j->in; c0 += INPUTS) {
        const int64_t inputs = smaller(INPUTS, j->in - c0);
        for (int tap = 0; tap < 9; tap++) {
            if (j->backward) {                   /* flipped, and input and output change places */
                for (int64_t k = 0; k < outputs; k++)
                    for (int64_t c = 0; c < inputs; c++)
                        g[c][tap][k] = j->w[((8 - tap) * q->c + o0 + k) * q->o + c0 + c];
            } else
                for (int64_t c = 0; c < inputs; c++)
                    memcpy(g[c][tap], j->w + (tap * q->c + c0 + c) * q->o + o0, (size_t)outputs * sizeof(real));
        }
        for (int64_t c = 0; c < inputs; c++)
            transform_weights(g[c], step, j->packed + (panel * j->in + c0 + c) * WIDE);
    }
}

void winograd_pack(const convolution *q, const real *w, int backward, int threads, real *packed)
{
    packing j = {q, w, packed, backward, backward ? q->o : q->c, backward ? q->c : q->o};
    ga_parallel(j.in * j.out > CHUNK ? threads : 1, (int)panels(j.out), pack_panel, &j);
}

/* ---- a block of tiles ---- */

/* B' d B of one tile to v[point * step + channel], B' = (1 0 -1 0, 0 1 1 0, 0 -1 1 0, 0 1 0 -1). pixel: where its 4 x 4 pixels are.
 * At least LANES channels: the last vector overlaps the one before, and writes the same there. */
static void transform_input(const real *const pixel[4][4], int64_t c, int64_t step, real *v)
{
    for (int64_t i = 0; i < c; i += LANES) {
        const int64_t at = smaller(i, c - LANES);
        vec t[4][4];
        _Pragma("GCC unroll 4") for (int b = 0; b < 4; b++) {
            vec d0 = load(pixel[0][b] + at), d1 = load(pixel[1][b] + at), d2 = load(pixel[2][b] + at), d3 = load(pixel[3][b] + at);
            t[0][b] = d0 - d2;
            t[1][b] = d1 + d2;
            t[2][b] = d2 - d1;
            t[3][b] = d1 - d3;
        }
        _Pragma("GCC unroll 4") for (int a = 0; a < 4; a++) {
            real *to = v + 4 * a * step + at;
            store(to, t[a][0] - t[a][2]);
            store(to + step, t[a][1] + t[a][2]);
            store(to + 2 * step, t[a][2] - t[a][1]);
            store(to + 3 * step, t[a][1] - t[a][3]);
        }
    }
}

/* A' m A of one tile, A' = (1 1 1 0, 0 1 -1 -1); out: where its 2 x 2 pixels go, NULL beyond the edge.
 * The last vector overlaps too, except where the result is added. */
static void transform_output(const real *m, int64_t step, int64_t o, const real *bias, int adds, real *const out[2][2])
{
    for (int64_t i = 0; i < o; i += LANES) {
        const int64_t at = adds ? i : smaller(i, o - LANES), n = o - at;
        vec s[2][4], start = broadcast(0);
        if (bias)
            start = load_first(bias + at, n, 0);
        _Pragma("GCC unroll 4") for (int b = 0; b < 4; b++) {
            vec m0 = load(m + b * step + at), m1 = load(m + (4 + b) * step + at), m2 = load(m + (8 + b) * step + at), m3 = load(m + (12 + b) * step + at);
            s[0][b] = m0 + m1 + m2;
            s[1][b] = m1 - m2 - m3;
        }
        _Pragma("GCC unroll 2") for (int a = 0; a < 2; a++) {
            vec y[2] = {s[a][0] + s[a][1] + s[a][2] + start, s[a][1] - s[a][2] - s[a][3] + start};
            _Pragma("GCC unroll 2") for (int b = 0; b < 2; b++) {
                if (!out[a][b])
                    continue;
                if (adds)
                    y[b] = load_first(out[a][b] + at, n, 0) + y[b];
                store_first(out[a][b] + at, n, y[b]);
            }
        }
    }
}

/* Where the 4 x 4 inputs of tile t are, from channel c0 on; `zero` beyond the edge. */
static void inputs_of(const job *j, const real *x, int64_t t, int64_t c0, const real *zero, const real *pixel[4][4])
{
    int64_t y0 = t / across(j) * 2 - j->ph, x0 = t % across(j) * 2 - j->pw;
    for (int a = 0; a < 4; a++)
        for (int b = 0; b < 4; b++) {
            int64_t iy = y0 + a, ix = x0 + b;
            pixel[a][b] = iy < 0 || iy >= j->h || ix < 0 || ix >= j->w ? zero : x + (iy * j->w + ix) * j->c + c0;
        }
}

/* Tiles from..to of one sample. */
static void block(const job *j, const real *x, real *y, int64_t from, int64_t to, real *work)
{
    const int64_t n = to - from, row = row_of(j->o), in_step = BLOCK * j->c + GAP, out_step = BLOCK * row + GAP;
    real *v = work, *m = v + POINTS * in_step, *zero = m + POINTS * out_step;
    for (int64_t t = from; t < to; t++) {
        const real *pixel[4][4];
        inputs_of(j, x, t, 0, zero, pixel);
        transform_input(pixel, j->c, in_step, v + (t - from) * j->c);
    }
    walk w = {.count = 1, .k = j->c, .a_row = j->c, .a_column = 1, .b_row = WIDE};
    const real *u = j->packed;
    for (int p = 0; p < POINTS; p++)
        for (int64_t k = 0; k < panels(j->o); k++, u += j->c * WIDE)
            tile_rows(&w, n, smaller(WIDE, row - k * WIDE), v + p * in_step, u, FROM_ZERO, NULL, m + p * out_step + k * WIDE, row);
    for (int64_t t = from; t < to; t++) {
        int64_t oy = t / across(j) * 2, ox = t % across(j) * 2;
        real *out[2][2];
        for (int a = 0; a < 2; a++)
            for (int b = 0; b < 2; b++)
                out[a][b] = oy + a < j->oh && ox + b < j->ow ? y + ((oy + a) * j->ow + ox + b) * j->o : NULL;
        transform_output(m + (t - from) * row, out_step, j->o, j->bias, j->adds, out);
    }
}

static void task(void *context, int index, int worker)
{
    const job *j = context;
    int64_t s = index / j->parts, part = index % j->parts, blocks = (tiles(j) + BLOCK - 1) / BLOCK;
    real *work = thread_work(j->node, worker);
    memset(work + POINTS * (BLOCK * (j->c + row_of(j->o)) + 2 * GAP), 0, (size_t)j->c * sizeof(real));          /* the pixel outside of the image */
    for (int64_t b = blocks * part / j->parts; b < blocks * (part + 1) / j->parts; b++)
        block(j, j->x + s * j->h * j->w * j->c, j->y + s * j->oh * j->ow * j->o, b * BLOCK, smaller((b + 1) * BLOCK, tiles(j)), work);
}

static int threads_for(const job *j, const ga_pass *pass)
{
    double products = (double)pass->samples * (double)tiles(j) * POINTS * (double)j->c * (double)j->o;
    return products > 2e6 ? pass->threads : 1;   /* below, a second thread costs more */
}

static void run(job *j, const ga_pass *pass)
{
    int64_t blocks = (tiles(j) + BLOCK - 1) / BLOCK;
    j->parts = pass->samples >= pass->threads ? 1 : (int)smaller(pass->threads, blocks);
    ga_parallel(threads_for(j, pass), (int)pass->samples * j->parts, task, j);
}

void winograd_forward(const convolution *q, const ga_node *node, const ga_pass *pass, const real *x, const real *packed, const real *bias, real *y)
{
    job j = {q->h, q->w, q->c, q->oh, q->ow, q->o, q->ph, q->pw, node, x, packed, bias, y, 0, 1};
    run(&j, pass);
}

void winograd_input_gradient(const convolution *q, const ga_node *node, const ga_pass *pass, const real *dy, const real *packed, real *dx, int adds)
{
    job j = {q->oh, q->ow, q->o, q->h, q->w, q->c, 2 - q->ph, 2 - q->pw, node, dy, packed, NULL, dx, adds, 1};
    run(&j, pass);
}

/* ---- the weights' gradient ---- */

typedef struct { job image; const real *dy; real *dw; int64_t samples; int c_tasks, o_tasks; } weight_job;

/* A dy A' of one tile to d[point * step + output]. pixel: its 2 x 2 pixels of dy. */
static void transform_gradient(const real *const pixel[2][2], int64_t o, int64_t step, real *d)
{
    for (int64_t i = 0; i < o; i += LANES) {
        vec t[4][2];
        _Pragma("GCC unroll 2") for (int b = 0; b < 2; b++) {
            vec y0 = load_first(pixel[0][b] + i, o - i, 0), y1 = load_first(pixel[1][b] + i, o - i, 0);
            t[0][b] = y0;
            t[1][b] = y0 + y1;
            t[2][b] = y0 - y1;
            t[3][b] = -y1;
        }
        _Pragma("GCC unroll 4") for (int a = 0; a < 4; a++) {
            real *to = d + 4 * a * step + i;
            store(to, t[a][0]);
            store(to + step, t[a][0] + t[a][1]);
            store(to + 2 * step, t[a][0] - t[a][1]);
            store(to + 3 * step, -t[a][1]);
        }
    }
}

/* dw[tap * tap_step + output] += G' m G of one input channel. */
static void add_weights(const real *m, int64_t step, int64_t o, real *dw, int64_t tap_step)
{
    const vec half = broadcast((real)0.5);
    for (int64_t i = 0; i < o; i += LANES) {
        const int64_t n = o - i;
        vec t[3][4];
        _Pragma("GCC unroll 4") for (int b = 0; b < 4; b++) {
            vec m1 = load(m + (4 + b) * step + i), m2 = load(m + (8 + b) * step + i), both = (m1 + m2) * half;
            t[0][b] = load(m + b * step + i) + both;
            t[1][b] = (m1 - m2) * half;
            t[2][b] = both + load(m + (12 + b) * step + i);
        }
        _Pragma("GCC unroll 3") for (int a = 0; a < 3; a++) {
            vec both = (t[a][1] + t[a][2]) * half, g[3] = {t[a][0] + both, (t[a][1] - t[a][2]) * half, both + t[a][3]};
            _Pragma("GCC unroll 3") for (int b = 0; b < 3; b++) {
                real *to = dw + (3 * a + b) * tap_step + i;
                store_first(to, n, load_first(to, n, 0) + g[b]);
            }
        }
    }
}

/* Tasks divide channels of the input and panels of outputs; each goes through the samples in order, and adds a sample's sum when it is complete. */
static void weight_task(void *context, int index, int worker)
{
    const weight_job *q = context;
    const job *j = &q->image;
    const int64_t i = index / q->o_tasks, k = index % q->o_tasks, blocks = (tiles(j) + DEPTH - 1) / DEPTH;
    const int64_t c0 = j->c * i / q->c_tasks, c = j->c * (i + 1) / q->c_tasks - c0;
    const int64_t first = panels(j->o) * k / q->o_tasks, last = panels(j->o) * (k + 1) / q->o_tasks;
    const int64_t v_step = DEPTH * c + GAP, d_step = DEPTH * WIDE + GAP, m_step = c * WIDE + GAP;
    real *v = thread_work(j->node, worker), *d = v + POINTS * v_step, *m = d + POINTS * d_step, *zero = m + POINTS * (last - first) * m_step;
    memset(zero, 0, (size_t)larger(c, WIDE) * sizeof(real));
    for (int64_t s = 0; s < q->samples; s++) {
        const real *x = j->x + s * j->h * j->w * j->c, *dy = q->dy + s * j->oh * j->ow * j->o;
        for (int64_t b = 0; b < blocks; b++) {
            const int64_t from = tiles(j) * b / blocks, n = tiles(j) * (b + 1) / blocks - from;
            for (int64_t t = 0; t < n; t++) {
                const real *pixel[4][4];
                inputs_of(j, x, from + t, c0, zero, pixel);
                transform_input(pixel, c, v_step, v + t * c);
            }
            walk w = {.count = 1, .k = n, .a_row = 1, .a_column = c, .b_row = WIDE};
            for (int64_t k = first; k < last; k++) {
                const int64_t columns = smaller(WIDE, j->o - k * WIDE);
                for (int64_t t = 0; t < n; t++) {
                    int64_t oy = (from + t) / across(j) * 2, ox = (from + t) % across(j) * 2;
                    const real *pixel[2][2];
                    for (int a = 0; a < 2; a++)
                        for (int b = 0; b < 2; b++)
                            pixel[a][b] = oy + a < j->oh && ox + b < j->ow ? dy + ((oy + a) * j->ow + ox + b) * j->o + k * WIDE : zero;
                    transform_gradient(pixel, columns, d_step, d + t * WIDE);
                }
                for (int p = 0; p < POINTS; p++)
                    tile_rows(&w, c, tile_width(columns), v + p * v_step, d + p * d_step, from ? FROM_C : FROM_ZERO, NULL,
                              m + ((k - first) * POINTS + p) * m_step, WIDE);
            }
        }
        for (int64_t k = first; k < last; k++)
            for (int64_t r = 0; r < c; r++)
                add_weights(m + (k - first) * POINTS * m_step + r * WIDE, m_step, smaller(WIDE, j->o - k * WIDE), q->dw + (c0 + r) * j->o + k * WIDE,
                            j->c * j->o);
    }
}

void winograd_weight_gradient(const convolution *q, const ga_node *node, const ga_pass *pass, const real *x, const real *dy, real *dw)
{
    weight_job j = {{q->h, q->w, q->c, q->oh, q->ow, q->o, q->ph, q->pw, node, x, NULL, NULL, NULL, 0, 1}, dy, dw, pass->samples, 1, 1};
    int threads = threads_for(&j.image, pass);
    j.c_tasks = (int)larger((q->c + CHANNELS - 1) / CHANNELS, smaller(threads, q->c / LANES));
    j.o_tasks = (int)smaller((threads + j.c_tasks - 1) / j.c_tasks, panels(q->o));
    ga_parallel(threads, j.c_tasks * j.o_tasks, weight_task, &j);
}
