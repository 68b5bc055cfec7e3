/* upsample, zero_pad2d, cat.
 *
 *   upsample nearest   y[oy][ox] = x[oy H / OH][ox W / OW]
 *   upsample bilinear  y = weighted mean of the four pixels around the source position, which is oy (H - 1) / (OH - 1) with align_corners,
 *                      else max(0, (oy + 1/2) H / OH - 1/2)      (as torch.nn.Upsample with scale factors or sizes)
 *   zero_pad2d         zeros around the image (negative: cut off)
 *   cat                inputs one after the other along the channels (features) */
#include "../layer.h"

typedef struct { const ga_node *node; int backward; } job;

static ga_status run(const ga_node *node, const ga_pass *pass, void (*sample)(void *, int, int), int backward)
{
    job j = {node, backward};
    if (!backward || input_grad(node, 0))
        ga_parallel(pass->samples * ga_elements(&node->shape) > CHUNK ? pass->threads : 1, (int)pass->samples, sample, &j);
    return GA_OK;
}

/* ---- upsample ---- */

enum { OUT_H, OUT_W, BILINEAR, ALIGN_CORNERS };
static const ga_option_default upsample_options[] = {
    {"output_h", REQUIRED}, {"output_w", REQUIRED}, {"bilinear", 0}, {"align_corners", 0}, {NULL, 0},
};

static ga_status upsample_plan(ga_node *node)
{
    ga_status status = needs_image(node);
    if (!status && (node->option[OUT_H] < 1 || node->option[OUT_W] < 1))
        status = ga_fail(GA_EVALUE, "%s (upsample): size (%g, %g), expected at least 1", node->name, node->option[OUT_H], node->option[OUT_W]);
    if (!status)
        node->shape = (ga_shape){.rank = 3, .dim = {node->in[0].dim[0], (int64_t)node->option[OUT_H], (int64_t)node->option[OUT_W]}};
    return status;
}

/* The two source pixels of output i along an axis, and the weight of the second. */
static void source(const ga_node *node, int64_t i, int64_t from, int64_t to, int64_t *a, int64_t *b, double *second)
{
    double at;
    if (!node->option[BILINEAR]) {
        *a = *b = i * from / to;
        *second = 0;
        return;
    }
    if (node->option[ALIGN_CORNERS])
        at = to > 1 ? (double)i * (double)(from - 1) / (double)(to - 1) : 0;
    else {
        at = ((double)i + 0.5) * (double)from / (double)to - 0.5;
        at = at < 0 ? 0 : at;
    }
    *a = (int64_t)at < from - 1 ? (int64_t)at : from - 1;
    *b = *a + 1 < from ? *a + 1 : *a;
    *second = at - (double)*a;
}

static void upsample_sample(void *context, int s, int worker)
{
    const job *j = context;
    const ga_node *node = j->node;
    int64_t c = node->shape.dim[0], oh = node->shape.dim[1], ow = node->shape.dim[2], h = node->in[0].dim[1], w = node->in[0].dim[2];
    const real *x = input(node, 0) ? input(node, 0) + s * c * h * w : NULL;
    real *dx = j->backward ? input_grad(node, 0) + s * c * h * w : NULL;
    (void)worker;
    if (dx && !node->dx_adds[0])
        memset(dx, 0, (size_t)(c * h * w) * sizeof(real));
    for (int64_t oy = 0; oy < oh; oy++)
        for (int64_t ox = 0; ox < ow; ox++) {
            int64_t y0, y1, x0, x1, at = (s * oh * ow + oy * ow + ox) * c;
            double fy, fx;
            source(node, oy, h, oh, &y0, &y1, &fy);
            source(node, ox, w, ow, &x0, &x1, &fx);
            const real w00 = (real)((1 - fy) * (1 - fx)), w01 = (real)((1 - fy) * fx), w10 = (real)(fy * (1 - fx)), w11 = (real)(fy * fx);
            int64_t p00 = (y0 * w + x0) * c, p01 = (y0 * w + x1) * c, p10 = (y1 * w + x0) * c, p11 = (y1 * w + x1) * c;
            for (int64_t i = 0; i < c && !j->backward; i++)
                output(node)[at + i] = node->option[BILINEAR] ? x[p00 + i] * w00 + x[p01 + i] * w01 + x[p10 + i] * w10 + x[p11 + i] * w11 : x[p00 + i];
            for (int64_t i = 0; i < c && j->backward; i++) {
                real d = output_grad(node)[at + i];
                dx[p00 + i] += d * w00;
                if (node->option[BILINEAR]) {
                    dx[p01 + i] += d * w01;
                    dx[p10 + i] += d * w10;
                    dx[p11 + i] += d * w11;
                }
            }
        }
}

static ga_status upsample_forward(const ga_node *node, const ga_pass *pass) { return run(node, pass, upsample_sample, 0); }
static ga_status upsample_backward(const ga_node *node, const ga_pass *pass) { return run(node, pass, upsample_sample, 1); }

const ga_layer LAYER(upsample) = {
    .kind = "upsample", .min_inputs = 1, .max_inputs = 1, .options = upsample_options,
    .plan = upsample_plan, .forward = upsample_forward, .backward = upsample_backward,
};

