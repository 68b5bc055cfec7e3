/* group_norm and instance_norm2d: normalise each sample by its own statistics, so splits change nothing.
 *
 *   group g of a sample: mean m and (biased) variance v over its C / G channels and all pixels; x' = (x - m) / sqrt(v + eps)
 *   y = x' w_c + b_c
 *   dw_c += sum of dy x',  db_c += sum of dy,  with g = dy w_c:   dx = (g - mean(g) - x' mean(g x')) / sqrt(v + eps)
 *
 * (Wu, He 2018). instance_norm2d is group_norm with one channel a group (Ulyanov et al. 2016). Sums in float64. */
#include "../layer.h"

enum { NUM_GROUPS, EPS, AFFINE };
static const ga_option_default options[] = {{"num_groups", REQUIRED}, {"eps", 1e-5}, {"affine", 1}, {NULL, 0}};
static const ga_option_default instance_options[] = {{"num_groups", 0}, {"eps", 1e-5}, {"affine", 0}, {NULL, 0}};

static int64_t groups_of(const ga_node *node)
{
    return node->option[NUM_GROUPS] ? (int64_t)node->option[NUM_GROUPS] : features(&node->in[0]);
}

static ga_status group_norm_plan(ga_node *node)
{
    char text[64];
    int64_t c = features(&node->in[0]);
    if (node->in[0].rank != 3 && node->in[0].rank != 1)
        return ga_fail(GA_EVALUE, "%s (%s): the input has shape %s per sample, expected (channels, height, width) or (channels,)", node->name,
                       node->layer->kind, ga_shape_text(&node->in[0], text));
    int64_t groups = groups_of(node);
    if (groups < 1 || c % groups)
        return ga_fail(GA_EVALUE, "%s (%s): num_groups=%lld does not divide %lld channels", node->name, node->layer->kind, (long long)groups,
                       (long long)c);
    if (!(node->option[EPS] >= 0))
        return ga_fail(GA_EVALUE, "%s (%s): eps=%g, expected 0 or more", node->name, node->layer->kind, node->option[EPS]);
    if (ga_elements(&node->in[0]) == groups)
        return ga_fail(GA_EVALUE, "%s (%s): one value per group has no variance: use fewer groups, or a larger image", node->name,
                       node->layer->kind);
    same_shape(node);
    node->saved_per_sample = 2 * groups * (int64_t)sizeof(double);           /* mean, 1 / sqrt(v + eps) */
    node->work_per_thread = c * (int64_t)(2 * sizeof(double) + 4 * sizeof(real));
    ga_status status = GA_OK;
    if (node->option[AFFINE] && !(status = ga_node_param(node, "weight", 1, &c)))
        status = ga_node_param(node, "bias", 1, &c);
    return status;
}

/* Scratch of a thread: two float64 sums and four numbers a channel, so that inner loops run over channels next to each other. */
typedef struct { double *sums, *products; real *mean, *scale, *a, *b; } scratch;
static scratch scratch_of(const ga_node *node, int worker)
{
    int64_t c = features(&node->in[0]);
    double *d = thread_work(node, worker);
    real *r = (real *)(d + 2 * c);
    return (scratch){d, d + c, r, r + c, r + 2 * c, r + 3 * c};
}

/* The saved mean and 1 / sqrt(v + eps) of each group, once per channel. */
static void spread(const double *saved, int64_t c, int64_t wide, scratch w)
{
    for (int64_t i = 0; i < c; i++) {
        w.mean[i] = (real)saved[2 * (i / wide)];
        w.scale[i] = (real)saved[2 * (i / wide) + 1];
    }
}

typedef struct { const ga_node *node; } job;

static void forward_sample(void *context, int s, int worker)
{
    const ga_node *node = ((const job *)context)->node;
    int64_t n = ga_elements(&node->in[0]), c = features(&node->in[0]), pixels = n / c, groups = groups_of(node), wide = c / groups;
    const real *x = input(node, 0) + s * n, *weights = node->n_params ? weight(node, 0) : NULL, *bias = node->n_params ? weight(node, 1) : NULL;
    real *y = output(node) + s * n;
    double *saved = (double *)node->saved + s * 2 * groups, count = (double)(pixels * wide);
    scratch w = scratch_of(node, worker);
    memset(w.sums, 0, (size_t)(2 * c) * sizeof(double));
    for (int64_t p = 0; p < pixels; p++)
        for (int64_t i = 0; i < c; i++)
            w.sums[i] += (double)x[p * c + i];
    for (int64_t g = 0; g < groups; g++) {
        double sum = 0;
        for (int64_t i = g * wide; i < (g + 1) * wide; i++)
            sum += w.sums[i];
        for (int64_t i = g * wide; i < (g + 1) * wide; i++)
            w.sums[i] = sum / count;                 /* from here on the mean */
    }
    for (int64_t p = 0; p < pixels; p++)
        for (int64_t i = 0; i < c; i++) {
            double d = (double)x[p * c + i] - w.sums[i];
            w.products[i] += d * d;
        }
    for (int64_t g = 0; g < groups; g++) {
        double squares = 0;
        for (int64_t i = g * wide; i < (g + 1) * wide; i++)
            squares += w.products[i];
        saved[2 * g] = w.sums[g * wide];
        saved[2 * g + 1] = 1 / sqrt(squares / count + node->option[EPS]);
    }
    spread(saved, c, wide, w);
    for (int64_t i = 0; i < c; i++) {
        w.a[i] = weights ? weights[i] : 1;
        w.b[i] = bias ? bias[i] : 0;
    }
    for (int64_t p = 0; p < pixels; p++)
        for (int64_t i = 0; i < c; i++)
            y[p * c + i] = (x[p * c + i] - w.mean[i]) * w.scale[i] * w.a[i] + w.b[i];
}

