/* The accumulation window: from the first micro-batch after an update to the update.
 *
 * It owns the divisor. Losses give sums and weights, layers add gradients of the sum, and here, once, everything is divided
 * by the weight that was really there: with S_i, n_i, G_i the loss sum, weight and gradient of micro-batch i,
 *
 *     loss = (S_1 + ... + S_K) / (n_1 + ... + n_K),      gradient = (G_1 + ... + G_K) / (n_1 + ... + n_K),
 *
 * which is the full-batch mean for every split. The mean of means, (G_1/n_1 + ... + G_K/n_K) / K, is not, unless all n_i are
 * equal; it can be chosen, to be compared.
 *
 * Order at the boundary: finalise the buffer, divide by the weight, unscale, check for NaN and infinity, norm, clip, weight
 * decay and step, moving average, counters, clear. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "internal.h"

static ga_status check_options(const ga_window_options *o)
{
    if (o->on_nonfinite == GA_NONFINITE_SKIP_MICRO_BATCH && !o->staged)
        return ga_fail(GA_EVALUE, "on_non_finite=\"skip_micro_batch\" needs the gradient of each micro-batch: staged=True");
    if (o->buffer != GA_BUFFER_REAL && !o->staged)
        return ga_fail(GA_EVALUE, "a buffer of another precision needs staged=True");
    if (!(o->loss_scale > 0) || isinf(o->loss_scale))
        return ga_fail(GA_EVALUE, "loss_scale=%g: expected a finite number above 0", o->loss_scale);
    if (isnan(o->max_grad_norm) || isnan(o->ema_decay) || o->ema_decay > 1)
        return ga_fail(GA_EVALUE, "max_grad_norm and ema must be numbers, and ema at most 1");
    return GA_OK;
}

ga_status ga_window_create(ga_net *net, ga_optimizer *optimizer, const ga_window_options *options, ga_window **out)
{
    *out = NULL;
    ga_status status = check_options(options);
    if (status)
        return status;
    if (!net->mapped)
        return ga_fail(GA_EVALUE, "a window needs a planned network with its memory bound");
    if (optimizer && optimizer->net != net)
        return ga_fail(GA_EVALUE, "the optimizer was built for another network");
    if (net->window && (net->window->micro_step || net->stage > GA_STAGE_LOSS))
        return ga_fail(GA_ESTAGE, "this network has a window that holds %lld micro-batches; finish or clear it first",
                       (long long)net->window->micro_step);
    ga_window *window = calloc(1, sizeof *window);
    if (!window)
        return ga_fail(GA_EMEMORY, "no memory for a window");
    window->net = net;
    window->optimizer = optimizer;
    window->options = *options;
    if (net->window)
        net->window->net = NULL;                     /* detached: its calls say so */
    net->window = window;
    net->stage = GA_STAGE_CLEAR;
    net->torn = 0;
    ga_zero_gradients(net);
    *out = window;
    return GA_OK;
}

void ga_window_free(ga_window *window)
{
    if (window && window->net) {
        window->net->window = NULL;
        window->net->stage = GA_STAGE_CLEAR;
    }
    free(window);
}

static ga_status attached(const ga_window *window)
{
    if (!window->net)
        return ga_fail(GA_ESTAGE, "this window was replaced by a newer one on the same network, or the network is gone");
    const ga_window_options *o = &window->options;
    if ((o->staged && !window->buffer) || (o->buffer == GA_BUFFER_COMPENSATED && !window->compensation) || (o->ema_decay >= 0 && !window->ema))
        return ga_fail(GA_EVALUE, "the window's memory is not bound");
    return GA_OK;
}

ga_status ga_window_set(ga_window *window, const ga_window_options *options)
{
    ga_status status = attached(window);
    if (!status)
        status = check_options(options);
    if (status)
        return status;
    if (window->micro_step || window->net->stage != GA_STAGE_CLEAR)
        return ga_fail(GA_ESTAGE, "options of a window change only while it is empty");
    if (options->staged != window->options.staged || options->buffer != window->options.buffer)
        return ga_fail(GA_EVALUE, "staged and the buffer's precision are fixed when the window is made");
    window->options = *options;
    return GA_OK;
}

