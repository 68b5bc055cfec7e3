/* rms_norm: divide each row (the last axis) by its root mean square (Zhang, Sennrich 2019, arXiv:1910.07467):
 *
 *   x' = x / sqrt(mean(x^2) + eps)      y = x' w
 *   dw += sum of dy x',   with g = dy w:   dx = (g - x' mean(g x')) / sqrt(mean(x^2) + eps)
 *
 * eps < 0 stands for the spacing of reals at 1, PyTorch's eps=None. Sums as in layer_norm. */
#include <float.h>
#include "../kernels/rows.h"

enum { EPS, ELEMENTWISE_AFFINE };
static const ga_option_default options[] = {{"eps", -1}, {"elementwise_affine", 1}, {NULL, 0}};

static ga_status rms_norm_plan(ga_node *node)
{
    char text[64];
    int64_t n = features(&node->in[0]);
    if (node->in[0].rank < 1 || node->in[0].rank > 2)
        return ga_fail(GA_EVALUE, "%s (rms_norm): the input has shape %s per sample, expected (features,) or (steps, features)", node->name,
                       ga_shape_text(&node->in[0], text));
    if (node->option[EPS] < 0)
        node->option[EPS] = sizeof(real) == 4 ? FLT_EPSILON : DBL_EPSILON;
    same_shape(node);
    node->saved_per_sample = ga_elements(&node->in[0]) / n * (int64_t)sizeof(real);              /* 1 / sqrt(...) of each row */
    return node->option[ELEMENTWISE_AFFINE] ? ga_node_param(node, "weight", 1, &n) : GA_OK;
}

typedef struct { const ga_node *node; int64_t rows, n; int tasks; } job;

static job rms_norm_job(const ga_node *node, const ga_pass *pass)
{
    int64_t n = features(&node->in[0]), rows = pass->samples * output_elements(node, pass) / n;
    return (job){node, rows, n, (int)((rows + rows_of_task(n) - 1) / rows_of_task(n))};
}

static void forward_rows(void *context, int index, int worker)
{
    const job *j = context;
    const int64_t n = j->n;
    const real *w = j->node->n_params ? weight(j->node, 0) : NULL;
    (void)worker;
    for (int64_t r = j->rows * index / j->tasks, end = j->rows * (index + 1) / j->tasks; r < end; r++) {
        const real *x = input(j->node, 0) + r * n;
        real *y = output(j->node) + r * n;
        double squares;
        ROW_SUM(squares, n, (double)x[i] * (double)x[i]);
        const real scale = ((real *)j->node->saved)[r] = (real)(1 / sqrt(squares / (double)n + j->node->option[EPS]));
        for (int64_t i = 0; i < n; i++)
            y[i] = w ? x[i] * scale * w[i] : x[i] * scale;
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
        const real *x = input(j->node, 0) + r * n, *dy = output_grad(j->node) + r * n, scale = ((const real *)j->node->saved)[r];
        real *dx = input_grad(j->node, 0) + r * n;
        double product;
        if (w)
            ROW_SUM(product, n, dy[i] * w[i] * (x[i] * scale));
        else
            ROW_SUM(product, n, dy[i] * (x[i] * scale));
        const real along = (real)(product / (double)n);
        for (int64_t i = 0; i < n; i++) {
            real g = w ? dy[i] * w[i] : dy[i], d = (g - x[i] * scale * along) * scale;
            dx[i] = adds ? dx[i] + d : d;
        }
    }
}

static void parameter_gradient_columns(void *context, int index, int worker)
{
    const job *j = context;
    const int64_t from = j->n * index / j->tasks, to = j->n * (index + 1) / j->tasks;
    real *dw = weight_grad(j->node, 0);
    (void)worker;
    for (int64_t r = 0; r < j->rows; r++) {
        const real *x = input(j->node, 0) + r * j->n, *dy = output_grad(j->node) + r * j->n, scale = ((const real *)j->node->saved)[r];
        for (int64_t i = from; i < to; i++)
            dw[i] += dy[i] * (x[i] * scale);
    }
}

static ga_status rms_norm_forward(const ga_node *node, const ga_pass *pass)
{
    job j = rms_norm_job(node, pass);
    ga_parallel(pass->threads, j.tasks, forward_rows, &j);
    return GA_OK;
}

static ga_status rms_norm_backward(const ga_node *node, const ga_pass *pass)
{
    job j = rms_norm_job(node, pass), columns = j;
    columns.tasks = j.tasks < pass->threads ? 1 : pass->threads;
    if (node->n_params && weight_grad(node, 0))
        ga_parallel(pass->threads, columns.tasks, parameter_gradient_columns, &columns);
    if (input_grad(node, 0))
        ga_parallel(pass->threads, j.tasks, input_gradient_rows, &j);
    return GA_OK;
}

const ga_layer LAYER(rms_norm) = {
    .kind = "rms_norm", .min_inputs = 1, .max_inputs = 1, .traits = GA_READS_INPUT, .options = options,
    .plan = rms_norm_plan, .forward = rms_norm_forward, .backward = rms_norm_backward,
};
