/* lstm: one layer, one direction (Hochreiter, Schmidhuber 1997; forget gate of Gers et al. 2000), gates in PyTorch's order i, f, g, o.
 *
 *   x (T, C)    W_ih (4 H, C)    W_hh (4 H, H)    b_ih, b_hh (4 H,)    y (T, H) = h_1 ... h_T;  h_0 = c_0 = 0
 *   a_t = W_ih x_t + b_ih + W_hh h_(t-1) + b_hh,   i = s(a_i), f = s(a_f), g = tanh(a_g), o = s(a_o),  s(x) = 1 / (1 + exp(-x))
 *   c_t = f c_(t-1) + i g,   h_t = o tanh c_t
 *
 * Backward in time, with dh_t = dy_t + W_hh^T da_(t+1) and dc_t = dh_t o (1 - tanh(c_t)^2) + dc_(t+1) f_(t+1):
 *   da_o = dh tanh(c) o (1 - o),  da_i = dc g i (1 - i),  da_f = dc c_(t-1) f (1 - f),  da_g = dc i (1 - g^2)
 *   dx_t = W_ih^T da_t;   dW_ih += da_t x_t^T,  dW_hh += da_t h_(t-1)^T,  db += da_t: for each sample, for each t
 *
 * The micro-batch walks through time together: its samples are the rows of a product with W_hh, each a chain of its own. Threads
 * divide samples. Kept: the gates and c. */
#include "../kernels/exp.h"
#include "../kernels/matmul.h"
#include "../kernels/rows.h"

enum { HIDDEN_SIZE, HAS_BIAS };
static const ga_option_default options[] = {{"hidden_size", REQUIRED}, {"bias", 1}, {NULL, 0}};
enum { W_IH, W_HH, B_IH, B_HH };

static ga_status lstm_plan(ga_node *node)
{
    char text[64];
    ga_shape x = node->in[0];
    int64_t in = features(&x), hidden = (int64_t)node->option[HIDDEN_SIZE], four = 4 * hidden;
    if (x.rank != 2)
        return ga_fail(GA_EVALUE, "%s (lstm): the input has shape %s per sample, expected (steps, features)", node->name, ga_shape_text(&x, text));
    if (hidden < 1)
        return ga_fail(GA_EVALUE, "%s (lstm): hidden_size=%lld, expected at least 1", node->name, (long long)hidden);
    same_shape(node);
    node->shape.dim[1] = hidden;
    node->saved_per_sample = x.dim[0] * 5 * hidden * (int64_t)sizeof(real);
    node->work_per_sample = (x.dim[0] * 5 * hidden + 2 * hidden) * (int64_t)sizeof(real);
    node->flops = 2.0 * (double)x.dim[0] * (double)(in + hidden) * (double)four;
    if (node->engine == GA_NATIVE)
        node->packed_bytes = (matmul_packed_count(in, four) + matmul_packed_count(hidden, four)) * (int64_t)sizeof(real);
    ga_status status = ga_node_param(node, "weight_ih_l0", 2, (int64_t[]){four, in});
    if (!status)
        status = ga_node_param(node, "weight_hh_l0", 2, (int64_t[]){four, hidden});
    if (!status && node->option[HAS_BIAS] && !(status = ga_node_param(node, "bias_ih_l0", 1, &four)))
        status = ga_node_param(node, "bias_hh_l0", 1, &four);
    return status;
}

static const real *packed_hh(const ga_node *node)
{
    return (const real *)node->packed + matmul_packed_count(features(&node->in[0]), 4 * features(&node->shape));
}

static void lstm_pack(const ga_node *node, int threads)
{
    int64_t in = features(&node->in[0]), hidden = features(&node->shape);
    matmul_pack(threads, in, 4 * hidden, (matrix){weight(node, W_IH), 1, in}, node->packed);
    matmul_pack(threads, hidden, 4 * hidden, (matrix){weight(node, W_HH), 1, hidden}, (real *)packed_hh(node));
}

typedef struct {
    const ga_node *node;
    int64_t samples, steps, rows, hidden;
    real *gates, *cells;                         /* kept: (i, f, g, o) after their functions, c */
    real *d_gates, *before, *d_h, *d_c;          /* of backward: da, h_(t-1) of each row, and per sample what comes from t + 1 */
    int tasks;
} job;