int64_t ga_buffer_bytes(ga_buffer kind, int64_t real_bytes)
{
    switch (kind) {
    case GA_BUFFER_FLOAT64: return 8;
    case GA_BUFFER_BFLOAT16: case GA_BUFFER_FLOAT16: return 2;
    default: return real_bytes;
    }
}

void ga_window_bytes(const ga_window *window, int64_t *buffer, int64_t *compensation, int64_t *ema)
{
    const ga_net *net = window->net;
    int64_t n = net ? net->param_count : 0, real = net ? net->compute->real_bytes : 0;
    *buffer = window->options.staged ? n * ga_buffer_bytes(window->options.buffer, real) : 0;
    *compensation = window->options.buffer == GA_BUFFER_COMPENSATED ? n * real : 0;
    *ema = window->options.ema_decay >= 0 ? n * real : 0;
}

ga_status ga_window_bind(ga_window *window, void *buffer, void *compensation, void *ema)
{
    int64_t need[3];
    ga_window_bytes(window, &need[0], &need[1], &need[2]);
    if ((need[0] && !buffer) || (need[1] && !compensation) || (need[2] && !ema))
        return ga_fail(GA_EVALUE, "window: memory for a buffer is missing");
    window->buffer = buffer;
    window->compensation = compensation;
    window->ema = ema;
    return GA_OK;
}

double ga_window_seed(const ga_window *window, double weight)
{
    double scale = window->options.loss_scale;
    return window->options.reduction == GA_MEAN_OF_MEANS && weight > 0 ? scale / weight : scale;
}

/* ---- inside the window ---- */

ga_status ga_window_begin(ga_window *window)
{
    ga_status status = attached(window);
    if (status)
        return status;
    if (window->micro_step || window->net->stage > GA_STAGE_LOSS || window->net->torn)
        return ga_fail(GA_ESTAGE, "begin: the window holds %lld micro-batches (stage \"%s\"); finish it, or clear(discard=True)",
                       (long long)window->micro_step, ga_stage_name(window->net->stage));
    window->net->stage = GA_STAGE_CLEAR;
    return GA_OK;
}

static int gradients_finite(const ga_net *net)
{
    return isfinite(net->compute->norm_squares(net->param_count, net->block[GA_GRADIENTS], 1));
}

/* Square of the norm of the gradients so far, as if the chains of shared parameters were folded. */
static double folded_squares(const ga_net *net, double divide)
{
    const char *g = net->block[GA_GRADIENTS], *chains = g + net->param_count * net->compute->real_bytes;
    int64_t real = net->compute->real_bytes;
    double sum = 0, piece[64];
    const int64_t room = (int64_t)sizeof piece / real;
    for (int p = 0; p < net->n_params; p++) {
        const ga_param *param = &net->param[p];
        int chained = 0;
        for (int i = 0; i < net->n_chains; i++)
            chained |= net->chain[i].param == p && !net->plan.options.fold_ties;
        int64_t step = chained ? room : param->count;
        for (int64_t from = 0; from < param->count && !param->frozen; from += step) {
            int64_t n = param->count - from < step ? param->count - from : step;
            const char *at = g + (param->offset + from) * real;
            if (chained) {
                memcpy(piece, at, (size_t)(n * real));
                for (int i = 0; i < net->n_chains; i++)
                    if (net->chain[i].param == p)
                        net->compute->add(n, piece, chains + (net->chain[i].offset + from) * real);
            }
            sum += net->compute->norm_squares(n, chained ? (const char *)piece : at, divide);
        }
    }
    return sum;
}

/* What the noise scale needs of the micro-batch at hand. In an unstaged window only the first can be seen: it is alone in the buffer, and the
 * others may run in groups. mean and noise are one chain over the samples, so they have the same bits in every split. */
