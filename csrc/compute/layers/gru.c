/* gru: one layer, one direction (Cho et al. 2014, in PyTorch's form), gates in PyTorch's order r, z, n.
 *
 *   x (T, C)    W_ih (3 H, C)    W_hh (3 H, H)    b_ih, b_hh (3 H,)    y (T, H) = h_1 ... h_T;  h_0 = 0
 *   a_t = W_ih x_t + b_ih,   u_t = W_hh h_(t-1) + b_hh
 *   r = s(a_r + u_r),  z = s(a_z + u_z),  n = tanh(a_n + r u_n),   h_t = (1 - z) n + z h_(t-1),   s(x) = 1 / (1 + exp(-x))
 *
 * Backward in time, with dh_t = dy_t + z_(t+1) dh_(t+1) + W_hh^T du_(t+1):
 *   da_n = dh (1 - z) (1 - n^2),  da_z = dh (h_(t-1) - n) z (1 - z),  da_r = da_n u_n r (1 - r);  du = (da_r, da_z, r da_n)
 *   dx_t = W_ih^T da_t;   dW_ih += da_t x_t^T,  dW_hh += du_t h_(t-1)^T,  db_ih += da_t,  db_hh += du_t: for each sample, for each t
 *
 * As in lstm.c the micro-batch walks through time together, and threads divide samples. Kept: r, z, n, u_n. */
#include "../kernels/exp.h"
#include "../kernels/matmul.h"
#include "../kernels/rows.h"

enum { HIDDEN_SIZE, HAS_BIAS };
static const ga_option_default options[] = {{"hidden_size", REQUIRED}, {"bias", 1}, {NULL, 0}};
enum { W_IH, W_HH, B_IH, B_HH };

static ga_status gru_plan(ga_node *node)
{
    char text[64];
    ga_shape x = node->in[0];
    int64_t in = features(&x), hidden = (int64_t)node->option[HIDDEN_SIZE], three = 3 * hidden;
    if (x.rank != 2)
        return ga_fail(GA_EVALUE, "%s (gru): the input has shape %s per sample, expected (steps, features)", node->name, ga_shape_text(&x, text));
    if (hidden < 1)
        return ga_fail(GA_EVALUE, "%s (gru): hidden_size=%lld, expected at least 1", node->name, (long long)hidden);
    same_shape(node);
    node->shape.dim[1] = hidden;
    node->saved_per_sample = x.dim[0] * 4 * hidden * (int64_t)sizeof(real);
    node->work_per_sample = (x.dim[0] * 5 * hidden + 3 * hidden) * (int64_t)sizeof(real);
    node->flops = 2.0 * (double)x.dim[0] * (double)(in + hidden) * (double)three;
    if (node->engine == GA_NATIVE)
        node->packed_bytes = (matmul_packed_count(in, three) + matmul_packed_count(hidden, three)) * (int64_t)sizeof(real);
    ga_status status = ga_node_param(node, "weight_ih_l0", 2, (int64_t[]){three, in});
    if (!status)
        status = ga_node_param(node, "weight_hh_l0", 2, (int64_t[]){three, hidden});
    if (!status && node->option[HAS_BIAS] && !(status = ga_node_param(node, "bias_ih_l0", 1, &three)))
        status = ga_node_param(node, "bias_hh_l0", 1, &three);
    return status;
}

static const real *packed_hh(const ga_node *node)
{
    return (const real *)node->packed + matmul_packed_count(features(&node->in[0]), 3 * features(&node->shape));
}

static void gru_pack(const ga_node *node, int threads)
{
    int64_t in = features(&node->in[0]), hidden = features(&node->shape);
    matmul_pack(threads, in, 3 * hidden, (matrix){weight(node, W_IH), 1, in}, node->packed);
    matmul_pack(threads, hidden, 3 * hidden, (matrix){weight(node, W_HH), 1, hidden}, (real *)packed_hh(node));
}

typedef struct {
    const ga_node *node;
    int64_t samples, steps, rows, hidden;
    real *gates;                                 /* kept: r, z, n, u_n; in forward first a */
    real *u;                                     /* of forward, 3 H per sample */
    real *d_gates, *before, *d_h;                /* of backward: da_r, da_z, da_n, du_n; h_(t-1) of each row; per sample dh from t + 1 */
    int tasks;
} job;

