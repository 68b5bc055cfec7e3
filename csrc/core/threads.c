/* A pool of threads of our own. OpenMP's would hang in a forked child and fight with NumPy's BLAS for the cores.
 *
 * A worker that has run out of work spins for about a millisecond, so that the next kernel of the step finds it awake (a
 * wake-up through the kernel costs hundreds of microseconds on a virtual machine), then sleeps. One caller at a time has the
 * pool; another caller runs its tasks alone. Each thread begins with its own share of the tasks, so that a sample stays in the
 * cache of the core that worked on it in the layer before, then helps with the others'; which thread runs which task changes no result. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "internal.h"

enum { MAX_THREADS = 256 };

static pthread_mutex_t owner = PTHREAD_MUTEX_INITIALIZER;     /* who has the pool */
static pthread_mutex_t sleep_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static atomic_int wanted;                                     /* ga_set_threads; 0: not set yet */
static int workers;                                           /* started; guarded by owner */
static atomic_uint generation;                                /* one per job */
static atomic_int sleepers;
static struct { _Alignas(64) atomic_int next; } share[MAX_THREADS];   /* next task of each thread's share */
static atomic_int open_job, inside;                           /* whether workers may join; how many are in it */
static unsigned born[MAX_THREADS];                            /* generation when a worker was started */
static struct { void (*task)(void *, int, int); void *context; int tasks, threads; } job;

static void relax(void)
{
#if defined __x86_64__ || defined __i386__
    __builtin_ia32_pause();
#endif
}

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

double ga_now(void) { return (double)now() * 1e-9; }

static int share_start(int thread) { return (int)((int64_t)job.tasks * thread / job.threads); }

static void run(int worker)
{
    for (int turn = 0; turn < job.threads; turn++) {
        int of = (worker + turn) % job.threads, end = share_start(of + 1);
        for (int i; atomic_load(&share[of].next) < end && (i = atomic_fetch_add(&share[of].next, 1)) < end;)
            job.task(job.context, i, worker);
    }
}

static void *work(void *argument)
{
    int self = (int)(intptr_t)argument;                       /* 1, 2, ...; the caller is 0 */
    unsigned seen = born[self];
    for (;;) {
        int64_t until = now() + 1000000;
        for (int spins = 0; atomic_load(&generation) == seen; spins++) {
            relax();
            if ((spins & 255) || now() < until)
                continue;
            pthread_mutex_lock(&sleep_lock);
            atomic_fetch_add(&sleepers, 1);
            while (atomic_load(&generation) == seen)
                pthread_cond_wait(&wake, &sleep_lock);
            atomic_fetch_sub(&sleepers, 1);
            pthread_mutex_unlock(&sleep_lock);
        }
        seen = atomic_load(&generation);
        atomic_fetch_add(&inside, 1);                         /* first say so, then look whether it is still open */
        if (atomic_load(&open_job) && self < job.threads)
            run(self);
        atomic_fetch_sub(&inside, 1);
    }
    return NULL;
}

/* In a forked child no worker lives on; the locks may have been held by another thread. */
static void child(void)
{
    pthread_mutex_init(&owner, NULL);
    pthread_mutex_init(&sleep_lock, NULL);
    pthread_cond_init(&wake, NULL);
    workers = 0;
    atomic_store(&sleepers, 0);
    atomic_store(&inside, 0);
    atomic_store(&open_job, 0);
}

static void start(int threads)
{
    static int registered;
    if (!registered) {
        pthread_atfork(NULL, NULL, child);
        registered = 1;
    }
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    while (workers < threads - 1) {
        pthread_t thread;
        born[workers + 1] = atomic_load(&generation);
        if (pthread_create(&thread, &attributes, work, (void *)(intptr_t)(workers + 1)))
            break;                                            /* fewer threads: slower, nothing else */
        workers++;
    }
    pthread_attr_destroy(&attributes);
}

void ga_parallel(int threads, int tasks, void (*task)(void *, int, int), void *context)
{
    if (threads > tasks)
        threads = tasks;
    if (threads < 2 || pthread_mutex_trylock(&owner)) {
        for (int i = 0; i < tasks; i++)
            task(context, i, 0);
        return;
    }
    if (workers < threads - 1)
        start(threads);
    job.task = task;
    job.context = context;
    job.tasks = tasks;
    job.threads = threads;
    for (int i = 0; i < threads; i++)
        atomic_store(&share[i].next, share_start(i));
    atomic_store(&open_job, 1);
    atomic_fetch_add(&generation, 1);
    if (atomic_load(&sleepers)) {
        pthread_mutex_lock(&sleep_lock);
        pthread_cond_broadcast(&wake);
        pthread_mutex_unlock(&sleep_lock);
    }
    run(0);
    atomic_store(&open_job, 0);                               /* a worker that has not come by now is not waited for */
    for (int spins = 0; atomic_load(&inside); spins++) {
        relax();
        if (spins > 20000)
            sched_yield();                                    /* fewer cores than threads */
    }
    pthread_mutex_unlock(&owner);
}

int ga_get_threads(void)
{
    int n = atomic_load(&wanted);
    if (n)
        return n;
    const char *text = getenv("GRADACCUM_NUM_THREADS");
    n = text ? atoi(text) : 0;
    if (n < 1)
        n = (int)sysconf(_SC_NPROCESSORS_ONLN);
    n = n < 1 ? 1 : n > MAX_THREADS ? MAX_THREADS : n;
    atomic_store(&wanted, n);
    return n;
}

ga_status ga_set_threads(int n)
{
    if (n < 1 || n > MAX_THREADS)
        return ga_fail(GA_EVALUE, "threads: got %d, expected 1 to %d", n, MAX_THREADS);
    atomic_store(&wanted, n);
    return GA_OK;
}
