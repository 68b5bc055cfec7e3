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
 * Statistics: running mean, running variance, updates; then the window's pooled n, mean, M2. */
#include "../layer.h"

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

/* Mean and sum of squared deviations of each channel over `rows` rows of c numbers. */
static void moments(const real *x, int64_t rows, int64_t c, double *mean, double *m2)
{
    memset(mean, 0, (size_t)c * sizeof *mean);
    memset(m2, 0, (size_t)c * sizeof *m2);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < c; i++)
            mean[i] += (double)x[r * c + i];
    for (int64_t i = 0; i < c; i++)
        mean[i] /= (double)rows;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < c; i++) {
            double d = (double)x[r * c + i] - mean[i];
            m2[i] += d * d;
        }
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

static ga_status batch_norm_forward(const ga_node *node, const ga_pass *pass)
{
    int64_t c = channels(node), rows = pixels(node), size = group(node, pass);
    const real *w = node->n_params ? weight(node, 0) : NULL, *b = node->n_params ? weight(node, 1) : NULL;
    double *m2 = node->work;
    for (int64_t s = 0, g = 0; s < pass->samples; s += size, g++) {
        int64_t n = pass->samples - s < size ? pass->samples - s : size;
        const real *x = input(node, 0) + s * rows * c;
        real *y = output(node) + s * rows * c;
        double *mean = moments_of(node, pass, g), *scale = mean + c;
        if (uses_batch(node, pass)) {
            moments(x, n * rows, c, mean, m2);
            for (int64_t i = 0; i < c; i++)
                scale[i] = 1 / sqrt(m2[i] / (double)(n * rows) + node->option[EPS]);
            if (pass->training && node->option[TRACK] && !pass->again) {
                if (node->option[WINDOW])
                    pool(node, (double)(n * rows), mean, m2);
                else
                    update_running(node, (double)(n * rows), mean, m2);
            }
        } else if (s == 0)
            for (int64_t i = 0; i < c; i++) {
                mean[i] = (double)state(node)[i];
                scale[i] = 1 / sqrt((double)state(node)[c + i] + node->option[EPS]);
            }
        for (int64_t r = 0; r < n * rows; r++)
            for (int64_t i = 0; i < c; i++) {
                real h = (x[r * c + i] - (real)mean[i]) * (real)scale[i];
                y[r * c + i] = w ? h * w[i] + b[i] : h;
            }
    }
    return GA_OK;
}

static ga_status batch_norm_backward(const ga_node *node, const ga_pass *pass)
{
    int64_t c = channels(node), rows = pixels(node), size = group(node, pass);
    const real *w = node->n_params ? weight(node, 0) : NULL;
    real *dw = node->n_params ? weight_grad(node, 0) : NULL, *db = node->n_params ? weight_grad(node, 1) : NULL;
    double *sums = node->work, *products = sums + c;
    const int adds = node->dx_adds[0], batch = uses_batch(node, pass);
    for (int64_t s = 0, g = 0; s < pass->samples; s += size, g++) {
        int64_t n = pass->samples - s < size ? pass->samples - s : size;
        const real *x = input(node, 0) + s * rows * c, *dy = output_grad(node) + s * rows * c;
        real *dx = input_grad(node, 0) ? input_grad(node, 0) + s * rows * c : NULL;
        const double *mean = moments_of(node, pass, g), *scale = mean + c;
        memset(sums, 0, (size_t)(2 * c) * sizeof *sums);
        for (int64_t r = 0; r < n * rows; r++)
            for (int64_t i = 0; i < c; i++) {
                sums[i] += (double)dy[r * c + i];
                products[i] += (double)dy[r * c + i] * (double)((x[r * c + i] - (real)mean[i]) * (real)scale[i]);
            }
        for (int64_t i = 0; i < c; i++) {
            if (dw)
                dw[i] += (real)products[i];
            if (db)
                db[i] += (real)sums[i];
        }
        for (int64_t r = 0; dx && r < n * rows; r++)
            for (int64_t i = 0; i < c; i++) {
                real h = (x[r * c + i] - (real)mean[i]) * (real)scale[i], d = dy[r * c + i];
                if (batch)
                    d = d - (real)(sums[i] / (double)(n * rows)) - h * (real)(products[i] / (double)(n * rows));
                d = d * (real)scale[i] * (w ? w[i] : 1);
                dx[r * c + i] = adds ? dx[r * c + i] + d : d;
            }
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
