/* Describing a network: inputs, nodes, parameters. Nothing here depends on the size of a micro-batch. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "internal.h"

ga_status ga_net_create(ga_dtype dtype, ga_engine engine, uint64_t seed, ga_net **out)
{
    *out = NULL;
    const ga_compute *compute = ga_compute_for(dtype);
    if (!compute)
        return GA_EVALUE;
    if (engine == GA_OPENBLAS && !ga_blas_table.sgemm)
        return ga_fail(GA_EVALUE, "engine=\"openblas\": no OpenBLAS library is loaded; use engine=\"native\"");
    ga_net *net = calloc(1, sizeof *net);
    if (!net)
        return ga_fail(GA_EMEMORY, "no memory for a network");
    net->dtype = dtype;
    net->engine = engine;
    net->seed = seed;
    net->compute = compute;
    net->loss_node = -1;
    net->training = 1;
    *out = net;
    return GA_OK;
}

void ga_net_free(ga_net *net)
{
    if (!net)
        return;
    for (int i = 0; i < net->n_nodes; i++)
        free(net->node[i]);
    free(net->node);
    free(net->value);
    free(net->param);
    free(net->chain);
    ga_plan_free(&net->plan);
    if (net->window)
        net->window->net = NULL;
    free(net);
}

/* Room for one more element of `size` bytes in *array. */
static ga_status grow(void *array, int *room, int used, size_t size)
{
    if (used < *room)
        return GA_OK;
    int more = *room ? 2 * *room : 16;
    void *bigger = realloc(*(void **)array, (size_t)more * size);
    if (!bigger)
        return ga_fail(GA_EMEMORY, "no memory for the description of the network");
    *(void **)array = bigger;
    *room = more;
    return GA_OK;
}

static ga_status check_name(const char *name, const char *what)
{
    if (!name || !*name || strlen(name) >= GA_MAX_NAME)
        return ga_fail(GA_EVALUE, "the name of a %s must have 1 to %d bytes", what, GA_MAX_NAME - 1);
    return GA_OK;
}

static ga_status check_shape(const char *name, const ga_shape *shape, int max_rank)
{
    char text[64];
    int64_t n = 1;
    if (shape->rank < 0 || shape->rank > max_rank)
        return ga_fail(GA_EVALUE, "%s: %d dimensions per sample, at most %d are supported", name, shape->rank, max_rank);
    for (int i = 0; i < shape->rank; i++) {
        if (shape->dim[i] < 1 || shape->dim[i] > INT32_MAX)
            return ga_fail(GA_EVALUE, "%s: shape %s has a dimension below 1 or above 2147483647", name, ga_shape_text(shape, text));
        if (!ga_product(n, shape->dim[i], &n) || n > GA_MAX_BYTES / 8)
            return ga_fail(GA_EVALUE, "%s: shape %s has more elements than can be counted", name, ga_shape_text(shape, text));
    }
    return GA_OK;
}

static ga_status described(const ga_net *net)
{
    if (net->planned)
        return ga_fail(GA_EVALUE, "the network is planned already: describe a new one");
    if (net->loss_node >= 0)
        return ga_fail(GA_EVALUE, "the loss must be the last node");
    return GA_OK;
}

static ga_status add_value(ga_net *net, const ga_value *value, int *index)
{
    ga_status status = grow(&net->value, &net->room_values, net->n_values, sizeof *net->value);
    if (status)
        return status;
    if (value->sequence) {
        if (net->length && net->length != value->shape.dim[0])
            return ga_fail(GA_EVALUE, "two sequence lengths in one network: %lld and %lld",
                           (long long)net->length, (long long)value->shape.dim[0]);
        net->length = value->shape.dim[0];
    }
    *index = net->n_values;
    net->value[net->n_values++] = *value;
    return GA_OK;
}

ga_status ga_net_add_input(ga_net *net, const char *name, const ga_shape *shape, int integer, int sequence, int *value)
{
    ga_status status = described(net);
    if (!status)
        status = check_name(name, "network input");
    if (!status)
        status = check_shape(name, shape, 3);
    if (status)
        return status;
    if (net->n_inputs == GA_MAX_INPUTS)
        return ga_fail(GA_EVALUE, "%s: a network has at most %d inputs", name, GA_MAX_INPUTS);
    if (sequence && (shape->rank < 1 || shape->rank > 2))
        return ga_fail(GA_EVALUE, "%s: a sequence has the shape (T,) or (T, C)", name);
    ga_value v = {.shape = *shape, .producer = -1, .integer = integer, .sequence = sequence};
    status = add_value(net, &v, value);
    if (status)
        return status;
    strcpy(net->input_name[net->n_inputs], name);
    net->input_value[net->n_inputs++] = *value;
    return GA_OK;
}

