/* conv2d and conv_transpose2d.
 *
 *   conv2d            y[oy][ox][o] = b[o] + sum over ky, kx, c of x[oy s + ky d - p][ox s + kx d - p][c] W[o][c][ky][kx]
 *                     dx, dW: the same sum read the other way round; db[o] += sum over pixels of dy
 *   conv_transpose2d  the input gradient of a conv2d, used as a forward pass; its own input gradient is that conv2d
 *
 * x (C, H, W)    W (O, C / groups, kh, kw), transposed: (C, O / groups, kh, kw)    b (O,)
 * The weights are kept as [kh][kw][C / groups][O] (kernels/convolution.h). */
#include "../layer.h"
#include "../kernels/winograd.h"

enum { OUT_CHANNELS, KH, KW, SH, SW, PH, PW, DH, DW, GROUPS, BIAS, EXTRA_H, EXTRA_W, WINOGRAD };
enum { DIRECT, ASKED, WHERE_IT_SUITS };
/* padding_h, padding_w: on the first side. extra_h, extra_w: padding on the last side beyond it ("same" of an even kernel), or
 * the output padding of a transposed convolution. winograd: 1 for kernels/winograd.h, which is for 3 x 3; 2 for it where it suits. */
static const ga_option_default options[] = {
    {"out_channels", REQUIRED}, {"kernel_h", REQUIRED}, {"kernel_w", REQUIRED}, {"stride_h", 1}, {"stride_w", 1}, {"padding_h", 0},
    {"padding_w", 0}, {"dilation_h", 1}, {"dilation_w", 1}, {"groups", 1}, {"bias", 1}, {"extra_h", 0}, {"extra_w", 0},
    {"winograd", 0}, {NULL, 0},
};
static const int stored[] = {2, 3, 1, 0};

static int64_t option(const ga_node *node, int i) { return (int64_t)node->option[i]; }

/* The convolution whose image is (c, h, w) and whose result is (o, oh, ow). */
static convolution shape_of(const ga_node *node, const ga_shape *image, const ga_shape *result)
{
    return (convolution){
        .h = image->dim[1], .w = image->dim[2], .c = image->dim[0], .oh = result->dim[1], .ow = result->dim[2], .o = result->dim[0],
        .kh = option(node, KH), .kw = option(node, KW), .sh = option(node, SH), .sw = option(node, SW), .ph = option(node, PH),
        .pw = option(node, PW), .dh = option(node, DH), .dw = option(node, DW), .groups = option(node, GROUPS), .engine = node->engine,
    };
}

static ga_status check_options(const ga_node *node)
{
    const ga_shape *x = &node->in[0];
    int64_t groups = option(node, GROUPS);
    ga_status status = needs_image(node);
    if (status)
        return status;
    for (int i = KH; i <= DW; i++)
        if (option(node, i) < (i == PH || i == PW ? 0 : 1))
            return ga_fail(GA_EVALUE, "%s (%s): %s=%lld, expected at least %d", node->name, node->layer->kind, options[i].name,
                           (long long)option(node, i), i == PH || i == PW ? 0 : 1);
    if (option(node, OUT_CHANNELS) < 1 || groups < 1 || x->dim[0] % groups || option(node, OUT_CHANNELS) % groups)
        return ga_fail(GA_EVALUE, "%s (%s): groups=%lld must divide %lld input and %lld output channels", node->name, node->layer->kind,
                       (long long)groups, (long long)x->dim[0], (long long)option(node, OUT_CHANNELS));
    return GA_OK;
}

static ga_status finish_plan(ga_node *node, const convolution *q, const int64_t *weight_shape, int64_t outputs)
{
    ga_status status = ga_node_param_stored(node, "weight", 4, weight_shape, stored);
    if (!status && node->option[BIAS])
        status = ga_node_param(node, "bias", 1, &outputs);
    node->flops = 2.0 * (double)(q->oh * q->ow * q->o) * (double)(q->kh * q->kw * (q->c / q->groups));
    node->work_per_thread = convolution_bytes(q);
    node->packed_bytes = convolution_packed_count(q) * (int64_t)sizeof(real);
    return status;
}

static void add_bias_gradient(const ga_node *node, const ga_pass *pass)
{
    if (node->n_params < 2 || !weight_grad(node, 1))
        return;
    const real *dy = output_grad(node);
    real *db = weight_grad(node, 1);
    int64_t o = node->shape.dim[0], pixels = pass->samples * node->shape.dim[1] * node->shape.dim[2];
    for (int64_t i = 0; i < pixels; i++)
        for (int64_t k = 0; k < o; k++)
            db[k] += dy[i * o + k];
}

