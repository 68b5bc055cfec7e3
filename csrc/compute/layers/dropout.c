/* dropout: y = x / (1 - p) with probability 1 - p, else 0; evaluation: y = x (Srivastava et al. 2014). dropout2d: the same for
 * whole channels of an image (Tompson et al. 2015).
 *
 * The mask is a function of (seed, update, node, sample in the window, element): it is made again in backward instead of being
 * saved, and a sample's mask does not depend on the micro-batch that it came in. */
#include "../layer.h"
#include "../random.h"

enum { P };
static const ga_option_default options[] = {{"p", 0.5}, {NULL, 0}};

static ga_status dropout_plan(ga_node *node)
{
    if (!(node->option[P] >= 0 && node->option[P] <= 1))
        return ga_fail(GA_EVALUE, "%s (%s): p=%g, expected a probability in [0, 1]", node->name, node->layer->kind, node->option[P]);
    return same_shape(node);
}

extern const ga_layer LAYER(dropout2d);

static ga_status dropout2d_plan(ga_node *node)
{
    ga_status status = needs_image(node);
    return status ? status : dropout_plan(node);
}

typedef struct { const ga_node *node; const ga_pass *pass; const real *from; real *to; int adds; } job;

static void dropout_sample(void *context, int s, int worker)
{
    const job *j = context;
    const double p = j->node->option[P];
    const uint32_t threshold = (uint32_t)floor(p * 4294967296.0 < 4294967295.0 ? p * 4294967296.0 : 4294967295.0);
    const real keep = p < 1 ? (real)(1 / (1 - p)) : 0;
    int64_t n = output_elements(j->node, j->pass);
    int64_t channels = j->node->layer == &LAYER(dropout2d) ? features(&j->node->shape) : 0;
    uint64_t stream = random_stream(j->pass->seed, j->pass->update, (uint64_t)j->node->index, (uint64_t)(j->pass->first_sample + s));
    const real *from = j->from + s * n;
    real *to = j->to + s * n;
    (void)worker;
    for (int64_t i = 0; i < n; i++) {
        real y = random_element(stream, (uint32_t)(channels ? i % channels : i)) < threshold ? 0 : from[i] * keep;
        to[i] = j->adds ? to[i] + y : y;
    }
}

static void pass_through(const job *j)
{
    int64_t n = j->pass->samples * output_elements(j->node, j->pass);
    for (int64_t i = 0; i < n; i++)
        j->to[i] = j->adds ? j->to[i] + j->from[i] : j->from[i];
}

static void dropout_run(const ga_node *node, const ga_pass *pass, const real *from, real *to, int adds)
{
    job j = {node, pass, from, to, adds};
    if (!pass->training || node->option[P] == 0)
        pass_through(&j);
    else
        ga_parallel(output_elements(node, pass) * pass->samples > CHUNK ? pass->threads : 1, (int)pass->samples, dropout_sample, &j);
}

static ga_status dropout_forward(const ga_node *node, const ga_pass *pass)
{
    dropout_run(node, pass, input(node, 0), output(node), 0);
    return GA_OK;
}

static ga_status dropout_backward(const ga_node *node, const ga_pass *pass)
{
    if (input_grad(node, 0))
        dropout_run(node, pass, output_grad(node), input_grad(node, 0), node->dx_adds[0]);
    return GA_OK;
}

const ga_layer LAYER(dropout) = {
    .kind = "dropout", .min_inputs = 1, .max_inputs = 1, .traits = GA_IN_PLACE, .options = options,
    .plan = dropout_plan, .forward = dropout_forward, .backward = dropout_backward,
};
const ga_layer LAYER(dropout2d) = {
    .kind = "dropout2d", .min_inputs = 1, .max_inputs = 1, .traits = GA_IN_PLACE, .options = options,
    .plan = dropout2d_plan, .forward = dropout_forward, .backward = dropout_backward,
};
