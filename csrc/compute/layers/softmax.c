/* softmax over the last axis of (C,) or (T, C), over the channels of (C, H, W):
 *
 *   y_c = exp(x_c - m) / sum over j of exp(x_j - m),  m = max x          dx_c = y_c (dy_c - sum over j of dy_j y_j) */
#include "../layer.h"

typedef struct { const ga_node *node; int64_t rows, classes; } job;

static void softmax_forward_rows(void *context, int index, int worker)
{
    const job *j = context;
    int64_t first = j->rows * index / chunks(j->rows * j->classes), last = j->rows * (index + 1) / chunks(j->rows * j->classes);
    (void)worker;
    for (int64_t r = first; r < last; r++) {
        const real *x = input(j->node, 0) + r * j->classes;
        real *y = output(j->node) + r * j->classes, max = x[0], sum = 0;
        for (int64_t c = 1; c < j->classes; c++)
            max = x[c] > max ? x[c] : max;
        for (int64_t c = 0; c < j->classes; c++) {
            y[c] = real_exp(x[c] - max);
            sum += y[c];
        }
        for (int64_t c = 0; c < j->classes; c++)
            y[c] /= sum;
    }
}

static void softmax_backward_rows(void *context, int index, int worker)
{
    const job *j = context;
    int64_t first = j->rows * index / chunks(j->rows * j->classes), last = j->rows * (index + 1) / chunks(j->rows * j->classes);
    const int adds = j->node->dx_adds[0];
    (void)worker;
    for (int64_t r = first; r < last; r++) {
        const real *y = output(j->node) + r * j->classes, *dy = output_grad(j->node) + r * j->classes;
        real *dx = input_grad(j->node, 0) + r * j->classes, sum = 0;
        for (int64_t c = 0; c < j->classes; c++)
            sum += dy[c] * y[c];
        for (int64_t c = 0; c < j->classes; c++) {
            real g = y[c] * (dy[c] - sum);
            dx[c] = adds ? dx[c] + g : g;
        }
    }
}

static job softmax_job(const ga_node *node, const ga_pass *pass)
{
    int64_t classes = features(&node->in[0]);
    return (job){node, pass->samples * output_elements(node, pass) / classes, classes};
}

static ga_status softmax_forward(const ga_node *node, const ga_pass *pass)
{
    job j = softmax_job(node, pass);
    ga_parallel(pass->threads, chunks(j.rows * j.classes), softmax_forward_rows, &j);
    return GA_OK;
}

static ga_status softmax_backward(const ga_node *node, const ga_pass *pass)
{
    job j = softmax_job(node, pass);
    if (input_grad(node, 0))
        ga_parallel(pass->threads, chunks(j.rows * j.classes), softmax_backward_rows, &j);
    return GA_OK;
}

const ga_layer LAYER(softmax) = {
    .kind = "softmax", .min_inputs = 1, .max_inputs = 1, .traits = GA_READS_OUTPUT | GA_IN_PLACE,
    .plan = same_shape, .forward = softmax_forward, .backward = softmax_backward,
};
