/* Optimizers as objects: groups, state, clock. What they do to an element is in compute/optimizers.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "internal.h"

static ga_status check_hyper(ga_optimizer_kind kind, const ga_hyper *h)
{
    if (!(h->lr >= 0) || isinf(h->lr))
        return ga_fail(GA_EVALUE, "lr=%g: expected a finite number, not negative", h->lr);
    if (!(h->weight_decay >= 0))
        return ga_fail(GA_EVALUE, "weight_decay=%g: expected 0 or more", h->weight_decay);
    if (kind == GA_SGD) {
        if (!(h->momentum >= 0))
            return ga_fail(GA_EVALUE, "momentum=%g: expected 0 or more", h->momentum);
        if (h->nesterov && (h->momentum <= 0 || h->dampening != 0))
            return ga_fail(GA_EVALUE, "nesterov=True needs momentum above 0 and dampening 0 (got %g and %g)", h->momentum, h->dampening);
        return GA_OK;
    }
    if (!(h->beta1 >= 0 && h->beta1 < 1 && h->beta2 >= 0 && h->beta2 < 1))
        return ga_fail(GA_EVALUE, "betas=(%g, %g): expected each in [0, 1)", h->beta1, h->beta2);
    if (!(h->eps >= 0))
        return ga_fail(GA_EVALUE, "eps=%g: expected 0 or more", h->eps);
    return GA_OK;
}

ga_status ga_optimizer_create(ga_net *net, ga_optimizer_kind kind, const ga_hyper *hyper, int n_groups, const int *group,
                              ga_optimizer **out)
{
    *out = NULL;
    if (!net->planned)
        return ga_fail(GA_EVALUE, "an optimizer needs a planned network");
    if (n_groups < 1)
        return ga_fail(GA_EVALUE, "an optimizer needs at least one group");
    for (int i = 0; i < n_groups; i++) {
        ga_status status = check_hyper(kind, &hyper[i]);
        if (status)
            return status;
    }
    for (int p = 0; p < net->n_params; p++)
        if (group[p] < 0 || group[p] >= n_groups)
            return ga_fail(GA_EVALUE, "parameter %s is in group %d, but there are %d groups", net->param[p].name, group[p], n_groups);
    ga_optimizer *o = calloc(1, sizeof *o);
    if (o) {
        o->hyper = malloc((size_t)n_groups * sizeof *hyper);
        o->group = malloc((size_t)(net->n_params + 1) * sizeof *group);
    }
    if (!o || !o->hyper || !o->group) {
        ga_optimizer_free(o);
        return ga_fail(GA_EMEMORY, "no memory for an optimizer");
    }
    o->net = net;
    o->kind = kind;
    o->n_groups = n_groups;
    memcpy(o->hyper, hyper, (size_t)n_groups * sizeof *hyper);
    memcpy(o->group, group, (size_t)net->n_params * sizeof *group);
    *out = o;
    return GA_OK;
}

void ga_optimizer_free(ga_optimizer *o)
{
    if (!o)
        return;
    free(o->hyper);
    free(o->group);
    free(o);
}

int ga_optimizer_states(const ga_optimizer *o)
{
    int momentum = 0, amsgrad = 0;
    for (int i = 0; i < o->n_groups; i++) {
        momentum |= o->hyper[i].momentum != 0;
        amsgrad |= o->hyper[i].amsgrad;
    }
    return o->kind == GA_SGD ? momentum : 2 + amsgrad;
}

const char *ga_optimizer_state_name(const ga_optimizer *o, int state)
{
    static const char *const adam[] = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
    return (unsigned)state >= 3 ? "?" : o->kind == GA_SGD ? "momentum_buffer" : adam[state];
}

ga_status ga_optimizer_bind(ga_optimizer *o, int state, void *memory)
{
    if (state < 0 || state >= 3)
        return ga_fail(GA_EVALUE, "an optimizer has no state %d", state);
    o->state[state] = memory;
    return GA_OK;
}

ga_hyper *ga_optimizer_hyper(ga_optimizer *o, int group) { return group >= 0 && group < o->n_groups ? &o->hyper[group] : NULL; }

ga_status ga_optimizer_set(ga_optimizer *o, int group, const ga_hyper *hyper)
{
    ga_hyper *place = ga_optimizer_hyper(o, group);
    if (!place)
        return ga_fail(GA_EVALUE, "there is no group %d", group);
    ga_status status = check_hyper(o->kind, hyper);
    if (status)
        return status;
    ga_hyper before = *place;
    *place = *hyper;
    for (int i = 0; i < ga_optimizer_states(o); i++)
        if (!o->state[i]) {
            *place = before;
            return ga_fail(GA_EVALUE, "%s needs a state array that this optimizer was made without; make a new one",
                           o->kind == GA_SGD ? "momentum" : "amsgrad");
        }
    return GA_OK;
}

int64_t *ga_optimizer_clock(ga_optimizer *o) { return &o->clock; }

ga_status ga_optimizer_ready(const ga_optimizer *o)
{
    for (int i = 0; i < ga_optimizer_states(o); i++)
        if (!o->state[i])
            return ga_fail(GA_EVALUE, "the optimizer's state %s is not bound", ga_optimizer_state_name(o, i));
    return GA_OK;
}

void ga_optimizer_run(ga_optimizer *o, double divisor, double factor, int clear)
{
    ga_net *net = o->net;
    int64_t real = net->compute->real_bytes;
    o->clock++;
    for (int p = 0; p < net->n_params; p++) {
        const ga_param *param = &net->param[p];
        int64_t at = param->offset * real;
        void *state[3];
        if (param->frozen)
            continue;
        for (int i = 0; i < 3; i++)
            state[i] = o->state[i] ? o->state[i] + at : NULL;
        net->compute->optimize(o->kind, &o->hyper[o->group[p]], o->clock, divisor, factor, clear, param->count,
                               net->block[GA_PARAMETERS] + at, net->block[GA_GRADIENTS] + at, state);
    }
    net->stale_packed = 1;
}

ga_status ga_optimizer_take(ga_optimizer *o, int first, double divisor)
{
    ga_net *net = o->net;
    ga_status status = ga_optimizer_ready(o);
    if (status)
        return status;
    if (o->kind != GA_ADAMA || !net->mapped)
        return ga_fail(GA_EVALUE, "only AdamA, on a network whose memory is bound, takes micro-batches one by one");
    if (!(divisor > 0))
        return ga_fail(GA_EVALUE, "divisor=%g: expected a number above 0", divisor);
    if (net->stage != GA_STAGE_BACKWARD || net->torn)
        return ga_wrong_stage(net, "accumulate");
    int64_t real = net->compute->real_bytes;
    ga_fold_ties(net);
    double squares = net->compute->norm_squares(net->param_count, net->block[GA_GRADIENTS], divisor);
    if (!isfinite(squares))
        return ga_fail(GA_ENONFINITE, "the micro-batch's gradient has NaN or infinity (norm %g); it was not added to the moments", sqrt(squares));
    for (int p = 0; p < net->n_params; p++) {
        const ga_param *param = &net->param[p];
        int64_t at = param->offset * real;
        if (!param->frozen)
            net->compute->take(&o->hyper[o->group[p]], first, divisor, param->count, net->block[GA_GRADIENTS] + at, o->state[0] + at, o->state[1] + at);
    }
    return GA_OK;
}

ga_status ga_optimizer_step(ga_optimizer *o)
{
    ga_net *net = o->net;
    if (!net->mapped)
        return ga_fail(GA_EVALUE, "the network's memory is not bound");
    if (net->window)
        return ga_fail(GA_ESTAGE, "step: this network's gradients belong to an accumulation window; the window applies the update");
    if (net->torn)
        return ga_wrong_stage(net, "step");
    ga_status status = ga_optimizer_ready(o);
    if (status)
        return status;
    ga_optimizer_run(o, 1, 1, 0);
    ga_commit_layers(net);
    net->free_updates++;
    net->free_samples = 0;
    net->stage = GA_STAGE_CLEAR;
    return GA_OK;
}
