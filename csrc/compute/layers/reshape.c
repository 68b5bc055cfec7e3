/* flatten: (C, H, W) or (T, C) -> (C H W,) in PyTorch's order; identity: y = x. Both copy, or do nothing in place.
 *
 * Images are stored channels last, so flattening one moves its elements: y[c H W + p] = x[p C + c]. */
#include "../layer.h"

static ga_status flatten_plan(ga_node *node)
{
    node->shape = (ga_shape){.rank = 1, .dim = {ga_elements(&node->in[0])}};
    node->sequence = 0;
    return GA_OK;
}

static ga_status flatten_check(const ga_node *node, const ga_pass *pass, const void *data)
{
    (void)data;
    if (node->in_sequence[0] && pass->length != node->in[0].dim[0])
        return ga_fail(GA_EVALUE, "%s (flatten): a sequence of %lld steps cannot be flattened in a network planned for %lld: the "
                       "result would have another size", node->name, (long long)pass->length, (long long)node->in[0].dim[0]);
    return GA_OK;
}

static void copy(int64_t n, const real *from, real *to, int adds)
{
    if (adds)
        for (int64_t i = 0; i < n; i++)
            to[i] += from[i];
    else if (from != to)
        memcpy(to, from, (size_t)n * sizeof(real));
}

static ga_status flatten_forward(const ga_node *node, const ga_pass *pass)
{
    const ga_shape *s = &node->in[0];
    int64_t n = node->shape.dim[0], channels = s->rank == 3 ? s->dim[0] : 1, pixels = n / channels;
    const real *x = input(node, 0);
    real *y = output(node);
    if (channels == 1)
        copy(pass->samples * n, x, y, 0);
    else
        for (int64_t i = 0; i < pass->samples; i++, x += n, y += n)
            for (int64_t c = 0; c < channels; c++)
                for (int64_t p = 0; p < pixels; p++)
                    y[c * pixels + p] = x[p * channels + c];
    return GA_OK;
}

static ga_status flatten_backward(const ga_node *node, const ga_pass *pass)
{
    const ga_shape *s = &node->in[0];
    int64_t n = node->shape.dim[0], channels = s->rank == 3 ? s->dim[0] : 1, pixels = n / channels;
    const real *dy = output_grad(node);
    real *dx = input_grad(node, 0);
    if (!dx)
        return GA_OK;
    if (channels == 1)
        copy(pass->samples * n, dy, dx, node->dx_adds[0]);
    else
        for (int64_t i = 0; i < pass->samples; i++, dx += n, dy += n)
            for (int64_t p = 0; p < pixels; p++)
                for (int64_t c = 0; c < channels; c++)
                    dx[p * channels + c] = (node->dx_adds[0] ? dx[p * channels + c] : 0) + dy[c * pixels + p];
    return GA_OK;
}

const ga_layer LAYER(flatten) = {
    .kind = "flatten", .min_inputs = 1, .max_inputs = 1,
    .plan = flatten_plan, .check = flatten_check, .forward = flatten_forward, .backward = flatten_backward,
};

static ga_status identity_forward(const ga_node *node, const ga_pass *pass)
{
    copy(pass->samples * output_elements(node, pass), input(node, 0), output(node), 0);
    return GA_OK;
}

static ga_status identity_backward(const ga_node *node, const ga_pass *pass)
{
    if (input_grad(node, 0))
        copy(pass->samples * output_elements(node, pass), output_grad(node), input_grad(node, 0), node->dx_adds[0]);
    return GA_OK;
}

const ga_layer LAYER(identity) = {
    .kind = "identity", .min_inputs = 1, .max_inputs = 1, .traits = GA_IN_PLACE,
    .plan = same_shape, .forward = identity_forward, .backward = identity_backward,
};
