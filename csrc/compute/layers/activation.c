/* Elementwise activations: relu, leaky_relu, gelu, silu, tanh, sigmoid.
 *
 *   relu        y = max(x, 0)                          dx = dy where y > 0
 *   leaky_relu  y = x > 0 ? x : s x                    dx = dy (x > 0 ? 1 : s)
 *   gelu        y = x P(x), P(x) = (1 + erf(x / sqrt 2)) / 2      dx = dy (P + x exp(-x^2 / 2) / sqrt(2 pi))
 *     "tanh"    y = x (1 + tanh u) / 2, u = sqrt(2 / pi) (x + 0.044715 x^3)    (Hendrycks, Gimpel 2016)
 *               dx = dy ((1 + t) / 2 + x (1 - t^2) / 2 sqrt(2 / pi) (1 + 3 * 0.044715 x^2)), t = tanh u
 *   silu        y = x s(x), s(x) = 1 / (1 + exp(-x))   dx = dy s (1 + x (1 - s))
 *   tanh        y = tanh x                             dx = dy (1 - y^2)
 *   sigmoid     y = s(x)                               dx = dy y (1 - y) */
#include "../kernels/exp.h"
#include "../kernels/rows.h"

#define NUMBER(a) broadcast((real)(a))

/* Defines <name>_forward and <name>_backward, in vectors. Y gives y from x; D the derivative from x or y (a: option 0). */
#define ELEMENTWISE(name, TRAITS, OPTIONS, Y, D)                                                                            \
    typedef struct { const ga_node *node; int64_t n; } name##_job;                                                          \
    static void name##_forward_chunk(void *context, int index, int worker)                                                  \
    {                                                                                                                       \
        const name##_job *job = context;                                                                                    \
        const real *xs = input(job->node, 0);                                                                               \
        const vec a = NUMBER(job->node->option[0]);                                                                         \
        real *ys = output(job->node);                                                                                       \
        (void)worker, (void)a;                                                                                              \
        for (int64_t i = (int64_t)index * CHUNK, end = chunk_end(job->n, index); i < end; i += LANES) {                     \
            const vec x = load_first(xs + i, end - i, 0);                                                                   \
            store_first(ys + i, end - i, Y);                                                                                \
        }                                                                                                                   \
    }                                                                                                                       \
    static void name##_backward_chunk(void *context, int index, int worker)                                                 \
    {                                                                                                                       \
        const name##_job *job = context;                                                                                    \
        const real *of = (TRAITS) & GA_READS_INPUT ? input(job->node, 0) : output(job->node), *dy = output_grad(job->node); \
        const vec a = NUMBER(job->node->option[0]);                                                                         \
        real *dx = input_grad(job->node, 0);                                                                                \
        const int adds = job->node->dx_adds[0];                                                                             \
        (void)worker, (void)a;                                                                                              \
        for (int64_t i = (int64_t)index * CHUNK, end = chunk_end(job->n, index); i < end; i += LANES) {                     \
            const vec x = load_first(of + i, end - i, 0), y = x;         /* the one that is read */                         \
            vec g = load_first(dy + i, end - i, 0) * (D);                                                                   \
            (void)x, (void)y;                                                                                               \
            if (adds)                                                                                                       \
                g = load_first(dx + i, end - i, 0) + g;                                                                     \
            store_first(dx + i, end - i, g);                                                                                \
        }                                                                                                                   \
    }                                                                                                                       \
    static ga_status name##_forward(const ga_node *node, const ga_pass *pass)                                               \
    {                                                                                                                       \
        name##_job job = {node, pass->samples * output_elements(node, pass)};                                               \
        ga_parallel(pass->threads, chunks(job.n), name##_forward_chunk, &job);                                              \
        return GA_OK;                                                                                                       \
    }                                                                                                                       \
    static ga_status name##_backward(const ga_node *node, const ga_pass *pass)                                              \
    {                                                                                                                       \
        name##_job job = {node, pass->samples * output_elements(node, pass)};                                               \
        if (input_grad(node, 0))                                                                                            \
            ga_parallel(pass->threads, chunks(job.n), name##_backward_chunk, &job);                                         \
        return GA_OK;                                                                                                       \
    }                                                                                                                       \
    const ga_layer LAYER(name) = {                                                                                          \
        .kind = #name, .min_inputs = 1, .max_inputs = 1, .traits = (TRAITS) | GA_IN_PLACE, .options = OPTIONS,              \
        .plan = same_shape, .forward = name##_forward, .backward = name##_backward,                                         \
    };

static const ga_option_default slope[] = {{"negative_slope", 0.01}, {NULL, 0}};
static const ga_option_default approximate[] = {{"approximate_tanh", 0}, {NULL, 0}};

static inline vec relu_of(vec x) { return choose((x > NUMBER(0)) | (x != x), x, NUMBER(0)); }        /* NaN stays */

static inline vec gelu_inner(vec x) { return NUMBER(0.79788456080286535588) * (x + NUMBER(0.044715) * x * x * x); }

static inline vec gelu_of(vec x, int tanh_form)
{
    if (tanh_form)
        return NUMBER(0.5) * x * (NUMBER(1) + tanh_vec(gelu_inner(x)));
    return x * NUMBER(0.5) * (NUMBER(1) + erf_vec(x * NUMBER(0.70710678118654752440)));
}

static inline vec gelu_slope(vec x, int tanh_form)
{
    if (!tanh_form)
        return NUMBER(0.5) * (NUMBER(1) + erf_vec(x * NUMBER(0.70710678118654752440)))
               + x * exp_vec(NUMBER(-0.5) * x * x) * NUMBER(0.39894228040143267794);
    vec t = tanh_vec(gelu_inner(x));
    return NUMBER(0.5) * (NUMBER(1) + t)
           + NUMBER(0.5) * x * (NUMBER(1) - t * t) * NUMBER(0.79788456080286535588) * (NUMBER(1) + NUMBER(3 * 0.044715) * x * x);
}

static inline vec silu_slope(vec x)
{
    vec s = sigmoid_vec(x);
    return s * (NUMBER(1) + x * (NUMBER(1) - s));
}

ELEMENTWISE(relu, GA_READS_OUTPUT, NULL, relu_of(x), choose(y > NUMBER(0), NUMBER(1), NUMBER(0)))
ELEMENTWISE(leaky_relu, GA_READS_INPUT, slope, choose(x > NUMBER(0), x, x * a), choose(x > NUMBER(0), NUMBER(1), a))
ELEMENTWISE(gelu, GA_READS_INPUT, approximate, gelu_of(x, job->node->option[0] != 0), gelu_slope(x, job->node->option[0] != 0))
ELEMENTWISE(silu, GA_READS_INPUT, NULL, x * sigmoid_vec(x), silu_slope(x))
ELEMENTWISE(tanh, GA_READS_OUTPUT, NULL, tanh_vec(x), NUMBER(1) - y * y)
ELEMENTWISE(sigmoid, GA_READS_OUTPUT, NULL, sigmoid_vec(x), y * (NUMBER(1) - y))
