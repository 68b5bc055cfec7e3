/* A whole run from C: every split and every way has the same bits; every misuse has its status and changes nothing. */
#include <math.h>
#include <stdio.h>
#include "nets.h"

enum { SAMPLES = 61, UPDATES = 6 };
typedef enum { WHOLE, ADD, BY_HAND } way;

/* Parameters, optimizer state and last loss after UPDATES windows. */
static void *train(ga_dtype dtype, way how, const int64_t *pieces, int n, int keep_all, const ga_window_options *options, double *loss)
{
    int64_t largest = 0, first = 0;
    for (int i = 0; i < n; i++)
        largest = pieces[i] > largest ? pieces[i] : largest;
    run r = classifier(dtype, largest, keep_all);
    data d = make_data(dtype, SAMPLES);
    add_optimizer(&r, GA_ADAMW);
    add_window(&r, options);
    ga_update u = {0};
    double sum, weight, norm;
    int flag;
    for (int step = 0; step < UPDATES; step++) {
        if (how == WHOLE) {
            ga_batch all = rows(&d, dtype, 0, SAMPLES);
            CHECK_EQ(ga_window_update(r.window, &all, pieces[0], NULL, NULL, &u), GA_OK);
            *loss = u.loss_sum / u.weight;
            continue;
        }
        if (how == BY_HAND)
            CHECK_EQ(ga_window_begin(r.window), GA_OK);
        first = 0;
        for (int i = 0; i < n; first += pieces[i++]) {
            ga_batch part = rows(&d, dtype, first, pieces[i]);
            if (how == ADD)
                CHECK_EQ(ga_window_add(r.window, &part, &sum, &weight, &flag), GA_OK);
            else {
                CHECK_EQ(ga_forward(r.net, &part), GA_OK);
                CHECK_EQ(ga_loss(r.net, &part, &sum, &weight), GA_OK);
                CHECK_EQ(ga_backward(r.net), GA_OK);
                CHECK_EQ(ga_window_accumulate(r.window, NULL), GA_OK);
            }
        }
        int64_t seen;
        ga_window_sums(r.window, &sum, &weight, &seen);
        CHECK_EQ(seen, SAMPLES);
        *loss = sum / weight;
        if (how == ADD)
            CHECK_EQ(ga_window_finish(r.window, &u), GA_OK);
        else {
            CHECK_EQ(ga_window_normalize(r.window), GA_OK);
            if (options->max_grad_norm > 0)
                CHECK_EQ(ga_window_clip(r.window, options->max_grad_norm, &norm, &flag), GA_OK);
            CHECK_EQ(ga_window_apply(r.window), GA_OK);
            CHECK_EQ(ga_window_clear(r.window, 0), GA_OK);
        }
    }
    CHECK_EQ(ga_window_counters(r.window)->updates, UPDATES);
    CHECK_EQ(*ga_optimizer_clock(r.optimizer), UPDATES);
    CHECK_EQ(ga_net_stage(r.net), GA_STAGE_CLEAR);
    for (int64_t i = 0; i < r.bytes[GA_GRADIENTS]; i++)
        CHECK(((char *)r.memory[GA_GRADIENTS])[i] == 0);
    char *result = block(3 * r.count * r.real);
    memcpy(result, r.memory[GA_PARAMETERS], (size_t)(r.count * r.real));
    for (int i = 0; i < 2; i++)
        memcpy(result + (i + 1) * r.count * r.real, r.state[i], (size_t)(r.count * r.real));
    give_back(&r);
    free_data(&d);
    return result;
}

