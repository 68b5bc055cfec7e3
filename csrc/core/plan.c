/* How much memory, and what lies where: decided before anything is allocated.
 *
 * Values, their gradients and what layers save are pieces of one block, each alive for a known time (internal.h). Pieces that
 * are never alive together may share memory. Placement is first fit, largest first: a good heuristic for this problem
 * (dynamic storage allocation, NP-hard), and the same plan every time. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "internal.h"

enum { TARGET, SAMPLE_WEIGHT, LOSS, LOSS_WEIGHT, LOSS_PIECES };

static int value_piece(const ga_net *net, int value) { (void)net; return value; }
static int grad_piece(const ga_net *net, int value) { return net->n_values + value; }
static int saved_piece(const ga_net *net, int node) { return 2 * net->n_values + node; }
static int loss_piece(const ga_net *net, int which) { return 2 * net->n_values + net->n_nodes + which; }

void ga_plan_free(ga_plan *plan)
{
    free(plan->piece);
    free(plan->step);
    plan->piece = NULL;
    plan->step = NULL;
}

static int64_t align(int64_t n) { return (n + GA_ALIGN - 1) / GA_ALIGN * GA_ALIGN; }

/* Bytes of `samples` times `per_sample` plus `fixed`; 0 if that is more than can be counted. */
static int size(int64_t samples, int64_t per_sample, int64_t fixed, int64_t *out)
{
    int64_t n;
    if (!ga_product(samples, per_sample, &n) || n > GA_MAX_BYTES || fixed > GA_MAX_BYTES)
        return 0;
    *out = align(n + fixed);
    return 1;
}

int64_t ga_target_elements(const ga_net *net, int64_t length)
{
    const ga_node *loss = net->node[net->loss_node];
    int64_t n = ga_elements(&loss->target_shape);
    return loss->in_sequence[0] && loss->target_shape.rank ? n / loss->target_shape.dim[0] * length : n;
}

static void find_gradients(ga_net *net)
{
    for (int v = 0; v < net->n_values; v++)
        net->value[v].needs_grad = 0;
    for (int i = 0; i < net->n_nodes; i++) {
        const ga_node *node = net->node[i];
        int needs = 0;
        for (int k = 0; k < node->n_inputs; k++)
            needs |= net->value[node->input[k]].needs_grad;
        for (int k = 0; k < node->n_params; k++)
            needs |= !net->param[node->param[k]].frozen;
        if (node->output >= 0)
            net->value[node->output].needs_grad = needs;
    }
}

/* ---- what runs when ---- */

/* The segment of a node; nodes of one segment follow each other. */
static int segment_of(const ga_net *net, const ga_plan *plan, int i)
{
    if (plan->options.recompute == GA_RECOMPUTE_NONE || i == net->loss_node)
        return 0;
    if (plan->options.recompute == GA_RECOMPUTE_SEGMENTS)
        return net->node[i]->segment;
    int n = net->n_nodes - (net->loss_node >= 0), length = 1;
    while (length * length < n)
        length++;
    return 1 + i / length;
}

/* Whether backward needs what node i computes a second time: its output, or what it saved. */
static int needed_again(const ga_net *net, const ga_plan *plan, int i)
{
    const ga_node *node = net->node[i];
    if (node->layer->traits & GA_READS_OUTPUT || node->saved_fixed || node->saved_per_sample)
        return 1;
    for (int j = i + 1; j < net->n_nodes && segment_of(net, plan, j) == segment_of(net, plan, i); j++)
        for (int k = 0; k < net->node[j]->n_inputs; k++)
            if (net->node[j]->input[k] == node->output && (net->node[j]->layer->traits & GA_READS_INPUT || needed_again(net, plan, j)))
                return 1;
    return 0;
}

/* forward of all nodes; then backward in reverse, each segment after it was computed again. */
static int make_steps(const ga_net *net, ga_plan *plan)
{
    int n = net->n_nodes;
    plan->step = malloc((size_t)(3 * n) * sizeof *plan->step);
    if (!plan->step)
        return 0;
    for (int i = 0; i < n; i++)
        plan->step[plan->n_steps++] = (ga_step){i, GA_STEP_FORWARD};
    for (int last = n - 1, first; last >= 0; last = first - 1) {
        int segment = segment_of(net, plan, last);
        first = last;
        while (segment && first > 0 && segment_of(net, plan, first - 1) == segment)
            first--;
        for (int i = first; segment && i <= last; i++)
            if (needed_again(net, plan, i)) {
                plan->step[plan->n_steps++] = (ga_step){i, GA_STEP_AGAIN};
                plan->size.recomputed++;
            }
        for (int i = last; i >= first; i--)
            plan->step[plan->n_steps++] = (ga_step){i, GA_STEP_BACKWARD};
    }
    return 1;
}

