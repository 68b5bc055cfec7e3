/* One micro-batch through the array: forward, loss, backward; and passes that only look (predict, evaluate). */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "internal.h"

static const char *const stage_names[GA_STAGES] = {"clear", "forward", "loss", "backward", "accumulate", "normalize", "clip", "update"};
static const char *const allowed_next[GA_STAGES] = {
    "forward", "loss (or forward again)", "backward (or forward again)", "accumulate", "forward, normalize", "clip, step", "step", "clear",
};

const char *ga_stage_name(ga_stage stage) { return (unsigned)stage < GA_STAGES ? stage_names[stage] : "?"; }
ga_stage ga_net_stage(const ga_net *net) { return net->stage; }
void ga_net_train(ga_net *net, int training) { net->training = training; }
void ga_net_touch(ga_net *net) { net->stale_packed = 1; }

ga_status ga_wrong_stage(const ga_net *net, const char *call)
{
    if (net->torn)
        return ga_fail(GA_ESTAGE, "%s: a backward pass failed half-way, so the gradients hold no whole micro-batch; allowed now: "
                       "clear(discard=True)", call);
    return ga_fail(GA_ESTAGE, "%s was called in stage \"%s\"; allowed now: %s", call, stage_names[net->stage],
                   net->stage == GA_STAGE_BACKWARD && !net->window ? "forward, step" : allowed_next[net->stage]);
}

ga_stage ga_resting_stage(const ga_net *net)
{
    return net->window && net->window->micro_step ? GA_STAGE_ACCUMULATE : GA_STAGE_CLEAR;
}

static ga_status ready(const ga_net *net)
{
    return net->mapped ? GA_OK : ga_fail(GA_EVALUE, "the network is not planned, or its memory is not bound");
}

static int64_t length_of(const ga_net *net, const ga_batch *batch) { return batch->length ? batch->length : net->length; }

/* The shape with the time steps of this micro-batch. */
static ga_shape at_length(const ga_shape *shape, int sequence, int64_t length)
{
    ga_shape s = *shape;
    if (sequence && s.rank)
        s.dim[0] = length;
    return s;
}

static ga_shape target_shape(const ga_net *net, int64_t length)
{
    const ga_node *loss = net->node[net->loss_node];
    return at_length(&loss->target_shape, loss->in_sequence[0], length);
}

static ga_status check_weights(const ga_net *net, const ga_batch *batch)
{
    int64_t per_sample = batch->weight_per_element ? ga_target_elements(net, length_of(net, batch)) : 1;
    for (int64_t i = 0; batch->weight && i < batch->samples * per_sample; i++)
        if (!(batch->weight[i] >= 0) || isinf(batch->weight[i]))
            return ga_fail(GA_EVALUE, "weight: sample %lld has %g; weights are finite and not negative",
                           (long long)(i / per_sample), batch->weight[i]);
    return GA_OK;
}

ga_status ga_check_batch(const ga_net *net, const ga_batch *batch, int inputs, int loss, int training, int64_t limit)
{
    ga_status status = ready(net);
    if (status)
        return status;
    if (batch->samples < 1)
        return ga_fail(GA_EVALUE, "the batch has %lld samples, expected at least 1", (long long)batch->samples);
    if (limit && batch->samples > limit)
        return ga_fail(GA_EVALUE, "the micro-batch has %lld samples, but the network is planned for at most %lld; split it, or plan "
                       "with a larger micro_batch", (long long)batch->samples, (long long)limit);
    if (batch->length < 0 || length_of(net, batch) > net->length)
        return ga_fail(GA_EVALUE, "the sequences have %lld steps, but the network is planned for at most %lld",
                       (long long)batch->length, (long long)net->length);
    for (int k = 0; inputs && k < net->n_inputs; k++)
        if (!batch->input[k])
            return ga_fail(GA_EVALUE, "%s: no array given", net->input_name[k]);
    ga_pass pass = {.samples = batch->samples, .length = length_of(net, batch), .training = training};
    for (int i = 0; inputs && i < net->n_nodes; i++) {
        const ga_node *node = net->node[i];
        if (!node->layer->check || i == net->loss_node)
            continue;
        const void *data = NULL;
        for (int k = 0; k < net->n_inputs; k++)
            if (node->in_integer[0] && net->input_value[k] == node->input[0])
                data = batch->input[k];
        if ((status = node->layer->check(node, &pass, data)))
            return status;
    }
    if (!loss)
        return GA_OK;
    if (net->loss_node < 0)
        return ga_fail(GA_EVALUE, "the network has no loss: plan it with loss=");
    const ga_node *node = net->node[net->loss_node];
    if (!batch->target)
        return ga_fail(GA_EVALUE, "%s: no target given", node->name);
    if (node->layer->check && (status = node->layer->check(node, &pass, batch->target)))
        return status;
    return check_weights(net, batch);
}

