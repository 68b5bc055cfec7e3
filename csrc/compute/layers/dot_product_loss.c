/* dot_product_loss: l = sum_i x_i t_i over the elements of a sample; a sample weighs 1.      dl/dx = t
 *
 * The target is the gradient that backward starts from. So a gradient that was worked out elsewhere goes through the network: that of
 * a loss that couples samples (gradaccum.losses), or of a network that goes on in another program. */
#include "../loss.h"

static const ga_option_default options[] = {{NULL, 0}};

static ga_status plan(ga_node *node)
{
    node->target_shape = node->in[0];
    return GA_OK;
}

static ga_status forward(const ga_node *node, const ga_pass *pass)
{
    int64_t items = input_elements(node, 0, pass);
    *node->elements = 0;
    for (int64_t s = 0; s < pass->samples; s++) {
        const real *x = input(node, 0) + s * items, *t = (const real *)node->target + s * items;
        const double factor = sample_factor(node, pass, s);
        double loss = 0;
        int64_t counted = 0;
        for (int64_t i = 0; i < items; i++) {
            double given = item_weight(node, pass, s, items, i);
            if (given == 0)
                continue;
            loss += given * (double)x[i] * (double)t[i];
            counted++;
        }
        node->loss[s] = factor == 0 ? 0 : factor * loss;
        node->loss_weight[s] = counted ? factor : 0;
        *node->elements += factor > 0 ? counted : 0;
    }
    return GA_OK;
}

static ga_status backward(const ga_node *node, const ga_pass *pass)
{
    int64_t items = input_elements(node, 0, pass);
    const int adds = node->dx_adds[0];
    for (int64_t s = 0; input_grad(node, 0) && s < pass->samples; s++) {
        const real *t = (const real *)node->target + s * items;
        real *dx = input_grad(node, 0) + s * items;
        for (int64_t i = 0; i < items; i++) {
            const double factor = sample_factor(node, pass, s) * item_weight(node, pass, s, items, i) * pass->scale;
            const real g = factor == 0 ? 0 : (real)factor * t[i];
            dx[i] = adds ? dx[i] + g : g;
        }
    }
    return GA_OK;
}

const ga_layer LAYER(dot_product_loss) = {
    .kind = "dot_product_loss", .min_inputs = 1, .max_inputs = 1, .traits = GA_IS_LOSS, .options = options,
    .plan = plan, .forward = forward, .backward = backward,
};