static void same_bits(ga_dtype dtype, int threads, const ga_window_options *options)
{
    static const int64_t whole[] = {61}, halves[] = {31, 30}, uneven[] = {1, 40, 3, 17}, tail[] = {60, 1}, equal[] = {13, 13, 13, 13, 9};
    int64_t ones[SAMPLES], count = (IN * HIDDEN + HIDDEN + HIDDEN * CLASSES + CLASSES) * 3 * (dtype == GA_FLOAT64 ? 8 : 4);
    for (int i = 0; i < SAMPLES; i++)
        ones[i] = 1;
    struct { const int64_t *pieces; int n; way how; int keep_all; } cases[] = {
        {whole, 1, ADD, 0}, {whole, 1, BY_HAND, 1}, {halves, 2, WHOLE, 0}, {halves, 2, BY_HAND, 0}, {uneven, 4, ADD, 0},
        {uneven, 4, BY_HAND, 1}, {tail, 2, WHOLE, 1}, {equal, 5, WHOLE, 0}, {equal, 5, BY_HAND, 0}, {ones, SAMPLES, WHOLE, 0},
        {ones, SAMPLES, ADD, 1},
    };
    double expected, loss;
    CHECK_EQ(ga_set_threads(threads), GA_OK);
    void *full = train(dtype, WHOLE, whole, 1, 0, options, &expected);
    CHECK(isfinite(expected) && expected > 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        void *other = train(dtype, cases[i].how, cases[i].pieces, cases[i].n, cases[i].keep_all, options, &loss);
        CHECK(!memcmp(full, other, (size_t)count));
        CHECK_EQ(loss, expected);
        free(other);
    }
    free(full);
}

static void every_split_has_the_same_bits(void)
{
    static const char *const levels[] = {"baseline", "avx2", "avx512"};
    ga_window_options options = plain();
    for (int level = 0; level < 3; level++) {
        setenv("GRADACCUM_CPU", levels[level], 1);
        for (int threads = 1; threads <= 2; threads++) {
            same_bits(GA_FLOAT32, threads, &options);
            same_bits(GA_FLOAT64, threads, &options);
        }
    }
    unsetenv("GRADACCUM_CPU");
    options.max_grad_norm = 0;
    options.reduction = GA_SUM;
    options.loss_scale = 0.125;
    same_bits(GA_FLOAT32, 2, &options);
}

/* ---- the order of stages ---- */

typedef ga_status call(run *, const ga_batch *);
static ga_status do_begin(run *r, const ga_batch *b) { (void)b; return ga_window_begin(r->window); }
static ga_status do_forward(run *r, const ga_batch *b) { return ga_forward(r->net, b); }
static ga_status do_loss(run *r, const ga_batch *b) { double s, w; return ga_loss(r->net, b, &s, &w); }
static ga_status do_backward(run *r, const ga_batch *b) { (void)b; return ga_backward(r->net); }
static ga_status do_accumulate(run *r, const ga_batch *b) { (void)b; return ga_window_accumulate(r->window, NULL); }
static ga_status do_normalize(run *r, const ga_batch *b) { (void)b; return ga_window_normalize(r->window); }
static ga_status do_clip(run *r, const ga_batch *b) { (void)b; double n; int c; return ga_window_clip(r->window, 1, &n, &c); }
static ga_status do_apply(run *r, const ga_batch *b) { (void)b; return ga_window_apply(r->window); }
static ga_status do_clear(run *r, const ga_batch *b) { (void)b; return ga_window_clear(r->window, 0); }
static ga_status do_finish(run *r, const ga_batch *b) { (void)b; ga_update u; return ga_window_finish(r->window, &u); }
static ga_status do_add(run *r, const ga_batch *b) { double s, w; return ga_window_add(r->window, b, &s, &w, NULL); }
static ga_status do_update(run *r, const ga_batch *b) { ga_update u; return ga_window_update(r->window, b, 4, NULL, NULL, &u); }
static ga_status do_predict(run *r, const ga_batch *b)
{
    char out[64 * CLASSES * 8];
    return ga_predict(r->net, b, out);
}
static ga_status do_evaluate(run *r, const ga_batch *b) { double s, w; return ga_evaluate(r->net, b, &s, &w); }
static ga_status do_step(run *r, const ga_batch *b) { (void)b; return ga_optimizer_step(r->optimizer); }
static ga_status do_zero(run *r, const ga_batch *b) { (void)b; return ga_zero_grad(r->net); }
static ga_status do_set(run *r, const ga_batch *b) { (void)b; ga_window_options o = plain(); return ga_window_set(r->window, &o); }
static ga_status do_measure(run *r, const ga_batch *b) { (void)b; return ga_window_measure(r->window, 1); }
static ga_status do_replace(run *r, const ga_batch *b)
{
    (void)b;
    ga_window_options o = plain();
    ga_window *other;
    ga_status status = ga_window_create(r->net, r->optimizer, &o, &other);
    if (!status) {
        ga_window_free(r->window);
        r->window = other;
    }
    return status;
}

