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

typedef struct { const ga_node *node; int64_t n; } job;

static void add_chunk(void *context, int index, int worker)
{
    const job *j = context;
    const real *a = input(j->node, 0), *b = input(j->node, 1);
    real *y = output(j->node);
    (void)worker;
    for (int64_t i = (int64_t)index * CHUNK, end = chunk_end(j->n, index); i < end; i++)
        y[i] = a[i] + b[i];
}

static ga_status add_forward(const ga_node *node, const ga_pass *pass)
{
    job j = {node, pass->samples * output_elements(node, pass)};
    ga_parallel(pass->threads, chunks(j.n), add_chunk, &j);
    return GA_OK;
}

static void gradient_chunk(void *context, int index, int worker)
{
    const job *j = context;
    const real *dy = output_grad(j->node);
    const int64_t from = (int64_t)index * CHUNK, end = chunk_end(j->n, index);
    (void)worker;
    for (int k = 0; k < 2; k++) {
        real *dx = input_grad(j->node, k);
        if (!dx)
            continue;
        if (j->node->dx_adds[k])
            for (int64_t i = from; i < end; i++)
                dx[i] += dy[i];
        else if (dx != dy)                       /* the gradient of input 0 may lie over dy */
            memcpy(dx + from, dy + from, (size_t)(end - from) * sizeof(real));
    }
}

static ga_status add_backward(const ga_node *node, const ga_pass *pass)
{
    job j = {node, pass->samples * output_elements(node, pass)};
    ga_parallel(pass->threads, chunks(j.n), gradient_chunk, &j);
    return GA_OK;
}

const ga_layer LAYER(add) = {
    .kind = "add", .min_inputs = 2, .max_inputs = 2, .traits = GA_IN_PLACE,
    .plan = add_plan, .forward = add_forward, .backward = add_backward,
};
