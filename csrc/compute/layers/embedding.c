/* embedding: y = row `token` of W, for each token of a sample.
 *
 *   x () or (T,), integers in 0..num_embeddings-1    W (num_embeddings, embedding_dim)    y (dim,) or (T, dim)
 *   dW_token += dy of each place where the token stands; a token equal to padding_idx adds nothing
 *
 * Rows are added in the order of the samples and their steps: any split gives the same bits. Threads divide the columns. */
#include <stdio.h>
#include "../layer.h"

enum { NUM_EMBEDDINGS, EMBEDDING_DIM, PADDING_IDX };
static const ga_option_default options[] = {{"num_embeddings", REQUIRED}, {"embedding_dim", REQUIRED}, {"padding_idx", -1}, {NULL, 0}};

static ga_status embedding_plan(ga_node *node)
{
    char text[64];
    int64_t count = (int64_t)node->option[NUM_EMBEDDINGS], dim = (int64_t)node->option[EMBEDDING_DIM], skip = (int64_t)node->option[PADDING_IDX];
    ga_shape x = node->in[0];
    if (!node->in_integer[0])
        return ga_fail(GA_EVALUE, "%s (embedding): the input holds real numbers, expected a network input of integers (tokens)", node->name);
    if (x.rank > 1)
        return ga_fail(GA_EVALUE, "%s (embedding): the input has shape %s per sample, expected () or (steps,)", node->name,
                       ga_shape_text(&x, text));
    if (count < 1 || dim < 1)
        return ga_fail(GA_EVALUE, "%s (embedding): num_embeddings=%lld, embedding_dim=%lld, expected at least 1", node->name, (long long)count,
                       (long long)dim);
    if (skip < -1 || skip >= count)
        return ga_fail(GA_EVALUE, "%s (embedding): padding_idx=%lld, expected a token from 0 to %lld", node->name, (long long)skip,
                       (long long)(count - 1));
    same_shape(node);
    node->shape.dim[node->shape.rank++] = dim;
    return ga_node_param(node, "weight", 2, (int64_t[]){count, dim});
}

static ga_status embedding_check(const ga_node *node, const ga_pass *pass, const void *data)
{
    const int64_t *token = data;
    int64_t count = (int64_t)node->option[NUM_EMBEDDINGS], items = input_elements(node, 0, pass);
    for (int64_t i = 0; i < pass->samples * items; i++) {
        if (token[i] >= 0 && token[i] < count)
            continue;
        char where[48] = "";
        if (node->in[0].rank)
            snprintf(where, sizeof where, " position %lld", (long long)(i % items));
        return ga_fail(GA_EINDEX, "%s (embedding): sample %lld%s has the token %lld; the vocabulary has %lld, 0 to %lld", node->name,
                       (long long)(i / items), where, (long long)token[i], (long long)count, (long long)(count - 1));
    }
    return GA_OK;
}

typedef struct { const ga_node *node; int64_t rows; int tasks; } job;

static void gather_rows(void *context, int index, int worker)
{
    const job *j = context;
    const int64_t dim = features(&j->node->shape), *token = integer_input(j->node, 0);
    (void)worker;
    for (int64_t r = j->rows * index / j->tasks, end = j->rows * (index + 1) / j->tasks; r < end; r++)
        memcpy(output(j->node) + r * dim, weight(j->node, 0) + token[r] * dim, (size_t)dim * sizeof(real));
}

static void scatter_columns(void *context, int index, int worker)
{
    const job *j = context;
    const int64_t dim = features(&j->node->shape), *token = integer_input(j->node, 0), skip = (int64_t)j->node->option[PADDING_IDX];
    const int64_t from = dim * index / j->tasks, to = dim * (index + 1) / j->tasks;
    (void)worker;
    for (int64_t r = 0; r < j->rows; r++) {
        if (token[r] == skip)
            continue;
        const real *dy = output_grad(j->node) + r * dim;
        real *dw = weight_grad(j->node, 0) + token[r] * dim;
        for (int64_t c = from; c < to; c++)
            dw[c] += dy[c];
    }
}

static job embedding_job(const ga_node *node, const ga_pass *pass)
{
    int64_t rows = pass->samples * input_elements(node, 0, pass);
    return (job){node, rows, rows * features(&node->shape) > 4 * CHUNK ? pass->threads : 1};
}

static ga_status embedding_forward(const ga_node *node, const ga_pass *pass)
{
    job j = embedding_job(node, pass);
    ga_parallel(pass->threads, j.tasks, gather_rows, &j);
    return GA_OK;
}

static ga_status embedding_backward(const ga_node *node, const ga_pass *pass)
{
    job j = embedding_job(node, pass);
    if (weight_grad(node, 0))
        ga_parallel(pass->threads, j.tasks, scatter_columns, &j);
    return GA_OK;
}

const ga_layer LAYER(embedding) = {
    .kind = "embedding", .min_inputs = 1, .max_inputs = 1, .traits = GA_READS_INPUT, .options = options,
    .plan = embedding_plan, .check = embedding_check, .forward = embedding_forward, .backward = embedding_backward,
};
