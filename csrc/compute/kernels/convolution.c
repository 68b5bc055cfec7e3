/* Forward, input gradient and weight gradient of convolutions; see the header. */
#include "convolution.h"
#include "matmul.h"

static int64_t ceiling(int64_t a, int64_t b) { return a >= 0 ? (a + b - 1) / b : -(-a / b); }
static int64_t inputs(const convolution *q) { return q->c / q->groups; }     /* channels of a group */
static int64_t outputs(const convolution *q) { return q->o / q->groups; }
static int64_t panels(int64_t n) { return (n + WIDE - 1) / WIDE; }
static int depthwise(const convolution *q) { return q->groups > 1 && inputs(q) == 1 && outputs(q) == 1; }
static int64_t with_border(const convolution *q) { return (q->ow - 1) * q->sw + (q->kw - 1) * q->dw + 1; }   /* width of a padded row */

/* The input gradient reads dy with a border of this many pixels, so that every tap finds its pixel or a zero. */
static int64_t border_y(const convolution *q) { return (q->kh - 1) * q->dh; }
static int64_t border_x(const convolution *q) { return (q->kw - 1) * q->dw; }

static int64_t patch_rows(const convolution *q) { return q->oh * q->ow; }    /* of the matrix of patches, OpenBLAS only */
static int64_t patch_columns(const convolution *q) { return q->kh * q->kw * inputs(q); }

int64_t convolution_bytes(const convolution *q)
{
    int64_t padded = ((q->oh - 1) * q->sh + (q->kh - 1) * q->dh + 1) * with_border(q) * q->c;
    int64_t padded_dy = (q->oh + 2 * border_y(q)) * (q->ow + 2 * border_x(q)) * q->o;
    int64_t panel = q->oh * q->ow * WIDE;
    int64_t n = larger(larger(padded, padded_dy), panel);
    if (q->engine == GA_OPENBLAS)
        n = larger(n, patch_rows(q) * patch_columns(q));
    return (n + WIDE) * (int64_t)sizeof(real);
}

/* ---- packed weights ---- */

static int64_t forward_count(const convolution *q) { return q->groups * panels(outputs(q)) * q->kh * q->kw * inputs(q) * WIDE; }
static int64_t backward_count(const convolution *q) { return q->groups * panels(inputs(q)) * q->kh * q->kw * outputs(q) * WIDE; }

int64_t convolution_packed_count(const convolution *q)
{
    return q->engine == GA_OPENBLAS || depthwise(q) ? 0 : forward_count(q) + backward_count(q);
}

void convolution_pack(const convolution *q, const real *w, real *to)
{
    int64_t in = inputs(q), out = outputs(q), taps = q->kh * q->kw;
    for (int64_t g = 0; g < q->groups; g++)      /* [group][panel of outputs][ky, kx, c][WIDE] */
        for (int64_t p = 0; p < panels(out); p++)
            for (int64_t k = 0; k < taps * in; k++, to += WIDE)
                for (int64_t j = 0; j < WIDE; j++)
                    to[j] = p * WIDE + j < out ? w[k * q->o + g * out + p * WIDE + j] : 0;
    for (int64_t g = 0; g < q->groups; g++)      /* [group][panel of inputs][ky, kx from the last to the first, o][WIDE] */
        for (int64_t p = 0; p < panels(in); p++)
            for (int64_t t = taps - 1; t >= 0; t--)
                for (int64_t o = 0; o < out; o++, to += WIDE)
                    for (int64_t j = 0; j < WIDE; j++)
                        to[j] = p * WIDE + j < in ? w[(t * in + p * WIDE + j) * q->o + g * out + o] : 0;
}

/* ---- work on one sample, or on some rows of it ---- */

typedef struct {
    const convolution *q;
    const ga_node *node;
    const real *x, *w, *bias;
    real *y;
    int adds, parts;                             /* parts: tasks a sample */
    int64_t samples;
} job;