ga_status ga_node_param_stored(ga_node *node, const char *name, int rank, const int64_t *dim, const int *order)
{
    ga_net *net = node->net;
    int i = node->n_params;
    char full[2 * GA_MAX_NAME];
    ga_shape shape = {.rank = rank};
    memcpy(shape.dim, dim, (size_t)rank * sizeof *dim);
    if (i == GA_MAX_PARAMS)
        return ga_fail(GA_EVALUE, "%s: a node has at most %d parameters", node->name, GA_MAX_PARAMS);
    snprintf(full, sizeof full, "%s.%s", node->name, name);
    ga_status status = check_shape(full, &shape, GA_MAX_RANK);
    if (status)
        return status;

    int p = node->shared ? node->shared[i] : -1;
    if (p >= 0) {
        char a[64], b[64];
        if (p >= net->n_params)
            return ga_fail(GA_EVALUE, "%s: there is no parameter %d to share", full, p);
        ga_param *param = &net->param[p];
        if (memcmp(&param->shape, &shape, sizeof shape) || memcmp(param->order, order, (size_t)rank * sizeof *order))
            return ga_fail(GA_EVALUE, "%s: needs shape %s, but the shared parameter %s has %s", full,
                           ga_shape_text(&shape, a), param->name, ga_shape_text(&param->shape, b));
        status = grow(&net->chain, &net->room_chains, net->n_chains, sizeof *net->chain);
        if (status)
            return status;
        net->chain[net->n_chains++] = (ga_chain){.param = p, .offset = net->chain_count};
        net->chain_count += param->count;
        param->uses++;
        node->chain[i] = net->n_chains;
    } else {
        if (strlen(full) >= GA_MAX_NAME)
            return ga_fail(GA_EVALUE, "the parameter name %s is longer than %d bytes", full, GA_MAX_NAME - 1);
        status = grow(&net->param, &net->room_params, net->n_params, sizeof *net->param);
        if (status)
            return status;
        p = net->n_params;
        ga_param *param = &net->param[net->n_params++];
        *param = (ga_param){.shape = shape, .offset = net->param_count, .count = ga_elements(&shape),
                            .node = node->index, .uses = 1};
        memcpy(param->order, order, (size_t)rank * sizeof *order);
        strcpy(param->name, full);
        net->param_count += param->count;
        if (net->param_count > GA_MAX_BYTES / 8)
            return ga_fail(GA_EVALUE, "%s: the network has more parameters than can be counted", full);
        node->chain[i] = 0;
    }
    node->param[i] = p;
    node->n_params++;
    return GA_OK;
}

ga_status ga_node_param(ga_node *node, const char *name, int rank, const int64_t *dim)
{
    return ga_node_param_stored(node, name, rank, dim, (const int[GA_MAX_RANK]){0, 1, 2, 3});
}

static ga_status set_options(ga_node *node, const ga_option *options, int n)
{
    const ga_option_default *known = node->layer->options;
    for (int i = 0; known && known[i].name; i++)
        node->option[i] = known[i].value;
    for (int j = 0; j < n; j++) {
        int i = 0;
        while (known && known[i].name && strcmp(known[i].name, options[j].name))
            i++;
        if (!known || !known[i].name)
            return ga_fail(GA_EVALUE, "%s (%s): unknown option %s", node->name, node->layer->kind, options[j].name);
        node->option[i] = options[j].value;
    }
    for (int i = 0; known && known[i].name; i++)
        if (isnan(node->option[i]))
            return ga_fail(GA_EVALUE, "%s (%s): option %s is missing", node->name, node->layer->kind, known[i].name);
    return GA_OK;
}

/* A new node, not yet in the network. */
static ga_status make_node(ga_net *net, const ga_layer *layer, const char *name, const int *inputs, int n_inputs, ga_node **out)
{
    ga_status status = described(net);
    if (!status)
        status = check_name(name, "node");
    if (status)
        return status;
    if (n_inputs < layer->min_inputs || n_inputs > layer->max_inputs)
        return ga_fail(GA_EVALUE, "%s (%s): got %d inputs, expected %d to %d", name, layer->kind, n_inputs,
                       layer->min_inputs, layer->max_inputs);
    for (int k = 0; k < n_inputs; k++)
        if (inputs[k] < 0 || inputs[k] >= net->n_values)
            return ga_fail(GA_EVALUE, "%s (%s): input %d names value %d, which does not exist", name, layer->kind, k, inputs[k]);
    status = grow(&net->node, &net->room_nodes, net->n_nodes, sizeof *net->node);
    if (status)
        return status;
    ga_node *node = calloc(1, sizeof *node);
    if (!node)
        return ga_fail(GA_EMEMORY, "no memory for a node");
    node->layer = layer;
    node->net = net;
    node->engine = net->engine;
    node->segment = net->segment;
    node->index = net->n_nodes;
    node->output = -1;
    node->mixes_samples = (layer->traits & GA_MIXES_SAMPLES) != 0;
    strcpy(node->name, name);
    node->n_inputs = n_inputs;
    for (int k = 0; k < n_inputs; k++) {
        const ga_value *v = &net->value[inputs[k]];
        node->input[k] = inputs[k];
        node->in[k] = v->shape;
        node->in_sequence[k] = v->sequence;
        node->in_integer[k] = v->integer;
    }
    *out = node;
    return GA_OK;
}