static call *const calls[] = {do_begin, do_forward, do_loss, do_backward, do_accumulate, do_normalize, do_clip, do_apply, do_clear, do_finish,
                              do_add, do_update, do_predict, do_evaluate, do_step, do_zero, do_set, do_replace, do_measure};
enum { CALLS = sizeof calls / sizeof *calls };
/* Rows: the stage a window is in. Columns: as `calls`. 1: allowed. */
static const char *const allowed[GA_STAGES] = {
    /* clear      */ "1100000010111100111",
    /* forward    */ "1110000010111100010",
    /* loss       */ "1111000010111100010",
    /* backward   */ "0000100000000000000",
    /* accumulate */ "0100010001101100000",
    /* normalize  */ "0000001100001100000",
    /* clip       */ "0000000100001100000",
    /* update     */ "0000000010001100000",
};
static call *const way_to[GA_STAGES][7] = {
    {NULL}, {do_forward}, {do_forward, do_loss}, {do_forward, do_loss, do_backward}, {do_add},
    {do_add, do_normalize}, {do_add, do_normalize, do_clip}, {do_add, do_normalize, do_apply},
};

static void every_call_in_every_stage(void)
{
    data d = make_data(GA_FLOAT32, 8);
    for (int stage = 0; stage < GA_STAGES; stage++)
        for (int c = 0; c < CALLS; c++) {
            run r = classifier(GA_FLOAT32, 8, 0);
            ga_window_options options = plain();
            ga_batch b = rows(&d, GA_FLOAT32, 0, 8);
            add_optimizer(&r, GA_SGD);
            add_window(&r, &options);
            for (int i = 0; way_to[stage][i]; i++)
                CHECK_EQ(way_to[stage][i](&r, &b), GA_OK);
            CHECK_EQ(ga_net_stage(r.net), stage);
            ga_window_state before, after;
            void *kept = block(r.bytes[GA_PARAMETERS] + r.bytes[GA_GRADIENTS]);
            memcpy(kept, r.memory[GA_PARAMETERS], (size_t)r.bytes[GA_PARAMETERS]);
            memcpy((char *)kept + r.bytes[GA_PARAMETERS], r.memory[GA_GRADIENTS], (size_t)r.bytes[GA_GRADIENTS]);
            ga_window_get_state(r.window, &before);
            ga_status status = calls[c](&r, &b);
            CHECK_EQ(status, allowed[stage][c] == '1' ? GA_OK : GA_ESTAGE);
            if (status) {
                CHECK(strlen(ga_error()) > 20);
                ga_window_get_state(r.window, &after);
                CHECK_EQ(after.stage, before.stage);
                CHECK_EQ(after.micro_step, before.micro_step);
                CHECK_EQ(after.loss_sum, before.loss_sum);
                CHECK_EQ(after.weight_sum, before.weight_sum);
                CHECK(!memcmp(kept, r.memory[GA_PARAMETERS], (size_t)r.bytes[GA_PARAMETERS]));
                CHECK(!memcmp((char *)kept + r.bytes[GA_PARAMETERS], r.memory[GA_GRADIENTS], (size_t)r.bytes[GA_GRADIENTS]));
            }
            CHECK_EQ(ga_window_clear(r.window, 1), GA_OK);       /* from everywhere */
            CHECK_EQ(ga_net_stage(r.net), GA_STAGE_CLEAR);
            CHECK_EQ(do_update(&r, &b), GA_OK);
            free(kept);
            give_back(&r);
        }
    free_data(&d);
}