/* Rows y0..y1 and columns x0..x1 of an image, zeros where it ends. */
static void copy_padded(const real *image, int64_t h, int64_t w, int64_t c, int64_t y0, int64_t y1, int64_t x0, int64_t x1, real *to)
{
    int64_t first = larger(x0, 0), last = smaller(x1, w);
    for (int64_t y = y0; y < y1; y++, to += (x1 - x0) * c) {
        if (y < 0 || y >= h || first >= last) {
            memset(to, 0, (size_t)((x1 - x0) * c) * sizeof(real));
            continue;
        }
        memset(to, 0, (size_t)((first - x0) * c) * sizeof(real));
        memcpy(to + (first - x0) * c, image + (y * w + first) * c, (size_t)((last - first) * c) * sizeof(real));
        memset(to + (last - x0) * c, 0, (size_t)((x1 - last) * c) * sizeof(real));
    }
}

static void depthwise_forward(const convolution *q, const real *x, const real *w, const real *bias, real *y, int adds, int64_t y0, int64_t y1)
{
    int64_t c = q->c;
    for (int64_t oy = y0; oy < y1; oy++)
        for (int64_t ox = 0; ox < q->ow; ox++) {
            real *to = y + (oy * q->ow + ox) * c;
            for (int64_t i = 0; i < c && !adds; i++)
                to[i] = bias ? bias[i] : 0;
            for (int64_t ky = 0; ky < q->kh; ky++) {
                int64_t iy = oy * q->sh + ky * q->dh - q->ph;
                for (int64_t kx = 0; kx < q->kw && iy >= 0 && iy < q->h; kx++) {
                    int64_t ix = ox * q->sw + kx * q->dw - q->pw;
                    if (ix < 0 || ix >= q->w)
                        continue;
                    const real *from = x + (iy * q->w + ix) * c, *tap = w + (ky * q->kw + kx) * c;
                    for (int64_t i = 0; i < c; i++)
                        to[i] = multiply_add(from[i], tap[i], to[i]);
                }
            }
        }
}

static void forward_task(void *context, int index, int worker)
{
    const job *j = context;
    const convolution *q = j->q;
    int64_t s = index / j->parts, part = index % j->parts, y0 = q->oh * part / j->parts, y1 = q->oh * (part + 1) / j->parts;
    const real *x = j->x + s * q->h * q->w * q->c;
    real *y = j->y + s * q->oh * q->ow * q->o;
    if (y0 == y1)
        return;
    if (depthwise(q)) {
        depthwise_forward(q, x, j->w, j->bias, y, j->adds, y0, y1);
        return;
    }
    int64_t in = inputs(q), out = outputs(q), width = q->w, first = y0 * q->sh - q->ph, rows = (y1 - 1 - y0) * q->sh + (q->kh - 1) * q->dh + 1;
    const real *image = x + first * q->w * q->c;
    if (q->ph || q->pw || first + rows > q->h || with_border(q) > q->w) {    /* else the image is read where it is */
        real *padded = thread_work(j->node, worker);
        width = with_border(q);
        copy_padded(x, q->h, q->w, q->c, first, first + rows, -q->pw, width - q->pw, padded);
        image = padded;
    }
    /* runs of kw * c numbers, or of c where the taps are not next to each other */
    int together = q->dw == 1 && q->groups == 1;
    walk w = {.count = together ? q->kh : q->kw, .a_jump = together ? q->dh * width * q->c : q->dw * q->c,
              .b_jump = (together ? q->kw : 1) * in * WIDE, .k = (together ? q->kw : 1) * in, .a_row = q->sw * q->c, .a_column = 1, .b_row = WIDE};
    const real *panel = j->w;
    for (int64_t g = 0; g < q->groups; g++)
        for (int64_t p = 0; p < panels(out); p++, panel += q->kh * q->kw * in * WIDE)
            for (int64_t oy = y0; oy < y1; oy++) {
                int64_t o = g * out + p * WIDE, columns = smaller(WIDE, out - p * WIDE);
                const real *a = image + (oy - y0) * q->sh * width * q->c + g * in, *bias = j->bias ? j->bias + o : NULL;
                real *to = y + oy * q->ow * q->o + o;
                start from = j->adds ? FROM_C : bias ? FROM_BIAS : FROM_ZERO;
                if (together)
                    tile_rows(&w, q->ow, columns, a, panel, from, bias, to, q->o);
                for (int64_t ky = 0; ky < q->kh && !together; ky++)
                    tile_rows(&w, q->ow, columns, a + ky * q->dh * width * q->c, panel + ky * q->kw * in * WIDE, ky ? FROM_C : from, bias, to, q->o);
            }
}