static void measure(ga_window *window, const ga_node *loss)
{
    const ga_net *net = window->net;
    ga_noise *n = &window->noise;
    double own = window->options.reduction == GA_MEAN_OF_MEANS ? net->weight : 1, mean = 0, noise = 0;   /* backward has divided by it */
    if (!(net->weight > 0))
        return;
    for (int64_t i = 0; i < net->pass.samples; i++) {
        double w = loss->loss_weight[i] / own;
        mean += w;
        noise += w * w;
        n->mean += w;
        n->noise += w * w;
    }
    if (window->options.staged || !n->parts) {
        n->small += folded_squares(net, window->options.loss_scale);
        n->small_mean_squares += mean * mean;
        n->small_noise += noise;
    }
    n->parts += n->parts < 2;
}

/* The gradient has a NaN or infinity: if forward had none, the node whose backward gave the first, which is the last in order. */
static const char *culprit(ga_net *net)
{
    for (int i = net->n_nodes - 1; i >= 0 && !net->culprit[0]; i--)
        for (int k = 0; k < net->node[i]->n_params; k++) {
            const ga_param *p = &net->param[net->node[i]->param[k]];
            if (p->frozen || net->compute->finite(p->count, net->block[GA_GRADIENTS] + p->offset * net->compute->real_bytes))
                continue;
            snprintf(net->culprit, sizeof net->culprit, "gradient of %s (%s)", p->name, net->node[i]->layer->kind);
            break;
        }
    if (!net->culprit[0])
        snprintf(net->culprit, sizeof net->culprit, "divisor: the loss scale times the weight is too large");
    return net->culprit;
}

/* Takes what backward added into the window, as `micro_steps` micro-batches. */
static ga_status accumulate(ga_window *window, int64_t micro_steps, int *rejected)
{
    ga_status status = attached(window);
    if (status)
        return status;
    ga_net *net = window->net;
    if (net->stage != GA_STAGE_BACKWARD || net->torn)
        return ga_wrong_stage(net, "accumulate");
    const ga_node *loss = net->node[net->loss_node];
    int keep = window->options.on_nonfinite != GA_NONFINITE_SKIP_MICRO_BATCH
               || (isfinite(net->loss_sum) && gradients_finite(net));
    if (!window->micro_step)
        window->noise = (ga_noise){0};
    if (!keep)
        culprit(net);
    if (keep) {
        if (window->measure)
            measure(window, loss);
        if (window->options.staged)
            net->compute->buffer_add(window->options.buffer, net->param_count, window->buffer, window->compensation,
                                     net->block[GA_GRADIENTS]);
        for (int64_t i = 0; i < net->pass.samples; i++) {    /* one chain over the samples of the window */
            window->loss_sum += loss->loss[i];
            window->weight_sum += loss->loss_weight[i];
            window->counters.weight += loss->loss_weight[i];
        }
        window->elements += net->elements;
        window->counters.elements += net->elements;
    } else
        window->rejected++;
    window->samples += net->pass.samples;
    window->micro_step += micro_steps;
    window->counters.samples += net->pass.samples;
    window->counters.micro_steps += micro_steps;
    if (rejected)
        *rejected = !keep;
    net->stage = GA_STAGE_ACCUMULATE;
    return GA_OK;
}

ga_status ga_window_accumulate(ga_window *window, int *rejected) { return accumulate(window, 1, rejected); }

/* What the sum of gradients is divided by. */
static double divisor(const ga_window *window)
{
    double d = 1;
    if (window->options.reduction == GA_MEAN)
        d = window->weight_sum;
    else if (window->options.reduction == GA_MEAN_OF_MEANS)
        d = (double)(window->micro_step - window->rejected);
    return d * window->options.loss_scale;
}