/* Samples first..first+samples-1 of a batch. */
void ga_batch_piece(const ga_net *net, const ga_batch *batch, int64_t first, int64_t samples, ga_batch *out)
{
    int64_t length = length_of(net, batch);
    *out = *batch;
    out->samples = samples;
    for (int k = 0; k < net->n_inputs; k++) {
        const ga_value *v = &net->value[net->input_value[k]];
        ga_shape s = at_length(&v->shape, v->sequence, length);
        out->input[k] = (const char *)batch->input[k] + first * ga_elements(&s) * (v->integer ? 8 : net->compute->real_bytes);
    }
    if (net->loss_node < 0)
        return;
    int64_t n = ga_target_elements(net, length);
    if (batch->target)
        out->target = (const char *)batch->target
                      + first * n * (net->node[net->loss_node]->target_integer ? 8 : net->compute->real_bytes);
    if (batch->weight)
        out->weight = batch->weight + first * (batch->weight_per_element ? n : 1);
}

/* ---- the three passes ---- */

void ga_net_profile(ga_net *net, ga_time *times) { net->time = times; }

typedef ga_status node_pass(const ga_node *, const ga_pass *);

static ga_status run_node(ga_net *net, const ga_node *node, node_pass *run, int backward)
{
    if (!net->time)
        return run(node, &net->pass);
    ga_time *time = &net->time[node->index];
    double before = ga_now();
    ga_status status = run(node, &net->pass);
    *(backward ? &time->backward : &time->forward) += ga_now() - before;
    if (!backward)
        time->samples += (double)net->pass.samples;
    return status;
}

static void pack_nodes(ga_net *net)
{
    for (int i = 0; i < net->n_nodes; i++) {
        if (!net->node[i]->packed)
            continue;
        double before = net->time ? ga_now() : 0;
        net->node[i]->layer->pack(net->node[i], net->pass.threads);
        if (net->time)
            net->time[i].pack += ga_now() - before;
    }
    net->stale_packed = 0;
}

static void import_inputs(ga_net *net, const ga_batch *batch)
{
    for (int k = 0; k < net->n_inputs; k++) {
        const ga_value *v = &net->value[net->input_value[k]];
        ga_shape s = at_length(&v->shape, v->sequence, net->pass.length);
        char *to = net->block[GA_ACTIVATIONS] + net->plan.piece[net->input_value[k]].offset;
        if (v->integer)
            memcpy(to, batch->input[k], (size_t)(net->pass.samples * ga_elements(&s)) * 8);
        else
            net->compute->import(&s, net->pass.samples, batch->input[k], to);
    }
}

ga_status ga_run_forward(ga_net *net, const ga_batch *batch, int training)
{
    const ga_window *window = net->window;
    ga_pass *pass = &net->pass;
    int threads = ga_get_threads();
    *pass = (ga_pass){.samples = batch->samples, .length = length_of(net, batch), .seed = net->seed, .training = training,
                      .first_sample = window ? window->samples : net->free_samples,
                      .update = (uint64_t)(window ? window->counters.updates : net->free_updates),
                      .threads = threads < net->plan.threads ? threads : net->plan.threads};
    net->shown = 0;
    if (!window || !window->micro_step)
        net->culprit[0] = 0;
    if (net->stale_packed)
        pack_nodes(net);
    import_inputs(net, batch);
    net->clock = -1;
    for (int i = 0; i < net->n_nodes; i++) {
        if (i == net->loss_node)
            continue;
        ga_status status = run_node(net, net->node[i], net->node[i]->layer->forward, 0);
        if (status)
            return status;
        net->clock = 2 * i + 1;
    }
    return GA_OK;
}

