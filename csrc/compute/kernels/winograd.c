/* Winograd convolution; see the header. The gradient of the input is the same convolution of dy, with flipped, transposed weights. */
#include "rows.h"
#include "winograd.h"

enum { BLOCK = 2 * ROWS, POINTS = 16 };          /* tiles that go through the 16 products together; their transforms stay in the second-level cache */

/* A convolution of image (h, w, c) to (oh, ow, o) with padding ph, pw. */
typedef struct {
    int64_t h, w, c, oh, ow, o, ph, pw;
    const ga_node *node;
    const real *x, *packed, *bias;
    real *y;
    int adds, parts;
} job;

static int64_t panels(int64_t n) { return (n + WIDE - 1) / WIDE; }
static int64_t across(const job *j) { return (j->ow + 1) / 2; }
static int64_t tiles(const job *j) { return (j->oh + 1) / 2 * across(j); }

int64_t winograd_bytes(const convolution *q) { return (POINTS * BLOCK * (q->c + q->o) + larger(q->c, q->o) + 2 * WIDE) * (int64_t)sizeof(real); }

int64_t winograd_packed_count(const convolution *q, int backward)
{
    return backward ? POINTS * panels(q->c) * q->o * WIDE : POINTS * panels(q->o) * q->c * WIDE;
}

/* ---- weights: G g G', G = (1 0 0, 1/2 1/2 1/2, 1/2 -1/2 1/2, 0 0 1) ---- */

static void transform_weights(const real g[3][3], real u[4][4])
{
    real rows[4][3];
    for (int k = 0; k < 3; k++) {
        real both = (g[0][k] + g[2][k]) / 2;
        rows[0][k] = g[0][k];
        rows[1][k] = both + g[1][k] / 2;
        rows[2][k] = both - g[1][k] / 2;
        rows[3][k] = g[2][k];
    }
    for (int i = 0; i < 4; i++) {
        real both = (rows[i][0] + rows[i][2]) / 2;
        u[i][0] = rows[i][0];
        u[i][1] = both + rows[i][1] / 2;
        u[i][2] = both - rows[i][1] / 2;
        u[i][3] = rows[i][2];
    }
}

typedef struct { const convolution *q; const real *w; real *packed; int backward; int64_t in, out; } packing;

/* packed: [point][panel of outputs][input][WIDE] */
static void pack_panel(void *context, int panel, int worker)
{
    const packing *j = context;
    const convolution *q = j->q;
    (void)worker;
    for (int64_t c = 0; c < j->in; c++)
        for (int64_t k = 0; k < WIDE; k++) {
            int64_t o = panel * WIDE + k;
            real g[3][3] = {{0}}, u[4][4];
            for (int ky = 0; ky < 3 && o < j->out; ky++)
                for (int kx = 0; kx < 3; kx++)
                    g[ky][kx] = j->backward ? j->w[(((2 - ky) * 3 + 2 - kx) * q->c + o) * q->o + c] : j->w[((ky * 3 + kx) * q->c + c) * q->o + o];
            transform_weights(g, u);
            for (int p = 0; p < POINTS; p++)
                j->packed[((p * panels(j->out) + panel) * j->in + c) * WIDE + k] = u[p / 4][p % 4];
        }
}

void winograd_pack(const convolution *q, const real *w, int backward, int threads, real *packed)
{
    packing j = {q, w, packed, backward, backward ? q->o : q->c, backward ? q->c : q->o};
    ga_parallel(j.in * j.out > CHUNK ? threads : 1, (int)panels(j.out), pack_panel, &j);
}

/* ---- a block of tiles ---- */

/* B' d B of one tile to v[point * step + channel], B' = (1 0 -1 0, 0 1 1 0, 0 -1 1 0, 0 1 0 -1). pixel: where its 4 x 4 pixels are. */
static void transform_input(const real *const pixel[4][4], int64_t c, int64_t step, real *v)
{
    for (int64_t i = 0; i < c; i += LANES) {
        const int64_t n = c - i;
        vec t[4][4];
        _Pragma("GCC unroll 4") for (int b = 0; b < 4; b++) {
            vec d0 = load_first(pixel[0][b] + i, n, 0), d1 = load_first(pixel[1][b] + i, n, 0);
            vec d2 = load_first(pixel[2][b] + i, n, 0), d3 = load_first(pixel[3][b] + i, n, 0);
            t[0][b] = d0 - d2;
            t[1][b] = d1 + d2;
            t[2][b] = d2 - d1;
            t[3][b] = d1 - d3;
        }
        _Pragma("GCC unroll 4") for (int a = 0; a < 4; a++) {
            real *to = v + 4 * a * step + i;
            store_first(to, n, t[a][0] - t[a][2]);
            store_first(to + step, n, t[a][1] + t[a][2]);
            store_first(to + 2 * step, n, t[a][2] - t[a][1]);
            store_first(to + 3 * step, n, t[a][1] - t[a][3]);
        }
    }
}

