/* multihead_attention: self-attention (Vaswani et al. 2017, section 3.2), laid out as torch.nn.MultiheadAttention.
 *
 *   x (T, C)    [q k v] = x W_in^T + b_in, (T, 3 C); head h has columns h C / H to (h + 1) C / H of each
 *   heads side by side: o (T, C), see kernels/attention.h       y = o W_out^T + b_out
 *
 *   do = dy W_out, dW_out += dy^T o, db_out += sum of dy;  the heads give d[q k v];  dW_in += d[q k v]^T x, ..., dx = d[q k v] W_in
 *
 * Inputs: x, or lengths and x (integers come first, where check() sees them). Key j of a sample is seen if j < its length, and with
 * `causal` if it is not after the query. Kept for backward: [q k v], o, and two numbers a query and head. Threads divide (sample, head). */
#include "../kernels/attention.h"
#include "../kernels/rows.h"
#include "../random.h"

enum { NUM_HEADS, DROPOUT, HAS_BIAS, CAUSAL };
static const ga_option_default options[] = {{"num_heads", REQUIRED}, {"dropout", 0}, {"bias", 1}, {"causal", 0}, {NULL, 0}};

static int x_of(const ga_node *node) { return node->n_inputs - 1; }
static int64_t heads_of(const ga_node *node) { return (int64_t)node->option[NUM_HEADS]; }
static real *packed_out(const ga_node *node)
{
    int64_t c = features(&node->shape);
    return (real *)node->packed + matmul_packed_count(c, 3 * c);
}

static real *packed_back_out(const ga_node *node)
{
    int64_t c = features(&node->shape);
    return (real *)node->packed_back + matmul_packed_count(3 * c, c);
}

static ga_status attention_plan(ga_node *node)
{
    char text[64];
    ga_shape x = node->in[x_of(node)];
    int64_t c = features(&x), three = 3 * c, heads = heads_of(node);
    if (x.rank != 2 || node->in_integer[x_of(node)])
        return ga_fail(GA_EVALUE, "%s (multihead_attention): the input has shape %s per sample, expected reals of (steps, features)", node->name,
                       ga_shape_text(&x, text));
    if (node->n_inputs == 2 && (!node->in_integer[0] || node->in[0].rank))
        return ga_fail(GA_EVALUE, "%s (multihead_attention): lengths have shape %s per sample, expected (), one integer", node->name,
                       ga_shape_text(&node->in[0], text));
    if (heads < 1 || c % heads)
        return ga_fail(GA_EVALUE, "%s (multihead_attention): num_heads=%lld does not divide %lld features", node->name, (long long)heads,
                       (long long)c);
    if (!(node->option[DROPOUT] >= 0 && node->option[DROPOUT] <= 1))
        return ga_fail(GA_EVALUE, "%s (multihead_attention): dropout=%g, expected a probability in [0, 1]", node->name, node->option[DROPOUT]);
    node->shape = x;
    node->sequence = node->in_sequence[x_of(node)];
    /* four projections, scores and their sums; a causal head sees half of them */
    node->flops = 8.0 * (double)(x.dim[0] * c) * (double)c + (node->option[CAUSAL] ? 2.0 : 4.0) * (double)(x.dim[0] * x.dim[0]) * (double)c;
    node->saved_per_sample = x.dim[0] * (4 * c + 2 * heads) * (int64_t)sizeof(real);
    node->work_per_sample = x.dim[0] * 4 * c * (int64_t)sizeof(real);
    node->work_per_thread = attention_work(x.dim[0], c / heads) * (int64_t)sizeof(real);
    if (node->engine == GA_NATIVE) {
        node->packed_bytes = (matmul_packed_count(c, three) + matmul_packed_count(c, c)) * (int64_t)sizeof(real);
        node->packed_back_bytes = (matmul_packed_count(three, c) + matmul_packed_count(c, c)) * (int64_t)sizeof(real);
    }
    ga_status status = ga_node_param(node, "in_proj_weight", 2, (int64_t[]){three, c});
    if (!status && node->option[HAS_BIAS])
        status = ga_node_param(node, "in_proj_bias", 1, &three);
    if (!status)
        status = ga_node_param(node, "out_proj.weight", 2, (int64_t[]){c, c});
    if (!status && node->option[HAS_BIAS])
        status = ga_node_param(node, "out_proj.bias", 1, &c);
    return status;
}

