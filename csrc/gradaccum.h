/* gradaccum: training with gradient accumulation, as a C library.
 *
 * The idea
 *   A model is planned once into an array of nodes. A micro-batch walks the array forward, then backward. Layers only ever
 *   ADD to parameter gradients. When they are cleared, divided and applied is the business of one object: the window.
 *
 *   block                  written by                       cleared by                    lifetime
 *   parameters             the optimizer                    never                         the run
 *   gradient buffer        every backward, by +=            the window, after an update   one window
 *   activations, saved     every forward, by =              overwritten                   one micro-batch
 *   activation gradients   every backward                   overwritten, memory reused    one micro-batch
 *   layer state            forward in training, or window   never                         the run
 *   optimizer state        the optimizer                    never                         the run
 *   packed weights, workspace   the engine                  -                             derived
 *
 * A run, from C
 *   ga_net_create, ga_net_add_input, ga_net_add_node ...    describe the graph; the last node is the loss
 *   ga_net_plan                                             sizes of all blocks for a micro-batch, nothing allocated
 *   ga_net_bytes, ga_net_bind                               the caller allocates each block once and hands it over
 *   ga_optimizer_create, ga_window_create
 *   ga_window_update(batch)                                 a whole window: micro-batches, one division, one update
 *   or, one stage at a time:
 *   ga_window_begin, (ga_forward, ga_loss, ga_backward, ga_window_accumulate)*, ga_window_normalize, ga_window_clip,
 *   ga_window_apply, ga_window_clear                        the same functions, the same bits
 *
 * Rules
 *   Every function that can fail returns ga_status; the reason is in ga_error() of the same thread. Arguments are checked
 *   before anything is written. The library never prints, exits or aborts, and allocates nothing inside a window.
 *   One network is used by one thread at a time; different networks are independent.
 *   Shapes are per sample, channels first, as in PyTorch: (C), (T, C), (C, H, W). Arrays that cross this interface are
 *   C-contiguous in that order. Inside, images (C, H, W) are stored channels last, (H, W, C).
 */
#ifndef GRADACCUM_H
#define GRADACCUM_H
#include <stddef.h>
#include <stdint.h>

#define GA_MAX_RANK 4           /* dimensions of a parameter; values have at most 3 per sample */
#define GA_MAX_INPUTS 8         /* inputs of a node, and of a network */
#define GA_MAX_PARAMS 8         /* parameters of a node */
#define GA_MAX_NAME 96          /* bytes of a name, with the final NUL */

typedef enum {
    GA_OK = 0,
    GA_EMEMORY,                 /* no memory, or over a limit */
    GA_EVALUE,                  /* a shape, an option or a size that cannot be */
    GA_EINDEX,                  /* a label or token outside its range */
    GA_ESTAGE,                  /* a stage called out of order */
    GA_ENONFINITE,              /* a gradient with NaN or infinity */
    GA_ECALLBACK                /* a ga_function said no; it knows why */
} ga_status;

/* Why the last failing call of this thread failed; "" if none did. */
const char *ga_error(void);

typedef enum { GA_FLOAT32, GA_FLOAT64 } ga_dtype;
typedef enum { GA_NATIVE, GA_OPENBLAS } ga_engine;
typedef struct { int rank; int64_t dim[GA_MAX_RANK]; } ga_shape;
typedef struct { const char *name; double value; } ga_option;

typedef struct ga_net ga_net;
typedef struct ga_optimizer ga_optimizer;
typedef struct ga_window ga_window;

/* ---- the machine ---------------------------------------------------------------------------------------------------- */

/* Kernels in use: "avx512", "avx2" or "baseline"; the environment's GRADACCUM_CPU can only choose a lower one. NULL (and
 * ga_error) if GRADACCUM_CPU names none of them. */
const char *ga_cpu_level(void);
/* Whether this processor multiplies bfloat16 numbers (AVX512-BF16). Only told: no kernel uses it. */
int ga_cpu_bf16(void);
/* Threads that a pass may use. Results do not depend on it. Set refuses n < 1 and n > 256. */
int ga_get_threads(void);
ga_status ga_set_threads(int n);
/* OpenBLAS for the openblas engine: opens the file, GA_EVALUE if it is not an OpenBLAS. */
ga_status ga_blas_load(const char *path);
/* "0.3.34 SkylakeX", or "" when none is loaded. */
const char *ga_blas_name(void);