/* Puts a planned node into the network. */
static ga_status adopt(ga_net *net, ga_node *node, int *index, int *value)
{
    ga_status status = GA_OK;
    if (node->layer->traits & GA_IS_LOSS)
        net->loss_node = node->index;
    else {
        ga_value v = {.shape = node->shape, .producer = node->index, .sequence = node->sequence};
        status = check_shape(node->name, &node->shape, 3);
        if (!status)
            status = add_value(net, &v, &node->output);
        if (status)
            return status;
    }
    for (int k = 0; k < node->n_inputs; k++)
        net->value[node->input[k]].consumers++;
    net->node[net->n_nodes++] = node;
    *index = node->index;
    *value = node->output;
    return GA_OK;
}

ga_status ga_net_add_node(ga_net *net, const char *kind, const char *name, const ga_option *options, int n_options,
                          const int *inputs, int n_inputs, const int *shared, int *index, int *value)
{
    const ga_layer *const *layer = net->compute->layers;
    while (*layer && strcmp((*layer)->kind, kind))
        layer++;
    if (!*layer)
        return ga_fail(GA_EVALUE, "%s: there is no layer \"%s\"", name, kind);

    ga_node *node;
    ga_status status = make_node(net, *layer, name, inputs, n_inputs, &node);
    if (status)
        return status;
    int n_params = net->n_params, n_chains = net->n_chains;
    int64_t param_count = net->param_count, chain_count = net->chain_count;
    node->shared = shared;
    status = set_options(node, options, n_options);
    for (int k = 0; !status && k < n_inputs; k++)
        if (node->in_integer[k] && !(*layer)->check)
            status = ga_fail(GA_EVALUE, "%s (%s): input %d holds integers, and this layer works on reals", name, kind, k);
    if (!status)
        status = (*layer)->plan(node);
    node->shared = NULL;
    if (!status)
        status = adopt(net, node, index, value);
    if (status) {                                    /* as if the call had never been made */
        for (int i = n_chains; i < net->n_chains; i++)
            net->param[net->chain[i].param].uses--;
        net->n_params = n_params;
        net->n_chains = n_chains;
        net->param_count = param_count;
        net->chain_count = chain_count;
        free(node);
    }
    return status;
}

/* ---- a layer from outside ---- */

static ga_status function_call(const ga_node *node, const ga_pass *pass, int backward)
{
    ga_function_call call = {.backward = backward, .node = node->index, .samples = pass->samples, .length = pass->length,
                             .training = pass->training, .y = node->y, .dy = backward ? node->dy : NULL};
    const ga_compute *compute = node->net->compute;
    for (int i = 0; i < node->n_params; i++) {
        call.w[i] = node->w[i];
        call.dw[i] = node->dw[i];
    }
    char *own = node->work;                          /* gradients that must be added go through here */
    for (int k = 0; k < node->n_inputs; k++) {
        call.x[k] = node->x[k];
        call.dx[k] = backward ? node->dx[k] : NULL;
        if (call.dx[k] && node->dx_adds[k]) {
            call.dx[k] = own;
            own += pass->samples * ga_elements(&node->in[k]) * compute->real_bytes;
        }
    }
    if (node->function(node->context, &call))
        return ga_fail(GA_ECALLBACK, "%s: the function's %s failed", node->name, backward ? "backward" : "forward");
    for (int k = 0; backward && k < node->n_inputs; k++)
        if (node->dx[k] && node->dx_adds[k]) {
            int64_t n = ga_elements(&node->in[k]);
            if (node->in_sequence[k])
                n = n / node->in[k].dim[0] * pass->length;
            compute->add(pass->samples * n, node->dx[k], call.dx[k]);
        }
    return GA_OK;
}

