/* max_pool2d, avg_pool2d, adaptive_avg_pool2d: each channel on its own, over windows of pixels.
 *
 *   max  y = the largest of the window; its gradient goes to the first largest pixel, which is found again in backward
 *   avg  y = sum / n, n = kh kw with padding counted (count_include_pad), else the pixels inside the image; dx += dy / n
 *   adaptive  windows floor(i H / oh) .. ceil((i + 1) H / oh) */
#include "../kernels/exp.h"
#include "../kernels/rows.h"

enum { KH, KW, SH, SW, PH, PW, DH, DW, COUNT_PAD };
static const ga_option_default options[] = {
    {"kernel_h", REQUIRED}, {"kernel_w", REQUIRED}, {"stride_h", REQUIRED}, {"stride_w", REQUIRED}, {"padding_h", 0}, {"padding_w", 0},
    {"dilation_h", 1}, {"dilation_w", 1}, {"count_include_pad", 1}, {NULL, 0},
};
static const ga_option_default adaptive_options[] = {{"output_h", REQUIRED}, {"output_w", REQUIRED}, {NULL, 0}};

static int64_t option(const ga_node *node, int i) { return (int64_t)node->option[i]; }

static ga_status pool_plan(ga_node *node)
{
    ga_status status = needs_image(node);
    int64_t size[2];
    for (int i = 0; i < 2 && !status; i++) {
        int64_t k = option(node, KH + i), s = option(node, SH + i), p = option(node, PH + i), d = option(node, DH + i);
        int64_t padded = node->in[0].dim[1 + i] + 2 * p, reach = (k - 1) * d + 1;
        if (k < 1 || s < 1 || p < 0 || d < 1 || p > k / 2)
            status = ga_fail(GA_EVALUE, "%s (%s): kernel %lld, stride %lld, padding %lld, dilation %lld: kernel, stride and dilation are at least 1, "
                             "padding is 0 to half the kernel", node->name, node->layer->kind, (long long)k, (long long)s, (long long)p, (long long)d);
        else if (padded < reach)
            status = ga_fail(GA_EVALUE, "%s (%s): the image is smaller than the kernel: %s %lld with padding, kernel %lld", node->name,
                             node->layer->kind, i ? "width" : "height", (long long)padded, (long long)reach);
        else
            size[i] = (padded - reach) / s + 1;
    }
    if (!status)
        node->shape = (ga_shape){.rank = 3, .dim = {node->in[0].dim[0], size[0], size[1]}};
    return status;
}

static ga_status adaptive_plan(ga_node *node)
{
    ga_status status = needs_image(node);
    int64_t oh = option(node, 0), ow = option(node, 1);
    if (!status && (oh < 1 || ow < 1))
        status = ga_fail(GA_EVALUE, "%s (adaptive_avg_pool2d): output_size (%lld, %lld), expected at least 1", node->name, (long long)oh, (long long)ow);
    if (!status)
        node->shape = (ga_shape){.rank = 3, .dim = {node->in[0].dim[0], oh, ow}};
    return status;
}

typedef struct { int64_t y0, y1, ys, x0, x1, xs; double n; } window;     /* pixels y0, y0 + ys, ... < y1, and what the sum is divided by */

static window pool_window(const ga_node *node, int64_t oy, int64_t ox)
{
    int64_t h = node->in[0].dim[1], w = node->in[0].dim[2], dh = option(node, DH), dw = option(node, DW);
    int64_t y = oy * option(node, SH) - option(node, PH), x = ox * option(node, SW) - option(node, PW);
    window r = {y, y + (option(node, KH) - 1) * dh + 1, dh, x, x + (option(node, KW) - 1) * dw + 1, dw, (double)(option(node, KH) * option(node, KW))};
    while (r.y0 < 0)
        r.y0 += dh;
    while (r.x0 < 0)
        r.x0 += dw;
    r.y1 = r.y1 < h ? r.y1 : h;
    r.x1 = r.x1 < w ? r.x1 : w;
    if (!node->option[COUNT_PAD])
        r.n = (double)((r.y1 - r.y0) * (r.x1 - r.x0));
    return r;
}