static const real *bias_of(const ga_node *node) { return node->n_params > 1 ? weight(node, 1) : NULL; }

/* ---- conv2d ---- */

static convolution plain(const ga_node *node) { return shape_of(node, &node->in[0], &node->shape); }
/* What Winograd's filtering is for. */
static const struct { const char *name; int option, least, most; } limits[] = {
    {"kernel_size", KH, 3, 3}, {"stride", SH, 1, 1}, {"dilation", DH, 1, 1}, {"padding", PH, 0, 2}};
enum { LIMITS = sizeof limits / sizeof *limits };

static int beyond(const ga_node *node, int limit)
{
    int64_t h = option(node, limits[limit].option), w = option(node, limits[limit].option + 1);
    return smaller(h, w) < limits[limit].least || larger(h, w) > limits[limit].most;
}

static int by_winograd(const ga_node *node, const convolution *q)
{
    if (option(node, WINOGRAD) == DIRECT || node->engine != GA_NATIVE || !winograd_pays(q))
        return 0;
    for (int i = 0; i < LIMITS; i++)
        if (beyond(node, i))
            return 0;
    return option(node, GROUPS) == 1 && (option(node, WINOGRAD) == ASKED || winograd_is_exact(q));
}

/* Options of algorithm="winograd", whatever the engine. */
static ga_status check_winograd(const ga_node *node)
{
    static const char fix[] = "it is for kernel_size=3, stride=1, dilation=1, groups=1 and padding 0 to 2; change that, or use algorithm=\"direct\"";
    for (int i = 0; i < LIMITS; i++)
        if (beyond(node, i))
            return ga_fail(GA_EVALUE, "%s (conv2d): algorithm=\"winograd\" with %s=(%lld, %lld): %s", node->name, limits[i].name,
                           (long long)option(node, limits[i].option), (long long)option(node, limits[i].option + 1), fix);
    if (option(node, GROUPS) != 1)
        return ga_fail(GA_EVALUE, "%s (conv2d): algorithm=\"winograd\" with groups=%lld: %s", node->name, (long long)option(node, GROUPS), fix);
    return GA_OK;
}

static ga_status conv2d_plan(ga_node *node)
{
    ga_status status = check_options(node);
    if (status)
        return status;
    const ga_shape *x = &node->in[0];
    int64_t size[2];
    for (int i = 0; i < 2; i++) {
        int64_t padded = x->dim[1 + i] + 2 * option(node, PH + i) + option(node, EXTRA_H + i);
        int64_t kernel = (option(node, KH + i) - 1) * option(node, DH + i) + 1;
        if (padded < kernel)
            return ga_fail(GA_EVALUE, "%s (conv2d): the image is smaller than the kernel: %s %lld with padding, kernel %lld with dilation; use "
                           "padding, or a smaller kernel", node->name, i ? "width" : "height", (long long)padded, (long long)kernel);
        size[i] = (padded - kernel) / option(node, SH + i) + 1;
    }
    node->shape = (ga_shape){.rank = 3, .dim = {option(node, OUT_CHANNELS), size[0], size[1]}};
    convolution q = plain(node);
    status = finish_plan(node, &q, (int64_t[]){q.o, q.c / q.groups, q.kh, q.kw}, q.o);
    if (!status && option(node, WINOGRAD) == ASKED)
        status = check_winograd(node);
    if (status || !by_winograd(node, &q))
        return status;
    node->work_per_thread = winograd_pays_for_weights(&q) ? winograd_bytes(&q) : larger(node->work_per_thread, winograd_bytes(&q));
    node->packed_bytes = (winograd_packed_count(&q, 0) + winograd_packed_count(&q, 1)) * (int64_t)sizeof(real);
    return GA_OK;
}

static real *packed_backward(const ga_node *node, const convolution *q) { return (real *)node->packed + winograd_packed_count(q, 0); }

static void conv2d_pack(const ga_node *node, int threads)
{
    convolution q = plain(node);
    if (by_winograd(node, &q)) {
        winograd_pack(&q, weight(node, 0), 0, threads, node->packed);
        winograd_pack(&q, weight(node, 0), 1, threads, packed_backward(node, &q));
    } else
        convolution_pack(&q, weight(node, 0), node->packed);
}