/* ---- the graph ------------------------------------------------------------------------------------------------------ */

ga_status ga_net_create(ga_dtype dtype, ga_engine engine, uint64_t seed, ga_net **out);
void ga_net_free(ga_net *net);

/* A network input. `integer`: int64 (tokens) instead of reals. `sequence`: dim[0] is time, and a micro-batch may be shorter. */
ga_status ga_net_add_input(ga_net *net, const char *name, const ga_shape *shape, int integer, int sequence, int *value);

/* A node of layer `kind` ("linear", ...). options: numbers by name; unknown ones are refused, missing ones take the layer's
 * default. inputs: values. shared: per parameter of the layer a parameter of another node to use, or -1; NULL for none shared.
 * A loss must be the last node. *value is the node's output (-1 for a loss). */
ga_status ga_net_add_node(ga_net *net, const char *kind, const char *name, const ga_option *options, int n_options,
                          const int *inputs, int n_inputs, const int *shared, int *node, int *value);

/* A layer written outside the library. The function gets plain arrays, [samples][shape] in stored order, and fills y, or adds
 * nothing and sets dx[k] (already summed by the library). It returns 0, or anything else for an error that the caller knows.
 * Called by the thread that called the pass. */
typedef struct {
    int backward;                                    /* 0: read x, write y.  1: read x, y, dy, write dx */
    int node;
    int64_t samples, length;
    int training;
    const void *x[GA_MAX_INPUTS];
    void *dx[GA_MAX_INPUTS];                         /* NULL where nobody needs it */
    void *y;
    const void *dy;
    const void *w[GA_MAX_PARAMS];                    /* its parameters */
    void *dw[GA_MAX_PARAMS];                         /* add to these; NULL where frozen */
} ga_function_call;
typedef int (*ga_function)(void *context, const ga_function_call *call);
ga_status ga_net_add_function(ga_net *net, const char *name, ga_function function, void *context, const ga_shape *output,
                              int sequence, const int *inputs, int n_inputs, const char *const *param_names,
                              const ga_shape *param_shapes, int n_params, int *node, int *value);

/* Nodes that are added from now on form segment `segment` (1, 2, ...; 0: none). What backward needs of a segment is computed again
 * in backward instead of being kept: less memory, one more forward of the segment (Chen et al. 2016), the same bits. */
ga_status ga_net_segment(ga_net *net, int segment);

/* Parameters that the optimizer leaves alone and backward skips. */
ga_status ga_net_freeze(ga_net *net, int param, int frozen);

/* ---- the plan ------------------------------------------------------------------------------------------------------- */

typedef enum {
    GA_PARAMETERS, GA_GRADIENTS, GA_ACTIVATIONS, GA_STATE, GA_PACKED, GA_WORKSPACE, GA_BLOCKS
} ga_block;

typedef enum { GA_RECOMPUTE_SEGMENTS, GA_RECOMPUTE_SQRT, GA_RECOMPUTE_NONE } ga_recompute;   /* those given; about sqrt(n) equal ones */
typedef struct {
    int keep_all;               /* no reuse of activation memory: every view stays valid, more bytes */
    ga_recompute recompute;
    int fold_ties;              /* one gradient for all uses of a shared parameter: fewer bytes, its bits depend on the split */
    int lean;                   /* no memory for speed alone: no panels of the transposed weights, no grouped micro-batches */
} ga_plan_options;

/* Sizes and places for micro-batches of up to `micro_batch` samples. Nothing is allocated but the plan itself. */
ga_status ga_net_plan(ga_net *net, int64_t micro_batch, const ga_plan_options *options);
/* Bytes of each block if the network were planned for `micro_batch`, and of ACTIVATIONS the part that only gradients need, and what
 * reuse saved. Does not change the plan. rows: samples that there is room for; more than micro_batch where ga_window_update runs several
 * micro-batches together (where weights and gradients are much larger than the activations, to read them less often; same bits). */