static void lives_until(ga_life *life, int time)
{
    if (time >= 0 && time + 1 > life->death)
        life->death = time + 1;
}

/* When each piece is alive. What a segment computes is alive during forward as far as others read it, and again from its
 * second computation to its last reader in backward. */
static void set_lives(const ga_net *net, ga_plan *plan)
{
    int end = 2 * plan->n_steps + 1, n = net->n_nodes;
    const ga_life never = {end + 1, -2};
    int *forward = plan->piece ? malloc((size_t)(3 * n) * sizeof *forward) : NULL, *again = forward + n, *backward = again + n;
    if (!forward)
        return;
    for (int i = 0; i < 3 * n; i++)
        forward[i] = -1;
    for (int t = 0; t < plan->n_steps; t++)
        forward[plan->step[t].kind * n + plan->step[t].node] = 2 * t;
    for (int v = 0; v < net->n_values; v++) {
        const ga_value *value = &net->value[v];
        ga_piece *x = &plan->piece[value_piece(net, v)], *dx = &plan->piece[grad_piece(net, v)];
        int p = value->producer, home = p < 0 ? 0 : segment_of(net, plan, p);
        x->life[0] = (ga_life){p < 0 ? -1 : forward[p], p < 0 ? 0 : forward[p] + 1};
        x->life[1] = home && again[p] >= 0 ? (ga_life){again[p], again[p] + 1} : never;
        dx->life[0] = (ga_life){end, p < 0 ? end : backward[p] + 1};
        dx->life[1] = never;
        if (p >= 0 && net->node[p]->layer->traits & GA_READS_OUTPUT)
            lives_until(&x->life[home ? 1 : 0], backward[p]);
        for (int i = 0; i < n; i++)
            for (int k = 0; k < net->node[i]->n_inputs; k++) {
                if (net->node[i]->input[k] != v)
                    continue;
                unsigned traits = net->node[i]->layer->traits;
                ga_life *later = &x->life[home && segment_of(net, plan, i) == home ? 1 : 0];
                lives_until(&x->life[0], forward[i]);
                lives_until(later, again[i]);
                if (traits & GA_READS_INPUT)
                    lives_until(later, backward[i]);
                if (backward[i] < dx->life[0].birth)
                    dx->life[0].birth = backward[i];
                if (traits & GA_IS_LOSS)
                    x->life[0].death = end;          /* the prediction stays readable */
            }
        if (!value->consumers)
            x->life[0].death = end;
    }
    for (int i = 0; i < n; i++) {
        ga_piece *saved = &plan->piece[saved_piece(net, i)];
        int twice = segment_of(net, plan, i) != 0;
        saved->life[0] = (ga_life){forward[i], twice ? forward[i] + 1 : backward[i] + 1};
        saved->life[1] = twice ? (ga_life){again[i], backward[i] + 1} : never;
        if (twice && again[i] < 0)
            saved->life[1] = never;
    }
    for (int i = 0; i < LOSS_PIECES; i++) {
        plan->piece[loss_piece(net, i)].life[0] = (ga_life){-1, end};
        plan->piece[loss_piece(net, i)].life[1] = never;
    }
    free(forward);
}

static void share(ga_plan *plan, int piece, int with)
{
    int root = plan->piece[with].root;
    plan->piece[piece].root = root;
    for (int i = 0; i < 2; i++) {
        ga_life *r = &plan->piece[root].all[i], p = plan->piece[piece].life[i];
        r->birth = p.birth < r->birth ? p.birth : r->birth;
        r->death = p.death > r->death ? p.death : r->death;
    }
}