static ga_status attention_check(const ga_node *node, const ga_pass *pass, const void *data)
{
    const int64_t *length = data;
    int64_t steps = node->sequence ? pass->length : node->shape.dim[0];
    for (int64_t s = 0; node->n_inputs == 2 && s < pass->samples; s++) {
        if (length[s] < 1)
            return ga_fail(GA_EVALUE, "%s (multihead_attention): sample %lld has length %lld, which hides every key; lengths are at least 1",
                           node->name, (long long)s, (long long)length[s]);
        if (length[s] > steps)
            return ga_fail(GA_EVALUE, "%s (multihead_attention): sample %lld has length %lld, but the sequences of this batch have %lld steps",
                           node->name, (long long)s, (long long)length[s], (long long)steps);
    }
    return GA_OK;
}

static void attention_pack(const ga_node *node, int threads)
{
    int64_t c = features(&node->shape);
    matmul_pack(threads, c, 3 * c, (matrix){weight(node, 0), 1, c}, node->packed);
    matmul_pack(threads, c, c, (matrix){weight(node, node->n_params / 2), 1, c}, packed_out(node));
    if (node->packed_back) {
        matmul_pack(threads, 3 * c, c, (matrix){weight(node, 0), c, 1}, node->packed_back);
        matmul_pack(threads, c, c, (matrix){weight(node, node->n_params / 2), c, 1}, packed_back_out(node));
    }
}

/* What one pass works on: what forward keeps, and the gradients of the same in backward. */
typedef struct {
    const ga_node *node;
    const ga_pass *pass;
    int64_t steps, rows, c;
    real *qkv, *o, *kept;
    real *d_o, *d_qkv;
} job;

static job attention_job(const ga_node *node, const ga_pass *pass)
{
    job j = {.node = node, .pass = pass, .c = features(&node->shape), .steps = node->sequence ? pass->length : node->shape.dim[0]};
    j.rows = pass->samples * j.steps;
    j.qkv = node->saved;
    j.o = j.qkv + j.rows * 3 * j.c;
    j.kept = j.o + j.rows * j.c;
    j.d_o = node->work;
    j.d_qkv = j.d_o + j.rows * j.c;
    return j;
}

static attention head_of(const job *j, int index)
{
    const ga_node *node = j->node;
    int64_t heads = heads_of(node), sample = index / heads, head = index % heads, c = j->c, size = c / heads;
    int64_t at = sample * j->steps * 3 * c + head * size, out_at = sample * j->steps * c + head * size;
    return (attention){
        .engine = node->engine, .steps = j->steps, .keys = node->n_inputs == 2 ? integer_input(node, 0)[sample] : j->steps, .size = size,
        .row = 3 * c, .out_row = c, .causal = node->option[CAUSAL] != 0,
        .q = j->qkv + at, .k = j->qkv + at + c, .v = j->qkv + at + 2 * c, .out = j->o + out_at, .kept = j->kept + (int64_t)index * j->steps * 2,
        .d_out = j->d_o + out_at, .dq = j->d_qkv + at, .dk = j->d_qkv + at + c, .dv = j->d_qkv + at + 2 * c,
        .drop = j->pass->training ? node->option[DROPOUT] : 0, .head = (uint64_t)head,
        .stream = random_stream(j->pass->seed, j->pass->update, (uint64_t)node->index, (uint64_t)(j->pass->first_sample + sample)),
    };
}

static void forward_head(void *context, int index, int worker)
{
    const job *j = context;
    attention a = head_of(j, index);
    attention_forward(&a, thread_work(j->node, worker));
}

static void backward_head(void *context, int index, int worker)
{
    const job *j = context;
    attention a = head_of(j, index);
    attention_backward(&a, thread_work(j->node, worker));
}