/* Square of the norm of what the gradients are once divided: one float64 sum over the parameters in order. */
static double norm_of(const ga_net *net, double divide)
{
    double sum = 0;
    if (net->dtype == GA_FLOAT32 && divide > FLT_MAX)            /* loss scale times weight: dividing by it would give 0 */
        return INFINITY;
    for (int p = 0; p < net->n_params; p++)
        if (!net->param[p].frozen)
            sum += net->compute->norm_squares(net->param[p].count,
                                              net->block[GA_GRADIENTS] + net->param[p].offset * net->compute->real_bytes, divide);
    return sqrt(sum);
}

/* The window's gradient in net.grads, divided by what is returned (1: divided already). */
static double finalise(ga_window *window)
{
    ga_net *net = window->net;
    double d = divisor(window);
    if (!window->options.staged) {
        ga_fold_ties(net);
        return d;
    }
    net->compute->buffer_read(window->options.buffer, net->param_count, window->buffer, window->compensation, d,
                              net->block[GA_GRADIENTS]);
    return 1;
}

const char *ga_window_non_finite(const ga_window *window) { return window->net ? window->net->culprit : ""; }

static double clip_factor(double norm, double max_norm)
{
    double factor = max_norm / (norm + 1e-6);        /* torch.nn.utils.clip_grad_norm_ */
    return max_norm > 0 && factor < 1 ? factor : 1;
}

ga_status ga_window_normalize(ga_window *window)
{
    ga_status status = attached(window);
    if (status)
        return status;
    ga_net *net = window->net;
    if (net->stage != GA_STAGE_ACCUMULATE)
        return ga_wrong_stage(net, "normalize");
    if (!(window->weight_sum > 0))
        return ga_fail(GA_ESTAGE, "normalize: the window has no weight (all targets ignored, or all weights 0), so there is nothing "
                       "to divide by; allowed now: forward, clear(discard=True)");
    double d = finalise(window);
    net->compute->scale(net->param_count, net->block[GA_GRADIENTS], d, 1);
    window->grad_norm = window->grad_norm_clipped = norm_of(net, 1);
    window->clipped = 0;
    net->stage = GA_STAGE_NORMALIZE;
    return GA_OK;
}

ga_status ga_window_clip(ga_window *window, double max_norm, double *norm, int *clipped)
{
    ga_status status = attached(window);
    if (status)
        return status;
    ga_net *net = window->net;
    if (net->stage != GA_STAGE_NORMALIZE)
        return ga_wrong_stage(net, "clip");
    if (!(max_norm > 0))
        return ga_fail(GA_EVALUE, "max_norm=%g: expected a number above 0", max_norm);
    double factor = clip_factor(window->grad_norm, max_norm);
    window->clipped = factor < 1;
    if (window->clipped)
        net->compute->scale(net->param_count, net->block[GA_GRADIENTS], 1, factor);
    window->grad_norm_clipped = window->clipped ? window->grad_norm * factor : window->grad_norm;
    *norm = window->grad_norm;
    *clipped = window->clipped;
    net->stage = GA_STAGE_CLIP;
    return GA_OK;
}

/* After the optimizer's step. */
static void committed(ga_window *window)
{
    ga_net *net = window->net;
    if (window->ema)
        net->compute->average(net->param_count, window->ema, net->block[GA_PARAMETERS], window->options.ema_decay);
    ga_commit_layers(net);
    window->counters.updates++;
}

ga_status ga_window_apply(ga_window *window)
{
    ga_status status = attached(window);
    if (status)
        return status;
    ga_net *net = window->net;
    if (net->stage != GA_STAGE_NORMALIZE && net->stage != GA_STAGE_CLIP)
        return ga_wrong_stage(net, "step");
    if (!window->optimizer)
        return ga_fail(GA_EVALUE, "step: this window was made without an optimizer");
    if ((status = ga_optimizer_ready(window->optimizer)))
        return status;
    if (!isfinite(window->grad_norm))
        return ga_fail(GA_ENONFINITE, "step: the window's gradient has NaN or infinity, first in the %s; nothing was updated; "
                       "clear(discard=True) drops the window", culprit(net));
    double before = net->time ? ga_now() : 0;
    ga_optimizer_run(window->optimizer, 1, 1, 0);
    committed(window);
    if (net->time)
        net->time[net->n_nodes].backward += ga_now() - before;
    net->stage = GA_STAGE_UPDATE;
    return GA_OK;
}