/* An output that overwrites its input, and a gradient that overwrites the output's: only where nobody reads the old one later. */
static void share_in_place(const ga_net *net, ga_plan *plan)
{
    for (int i = 0; i < net->n_nodes; i++) {
        const ga_node *node = net->node[i];
        const ga_value *x = &net->value[node->input[0]];
        if (!(node->layer->traits & GA_IN_PLACE) || node->output < 0 || x->consumers != 1 || x->producer < 0
            || node->layer->traits & GA_READS_INPUT || net->node[x->producer]->layer->traits & GA_READS_OUTPUT
            || ga_elements(&x->shape) != ga_elements(&node->shape)
            || segment_of(net, plan, x->producer) != segment_of(net, plan, i))
            continue;
        share(plan, value_piece(net, node->output), value_piece(net, node->input[0]));
    }
    for (int i = net->n_nodes - 1; i >= 0; i--) {
        const ga_node *node = net->node[i];
        const ga_value *x = &net->value[node->input[0]];
        if (!(node->layer->traits & GA_IN_PLACE) || node->output < 0 || x->consumers != 1 || !x->needs_grad
            || ga_elements(&x->shape) != ga_elements(&node->shape))
            continue;
        share(plan, grad_piece(net, node->input[0]), grad_piece(net, node->output));
    }
}

static int together(const ga_piece *p, const ga_piece *q)
{
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
            if (p->all[i].birth <= q->all[j].death && q->all[j].birth <= p->all[i].death)
                return 1;
    return 0;
}

typedef struct { int64_t bytes; int index; } entry;
static int compare(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes > y->bytes ? -1 : 1) : x->index - y->index;
}

/* Offsets of the pieces; the bytes of the block. -1: no memory. */
static int64_t place(const ga_net *net, ga_plan *plan, int with_gradients)
{
    int n = 0, placed = 0;
    int64_t total = 0;
    entry *order = malloc((size_t)plan->n_pieces * sizeof *order);
    int *done = malloc((size_t)plan->n_pieces * sizeof *done);
    if (!order || !done) {
        free(order);
        free(done);
        return -1;
    }
    for (int i = 0; i < plan->n_pieces; i++) {
        int is_grad = i >= grad_piece(net, 0) && i < saved_piece(net, 0);
        if (plan->piece[i].root == i && plan->piece[i].bytes && (with_gradients || !is_grad))
            order[n++] = (entry){plan->piece[i].bytes, i};
    }
    qsort(order, (size_t)n, sizeof *order, compare);
    for (int i = 0; i < n; i++) {
        ga_piece *p = &plan->piece[order[i].index];
        p->offset = 0;
        for (int j = 0; j < placed;) {               /* `done` is in the order of offsets */
            const ga_piece *q = &plan->piece[done[j]];
            if (together(p, q) && p->offset < q->offset + q->bytes && q->offset < p->offset + p->bytes)
                p->offset = q->offset + q->bytes;
            j++;
        }
        int at = placed++;
        for (; at > 0 && plan->piece[done[at - 1]].offset > p->offset; at--)
            done[at] = done[at - 1];
        done[at] = order[i].index;
        if (p->offset + p->bytes > total)
            total = p->offset + p->bytes;
    }
    free(order);
    free(done);
    for (int i = 0; i < plan->n_pieces; i++)
        plan->piece[i].offset = plan->piece[plan->piece[i].root].offset;
    return total;
}

enum { CACHE = 1 << 20 };                        /* bytes of a core's own cache; what a plan takes for speed alone, pays only beyond it */

/* Panels for the gradient of the input, where somebody wants it. */
static int64_t back_bytes(const ga_net *net, const ga_node *node, const ga_plan_options *options)
{
    if (options->lean || net->param_count * net->compute->real_bytes < CACHE)
        return 0;
    return net->value[node->input[node->n_inputs - 1]].needs_grad ? align(node->packed_back_bytes) : 0;
}

