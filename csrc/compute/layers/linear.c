/* linear: y = x W^T + b, for each sample, and for each step of a sequence.
 *
 *   x (in,) or (T, in)    W (out, in)    b (out,)    y (out,) or (T, out)
 *
 *   dL/dx = dy W          dL/dW += dy^T x          dL/db += sum of dy over rows
 *
 * The sums over rows run in the order of the samples and start from what the gradient holds: any split gives the same bits.
 * The native engine keeps a copy of W^T in panels, made once per update, and one of W for dx. */
#include "../layer.h"
#include "../kernels/matmul.h"

enum { OUT_FEATURES, BIAS };
static const ga_option_default options[] = {{"out_features", REQUIRED}, {"bias", 1}, {NULL, 0}};

static ga_status linear_plan(ga_node *node)
{
    char text[64];
    ga_shape x = node->in[0];
    int64_t in = features(&x), out = (int64_t)node->option[OUT_FEATURES];
    if (x.rank < 1 || x.rank > 2)
        return ga_fail(GA_EVALUE, "%s (linear): the input has shape %s per sample, expected (features,) or (steps, features); "
                       "put a Flatten before it", node->name, ga_shape_text(&x, text));
    if (out < 1)
        return ga_fail(GA_EVALUE, "%s (linear): out_features=%lld, expected at least 1", node->name, (long long)out);
    same_shape(node);
    node->shape.dim[x.rank - 1] = out;
    node->flops = 2.0 * (double)ga_elements(&x) * (double)out;
    ga_status status = ga_node_param(node, "weight", 2, (int64_t[]){out, in});
    if (!status && node->option[BIAS])
        status = ga_node_param(node, "bias", 1, &out);
    int64_t packed = matmul_packed_count(in, out);
    if (!status && node->engine == GA_NATIVE && (packed <= 2 * in * out || packed <= 16384)) { /* not for wide fillings */
        node->packed_bytes = packed * (int64_t)sizeof(real);
        node->packed_back_bytes = matmul_packed_count(out, in) * (int64_t)sizeof(real);
    }
    return status;
}

static void linear_pack(const ga_node *node, int threads)
{
    int64_t in = features(&node->in[0]), out = features(&node->shape);
    matmul_pack(threads, in, out, (matrix){weight(node, 0), 1, in}, node->packed);
    if (node->packed_back)
        matmul_pack(threads, out, in, (matrix){weight(node, 0), in, 1}, node->packed_back);
}

static ga_status linear_forward(const ga_node *node, const ga_pass *pass)
{
    int64_t in = features(&node->in[0]), out = features(&node->shape), rows = pass->samples * output_elements(node, pass) / out;
    const real *w = weight(node, 0), *b = node->n_params > 1 ? weight(node, 1) : NULL;
    matrix x = {input(node, 0), in, 1};
    start from = b ? FROM_BIAS : FROM_ZERO;
    if (node->packed)
        matmul_packed(pass->threads, rows, out, in, x, node->packed, output(node), out, from, b);
    else
        matmul(node->engine, pass->threads, rows, out, in, x, (matrix){w, 1, in}, output(node), out, from, b);
    return GA_OK;
}

static ga_status linear_backward(const ga_node *node, const ga_pass *pass)
{
    int64_t in = features(&node->in[0]), out = features(&node->shape), rows = pass->samples * output_elements(node, pass) / out;
    const real *dy = output_grad(node);
    real *dx = input_grad(node, 0), *dw = weight_grad(node, 0), *db = node->n_params > 1 ? weight_grad(node, 1) : NULL;
    start from = node->dx_adds[0] ? FROM_C : FROM_ZERO;
    if (dx && node->packed_back)
        matmul_packed(pass->threads, rows, in, out, (matrix){dy, out, 1}, node->packed_back, dx, in, from, NULL);
    else if (dx)
        matmul(node->engine, pass->threads, rows, in, out, (matrix){dy, out, 1}, (matrix){weight(node, 0), in, 1}, dx, in, from, NULL);
    if (dw)
        matmul(node->engine, pass->threads, out, in, rows, (matrix){dy, 1, out}, (matrix){input(node, 0), in, 1}, dw, in, FROM_C,
               NULL);
    for (int64_t r = 0; db && r < rows; r++)
        for (int64_t j = 0; j < out; j++)
            db[j] += dy[r * out + j];
    return GA_OK;
}

const ga_layer LAYER(linear) = {
    .kind = "linear", .min_inputs = 1, .max_inputs = 1, .traits = GA_READS_INPUT, .options = options,
    .plan = linear_plan, .pack = linear_pack, .forward = linear_forward, .backward = linear_backward,
};