typedef struct { int64_t bytes[GA_BLOCKS], gradient_part, reuse_saved, rows; int recomputed; } ga_bytes;   /* recomputed: nodes that run twice */
ga_status ga_net_bytes(const ga_net *net, int64_t micro_batch, const ga_plan_options *options, ga_bytes *out);   /* NULL: those of the plan */
ga_plan_options ga_net_plan_options(const ga_net *net);
/* The caller's memory for a block: at least its bytes, 64-byte aligned, zeroed, alive as long as the network. */
ga_status ga_net_bind(ga_net *net, ga_block block, void *memory);

/* offset, count: in reals. order: the axes from slowest to fastest in memory; {0, 1, ...} is row-major. */
typedef struct { const char *name; ga_shape shape; int64_t offset, count; int node, uses, frozen, order[GA_MAX_RANK]; } ga_param_info;
/* flops: multiply-adds of its products, times 2, of a forward of one sample; backward has as many again for each gradient it gives */
typedef struct { const char *name, *kind; int n_inputs, inputs[GA_MAX_INPUTS], output, n_params, params[GA_MAX_PARAMS];
                 int mixes_samples; int64_t saved_bytes, state_offset, state_count; double flops; } ga_node_info;
typedef struct { ga_shape shape; int producer, integer, sequence, has_grad; } ga_value_info;
int ga_net_params(const ga_net *net);
int ga_net_nodes(const ga_net *net);
int ga_net_values(const ga_net *net);
int64_t ga_net_param_count(const ga_net *net);
ga_status ga_param_get(const ga_net *net, int param, ga_param_info *out);
ga_status ga_node_get(const ga_net *net, int node, ga_node_info *out);
ga_status ga_value_get(const ga_net *net, int value, ga_value_info *out);
const char *ga_input_name(const ga_net *net, int input);
/* The value that predict returns: the loss's input, or the last node's output. */
int ga_net_prediction(const ga_net *net);
/* Where a value (grad: its gradient) of the last micro-batch lies in GA_ACTIVATIONS, in bytes, and how many samples and time
 * steps it has. GA_ESTAGE if its memory now holds something else, with the way to keep it. */
ga_status ga_value_place(const ga_net *net, int value, int grad, int64_t *offset, int64_t *samples, int64_t *length);
/* Target that the loss expects: shape per sample (rank 0: one per sample), integer or real. GA_EVALUE without a loss. */
ga_status ga_net_target(const ga_net *net, ga_shape *shape, int *integer, int *sequence);

/* ---- a micro-batch -------------------------------------------------------------------------------------------------- */

typedef struct {
    int64_t samples;
    int64_t length;                          /* time steps, for networks with sequences; 0: as planned */
    const void *input[GA_MAX_INPUTS];        /* reals of the network's type, or int64, in the order of ga_net_add_input */
    const void *target;                      /* int64 or reals, ga_net_target */
    const double *weight;                    /* NULL: all 1 */
    int weight_per_element;                  /* 0: one weight a sample; 1: one a target element */
} ga_batch;

typedef enum {
    GA_STAGE_CLEAR, GA_STAGE_FORWARD, GA_STAGE_LOSS, GA_STAGE_BACKWARD, GA_STAGE_ACCUMULATE, GA_STAGE_NORMALIZE,
    GA_STAGE_CLIP, GA_STAGE_UPDATE, GA_STAGES
} ga_stage;
ga_stage ga_net_stage(const ga_net *net);
const char *ga_stage_name(ga_stage stage);

void ga_net_train(ga_net *net, int training);
/* Parameters were written from outside: packed copies are made anew. */
void ga_net_touch(ga_net *net);

ga_status ga_forward(ga_net *net, const ga_batch *batch);                                    /* inputs only */
ga_status ga_loss(ga_net *net, const ga_batch *batch, double *loss_sum, double *weight);     /* target and weight only */
ga_status ga_backward(ga_net *net);
ga_status ga_zero_grad(ga_net *net);                                  /* only for a network without a window */
/* Forward of any number of samples in evaluation mode, in pieces; output: [samples][shape of the last value before the loss]. */
ga_status ga_predict(ga_net *net, const ga_batch *batch, void *output);
/* Loss sum and weight of any number of samples in evaluation mode. */
ga_status ga_evaluate(ga_net *net, const ga_batch *batch, double *loss_sum, double *weight);
/* Per-sample sums of the last loss stage; valid until the next. */
ga_status ga_net_sample_losses(const ga_net *net, const double **loss, const double **weight, int64_t *samples);