static void empty(ga_window *window, int gradients_are_zero)
{
    ga_net *net = window->net;
    int64_t buffer, compensation, ema;
    ga_window_bytes(window, &buffer, &compensation, &ema);
    if (!gradients_are_zero)
        ga_zero_gradients(net);
    if (window->buffer)
        memset(window->buffer, 0, (size_t)buffer);
    if (window->compensation)
        memset(window->compensation, 0, (size_t)compensation);
    for (int i = 0; i < net->n_nodes; i++)
        if (net->node[i]->layer->discard)
            net->node[i]->layer->discard(net->node[i]);
    window->micro_step = window->samples = window->elements = window->rejected = 0;
    window->loss_sum = window->weight_sum = 0;
    net->torn = 0;
    net->stage = GA_STAGE_CLEAR;
}

ga_status ga_window_clear(ga_window *window, int discard)
{
    ga_status status = attached(window);
    if (status)
        return status;
    ga_net *net = window->net;
    int holds = window->micro_step || net->torn || net->stage == GA_STAGE_BACKWARD;
    if (holds && net->stage != GA_STAGE_UPDATE && !discard)
        return ga_fail(GA_ESTAGE, "clear: the window holds %lld micro-batches that were not applied (stage \"%s\"); finish it, or "
                       "clear(discard=True) if they should be thrown away",
                       (long long)(window->micro_step + (net->stage == GA_STAGE_BACKWARD)), ga_stage_name(net->stage));
    empty(window, 0);
    return GA_OK;
}

/* ---- a micro-batch, the rest of a window, a whole window in one call ---- */

static ga_status add_checked(ga_window *window, const ga_batch *batch, int64_t micro_steps, double *loss_sum, double *weight, int *rejected)
{
    ga_net *net = window->net;
    ga_status status = ga_run_forward(net, batch, net->training);
    if (!status)
        status = ga_run_loss(net, batch);
    if (!status) {
        *loss_sum = net->loss_sum;
        *weight = net->weight;
        if (!isfinite(net->loss_sum)) {
            ga_find_non_finite(net, batch);
            status = ga_run_loss(net, batch);    /* forward ran again, over memory that the loss uses */
        }
        if (!status)
            status = ga_run_backward(net);
        net->stage = GA_STAGE_BACKWARD;
    }
    return status ? status : accumulate(window, micro_steps, rejected);
}

ga_status ga_window_add(ga_window *window, const ga_batch *batch, double *loss_sum, double *weight, int *rejected)
{
    ga_status status = attached(window);
    if (status)
        return status;
    ga_net *net = window->net;
    if (net->stage > GA_STAGE_ACCUMULATE || net->stage == GA_STAGE_BACKWARD || net->torn)
        return ga_wrong_stage(net, "step");
    status = ga_check_batch(net, batch, 1, 1, net->training, net->plan.micro_batch);
    if (status)
        return status;
    net->stage = ga_resting_stage(net);
    return add_checked(window, batch, 1, loss_sum, weight, rejected);
}