/* A plan with room for `rows` samples. */
static ga_status plan_rows(const ga_net *net, int64_t micro_batch, int64_t rows, const ga_plan_options *options, int threads, ga_plan *plan)
{
    int64_t real = net->compute->real_bytes, sum = 0;
    int fits = 1;
    *plan = (ga_plan){.micro_batch = micro_batch, .rows = rows, .options = *options, .threads = threads,
                      .n_pieces = 2 * net->n_values + net->n_nodes + LOSS_PIECES};
    if (micro_batch < 1)
        return ga_fail(GA_EVALUE, "micro_batch=%lld: expected at least 1 sample", (long long)micro_batch);
    plan->piece = calloc((size_t)plan->n_pieces, sizeof *plan->piece);
    if (!plan->piece || !make_steps(net, plan))
        return ga_fail(GA_EMEMORY, "no memory for the plan");

    for (int v = 0; v < net->n_values; v++) {
        const ga_value *value = &net->value[v];
        int64_t n = ga_elements(&value->shape);
        fits &= size(rows, n * (value->integer ? 8 : real), 0, &plan->piece[value_piece(net, v)].bytes);
        if (value->needs_grad)
            fits &= size(rows, n * real, 0, &plan->piece[grad_piece(net, v)].bytes);
    }
    for (int i = 0; i < net->n_nodes; i++) {
        const ga_node *node = net->node[i];
        int64_t work = 0, one = 0;
        fits &= size(rows, node->saved_per_sample, node->saved_fixed, &plan->piece[saved_piece(net, i)].bytes);
        fits &= size(rows, node->work_per_sample, node->work_fixed, &work);
        fits &= size(threads, align(node->work_per_thread), 0, &one);
        plan->size.bytes[GA_WORKSPACE] = work + one > plan->size.bytes[GA_WORKSPACE] ? work + one : plan->size.bytes[GA_WORKSPACE];
        plan->size.bytes[GA_STATE] += align(node->state_count * real);
        plan->size.bytes[GA_PACKED] += align(node->packed_bytes) + back_bytes(net, node, options);
    }
    if (net->loss_node >= 0) {
        const ga_node *loss = net->node[net->loss_node];
        int64_t n = ga_elements(&loss->target_shape);
        fits &= size(rows, n * (loss->target_integer ? 8 : real), 0, &plan->piece[loss_piece(net, TARGET)].bytes);
        fits &= size(rows, n * 8, 0, &plan->piece[loss_piece(net, SAMPLE_WEIGHT)].bytes);
        fits &= size(rows, 8, 0, &plan->piece[loss_piece(net, LOSS)].bytes);
        fits &= size(rows, 8, 0, &plan->piece[loss_piece(net, LOSS_WEIGHT)].bytes);
    }
    plan->size.bytes[GA_PARAMETERS] = net->param_count * real;
    plan->size.bytes[GA_GRADIENTS] = (net->param_count + (options->fold_ties ? 0 : net->chain_count)) * real;

    set_lives(net, plan);
    for (int i = 0; i < plan->n_pieces; i++) {
        ga_piece *p = &plan->piece[i];
        p->root = i;
        memcpy(p->all, p->life, sizeof p->all);
        if (options->keep_all)
            p->all[0] = (ga_life){-1, INT_MAX};
        fits = fits && (sum += p->bytes) <= GA_MAX_BYTES;
    }
    if (!fits)
        return ga_fail(GA_EVALUE, "micro_batch=%lld: the plan has more bytes than can be counted", (long long)micro_batch);
    if (!options->keep_all)
        share_in_place(net, plan);
    int64_t without = place(net, plan, 0), with = place(net, plan, 1);
    if (without < 0 || with < 0)
        return ga_fail(GA_EMEMORY, "no memory for the plan");
    plan->size.bytes[GA_ACTIVATIONS] = with;
    plan->size.gradient_part = with - without;
    plan->size.reuse_saved = sum - with;
    plan->size.rows = rows;
    return GA_OK;
}

/* Whether a window in one call may run several micro-batches together: nothing in the network can tell. */
static int may_group(const ga_net *net, const ga_plan_options *options)
{
    if (options->lean || options->keep_all || net->engine != GA_NATIVE || net->loss_node < 0)
        return 0;
    for (int i = 0; i < net->n_nodes; i++)
        if (net->node[i]->mixes_samples || net->node[i]->function)
            return 0;
    return 1;
}

enum { GROUP_ROWS = 128 };                       /* from here on a product is not bound by its weights any more */

/* A micro-batch of few rows reads and writes all weights and gradients for little work. Where these exceed the cache, micro-batches are
 * grouped as long as the activations of a group cost less than a quarter of the gradients. Measured, 784-512-512-10 in micro-batches of 8:
 * 1.7 times as fast. */
