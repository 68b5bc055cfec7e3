/* batch_norm and ghost_batch_norm: normalise each channel over samples and pixels (Ioffe, Szegedy 2015).
 *
 *   training:    m, v = mean and (biased) variance of the channel over the micro-batch; x' = (x - m) / sqrt(v + eps); y = w x' + b
 *                dx = w / sqrt(v + eps) (dy - mean(dy) - x' mean(dy x'))
 *   evaluation, or frozen:   m, v = running statistics, constants; dx = w dy / sqrt(v + eps)
 *   running m <- (1 - momentum) m + momentum m_batch, running v likewise with the unbiased variance, as PyTorch
 *
 * A sample's result depends on the others of its micro-batch, so a split changes the function itself: the layer says so
 * (GA_MIXES_SAMPLES). What can be kept under accumulation, is:
 *   window statistics  (window=1) the running statistics are those of the whole window: moments (n, mean, M2) of the micro-batches are
 *                      pooled (Chan, Golub, LeVeque 1979) and committed once per update, instead of K times
 *   ghosts             (ghost=B; Hoffer et al. 2017) statistics over groups of B samples, counted from the start of the window: as long as
 *                      micro-batches are multiples of B, every split has the same groups, and the same bits
 *
 * Statistics: running mean, running variance, updates; then the window's pooled n, mean, M2.
 * Sums run over the pixels of each sample, then over the samples in order. Threads divide samples. */
#include "../kernels/columns.h"
#include "../kernels/rows.h"

enum { EPS, MOMENTUM, AFFINE, TRACK, WINDOW, GHOST, FROZEN };
static const ga_option_default options[] = {
    {"eps", 1e-5}, {"momentum", 0.1}, {"affine", 1}, {"track_running_stats", 1}, {"window", 0}, {"ghost", 0}, {"frozen", 0}, {NULL, 0},
};

static int64_t channels(const ga_node *node) { return features(&node->in[0]); }
static int64_t pixels(const ga_node *node) { return ga_elements(&node->in[0]) / channels(node); }
static int uses_batch(const ga_node *node, const ga_pass *pass)
{
    return (pass->training && !node->option[FROZEN]) || !node->option[TRACK];
}
static int64_t ghost(const ga_node *node) { return (int64_t)node->option[GHOST]; }
/* Samples with common statistics; where they are constants, each sample is on its own, so that sums go on from sample to sample. */
static int64_t group(const ga_node *node, const ga_pass *pass)
{
    return !uses_batch(node, pass) ? 1 : ghost(node) ? ghost(node) : pass->samples;
}
static double *moments_of(const ga_node *node, const ga_pass *pass, int64_t g)
{
    return (double *)node->saved + (uses_batch(node, pass) ? g : 0) * 2 * channels(node);
}

static ga_status batch_norm_plan(ga_node *node)
{
    char text[64];
    int64_t c = channels(node);
    if (node->in[0].rank != 1 && node->in[0].rank != 3)
        return ga_fail(GA_EVALUE, "%s (%s): the input has shape %s per sample, expected (features,) or (channels, height, width)", node->name,
                       node->layer->kind, ga_shape_text(&node->in[0], text));
    if (!(node->option[EPS] >= 0) || !(node->option[MOMENTUM] >= 0 && node->option[MOMENTUM] <= 1))
        return ga_fail(GA_EVALUE, "%s (%s): eps=%g, momentum=%g; expected eps of 0 or more, momentum in [0, 1]", node->name, node->layer->kind,
                       node->option[EPS], node->option[MOMENTUM]);
    if (ghost(node) < 0)
        return ga_fail(GA_EVALUE, "%s (%s): virtual_batch_size=%lld, expected at least 1", node->name, node->layer->kind, (long long)ghost(node));
    same_shape(node);
    if (node->option[FROZEN])
        node->mixes_samples = 0;
    node->state_count = node->option[TRACK] ? 4 * c + 2 : 0;                 /* mean, var, updates, pooled n, mean, M2 */
    int64_t moments_bytes = 2 * c * (int64_t)sizeof(double);                 /* mean and 1 / sqrt(v + eps), of each group */
    node->saved_fixed = moments_bytes;
    node->saved_per_sample = ghost(node) ? moments_bytes / ghost(node) + 1 : 0;
    node->work_fixed = moments_bytes;
    node->work_per_sample = moments_bytes;                                   /* the same of each sample, before they are put together */
    ga_status status = GA_OK;
    if (node->option[AFFINE] && !(status = ga_node_param(node, "weight", 1, &c)))
        status = ga_node_param(node, "bias", 1, &c);
    return status;
}