static job gru_job(const ga_node *node, const ga_pass *pass)
{
    job j = {.node = node, .samples = pass->samples, .hidden = features(&node->shape), .steps = node->sequence ? pass->length : node->shape.dim[0]};
    j.rows = j.samples * j.steps;
    j.gates = node->saved;
    j.u = j.d_gates = node->work;
    j.before = j.d_gates + j.rows * 4 * j.hidden;
    j.d_h = j.before + j.rows * j.hidden;
    int worth = (double)j.rows * (double)j.hidden * (double)j.hidden > 1e6 && j.samples > 1;
    j.tasks = worth ? (int)(pass->threads < j.samples ? pass->threads : j.samples) : 1;
    return j;
}

static void forward_step(const job *j, int64_t s, int64_t t)
{
    const int64_t h = j->hidden, at = s * j->steps + t;
    real *a = j->gates + at * 4 * h, *y = output(j->node) + at * h;
    const real *u = j->u + s * 3 * h;
    for (int64_t k = 0; k < h; k += LANES) {
        const int64_t n = smaller(LANES, h - k);
        vec before = t ? load_first(y - h + k, n, 0) : broadcast(0), u_n = load_first(u + 2 * h + k, n, 0);
        vec r = sigmoid_vec(load_first(a + k, n, 0) + load_first(u + k, n, 0));
        vec z = sigmoid_vec(load_first(a + h + k, n, 0) + load_first(u + h + k, n, 0));
        vec new = tanh_vec(multiply_add_vec(r, u_n, load_first(a + 2 * h + k, n, 0)));
        store_first(a + k, n, r);
        store_first(a + h + k, n, z);
        store_first(a + 2 * h + k, n, new);
        store_first(a + 3 * h + k, n, u_n);
        store_first(y + k, n, multiply_add_vec(z, before - new, new));
    }
}

static void forward_samples(void *context, int index, int worker)
{
    const job *j = context;
    const ga_node *node = j->node;
    const int64_t h = j->hidden, three = 3 * h, from = j->samples * index / j->tasks, to = j->samples * (index + 1) / j->tasks;
    const real *b = node->n_params > B_HH ? weight(node, B_HH) : NULL;
    (void)worker;
    for (int64_t t = 0; t < j->steps; t++) {
        matrix last = {t ? output(node) + (from * j->steps + t - 1) * h : NULL, j->steps * h, 1};
        real *u = j->u + from * three;
        if (!t)
            for (int64_t i = 0; i < (to - from) * three; i++)
                u[i] = b ? b[i % three] : 0;
        else if (node->packed)
            matmul_packed(1, to - from, three, h, last, packed_hh(node), u, three, b ? FROM_BIAS : FROM_ZERO, b);
        else
            matmul(node->engine, 1, to - from, three, h, last, (matrix){weight(node, W_HH), 1, h}, u, three, b ? FROM_BIAS : FROM_ZERO, b);
        for (int64_t s = from; s < to; s++)
            forward_step(j, s, t);
    }
}

static ga_status gru_forward(const ga_node *node, const ga_pass *pass)
{
    job j = gru_job(node, pass);
    int64_t in = features(&node->in[0]), three = 3 * j.hidden, row = 4 * j.hidden;
    matrix x = {input(node, 0), in, 1};
    const real *b = node->n_params > B_IH ? weight(node, B_IH) : NULL;
    if (node->packed)
        matmul_packed(pass->threads, j.rows, three, in, x, node->packed, j.gates, row, b ? FROM_BIAS : FROM_ZERO, b);
    else
        matmul(node->engine, pass->threads, j.rows, three, in, x, (matrix){weight(node, W_IH), 1, in}, j.gates, row, b ? FROM_BIAS : FROM_ZERO, b);
    ga_parallel(pass->threads, j.tasks, forward_samples, &j);
    return GA_OK;
}

