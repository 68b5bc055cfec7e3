/* Attention of one head, forward and backward, in blocks of BLOCK queries against all their keys.
 *
 * With P the probabilities, B the dropout factors, O = (P B) V and dO given (all sums over what a query sees):
 *
 *   D_i = dO_i . O_i       dV_j = sum over i of P_ij B_ij dO_i       dS_ij = P_ij (B_ij dO_i . v_j - D_i) / sqrt(size)
 *   dQ_i = sum over j of dS_ij k_j                                   dK_j = sum over i of dS_ij q_i
 *
 * (Dao et al. 2022, arXiv:2205.14135, appendix B.) Every element is one chain over keys, or over queries, in order; a key that a
 * query does not see adds 0. So a longer padding changes no bit. */
#include "../random.h"
#include "attention.h"
#include "exp.h"
#include "rows.h"

enum { BLOCK = 4 * ROWS };                       /* the most rows for which matmul reads B in place */

static int64_t padded(int64_t n) { return (n + WIDE - 1) / WIDE * WIDE; }

int64_t attention_work(int64_t steps, int64_t size)
{
    return 2 * padded(steps) * size + padded(size) * steps + 2 * BLOCK * padded(steps);
}

/* Keys that the block of queries from..to-1 may see. */
static int64_t seen(const attention *a, int64_t to) { return a->causal ? smaller(to, a->keys) : a->keys; }

/* c[rows][n] = x of the block times the transpose of y's first n rows; panels: that transpose, packed. Whole panels are computed;
 * what is behind n is not used. */
static void against_rows(const attention *a, int64_t rows, int64_t n, const real *x, int64_t x_row, const real *y, const real *panels, real *c,
                         int64_t c_row)
{
    matrix left = {x, x_row, 1};
    if (a->engine == GA_NATIVE)
        matmul_packed(1, rows, padded(n), a->size, left, panels, c, c_row, FROM_ZERO, NULL);
    else
        matmul(a->engine, 1, rows, n, a->size, left, (matrix){y, 1, a->row}, c, c_row, FROM_ZERO, NULL);
}

/* c[rows][size] = p[rows][n] times y's first n rows; panels: y's columns in panels of `keys` rows. */
static void times_rows(const attention *a, int64_t rows, int64_t n, const real *p, int64_t p_row, const real *y, const real *panels, real *c,
                       int64_t c_row)
{
    matrix left = {p, p_row, 1};
    if (a->engine != GA_NATIVE) {
        matmul(a->engine, 1, rows, a->size, n, left, (matrix){y, a->row, 1}, c, c_row, FROM_ZERO, NULL);
        return;
    }
    for (int64_t j = 0; j < a->size; j += WIDE)
        matmul_packed(1, rows, smaller(WIDE, a->size - j), n, left, panels + j * a->keys, c + j, c_row, FROM_ZERO, NULL);
}

static void pack_transposed(const attention *a, const real *y, real *panels)
{
    if (a->engine == GA_NATIVE)
        matmul_pack(1, a->size, a->keys, (matrix){y, 1, a->row}, panels);
}

static void pack_columns(const attention *a, const real *y, real *panels)
{
    if (a->engine == GA_NATIVE)
        matmul_pack(1, a->keys, a->size, (matrix){y, a->row, 1}, panels);
}

static real scale_of(const attention *a) { return (real)(1 / sqrt((double)a->size)); }

/* s[0..n) becomes exp(scale (s - max)) in place, the lanes behind it 0; returns the sum. */
static real exp_row(real *s, int64_t n, real max, real scale)
{
    const vec m = broadcast(max), f = broadcast(scale);
    vec sum = broadcast(0);
    int64_t whole = n / LANES * LANES;
    real lane[LANES], total = 0;
    for (int64_t j = 0; j < whole; j += LANES) {
        vec e = exp_vec((load(s + j) - m) * f);
        sum += e;
        store(s + j, e);
    }
    if (whole < n) {
        vec e = exp_vec((load_first(s + whole, n - whole, -(real)INFINITY) - m) * f);
        sum += e;
        store(s + whole, e);
    }
    store(lane, sum);
    for (int l = 0; l < LANES; l++)
        total += lane[l];
    return total;
}

static real max_of_row(const real *s, int64_t n)
{
    vec m = broadcast(-(real)INFINITY);
    int64_t whole = n / LANES * LANES;
    real lane[LANES];
    for (int64_t j = 0; j < whole; j += LANES)
        m = larger_vec(load(s + j), m);
    if (whole < n)
        m = larger_vec(load_first(s + whole, n - whole, -(real)INFINITY), m);
    store(lane, m);
    for (int l = 1; l < LANES; l++)
        lane[0] = lane[l] > lane[0] ? lane[l] : lane[0];
    return lane[0];
}

static void multiply_row(real *s, int64_t n, real factor)
{
    for (int64_t j = 0; j < n; j++)
        s[j] *= factor;
}