/* Seconds that each node took, from now on: ga_net_nodes + 1 records of the caller's, which it zeroed; the last is the update (norm and
 * step, as backward). pack: its part of making packed weights. A forward that recompute repeats counts as backward. NULL: no more. */
typedef struct { double forward, backward, pack, samples; } ga_time;
void ga_net_profile(ga_net *net, ga_time *times);

/* ---- the optimizer -------------------------------------------------------------------------------------------------- */

typedef enum { GA_SGD, GA_ADAM, GA_ADAMW, GA_ADAMA } ga_optimizer_kind;
typedef struct {                             /* PyTorch's names; one a group of parameters */
    double lr, weight_decay, momentum, dampening, beta1, beta2, eps;
    int nesterov, amsgrad;
} ga_hyper;
/* group[p]: index of the hyper-parameters of parameter p. Copies both. */
ga_status ga_optimizer_create(ga_net *net, ga_optimizer_kind kind, const ga_hyper *hyper, int n_groups, const int *group,
                              ga_optimizer **out);
void ga_optimizer_free(ga_optimizer *optimizer);
/* State arrays of ga_net_param_count reals each: momentum; or exp_avg, exp_avg_sq, max_exp_avg_sq. */
int ga_optimizer_states(const ga_optimizer *optimizer);
const char *ga_optimizer_state_name(const ga_optimizer *optimizer, int state);
ga_status ga_optimizer_bind(ga_optimizer *optimizer, int state, void *memory);
ga_hyper *ga_optimizer_hyper(ga_optimizer *optimizer, int group);        /* NULL: no such group */
ga_status ga_optimizer_set(ga_optimizer *optimizer, int group, const ga_hyper *hyper);   /* between updates; checked as at creation */
int64_t *ga_optimizer_clock(ga_optimizer *optimizer);                    /* updates it has done */
/* Outside a window: one update with the gradients as they are. Inside one: ga_window_apply. */
ga_status ga_optimizer_step(ga_optimizer *optimizer);
/* GA_ADAMA, after backward: gradients / divisor go into its moments and are cleared; the first micro-batch of a window lets them decay.
 * GA_ENONFINITE if they have NaN or infinity: then nothing is written. The update itself is that of any optimizer. */
ga_status ga_optimizer_take(ga_optimizer *optimizer, int first, double divisor);

/* ---- the window ----------------------------------------------------------------------------------------------------- */

typedef enum { GA_MEAN, GA_MEAN_OF_MEANS, GA_SUM } ga_reduction;
typedef enum { GA_BUFFER_REAL, GA_BUFFER_FLOAT64, GA_BUFFER_COMPENSATED, GA_BUFFER_BFLOAT16, GA_BUFFER_FLOAT16 } ga_buffer;
typedef enum { GA_NONFINITE_RAISE, GA_NONFINITE_SKIP_MICRO_BATCH, GA_NONFINITE_SKIP_UPDATE } ga_nonfinite;
typedef struct {
    ga_reduction reduction;
    int staged;                              /* backward fills the gradients of the micro-batch, accumulate adds them */
    ga_buffer buffer;                        /* staged only */
    double max_grad_norm;                    /* <= 0: no clipping */
    ga_nonfinite on_nonfinite;
    double loss_scale;                       /* the loss is multiplied by it, the gradient divided */
    double ema_decay;                        /* < 0: no moving average */
} ga_window_options;

typedef enum { GA_NOT_SKIPPED, GA_SKIPPED_ZERO_WEIGHT, GA_SKIPPED_NONFINITE } ga_skip;
typedef struct {
    double loss_sum, weight, grad_norm, grad_norm_clipped;
    int64_t samples, elements, micro_steps, rejected;
    int clipped;
    ga_skip skipped;
} ga_update;

