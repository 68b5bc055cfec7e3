/* What several C tests share: blocks of memory with guards, and a small classifier with its optimizer and window. */
#ifndef NETS_H
#define NETS_H
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "check.h"
#include "gradaccum.h"

enum { GUARD = 64, IN = 7, HIDDEN = 19, CLASSES = 5 };

/* Zeroed, 64-byte aligned, with GUARD bytes of 0xA5 behind it. */
static inline void *block(int64_t bytes)
{
    size_t whole = ((size_t)bytes + GUARD + 63) / 64 * 64;
    char *p = aligned_alloc(64, whole);
    CHECK(p != NULL);
    memset(p, 0, whole);
    memset(p + bytes, 0xA5, GUARD);
    return p;
}

static inline int intact(const void *p, int64_t bytes)
{
    for (int i = 0; i < GUARD; i++)
        if (((const unsigned char *)p)[bytes + i] != 0xA5)
            return 0;
    return 1;
}

/* Numbers in [-1, 1), the same on every machine. */
static inline double noise(uint64_t i)
{
    uint64_t z = (i + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (double)((z ^ z >> 31) >> 11) / 4503599627370496.0 - 1;
}

static inline void put(void *array, ga_dtype dtype, int64_t i, double value)
{
    if (dtype == GA_FLOAT64)
        ((double *)array)[i] = value;
    else
        ((float *)array)[i] = (float)value;
}

typedef struct {
    ga_net *net;
    ga_optimizer *optimizer;
    ga_window *window;
    ga_dtype dtype;
    int64_t real, bytes[GA_BLOCKS], count;
    void *memory[GA_BLOCKS], *state[3], *buffer, *compensation, *ema;
} run;

static inline void bind_all(run *r, int64_t micro_batch)
{
    ga_bytes need;
    CHECK_EQ(ga_net_bytes(r->net, micro_batch, NULL, &need), GA_OK);
    for (int b = 0; b < GA_BLOCKS; b++) {
        r->bytes[b] = need.bytes[b];
        r->memory[b] = block(r->bytes[b]);
        CHECK_EQ(ga_net_bind(r->net, b, r->memory[b]), GA_OK);
    }
    r->count = ga_net_param_count(r->net);
    for (int64_t i = 0; i < r->count; i++)
        put(r->memory[GA_PARAMETERS], r->dtype, i, 0.4 * noise((uint64_t)i));
    ga_net_touch(r->net);
}

/* IN -> linear -> relu -> dropout -> linear -> CLASSES, cross entropy. */
static inline run classifier(ga_dtype dtype, int64_t micro_batch, int keep_all)
{
    run r = {.dtype = dtype, .real = dtype == GA_FLOAT64 ? 8 : 4};
    ga_plan_options options = {.keep_all = keep_all};
    int v, n;
    CHECK_EQ(ga_net_create(dtype, GA_NATIVE, 5, &r.net), GA_OK);
    CHECK_EQ(ga_net_add_input(r.net, "x", &(ga_shape){1, {IN}}, 0, 0, &v), GA_OK);
    CHECK_EQ(ga_net_add_node(r.net, "linear", "a", &(ga_option){"out_features", HIDDEN}, 1, &v, 1, NULL, &n, &v), GA_OK);
    CHECK_EQ(ga_net_add_node(r.net, "relu", "relu", NULL, 0, &v, 1, NULL, &n, &v), GA_OK);
    CHECK_EQ(ga_net_add_node(r.net, "dropout", "drop", &(ga_option){"p", 0.25}, 1, &v, 1, NULL, &n, &v), GA_OK);
    CHECK_EQ(ga_net_add_node(r.net, "linear", "b", &(ga_option){"out_features", CLASSES}, 1, &v, 1, NULL, &n, &v), GA_OK);
    CHECK_EQ(ga_net_add_node(r.net, "cross_entropy_loss", "loss", NULL, 0, &v, 1, NULL, &n, &v), GA_OK);
    CHECK_EQ(ga_net_plan(r.net, micro_batch, &options), GA_OK);
    bind_all(&r, micro_batch);
    return r;
}

static inline ga_window_options plain(void) { return (ga_window_options){.loss_scale = 1, .ema_decay = -1, .max_grad_norm = 0.5}; }

static inline void add_optimizer(run *r, ga_optimizer_kind kind)
{
    ga_hyper h = {.lr = 0.05, .weight_decay = 0.1, .momentum = kind == GA_SGD ? 0.9 : 0, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
    int *group = calloc((size_t)ga_net_params(r->net) + 1, sizeof *group);
    CHECK_EQ(ga_optimizer_create(r->net, kind, &h, 1, group, &r->optimizer), GA_OK);
    free(group);
    for (int i = 0; i < ga_optimizer_states(r->optimizer); i++) {
        r->state[i] = block(r->count * r->real);
        CHECK_EQ(ga_optimizer_bind(r->optimizer, i, r->state[i]), GA_OK);
    }
}

static inline void add_window(run *r, const ga_window_options *options)
{
    int64_t buffer, compensation, ema;
    CHECK_EQ(ga_window_create(r->net, r->optimizer, options, &r->window), GA_OK);
    ga_window_bytes(r->window, &buffer, &compensation, &ema);
    r->buffer = buffer ? block(buffer) : NULL;
    r->compensation = compensation ? block(compensation) : NULL;
    r->ema = ema ? block(ema) : NULL;
    if (ema)
        memcpy(r->ema, r->memory[GA_PARAMETERS], (size_t)ema);
    CHECK_EQ(ga_window_bind(r->window, r->buffer, r->compensation, r->ema), GA_OK);
}

static inline void give_back(run *r)
{
    for (int b = 0; b < GA_BLOCKS; b++)
        CHECK(intact(r->memory[b], r->bytes[b]));
    ga_window_free(r->window);
    ga_optimizer_free(r->optimizer);
    ga_net_free(r->net);
    for (int b = 0; b < GA_BLOCKS; b++)
        free(r->memory[b]);
    for (int i = 0; i < 3; i++)
        free(r->state[i]);
    free(r->buffer);
    free(r->compensation);
    free(r->ema);
}

typedef struct { void *x; int64_t *y; double *weight; int64_t samples; } data;

/* Samples with labels, some of them ignored, and weights, some of them 0. */
static inline data make_data(ga_dtype dtype, int64_t samples)
{
    data d = {block(samples * IN * 8), block(samples * 8), block(samples * 8), samples};
    for (int64_t i = 0; i < samples * IN; i++)
        put(d.x, dtype, i, noise(1000000 + (uint64_t)i));
    for (int64_t i = 0; i < samples; i++) {
        d.y[i] = i % 11 == 3 ? -100 : (i * 7 + i / 3) % CLASSES;
        d.weight[i] = i % 13 == 5 ? 0 : 1 + noise(2000000 + (uint64_t)i);
    }
    return d;
}

static inline void free_data(data *d)
{
    free(d->x);
    free(d->y);
    free(d->weight);
}

static inline ga_batch rows(const data *d, ga_dtype dtype, int64_t first, int64_t samples)
{
    int64_t real = dtype == GA_FLOAT64 ? 8 : 4;
    return (ga_batch){.samples = samples, .input = {(char *)d->x + first * IN * real}, .target = d->y + first, .weight = d->weight + first};
}
#endif
