/* Inside a window nothing is allocated: this program's own malloc counts. */
#include "nets.h"

#if defined __GLIBC__ && !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
#include <errno.h>
#include <stdatomic.h>

static atomic_int calls;
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);
void *malloc(size_t n) { atomic_fetch_add(&calls, 1); return __libc_malloc(n); }
void *calloc(size_t a, size_t b) { atomic_fetch_add(&calls, 1); return __libc_calloc(a, b); }
void *realloc(void *p, size_t n) { atomic_fetch_add(&calls, 1); return __libc_realloc(p, n); }
void *aligned_alloc(size_t a, size_t n) { atomic_fetch_add(&calls, 1); return __libc_memalign(a, n); }
int posix_memalign(void **p, size_t a, size_t n)
{
    atomic_fetch_add(&calls, 1);
    return (*p = __libc_memalign(a, n)) ? 0 : ENOMEM;
}
void free(void *p) { atomic_fetch_add(&calls, p != NULL); __libc_free(p); }

/* One window in each way, a skipped one, a refused batch, and looks in between. */
static void windows(run *r, const data *d, void *out)
{
    ga_batch all = rows(d, r->dtype, 0, d->samples), wrong = all;
    ga_update u;
    double sum, weight, norm, losses[8], weights[8], zeros[64] = {0};
    int flag;
    CHECK_EQ(ga_window_update(r->window, &all, 10, losses, weights, &u), GA_OK);
    for (int64_t first = 0; first < d->samples; first += 16) {
        ga_batch part = rows(d, r->dtype, first, 16);
        CHECK_EQ(ga_window_add(r->window, &part, &sum, &weight, &flag), GA_OK);
        CHECK_EQ(ga_predict(r->net, &all, out), GA_OK);
        CHECK_EQ(ga_evaluate(r->net, &all, &sum, &weight), GA_OK);
    }
    CHECK_EQ(ga_window_finish(r->window, &u), GA_OK);
    for (int64_t first = 0; first < d->samples; first += 16) {
        ga_batch part = rows(d, r->dtype, first, 16);
        CHECK_EQ(ga_forward(r->net, &part), GA_OK);
        CHECK_EQ(ga_loss(r->net, &part, &sum, &weight), GA_OK);
        CHECK_EQ(ga_backward(r->net), GA_OK);
        CHECK_EQ(ga_window_accumulate(r->window, &flag), GA_OK);
    }
    CHECK_EQ(ga_window_normalize(r->window), GA_OK);
    CHECK_EQ(ga_window_clip(r->window, 0.1, &norm, &flag), GA_OK);
    CHECK_EQ(ga_window_apply(r->window), GA_OK);
    CHECK_EQ(ga_window_clear(r->window, 0), GA_OK);
    all.weight = zeros;
    CHECK_EQ(ga_window_update(r->window, &all, 16, NULL, NULL, &u), GA_OK);
    CHECK_EQ(u.skipped, GA_SKIPPED_ZERO_WEIGHT);
    wrong.samples = 0;
    CHECK_EQ(ga_window_update(r->window, &wrong, 16, NULL, NULL, &u), GA_EVALUE);
    CHECK_EQ(ga_window_apply(r->window), GA_ESTAGE);
}

static void no_allocation(int staged, ga_buffer buffer, int threads)
{
    CHECK_EQ(ga_set_threads(threads), GA_OK);
    run r = classifier(GA_FLOAT32, 16, 0);
    data d = make_data(GA_FLOAT32, 64);
    void *out = block(64 * CLASSES * 4);
    ga_window_options options = plain();
    options.staged = staged;
    options.buffer = buffer;
    options.ema_decay = 0.9;
    add_optimizer(&r, GA_ADAMW);
    add_window(&r, &options);
    windows(&r, &d, out);                                    /* the first starts the threads */
    int before = atomic_load(&calls);
    for (int i = 0; i < 20; i++)
        windows(&r, &d, out);
    CHECK_EQ(atomic_load(&calls), before);
    free(out);
    free_data(&d);
    give_back(&r);
}

int main(void)
{
    int before = atomic_load(&calls);
    free(block(10));
    if (atomic_load(&calls) == before)
        return 0;                                            /* valgrind has its own malloc, too */
    CHECK_EQ(atomic_load(&calls), before + 2);
    for (int threads = 1; threads <= 3; threads += 2) {
        no_allocation(0, GA_BUFFER_REAL, threads);
        for (ga_buffer b = GA_BUFFER_REAL; b <= GA_BUFFER_FLOAT16; b++)
            no_allocation(1, b, threads);
    }
    return 0;
}
#else
int main(void) { return 0; }                                 /* the sanitizers have their own malloc */
#endif
