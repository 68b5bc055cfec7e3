/* layer_norm: normalise each row (the last axis) by its own mean m and (biased) variance v (Ba, Kiros, Hinton 2016):
 *
 *   x' = (x - m) / sqrt(v + eps)      y = x' w + b
 *   dw += sum of dy x',  db += sum of dy,   with g = dy w:   dx = (g - mean(g) - x' mean(g x')) / sqrt(v + eps)
 *
 * Means in float64. The sums over rows run in the order of the samples; threads divide rows, for parameter gradients columns. */
#include "../kernels/rows.h"

enum { EPS, ELEMENTWISE_AFFINE, HAS_BIAS };
static const ga_option_default options[] = {{"eps", 1e-5}, {"elementwise_affine", 1}, {"bias", 1}, {NULL, 0}};

static ga_status layer_norm_plan(ga_node *node)
{
    char text[64];
    int64_t n = features(&node->in[0]);
    if (node->in[0].rank < 1 || node->in[0].rank > 2)
        return ga_fail(GA_EVALUE, "%s (layer_norm): the input has shape %s per sample, expected (features,) or (steps, features)", node->name,
                       ga_shape_text(&node->in[0], text));
    if (!(node->option[EPS] >= 0))
        return ga_fail(GA_EVALUE, "%s (layer_norm): eps=%g, expected 0 or more", node->name, node->option[EPS]);
    same_shape(node);
    node->saved_per_sample = ga_elements(&node->in[0]) / n * 2 * (int64_t)sizeof(real);          /* m, 1 / sqrt(v + eps) of each row */
    ga_status status = GA_OK;
    if (node->option[ELEMENTWISE_AFFINE] && !(status = ga_node_param(node, "weight", 1, &n)) && node->option[HAS_BIAS])
        status = ga_node_param(node, "bias", 1, &n);
    return status;
}

typedef struct { const ga_node *node; int64_t rows, n; int tasks; } job;

static job layer_norm_job(const ga_node *node, const ga_pass *pass)
{
    int64_t n = features(&node->in[0]), rows = pass->samples * output_elements(node, pass) / n;
    return (job){node, rows, n, (int)((rows + rows_of_task(n) - 1) / rows_of_task(n))};
}

static void forward_rows(void *context, int index, int worker)
{
    const job *j = context;
    const int64_t n = j->n;
    const real *w = j->node->n_params ? weight(j->node, 0) : NULL, *b = j->node->n_params > 1 ? weight(j->node, 1) : NULL;
    (void)worker;
    for (int64_t r = j->rows * index / j->tasks, end = j->rows * (index + 1) / j->tasks; r < end; r++) {
        const real *x = input(j->node, 0) + r * n;
        real *y = output(j->node) + r * n, *saved = (real *)j->node->saved + 2 * r;
        double sum, squares;
        ROW_SUM(sum, n, x[i]);
        const double mean = sum / (double)n;
        ROW_SUM(squares, n, ((double)x[i] - mean) * ((double)x[i] - mean));
        const real m = saved[0] = (real)mean, scale = saved[1] = (real)(1 / sqrt(squares / (double)n + j->node->option[EPS]));
        if (b)
            for (int64_t i = 0; i < n; i++)
                y[i] = (x[i] - m) * scale * w[i] + b[i];
        else if (w)
            for (int64_t i = 0; i < n; i++)
                y[i] = (x[i] - m) * scale * w[i];
        else
            for (int64_t i = 0; i < n; i++)
                y[i] = (x[i] - m) * scale;
    }
}

static void input_gradient_rows(void *context, int index, int worker)
{
    const job *j = context;
    const int64_t n = j->n;
    const real *w = j->node->n_params ? weight(j->node, 0) : NULL;
    const int adds = j->node->dx_adds[0];
    (void)worker;
    for (int64_t r = j->rows * index / j->tasks, end = j->rows * (index + 1) / j->tasks; r < end; r++) {
        const real *x = input(j->node, 0) + r * n, *dy = output_grad(j->node) + r * n, *saved = (const real *)j->node->saved + 2 * r;
        const real m = saved[0], scale = saved[1];
        real *dx = input_grad(j->node, 0) + r * n;
        double sum, product;
        if (w) {
            ROW_SUM(sum, n, dy[i] * w[i]);
            ROW_SUM(product, n, dy[i] * w[i] * ((x[i] - m) * scale));
        } else {
            ROW_SUM(sum, n, dy[i]);
            ROW_SUM(product, n, dy[i] * ((x[i] - m) * scale));
        }
        const real mean = (real)(sum / (double)n), along = (real)(product / (double)n);
        for (int64_t i = 0; i < n; i++) {
            real g = w ? dy[i] * w[i] : dy[i], d = (g - mean - (x[i] - m) * scale * along) * scale;
            dx[i] = adds ? dx[i] + d : d;
        }
    }
}

static void parameter_gradient_columns(void *context, int index, int worker)
{
    const job *j = context;
    const int64_t from = j->n * index / j->tasks, to = j->n * (index + 1) / j->tasks;
    real *dw = weight_grad(j->node, 0), *db = j->node->n_params > 1 ? weight_grad(j->node, 1) : NULL;
    (void)worker;
    for (int64_t r = 0; r < j->rows; r++) {
        const real *x = input(j->node, 0) + r * j->n, *dy = output_grad(j->node) + r * j->n, *saved = (const real *)j->node->saved + 2 * r;
        const real m = saved[0], scale = saved[1];
        for (int64_t i = from; dw && i < to; i++)
            dw[i] += dy[i] * ((x[i] - m) * scale);
        for (int64_t i = from; db && i < to; i++)
            db[i] += dy[i];
    }
}

static ga_status layer_norm_forward(const ga_node *node, const ga_pass *pass)
{
    job j = layer_norm_job(node, pass);
    ga_parallel(pass->threads, j.tasks, forward_rows, &j);
    return GA_OK;
}

static ga_status layer_norm_backward(const ga_node *node, const ga_pass *pass)
{
    job j = layer_norm_job(node, pass), columns = j;
    columns.tasks = j.tasks < pass->threads ? 1 : pass->threads;
    if (node->n_params)
        ga_parallel(pass->threads, columns.tasks, parameter_gradient_columns, &columns);
    if (input_grad(node, 0))
        ga_parallel(pass->threads, j.tasks, input_gradient_rows, &j);
    return GA_OK;
}

const ga_layer LAYER(layer_norm) = {
    .kind = "layer_norm", .min_inputs = 1, .max_inputs = 1, .traits = GA_READS_INPUT, .options = options,
    .plan = layer_norm_plan, .forward = layer_norm_forward, .backward = layer_norm_backward,
};
