/* The core's own structures: network, plan, window. Layers never see them. */
#ifndef GA_INTERNAL_H
#define GA_INTERNAL_H
#include "node.h"

#define GA_ALIGN 64
#define GA_MAX_BYTES ((int64_t)1 << 46)          /* 64 TiB: sums of a few blocks still fit an int64 */

typedef struct {
    char name[GA_MAX_NAME];
    ga_shape shape;
    int64_t offset, count;                       /* in reals, in the flat parameters and gradients */
    int node, uses, frozen;
    int order[GA_MAX_RANK];                      /* axes from slowest to fastest in memory */
} ga_param;

typedef struct {                                 /* a use of a parameter beyond its first: a gradient chain of its own */
    int param;
    int64_t offset;                              /* in reals, in the gradient block */
} ga_chain;

typedef struct {
    ga_shape shape;                              /* per sample */
    int producer;                                /* node, or -1: an input of the network */
    int integer, sequence, needs_grad;
    int consumers;
} ga_value;

/* What runs when. Step t of a plan takes the times 2t and 2t + 1; inputs are written at -1. */
typedef enum { GA_STEP_FORWARD, GA_STEP_AGAIN, GA_STEP_BACKWARD } ga_step_kind;
typedef struct { int node; ga_step_kind kind; } ga_step;

/* A piece of the activation block and when it is alive: once, or in a recomputed segment a second time. */
typedef struct { int birth, death; } ga_life;                /* birth > death: never */
typedef struct {
    int64_t bytes, offset;
    ga_life life[2];                                         /* its own */
    ga_life all[2];                                          /* of all that share its memory */
    int root;                                                /* the piece whose memory this one shares (in place), or itself */
} ga_piece;

typedef struct {
    int64_t micro_batch, rows;                               /* rows: samples that there is room for, see ga_bytes */
    ga_plan_options options;
    ga_bytes size;
    int threads;                                             /* that the workspace is for */
    int n_pieces, n_steps;
    ga_piece *piece;                                         /* values, their gradients, saved of nodes, the loss's four arrays */
    ga_step *step;
} ga_plan;

struct ga_net {
    ga_dtype dtype;
    ga_engine engine;
    uint64_t seed;
    const ga_compute *compute;

    int n_values, n_nodes, n_params, n_inputs, n_chains;
    int room_values, room_nodes, room_params, room_chains;
    ga_value *value;
    ga_node **node;
    ga_param *param;
    ga_chain *chain;
    int input_value[GA_MAX_INPUTS];
    char input_name[GA_MAX_INPUTS][GA_MAX_NAME];
    int64_t param_count, chain_count;            /* reals */
    int loss_node;                               /* -1: none */
    int segment;                                 /* of nodes being added */
    int64_t length;                              /* planned time steps, 0: no sequence */

    int planned, mapped;                         /* plan made; node pointers set */
    ga_plan plan;
    char *block[GA_BLOCKS];

    ga_stage stage;
    ga_pass pass;                                /* of the micro-batch at hand, or of a group of them */
    int64_t shown;                               /* first sample of the last micro-batch in such a group */
    int clock;                                   /* last time (see ga_step) that ran */
    int training;
    int stale_packed;
    double loss_sum, weight;                     /* of the micro-batch at hand */
    int64_t elements;                            /* target elements with weight */
    int torn;                                    /* a backward failed half-way: the gradients are no sum of anything */
    char culprit[3 * GA_MAX_NAME];               /* where the first NaN or infinity of the window came from */
    int64_t free_updates, free_samples;          /* stand in for the window's counts while there is none */
    ga_window *window;
    ga_time *time;                               /* a record a node and one for the update, while profiled */
};

struct ga_optimizer {
    ga_net *net;
    ga_optimizer_kind kind;
    int n_groups, *group;
    ga_hyper *hyper;
    int64_t clock;
    char *state[3];
};

struct ga_window {
    ga_net *net;
    ga_optimizer *optimizer;
    ga_window_options options;
    char *buffer, *compensation, *ema;
    int64_t micro_step, samples, elements, rejected;
    double loss_sum, weight_sum, grad_norm, grad_norm_clipped;
    int clipped, measure;
    ga_noise noise;
    ga_counters counters;
};

/* graph.c */
const ga_compute *ga_compute_for(ga_dtype dtype);            /* cpu.c */
/* plan.c */
void ga_plan_free(ga_plan *plan);
int64_t ga_target_elements(const ga_net *net, int64_t length);   /* per sample */
double *ga_loss_weights(const ga_net *net);                  /* where a batch's weights are copied to */
double ga_now(void);                                         /* threads.c: seconds of a clock that never goes back */
/* pass.c: what the public stages do, without their checks of arguments and order */
ga_status ga_check_batch(const ga_net *net, const ga_batch *batch, int inputs, int loss, int training, int64_t limit);
void ga_batch_piece(const ga_net *net, const ga_batch *batch, int64_t first, int64_t samples, ga_batch *out);
ga_status ga_run_forward(ga_net *net, const ga_batch *batch, int training);
ga_status ga_run_loss(ga_net *net, const ga_batch *batch);
ga_status ga_run_backward(ga_net *net);
ga_status ga_wrong_stage(const ga_net *net, const char *call);
ga_stage ga_resting_stage(const ga_net *net);                /* between micro-batches */
void ga_find_non_finite(ga_net *net, const ga_batch *batch); /* the loss is not finite: which node began it */
void ga_zero_gradients(ga_net *net);
void ga_fold_ties(ga_net *net);
void ga_commit_layers(ga_net *net);                          /* after an update: running statistics of the window */
/* optimizer.c */
ga_status ga_optimizer_ready(const ga_optimizer *optimizer);  /* all its state is bound */
void ga_optimizer_run(ga_optimizer *optimizer, double divisor, double factor, int clear);
/* window.c */
double ga_window_seed(const ga_window *window, double weight);   /* factor of the loss at the start of backward */
#endif