static ga_status make_plan(const ga_net *net, int64_t micro_batch, const ga_plan_options *options, int threads, ga_plan *plan)
{
    ga_status status = plan_rows(net, micro_batch, micro_batch, options, threads, plan);
    if (status || !may_group(net, options) || plan->size.bytes[GA_GRADIENTS] < CACHE)
        return status;
    int64_t most = GROUP_ROWS / (net->length ? net->length : 1), base = plan->size.bytes[GA_ACTIVATIONS] + plan->size.bytes[GA_WORKSPACE];
    for (int64_t rows = most / micro_batch * micro_batch; rows > micro_batch; rows = rows / 2 / micro_batch * micro_batch) {
        ga_plan grouped;
        status = plan_rows(net, micro_batch, rows, options, threads, &grouped);
        int64_t bytes = grouped.size.bytes[GA_ACTIVATIONS] + grouped.size.bytes[GA_WORKSPACE];
        if (!status && bytes - base <= plan->size.bytes[GA_GRADIENTS] / 4) {
            ga_plan_free(plan);
            *plan = grouped;
            return GA_OK;
        }
        ga_plan_free(&grouped);
    }
    return GA_OK;
}


ga_status ga_net_plan(ga_net *net, int64_t micro_batch, const ga_plan_options *options)
{
    if (net->planned)
        return ga_fail(GA_EVALUE, "the network is planned already");
    if (!net->n_nodes)
        return ga_fail(GA_EVALUE, "the network has no node");
    int last = net->loss_node >= 0 ? net->node[net->loss_node]->input[0] : net->node[net->n_nodes - 1]->output;
    for (int v = 0; v < net->n_values; v++)
        if (!net->value[v].consumers && v != last) {
            int p = net->value[v].producer, k = 0;
            while (k < net->n_inputs && net->input_value[k] != v)
                k++;
            return ga_fail(GA_EVALUE, "%s: nothing uses it; leave it out", p >= 0 ? net->node[p]->name : ga_input_name(net, k));
        }
    if (micro_batch > INT32_MAX / (net->length ? net->length : 1))
        return ga_fail(GA_EVALUE, "micro_batch=%lld: more rows than the matrix products can count", (long long)micro_batch);
    find_gradients(net);
    ga_status status = make_plan(net, micro_batch, options, ga_get_threads(), &net->plan);
    if (status) {
        ga_plan_free(&net->plan);
        return status;
    }
    int64_t state = 0, packed = 0;
    for (int i = 0; i < net->n_nodes; i++) {
        ga_node *node = net->node[i];
        node->place_saved = net->plan.piece[saved_piece(net, i)].offset;
        node->place_state = state;
        node->place_packed = packed;
        state += align(node->state_count * net->compute->real_bytes);
        packed += align(node->packed_bytes) + back_bytes(net, node, options);
    }
    net->planned = 1;
    net->stale_packed = 1;
    net->clock = -2;
    return GA_OK;
}

ga_status ga_net_bytes(const ga_net *net, int64_t micro_batch, const ga_plan_options *options, ga_bytes *out)
{
    if (!net->planned)
        return ga_fail(GA_EVALUE, "the network is not planned yet");
    ga_plan plan;
    ga_status status = make_plan(net, micro_batch, options ? options : &net->plan.options, net->plan.threads, &plan);
    *out = plan.size;
    ga_plan_free(&plan);
    return status;
}

ga_plan_options ga_net_plan_options(const ga_net *net) { return net->plan.options; }