static ga_status batch_norm_check(const ga_node *node, const ga_pass *pass, const void *data)
{
    (void)data;
    if (!uses_batch(node, pass))
        return GA_OK;
    if (ghost(node) && pass->samples % ghost(node))
        return ga_fail(GA_EVALUE, "%s (%s): a micro-batch of %lld samples cannot be cut into ghosts of %lld; use multiples", node->name,
                       node->layer->kind, (long long)pass->samples, (long long)ghost(node));
    if (group(node, pass) * pixels(node) < 2)
        return ga_fail(GA_EVALUE, "%s (%s): batch statistics of one value per channel have no variance; use micro-batches of at least 2 samples, "
                       "GroupNorm, or evaluation mode", node->name, node->layer->kind);
    return GA_OK;
}

static void update_running(const ga_node *node, double n, const double *mean, const double *m2)
{
    int64_t c = channels(node);
    real *run_mean = state(node), *run_var = run_mean + c;
    const double f = node->option[MOMENTUM];
    for (int64_t i = 0; i < c; i++) {
        run_mean[i] = (real)((1 - f) * (double)run_mean[i] + f * mean[i]);
        run_var[i] = (real)((1 - f) * (double)run_var[i] + f * m2[i] / (n > 1 ? n - 1 : 1));
    }
    state(node)[2 * c] += 1;
}

/* Adds a group to the window's moments. */
static void pool(const ga_node *node, double n, const double *mean, const double *m2)
{
    int64_t c = channels(node);
    real *pooled = state(node) + 2 * c + 1, *all_mean = pooled + 1, *all_m2 = all_mean + c;
    double before = (double)pooled[0], total = before + n;
    for (int64_t i = 0; i < c; i++) {
        double d = mean[i] - (double)all_mean[i];
        all_m2[i] = (real)((double)all_m2[i] + m2[i] + d * d * before * n / total);
        all_mean[i] = (real)((double)all_mean[i] + d * n / total);
    }
    pooled[0] = (real)total;
}

static void batch_norm_discard(const ga_node *node)
{
    if (node->option[TRACK])
        memset(state(node) + 2 * channels(node) + 1, 0, (size_t)(2 * channels(node) + 1) * sizeof(real));
}

static void batch_norm_commit(const ga_node *node, const ga_pass *pass)
{
    int64_t c = channels(node);
    (void)pass;
    if (!node->option[TRACK] || !node->option[WINDOW] || !(state(node)[2 * c + 1] > 0))
        return;
    double *mean = node->work, *m2 = mean + c;
    const real *pooled = state(node) + 2 * c + 1;
    for (int64_t i = 0; i < c; i++) {
        mean[i] = (double)pooled[1 + i];
        m2[i] = (double)pooled[1 + c + i];
    }
    update_running(node, (double)pooled[0], mean, m2);
    batch_norm_discard(node);
}

/* A group of n samples from sample s on. */
typedef struct {
    const ga_node *node;
    const ga_pass *pass;
    int64_t s, n, rows, c;                                                   /* rows: pixels of a sample */
    double *total, *sums, *of_sample;                                        /* two numbers a channel each */
    const double *mean, *scale;
} job;

static job group_job(const ga_node *node, const ga_pass *pass, int64_t s, int64_t g)
{
    int64_t size = group(node, pass), c = channels(node);
    job j = {.node = node, .pass = pass, .s = s, .n = pass->samples - s < size ? pass->samples - s : size, .rows = pixels(node), .c = c};
    j.total = node->work;
    j.sums = j.total + c;
    j.of_sample = j.total + 2 * c;
    j.mean = moments_of(node, pass, g);
    j.scale = j.mean + c;
    return j;
}

