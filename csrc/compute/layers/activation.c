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
#include "../layer.h"

static inline real sigmoid_of(real x) { return 1 / (1 + real_exp(-x)); }

/* Defines <name>_forward and <name>_backward. Y gives y from x; D the derivative from x or y (a: option 0). */
#define ELEMENTWISE(name, TRAITS, OPTIONS, Y, D)                                                                            \
    typedef struct { const ga_node *node; int64_t n; } name##_job;                                                          \
    static void name##_forward_chunk(void *context, int index, int worker)                                                  \
    {                                                                                                                       \
        const name##_job *job = context;                                                                                    \
        const real *xs = input(job->node, 0), a = (real)job->node->option[0];                                               \
        real *ys = output(job->node);                                                                                       \
        (void)worker, (void)a;                                                                                              \
        for (int64_t i = (int64_t)index * CHUNK, end = chunk_end(job->n, index); i < end; i++) {                            \
            const real x = xs[i];                                                                                           \
            ys[i] = Y;                                                                                                      \
        }                                                                                                                   \
    }                                                                                                                       \
    static void name##_backward_chunk(void *context, int index, int worker)                                                 \
    {                                                                                                                       \
        const name##_job *job = context;                                                                                    \
        const real *xs = input(job->node, 0), *ys = output(job->node), *dy = output_grad(job->node);                        \
        const real a = (real)job->node->option[0];                                                                          \
        real *dx = input_grad(job->node, 0);                                                                                \
        const int adds = job->node->dx_adds[0];                                                                             \
        (void)worker, (void)a, (void)xs, (void)ys;                                                                          \
        for (int64_t i = (int64_t)index * CHUNK, end = chunk_end(job->n, index); i < end; i++) {                            \
            const real x = (TRAITS) & GA_READS_INPUT ? xs[i] : 0, y = (TRAITS) & GA_READS_OUTPUT ? ys[i] : 0;               \
            (void)x, (void)y;                                                                                               \
            const real g = dy[i] * (D);                                                                                     \
            dx[i] = adds ? dx[i] + g : g;                                                                                   \
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

static inline real gelu_of(real x, real tanh_form)
{
    if (tanh_form == 0)
        return x * (real)0.5 * (1 + real_erf(x * (real)0.70710678118654752440));
    return (real)0.5 * x * (1 + real_tanh((real)0.79788456080286535588 * (x + (real)0.044715 * x * x * x)));
}

static inline real gelu_slope(real x, real tanh_form)
{
    if (tanh_form == 0)
        return (real)0.5 * (1 + real_erf(x * (real)0.70710678118654752440))
               + x * real_exp((real)-0.5 * x * x) * (real)0.39894228040143267794;
    real t = real_tanh((real)0.79788456080286535588 * (x + (real)0.044715 * x * x * x));
    return (real)0.5 * (1 + t)
           + (real)0.5 * x * (1 - t * t) * (real)0.79788456080286535588 * (1 + 3 * (real)0.044715 * x * x);
}

static inline real silu_slope(real x)
{
    real s = sigmoid_of(x);
    return s * (1 + x * (1 - s));
}

ELEMENTWISE(relu, GA_READS_OUTPUT, NULL, x > 0 || x != x ? x : 0, (real)(y > 0))
ELEMENTWISE(leaky_relu, GA_READS_INPUT, slope, x > 0 ? x : x * a, x > 0 ? 1 : a)
ELEMENTWISE(gelu, GA_READS_INPUT, approximate, gelu_of(x, a), gelu_slope(x, a))
ELEMENTWISE(silu, GA_READS_INPUT, NULL, x * sigmoid_of(x), silu_slope(x))
ELEMENTWISE(tanh, GA_READS_OUTPUT, NULL, real_tanh(x), 1 - y * y)
ELEMENTWISE(sigmoid, GA_READS_OUTPUT, NULL, sigmoid_of(x), y * (1 - y))