static window adaptive_window(const ga_node *node, int64_t oy, int64_t ox)
{
    int64_t h = node->in[0].dim[1], w = node->in[0].dim[2], oh = node->shape.dim[1], ow = node->shape.dim[2];
    window r = {oy * h / oh, ((oy + 1) * h + oh - 1) / oh, 1, ox * w / ow, ((ox + 1) * w + ow - 1) / ow, 1, 0};
    r.n = (double)((r.y1 - r.y0) * (r.x1 - r.x0));
    return r;
}

typedef struct { const ga_node *node; window (*at)(const ga_node *, int64_t, int64_t); } job;

static void max_sample(void *context, int s, int worker)
{
    const job *j = context;
    int64_t c = j->node->shape.dim[0], oh = j->node->shape.dim[1], ow = j->node->shape.dim[2], w = j->node->in[0].dim[2];
    const real *x = input(j->node, 0) + s * ga_elements(&j->node->in[0]);
    real *y = output(j->node) + s * c * oh * ow;
    (void)worker;
    for (int64_t oy = 0; oy < oh; oy++)
        for (int64_t ox = 0; ox < ow; ox++, y += c) {
            window r = pool_window(j->node, oy, ox);
            for (int64_t i = 0; i < c; i++)
                y[i] = -INFINITY;
            for (int64_t iy = r.y0; iy < r.y1; iy += r.ys)
                for (int64_t ix = r.x0; ix < r.x1; ix += r.xs) {
                    const real *p = x + (iy * w + ix) * c;
                    for (int64_t i = 0; i < c; i++)
                        y[i] = p[i] > y[i] || p[i] != p[i] ? p[i] : y[i];
                }
        }
}

static void max_gradient_sample(void *context, int s, int worker)
{
    const job *j = context;
    int64_t c = j->node->shape.dim[0], oh = j->node->shape.dim[1], ow = j->node->shape.dim[2], w = j->node->in[0].dim[2], n = ga_elements(&j->node->in[0]);
    const real *x = input(j->node, 0) + s * n, *y = output(j->node) + s * c * oh * ow, *dy = output_grad(j->node) + s * c * oh * ow;
    real *dx = input_grad(j->node, 0) + s * n;
    (void)worker;
    if (!j->node->dx_adds[0])
        memset(dx, 0, (size_t)n * sizeof(real));
    for (int64_t oy = 0; oy < oh; oy++)
        for (int64_t ox = 0; ox < ow; ox++, y += c, dy += c) {
            window r = pool_window(j->node, oy, ox);
            for (int64_t i = 0; i < c; i += LANES) {
                const vec top = load_first(y + i, c - i, 0), d = load_first(dy + i, c - i, 0);
                vec_int open = ~(vec_int){0};    /* lanes whose largest pixel was not met yet */
                for (int64_t iy = r.y0; iy < r.y1; iy += r.ys)
                    for (int64_t ix = r.x0; ix < r.x1; ix += r.xs) {
                        const int64_t at = (iy * w + ix) * c + i;
                        const vec before = load_first(dx + at, c - i, 0);
                        const vec_int hit = (load_first(x + at, c - i, 0) == top) & open;
                        store_first(dx + at, c - i, choose(hit, before + d, before));
                        open &= ~hit;
                    }
            }
        }
}