typedef struct { uint32_t threshold; real keep; } dropout;

static dropout dropout_of(const attention *a)
{
    double limit = floor(a->drop * 4294967296.0);
    return (dropout){(uint32_t)(limit < 4294967295.0 ? limit : 4294967295.0), a->drop < 1 ? (real)(1 / (1 - a->drop)) : 0};
}

static uint64_t stream_of(const attention *a, int64_t query)
{
    return random_mix(a->stream + 0x9E3779B97F4A7C15u + (a->head << 32 | (uint64_t)query));
}

void attention_forward(const attention *a, real *work)
{
    const int64_t wide = padded(a->steps);
    real *keys = work, *values = keys + wide * a->size, *s = values + padded(a->size) * a->steps;
    const real scale = scale_of(a);
    const dropout drop = dropout_of(a);
    pack_transposed(a, a->k, keys);
    pack_columns(a, a->v, values);
    for (int64_t from = 0; from < a->steps; from += BLOCK) {
        int64_t to = smaller(from + BLOCK, a->steps), n = seen(a, to), ld = padded(n);
        against_rows(a, to - from, n, a->q + from * a->row, a->row, a->k, keys, s, ld);
        for (int64_t i = from; i < to; i++) {
            real *row = s + (i - from) * ld;
            int64_t own = seen(a, i + 1);
            real max = max_of_row(row, own), inverse = 1 / exp_row(row, own, max, scale);
            a->kept[2 * i] = max;
            a->kept[2 * i + 1] = inverse;
            multiply_row(row, own, inverse);
            if (a->drop > 0) {
                uint64_t stream = stream_of(a, i);
                for (int64_t j = 0; j < own; j++)
                    row[j] *= random_element(stream, (uint32_t)j) < drop.threshold ? 0 : drop.keep;
            }
            memset(row + own, 0, (size_t)(ld - own) * sizeof(real));
        }
        times_rows(a, to - from, n, s, ld, a->v, values, a->out + from * a->out_row, a->out_row);
    }
}

/* p: scores, then P B. dp: dO . v, then dS. */
static void backward_row(const attention *a, int64_t i, real *p, real *dp, int64_t own, int64_t ld, real scale, dropout drop)
{
    const real max = a->kept[2 * i], inverse = a->kept[2 * i + 1];
    const real mean = row_dot(a->size, a->d_out + i * a->out_row, a->out + i * a->out_row);
    exp_row(p, own, max, scale);
    multiply_row(p, own, inverse);
    if (a->drop > 0) {
        uint64_t stream = stream_of(a, i);
        for (int64_t j = 0; j < own; j++) {
            real b = random_element(stream, (uint32_t)j) < drop.threshold ? 0 : drop.keep;
            dp[j] = p[j] * (b * dp[j] - mean) * scale;
            p[j] *= b;
        }
    } else
        for (int64_t j = 0; j < own; j++)
            dp[j] = p[j] * (dp[j] - mean) * scale;
    memset(p + own, 0, (size_t)(ld - own) * sizeof(real));
    memset(dp + own, 0, (size_t)(ld - own) * sizeof(real));
}

void attention_backward(const attention *a, real *work)
{
    const int64_t wide = padded(a->steps);
    real *keys = work, *values = keys + wide * a->size, *rows = values + wide * a->size, *p = rows + padded(a->size) * a->steps;
    real *dp = p + BLOCK * wide;
    const real scale = scale_of(a);
    const dropout drop = dropout_of(a);
    pack_transposed(a, a->k, keys);
    pack_transposed(a, a->v, values);
    pack_columns(a, a->k, rows);
    for (int64_t j = 0; j < a->steps; j++) {
        memset(a->dk + j * a->row, 0, (size_t)a->size * sizeof(real));
        memset(a->dv + j * a->row, 0, (size_t)a->size * sizeof(real));
    }
    for (int64_t from = 0; from < a->steps; from += BLOCK) {
        int64_t to = smaller(from + BLOCK, a->steps), m = to - from, n = seen(a, to), ld = padded(n);
        const real *q = a->q + from * a->row, *d_out = a->d_out + from * a->out_row;
        against_rows(a, m, n, q, a->row, a->k, keys, p, ld);
        against_rows(a, m, n, d_out, a->out_row, a->v, values, dp, ld);
        for (int64_t i = from; i < to; i++)
            backward_row(a, i, p + (i - from) * ld, dp + (i - from) * ld, seen(a, i + 1), ld, scale, drop);
        times_rows(a, m, n, dp, ld, a->k, rows, a->dq + from * a->row, a->row);
        matmul(a->engine, 1, n, a->size, m, (matrix){dp, 1, ld}, (matrix){q, a->row, 1}, a->dk, a->row, FROM_C, NULL);
        matmul(a->engine, 1, n, a->size, m, (matrix){p, 1, ld}, (matrix){d_out, a->out_row, 1}, a->dv, a->row, FROM_C, NULL);
    }
}