static void each_sample(const job *j, void (*task)(void *, int, int))
{
    ga_parallel(j->n * j->rows * j->c > CHUNK ? j->pass->threads : 1, (int)j->n, task, (void *)j);
}

static void moments_of_sample(void *context, int index, int worker)
{
    const job *j = context;
    double *mean = j->of_sample + index * 2 * j->c;
    (void)worker;
    column_moments(j->rows, j->c, input(j->node, 0) + (j->s + index) * j->rows * j->c, mean, mean + j->c);
}

/* Mean and sum of squared deviations of the group, pooled from its samples. */
static void moments(const job *j, double *mean, double *m2)
{
    each_sample(j, moments_of_sample);
    memset(mean, 0, (size_t)j->c * sizeof *mean);
    memset(m2, 0, (size_t)j->c * sizeof *m2);
    for (int64_t k = 0; k < j->n; k++)
        for (int64_t i = 0; i < j->c; i++) {
            const double *of = j->of_sample + k * 2 * j->c;
            double d = of[i] - mean[i], part = 1 / (double)(k + 1);          /* samples have equal numbers of pixels */
            m2[i] += of[j->c + i] + d * d * (double)(k * j->rows) * part;
            mean[i] += d * part;
        }
}

static void normalise_sample(void *context, int index, int worker)
{
    const job *j = context;
    const int64_t c = j->c, at = (j->s + index) * j->rows * c;
    const real *x = input(j->node, 0) + at, *w = j->node->n_params ? weight(j->node, 0) : NULL, *b = w ? weight(j->node, 1) : NULL;
    real *y = output(j->node) + at;
    (void)worker;
    for (int64_t i = 0; i < c; i += LANES) {
        const int64_t lanes = c - i < LANES ? c - i : LANES;
        real m[LANES] = {0}, scale[LANES] = {0};
        for (int64_t l = 0; l < lanes; l++) {
            m[l] = (real)j->mean[i + l];
            scale[l] = (real)j->scale[i + l];
        }
        const vec vm = load(m), vs = load(scale);
        vec vw = broadcast(1), vb = broadcast(0);
        if (w) {
            vw = load_first(w + i, lanes, 0);
            vb = load_first(b + i, lanes, 0);
        }
        for (int64_t k = i; k < j->rows * c; k += c) {
            vec h = (load_first(x + k, lanes, 0) - vm) * vs;
            if (w)
                h = h * vw + vb;
            store_first(y + k, lanes, h);
        }
    }
}

static ga_status batch_norm_forward(const ga_node *node, const ga_pass *pass)
{
    int64_t c = channels(node), size = group(node, pass);
    for (int64_t s = 0, g = 0; s < pass->samples; s += size, g++) {
        job j = group_job(node, pass, s, g);
        double *mean = moments_of(node, pass, g), *scale = mean + c, *m2 = node->work;
        if (uses_batch(node, pass)) {
            moments(&j, mean, m2);
            for (int64_t i = 0; i < c; i++)
                scale[i] = 1 / sqrt(m2[i] / (double)(j.n * j.rows) + node->option[EPS]);
            if (pass->training && node->option[TRACK] && !pass->again) {
                if (node->option[WINDOW])
                    pool(node, (double)(j.n * j.rows), mean, m2);
                else
                    update_running(node, (double)(j.n * j.rows), mean, m2);
            }
        } else if (s == 0)
            for (int64_t i = 0; i < c; i++) {
                mean[i] = (double)state(node)[i];
                scale[i] = 1 / sqrt((double)state(node)[c + i] + node->option[EPS]);
            }
        each_sample(&j, normalise_sample);
    }
    return GA_OK;
}