typedef struct { int64_t micro_steps, updates, samples, elements; double weight; } ga_counters;   /* since the start */

/* The window of `net`; at most one is attached, and an attached one that holds something is not replaced. */
ga_status ga_window_create(ga_net *net, ga_optimizer *optimizer, const ga_window_options *options, ga_window **out);
void ga_window_free(ga_window *window);
ga_status ga_window_set(ga_window *window, const ga_window_options *options);   /* only while it is empty; same staged and buffer */
/* Bytes of the buffer and of its compensation (staged), and of the moving average; the caller binds zeroed memory. */
void ga_window_bytes(const ga_window *window, int64_t *buffer, int64_t *compensation, int64_t *ema);
ga_status ga_window_bind(ga_window *window, void *buffer, void *compensation, void *ema);

ga_status ga_window_begin(ga_window *window);
ga_status ga_window_accumulate(ga_window *window, int *rejected);
ga_status ga_window_normalize(ga_window *window);
ga_status ga_window_clip(ga_window *window, double max_norm, double *norm, int *clipped);
ga_status ga_window_apply(ga_window *window);                    /* the optimizer's step, moving average, counters */
ga_status ga_window_clear(ga_window *window, int discard);       /* discard: also a window that holds something */

/* One micro-batch: forward, loss, backward, accumulate. Everything is checked first. */
ga_status ga_window_add(ga_window *window, const ga_batch *batch, double *loss_sum, double *weight, int *rejected);
/* What is left of the window: normalize, clip, apply, clear, in one pass over the memory. */
ga_status ga_window_finish(ga_window *window, ga_update *update);
/* The batch is the window: pieces of `piece` samples (the last may be short), then finish. losses, weights: NULL, or room
 * for each piece's sums. */
ga_status ga_window_update(ga_window *window, const ga_batch *batch, int64_t piece, double *losses, double *weights,
                           ga_update *update);
/* Window after window of `samples` samples of the batch (the last may be short). lr: NULL, or the learning rate of all groups for each
 * update, counted without skipped windows. updates: a record a window; *done of them were made, also after an error, which undoes only its own window. */
ga_status ga_window_update_many(ga_window *window, const ga_batch *batch, int64_t samples, int64_t piece, const double *lr, ga_update *updates,
                                double *losses, double *weights, int64_t *done);

/* Where the first NaN or infinity of the last window that had one came from: "output of 2 (gelu), sample 37 of the window", or "gradient of 0.weight
 * (0, linear)"; "" if there was none. */
const char *ga_window_non_finite(const ga_window *window);

/* Inside the window: */
int64_t ga_window_micro_step(const ga_window *window);
void ga_window_sums(const ga_window *window, double *loss_sum, double *weight, int64_t *samples);
ga_counters *ga_window_counters(ga_window *window);
/* Everything else of a window that is not in a bound array, to save and to restore exactly. */
typedef struct {
    int stage, clipped;
    int64_t micro_step, samples, elements, rejected;
    double loss_sum, weight_sum, grad_norm, grad_norm_clipped;
} ga_window_state;
void ga_window_get_state(const ga_window *window, ga_window_state *state);
ga_status ga_window_set_state(ga_window *window, const ga_window_state *state);

/* Squared norms for the gradient noise scale (McCandlish et al. 2018, arXiv:1812.06162), off unless measured. The part V of a
 * micro-batch in the window's sum of gradients has E|V|^2 = mean^2 |G|^2 + noise tr S: mean = sum of w_j and noise = sum of w_j^2
 * over its samples, of loss weight w_j (both divided by the weight, and its square, for the mean of means). In a staged window `small`
 * is the sum of |V|^2 over all micro-batches; else it is that of the first alone, read from the buffer. Micro-batches without weight
 * and rejected ones are not there; parts: 0, 1 or 2 for none, one or more others. Of the open window, or of the last one. */
typedef struct { int64_t parts; double small, small_mean_squares, small_noise, mean, noise; } ga_noise;
ga_status ga_window_measure(ga_window *window, int on);          /* only while it is empty */
ga_noise *ga_window_noise(ga_window *window);
#endif