static job lstm_job(const ga_node *node, const ga_pass *pass)
{
    job j = {.node = node, .samples = pass->samples, .hidden = features(&node->shape), .steps = node->sequence ? pass->length : node->shape.dim[0]};
    j.rows = j.samples * j.steps;
    j.gates = node->saved;
    j.cells = j.gates + j.rows * 4 * j.hidden;
    j.d_gates = node->work;
    j.before = j.d_gates + j.rows * 4 * j.hidden;
    j.d_h = j.before + j.rows * j.hidden;
    j.d_c = j.d_h + j.samples * j.hidden;
    int worth = (double)j.rows * (double)j.hidden * (double)j.hidden > 1e6 && j.samples > 1;
    j.tasks = worth ? (int)(pass->threads < j.samples ? pass->threads : j.samples) : 1;
    return j;
}

/* One vector of features k.. of one sample and step; n < LANES of them at the end. */
static void forward_step(const job *j, int64_t s, int64_t t)
{
    const int64_t h = j->hidden, at = s * j->steps + t;
    real *a = j->gates + at * 4 * h, *c = j->cells + at * h, *y = output(j->node) + at * h;
    const real *b = j->node->n_params > B_HH ? weight(j->node, B_HH) : NULL;
    for (int64_t k = 0; k < h; k += LANES) {
        const int64_t n = smaller(LANES, h - k);
        vec gate[4], before = broadcast(0);
        for (int g = 0; g < 4; g++) {
            gate[g] = load_first(a + g * h + k, n, 0);
            if (b)
                gate[g] += load_first(b + g * h + k, n, 0);
            gate[g] = g == 2 ? tanh_vec(gate[g]) : sigmoid_vec(gate[g]);
            store_first(a + g * h + k, n, gate[g]);
        }
        if (t)
            before = load_first(c - h + k, n, 0);
        vec cell = multiply_add_vec(gate[1], before, gate[0] * gate[2]);
        store_first(c + k, n, cell);
        store_first(y + k, n, gate[3] * tanh_vec(cell));
    }
}

static void forward_samples(void *context, int index, int worker)
{
    const job *j = context;
    const ga_node *node = j->node;
    const int64_t h = j->hidden, from = j->samples * index / j->tasks, to = j->samples * (index + 1) / j->tasks;
    (void)worker;
    for (int64_t t = 0; t < j->steps; t++) {
        matrix last = {t ? output(node) + (from * j->steps + t - 1) * h : NULL, j->steps * h, 1};
        real *a = j->gates + (from * j->steps + t) * 4 * h;
        if (t && node->packed)
            matmul_packed(1, to - from, 4 * h, h, last, packed_hh(node), a, j->steps * 4 * h, FROM_C, NULL);
        else if (t)
            matmul(node->engine, 1, to - from, 4 * h, h, last, (matrix){weight(node, W_HH), 1, h}, a, j->steps * 4 * h, FROM_C, NULL);
        for (int64_t s = from; s < to; s++)
            forward_step(j, s, t);
    }
}

static ga_status lstm_forward(const ga_node *node, const ga_pass *pass)
{
    job j = lstm_job(node, pass);
    int64_t in = features(&node->in[0]), four = 4 * j.hidden;
    matrix x = {input(node, 0), in, 1};
    const real *b = node->n_params > B_IH ? weight(node, B_IH) : NULL;
    if (node->packed)
        matmul_packed(pass->threads, j.rows, four, in, x, node->packed, j.gates, four, b ? FROM_BIAS : FROM_ZERO, b);
    else
        matmul(node->engine, pass->threads, j.rows, four, in, x, (matrix){weight(node, W_IH), 1, in}, j.gates, four, b ? FROM_BIAS : FROM_ZERO, b);
    ga_parallel(pass->threads, j.tasks, forward_samples, &j);
    return GA_OK;
}