/* The weights of target elements, in stored order. */
static void copy_weights(const ga_net *net, const ga_batch *batch)
{
    ga_shape s = target_shape(net, net->pass.length);
    double *to = ga_loss_weights(net);
    if (!batch->weight_per_element)
        memcpy(to, batch->weight, (size_t)batch->samples * 8);
    else if (s.rank < 3)
        memcpy(to, batch->weight, (size_t)(batch->samples * ga_elements(&s)) * 8);
    else {
        int64_t pixels = s.dim[1] * s.dim[2], channels = s.dim[0];
        for (int64_t n = 0; n < batch->samples; n++)
            for (int64_t c = 0; c < channels; c++)
                for (int64_t p = 0; p < pixels; p++)
                    to[(n * pixels + p) * channels + c] = batch->weight[(n * channels + c) * pixels + p];
    }
}

ga_status ga_run_loss(ga_net *net, const ga_batch *batch)
{
    ga_node *node = net->node[net->loss_node];
    ga_shape s = target_shape(net, net->pass.length);
    if (node->target_integer)
        memcpy(node->target, batch->target, (size_t)(net->pass.samples * ga_elements(&s)) * 8);
    else
        net->compute->import(&s, net->pass.samples, batch->target, node->target);
    node->sample_weight = batch->weight ? ga_loss_weights(net) : NULL;
    net->pass.weight_per_element = batch->weight_per_element;
    if (batch->weight)
        copy_weights(net, batch);
    ga_status status = run_node(net, node, node->layer->forward, 0);
    if (status)
        return status;
    net->clock = 2 * node->index + 1;
    net->loss_sum = net->weight = 0;
    for (int64_t i = 0; i < net->pass.samples; i++) {
        net->loss_sum += node->loss[i];
        net->weight += node->loss_weight[i];
    }
    return GA_OK;
}

/* First sample of a value with NaN or infinity, in the window; -1: none */
static long long bad_sample(const ga_net *net, int v, const void *at)
{
    const ga_value *value = &net->value[v];
    ga_shape s = at_length(&value->shape, value->sequence, net->pass.length);
    int64_t n = ga_elements(&s);
    for (int64_t i = 0; i < net->pass.samples && !value->integer; i++)
        if (!net->compute->finite(n, (const char *)at + i * n * net->compute->real_bytes))
            return net->pass.first_sample + i;
    return -1;
}

/* With the batch at hand forward runs once more (`again`: nothing is counted twice), looking at each output before its memory is used
 * again. Without, the outputs that are still there are looked at. */
void ga_find_non_finite(ga_net *net, const ga_batch *batch)
{
    const ga_node *loss = net->node[net->loss_node];
    long long sample;
    if (net->culprit[0])
        return;
    for (int k = 0; batch && k < net->n_inputs; k++)
        if ((sample = bad_sample(net, net->input_value[k], batch->input[k])) >= 0) {
            snprintf(net->culprit, sizeof net->culprit, "input %s, sample %lld of the window", net->input_name[k], sample);
            return;
        }
    if (batch)
        import_inputs(net, batch);
    net->pass.again = 1;
    for (int i = 0; i < net->n_nodes && !net->culprit[0]; i++) {
        const ga_node *node = net->node[i];
        int64_t offset, samples, length;
        if (i == net->loss_node || (batch && node->layer->forward(node, &net->pass)))
            continue;
        if (!batch && ga_value_place(net, node->output, 0, &offset, &samples, &length))
            continue;
        if ((sample = bad_sample(net, node->output, node->y)) >= 0)
            snprintf(net->culprit, sizeof net->culprit, "output of %s (%s), sample %lld of the window", node->name, node->layer->kind, sample);
    }
    net->pass.again = 0;
    for (int64_t i = 0; i < net->pass.samples && !net->culprit[0]; i++)
        if (!isfinite(loss->loss[i]))
            snprintf(net->culprit, sizeof net->culprit, "loss, sample %lld of the window", (long long)(net->pass.first_sample + i));
}