/* Per channel, the sums over pixels of dy and of dy x' of sample s. */
static void channel_sums(const ga_node *node, int64_t s, scratch w)
{
    int64_t n = ga_elements(&node->in[0]), c = features(&node->in[0]), pixels = n / c, groups = groups_of(node);
    const real *x = input(node, 0) + s * n, *dy = output_grad(node) + s * n;
    spread((const double *)node->saved + s * 2 * groups, c, c / groups, w);
    memset(w.sums, 0, (size_t)(2 * c) * sizeof(double));
    for (int64_t p = 0; p < pixels; p++)
        for (int64_t i = 0; i < c; i++) {
            w.sums[i] += (double)dy[p * c + i];
            w.products[i] += (double)(dy[p * c + i] * ((x[p * c + i] - w.mean[i]) * w.scale[i]));
        }
}

static void input_gradient_sample(void *context, int s, int worker)
{
    const ga_node *node = ((const job *)context)->node;
    int64_t n = ga_elements(&node->in[0]), c = features(&node->in[0]), pixels = n / c, groups = groups_of(node), wide = c / groups;
    const real *x = input(node, 0) + s * n, *dy = output_grad(node) + s * n, *weights = node->n_params ? weight(node, 0) : NULL;
    real *dx = input_grad(node, 0) + s * n;
    const int adds = node->dx_adds[0];
    const double count = (double)(pixels * wide);
    scratch w = scratch_of(node, worker);
    channel_sums(node, s, w);
    for (int64_t g = 0; g < groups; g++) {
        double sum = 0, product = 0;
        for (int64_t i = g * wide; i < (g + 1) * wide; i++) {
            double f = weights ? (double)weights[i] : 1;
            sum += f * w.sums[i];
            product += f * w.products[i];
        }
        for (int64_t i = g * wide; i < (g + 1) * wide; i++) {
            w.a[i] = (real)(sum / count);
            w.b[i] = (real)(product / count);
        }
    }
    for (int64_t p = 0; p < pixels; p++)
        for (int64_t i = 0; i < c; i++) {
            real h = (x[p * c + i] - w.mean[i]) * w.scale[i], d = weights ? dy[p * c + i] * weights[i] : dy[p * c + i];
            real v = (d - w.a[i] - h * w.b[i]) * w.scale[i];
            dx[p * c + i] = adds ? dx[p * c + i] + v : v;
        }
}

/* Each sample's sums over pixels in float64, added in the order of the samples. */
static void parameter_gradients(const ga_node *node, const ga_pass *pass)
{
    int64_t c = features(&node->in[0]);
    real *dw = weight_grad(node, 0), *db = weight_grad(node, 1);
    scratch w = scratch_of(node, 0);
    for (int64_t s = 0; s < pass->samples; s++) {
        channel_sums(node, s, w);
        for (int64_t i = 0; i < c; i++) {
            if (dw)
                dw[i] += (real)w.products[i];
            if (db)
                db[i] += (real)w.sums[i];
        }
    }
}

static int threads_of(const ga_node *node, const ga_pass *pass) { return pass->samples * ga_elements(&node->in[0]) > CHUNK ? pass->threads : 1; }

static ga_status group_norm_forward(const ga_node *node, const ga_pass *pass)
{
    job j = {node};
    ga_parallel(threads_of(node, pass), (int)pass->samples, forward_sample, &j);
    return GA_OK;
}

static ga_status group_norm_backward(const ga_node *node, const ga_pass *pass)
{
    job j = {node};
    if (node->n_params)
        parameter_gradients(node, pass);
    if (input_grad(node, 0))
        ga_parallel(threads_of(node, pass), (int)pass->samples, input_gradient_sample, &j);
    return GA_OK;
}

const ga_layer LAYER(group_norm) = {
    .kind = "group_norm", .min_inputs = 1, .max_inputs = 1, .traits = GA_READS_INPUT, .options = options,
    .plan = group_norm_plan, .forward = group_norm_forward, .backward = group_norm_backward,
};
const ga_layer LAYER(instance_norm2d) = {
    .kind = "instance_norm2d", .min_inputs = 1, .max_inputs = 1, .traits = GA_READS_INPUT, .options = instance_options,
    .plan = group_norm_plan, .forward = group_norm_forward, .backward = group_norm_backward,
};