static void average_sample(void *context, int s, int worker)
{
    const job *j = context;
    int64_t c = j->node->shape.dim[0], oh = j->node->shape.dim[1], ow = j->node->shape.dim[2], w = j->node->in[0].dim[2];
    const real *x = input(j->node, 0) + s * ga_elements(&j->node->in[0]);
    real *y = output(j->node) + s * c * oh * ow;
    (void)worker;
    for (int64_t oy = 0; oy < oh; oy++)
        for (int64_t ox = 0; ox < ow; ox++, y += c) {
            window r = j->at(j->node, oy, ox);
            memset(y, 0, (size_t)c * sizeof(real));
            for (int64_t iy = r.y0; iy < r.y1; iy += r.ys)
                for (int64_t ix = r.x0; ix < r.x1; ix += r.xs)
                    for (int64_t i = 0; i < c; i++)
                        y[i] += x[(iy * w + ix) * c + i];
            for (int64_t i = 0; i < c; i++)
                y[i] /= (real)r.n;
        }
}

static void average_gradient_sample(void *context, int s, int worker)
{
    const job *j = context;
    int64_t c = j->node->shape.dim[0], oh = j->node->shape.dim[1], ow = j->node->shape.dim[2], w = j->node->in[0].dim[2], n = ga_elements(&j->node->in[0]);
    const real *dy = output_grad(j->node) + s * c * oh * ow;
    real *dx = input_grad(j->node, 0) + s * n;
    (void)worker;
    if (!j->node->dx_adds[0])
        memset(dx, 0, (size_t)n * sizeof(real));
    for (int64_t oy = 0; oy < oh; oy++)
        for (int64_t ox = 0; ox < ow; ox++, dy += c) {
            window r = j->at(j->node, oy, ox);
            for (int64_t iy = r.y0; iy < r.y1; iy += r.ys)
                for (int64_t ix = r.x0; ix < r.x1; ix += r.xs)
                    for (int64_t i = 0; i < c; i++)
                        dx[(iy * w + ix) * c + i] += dy[i] / (real)r.n;
        }
}

static ga_status run(const ga_node *node, const ga_pass *pass, void (*sample)(void *, int, int), window (*at)(const ga_node *, int64_t, int64_t))
{
    job j = {node, at};
    ga_parallel(pass->samples * ga_elements(&node->in[0]) > CHUNK ? pass->threads : 1, (int)pass->samples, sample, &j);
    return GA_OK;
}

static ga_status max_pool2d_forward(const ga_node *node, const ga_pass *pass) { return run(node, pass, max_sample, pool_window); }
static ga_status max_pool2d_backward(const ga_node *node, const ga_pass *pass)
{
    return input_grad(node, 0) ? run(node, pass, max_gradient_sample, pool_window) : GA_OK;
}
static ga_status avg_pool2d_forward(const ga_node *node, const ga_pass *pass) { return run(node, pass, average_sample, pool_window); }
static ga_status avg_pool2d_backward(const ga_node *node, const ga_pass *pass)
{
    return input_grad(node, 0) ? run(node, pass, average_gradient_sample, pool_window) : GA_OK;
}
static ga_status adaptive_avg_pool2d_forward(const ga_node *node, const ga_pass *pass) { return run(node, pass, average_sample, adaptive_window); }
static ga_status adaptive_avg_pool2d_backward(const ga_node *node, const ga_pass *pass)
{
    return input_grad(node, 0) ? run(node, pass, average_gradient_sample, adaptive_window) : GA_OK;
}

const ga_layer LAYER(max_pool2d) = {
    .kind = "max_pool2d", .min_inputs = 1, .max_inputs = 1, .traits = GA_READS_INPUT | GA_READS_OUTPUT, .options = options,
    .plan = pool_plan, .forward = max_pool2d_forward, .backward = max_pool2d_backward,
};
const ga_layer LAYER(avg_pool2d) = {
    .kind = "avg_pool2d", .min_inputs = 1, .max_inputs = 1, .options = options,
    .plan = pool_plan, .forward = avg_pool2d_forward, .backward = avg_pool2d_backward,
};
const ga_layer LAYER(adaptive_avg_pool2d) = {
    .kind = "adaptive_avg_pool2d", .min_inputs = 1, .max_inputs = 1, .options = adaptive_options,
    .plan = adaptive_plan, .forward = adaptive_avg_pool2d_forward, .backward = adaptive_avg_pool2d_backward,
};