static void gradient_sums_of_sample(void *context, int index, int worker)
{
    const job *j = context;
    const int64_t at = (j->s + index) * j->rows * j->c;
    double *sums = j->of_sample + index * 2 * j->c;
    (void)worker;
    sum_columns(WITH_X, j->rows, j->c, input(j->node, 0) + at, output_grad(j->node) + at, j->mean, j->scale, sums, sums + j->c);
}

static void input_gradient_of_sample(void *context, int index, int worker)
{
    const job *j = context;
    const int64_t c = j->c, at = (j->s + index) * j->rows * c;
    const int adds = j->node->dx_adds[0], batch = uses_batch(j->node, j->pass);
    const real *x = input(j->node, 0) + at, *dy = output_grad(j->node) + at, *w = j->node->n_params ? weight(j->node, 0) : NULL;
    const double n = (double)(j->n * j->rows);
    real *dx = input_grad(j->node, 0) + at;
    (void)worker;
    for (int64_t i0 = 0; i0 < c; i0 += LANES) {
        /* d = (dy - mean(dy) - h mean(dy h)) scale w, h = (x - m) scale */
        const int64_t lanes = c - i0 < LANES ? c - i0 : LANES;
        real m[LANES] = {0}, scale[LANES] = {0}, mean[LANES] = {0}, along[LANES] = {0}, factor[LANES] = {0};
        for (int64_t l = 0; l < lanes; l++) {
            int64_t i = i0 + l;
            m[l] = (real)j->mean[i];
            scale[l] = (real)j->scale[i];
            mean[l] = batch ? (real)(j->total[i] / n) : 0;
            along[l] = batch ? (real)(j->sums[i] / n) : 0;
            factor[l] = scale[l] * (w ? w[i] : 1);
        }
        const vec vm = load(m), vs = load(scale), vd = load(mean), va = load(along), vf = load(factor);
        for (int64_t k = i0; k < j->rows * c; k += c) {
            vec d = (load_first(dy + k, lanes, 0) - vd - (load_first(x + k, lanes, 0) - vm) * vs * va) * vf;
            if (adds)
                d = load_first(dx + k, lanes, 0) + d;
            store_first(dx + k, lanes, d);
        }
    }
}

static ga_status batch_norm_backward(const ga_node *node, const ga_pass *pass)
{
    int64_t size = group(node, pass);
    real *dw = node->n_params ? weight_grad(node, 0) : NULL, *db = node->n_params ? weight_grad(node, 1) : NULL;
    for (int64_t s = 0, g = 0; s < pass->samples; s += size, g++) {
        job j = group_job(node, pass, s, g);
        each_sample(&j, gradient_sums_of_sample);
        memset(j.total, 0, (size_t)(2 * j.c) * sizeof(double));
        for (int64_t k = 0; k < j.n; k++)
            for (int64_t i = 0; i < 2 * j.c; i++)                            /* sums of dy, then of dy x' */
                j.total[i] += j.of_sample[k * 2 * j.c + i];
        for (int64_t i = 0; i < j.c; i++) {
            if (dw)
                dw[i] += (real)j.sums[i];
            if (db)
                db[i] += (real)j.total[i];
        }
        if (input_grad(node, 0))
            each_sample(&j, input_gradient_of_sample);
    }
    return GA_OK;
}

const ga_layer LAYER(batch_norm) = {
    .kind = "batch_norm", .min_inputs = 1, .max_inputs = 1, .traits = GA_READS_INPUT | GA_MIXES_SAMPLES, .options = options,
    .plan = batch_norm_plan, .check = batch_norm_check, .forward = batch_norm_forward, .backward = batch_norm_backward,
    .commit = batch_norm_commit, .discard = batch_norm_discard,
};
const ga_layer LAYER(ghost_batch_norm) = {
    .kind = "ghost_batch_norm", .min_inputs = 1, .max_inputs = 1, .traits = GA_READS_INPUT, .options = options,
    .plan = batch_norm_plan, .check = batch_norm_check, .forward = batch_norm_forward, .backward = batch_norm_backward,
    .commit = batch_norm_commit, .discard = batch_norm_discard,
};