static void depthwise_input_gradient(const convolution *q, const real *dy, const real *w, const real *bias, real *dx, int adds, int64_t y0,
                                     int64_t y1)
{
    int64_t c = q->c;
    for (int64_t iy = y0; iy < y1; iy++)
        for (int64_t ix = 0; ix < q->w; ix++) {
            real *to = dx + (iy * q->w + ix) * c;
            for (int64_t i = 0; i < c && !adds; i++)
                to[i] = bias ? bias[i] : 0;
            for (int64_t ky = q->kh - 1; ky >= 0; ky--)
                for (int64_t kx = q->kw - 1; kx >= 0; kx--) {
                    int64_t ty = iy + q->ph - ky * q->dh, tx = ix + q->pw - kx * q->dw;
                    if (ty < 0 || tx < 0 || ty % q->sh || tx % q->sw || ty / q->sh >= q->oh || tx / q->sw >= q->ow)
                        continue;
                    const real *from = dy + (ty / q->sh * q->ow + tx / q->sw) * c, *tap = w + (ky * q->kw + kx) * c;
                    for (int64_t i = 0; i < c; i++)
                        to[i] = multiply_add(from[i], tap[i], to[i]);
                }
        }
}

/* Pixel ix of dx gets dy[(iy + ph - ky dh) / sh][(ix + pw - kx dw) / sw] w[ky][kx] from each tap for which both divide. Pixels of
 * equal phase, ix = r, r + sw, ..., have the same taps and read dy at neighbouring pixels. */