ga_status ga_window_finish(ga_window *window, ga_update *update)
{
    ga_status status = attached(window);
    if (status)
        return status;
    ga_net *net = window->net;
    if (net->stage != GA_STAGE_ACCUMULATE)
        return ga_wrong_stage(net, "the update");
    if (!window->optimizer)
        return ga_fail(GA_EVALUE, "update: this window was made without an optimizer");
    if ((status = ga_optimizer_ready(window->optimizer)))
        return status;
    *update = (ga_update){.loss_sum = window->loss_sum, .weight = window->weight_sum, .samples = window->samples,
                          .elements = window->elements, .micro_steps = window->micro_step, .rejected = window->rejected};
    if (!(window->weight_sum > 0)) {
        update->skipped = window->rejected == window->micro_step ? GA_SKIPPED_NONFINITE : GA_SKIPPED_ZERO_WEIGHT;
        empty(window, 0);
        return GA_OK;
    }
    double before = net->time ? ga_now() : 0, d = finalise(window);
    update->grad_norm = norm_of(net, d);
    if (!isfinite(update->grad_norm)) {
        if (window->options.on_nonfinite == GA_NONFINITE_RAISE)
            return ga_fail(GA_ENONFINITE, "update: the window's gradient has NaN or infinity, first in the %s; nothing was updated; "
                           "clear(discard=True) drops the window", culprit(net));
        update->skipped = GA_SKIPPED_NONFINITE;
        culprit(net);
        empty(window, 0);
        return GA_OK;
    }
    double factor = clip_factor(update->grad_norm, window->options.max_grad_norm);
    update->clipped = factor < 1;
    update->grad_norm_clipped = update->grad_norm * factor;
    ga_optimizer_run(window->optimizer, d, factor, 1);
    committed(window);
    empty(window, 1);
    if (net->time)
        net->time[net->n_nodes].backward += ga_now() - before;
    return GA_OK;
}

/* Micro-batches may run together where their own gradients and weights are asked for nowhere. */
static int may_group(const ga_window *window)
{
    return !window->options.staged && window->options.reduction != GA_MEAN_OF_MEANS;
}

/* Loss and weight of the samples from..to-1 that just ran. */
static void piece_sums(const ga_net *net, int64_t from, int64_t to, double *loss_sum, double *weight)
{
    const ga_node *loss = net->node[net->loss_node];
    double sums[2] = {0, 0};
    for (int64_t i = from; i < to; i++) {
        sums[0] += loss->loss[i];
        sums[1] += loss->loss_weight[i];
    }
    if (loss_sum)
        *loss_sum = sums[0];
    if (weight)
        *weight = sums[1];
}

ga_status ga_window_update(ga_window *window, const ga_batch *batch, int64_t piece, double *losses, double *weights,
                           ga_update *update)
{
    ga_status status = attached(window);
    if (status)
        return status;
    ga_net *net = window->net;
    if (net->stage > GA_STAGE_LOSS || window->micro_step || net->torn)
        return ga_fail(GA_ESTAGE, "update: the window already holds %lld micro-batches; finish it with flush(), or "
                       "clear(discard=True)", (long long)window->micro_step);
    if (piece < 1 || piece > net->plan.micro_batch)
        return ga_fail(GA_EVALUE, "update: pieces of %lld samples, but the network is planned for 1 to %lld", (long long)piece,
                       (long long)net->plan.micro_batch);
    status = ga_check_batch(net, batch, 1, 1, net->training, 0);
    if (status)
        return status;
    ga_counters before = window->counters;
    int64_t group = may_group(window) ? net->plan.rows / piece : 1, together;
    window->noise = (ga_noise){0};
    net->stage = GA_STAGE_CLEAR;
    for (int64_t first = 0, i = 0; first < batch->samples && !status; first += together * piece, i += together) {
        int64_t most = (together = window->measure && !window->noise.parts ? 1 : group) * piece;   /* the first alone, to be measured */
        int64_t n = batch->samples - first < most ? batch->samples - first : most, steps = (n + piece - 1) / piece;
        ga_batch part;
        double loss_sum, weight;
        ga_batch_piece(net, batch, first, n, &part);
        status = add_checked(window, &part, steps, &loss_sum, &weight, NULL);
        if (status)
            break;
        net->shown = (steps - 1) * piece;
        for (int64_t k = 0; k < steps; k++)
            piece_sums(net, k * piece, n - k * piece < piece ? n : (k + 1) * piece, losses ? &losses[i + k] : NULL, weights ? &weights[i + k] : NULL);
    }
    if (!status)
        status = ga_window_finish(window, update);
    if (status) {                                    /* the window was empty before: it is again */
        empty(window, 0);
        window->counters = before;
    }
    return status;
}