/* ---- arguments ---- */

static void wrong_batches_change_nothing(void)
{
    run r = classifier(GA_FLOAT32, 8, 0);
    data d = make_data(GA_FLOAT32, 20);
    ga_window_options options = plain();
    double sum, weight;
    ga_update u;
    add_optimizer(&r, GA_SGD);
    add_window(&r, &options);
    ga_batch good = rows(&d, GA_FLOAT32, 0, 8), b;
    CHECK_EQ(ga_window_add(r.window, &good, &sum, &weight, NULL), GA_OK);
    ga_window_state before, after;
    ga_window_get_state(r.window, &before);

    b = good, b.samples = 0;
    CHECK_EQ(ga_window_add(r.window, &b, &sum, &weight, NULL), GA_EVALUE);
    b = good, b.samples = -3;
    CHECK_EQ(ga_forward(r.net, &b), GA_EVALUE);
    b = rows(&d, GA_FLOAT32, 0, 9);
    CHECK_EQ(ga_window_add(r.window, &b, &sum, &weight, NULL), GA_EVALUE);
    CHECK(strstr(ga_error(), "9 samples") && strstr(ga_error(), "at most 8"));
    b = good, b.target = NULL;
    CHECK_EQ(ga_window_add(r.window, &b, &sum, &weight, NULL), GA_EVALUE);
    b = good, b.length = 3;
    CHECK_EQ(ga_window_add(r.window, &b, &sum, &weight, NULL), GA_EVALUE);
    d.y[5] = CLASSES;
    CHECK_EQ(ga_window_add(r.window, &good, &sum, &weight, NULL), GA_EINDEX);
    CHECK(strstr(ga_error(), "loss: sample 5 has the label 5; allowed are 0 to 4"));
    d.y[5] = -1;
    CHECK_EQ(ga_evaluate(r.net, &good, &sum, &weight), GA_EINDEX);
    d.y[5] = 0;
    for (int i = 0; i < 3; i++) {
        d.weight[7] = i == 0 ? -1 : i == 1 ? NAN : INFINITY;
        CHECK_EQ(ga_window_add(r.window, &good, &sum, &weight, NULL), GA_EVALUE);
        CHECK(strstr(ga_error(), "sample 7"));
    }
    d.weight[7] = 1;
    ga_window_get_state(r.window, &after);
    CHECK(!memcmp(&before, &after, sizeof before));
    CHECK_EQ(ga_window_finish(r.window, &u), GA_OK);

    ga_batch all = rows(&d, GA_FLOAT32, 0, 20);
    for (int64_t piece = -1; piece <= 9; piece++)
        if (piece < 1 || piece > 8)
            CHECK_EQ(ga_window_update(r.window, &all, piece, NULL, NULL, &u), GA_EVALUE);
    d.y[19] = 99;                                        /* in the last piece: found before the first runs */
    ga_counters counters = *ga_window_counters(r.window);
    CHECK_EQ(ga_window_update(r.window, &all, 8, NULL, NULL, &u), GA_EINDEX);
    CHECK(!memcmp(&counters, ga_window_counters(r.window), sizeof counters));
    d.y[19] = 0;
    CHECK_EQ(ga_window_update(r.window, &all, 8, NULL, NULL, &u), GA_OK);
    CHECK_EQ(u.micro_steps, 3);

    b = rows(&d, GA_FLOAT32, 0, 4);
    CHECK_EQ(ga_forward(r.net, &good), GA_OK);
    CHECK_EQ(ga_loss(r.net, &b, &sum, &weight), GA_EVALUE);       /* other samples than forward had */
    CHECK(strstr(ga_error(), "4 samples") && strstr(ga_error(), "had 8"));
    CHECK_EQ(ga_window_clear(r.window, 1), GA_OK);
    give_back(&r);
    free_data(&d);
}