static void input_gradient_task(void *context, int index, int worker)
{
    const job *j = context;
    const convolution *q = j->q;
    int64_t s = index / j->parts, part = index % j->parts, y0 = q->h * part / j->parts, y1 = q->h * (part + 1) / j->parts;
    const real *dy = j->x + s * q->oh * q->ow * q->o;
    real *dx = j->y + s * q->h * q->w * q->c, *padded = thread_work(j->node, worker);
    if (y0 == y1)
        return;
    if (depthwise(q)) {
        depthwise_input_gradient(q, dy, j->w, j->bias, dx, j->adds, y0, y1);
        return;
    }
    int64_t in = inputs(q), out = outputs(q), bx = border_x(q), width = q->ow + 2 * bx;
    /* rows of dy that these rows of dx can meet */
    int64_t top = ceiling(y0 + q->ph - (q->kh - 1) * q->dh, q->sh), bottom = (y1 - 1 + q->ph) / q->sh + 1;
    top = larger(top, -border_y(q));
    bottom = smaller(bottom, q->oh + border_y(q));
    copy_padded(dy, q->oh, q->ow, q->o, top, bottom, -bx, q->ow + bx, padded);
    int together = q->sh == 1 && q->sw == 1 && q->dw == 1 && q->groups == 1;
    const real *panel = j->w;
    for (int64_t g = 0; g < q->groups; g++)
        for (int64_t p = 0; p < panels(in); p++, panel += q->kh * q->kw * out * WIDE)
            for (int64_t iy = y0; iy < y1; iy++)
                for (int64_t r = 0; r < smaller(q->sw, q->w); r++) {
                    int64_t c = g * in + p * WIDE, columns = smaller(WIDE, in - p * WIDE), m = (q->w - r + q->sw - 1) / q->sw;
                    const real *bias = j->bias ? j->bias + c : NULL;
                    real *to = dx + (iy * q->w + r) * q->c + c;
                    start from = j->adds ? FROM_C : bias ? FROM_BIAS : FROM_ZERO;
                    walk w = {.count = together ? q->kw : 1, .a_jump = q->o, .b_jump = out * WIDE, .k = out, .a_row = q->o, .a_column = 1,
                              .b_row = WIDE};
                    int any = 0;
                    for (int64_t ky = q->kh - 1; ky >= 0; ky--) {
                        int64_t ty = iy + q->ph - ky * q->dh;
                        if (ty % q->sh || ty / q->sh < top || ty / q->sh >= bottom || ty < top * q->sh)
                            continue;
                        const real *row = padded + (ty / q->sh - top) * width * q->o + g * out;
                        for (int64_t kx = q->kw - 1; kx >= 0; kx -= w.count) {
                            int64_t tx = r + q->pw - kx * q->dw;
                            if (tx % q->sw)
                                continue;
                            int64_t ox = tx >= 0 ? tx / q->sw : -(-tx / q->sw);
                            /* pixels whose tap lies outside even of the border are outside of dy: they get nothing */
                            int64_t skip = larger(0, -bx - ox), n = smaller(m, q->ow + bx - ox) - skip;
                            if (n > 0 && !any && (skip || n < m)) {
                                tile_rows(&(walk){.count = 0}, m, columns, row, panel, from, bias, to, q->sw * q->c);
                                any = 1;
                            }
                            if (n <= 0)
                                continue;
                            tile_rows(&w, n, columns, row + (ox + skip + bx) * q->o,
                                      panel + ((q->kh - 1 - ky) * q->kw + q->kw - 1 - kx) * out * WIDE, any ? FROM_C : from, bias,
                                      to + skip * q->sw * q->c, q->sw * q->c);
                            any = 1;
                        }
                    }
                    if (!any)                    /* no tap reaches this row: only the start */
                        tile_rows(&(walk){.count = 0}, m, columns, padded, panel, from, bias, to, q->sw * q->c);
                }
}

/* ---- OpenBLAS: a matrix of patches per sample and group ---- */

static void patches(const convolution *q, const real *x, int64_t g, real *to)
{
    int64_t in = inputs(q);
    for (int64_t oy = 0; oy < q->oh; oy++)
        for (int64_t ox = 0; ox < q->ow; ox++)
            for (int64_t ky = 0; ky < q->kh; ky++)
                for (int64_t kx = 0; kx < q->kw; kx++, to += in) {
                    int64_t iy = oy * q->sh + ky * q->dh - q->ph, ix = ox * q->sw + kx * q->dw - q->pw;
                    if (iy < 0 || iy >= q->h || ix < 0 || ix >= q->w)
                        memset(to, 0, (size_t)in * sizeof(real));
                    else
                        memcpy(to, x + (iy * q->w + ix) * q->c + g * in, (size_t)in * sizeof(real));
                }
}

static void blas_forward(const job *j)
{
    const convolution *q = j->q;
    real *matrix_of_patches = thread_work(j->node, 0);
    int64_t out = outputs(q), k = patch_columns(q), m = patch_rows(q);
    for (int64_t s = 0; s < j->samples; s++)
        for (int64_t g = 0; g < q->groups; g++) {
            patches(q, j->x + s * q->h * q->w * q->c, g, matrix_of_patches);
            matmul(GA_OPENBLAS, 1, m, out, k, (matrix){matrix_of_patches, k, 1}, (matrix){j->w + g * out, q->o, 1}, j->y + s * m * q->o + g * out,
                   q->o, j->adds ? FROM_C : j->bias ? FROM_BIAS : FROM_ZERO, j->bias ? j->bias + g * out : NULL);
        }
}