static void each_head(const job *j, void (*task)(void *, int, int))
{
    int worth = (double)j->rows * (double)j->steps * (double)j->c > 1e6;
    ga_parallel(worth ? j->pass->threads : 1, (int)(j->pass->samples * heads_of(j->node)), task, (void *)j);
}

static ga_status multihead_attention_forward(const ga_node *node, const ga_pass *pass)
{
    job j = attention_job(node, pass);
    const real *x = input(node, x_of(node));
    const int biased = node->n_params == 4, second = node->n_params / 2;
    const real *b_in = biased ? weight(node, 1) : NULL, *b_out = biased ? weight(node, 3) : NULL;
    start from = biased ? FROM_BIAS : FROM_ZERO;
    if (node->packed)
        matmul_packed(pass->threads, j.rows, 3 * j.c, j.c, (matrix){x, j.c, 1}, node->packed, j.qkv, 3 * j.c, from, b_in);
    else
        matmul(node->engine, pass->threads, j.rows, 3 * j.c, j.c, (matrix){x, j.c, 1}, (matrix){weight(node, 0), 1, j.c}, j.qkv, 3 * j.c, from,
               b_in);
    each_head(&j, forward_head);
    if (node->packed)
        matmul_packed(pass->threads, j.rows, j.c, j.c, (matrix){j.o, j.c, 1}, packed_out(node), output(node), j.c, from, b_out);
    else
        matmul(node->engine, pass->threads, j.rows, j.c, j.c, (matrix){j.o, j.c, 1}, (matrix){weight(node, second), 1, j.c}, output(node), j.c,
               from, b_out);
    return GA_OK;
}

/* Of y = x W^T + b: dW += dy^T x and db += sum of dy, rows in order. */
static void projection_gradients(const job *j, int param, int64_t out, const real *dy, const real *x)
{
    const ga_node *node = j->node;
    real *dw = weight_grad(node, param), *db = node->n_params == 4 ? weight_grad(node, param + 1) : NULL;
    if (dw)
        matmul(node->engine, j->pass->threads, out, j->c, j->rows, (matrix){dy, 1, out}, (matrix){x, j->c, 1}, dw, j->c, FROM_C, NULL);
    if (db)
        add_rows(j->rows, out, dy, out, db);
}

/* to = dy W, W (out, C) */
static void through(const job *j, int64_t out, const real *dy, const real *w, const real *panels, real *to, start from)
{
    matrix left = {dy, out, 1};
    if (panels)
        matmul_packed(j->pass->threads, j->rows, j->c, out, left, panels, to, j->c, from, NULL);
    else
        matmul(j->node->engine, j->pass->threads, j->rows, j->c, out, left, (matrix){w, j->c, 1}, to, j->c, from, NULL);
}

static ga_status multihead_attention_backward(const ga_node *node, const ga_pass *pass)
{
    job j = attention_job(node, pass);
    const real *x = input(node, x_of(node)), *dy = output_grad(node);
    const int second = node->n_params / 2;
    real *dx = input_grad(node, x_of(node));
    projection_gradients(&j, second, j.c, dy, j.o);
    through(&j, j.c, dy, weight(node, second), node->packed_back ? packed_back_out(node) : NULL, j.d_o, FROM_ZERO);
    each_head(&j, backward_head);
    projection_gradients(&j, 0, 3 * j.c, j.d_qkv, x);
    if (dx)
        through(&j, 3 * j.c, j.d_qkv, weight(node, 0), node->packed_back, dx, node->dx_adds[x_of(node)] ? FROM_C : FROM_ZERO);
    return GA_OK;
}

const ga_layer LAYER(multihead_attention) = {
    .kind = "multihead_attention", .min_inputs = 1, .max_inputs = 2, .traits = GA_READS_INPUT, .options = options,
    .plan = attention_plan, .check = attention_check, .pack = attention_pack,
    .forward = multihead_attention_forward, .backward = multihead_attention_backward,
};
