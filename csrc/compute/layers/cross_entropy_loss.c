/* cross_entropy_loss: logits x (C,), (T, C) or (C, H, W); target y in 0..C-1, one per sample, step or pixel.
 *
 *   item loss    l = w_y (1 - e) (Z - x_y) + e / C * sum over c of w_c (Z - x_c),     Z = log sum over c of exp x_c
 *   item weight  w_y; a target equal to ignore_index counts nothing
 *   dl/dx_c    = w_y (1 - e) (p_c - [c = y]) + e / C * (p_c * sum over j of w_j - w_c),     p_c = exp(x_c - Z)
 *
 * w: class weights (all 1 by default), e: label smoothing (Szegedy et al. 2016), both as in torch.nn.functional.cross_entropy.
 * Z is kept for backward; the probabilities are not. */
#include <stdio.h>
#include "../loss.h"

enum { IGNORE_INDEX, LABEL_SMOOTHING, HAS_WEIGHT, PER_SAMPLE };
static const ga_option_default options[] = {
    {"ignore_index", -100}, {"label_smoothing", 0}, {"has_weight", 0}, {"per_sample", 0}, {NULL, 0},
};

static ga_status cross_entropy_plan(ga_node *node)
{
    const ga_shape *x = &node->in[0];
    double e = node->option[LABEL_SMOOTHING];
    if (x->rank < 1)
        return ga_fail(GA_EVALUE, "%s: the prediction has no class axis", node->name);
    if (!(e >= 0 && e <= 1))
        return ga_fail(GA_EVALUE, "%s: label_smoothing=%g, expected a number in [0, 1]", node->name, e);
    node->target_integer = 1;
    node->target_shape.rank = x->rank - 1;
    for (int i = 0; i < x->rank - 1; i++)
        node->target_shape.dim[i] = x->rank == 3 ? x->dim[i + 1] : x->dim[i];
    node->state_count = node->option[HAS_WEIGHT] ? features(x) : 0;
    node->saved_per_sample = (ga_elements(&node->target_shape) + 1) * (int64_t)sizeof(double);
    return GA_OK;
}

static ga_status cross_entropy_check(const ga_node *node, const ga_pass *pass, const void *data)
{
    const int64_t *target = data;
    int64_t classes = features(&node->in[0]), items = input_elements(node, 0, pass) / classes;
    for (int64_t i = 0; i < pass->samples * items; i++) {
        if (target[i] == (int64_t)node->option[IGNORE_INDEX] || (target[i] >= 0 && target[i] < classes))
            continue;
        char where[48] = "";
        if (items > 1)
            snprintf(where, sizeof where, " position %lld", (long long)(i % items));
        return ga_fail(GA_EINDEX, "%s: sample %lld%s has the label %lld; allowed are 0 to %lld, and ignore_index=%lld", node->name,
                       (long long)(i / items), where, (long long)target[i], (long long)(classes - 1),
                       (long long)node->option[IGNORE_INDEX]);
    }
    return GA_OK;
}

static double class_weight(const ga_node *node, int64_t c) { return node->state ? (double)state(node)[c] : 1; }

static double log_sum_exp(const real *x, int64_t n)
{
    real max = x[0];
    double sum = 0;
    for (int64_t c = 1; c < n; c++)
        max = x[c] > max ? x[c] : max;
    if (isinf(max) && max < 0)
        return max;
    for (int64_t c = 0; c < n; c++)
        sum += (double)real_exp(x[c] - max);
    return (double)max + log(sum);
}

static ga_status cross_entropy_forward(const ga_node *node, const ga_pass *pass)
{
    int64_t classes = features(&node->in[0]), items = input_elements(node, 0, pass) / classes, ignore = (int64_t)node->option[IGNORE_INDEX];
    const double e = node->option[LABEL_SMOOTHING];
    double *saved = node->saved;
    *node->elements = 0;
    for (int64_t s = 0; s < pass->samples; s++) {
        const int64_t *target = (const int64_t *)node->target + s * items;
        double loss = 0, total = 0, *z = saved + s * (items + 1);
        for (int64_t i = 0; i < items; i++) {
            const real *x = input(node, 0) + (s * items + i) * classes;
            int64_t y = target[i];
            double given = item_weight(node, pass, s, items, i), smooth = 0;
            if (y == ignore || given == 0)
                continue;
            z[i] = log_sum_exp(x, classes);
            for (int64_t c = 0; e > 0 && c < classes; c++)
                smooth += class_weight(node, c) * (z[i] - (double)x[c]);
            loss += given * ((1 - e) * class_weight(node, y) * (z[i] - (double)x[y]) + e / (double)classes * smooth);
            total += given * class_weight(node, y);
            *node->elements += sample_factor(node, pass, s) > 0;
        }
        z[items] = finish_sample(node, pass, s, (int)node->option[PER_SAMPLE], loss, total);
    }
    return GA_OK;
}

typedef struct { const ga_node *node; const ga_pass *pass; } job;

static void cross_entropy_gradient(void *context, int s, int worker)
{
    const ga_node *node = ((const job *)context)->node;
    const ga_pass *pass = ((const job *)context)->pass;
    int64_t classes = features(&node->in[0]), items = input_elements(node, 0, pass) / classes, ignore = (int64_t)node->option[IGNORE_INDEX];
    const int64_t *target = (const int64_t *)node->target + s * items;
    const double *z = (const double *)node->saved + s * (items + 1), e = node->option[LABEL_SMOOTHING];
    const int adds = node->dx_adds[0];
    double all = 0;
    (void)worker;
    for (int64_t c = 0; e > 0 && c < classes; c++)
        all += class_weight(node, c);
    for (int64_t i = 0; i < items; i++) {
        const real *x = input(node, 0) + (s * items + i) * classes;
        real *dx = input_grad(node, 0) + (s * items + i) * classes;
        int64_t y = target[i];
        double factor = z[items] * item_weight(node, pass, s, items, i) * pass->scale;
        if (y == ignore || factor == 0) {
            for (int64_t c = 0; c < classes && !adds; c++)
                dx[c] = 0;
            continue;
        }
        const real hit = (real)(factor * (1 - e) * class_weight(node, y));
        const real of_p = (real)(factor * ((1 - e) * class_weight(node, y) + e / (double)classes * all));
        const real lse = (real)z[i];
        for (int64_t c = 0; c < classes; c++) {
            real g = of_p * real_exp(x[c] - lse);
            if (c == y)
                g -= hit;
            if (e > 0)
                g -= (real)(factor * e / (double)classes * class_weight(node, c));
            dx[c] = adds ? dx[c] + g : g;
        }
    }
}

static ga_status cross_entropy_backward(const ga_node *node, const ga_pass *pass)
{
    job j = {node, pass};
    if (input_grad(node, 0))
        ga_parallel(pass->samples * input_elements(node, 0, pass) > CHUNK ? pass->threads : 1, (int)pass->samples,
                    cross_entropy_gradient, &j);
    return GA_OK;
}

const ga_layer LAYER(cross_entropy_loss) = {
    .kind = "cross_entropy_loss", .min_inputs = 1, .max_inputs = 1, .traits = GA_READS_INPUT | GA_IS_LOSS, .options = options,
    .plan = cross_entropy_plan, .check = cross_entropy_check, .forward = cross_entropy_forward, .backward = cross_entropy_backward,
};