static ga_status conv2d_forward(const ga_node *node, const ga_pass *pass)
{
    convolution q = plain(node);
    if (by_winograd(node, &q))
        winograd_forward(&q, node, pass, input(node, 0), node->packed, bias_of(node), output(node));
    else
        convolution_forward(&q, node, pass, input(node, 0), weight(node, 0), bias_of(node), output(node), 0);
    return GA_OK;
}

static ga_status conv2d_backward(const ga_node *node, const ga_pass *pass)
{
    convolution q = plain(node);
    if (input_grad(node, 0) && by_winograd(node, &q))
        winograd_input_gradient(&q, node, pass, output_grad(node), packed_backward(node, &q), input_grad(node, 0), node->dx_adds[0]);
    else if (input_grad(node, 0))
        convolution_input_gradient(&q, node, pass, output_grad(node), weight(node, 0), NULL, input_grad(node, 0), node->dx_adds[0]);
    if (weight_grad(node, 0) && by_winograd(node, &q) && winograd_pays_for_weights(&q))
        winograd_weight_gradient(&q, node, pass, input(node, 0), output_grad(node), weight_grad(node, 0));
    else if (weight_grad(node, 0))
        convolution_weight_gradient(&q, node, pass, input(node, 0), output_grad(node), weight_grad(node, 0));
    add_bias_gradient(node, pass);
    return GA_OK;
}

const ga_layer LAYER(conv2d) = {
    .kind = "conv2d", .min_inputs = 1, .max_inputs = 1, .traits = GA_READS_INPUT, .options = options,
    .plan = conv2d_plan, .pack = conv2d_pack, .forward = conv2d_forward, .backward = conv2d_backward,
};

/* ---- conv_transpose2d: image and result change places ---- */

static convolution transposed(const ga_node *node) { return shape_of(node, &node->shape, &node->in[0]); }

static ga_status conv_transpose2d_plan(ga_node *node)
{
    ga_status status = check_options(node);
    if (status)
        return status;
    if (option(node, WINOGRAD))
        return ga_fail(GA_EVALUE, "%s (conv_transpose2d): winograd=1 is for conv2d; use 0", node->name);
    const ga_shape *x = &node->in[0];
    int64_t size[2];
    for (int i = 0; i < 2; i++) {
        int64_t s = option(node, SH + i), d = option(node, DH + i), extra = option(node, EXTRA_H + i);
        if (extra < 0 || (extra >= s && extra >= d))
            return ga_fail(GA_EVALUE, "%s (conv_transpose2d): output_padding=%lld must be smaller than stride %lld or dilation %lld", node->name,
                           (long long)extra, (long long)s, (long long)d);
        size[i] = (x->dim[1 + i] - 1) * s - 2 * option(node, PH + i) + d * (option(node, KH + i) - 1) + extra + 1;
        if (size[i] < 1)
            return ga_fail(GA_EVALUE, "%s (conv_transpose2d): the output would have %s %lld; use less padding", node->name,
                           i ? "width" : "height", (long long)size[i]);
    }
    node->shape = (ga_shape){.rank = 3, .dim = {option(node, OUT_CHANNELS), size[0], size[1]}};
    convolution q = transposed(node);
    return finish_plan(node, &q, (int64_t[]){q.o, q.c / q.groups, q.kh, q.kw}, q.c);
}

static void conv_transpose2d_pack(const ga_node *node, int threads)
{
    (void)threads;
    convolution q = transposed(node);
    convolution_pack(&q, weight(node, 0), node->packed);
}

static ga_status conv_transpose2d_forward(const ga_node *node, const ga_pass *pass)
{
    convolution q = transposed(node);
    convolution_input_gradient(&q, node, pass, input(node, 0), weight(node, 0), bias_of(node), output(node), 0);
    return GA_OK;
}

static ga_status conv_transpose2d_backward(const ga_node *node, const ga_pass *pass)
{
    convolution q = transposed(node);
    if (input_grad(node, 0))
        convolution_forward(&q, node, pass, output_grad(node), weight(node, 0), NULL, input_grad(node, 0), node->dx_adds[0]);
    if (weight_grad(node, 0))
        convolution_weight_gradient(&q, node, pass, output_grad(node), input(node, 0), weight_grad(node, 0));
    add_bias_gradient(node, pass);
    return GA_OK;
}

const ga_layer LAYER(conv_transpose2d) = {
    .kind = "conv_transpose2d", .min_inputs = 1, .max_inputs = 1, .traits = GA_READS_INPUT, .options = options,
    .plan = conv_transpose2d_plan, .pack = conv_transpose2d_pack, .forward = conv_transpose2d_forward, .backward = conv_transpose2d_backward,
};