static ga_status function_forward(const ga_node *node, const ga_pass *pass) { return function_call(node, pass, 0); }
static ga_status function_backward(const ga_node *node, const ga_pass *pass) { return function_call(node, pass, 1); }
static const ga_layer function_layer = {
    .kind = "function", .min_inputs = 1, .max_inputs = GA_MAX_INPUTS, .traits = GA_READS_INPUT | GA_READS_OUTPUT,
    .forward = function_forward, .backward = function_backward,
};

ga_status ga_net_add_function(ga_net *net, const char *name, ga_function function, void *context, const ga_shape *output,
                              int sequence, const int *inputs, int n_inputs, const char *const *param_names,
                              const ga_shape *param_shapes, int n_params, int *index, int *value)
{
    ga_node *node;
    int before = net->n_params;
    int64_t count = net->param_count;
    ga_status status = make_node(net, &function_layer, name, inputs, n_inputs, &node);
    if (status)
        return status;
    node->function = function;
    node->context = context;
    node->shape = *output;
    node->sequence = sequence;
    for (int k = 0; k < n_inputs; k++)
        node->work_per_sample += ga_elements(&node->in[k]) * net->compute->real_bytes;
    for (int i = 0; !status && i < n_params; i++)
        status = ga_node_param(node, param_names[i], param_shapes[i].rank, param_shapes[i].dim);
    if (!status)
        status = adopt(net, node, index, value);
    if (status) {
        net->n_params = before;
        net->param_count = count;
        free(node);
    }
    return status;
}

/* ---- queries ---- */

ga_status ga_net_segment(ga_net *net, int segment)
{
    if (net->planned || segment < 0)
        return ga_fail(GA_EVALUE, "segment %d: give segments from 1 while the network is described", segment);
    net->segment = segment;
    return GA_OK;
}

ga_status ga_net_freeze(ga_net *net, int param, int frozen)
{
    if (net->planned)
        return ga_fail(GA_EVALUE, "freeze parameters before planning");
    if (param < 0 || param >= net->n_params)
        return ga_fail(GA_EVALUE, "there is no parameter %d", param);
    net->param[param].frozen = frozen;
    return GA_OK;
}

int ga_net_params(const ga_net *net) { return net->n_params; }
int ga_net_nodes(const ga_net *net) { return net->n_nodes; }
int ga_net_values(const ga_net *net) { return net->n_values; }
int64_t ga_net_param_count(const ga_net *net) { return net->param_count; }

ga_status ga_param_get(const ga_net *net, int i, ga_param_info *out)
{
    if (i < 0 || i >= net->n_params)
        return ga_fail(GA_EVALUE, "there is no parameter %d", i);
    const ga_param *p = &net->param[i];
    *out = (ga_param_info){p->name, p->shape, p->offset, p->count, p->node, p->uses, p->frozen, {0}};
    memcpy(out->order, p->order, sizeof out->order);
    return GA_OK;
}

ga_status ga_node_get(const ga_net *net, int i, ga_node_info *out)
{
    if (i < 0 || i >= net->n_nodes)
        return ga_fail(GA_EVALUE, "there is no node %d", i);
    const ga_node *n = net->node[i];
    *out = (ga_node_info){.name = n->name, .kind = n->layer->kind, .n_inputs = n->n_inputs, .output = n->output,
                          .n_params = n->n_params, .mixes_samples = n->mixes_samples,
                          .saved_bytes = n->saved_fixed + n->saved_per_sample * net->plan.micro_batch,
                          .state_offset = n->place_state / net->compute->real_bytes, .state_count = n->state_count, .flops = n->flops};
    memcpy(out->inputs, n->input, sizeof out->inputs);
    memcpy(out->params, n->param, sizeof out->params);
    return GA_OK;
}

ga_status ga_value_get(const ga_net *net, int i, ga_value_info *out)
{
    if (i < 0 || i >= net->n_values)
        return ga_fail(GA_EVALUE, "there is no value %d", i);
    const ga_value *v = &net->value[i];
    *out = (ga_value_info){v->shape, v->producer, v->integer, v->sequence, v->needs_grad};
    return GA_OK;
}

const char *ga_input_name(const ga_net *net, int i) { return i >= 0 && i < net->n_inputs ? net->input_name[i] : "?"; }

int ga_net_prediction(const ga_net *net)
{
    return net->loss_node >= 0 ? net->node[net->loss_node]->input[0] : net->node[net->n_nodes - 1]->output;
}

ga_status ga_net_target(const ga_net *net, ga_shape *shape, int *integer, int *sequence)
{
    if (net->loss_node < 0)
        return ga_fail(GA_EVALUE, "the network has no loss: plan it with loss=");
    *shape = net->node[net->loss_node]->target_shape;
    *integer = net->node[net->loss_node]->target_integer;
    *sequence = net->node[net->loss_node]->in_sequence[0];
    return GA_OK;
}
