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
    node->work_per_thread = 2 * c * (int64_t)sizeof(double);
    ga_status status = GA_OK;
    if (node->option[AFFINE] && !(status = ga_node_param(node, "weight", 1, &c)))
        status = ga_node_param(node, "bias", 1, &c);
    return status;
}

typedef struct { const ga_node *node; } job;

static void forward_sample(void *context, int s, int worker)
{
    const ga_node *node = ((const job *)context)->node;
    int64_t n = ga_elements(&node->in[0]), c = features(&node->in[0]), pixels = n / c, groups = groups_of(node), wide = c / groups;
    const real *x = input(node, 0) + s * n, *w = node->n_params ? weight(node, 0) : NULL, *b = node->n_params ? weight(node, 1) : NULL;
    real *y = output(node) + s * n;
    double *saved = (double *)node->saved + s * 2 * groups;
    (void)worker;
    for (int64_t g = 0; g < groups; g++) {
        double sum = 0, squares = 0, count = (double)(pixels * wide);
        for (int64_t p = 0; p < pixels; p++)
            for (int64_t i = g * wide; i < (g + 1) * wide; i++)
                sum += (double)x[p * c + i];
        double mean = sum / count;
        for (int64_t p = 0; p < pixels; p++)
            for (int64_t i = g * wide; i < (g + 1) * wide; i++) {
                double d = (double)x[p * c + i] - mean;
                squares += d * d;
            }
        saved[2 * g] = mean;
        saved[2 * g + 1] = 1 / sqrt(squares / count + node->option[EPS]);
        const real m = (real)mean, r = (real)saved[2 * g + 1];
        for (int64_t p = 0; p < pixels; p++)
            for (int64_t i = g * wide; i < (g + 1) * wide; i++) {
                real h = (x[p * c + i] - m) * r;
                y[p * c + i] = w ? h * w[i] + b[i] : h;
            }
    }
}

static void input_gradient_sample(void *context, int s, int worker)
{
    const ga_node *node = ((const job *)context)->node;
    int64_t n = ga_elements(&node->in[0]), c = features(&node->in[0]), pixels = n / c, groups = groups_of(node), wide = c / groups;
    const real *x = input(node, 0) + s * n, *dy = output_grad(node) + s * n, *w = node->n_params ? weight(node, 0) : NULL;
    real *dx = input_grad(node, 0) + s * n;
    const double *saved = (const double *)node->saved + s * 2 * groups;
    const int adds = node->dx_adds[0];
    (void)worker;
    for (int64_t g = 0; g < groups; g++) {
        const real m = (real)saved[2 * g], r = (real)saved[2 * g + 1];
        double sum = 0, product = 0, count = (double)(pixels * wide);
        for (int64_t p = 0; p < pixels; p++)
            for (int64_t i = g * wide; i < (g + 1) * wide; i++) {
                double d = (double)(w ? dy[p * c + i] * w[i] : dy[p * c + i]);
                sum += d;
                product += d * (double)((x[p * c + i] - m) * r);
            }
        const real mean = (real)(sum / count), along = (real)(product / count);
        for (int64_t p = 0; p < pixels; p++)
            for (int64_t i = g * wide; i < (g + 1) * wide; i++) {
                real h = (x[p * c + i] - m) * r, d = w ? dy[p * c + i] * w[i] : dy[p * c + i], v = (d - mean - h * along) * r;
                dx[p * c + i] = adds ? dx[p * c + i] + v : v;
            }
    }
}

/* Each sample's sums over pixels in float64, added in the order of the samples. */
static void parameter_gradients(const ga_node *node, const ga_pass *pass)
{
    int64_t n = ga_elements(&node->in[0]), c = features(&node->in[0]), pixels = n / c, groups = groups_of(node), wide = c / groups;
    real *dw = weight_grad(node, 0), *db = weight_grad(node, 1);
    double *sums = thread_work(node, 0), *products = sums + c;
    for (int64_t s = 0; s < pass->samples; s++) {
        const real *x = input(node, 0) + s * n, *dy = output_grad(node) + s * n;
        const double *saved = (const double *)node->saved + s * 2 * groups;
        memset(sums, 0, (size_t)(2 * c) * sizeof *sums);
        for (int64_t p = 0; p < pixels; p++)
            for (int64_t g = 0; g < groups; g++) {
                const real m = (real)saved[2 * g], r = (real)saved[2 * g + 1];
                for (int64_t i = g * wide; i < (g + 1) * wide; i++) {
                    sums[i] += (double)dy[p * c + i];
                    products[i] += (double)(dy[p * c + i] * ((x[p * c + i] - m) * r));
                }
            }
        for (int64_t i = 0; i < c; i++) {
            if (dw)
                dw[i] += (real)products[i];
            if (db)
                db[i] += (real)sums[i];
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