static void backward_step(const job *j, int64_t s, int64_t t)
{
    const int64_t h = j->hidden, at = s * j->steps + t;
    const real *a = j->gates + at * 4 * h, *y = output(j->node) + at * h, *dy = output_grad(j->node) + at * h;
    real *da = j->d_gates + at * 4 * h, *d_h = j->d_h + s * h, *now = j->before + at * h;
    const vec one = broadcast(1);
    for (int64_t k = 0; k < h; k += LANES) {
        const int64_t n = smaller(LANES, h - k);
        vec r = load_first(a + k, n, 0), z = load_first(a + h + k, n, 0), new = load_first(a + 2 * h + k, n, 0), u_n = load_first(a + 3 * h + k, n, 0);
        vec before = t ? load_first(y - h + k, n, 0) : broadcast(0), dh = load_first(dy + k, n, 0);
        if (t < j->steps - 1)
            dh += load_first(d_h + k, n, 0);
        vec d_n = dh * (one - z) * (one - new * new);
        store_first(da + k, n, d_n * u_n * r * (one - r));
        store_first(da + h + k, n, dh * (before - new) * z * (one - z));
        store_first(da + 2 * h + k, n, d_n);
        store_first(da + 3 * h + k, n, d_n * r);
        store_first(d_h + k, n, dh * z);
        store_first(now + k, n, before);
    }
}

static void backward_samples(void *context, int index, int worker)
{
    const job *j = context;
    const ga_node *node = j->node;
    const real *w = weight(node, W_HH);
    const int64_t h = j->hidden, from = j->samples * index / j->tasks, to = j->samples * (index + 1) / j->tasks;
    (void)worker;
    for (int64_t t = j->steps - 1; t >= 0; t--) {
        const real *after = j->d_gates + (from * j->steps + t + 1) * 4 * h;
        real *d_h = j->d_h + from * h;
        if (t < j->steps - 1) {                  /* d_h holds z dh of t + 1 */
            matmul(node->engine, 1, to - from, h, 2 * h, (matrix){after, j->steps * 4 * h, 1}, (matrix){w, h, 1}, d_h, h, FROM_C, NULL);
            matmul(node->engine, 1, to - from, h, h, (matrix){after + 3 * h, j->steps * 4 * h, 1}, (matrix){w + 2 * h * h, h, 1}, d_h, h, FROM_C,
                   NULL);
        }
        for (int64_t s = from; s < to; s++)
            backward_step(j, s, t);
    }
}

static ga_status gru_backward(const ga_node *node, const ga_pass *pass)
{
    job j = gru_job(node, pass);
    int64_t in = features(&node->in[0]), h = j.hidden, row = 4 * h;
    real *dx = input_grad(node, 0), *dw = weight_grad(node, W_HH);
    const real *d_new = j.d_gates + 3 * h;       /* du_n; du_r and du_z are da_r and da_z */
    ga_parallel(pass->threads, j.tasks, backward_samples, &j);
    if (weight_grad(node, W_IH))
        matmul(node->engine, pass->threads, 3 * h, in, j.rows, (matrix){j.d_gates, 1, row}, (matrix){input(node, 0), in, 1}, weight_grad(node, W_IH),
               in, FROM_C, NULL);
    if (dw) {
        matmul(node->engine, pass->threads, 2 * h, h, j.rows, (matrix){j.d_gates, 1, row}, (matrix){j.before, h, 1}, dw, h, FROM_C, NULL);
        matmul(node->engine, pass->threads, h, h, j.rows, (matrix){d_new, 1, row}, (matrix){j.before, h, 1}, dw + 2 * h * h, h, FROM_C, NULL);
    }
    if (node->n_params > B_IH && weight_grad(node, B_IH))
        add_rows(j.rows, 3 * h, j.d_gates, row, weight_grad(node, B_IH));
    if (node->n_params > B_HH && weight_grad(node, B_HH)) {
        add_rows(j.rows, 2 * h, j.d_gates, row, weight_grad(node, B_HH));
        add_rows(j.rows, h, d_new, row, weight_grad(node, B_HH) + 2 * h);
    }
    if (dx)
        matmul(node->engine, pass->threads, j.rows, in, 3 * h, (matrix){j.d_gates, row, 1}, (matrix){weight(node, W_IH), in, 1}, dx, in,
               node->dx_adds[0] ? FROM_C : FROM_ZERO, NULL);
    return GA_OK;
}

const ga_layer LAYER(gru) = {
    .kind = "gru", .min_inputs = 1, .max_inputs = 1, .traits = GA_READS_INPUT | GA_READS_OUTPUT, .options = options,
    .plan = gru_plan, .pack = gru_pack, .forward = gru_forward, .backward = gru_backward,
};