static void wrong_options(void)
{
    run r = classifier(GA_FLOAT32, 4, 0), other = classifier(GA_FLOAT32, 4, 0);
    ga_window *window;
    add_optimizer(&r, GA_ADAM);
    struct { ga_window_options o; const char *text; } wrong[] = {
        {{.loss_scale = 0, .ema_decay = -1}, "loss_scale"}, {{.loss_scale = -1, .ema_decay = -1}, "loss_scale"},
        {{.loss_scale = INFINITY, .ema_decay = -1}, "loss_scale"}, {{.loss_scale = NAN, .ema_decay = -1}, "loss_scale"},
        {{.loss_scale = 1, .ema_decay = 1.5}, "ema"}, {{.loss_scale = 1, .ema_decay = NAN}, "ema"},
        {{.loss_scale = 1, .ema_decay = -1, .max_grad_norm = NAN}, "max_grad_norm"},
        {{.loss_scale = 1, .ema_decay = -1, .buffer = GA_BUFFER_FLOAT64}, "staged"},
        {{.loss_scale = 1, .ema_decay = -1, .on_nonfinite = GA_NONFINITE_SKIP_MICRO_BATCH}, "staged"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_EQ(ga_window_create(r.net, r.optimizer, &wrong[i].o, &window), GA_EVALUE);
        CHECK(window == NULL && strstr(ga_error(), wrong[i].text));
    }
    ga_window_options options = plain();
    CHECK_EQ(ga_window_create(other.net, r.optimizer, &options, &window), GA_EVALUE);
    CHECK(strstr(ga_error(), "another network"));
    add_window(&r, &options);
    options.staged = 1;
    CHECK_EQ(ga_window_set(r.window, &options), GA_EVALUE);

    ga_hyper h = {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
    ga_hyper bad[] = {h, h, h, h, h, h};
    bad[0].lr = -1, bad[1].lr = NAN, bad[2].beta1 = 1, bad[3].beta2 = -0.1, bad[4].eps = -1, bad[5].weight_decay = -1;
    int group[4] = {0, 0, 0, 0}, wrong_group[4] = {0, 0, 1, 0};
    ga_optimizer *o;
    for (int i = 0; i < 6; i++) {
        CHECK_EQ(ga_optimizer_create(r.net, GA_ADAM, &bad[i], 1, group, &o), GA_EVALUE);
        CHECK_EQ(ga_optimizer_set(r.optimizer, 0, &bad[i]), GA_EVALUE);
    }
    CHECK_EQ(ga_optimizer_create(r.net, GA_ADAM, &h, 0, group, &o), GA_EVALUE);
    CHECK_EQ(ga_optimizer_create(r.net, GA_ADAM, &h, 1, wrong_group, &o), GA_EVALUE);
    CHECK(strstr(ga_error(), "b.weight"));
    CHECK_EQ(ga_optimizer_set(r.optimizer, 1, &h), GA_EVALUE);
    CHECK(ga_optimizer_hyper(r.optimizer, 1) == NULL && ga_optimizer_hyper(r.optimizer, -1) == NULL);
    h.amsgrad = 1;
    CHECK_EQ(ga_optimizer_set(r.optimizer, 0, &h), GA_EVALUE);    /* needs an array that is not there */
    CHECK_EQ(ga_optimizer_bind(r.optimizer, 3, NULL), GA_EVALUE);
    CHECK_EQ(ga_optimizer_take(r.optimizer, 1, 1), GA_EVALUE);
    CHECK(strstr(ga_error(), "only AdamA"));
    h = (ga_hyper){.lr = 0.1, .nesterov = 1};
    CHECK_EQ(ga_optimizer_create(r.net, GA_SGD, &h, 1, group, &o), GA_EVALUE);
    give_back(&r);
    give_back(&other);
}

static void a_window_and_its_network_may_go_in_any_order(void)
{
    run r = classifier(GA_FLOAT32, 4, 0);
    ga_window_options options = plain();
    ga_window *first;
    double norm;
    int clipped;
    add_window(&r, &options);
    first = r.window;
    add_window(&r, &options);                            /* replaces the first */
    CHECK_EQ(ga_window_begin(first), GA_ESTAGE);
    CHECK(strstr(ga_error(), "replaced"));
    CHECK_EQ(ga_window_clip(first, 1, &norm, &clipped), GA_ESTAGE);
    ga_window_free(first);
    CHECK_EQ(ga_window_begin(r.window), GA_OK);
    ga_net_free(r.net);
    CHECK_EQ(ga_window_begin(r.window), GA_ESTAGE);
    ga_window_free(r.window);
    ga_window_free(NULL);
    ga_net_free(NULL);
    ga_optimizer_free(NULL);
    for (int b = 0; b < GA_BLOCKS; b++)
        free(r.memory[b]);
}

/* ---- nothing to divide by, and NaN ---- */

static void windows_that_are_skipped(void)
{
    data d = make_data(GA_FLOAT64, 8);
    for (int nan = 0; nan < 2; nan++) {
        run r = classifier(GA_FLOAT64, 4, 0);
        ga_window_options options = plain();
        options.on_nonfinite = GA_NONFINITE_SKIP_UPDATE;
        options.ema_decay = 0.5;
        add_optimizer(&r, GA_ADAMW);
        add_window(&r, &options);
        void *before = block(r.bytes[GA_PARAMETERS]);
        memcpy(before, r.memory[GA_PARAMETERS], (size_t)r.bytes[GA_PARAMETERS]);
        double zero[8] = {0}, kept = ((double *)d.x)[3];
        ga_batch b = rows(&d, GA_FLOAT64, 0, 8);
        if (nan)
            ((double *)d.x)[3] = NAN;
        else
            b.weight = zero;
        ga_update u;
        CHECK_EQ(ga_window_update(r.window, &b, 4, NULL, NULL, &u), GA_OK);
        CHECK_EQ(u.skipped, nan ? GA_SKIPPED_NONFINITE : GA_SKIPPED_ZERO_WEIGHT);
        CHECK(!memcmp(before, r.memory[GA_PARAMETERS], (size_t)r.bytes[GA_PARAMETERS]));
        CHECK(!memcmp(before, r.ema, (size_t)(r.count * 8)));
        CHECK_EQ(ga_window_counters(r.window)->updates, 0);
        CHECK_EQ(*ga_optimizer_clock(r.optimizer), 0);
        CHECK_EQ(ga_net_stage(r.net), GA_STAGE_CLEAR);
        ((double *)d.x)[3] = kept;
        b = rows(&d, GA_FLOAT64, 0, 8);
        CHECK_EQ(ga_window_update(r.window, &b, 4, NULL, NULL, &u), GA_OK);
        CHECK_EQ(u.skipped, GA_NOT_SKIPPED);
        CHECK(isfinite(u.grad_norm) && memcmp(before, r.memory[GA_PARAMETERS], (size_t)r.bytes[GA_PARAMETERS]));
        free(before);
        give_back(&r);
    }
    run r = classifier(GA_FLOAT64, 4, 0);
    ga_window_options options = plain();
    add_optimizer(&r, GA_ADAMW);
    add_window(&r, &options);
    ((double *)d.x)[3] = NAN;
    ga_batch b = rows(&d, GA_FLOAT64, 0, 8);
    ga_update u;
    CHECK_EQ(ga_window_update(r.window, &b, 4, NULL, NULL, &u), GA_ENONFINITE);
    CHECK_EQ(ga_window_counters(r.window)->micro_steps, 0);
    CHECK_EQ(ga_net_stage(r.net), GA_STAGE_CLEAR);
    give_back(&r);
    free_data(&d);
}

/* ---- staged windows ---- */

static void staged_sums_are_additions(void)
{
    data d = make_data(GA_FLOAT32, 20);
    for (int buffer = GA_BUFFER_REAL; buffer <= GA_BUFFER_FLOAT64; buffer++) {
        run r = classifier(GA_FLOAT32, 5, 0);
        ga_window_options options = plain();
        options.staged = 1;
        options.buffer = buffer;
        add_optimizer(&r, GA_SGD);
        add_window(&r, &options);
        void *before = block(r.count * 8);
        double sum, weight;
        for (int i = 0; i < 4; i++) {
            int64_t bytes = r.count * (buffer == GA_BUFFER_REAL ? 4 : 8);
            memcpy(before, r.buffer, (size_t)bytes);
            ga_batch b = rows(&d, GA_FLOAT32, 5 * i, 5);
            CHECK_EQ(ga_window_add(r.window, &b, &sum, &weight, NULL), GA_OK);
            for (int64_t j = 0; j < r.count; j++) {
                float g = ((float *)r.memory[GA_GRADIENTS])[j];
                if (buffer == GA_BUFFER_REAL)
                    CHECK(((float *)r.buffer)[j] == ((float *)before)[j] + g);
                else
                    CHECK(((double *)r.buffer)[j] == ((double *)before)[j] + (double)g);
            }
        }
        free(before);
        give_back(&r);
    }
    free_data(&d);
}

/* ---- saving in the middle ---- */

/* After each of 3 micro-batches of a window: everything that can be saved goes into a new network, which finishes. */
static void a_saved_window_goes_on_with_the_same_bits(void)
{
    data d = make_data(GA_FLOAT32, 30);
    for (int staged = 0; staged < 2; staged++) {
        void *expected = NULL;
        for (int cut = 0; cut < 4; cut++) {
            ga_window_options options = plain();
            options.staged = staged;
            options.buffer = staged ? GA_BUFFER_COMPENSATED : GA_BUFFER_REAL;
            options.ema_decay = 0.9;
            run r = classifier(GA_FLOAT32, 10, 0);
            add_optimizer(&r, GA_ADAMW);
            add_window(&r, &options);
            double sum, weight;
            ga_update u;
            for (int i = 0; i < 6; i++) {                        /* two windows; the cut is in the second */
                ga_batch b = rows(&d, GA_FLOAT32, 10 * (i % 3), 10);
                CHECK_EQ(ga_window_add(r.window, &b, &sum, &weight, NULL), GA_OK);
                if (i == 3 + cut) {
                    run next = classifier(GA_FLOAT32, 10, 0);
                    add_optimizer(&next, GA_ADAMW);
                    add_window(&next, &options);
                    ga_window_state state;
                    ga_window_get_state(r.window, &state);
                    memcpy(next.memory[GA_PARAMETERS], r.memory[GA_PARAMETERS], (size_t)r.bytes[GA_PARAMETERS]);
                    memcpy(next.memory[GA_GRADIENTS], r.memory[GA_GRADIENTS], (size_t)r.bytes[GA_GRADIENTS]);
                    for (int k = 0; k < 2; k++)
                        memcpy(next.state[k], r.state[k], (size_t)(r.count * 4));
                    memcpy(next.ema, r.ema, (size_t)(r.count * 4));
                    if (staged) {
                        memcpy(next.buffer, r.buffer, (size_t)(r.count * 4));
                        memcpy(next.compensation, r.compensation, (size_t)(r.count * 4));
                    }
                    *ga_optimizer_clock(next.optimizer) = *ga_optimizer_clock(r.optimizer);
                    *ga_window_counters(next.window) = *ga_window_counters(r.window);
                    ga_net_touch(next.net);
                    CHECK_EQ(ga_window_set_state(next.window, &state), GA_OK);
                    give_back(&r);
                    r = next;
                }
                if (i % 3 == 2)
                    CHECK_EQ(ga_window_finish(r.window, &u), GA_OK);
            }
            CHECK_EQ(ga_window_counters(r.window)->updates, 2);
            if (!expected) {
                expected = block(2 * r.count * 4);
                memcpy(expected, r.memory[GA_PARAMETERS], (size_t)(r.count * 4));
                memcpy((char *)expected + r.count * 4, r.ema, (size_t)(r.count * 4));
            }
            CHECK(!memcmp(expected, r.memory[GA_PARAMETERS], (size_t)(r.count * 4)));
            CHECK(!memcmp((char *)expected + r.count * 4, r.ema, (size_t)(r.count * 4)));
            give_back(&r);
        }
        free(expected);
    }
    run r = classifier(GA_FLOAT32, 10, 0);
    ga_window_options options = plain();
    add_window(&r, &options);
    ga_window_state wrong[] = {{.stage = -1}, {.stage = GA_STAGES}, {.micro_step = -1}, {.samples = -1}, {.elements = -1}, {.rejected = -1}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK_EQ(ga_window_set_state(r.window, &wrong[i]), GA_EVALUE);
    give_back(&r);
    free_data(&d);
}

/* ---- memory that was never bound, arrays that are not there ---- */

static void unbound_buffer(void)
{
    run r = classifier(GA_FLOAT32, 8, 0);
    data d = make_data(GA_FLOAT32, 8);
    ga_batch b = rows(&d, GA_FLOAT32, 0, 8);
    ga_window_options options = plain();
    double sum, weight;
    options.staged = 1;
    CHECK_EQ(ga_window_create(r.net, NULL, &options, &r.window), GA_OK);
    CHECK_EQ(ga_window_add(r.window, &b, &sum, &weight, NULL), GA_EVALUE);
    give_back(&r);
    free_data(&d);
}

static void unbound_state(void)
{
    run r = classifier(GA_FLOAT32, 8, 0);
    data d = make_data(GA_FLOAT32, 8);
    ga_batch b = rows(&d, GA_FLOAT32, 0, 8);
    ga_window_options options = plain();
    ga_hyper h = {.lr = 0.1, .momentum = 0.9};
    int group[4] = {0};
    ga_update u;
    CHECK_EQ(ga_optimizer_create(r.net, GA_SGD, &h, 1, group, &r.optimizer), GA_OK);
    CHECK_EQ(ga_window_create(r.net, r.optimizer, &options, &r.window), GA_OK);
    CHECK_EQ(ga_window_update(r.window, &b, 8, NULL, NULL, &u), GA_EVALUE);
    give_back(&r);
    free_data(&d);
}

static void missing_input(void)
{
    run r = classifier(GA_FLOAT32, 8, 0);
    data d = make_data(GA_FLOAT32, 8);
    ga_batch b = rows(&d, GA_FLOAT32, 0, 8);
    b.input[0] = NULL;
    CHECK_EQ(ga_forward(r.net, &b), GA_EVALUE);
    give_back(&r);
    free_data(&d);
}

static void missing_output(void)
{
    run r = classifier(GA_FLOAT32, 8, 0);
    data d = make_data(GA_FLOAT32, 8);
    ga_batch b = rows(&d, GA_FLOAT32, 0, 8);
    CHECK_EQ(ga_predict(r.net, &b, NULL), GA_EVALUE);
    give_back(&r);
    free_data(&d);
}

int main(void)
{
    every_split_has_the_same_bits();
    every_call_in_every_stage();
    wrong_batches_change_nothing();
    wrong_options();
    a_window_and_its_network_may_go_in_any_order();
    windows_that_are_skipped();
    staged_sums_are_additions();
    a_saved_window_goes_on_with_the_same_bits();
    unbound_buffer();
    unbound_state();
    missing_input();
    missing_output();
    return 0;
}
