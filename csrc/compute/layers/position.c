/* position: y_t = x_t + W_t, a learned vector for each place of a sequence (Vaswani et al. 2017, section 3.5).
 *
 *   x (T, C)    W (max_len, C), max_len >= T; a shorter micro-batch uses the first rows    dx = dy    dW_t += dy_t of each sample */
#include "../layer.h"

enum { MAX_LEN };
static const ga_option_default options[] = {{"max_len", REQUIRED}, {NULL, 0}};

static ga_status position_plan(ga_node *node)
{
    char text[64];
    int64_t most = (int64_t)node->option[MAX_LEN];
    if (node->in[0].rank != 2)
        return ga_fail(GA_EVALUE, "%s (position): the input has shape %s per sample, expected (steps, features)", node->name,
                       ga_shape_text(&node->in[0], text));
    if (node->in[0].dim[0] > most)
        return ga_fail(GA_EVALUE, "%s (position): sequences of %lld steps, but there are %lld positions", node->name,
                       (long long)node->in[0].dim[0], (long long)most);
    same_shape(node);
    return ga_node_param(node, "weight", 2, (int64_t[]){most, features(&node->in[0])});
}

static ga_status position_forward(const ga_node *node, const ga_pass *pass)
{
    const real *w = weight(node, 0);
    int64_t n = output_elements(node, pass);
    for (int64_t s = 0; s < pass->samples; s++) {
        const real *x = input(node, 0) + s * n;
        real *y = output(node) + s * n;
        for (int64_t i = 0; i < n; i++)
            y[i] = x[i] + w[i];
    }
    return GA_OK;
}

static ga_status position_backward(const ga_node *node, const ga_pass *pass)
{
    const real *dy = output_grad(node);
    real *dx = input_grad(node, 0), *dw = weight_grad(node, 0);
    int64_t n = output_elements(node, pass);
    for (int64_t s = 0; dw && s < pass->samples; s++)
        for (int64_t i = 0; i < n; i++)
            dw[i] += dy[s * n + i];
    if (dx && node->dx_adds[0])
        for (int64_t i = 0; i < pass->samples * n; i++)
            dx[i] += dy[i];
    else if (dx && dx != dy)                     /* dx may lie over dy */
        memcpy(dx, dy, (size_t)(pass->samples * n) * sizeof(real));
    return GA_OK;
}

const ga_layer LAYER(position) = {
    .kind = "position", .min_inputs = 1, .max_inputs = 1, .traits = GA_IN_PLACE, .options = options,
    .plan = position_plan, .forward = position_forward, .backward = position_backward,
};