void ga_zero_gradients(ga_net *net)
{
    memset(net->block[GA_GRADIENTS], 0, (size_t)net->plan.size.bytes[GA_GRADIENTS]);
}

/* A parameter used in several places has one gradient chain a use; here they become one sum, in the order of the nodes. */
void ga_fold_ties(ga_net *net)
{
    int64_t real = net->compute->real_bytes;
    if (net->plan.options.fold_ties)
        return;
    for (int i = 0; i < net->n_chains; i++) {
        const ga_param *p = &net->param[net->chain[i].param];
        char *chain = net->block[GA_GRADIENTS] + (net->param_count + net->chain[i].offset) * real;
        if (p->frozen)
            continue;
        net->compute->add(p->count, net->block[GA_GRADIENTS] + p->offset * real, chain);
        memset(chain, 0, (size_t)(p->count * real));
    }
}

void ga_commit_layers(ga_net *net)
{
    for (int i = 0; i < net->n_nodes; i++)
        if (net->node[i]->layer->commit)
            net->node[i]->layer->commit(net->node[i], &net->pass);
}

ga_status ga_run_backward(ga_net *net)
{
    ga_window *window = net->window;
    int staged = window && window->options.staged;
    net->pass.scale = window ? ga_window_seed(window, net->weight) : 1;
    if (staged)
        ga_zero_gradients(net);
    for (int t = net->n_nodes; t < net->plan.n_steps && net->weight > 0; t++) {   /* no weight: nothing to add, not even 0 * infinity */
        const ga_node *node = net->node[net->plan.step[t].node];
        if (net->plan.step[t].kind == GA_STEP_BACKWARD && node->output >= 0 && !net->value[node->output].needs_grad)
            continue;
        net->pass.again = net->plan.step[t].kind == GA_STEP_AGAIN;
        ga_status status = run_node(net, node, net->pass.again ? node->layer->forward : node->layer->backward, 1);
        net->pass.again = 0;
        if (status) {
            net->torn = 1;
            return status;
        }
        net->clock = 2 * t + 1;
    }
    if (staged || !window)                       /* else when the window is finalised: chains go on over its micro-batches */
        ga_fold_ties(net);
    return GA_OK;
}

/* ---- the public stages ---- */

ga_status ga_forward(ga_net *net, const ga_batch *batch)
{
    ga_status status = ga_check_batch(net, batch, 1, 0, net->training, net->plan.micro_batch);
    if (status)
        return status;
    if (net->torn || net->stage > GA_STAGE_ACCUMULATE || (net->stage == GA_STAGE_BACKWARD && net->window))
        return ga_wrong_stage(net, "forward");
    net->stage = ga_resting_stage(net);
    status = ga_run_forward(net, batch, net->training);
    if (!status)
        net->stage = GA_STAGE_FORWARD;
    return status;
}

ga_status ga_loss(ga_net *net, const ga_batch *batch, double *loss_sum, double *weight)
{
    ga_batch whole = *batch;
    ga_status status = ready(net);
    if (status)
        return status;
    if (net->stage != GA_STAGE_FORWARD && net->stage != GA_STAGE_LOSS)
        return ga_wrong_stage(net, "loss");
    if (batch->samples != net->pass.samples)
        return ga_fail(GA_EVALUE, "y: got %lld samples, but forward had %lld", (long long)batch->samples, (long long)net->pass.samples);
    whole.length = net->pass.length;
    status = ga_check_batch(net, &whole, 0, 1, net->pass.training, 0);
    if (!status)
        status = ga_run_loss(net, &whole);
    if (status)
        return status;
    net->stage = GA_STAGE_LOSS;
    *loss_sum = net->loss_sum;
    *weight = net->weight;
    if (!isfinite(net->loss_sum))
        ga_find_non_finite(net, NULL);
    return GA_OK;
}

