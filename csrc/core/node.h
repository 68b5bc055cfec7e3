/* What the core and the layers share: a node, the layer it belongs to, one pass. No element type here: pointers to reals are
 * void, and compute/layer.h gives them their type. */
#ifndef GA_NODE_H
#define GA_NODE_H
#include "gradaccum.h"

#define GA_MAX_OPTIONS 16

/* One micro-batch on its way through the array. */
typedef struct {
    int64_t samples;
    int64_t length;              /* time steps of sequence values */
    int64_t first_sample;        /* position of sample 0 in the window */
    uint64_t seed, update;       /* with node and sample, the arguments of the random function */
    int training;
    double scale;                /* factor of the loss at the start of backward */
    int weight_per_element;
    int threads;
    int again;                   /* a forward that repeats one: statistics are not collected twice */
} ga_pass;

/* Traits of a layer, for the plan. */
enum {
    GA_READS_INPUT = 1,          /* backward reads the inputs */
    GA_READS_OUTPUT = 2,         /* backward reads the output */
    GA_IN_PLACE = 4,             /* output may overwrite input 0, and its gradient the output's */
    GA_MIXES_SAMPLES = 8,        /* a sample's result depends on the others of its micro-batch */
    GA_IS_LOSS = 16
};

typedef struct ga_node ga_node;
typedef struct { const char *name; double value; } ga_option_default;

/* One per layer, constant, at the end of its file. */
typedef struct {
    const char *kind;
    int min_inputs, max_inputs;
    unsigned traits;
    const ga_option_default *options;                        /* ends with a NULL name */
    /* Check shapes and options; set shape (and sequence), parameters, and the bytes it wants. */
    ga_status (*plan)(ga_node *);
    /* Look at a micro-batch before anything is written. data: the integers of input 0, a loss's target, or NULL. May be NULL. */
    ga_status (*check)(const ga_node *, const ga_pass *, const void *data);
    /* Make the packed copy of the parameters; NULL if it keeps none. */
    void (*pack)(const ga_node *, int threads);
    ga_status (*forward)(const ga_node *, const ga_pass *);
    ga_status (*backward)(const ga_node *, const ga_pass *);
    /* The window committed an update (running statistics). May be NULL. */
    void (*commit)(const ga_node *, const ga_pass *);
    /* The window is emptied: forget what was collected for it. May be NULL. */
    void (*discard)(const ga_node *);
} ga_layer;

struct ga_node {
    const ga_layer *layer;
    ga_net *net;
    char name[GA_MAX_NAME];
    int index, segment;
    ga_engine engine;
    double option[GA_MAX_OPTIONS];

    int n_inputs, input[GA_MAX_INPUTS], output;              /* values */
    ga_shape in[GA_MAX_INPUTS], shape;                       /* per sample */
    int in_sequence[GA_MAX_INPUTS], sequence;                /* dim[0] is time */
    int in_integer[GA_MAX_INPUTS];
    int mixes_samples;                                       /* GA_MIXES_SAMPLES, unless plan() takes it back */

    int n_params, param[GA_MAX_PARAMS], chain[GA_MAX_PARAMS];  /* chain: 0, or 1 + index of the chain of a further use */
    const int *shared;                                       /* while being added */

    /* bytes, set by plan() */
    int64_t saved_fixed, saved_per_sample;                   /* from forward to backward */
    int64_t work_fixed, work_per_sample, work_per_thread;    /* during one call */
    int64_t state_count;                                     /* reals that outlive a window: statistics, class weights */
    int64_t packed_bytes;
    int64_t packed_back_bytes;                               /* panels that only an input's gradient wants; not in a lean plan */
    double flops;                                            /* of a forward of one sample, see ga_node_info */

    /* a loss only */
    ga_shape target_shape;
    int target_integer;

    ga_function function;
    void *context;

    /* pointers, set when blocks are bound */
    void *x[GA_MAX_INPUTS], *dx[GA_MAX_INPUTS], *y, *dy;     /* dx is NULL where nobody needs it */
    int dx_adds[GA_MAX_INPUTS];                              /* another node wrote there before: add */
    void *w[GA_MAX_PARAMS], *dw[GA_MAX_PARAMS];              /* dw is NULL where frozen */
    void *saved, *state, *packed, *packed_back, *work, *thread_work;       /* thread_work: one piece of work_per_thread a worker */
    void *target;
    double *sample_weight, *loss, *loss_weight;              /* per sample; sample_weight NULL: all 1 */
    int64_t *elements;                                       /* set by a loss's forward: target elements that count */
    int64_t place_saved, place_state, place_packed;          /* offsets of the above in their blocks */
};

/* For plan(). */
ga_status ga_fail(ga_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A parameter of the layer, in the order of its list; shape as in PyTorch. */
ga_status ga_node_param(ga_node *node, const char *name, int rank, const int64_t *dim);
/* The same, kept in memory with the axes in another order, slowest first: views show PyTorch's axes all the same. */
ga_status ga_node_param_stored(ga_node *node, const char *name, int rank, const int64_t *dim, const int *order);
/* Product with a check; 0 and an error text if it does not fit 2^62. */
int ga_product(int64_t a, int64_t b, int64_t *out);
int64_t ga_elements(const ga_shape *shape);
/* "(3, 32, 32)"; the text lives in `text`. */
const char *ga_shape_text(const ga_shape *shape, char text[64]);

/* Work in tasks 0..tasks-1 on up to `threads` threads; which thread runs which task does not matter to any result. */
void ga_parallel(int threads, int tasks, void (*task)(void *context, int index, int worker), void *context);

/* One CPU level and precision of the compute sources. */
typedef struct {
    const char *level;
    int64_t real_bytes;
    const ga_layer *const *layers;                           /* ends with NULL */
    /* reals of [samples][shape] to and from stored order */
    void (*import)(const ga_shape *shape, int64_t samples, const void *from, void *to);
    void (*export)(const ga_shape *shape, int64_t samples, const void *from, void *to);
    /* optimizers.c: one parameter range; see there */
    void (*optimize)(ga_optimizer_kind kind, const ga_hyper *hyper, int64_t clock, double divisor, double factor, int clear,
                     int64_t n, void *p, void *g, void *const state[3]);
    void (*take)(const ga_hyper *hyper, int first, double divisor, int64_t n, void *g, void *m, void *v);
    /* buffers.c */
    double (*norm_squares)(int64_t n, const void *g, double divisor);
    int (*finite)(int64_t n, const void *g);
    void (*scale)(int64_t n, void *g, double divisor, double factor);
    void (*add)(int64_t n, void *to, const void *from);
    void (*average)(int64_t n, void *ema, const void *p, double decay);
    void (*buffer_add)(ga_buffer kind, int64_t n, void *buffer, void *compensation, const void *g);
    void (*buffer_read)(ga_buffer kind, int64_t n, const void *buffer, const void *compensation, double divisor, void *g);
} ga_compute;
int64_t ga_buffer_bytes(ga_buffer kind, int64_t real_bytes);

/* OpenBLAS, if one is loaded. */
typedef struct {
    void (*sgemm)(int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *, int);
    void (*dgemm)(int, int, int, int, int, int, double, const double *, int, const double *, int, double, double *, int);
} ga_blas;
extern ga_blas ga_blas_table;
#endif
