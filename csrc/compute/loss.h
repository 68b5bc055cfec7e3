/* What losses share: items (target elements), their weights, and the per="sample" rule.
 *
 * A loss writes, per sample, the sum of the losses of its items and the sum of their weights, in float64. The window adds them
 * up over samples and divides once. An item's weight is its own (class weight, or 1) times the given weight of its element or
 * sample. With per="sample" a sample counts as one: its loss is the weighted mean of its items, its weight 1 (or the given
 * weight of the sample). */
#ifndef GA_LOSS_H
#define GA_LOSS_H
#include "layer.h"

/* The given weight of item i of sample s. */
static inline double item_weight(const ga_node *node, const ga_pass *pass, int64_t s, int64_t items, int64_t i)
{
    return node->sample_weight && pass->weight_per_element ? node->sample_weight[s * items + i] : 1;
}

static inline double sample_factor(const ga_node *node, const ga_pass *pass, int64_t s)
{
    return node->sample_weight && !pass->weight_per_element ? node->sample_weight[s] : 1;
}

/* Stores what sample s adds up to; returns the factor of its items' gradients. */
static inline double finish_sample(const ga_node *node, const ga_pass *pass, int64_t s, int per_sample, double loss, double weight)
{
    double factor = sample_factor(node, pass, s);
    if (factor == 0)                             /* whatever the loss is, it does not count */
        loss = 0;
    if (per_sample) {
        factor = weight > 0 ? factor / weight : 0;
        node->loss[s] = loss * factor;
        node->loss_weight[s] = weight > 0 ? sample_factor(node, pass, s) : 0;
    } else {
        node->loss[s] = loss * factor;
        node->loss_weight[s] = weight * factor;
    }
    return factor;
}
#endif