static void blas_input_gradient(const job *j)
{
    const convolution *q = j->q;
    real *grads = thread_work(j->node, 0);
    int64_t in = inputs(q), out = outputs(q), k = patch_columns(q), m = patch_rows(q);
    for (int64_t s = 0; s < j->samples; s++) {
        real *dx = j->y + s * q->h * q->w * q->c;
        for (int64_t i = 0; i < q->h * q->w * q->c && !j->adds; i++)
            dx[i] = j->bias ? j->bias[i % q->c] : 0;
        for (int64_t g = 0; g < q->groups; g++) {
            matmul(GA_OPENBLAS, 1, m, k, out, (matrix){j->x + s * m * q->o + g * out, q->o, 1}, (matrix){j->w + g * out, 1, q->o}, grads, k,
                   FROM_ZERO, NULL);
            const real *from = grads;
            for (int64_t oy = 0; oy < q->oh; oy++)
                for (int64_t ox = 0; ox < q->ow; ox++)
                    for (int64_t ky = 0; ky < q->kh; ky++)
                        for (int64_t kx = 0; kx < q->kw; kx++, from += in) {
                            int64_t iy = oy * q->sh + ky * q->dh - q->ph, ix = ox * q->sw + kx * q->dw - q->pw;
                            for (int64_t i = 0; i < in && iy >= 0 && iy < q->h && ix >= 0 && ix < q->w; i++)
                                dx[(iy * q->w + ix) * q->c + g * in + i] += from[i];
                        }
        }
    }
}

static void blas_weight_gradient(const convolution *q, const ga_node *node, int64_t samples, const real *x, const real *dy, real *dw)
{
    real *matrix_of_patches = thread_work(node, 0);
    int64_t out = outputs(q), k = patch_columns(q), m = patch_rows(q);
    for (int64_t s = 0; s < samples; s++)
        for (int64_t g = 0; g < q->groups; g++) {
            patches(q, x + s * q->h * q->w * q->c, g, matrix_of_patches);
            matmul(GA_OPENBLAS, 1, k, out, m, (matrix){matrix_of_patches, 1, k}, (matrix){dy + s * m * q->o + g * out, q->o, 1}, dw + g * out, q->o,
                   FROM_C, NULL);
        }
}

/* ---- the three passes ---- */

static int parts_of(const ga_pass *pass, int64_t rows)
{
    return pass->samples >= pass->threads ? 1 : (int)smaller(pass->threads, rows);
}

static int threads_for(const convolution *q, const ga_pass *pass)
{
    double products = (double)pass->samples * (double)(patch_rows(q) * patch_columns(q)) * (double)q->o;
    return products > 2e6 ? pass->threads : 1;   /* below, a second thread costs more */
}

void convolution_forward(const convolution *q, const ga_node *node, const ga_pass *pass, const real *x, const real *w, const real *bias,
                         real *y, int adds)
{
    job j = {q, node, x, node->packed ? node->packed : w, bias, y, adds, parts_of(pass, q->oh), pass->samples};
    if (q->engine == GA_OPENBLAS)
        blas_forward(&j);
    else
        ga_parallel(threads_for(q, pass), (int)pass->samples * j.parts, forward_task, &j);
}

void convolution_input_gradient(const convolution *q, const ga_node *node, const ga_pass *pass, const real *dy, const real *w,
                                const real *bias, real *dx, int adds)
{
    job j = {q, node, dy, node->packed ? (const real *)node->packed + forward_count(q) : w, bias, dx, adds, parts_of(pass, q->h), pass->samples};
    if (q->engine == GA_OPENBLAS)
        blas_input_gradient(&j);
    else
        ga_parallel(threads_for(q, pass), (int)pass->samples * j.parts, input_gradient_task, &j);
}

typedef struct {
    const convolution *q;
    const ga_node *node;
    const real *x, *dy;
    real *dw;
    int64_t samples;
    int tasks;
} weight_job;

/* Outputs ox (of `n`) for which tap offset `t` stays inside the image: first..last. */
static void inside(int64_t offset, int64_t step, int64_t n, int64_t size, int64_t *first, int64_t *last)
{
    *first = larger(0, ceiling(-offset, step));
    *last = smaller(n, ceiling(size - offset, step));
}