/* A' m A of one tile, A' = (1 1 1 0, 0 1 -1 -1); out: where its 2 x 2 pixels go, NULL beyond the edge. */
static void transform_output(const real *m, int64_t step, int64_t o, const real *bias, int adds, real *const out[2][2])
{
    for (int64_t i = 0; i < o; i += LANES) {
        const int64_t n = o - i;
        vec s[2][4], start = broadcast(0);
        if (bias)
            start = load_first(bias + i, n, 0);
        _Pragma("GCC unroll 4") for (int b = 0; b < 4; b++) {
            vec m0 = load_first(m + b * step + i, n, 0), m1 = load_first(m + (4 + b) * step + i, n, 0);
            vec m2 = load_first(m + (8 + b) * step + i, n, 0), m3 = load_first(m + (12 + b) * step + i, n, 0);
            s[0][b] = m0 + m1 + m2;
            s[1][b] = m1 - m2 - m3;
        }
        _Pragma("GCC unroll 2") for (int a = 0; a < 2; a++) {
            vec y[2] = {s[a][0] + s[a][1] + s[a][2] + start, s[a][1] - s[a][2] - s[a][3] + start};
            _Pragma("GCC unroll 2") for (int b = 0; b < 2; b++) {
                if (!out[a][b])
                    continue;
                if (adds)
                    y[b] = load_first(out[a][b] + i, n, 0) + y[b];
                store_first(out[a][b] + i, n, y[b]);
            }
        }
    }
}

/* Tiles from..to of one sample. */
static void block(const job *j, const real *x, real *y, int64_t from, int64_t to, real *work)
{
    const int64_t n = to - from, in_step = BLOCK * j->c, out_step = BLOCK * j->o;
    real *v = work, *m = v + POINTS * in_step, *zero = m + POINTS * out_step;
    for (int64_t t = from; t < to; t++) {
        int64_t y0 = t / across(j) * 2 - j->ph, x0 = t % across(j) * 2 - j->pw;
        const real *pixel[4][4];
        for (int a = 0; a < 4; a++)
            for (int b = 0; b < 4; b++) {
                int64_t iy = y0 + a, ix = x0 + b;
                pixel[a][b] = iy < 0 || iy >= j->h || ix < 0 || ix >= j->w ? zero : x + (iy * j->w + ix) * j->c;
            }
        transform_input(pixel, j->c, in_step, v + (t - from) * j->c);
    }
    walk w = {.count = 1, .k = j->c, .a_row = j->c, .a_column = 1, .b_row = WIDE};
    const real *u = j->packed;
    for (int p = 0; p < POINTS; p++)
        for (int64_t k = 0; k < panels(j->o); k++, u += j->c * WIDE)
            tile_rows(&w, n, smaller(WIDE, j->o - k * WIDE), v + p * in_step, u, FROM_ZERO, NULL, m + p * out_step + k * WIDE, j->o);
    for (int64_t t = from; t < to; t++) {
        int64_t oy = t / across(j) * 2, ox = t % across(j) * 2;
        real *out[2][2];
        for (int a = 0; a < 2; a++)
            for (int b = 0; b < 2; b++)
                out[a][b] = oy + a < j->oh && ox + b < j->ow ? y + ((oy + a) * j->ow + ox + b) * j->o : NULL;
        transform_output(m + (t - from) * j->o, out_step, j->o, j->bias, j->adds, out);
    }
}

static void task(void *context, int index, int worker)
{
    const job *j = context;
    int64_t s = index / j->parts, part = index % j->parts, blocks = (tiles(j) + BLOCK - 1) / BLOCK;
    real *work = thread_work(j->node, worker);
    memset(work + POINTS * BLOCK * (j->c + j->o), 0, (size_t)j->c * sizeof(real));          /* the pixel outside of the image */
    for (int64_t b = blocks * part / j->parts; b < blocks * (part + 1) / j->parts; b++)
        block(j, j->x + s * j->h * j->w * j->c, j->y + s * j->oh * j->ow * j->o, b * BLOCK, smaller((b + 1) * BLOCK, tiles(j)), work);
}

static void run(job *j, const ga_pass *pass)
{
    double products = (double)pass->samples * (double)tiles(j) * POINTS * (double)j->c * (double)j->o;
    int64_t blocks = (tiles(j) + BLOCK - 1) / BLOCK;
    j->parts = pass->samples >= pass->threads ? 1 : (int)smaller(pass->threads, blocks);
    ga_parallel(products > 2e6 ? pass->threads : 1, (int)pass->samples * j->parts, task, j);
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