static void backward_step(const job *j, int64_t s, int64_t t)
{
    const int64_t h = j->hidden, at = s * j->steps + t;
    const real *a = j->gates + at * 4 * h, *c = j->cells + at * h, *dy = output_grad(j->node) + at * h;
    real *da = j->d_gates + at * 4 * h, *d_h = j->d_h + s * h, *d_c = j->d_c + s * h;
    const int last = t == j->steps - 1;
    const vec one = broadcast(1);
    for (int64_t k = 0; k < h; k += LANES) {
        const int64_t n = smaller(LANES, h - k);
        vec i = load_first(a + k, n, 0), f = load_first(a + h + k, n, 0), g = load_first(a + 2 * h + k, n, 0), o = load_first(a + 3 * h + k, n, 0);
        vec cell = tanh_vec(load_first(c + k, n, 0)), before = t ? load_first(c - h + k, n, 0) : broadcast(0);
        vec dh = load_first(dy + k, n, 0), dc = broadcast(0);
        if (!last) {
            dh += load_first(d_h + k, n, 0);
            dc = load_first(d_c + k, n, 0);
        }
        dc += dh * o * (one - cell * cell);
        store_first(da + k, n, dc * g * i * (one - i));
        store_first(da + h + k, n, dc * before * f * (one - f));
        store_first(da + 2 * h + k, n, dc * i * (one - g * g));
        store_first(da + 3 * h + k, n, dh * cell * o * (one - o));
        store_first(d_c + k, n, dc * f);
    }
}

static void backward_samples(void *context, int index, int worker)
{
    const job *j = context;
    const ga_node *node = j->node;
    const int64_t h = j->hidden, from = j->samples * index / j->tasks, to = j->samples * (index + 1) / j->tasks;
    (void)worker;
    for (int64_t t = j->steps - 1; t >= 0; t--) {
        matrix after = {j->d_gates + (from * j->steps + t + 1) * 4 * h, j->steps * 4 * h, 1};
        if (t < j->steps - 1)
            matmul(node->engine, 1, to - from, h, 4 * h, after, (matrix){weight(node, W_HH), h, 1}, j->d_h + from * h, h, FROM_ZERO, NULL);
        for (int64_t s = from; s < to; s++)
            backward_step(j, s, t);
    }
    for (int64_t s = from; s < to; s++) {        /* h_(t-1) beside each row: one product over all rows gives dW_hh */
        memset(j->before + s * j->steps * h, 0, (size_t)h * sizeof(real));
        memcpy(j->before + (s * j->steps + 1) * h, output(node) + s * j->steps * h, (size_t)((j->steps - 1) * h) * sizeof(real));
    }
}

static ga_status lstm_backward(const ga_node *node, const ga_pass *pass)
{
    job j = lstm_job(node, pass);
    int64_t in = features(&node->in[0]), h = j.hidden, four = 4 * h;
    real *dx = input_grad(node, 0);
    ga_parallel(pass->threads, j.tasks, backward_samples, &j);
    matrix transposed = {j.d_gates, 1, four};
    if (weight_grad(node, W_IH))
        matmul(node->engine, pass->threads, four, in, j.rows, transposed, (matrix){input(node, 0), in, 1}, weight_grad(node, W_IH), in, FROM_C, NULL);
    if (weight_grad(node, W_HH))
        matmul(node->engine, pass->threads, four, h, j.rows, transposed, (matrix){j.before, h, 1}, weight_grad(node, W_HH), h, FROM_C, NULL);
    for (int p = B_IH; p < node->n_params; p++)
        if (weight_grad(node, p))
            add_rows(j.rows, four, j.d_gates, four, weight_grad(node, p));
    if (dx)
        matmul(node->engine, pass->threads, j.rows, in, four, (matrix){j.d_gates, four, 1}, (matrix){weight(node, W_IH), in, 1}, dx, in,
               node->dx_adds[0] ? FROM_C : FROM_ZERO, NULL);
    return GA_OK;
}

const ga_layer LAYER(lstm) = {
    .kind = "lstm", .min_inputs = 1, .max_inputs = 1, .traits = GA_READS_INPUT | GA_READS_OUTPUT, .options = options,
    .plan = lstm_plan, .pack = lstm_pack, .forward = lstm_forward, .backward = lstm_backward,
};
