/* What an optimizer does to one range of parameters, in one pass: divide, clip, decay, step, clear the gradient.
 *
 * The operations on an element and their order are those of the separate stages, so a window in one call has the bits of a
 * window by hand. Formulas and defaults are PyTorch's (torch.optim.SGD, Adam, AdamW):
 *   SGD    g += decay * p;  m = momentum * m + (1 - dampening) * g (first time m = g);  p -= lr * m   (nesterov: g + momentum * m)
 *   Adam   g += decay * p;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  p -= lr / (1 - b1^t) * m / (sqrt(v / (1 - b2^t)) + eps)
 *          (Kingma, Ba 2015, algorithm 1; amsgrad: Reddi et al. 2018)
 *   AdamW  p *= 1 - lr * decay, then as Adam without decay (Loshchilov, Hutter 2019)
 *   AdamA  Adam whose m and v take the gradient of each micro-batch, so that no buffer is needed: m = b1 m, v = b2 v once a window;
 *          then m += (1 - b1) g, v += (1 - b2) g^2 with g = g_i / K for each of K micro-batches (Zhang et al. 2023) */
#include "compute.h"

typedef struct {
    ga_optimizer_kind kind;
    const ga_hyper *h;
    int first, clear;
    int64_t n;
    real divisor, factor, step_size, correction2;    /* correction2 = sqrt(1 - b2^t) */
    real *p, *g, *m, *v, *max_v;
} job;

enum { RANGE = 16384 };

static void sgd(const job *j, int64_t from, int64_t to)
{
    const real lr = (real)j->h->lr, decay = (real)j->h->weight_decay, momentum = (real)j->h->momentum;
    const real keep = (real)(1 - j->h->dampening), divisor = j->divisor, factor = j->factor;
    real *restrict p = j->p, *restrict g = j->g, *restrict m = j->m;
    for (int64_t i = from; i < to; i++) {
        real d = g[i] / divisor * factor;
        if (decay != 0)
            d = d + decay * p[i];
        if (momentum != 0) {
            m[i] = j->first ? d : momentum * m[i] + keep * d;
            d = j->h->nesterov ? d + momentum * m[i] : m[i];
        }
        p[i] = p[i] - lr * d;
        if (j->clear)
            g[i] = 0;
    }
}

static void adam(const job *j, int64_t from, int64_t to)
{
    const real decay = (real)j->h->weight_decay, shrink = (real)(1 - j->h->lr * j->h->weight_decay);
    const real b1 = (real)j->h->beta1, b2 = (real)j->h->beta2, eps = (real)j->h->eps;
    const real c1 = (real)(1 - j->h->beta1), c2 = (real)(1 - j->h->beta2);
    const real divisor = j->divisor, factor = j->factor, step = j->step_size, correction2 = j->correction2;
    const int w = j->kind == GA_ADAMW, decays = !w && decay != 0, amsgrad = j->h->amsgrad, clear = j->clear;
    real *restrict p = j->p, *restrict g = j->g, *restrict m = j->m, *restrict v = j->v, *restrict max_v = j->max_v;
    for (int64_t i = from; i < to; i++) {
        real d = g[i] / divisor * factor, x = p[i];
        if (w)
            x = x * shrink;
        if (decays)
            d = d + decay * x;
        m[i] = b1 * m[i] + c1 * d;
        v[i] = b2 * v[i] + c2 * d * d;
        real second = v[i];
        if (amsgrad)
            second = max_v[i] = max_v[i] > second ? max_v[i] : second;
        p[i] = x - step * (m[i] / (real_sqrt(second) / correction2 + eps));
        if (clear)
            g[i] = 0;
    }
}

/* The update of AdamA: m and v have the window's gradients already. */
static void adama(const job *j, int64_t from, int64_t to)
{
    const real eps = (real)j->h->eps, step = j->step_size, correction2 = j->correction2;
    real *restrict p = j->p, *restrict g = j->g, *restrict m = j->m, *restrict v = j->v;
    for (int64_t i = from; i < to; i++) {
        p[i] = p[i] - step * (m[i] / (real_sqrt(v[i]) / correction2 + eps));
        if (j->clear)
            g[i] = 0;
    }
}

/* A micro-batch into m and v of AdamA; the first of a window lets them decay. Clears the gradient. */
static void take_task(void *context, int index, int worker)
{
    const job *j = context;
    (void)worker;
    int64_t from = (int64_t)index * RANGE, to = from + RANGE < j->n ? from + RANGE : j->n;
    const real b1 = (real)j->h->beta1, b2 = (real)j->h->beta2, c1 = (real)(1 - j->h->beta1), c2 = (real)(1 - j->h->beta2);
    const real divisor = j->divisor;
    real *restrict g = j->g, *restrict m = j->m, *restrict v = j->v;
    for (int64_t i = from; i < to; i++) {
        real d = g[i] / divisor;
        m[i] = (j->first ? b1 * m[i] : m[i]) + c1 * d;
        v[i] = (j->first ? b2 * v[i] : v[i]) + c2 * d * d;
        g[i] = 0;
    }
}

static void task(void *context, int index, int worker)
{
    const job *j = context;
    (void)worker;
    int64_t from = (int64_t)index * RANGE, to = from + RANGE < j->n ? from + RANGE : j->n;
    if (j->kind == GA_SGD)
        sgd(j, from, to);
    else if (j->kind == GA_ADAMA)
        adama(j, from, to);
    else
        adam(j, from, to);
}

void flat_take(const ga_hyper *h, int first, double divisor, int64_t n, void *g, void *m, void *v)
{
    job j = {.h = h, .first = first, .n = n, .divisor = (real)divisor, .g = g, .m = m, .v = v};
    ga_parallel(ga_get_threads(), (int)((n + RANGE - 1) / RANGE), take_task, &j);
}

void flat_optimize(ga_optimizer_kind kind, const ga_hyper *h, int64_t clock, double divisor, double factor, int clear, int64_t n,
              void *p, void *g, void *const state[3])
{
    double correction1 = 1 - pow(h->beta1, (double)clock), correction2 = sqrt(1 - pow(h->beta2, (double)clock));
    job j = {.kind = kind, .h = h, .first = clock == 1, .clear = clear, .n = n, .divisor = (real)divisor, .factor = (real)factor,
             .step_size = (real)(h->lr / correction1), .correction2 = (real)correction2,
             .p = p, .g = g, .m = state[0], .v = state[1], .max_v = state[2]};
    ga_parallel(ga_get_threads(), (int)((n + RANGE - 1) / RANGE), task, &j);
}