/* ---- zero_pad2d ---- */

enum { LEFT, RIGHT, TOP, BOTTOM };
static const ga_option_default pad_options[] = {{"left", 0}, {"right", 0}, {"top", 0}, {"bottom", 0}, {NULL, 0}};

static ga_status zero_pad2d_plan(ga_node *node)
{
    ga_status status = needs_image(node);
    if (status)
        return status;
    int64_t h = node->in[0].dim[1] + (int64_t)(node->option[TOP] + node->option[BOTTOM]);
    int64_t w = node->in[0].dim[2] + (int64_t)(node->option[LEFT] + node->option[RIGHT]);
    if (h < 1 || w < 1)
        return ga_fail(GA_EVALUE, "%s (zero_pad2d): nothing of the image is left: %lld x %lld", node->name, (long long)h, (long long)w);
    node->shape = (ga_shape){.rank = 3, .dim = {node->in[0].dim[0], h, w}};
    return GA_OK;
}

static void pad_sample(void *context, int s, int worker)
{
    const job *j = context;
    const ga_node *node = j->node;
    int64_t c = node->shape.dim[0], oh = node->shape.dim[1], ow = node->shape.dim[2], h = node->in[0].dim[1], w = node->in[0].dim[2];
    int64_t top = (int64_t)node->option[TOP], left = (int64_t)node->option[LEFT];
    (void)worker;
    for (int64_t y = 0; y < (j->backward ? h : oh); y++)
        for (int64_t x = 0; x < (j->backward ? w : ow); x++) {
            int64_t iy = j->backward ? y : y - top, ix = j->backward ? x : x - left, oy = j->backward ? y + top : y, ox = j->backward ? x + left : x;
            int inside = iy >= 0 && iy < h && ix >= 0 && ix < w && oy >= 0 && oy < oh && ox >= 0 && ox < ow;
            int64_t in = ((s * h + iy) * w + ix) * c, out = ((s * oh + oy) * ow + ox) * c;
            for (int64_t i = 0; i < c && !j->backward; i++)
                output(node)[out + i] = inside ? input(node, 0)[in + i] : 0;
            for (int64_t i = 0; i < c && j->backward; i++)
                input_grad(node, 0)[in + i] = (node->dx_adds[0] ? input_grad(node, 0)[in + i] : 0) + (inside ? output_grad(node)[out + i] : 0);
        }
}

static ga_status zero_pad2d_forward(const ga_node *node, const ga_pass *pass) { return run(node, pass, pad_sample, 0); }
static ga_status zero_pad2d_backward(const ga_node *node, const ga_pass *pass) { return run(node, pass, pad_sample, 1); }

const ga_layer LAYER(zero_pad2d) = {
    .kind = "zero_pad2d", .min_inputs = 1, .max_inputs = 1, .options = pad_options,
    .plan = zero_pad2d_plan, .forward = zero_pad2d_forward, .backward = zero_pad2d_backward,
};

/* ---- cat ---- */

static ga_status cat_plan(ga_node *node)
{
    char a[64], b[64];
    same_shape(node);
    int axis = node->in[0].rank == 3 ? 0 : node->in[0].rank - 1;
    for (int k = 1; k < node->n_inputs; k++) {
        ga_shape other = node->in[k];
        int64_t more = axis < 0 || other.rank != node->shape.rank ? 0 : other.dim[axis];
        if (more)
            other.dim[axis] = node->in[0].dim[axis];
        if (!more || memcmp(&other, &node->in[0], sizeof other) || node->in_sequence[k] != node->sequence)
            return ga_fail(GA_EVALUE, "%s (cat): shapes %s and %s differ beside the channels (features)", node->name,
                           ga_shape_text(&node->in[0], a), ga_shape_text(&node->in[k], b));
        node->shape.dim[axis] += more;
    }
    return GA_OK;
}

static void cat_run(const ga_node *node, const ga_pass *pass, int backward)
{
    int64_t all = features(&node->shape), rows = pass->samples * output_elements(node, pass) / all, at = 0;
    for (int k = 0; k < node->n_inputs; at += features(&node->in[k]), k++) {
        int64_t n = features(&node->in[k]);
        real *dx = input_grad(node, k);
        for (int64_t r = 0; r < rows && !backward; r++)
            memcpy(output(node) + r * all + at, input(node, k) + r * n, (size_t)n * sizeof(real));
        for (int64_t r = 0; r < rows && backward && dx; r++)
            for (int64_t i = 0; i < n; i++)
                dx[r * n + i] = (node->dx_adds[k] ? dx[r * n + i] : 0) + output_grad(node)[r * all + at + i];
    }
}

static ga_status cat_forward(const ga_node *node, const ga_pass *pass)
{
    cat_run(node, pass, 0);
    return GA_OK;
}

static ga_status cat_backward(const ga_node *node, const ga_pass *pass)
{
    cat_run(node, pass, 1);
    return GA_OK;
}

const ga_layer LAYER(cat) = {
    .kind = "cat", .min_inputs = 1, .max_inputs = GA_MAX_INPUTS,
    .plan = cat_plan, .forward = cat_forward, .backward = cat_backward,
};