/* The pointers of all nodes, once every block is there. */
static void map(ga_net *net)
{
    int64_t real = net->compute->real_bytes;
    const ga_piece *piece = net->plan.piece;
    char *arena = net->block[GA_ACTIVATIONS];
    char *written = calloc((size_t)net->n_values, 1);        /* which gradients an earlier backward has written */
    if (!written)
        return;                                              /* not mapped: every pass will say so */
    for (int i = net->n_nodes - 1; i >= 0; i--) {
        ga_node *node = net->node[i];
        for (int k = 0; k < node->n_inputs; k++) {
            int v = node->input[k];
            node->x[k] = arena + piece[value_piece(net, v)].offset;
            node->dx[k] = net->value[v].needs_grad ? arena + piece[grad_piece(net, v)].offset : NULL;
            node->dx_adds[k] = written[v];
            written[v] = 1;
        }
        if (node->output >= 0) {
            node->y = arena + piece[value_piece(net, node->output)].offset;
            node->dy = net->value[node->output].needs_grad ? arena + piece[grad_piece(net, node->output)].offset : NULL;
        } else {
            node->target = arena + piece[loss_piece(net, TARGET)].offset;
            node->loss = (double *)(arena + piece[loss_piece(net, LOSS)].offset);
            node->loss_weight = (double *)(arena + piece[loss_piece(net, LOSS_WEIGHT)].offset);
            node->elements = &net->elements;
        }
        for (int k = 0; k < node->n_params; k++) {
            const ga_param *p = &net->param[node->param[k]];
            int64_t at = p->offset;
            if (node->chain[k] && !net->plan.options.fold_ties)
                at = net->param_count + net->chain[node->chain[k] - 1].offset;
            node->w[k] = net->block[GA_PARAMETERS] + p->offset * real;
            node->dw[k] = p->frozen ? NULL : net->block[GA_GRADIENTS] + at * real;
        }
        node->saved = arena + node->place_saved;
        node->state = node->state_count ? net->block[GA_STATE] + node->place_state : NULL;
        node->packed = node->packed_bytes ? net->block[GA_PACKED] + node->place_packed : NULL;
        node->packed_back = back_bytes(net, node, &net->plan.options) ? net->block[GA_PACKED] + node->place_packed + align(node->packed_bytes) : NULL;
        int64_t shared = 0;
        size(net->plan.rows, node->work_per_sample, node->work_fixed, &shared);
        node->work = net->block[GA_WORKSPACE];
        node->thread_work = net->block[GA_WORKSPACE] + shared;
    }
    free(written);
    net->mapped = 1;
}

double *ga_loss_weights(const ga_net *net)
{
    return (double *)(net->block[GA_ACTIVATIONS] + net->plan.piece[loss_piece(net, SAMPLE_WEIGHT)].offset);
}

ga_status ga_net_bind(ga_net *net, ga_block block, void *memory)
{
    if (!net->planned || (unsigned)block >= GA_BLOCKS)
        return ga_fail(GA_EVALUE, "bind: the network is not planned, or there is no block %d", (int)block);
    if (!memory && net->plan.size.bytes[block])
        return ga_fail(GA_EVALUE, "bind: no memory given");
    net->block[block] = memory;
    for (int b = 0; b < GA_BLOCKS; b++)
        if (!net->block[b] && net->plan.size.bytes[b])
            return GA_OK;
    map(net);
    return net->mapped ? GA_OK : ga_fail(GA_EMEMORY, "no memory for the pointers of the nodes");
}

ga_status ga_value_place(const ga_net *net, int v, int grad, int64_t *offset, int64_t *samples, int64_t *length)
{
    if (v < 0 || v >= net->n_values || !net->planned)
        return ga_fail(GA_EVALUE, "there is no value %d", v);
    const ga_value *value = &net->value[v];
    const char *name = value->producer >= 0 ? net->node[value->producer]->name : "an input";
    if (grad && !value->needs_grad)
        return ga_fail(GA_EVALUE, "%s: nothing needs the gradient of this value, so none is computed", name);
    int me = grad ? grad_piece(net, v) : value_piece(net, v);
    const ga_piece *p = &net->plan.piece[me];
    if (!net->plan.options.keep_all) {
        if (net->clock < p->life[0].birth)
            return ga_fail(GA_ESTAGE, "%s: its %s is not computed yet in this micro-batch", name, grad ? "gradient" : "output");
        int written = net->clock >= p->life[1].birth ? p->life[1].birth : p->life[0].birth;
        for (int i = 0; i < net->plan.n_pieces; i++) {
            const ga_piece *q = &net->plan.piece[i];
            int over = 0;
            for (int k = 0; k < 2; k++)
                over |= q->life[k].birth > written && q->life[k].birth <= net->clock;
            if (i != me && q->bytes && over && q->offset < p->offset + p->bytes && p->offset < q->offset + q->bytes)
                return ga_fail(GA_ESTAGE, "%s: the memory of its %s was used again by a later node; plan with keep=\"all\" to "
                               "keep every value", name, grad ? "gradient" : "output");
        }
    }
    *samples = net->pass.samples ? net->pass.samples - net->shown : net->plan.micro_batch;
    *length = net->pass.samples ? net->pass.length : net->length;
    int64_t elements = ga_elements(&value->shape);
    if (value->sequence && value->shape.rank)
        elements = elements / value->shape.dim[0] * *length;
    *offset = p->offset + net->shown * elements * (value->integer ? 8 : net->compute->real_bytes);
    return GA_OK;
}