static void depthwise_weight_gradient(const convolution *q, int64_t ky, int64_t kx, const real *x, const real *dy, real *dw)
{
    int64_t y0, y1, x0, x1;
    inside(ky * q->dh - q->ph, q->sh, q->oh, q->h, &y0, &y1);
    inside(kx * q->dw - q->pw, q->sw, q->ow, q->w, &x0, &x1);
    for (int64_t oy = y0; oy < y1; oy++)
        for (int64_t ox = x0; ox < x1; ox++) {
            const real *from = x + ((oy * q->sh + ky * q->dh - q->ph) * q->w + ox * q->sw + kx * q->dw - q->pw) * q->c;
            const real *d = dy + (oy * q->ow + ox) * q->c;
            for (int64_t i = 0; i < q->c; i++)
                dw[i] = multiply_add(from[i], d[i], dw[i]);
        }
}

/* dw[ky][kx][c][o] += sum over samples, oy, ox of x[...][c] dy[oy][ox][o]: a product whose sum runs over pixels. Tasks divide the
 * rows (tap, c); each goes through the samples in order. */
static void weight_task(void *context, int index, int worker)
{
    const weight_job *j = context;
    const convolution *q = j->q;
    int64_t in = inputs(q), out = outputs(q), rows = q->kh * q->kw * in, r0 = rows * index / j->tasks, r1 = rows * (index + 1) / j->tasks;
    real *panel = thread_work(j->node, worker);
    for (int64_t s = 0; s < j->samples; s++) {
        const real *x = j->x + s * q->h * q->w * q->c, *dy = j->dy + s * q->oh * q->ow * q->o;
        if (depthwise(q)) {
            for (int64_t tap = r0; tap < r1; tap++)
                depthwise_weight_gradient(q, tap / q->kw, tap % q->kw, x, dy, j->dw + tap * q->c);
            continue;
        }
        for (int64_t g = 0; g < q->groups; g++)
            for (int64_t p = 0; p < panels(out); p++) {
                int64_t o = g * out + p * WIDE, columns = smaller(WIDE, out - p * WIDE), b_row = q->o;
                const real *b = dy + o;
                if (columns < tile_width(columns)) { /* a tile reads that many numbers a pixel */
                    for (int64_t i = 0; i < q->oh * q->ow; i++)
                        for (int64_t k = 0; k < WIDE; k++)
                            panel[i * WIDE + k] = k < columns ? b[i * q->o + k] : 0;
                    b = panel;
                    b_row = WIDE;
                }
                for (int64_t r = r0; r < r1;) {
                    int64_t tap = r / in, c = r % in, m = smaller(in - c, r1 - r), ky = tap / q->kw, kx = tap % q->kw, y0, y1, x0, x1;
                    inside(ky * q->dh - q->ph, q->sh, q->oh, q->h, &y0, &y1);
                    inside(kx * q->dw - q->pw, q->sw, q->ow, q->w, &x0, &x1);
                    if (y0 < y1 && x0 < x1) {
                        walk w = {.count = y1 - y0, .a_jump = q->sh * q->w * q->c, .b_jump = q->ow * b_row, .k = x1 - x0, .a_row = 1,
                                  .a_column = q->sw * q->c, .b_row = b_row};
                        const real *a = x + ((y0 * q->sh + ky * q->dh - q->ph) * q->w + x0 * q->sw + kx * q->dw - q->pw) * q->c + g * in + c;
                        tile_rows(&w, m, columns, a, b + (y0 * q->ow + x0) * b_row, FROM_C, NULL, j->dw + r * q->o + o, q->o);
                    }
                    r += m;
                }
            }
    }
}

void convolution_weight_gradient(const convolution *q, const ga_node *node, const ga_pass *pass, const real *x, const real *dy, real *dw)
{
    weight_job j = {q, node, x, dy, dw, pass->samples, (int)smaller(pass->threads, q->kh * q->kw * inputs(q))};
    if (q->engine == GA_OPENBLAS)
        blas_weight_gradient(q, node, pass->samples, x, dy, dw);
    else
        ga_parallel(threads_for(q, pass), j.tasks, weight_task, &j);
}