ga_status ga_window_update_many(ga_window *window, const ga_batch *batch, int64_t samples, int64_t piece, const double *lr, ga_update *updates,
                                double *losses, double *weights, int64_t *done)
{
    *done = 0;
    if (samples < 1 || piece < 1)
        return ga_fail(GA_EVALUE, "update_many: windows of %lld samples in pieces of %lld, expected at least 1", (long long)samples, (long long)piece);
    ga_status status = attached(window);
    int64_t at = 0, start = window->counters.updates;
    for (int64_t first = 0; first < batch->samples && !status; first += samples) {
        ga_batch part;
        int64_t n = batch->samples - first < samples ? batch->samples - first : samples;
        ga_batch_piece(window->net, batch, first, n, &part);
        for (int g = 0; lr && window->optimizer && g < window->optimizer->n_groups && !status; g++) {
            ga_hyper hyper = window->optimizer->hyper[g];
            hyper.lr = lr[window->counters.updates - start];
            status = ga_optimizer_set(window->optimizer, g, &hyper);
        }
        if (!status)
            status = ga_window_update(window, &part, piece, losses ? losses + at : NULL, weights ? weights + at : NULL, &updates[*done]);
        at += (n + piece - 1) / piece;
        *done += !status;
    }
    return status;
}

/* ---- queries and state ---- */

int64_t ga_window_micro_step(const ga_window *window) { return window->micro_step; }
ga_counters *ga_window_counters(ga_window *window) { return &window->counters; }

void ga_window_sums(const ga_window *window, double *loss_sum, double *weight, int64_t *samples)
{
    *loss_sum = window->loss_sum;
    *weight = window->weight_sum;
    *samples = window->samples;
}

void ga_window_get_state(const ga_window *window, ga_window_state *s)
{
    *s = (ga_window_state){.stage = window->net ? (int)window->net->stage : 0, .micro_step = window->micro_step,
                           .samples = window->samples, .elements = window->elements, .rejected = window->rejected,
                           .loss_sum = window->loss_sum, .weight_sum = window->weight_sum, .grad_norm = window->grad_norm,
                           .grad_norm_clipped = window->grad_norm_clipped, .clipped = window->clipped};
}

ga_status ga_window_set_state(ga_window *window, const ga_window_state *s)
{
    ga_status status = attached(window);
    if (status)
        return status;
    if (s->stage < 0 || s->stage >= GA_STAGES || s->micro_step < 0 || s->samples < 0 || s->elements < 0 || s->rejected < 0)
        return ga_fail(GA_EVALUE, "window state: stage %d, micro-step %lld is no state of a window", s->stage, (long long)s->micro_step);
    window->micro_step = s->micro_step;
    window->samples = s->samples;
    window->elements = s->elements;
    window->rejected = s->rejected;
    window->loss_sum = s->loss_sum;
    window->weight_sum = s->weight_sum;
    window->grad_norm = s->grad_norm;
    window->grad_norm_clipped = s->grad_norm_clipped;
    window->clipped = s->clipped;
    /* forward, loss and backward belong to activations, which are not part of a window's state */
    ga_stage stage = (ga_stage)s->stage;
    window->net->stage = stage == GA_STAGE_FORWARD || stage == GA_STAGE_LOSS || stage == GA_STAGE_BACKWARD
                         ? ga_resting_stage(window->net) : stage;
    window->net->torn = 0;
    return GA_OK;
}

ga_status ga_window_measure(ga_window *window, int on)
{
    ga_status status = attached(window);
    if (status)
        return status;
    if (window->micro_step || window->net->stage != GA_STAGE_CLEAR)
        return ga_fail(GA_ESTAGE, "the noise scale is measured from an empty window on");
    window->measure = on;
    return GA_OK;
}

ga_noise *ga_window_noise(ga_window *window) { return &window->noise; }
