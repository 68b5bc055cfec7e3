/* Losses that compare element by element; target t has the shape of the prediction x, each element weighs 1.
 *
 *   mse_loss              l = (x - t)^2                                      dl/dx = 2 (x - t)
 *   l1_loss               l = |x - t|                                        dl/dx = sign(x - t), 0 at 0
 *   bce_with_logits_loss  l = (1 - t) x + q softplus(-x), q = 1 + (pos_weight - 1) t,
 *                         softplus(-x) = max(-x, 0) + log(1 + exp(-|x|))     dl/dx = (1 - t) - q / (1 + exp(x))
 *
 * pos_weight: one number a feature (channel). All as in torch.nn. */
#include "../loss.h"

enum { PER_SAMPLE, HAS_POS_WEIGHT };
static const ga_option_default plain[] = {{"per_sample", 0}, {NULL, 0}};
static const ga_option_default with_pos_weight[] = {{"per_sample", 0}, {"has_pos_weight", 0}, {NULL, 0}};

static ga_status plan(ga_node *node)
{
    node->target_shape = node->in[0];
    node->saved_per_sample = sizeof(double);
    node->state_count = node->option[HAS_POS_WEIGHT] ? features(&node->in[0]) : 0;
    return GA_OK;
}

/* Defines a loss from L and D, the loss and derivative of an element (x, t; q: the weight of positives). */
#define REGRESSION(name, OPTIONS, L, D)                                                                                     \
    static ga_status name##_forward(const ga_node *node, const ga_pass *pass)                                               \
    {                                                                                                                       \
        int64_t items = input_elements(node, 0, pass), channels = features(&node->in[0]);                                   \
        *node->elements = 0;                                                                                                \
        for (int64_t s = 0; s < pass->samples; s++) {                                                                       \
            const real *xs = input(node, 0) + s * items, *ts = (const real *)node->target + s * items;                      \
            double loss = 0, total = 0;                                                                                     \
            for (int64_t i = 0; i < items; i++) {                                                                           \
                const real x = xs[i], t = ts[i], p = node->state ? state(node)[i % channels] : 1, q = 1 + (p - 1) * t;      \
                double given = item_weight(node, pass, s, items, i);                                                        \
                (void)q;                                                                                                    \
                if (given == 0)                                                                                             \
                    continue;                                                                                               \
                loss += given * (double)(L);                                                                                \
                total += given;                                                                                             \
                *node->elements += sample_factor(node, pass, s) > 0;                                                        \
            }                                                                                                               \
            ((double *)node->saved)[s] = finish_sample(node, pass, s, (int)node->option[PER_SAMPLE], loss, total);          \
        }                                                                                                                   \
        return GA_OK;                                                                                                       \
    }                                                                                                                       \
    static ga_status name##_backward(const ga_node *node, const ga_pass *pass)                                              \
    {                                                                                                                       \
        int64_t items = input_elements(node, 0, pass), channels = features(&node->in[0]);                                   \
        const int adds = node->dx_adds[0];                                                                                  \
        for (int64_t s = 0; input_grad(node, 0) && s < pass->samples; s++) {                                                \
            const real *xs = input(node, 0) + s * items, *ts = (const real *)node->target + s * items;                      \
            real *dx = input_grad(node, 0) + s * items;                                                                     \
            for (int64_t i = 0; i < items; i++) {                                                                           \
                const real x = xs[i], t = ts[i], p = node->state ? state(node)[i % channels] : 1, q = 1 + (p - 1) * t;      \
                const double factor = ((const double *)node->saved)[s] * item_weight(node, pass, s, items, i) * pass->scale; \
                (void)q;                                                                                                    \
                const real g = factor == 0 ? 0 : (real)factor * (D);                                                        \
                dx[i] = adds ? dx[i] + g : g;                                                                               \
            }                                                                                                               \
        }                                                                                                                   \
        return GA_OK;                                                                                                       \
    }                                                                                                                       \
    const ga_layer LAYER(name) = {                                                                                          \
        .kind = #name, .min_inputs = 1, .max_inputs = 1, .traits = GA_READS_INPUT | GA_IS_LOSS, .options = OPTIONS,         \
        .plan = plan, .forward = name##_forward, .backward = name##_backward,                                               \
    };

static inline real softplus_minus(real x) { return (x < 0 ? -x : 0) + real_log1p(real_exp(-real_abs(x))); }
static inline real sigmoid_minus(real x)         /* 1 / (1 + exp(x)), no overflow */
{
    return x > 0 ? real_exp(-x) / (1 + real_exp(-x)) : 1 / (1 + real_exp(x));
}

REGRESSION(mse_loss, plain, (x - t) * (x - t), 2 * (x - t))
REGRESSION(l1_loss, plain, real_abs(x - t), (real)((x > t) - (x < t)))
REGRESSION(bce_with_logits_loss, with_pos_weight, (1 - t) * x + q * softplus_minus(x), (1 - t) - q * sigmoid_minus(x))
