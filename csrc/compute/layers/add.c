/* add: y = a + b, of equal shapes (a residual connection). da = dy, db = dy. */
#include "../layer.h"

static ga_status add_plan(ga_node *node)
{
    char a[64], b[64];
    if (memcmp(&node->in[0], &node->in[1], sizeof node->in[0]) || node->in_sequence[0] != node->in_sequence[1])
        return ga_fail(GA_EVALUE, "%s (add): shapes %s and %s differ; there is no broadcasting", node->name,
                       ga_shape_text(&node->in[0], a), ga_shape_text(&node->in[1], b));
    return same_shape(node);
}

static ga_status add_forward(const ga_node *node, const ga_pass *pass)
{
    const real *a = input(node, 0), *b = input(node, 1);
    real *y = output(node);
    int64_t n = pass->samples * output_elements(node, pass);
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] + b[i];
    return GA_OK;
}

static ga_status add_backward(const ga_node *node, const ga_pass *pass)
{
    const real *dy = output_grad(node);
    int64_t n = pass->samples * output_elements(node, pass);
    for (int k = 0; k < 2; k++) {
        real *dx = input_grad(node, k);
        if (!dx)
            continue;
        if (node->dx_adds[k])
            for (int64_t i = 0; i < n; i++)
                dx[i] += dy[i];
        else if (dx != dy)                       /* the gradient of input 0 may lie over dy */
            memcpy(dx, dy, (size_t)n * sizeof(real));
    }
    return GA_OK;
}

const ga_layer LAYER(add) = {
    .kind = "add", .min_inputs = 2, .max_inputs = 2, .traits = GA_IN_PLACE,
    .plan = add_plan, .forward = add_forward, .backward = add_backward,
};