ga_status ga_backward(ga_net *net)
{
    ga_status status = ready(net);
    if (status)
        return status;
    if (net->stage != GA_STAGE_LOSS || net->torn)
        return ga_wrong_stage(net, "backward");
    status = ga_run_backward(net);
    net->stage = GA_STAGE_BACKWARD;
    if (!status && !net->window)
        net->free_samples += net->pass.samples;
    return status;
}

ga_status ga_zero_grad(ga_net *net)
{
    ga_status status = ready(net);
    if (status)
        return status;
    if (net->window)
        return ga_fail(GA_ESTAGE, "zero_grad: the gradients belong to this network's accumulation window; use its "
                       "clear(discard=True)");
    ga_zero_gradients(net);
    net->torn = 0;
    net->stage = GA_STAGE_CLEAR;
    net->free_samples = 0;
    return GA_OK;
}

/* A pass that only looks drops a micro-batch that has added nothing yet; after backward it may not. */
static ga_status may_look(const ga_net *net, const char *call)
{
    return net->stage == GA_STAGE_BACKWARD && net->window ? ga_wrong_stage(net, call) : GA_OK;
}

ga_status ga_predict(ga_net *net, const ga_batch *batch, void *output)
{
    ga_status status = ga_check_batch(net, batch, 1, 0, 0, 0);
    if (!status)
        status = may_look(net, "predict");
    if (!status && !output)
        status = ga_fail(GA_EVALUE, "predict: no room for the output given");
    if (status)
        return status;
    int v = ga_net_prediction(net);
    ga_shape s = at_length(&net->value[v].shape, net->value[v].sequence, length_of(net, batch));
    int64_t row = ga_elements(&s) * net->compute->real_bytes;
    if (net->stage <= GA_STAGE_ACCUMULATE)
        net->stage = ga_resting_stage(net);
    for (int64_t first = 0; first < batch->samples && !status; first += net->plan.rows) {
        int64_t n = batch->samples - first < net->plan.rows ? batch->samples - first : net->plan.rows;
        ga_batch piece;
        ga_batch_piece(net, batch, first, n, &piece);
        status = ga_run_forward(net, &piece, 0);
        if (!status)
            net->compute->export(&s, n, net->block[GA_ACTIVATIONS] + net->plan.piece[v].offset, (char *)output + first * row);
    }
    return status;
}

ga_status ga_evaluate(ga_net *net, const ga_batch *batch, double *loss_sum, double *weight)
{
    ga_status status = ga_check_batch(net, batch, 1, 1, 0, 0);
    if (!status)
        status = may_look(net, "evaluate");
    if (status)
        return status;
    double sum = 0, total = 0;
    if (net->stage <= GA_STAGE_ACCUMULATE)
        net->stage = ga_resting_stage(net);
    for (int64_t first = 0; first < batch->samples; first += net->plan.rows) {
        int64_t n = batch->samples - first < net->plan.rows ? batch->samples - first : net->plan.rows;
        ga_batch piece;
        ga_batch_piece(net, batch, first, n, &piece);
        if ((status = ga_run_forward(net, &piece, 0)) || (status = ga_run_loss(net, &piece)))
            return status;
        const ga_node *loss = net->node[net->loss_node];
        for (int64_t i = 0; i < n; i++) {
            sum += loss->loss[i];
            total += loss->loss_weight[i];
        }
    }
    *loss_sum = sum;
    *weight = total;
    return GA_OK;
}

ga_status ga_net_sample_losses(const ga_net *net, const double **loss, const double **weight, int64_t *samples)
{
    if (net->loss_node < 0 || net->stage < GA_STAGE_LOSS || net->stage > GA_STAGE_ACCUMULATE)
        return ga_wrong_stage(net, "sample_losses");
    *loss = net->node[net->loss_node]->loss + net->shown;
    *weight = net->node[net->loss_node]->loss_weight + net->shown;
    *samples = net->pass.samples - net->shown;
    return GA_OK;
}
